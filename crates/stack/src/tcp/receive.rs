//! A segment arrives (RFC 9293 §3.10.7): by header prediction where it is what was expected, else checked step by step.

use plumb_base::time::Instant;
use plumb_copy::Sum16;
use plumb_wire::ip::Ecn;
use plumb_wire::tcp::TcpFlags;

use super::connection::{Connection, TcpSocketError};
use super::handshake::Handshake;
use super::info::TracedKind;
use super::segment::{InboundSegment, OutboundSegment};
use super::seq::SeqNum;
use super::socket::TcpState;

/// What happened to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentFate {
    /// It served its purpose.
    Accepted,
    /// It was dropped.
    Dropped(SegmentDrop),
    /// It was dropped, and the peer is to be told where we are, if not too often: see [`Connection::challenge`] (RFC 5961).
    Challenge(SegmentDrop),
    /// It belongs to no connection of ours: the answer is this RST.
    Reset(OutboundSegment),
}

/// Why a segment was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SegmentDrop {
    /// Its checksum is wrong.
    Checksum,
    /// Its timestamp is older than one received before (PAWS, RFC 7323 §5).
    OldTimestamp,
    /// It has no timestamp, though both ends agreed to send them (RFC 7323 §3.2).
    NoTimestamp,
    /// It lies outside of the window.
    OutOfWindow,
    /// It acknowledges what was never sent, or long ago.
    BadAck,
    /// It has neither ACK nor RST nor SYN.
    NoAck,
    /// A RST or SYN that may be forged.
    Suspicious,
    /// The connection is closed.
    Closed,
}

/// How much older than TS.Recent the clock of PAWS may be before it is no longer trusted (RFC 7323 §5.5).
const PAWS_TRUST: plumb_base::time::Span = plumb_base::time::Span::from_secs(24 * 86_400);

impl Connection {
    /// Handles a segment.
    #[inline]
    pub fn handle_segment(
        &mut self,
        now: Instant,
        segment: &mut InboundSegment<'_>,
    ) -> SegmentFate {
        if let Some(fate) = self.receive_expected(now, segment) {
            return fate;
        }
        self.rx.counts.segments += u64::from(segment.count);
        if !segment.verify() {
            return SegmentFate::Dropped(SegmentDrop::Checksum);
        }
        let fate = self.receive_any(now, segment);
        if fate == SegmentFate::Accepted {
            self.record_received(now, segment);
        }
        fate
    }

    #[inline]
    fn record_received(&mut self, now: Instant, segment: &InboundSegment<'_>) {
        if self.trace.is_some() {
            let seq = self.rx.nxt.nearest(segment.seq);
            let offset = seq.saturating_since(self.rx.irs + 1);
            self.record(now, TracedKind::Received, offset, segment.payload.len());
        }
    }

    /// Handles the segment that is expected next of an open connection, with nothing unusual about it (Jacobson's header prediction);
    /// nothing is done with any other.
    #[inline]
    pub(super) fn receive_expected(
        &mut self,
        now: Instant,
        segment: &mut InboundSegment<'_>,
    ) -> Option<SegmentFate> {
        const EXPECTED: u16 = TcpFlags::ACK.bits();
        let is_plain = segment.flags.bits() & !TcpFlags::PSH.bits() == EXPECTED
            && self.state == TcpState::Established
            && segment.seq == self.rx.nxt.wire()
            && segment.options.sack.is_empty()
            && self.rx.out_of_order.is_empty()
            && self.rx.fin.is_none()
            && segment.ecn != Ecn::Congestion;
        if !is_plain {
            return None;
        }
        let ack = self.tx.una.nearest(segment.ack);
        if ack < self.tx.una || ack > self.tx.nxt {
            return None;
        }
        let end = self.rx.nxt + segment.payload.len() as u64;
        if end > self.rx.window.edge() || !self.is_timestamp_expected(segment) {
            return None;
        }
        let sum = self.rx.stage(segment.payload, !segment.is_verified())?;
        self.rx.counts.segments += u64::from(segment.count);
        if !segment.verify_with(if segment.payload.is_empty() { Sum16::ZERO } else { sum }) {
            return Some(SegmentFate::Dropped(SegmentDrop::Checksum));
        }
        self.hear(now, segment, self.rx.nxt);
        let seq = self.rx.nxt;
        if !segment.payload.is_empty() {
            self.take_in_sequence(now, segment);
        }
        self.process_ack(now, seq, ack, segment);
        self.is_ready = true;
        self.record_received(now, segment);
        Some(SegmentFate::Accepted)
    }

    #[inline]
    fn take_in_sequence(&mut self, now: Instant, segment: &InboundSegment<'_>) {
        let len = segment.payload.len() as u64;
        // No division for what came as it was sent.
        let of_one = if segment.count <= 1 { len } else { len.div_ceil(segment.count.into()) };
        self.rx.commit(now, len, of_one);
    }

    #[inline]
    fn is_timestamp_expected(&self, segment: &InboundSegment<'_>) -> bool {
        match (segment.options.timestamps, self.rx.timestamp) {
            (Some((value, _)), Some((recent, _))) => value.wrapping_sub(recent).cast_signed() >= 0,
            (_, None) => true,
            (None, Some(_)) => false,
        }
    }

    /// Something of the peer arrived that was in order: timestamps, keep-alive.
    #[inline]
    fn hear(&mut self, now: Instant, segment: &InboundSegment<'_>, seq: SeqNum) {
        self.timers.heard = now;
        self.timers.unanswered = 0;
        if let (Some((value, _)), Some((recent, _))) =
            (segment.options.timestamps, self.rx.timestamp)
            && seq <= self.rx.last_ack
            && value.wrapping_sub(recent).cast_signed() >= 0
        {
            self.rx.timestamp = Some((value, now));
        }
    }

    fn receive_any(&mut self, now: Instant, segment: &InboundSegment<'_>) -> SegmentFate {
        self.is_ready = true;
        match self.state {
            TcpState::Closed => SegmentFate::Dropped(SegmentDrop::Closed),
            TcpState::SynSent => self.receive_in_syn_sent(now, segment),
            _ => self.receive_synchronized(now, segment),
        }
    }

    /// RFC 9293 §3.10.7.3.
    fn receive_in_syn_sent(&mut self, now: Instant, segment: &InboundSegment<'_>) -> SegmentFate {
        let has = |flags| segment.flags.contains(flags);
        let ack = self.tx.una.nearest(segment.ack);
        let is_acceptable = ack > self.tx.iss && ack <= self.tx.nxt;
        if has(TcpFlags::ACK) && !is_acceptable {
            if has(TcpFlags::RST) {
                return SegmentFate::Dropped(SegmentDrop::BadAck);
            }
            return SegmentFate::Reset(reset_for(segment));
        }
        if has(TcpFlags::RST) {
            if !has(TcpFlags::ACK) {
                return SegmentFate::Dropped(SegmentDrop::NoAck);
            }
            self.fail(TcpSocketError::Refused);
            return SegmentFate::Accepted;
        }
        if !has(TcpFlags::SYN) {
            return SegmentFate::Dropped(SegmentDrop::NoAck);
        }
        let offer = self.offer(now);
        let mut agreed =
            Handshake::agreed(&offer, segment, self.tx.iss.wire(), self.ends.local.is_ipv6());
        agreed.clock = self.clock;
        agreed.advertised = self.syn_window();
        let asked = super::handshake::ecn_of_syn(self.config.ecn).contains(TcpFlags::ECE);
        agreed.ecn = asked && has(TcpFlags::ECE) && !has(TcpFlags::CWR) && has(TcpFlags::ACK);
        if has(TcpFlags::ACK) {
            agreed.rtt = self.handshake_rtt(now);
            self.finish_handshake(now, ack, &agreed);
            self.rx.acks.demand();
        } else {
            // SYNs crossed: ours is sent again as a SYN-ACK.
            self.on_established(now, &agreed);
            self.state = TcpState::SynReceived;
            self.tx.queue.mark_lost_where(|_| true);
            self.tx.recovery.force = true;
        }
        if !segment.payload.is_empty() && self.state == TcpState::Established {
            let seq = self.rx.nxt;
            self.rx.receive(now, seq, segment.payload, segment.payload.len() as u64);
        }
        SegmentFate::Accepted
    }

    fn handshake_rtt(&self, now: Instant) -> Option<plumb_base::time::Span> {
        let syn = self.tx.queue.front().filter(|syn| syn.is_original())?;
        Some(now.saturating_since(syn.sent_at))
    }

    /// Our SYN is acknowledged.
    fn finish_handshake(&mut self, now: Instant, ack: SeqNum, agreed: &Handshake) {
        while self.tx.queue.take_acked(ack).is_some() {}
        self.tx.queue.release();
        self.tx.una = ack;
        self.on_established(now, agreed);
        self.tx.rearm(now, true, None);
        self.timers.progress = now;
    }

    /// RFC 9293 §3.10.7.4, every state but SYN-SENT.
    fn receive_synchronized(&mut self, now: Instant, segment: &InboundSegment<'_>) -> SegmentFate {
        let has = |flags| segment.flags.contains(flags);
        let seq = self.rx.nxt.nearest(segment.seq);
        if let Some(fate) = self.check_timestamp(now, segment) {
            return fate;
        }
        if !self.is_answer_to_crossed_syn(seq, segment)
            && let Some(fate) = self.check_position(seq, segment)
        {
            return fate;
        }
        if !has(TcpFlags::ACK) {
            return SegmentFate::Dropped(SegmentDrop::NoAck);
        }
        let ack = self.tx.una.nearest(segment.ack);
        if self.state == TcpState::SynReceived {
            if ack <= self.tx.una || ack > self.tx.nxt {
                return SegmentFate::Reset(reset_for(segment));
            }
            self.state = TcpState::Established;
        }
        // RFC 5961 §5.2: what acknowledges the future, or more than a window ago, may be forged.
        if ack > self.tx.nxt || ack + self.tx.window.largest < self.tx.una {
            return SegmentFate::Challenge(SegmentDrop::BadAck);
        }
        self.hear(now, segment, seq);
        self.receive_marks(segment);
        self.process_ack(now, seq, ack, segment);
        self.on_acked(now);
        if self.state == TcpState::Closed {
            return SegmentFate::Accepted;
        }
        self.receive_text(now, seq, segment)
    }

    /// The SYN-ACK to our SYN, of a peer whose own SYN came before (RFC 9293 §3.5, figure 8): its number is that of the SYN.
    fn is_answer_to_crossed_syn(&self, seq: SeqNum, segment: &InboundSegment<'_>) -> bool {
        let has = |flags| segment.flags.contains(flags);
        let is_syn_ack = has(TcpFlags::SYN | TcpFlags::ACK) && !has(TcpFlags::RST);
        self.state == TcpState::SynReceived
            && is_syn_ack
            && segment.seq_len() == 1
            && seq + 1 == self.rx.nxt
    }

    /// The first, second and fourth check of RFC 9293 §3.10.7.4.
    fn check_position(&mut self, seq: SeqNum, segment: &InboundSegment<'_>) -> Option<SegmentFate> {
        if !self.rx.is_acceptable(seq, segment.seq_len()) {
            return Some(self.refuse(seq, segment));
        }
        if segment.flags.contains(TcpFlags::RST) {
            return Some(self.receive_reset(seq));
        }
        if !segment.flags.contains(TcpFlags::SYN) {
            return None;
        }
        // RFC 5961 §4.2.
        if self.config.personality.insecure_syn {
            self.fail(TcpSocketError::Reset);
            return Some(SegmentFate::Reset(reset_for(segment)));
        }
        Some(SegmentFate::Challenge(SegmentDrop::Suspicious))
    }

    /// RFC 7323 §5.3, R1.
    fn check_timestamp(
        &mut self,
        now: Instant,
        segment: &InboundSegment<'_>,
    ) -> Option<SegmentFate> {
        let (recent, since) =
            self.rx.timestamp.filter(|_| !segment.flags.contains(TcpFlags::RST))?;
        let Some((value, _)) = segment.options.timestamps else {
            return Some(SegmentFate::Dropped(SegmentDrop::NoTimestamp));
        };
        if value.wrapping_sub(recent).cast_signed() >= 0 || now.saturating_since(since) > PAWS_TRUST
        {
            return None;
        }
        self.rx.acks.demand();
        Some(SegmentFate::Dropped(SegmentDrop::OldTimestamp))
    }

    /// An unacceptable segment is answered with an acknowledgement, if it is no RST.
    fn refuse(&mut self, seq: SeqNum, segment: &InboundSegment<'_>) -> SegmentFate {
        let end = seq + segment.seq_len();
        if segment.flags.contains(TcpFlags::RST) {
            return SegmentFate::Dropped(SegmentDrop::OutOfWindow);
        }
        if self.state == TcpState::SynReceived && segment.flags.contains(TcpFlags::SYN) {
            // The peer did not get our SYN-ACK.
            self.tx.queue.mark_lost_where(|_| true);
            self.tx.recovery.force = true;
            return SegmentFate::Dropped(SegmentDrop::OutOfWindow);
        }
        if segment.seq_len() == 0 || segment.flags.contains(TcpFlags::SYN) {
            return SegmentFate::Challenge(SegmentDrop::OutOfWindow);
        }
        if !segment.payload.is_empty() && end <= self.rx.nxt {
            self.rx.counts.duplicate_bytes += segment.payload.len() as u64;
            self.rx.out_of_order.on_duplicate(super::reassembly::SeqRange { start: seq, end });
        }
        if self.state == TcpState::TimeWait && segment.flags.contains(TcpFlags::FIN) {
            self.restart_time_wait();
        }
        self.rx.acks.demand();
        SegmentFate::Dropped(SegmentDrop::OutOfWindow)
    }

    /// RFC 5961 §3.2: only a RST exactly where we are is believed.
    fn receive_reset(&mut self, seq: SeqNum) -> SegmentFate {
        if seq != self.rx.nxt && !self.config.personality.insecure_rst {
            return SegmentFate::Challenge(SegmentDrop::Suspicious);
        }
        if self.state == TcpState::TimeWait {
            self.finish();
        } else {
            // Of CLOSING and LAST-ACK RFC 9293 §3.10.7.4 asks for no error, but what was sent before the FIN may be lost.
            let refused = self.state == TcpState::SynReceived;
            self.fail(if refused { TcpSocketError::Refused } else { TcpSocketError::Reset });
        }
        SegmentFate::Accepted
    }

    /// Explicit congestion notification (RFC 3168 §6.1.3): a mark is echoed until the peer says that it slowed down.
    fn receive_marks(&mut self, segment: &InboundSegment<'_>) {
        if !self.tx.options.ecn {
            return;
        }
        if segment.flags.contains(TcpFlags::CWR) {
            self.rx.echo_marks = false;
        }
        if segment.ecn == Ecn::Congestion {
            self.rx.echo_marks = true;
            self.rx.counts.marks += 1;
            self.rx.acks.demand();
        }
    }

    /// Payload and FIN. Urgent data are in line; the pointer is not looked at.
    fn receive_text(
        &mut self,
        now: Instant,
        seq: SeqNum,
        segment: &InboundSegment<'_>,
    ) -> SegmentFate {
        let has_fin = segment.flags.contains(TcpFlags::FIN);
        if segment.payload.is_empty() && !has_fin {
            return SegmentFate::Accepted;
        }
        let end = seq + segment.payload.len() as u64;
        if !self.state.can_receive() {
            if has_fin && self.state == TcpState::TimeWait {
                self.restart_time_wait();
            }
            self.rx.acks.demand();
            return SegmentFate::Accepted;
        }
        // RFC 9293 §3.6.1: whoever will never read what arrives says so.
        if self.is_abandoned && end > self.rx.nxt && !segment.payload.is_empty() {
            self.abort();
            return SegmentFate::Accepted;
        }
        if has_fin && self.rx.fin.is_none() && end <= self.rx.window.edge() {
            self.rx.fin = Some(end);
        }
        if !segment.payload.is_empty() {
            let edge = self.rx.window.edge();
            let within = usize::try_from(edge.saturating_since(seq)).unwrap_or(usize::MAX);
            let payload = &segment.payload[..segment.payload.len().min(within)];
            let each = (segment.payload.len() as u64).div_ceil(u64::from(segment.count.max(1)));
            self.rx.receive(now, seq, payload, each);
        } else if self.rx.fin.is_some_and(|fin| fin > self.rx.nxt) {
            self.rx.acks.demand();
        }
        if self.rx.fin == Some(self.rx.nxt) && !self.rx.is_finished {
            self.receive_fin(now);
        }
        SegmentFate::Accepted
    }

    fn receive_fin(&mut self, now: Instant) {
        self.rx.finish();
        self.state = match self.state {
            TcpState::Established => TcpState::CloseWait,
            TcpState::FinWait1 => TcpState::Closing,
            TcpState::FinWait2 => {
                self.begin_time_wait(now);
                TcpState::TimeWait
            }
            other => other,
        };
    }

    /// Makes an acknowledgement due that tells the peer where we are.
    pub fn challenge(&mut self) {
        self.rx.acks.demand();
        self.is_challenge = true;
        self.is_ready = true;
    }
}

/// The RST for a segment that belongs to no connection (RFC 9293 §3.10.7.1).
pub fn reset_for(segment: &InboundSegment<'_>) -> OutboundSegment {
    let (seq, ack, flags) = if segment.flags.contains(TcpFlags::ACK) {
        (segment.ack, 0, TcpFlags::RST)
    } else {
        let ack = SeqNum::initial(segment.seq) + segment.seq_len();
        (0, ack.wire(), TcpFlags::RST | TcpFlags::ACK)
    };
    OutboundSegment::bare(SeqNum::initial(seq), ack, flags)
}
