//! The next segment to be sent: headers and options around what the sender planned, acknowledgements, probes and resets.

use plumb_base::time::Instant;
use plumb_wire::ip::Ecn;
use plumb_wire::option::OptionArea;
use plumb_wire::tcp::TcpFlags;

use super::config::IpMarks;
use super::connection::Connection;
use super::handshake::{OptionWriter, SynOffer, ecn_of_syn};
use super::info::{SegmentRecord, TracedKind};
use super::segment::OutboundSegment;
use super::sender::SegmentPlan;
use super::seq::SeqNum;
use super::socket::TcpState;

impl OutboundSegment {
    /// A segment without payload, window and options.
    pub const fn bare(seq: SeqNum, ack: u32, flags: TcpFlags) -> Self {
        Self {
            seq,
            ack,
            flags,
            window: 0,
            options: OptionArea::EMPTY,
            timestamps: None,
            len: 0,
            size: u16::MAX,
            ecn: Ecn::NotCapable,
            marks: IpMarks::DEFAULT,
        }
    }
}

impl Connection {
    /// The next segment, if one may be sent now. `Connection::copy_payload` writes its payload.
    #[inline]
    pub fn poll_segment(&mut self, now: Instant) -> Option<OutboundSegment> {
        if !self.is_ready {
            return None;
        }
        if let Some((seq, ack)) = self.reset.take() {
            let flags = if ack.is_some() { TcpFlags::RST | TcpFlags::ACK } else { TcpFlags::RST };
            // RFC 7323 §3.2: a RST should have timestamps too.
            let timestamps = ack.and_then(|_| self.timestamps(now));
            let bare = OutboundSegment::bare(seq, ack.map_or(0, SeqNum::wire), flags);
            return Some(OutboundSegment { timestamps, marks: self.marks, ..bare });
        }
        match self.state {
            TcpState::Closed => {}
            TcpState::SynSent | TcpState::SynReceived => {
                if let Some(segment) = self.poll_syn(now) {
                    return Some(segment);
                }
            }
            _ => {
                if let Some(segment) = self.poll_synchronized(now) {
                    return Some(segment);
                }
            }
        }
        self.is_ready = false;
        None
    }

    fn poll_syn(&mut self, now: Instant) -> Option<OutboundSegment> {
        let iss = self.tx.iss;
        let plan = if self.tx.nxt == iss {
            SegmentPlan { seq: iss, end: iss + 1, size: 1, is_retransmission: false }
        } else {
            let is_lost =
                self.tx.queue.front().is_some_and(|syn| syn.is_lost && !syn.is_retransmitted);
            if !is_lost && self.state == TcpState::SynReceived && self.rx.acks.is_due() {
                return Some(self.bare_ack(now));
            }
            is_lost.then_some(SegmentPlan {
                seq: iss,
                end: iss + 1,
                size: 1,
                is_retransmission: true,
            })?
        };
        let is_answer = self.state == TcpState::SynReceived;
        let offer = self.offer(now);
        let offer = if is_answer { self.answer(&offer) } else { offer };
        let mut flags = TcpFlags::SYN;
        if is_answer {
            flags = flags | TcpFlags::ACK;
            self.rx.acks.on_sent(false);
        } else if !plan.is_retransmission {
            flags = flags | ecn_of_syn(self.config.ecn);
        }
        let window = self.syn_window();
        let ack = if is_answer { self.rx.nxt.wire() } else { 0 };
        let options = offer.options(self.config.personality.syn_options);
        self.tx.on_sent(now, &plan, offer.timestamps.map(|(value, _)| value));
        self.record(now, traced(&plan), 0, 0);
        let bare = OutboundSegment::bare(iss, ack, flags);
        Some(OutboundSegment { window, options, marks: self.marks, ..bare })
    }

    /// What a SYN-ACK of ours says when SYNs crossed.
    fn answer(&self, offer: &SynOffer) -> SynOffer {
        SynOffer {
            window_scale: offer.window_scale.filter(|_| self.agreed.window_scale.is_some()),
            sack: self.tx.options.sack,
            timestamps: offer
                .timestamps
                .zip(self.rx.timestamp)
                .map(|((value, _), (echo, _))| (value, echo)),
            ..*offer
        }
    }

    /// The window of a SYN, which is not scaled.
    pub(super) fn syn_window(&self) -> u16 {
        u16::try_from(self.config.receive_buffer.initial).unwrap_or(u16::MAX)
    }

    #[inline]
    fn poll_synchronized(&mut self, now: Instant) -> Option<OutboundSegment> {
        let blocks = self.sack_len();
        if let Some(plan) = self.tx.plan(now, blocks, self.path.super_segment) {
            return Some(self.segment_of(now, &plan));
        }
        self.note_blocked(now);
        if self.solicit {
            self.solicit = false;
            return Some(self.probe(now));
        }
        if self.repeats > 0 {
            self.repeats -= 1;
            return Some(self.bare_ack(now));
        }
        if !self.rx.acks.is_due() {
            return None;
        }
        if self.config.defects.duplicate_acks {
            self.repeats = 1;
        }
        // A FIN that is not acknowledged.
        let has_fin = self.tx.is_closed && self.tx.nxt > self.tx.end && self.tx.una <= self.tx.end;
        if has_fin && self.config.personality.repeats_fin && !self.is_challenge {
            return Some(self.with_ack(now, self.tx.end, TcpFlags::ACK | TcpFlags::FIN, false));
        }
        Some(self.bare_ack(now))
    }

    /// Notes what holds the next segment back, if anything: a timer must be armed for it.
    #[inline]
    fn note_blocked(&mut self, now: Instant) {
        let tx = &mut self.tx;
        tx.note_app_limited();
        let is_waiting = tx.stream_end() > tx.nxt || tx.queue.lost() > tx.queue.retransmitted();
        let ready_at = tx.pacer.ready_at();
        self.timers.paced_until = (is_waiting && ready_at > now).then_some(ready_at);
        if tx.queue.is_empty() && tx.timer.is_none() {
            tx.arm(now);
        }
    }

    fn segment_of(&mut self, now: Instant, plan: &SegmentPlan) -> OutboundSegment {
        let tx = &mut self.tx;
        let has_fin = tx.is_closed && plan.end == tx.end + 1;
        let data_end = if has_fin { plan.end - 1 } else { plan.end };
        let len = usize::try_from(data_end - plan.seq).expect("no longer than a super-segment");
        let mut flags = TcpFlags::ACK;
        if has_fin {
            flags = flags | TcpFlags::FIN;
        }
        let is_pushed = if tx.writes.is_open {
            data_end < tx.end && tx.writes.ends_record(data_end)
        } else {
            data_end == tx.end
                || self.pushes_super_segments && len > plan.size.into()
                || tx.writes.ends_record(data_end)
        };
        if len > 0 && is_pushed {
            flags = flags | TcpFlags::PSH;
        }
        let mut ecn = Ecn::NotCapable;
        if tx.options.ecn && len > 0 && !plan.is_retransmission {
            // RFC 3168 §6.1.5: retransmissions are not marked as capable.
            ecn = Ecn::Capable0;
            if std::mem::take(&mut tx.announce_reduction) {
                flags = flags | TcpFlags::CWR;
            }
        }
        let timestamp = self.agreed.timestamps.then(|| self.clock.value(now));
        tx.on_sent(now, plan, timestamp);
        let offset = plan.seq - tx.data_start().min(plan.seq);
        self.record(now, traced(plan), offset, len);
        let mut segment = self.with_ack(now, plan.seq, flags, len > 0);
        (segment.len, segment.size, segment.ecn) = (len, plan.size, ecn);
        segment
    }

    /// An acknowledgement without data.
    fn bare_ack(&mut self, now: Instant) -> OutboundSegment {
        self.with_ack(now, self.tx.nxt, TcpFlags::ACK, false)
    }

    /// A segment just before the window, which makes the peer say where it is: a keep-alive or a window probe, as Linux sends them.
    fn probe(&mut self, now: Instant) -> OutboundSegment {
        self.with_ack(now, self.tx.una - 1, TcpFlags::ACK, false)
    }

    /// A segment that acknowledges what was received, with the window and the options of an open connection.
    #[inline]
    fn with_ack(
        &mut self,
        now: Instant,
        seq: SeqNum,
        flags: TcpFlags,
        with_data: bool,
    ) -> OutboundSegment {
        let mut timestamps = self.timestamps(now);
        let mut options = OptionArea::EMPTY;
        if self.tx.options.sack && self.rx.out_of_order.has_blocks() {
            options = self.options_with_blocks(timestamps.take());
        }
        let window = self.rx.offer();
        self.is_challenge = false;
        self.rx.last_ack = self.rx.nxt;
        self.rx.acks.on_sent(with_data);
        self.rx.out_of_order.on_reported();
        let flags = if self.rx.echo_marks { flags | TcpFlags::ECE } else { flags };
        OutboundSegment {
            window,
            options,
            timestamps,
            marks: self.marks,
            ..OutboundSegment::bare(seq, self.rx.nxt.wire(), flags)
        }
    }

    /// Bytes of SACK blocks that the next segment carries, with their padding.
    #[inline]
    fn sack_len(&self) -> u16 {
        if !self.tx.options.sack || !self.rx.out_of_order.has_blocks() {
            return 0;
        }
        let blocks = self.rx.out_of_order.sack_blocks(self.sack_max()).as_slice().len();
        4 + 8 * u16::try_from(blocks).expect("at most four")
    }

    #[inline]
    const fn sack_max(&self) -> usize {
        if self.agreed.timestamps { 3 } else { 4 }
    }

    #[inline]
    fn timestamps(&self, now: Instant) -> Option<(u32, u32)> {
        let echo = self.rx.timestamp.map_or(0, |(value, _)| value);
        self.agreed.timestamps.then(|| (self.clock.value(now), echo))
    }

    /// SACK blocks, with timestamps before them.
    #[cold]
    fn options_with_blocks(&self, timestamps: Option<(u32, u32)>) -> OptionArea {
        let mut area = OptionWriter::new();
        if let Some((value, echo)) = timestamps {
            area.put_timestamps(value, echo);
        }
        let blocks = self.rx.out_of_order.sack_blocks(self.sack_max());
        let len = 2 + 8 * u8::try_from(blocks.as_slice().len()).expect("at most four");
        area.put(&[1, 1, 5, len]);
        for (left, right) in blocks.as_slice() {
            area.put(&left.to_be_bytes());
            area.put(&right.to_be_bytes());
        }
        area.finish()
    }

    pub(super) fn record(&mut self, now: Instant, kind: TracedKind, offset: u64, len: usize) {
        let Some(trace) = &mut self.trace else { return };
        let tx = &self.tx;
        trace.push(SegmentRecord {
            at: now,
            kind,
            offset,
            len: u32::try_from(len).unwrap_or(u32::MAX),
            flight: tx.flight(),
            cwnd: tx.congestion.window.cwnd,
            ssthresh: tx.congestion.window.ssthresh,
            srtt: tx.rtt.srtt(),
            send_window: tx.window.end().saturating_since(tx.una),
        });
    }
}

const fn traced(plan: &SegmentPlan) -> TracedKind {
    if plan.is_retransmission { TracedKind::Retransmitted } else { TracedKind::Sent }
}
