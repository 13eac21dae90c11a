//! Listeners, and the small records of connections that open to them (LISTEN and SYN-RECEIVED of RFC 9293 §3.10.7).

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use plumb_base::time::{Instant, Span};
use plumb_wire::tcp::TcpFlags;

use super::config::TcpConfig;
use super::connection::{PathLimits, TcpEnds};
use super::handshake::{Handshake, SynOffer, TimestampClock, accepts_ecn};
use super::isn::{CookieOptions, LIFETIME};
use super::receive::{SegmentDrop, reset_for};
use super::segment::{InboundSegment, OutboundSegment};
use super::seq::SeqNum;
use super::slab::Slab;
use super::socket::{ListenerId, TcpId};
use super::tuple::PackedEnds;

/// A listener.
#[derive(Debug)]
pub(super) struct Listener {
    /// Where it listens: an address, or all of a family.
    pub local: SocketAddr,
    pub config: Arc<TcpConfig>,
    /// Connections that wait to be accepted, in the order in which they opened.
    pub accepted: VecDeque<TcpId>,
    /// Half-open connections with a record.
    pub half_open: usize,
    /// Whether the application was told about connections and has not asked since.
    pub is_announced: bool,
    backlog: usize,
    cookies_until: Instant,
}

impl Listener {
    /// Bounds both the accept queue and the SYN queue to `backlog`, as Linux does, but to no less than one.
    pub fn new(local: SocketAddr, backlog: usize, config: Arc<TcpConfig>) -> Self {
        Self {
            local,
            config,
            accepted: VecDeque::new(),
            half_open: 0,
            is_announced: false,
            backlog: backlog.max(1),
            cookies_until: Instant::ORIGIN,
        }
    }

    /// Whether no more connections may wait to be accepted.
    pub fn is_full(&self) -> bool {
        self.accepted.len() >= self.backlog
    }

    /// Whether no more half-open connections get a record.
    pub fn is_syn_queue_full(&self) -> bool {
        self.half_open >= self.backlog
    }

    /// A cookie is sent at `now`.
    pub fn on_cookie_sent(&mut self, now: Instant) {
        self.cookies_until = now + LIFETIME;
    }

    /// Whether a cookie of this listener can come back at `now`.
    pub fn awaits_cookies(&self, now: Instant) -> bool {
        now < self.cookies_until
    }

    /// What a SYN at `now` and our answer to it agree on.
    pub fn handshake(
        &self,
        now: Instant,
        segment: &InboundSegment<'_>,
        (ends, iss, clock): (&TcpEnds, u32, TimestampClock),
    ) -> Handshake {
        let offer = SynOffer::passive(&self.config, 0, clock.value(now), &segment.options);
        Handshake {
            clock,
            ecn: accepts_ecn(self.config.ecn, segment.flags),
            advertised: advertised(&self.config),
            ..Handshake::agreed(&offer, segment, iss, ends.local.is_ipv6())
        }
    }

    /// The part of a handshake that a cookie can replace.
    pub fn limit_to_cookie(handshake: &mut Handshake) -> CookieOptions {
        if handshake.timestamps.is_none() {
            (handshake.window_scale, handshake.sack, handshake.ecn) = (None, false, false);
        }
        CookieOptions {
            window_scale: handshake.window_scale.map(|(_, theirs)| theirs),
            sack: handshake.sack,
            ecn: handshake.ecn,
        }
    }

    /// What was agreed on with a cookie for `mss` that came back in `segment`.
    pub fn handshake_of_cookie(
        &self,
        segment: &InboundSegment<'_>,
        mss: u16,
        clock: TimestampClock,
    ) -> Handshake {
        let timestamps = segment.options.timestamps.filter(|_| self.config.timestamps);
        let options = timestamps.map(|(_, echoed)| CookieOptions::decode(echoed));
        let theirs = options.and_then(|options| options.window_scale);
        let ours = SynOffer::active(&self.config, 0, 0).window_scale;
        Handshake {
            iss: segment.ack.wrapping_sub(1),
            irs: segment.seq.wrapping_sub(1),
            peer_mss: mss,
            window_scale: ours.zip(theirs),
            sack: options.is_some_and(|options| options.sack),
            timestamps: timestamps.map(|(value, _)| value),
            clock,
            ecn: options.is_some_and(|options| options.ecn),
            window: segment.window,
            rtt: None,
            advertised: advertised(&self.config),
        }
    }
}

/// The window of our SYN-ACK, which is not scaled.
fn advertised(config: &TcpConfig) -> u16 {
    u16::try_from(config.receive_buffer.initial).unwrap_or(u16::MAX)
}

/// The SYN-ACK of a handshake, with `timestamp` as the value of ours.
pub(super) fn syn_ack(
    handshake: &Handshake,
    config: &TcpConfig,
    path: PathLimits,
    is_v6: bool,
    timestamp: u32,
) -> OutboundSegment {
    let headers = if is_v6 { 60 } else { 40 };
    let offer = SynOffer {
        mss: u16::try_from(path.mtu.saturating_sub(headers)).unwrap_or(u16::MAX),
        window_scale: handshake.window_scale.map(|(ours, _)| ours),
        sack: handshake.sack,
        timestamps: handshake.timestamps.map(|theirs| (timestamp, theirs)),
    };
    let flags = TcpFlags::SYN | TcpFlags::ACK;
    OutboundSegment {
        window: handshake.advertised,
        options: offer.options(config.personality.syn_options),
        marks: config.marks,
        ..OutboundSegment::bare(
            SeqNum::initial(handshake.iss),
            handshake.irs.wrapping_add(1),
            if handshake.ecn { flags | TcpFlags::ECE } else { flags },
        )
    }
}

/// A connection in SYN-RECEIVED that a listener will accept.
#[derive(Debug)]
pub(super) struct HalfOpenConnection {
    pub ends: PackedEnds,
    pub listener: ListenerId,
    pub handshake: Handshake,
    /// When the first SYN-ACK was sent.
    sent: Instant,
    /// When the next will be.
    deadline: Instant,
    /// SYN-ACKs sent after the first by the timer.
    retries: u8,
    /// Whether it was sent again for any reason: no round-trip time can be measured then.
    is_repeated: bool,
}

/// What a segment means to a half-open connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HalfOpenFate {
    /// It completes the handshake.
    Completes,
    /// The SYN came again: so must the SYN-ACK.
    Repeats,
    /// It ends the attempt.
    Ends,
    /// To be dropped.
    Dropped(SegmentDrop),
    /// To be dropped, and the peer told where we are, if not too often.
    Challenge(SegmentDrop),
    /// To be answered with this RST.
    Reset(OutboundSegment),
}

impl HalfOpenConnection {
    pub fn new(
        now: Instant,
        ends: &TcpEnds,
        listener: ListenerId,
        handshake: Handshake,
        config: &TcpConfig,
    ) -> Self {
        Self {
            ends: PackedEnds::new(ends),
            listener,
            handshake,
            sent: now,
            deadline: now + config.personality.rto_initial,
            retries: 0,
            is_repeated: false,
        }
    }

    /// What a segment whose checksum is right means (RFC 9293 §3.10.7.4, SYN-RECEIVED after a passive open).
    pub fn classify(&self, segment: &InboundSegment<'_>) -> HalfOpenFate {
        let has = |flags| segment.flags.contains(flags);
        let nxt = self.handshake.irs.wrapping_add(1);
        let is_syn = has(TcpFlags::SYN) && !has(TcpFlags::ACK) && !has(TcpFlags::RST);
        if is_syn && segment.seq == self.handshake.irs {
            return HalfOpenFate::Repeats;
        }
        if self.is_old(segment) {
            return HalfOpenFate::Challenge(SegmentDrop::OldTimestamp);
        }
        let offset = segment.seq.wrapping_sub(nxt);
        if offset > u32::from(self.handshake.advertised) {
            return if has(TcpFlags::RST) {
                HalfOpenFate::Dropped(SegmentDrop::OutOfWindow)
            } else {
                HalfOpenFate::Challenge(SegmentDrop::OutOfWindow)
            };
        }
        if has(TcpFlags::RST) {
            // RFC 5961 §3.2: only a RST exactly where we are is believed.
            return if offset == 0 {
                HalfOpenFate::Ends
            } else {
                HalfOpenFate::Challenge(SegmentDrop::Suspicious)
            };
        }
        if has(TcpFlags::SYN) {
            // RFC 9293 §3.10.7.4, fourth: back to LISTEN.
            return HalfOpenFate::Ends;
        }
        if !has(TcpFlags::ACK) {
            return HalfOpenFate::Dropped(SegmentDrop::NoAck);
        }
        if segment.ack != self.handshake.iss.wrapping_add(1) {
            return HalfOpenFate::Reset(reset_for(segment));
        }
        HalfOpenFate::Completes
    }

    /// PAWS (RFC 7323 §5.3, R1).
    fn is_old(&self, segment: &InboundSegment<'_>) -> bool {
        let (Some(recent), Some((value, _))) =
            (self.handshake.timestamps, segment.options.timestamps)
        else {
            return false;
        };
        !segment.flags.contains(TcpFlags::RST) && value.wrapping_sub(recent).cast_signed() < 0
    }

    /// The handshake, completed at `now`.
    pub fn completed(&self, now: Instant) -> Handshake {
        let rtt = (!self.is_repeated).then(|| now.saturating_since(self.sent));
        Handshake { rtt, ..self.handshake }
    }

    /// Its SYN-ACK at `now`.
    pub fn syn_ack(&self, now: Instant, config: &TcpConfig, path: PathLimits) -> OutboundSegment {
        let timestamp = self.handshake.clock.value(now);
        let is_v6 = self.ends.ends().local.is_ipv6();
        syn_ack(&self.handshake, config, path, is_v6, timestamp)
    }

    /// An acknowledgement that tells the peer where we are.
    pub fn challenge_ack(&self, now: Instant) -> OutboundSegment {
        let Handshake { iss, irs, timestamps, clock, advertised, .. } = self.handshake;
        let timestamps = timestamps.map(|theirs| (clock.value(now), theirs));
        OutboundSegment::acknowledgement(
            SeqNum::initial(iss) + 1,
            irs.wrapping_add(1),
            advertised,
            timestamps,
        )
    }
}

impl OutboundSegment {
    /// An acknowledgement without payload.
    pub(super) fn acknowledgement(
        seq: SeqNum,
        ack: u32,
        window: u16,
        timestamps: Option<(u32, u32)>,
    ) -> Self {
        Self { window, timestamps, ..Self::bare(seq, ack, TcpFlags::ACK) }
    }
}

/// The records of half-open connections, and the order in which their SYN-ACKs are sent again.
#[derive(Debug, Default)]
pub(super) struct HalfOpenTable {
    records: Slab<HalfOpenConnection>,
    order: BTreeSet<(Instant, u32)>,
}

impl HalfOpenTable {
    pub fn insert(&mut self, record: HalfOpenConnection) -> u32 {
        let deadline = record.deadline;
        let index = self.records.insert(record);
        self.order.insert((deadline, index));
        index
    }

    #[inline]
    pub fn get(&self, index: u32) -> Option<&HalfOpenConnection> {
        self.records.get(index)
    }

    pub fn remove(&mut self, index: u32) -> Option<HalfOpenConnection> {
        let record = self.records.remove(index)?;
        self.order.remove(&(record.deadline, index));
        Some(record)
    }

    /// The peer repeated its SYN: the SYN-ACK is sent again, with no change to the timer.
    pub fn on_repeated(&mut self, index: u32) {
        if let Some(record) = self.records.get_mut(index) {
            record.is_repeated = true;
        }
    }

    /// When the next SYN-ACK is to be sent again.
    pub fn deadline(&self) -> Option<Instant> {
        self.order.first().map(|(deadline, _)| *deadline)
    }

    /// One that is due.
    pub fn due(&self, now: Instant) -> Option<u32> {
        self.order.first().filter(|(deadline, _)| *deadline <= now).map(|(_, index)| *index)
    }

    /// The SYN-ACK of a record is sent again; `false` when that was done often enough.
    pub fn back_off(&mut self, now: Instant, index: u32, config: &TcpConfig) -> bool {
        let Some(record) = self.records.get_mut(index) else { return false };
        if record.retries >= config.personality.syn_ack_retries {
            return false;
        }
        self.order.remove(&(record.deadline, index));
        record.retries += 1;
        record.is_repeated = true;
        let wait = config.personality.rto_initial * (1 << record.retries.min(16));
        record.deadline = now + wait.min(config.personality.rto_max).max(Span::from_ms(1));
        self.order.insert((record.deadline, index));
        true
    }

    /// Half-open connections.
    pub fn len(&self) -> usize {
        self.records.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_open_record_takes_at_most_160_bytes() {
        assert!(
            size_of::<Option<HalfOpenConnection>>() <= 160,
            "{}",
            size_of::<Option<HalfOpenConnection>>()
        );
    }
}
