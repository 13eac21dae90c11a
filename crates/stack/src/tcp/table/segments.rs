//! A segment arrives at a host (RFC 9293 §3.10.7): at its connection, its record, a listener, or nobody.

use std::sync::Arc;

use plumb_wire::malformed::FormatError;
use plumb_wire::tcp::TcpFlags;

use super::slots::Holder;
use super::{TcpPath, TcpTable};
use crate::context::HostCore;
use crate::counters::{CounterId, ProtocolLayer};
use crate::tcp::config::{Personality, TcpConfig};
use crate::tcp::connection::{Connection, TcpEnds};
use crate::tcp::handshake::Handshake;
use crate::tcp::listen::{HalfOpenConnection, HalfOpenFate, Listener, syn_ack};
use crate::tcp::receive::{SegmentDrop, SegmentFate, reset_for};
use crate::tcp::segment::{InboundSegment, OutboundSegment};
use crate::tcp::socket::{ListenerId, TcpId, TcpState};
use crate::tcp::time_wait::TimeWaitFate;
use crate::tcp::tuple::TupleOwner;

/// A segment that is sent without a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpReply {
    pub ends: TcpEnds,
    pub segment: OutboundSegment,
}

/// The path between two ends, as routing has it.
pub(super) type PathLookup<'a> = &'a mut dyn FnMut(&TcpEnds) -> TcpPath;

/// The least distance of a new connection's numbers from those of an old one with the same ends: the largest unscaled window.
const REOPEN_DISTANCE: u32 = 0x1_0000;

/// About as many connections as the caches of one processor core hold: some 2 KiB each.
const CACHED: usize = 512;

impl TcpTable {
    /// Handles a segment between these ends, and counts it; the answer that no connection sends.
    #[inline]
    pub fn handle_segment(
        &mut self,
        core: &mut HostCore,
        ends: &TcpEnds,
        segment: &mut InboundSegment<'_>,
        paths: PathLookup<'_>,
    ) -> Option<TcpReply> {
        // The last segment's connection is the likeliest (Partridge and Pink's one-behind cache, 1993).
        self.is_repeated = false;
        let is_owner = |index: &u32| self.owners.slots.owns_ends(*index, ends);
        let known = Some(self.last).filter(is_owner);
        let known = known.or_else(|| self.expected.take().filter(is_owner));
        let owner = known.map(TupleOwner::Connection).or_else(|| self.owners.find(ends));
        if let Some(TupleOwner::Connection(index)) = owner {
            return self.receive_for_connection(core, (index, ends), segment);
        }
        if !segment.verify() {
            count_drop(core, SegmentDrop::Checksum);
            return None;
        }
        match owner {
            Some(TupleOwner::HalfOpen(index)) => {
                self.receive_half_open(core, (index, ends), segment, paths)
            }
            Some(TupleOwner::TimeWait(index)) => {
                self.receive_in_time_wait(core, (index, ends), segment, paths)
            }
            _ => self.receive_without_connection(core, ends, segment, paths),
        }
    }

    /// A segment between these ends comes soon: the memory of its connection is fetched. The connection, unless it is unknown.
    #[inline]
    pub fn expect(&mut self, ends: &TcpEnds) -> Option<TcpId> {
        // Comparing the ends themselves would wait for that memory.
        let Some(TupleOwner::Connection(index)) = self.owners.tuples.find(ends, |_| true) else {
            return None;
        };
        self.owners.slots.prefetch(index);
        self.expected = Some(index);
        self.owners.slots.id(index)
    }

    /// Whether its connections take more memory than caches have.
    #[inline]
    pub fn exceeds_caches(&self) -> bool {
        self.owners.slots.len() >= CACHED
    }

    /// Hands a segment of a known flow to its connection, if it is the one expected next; else nothing is done. Segments handled one
    /// after the other are a run, of which [`TcpTable::settle_run`] sees to what follows.
    #[inline]
    pub fn receive_expected(
        &mut self,
        core: &mut HostCore,
        id: TcpId,
        segment: &mut InboundSegment<'_>,
    ) -> bool {
        let Some(entry) = self.owners.slots.get_mut(id) else { return false };
        match entry.connection.receive_expected(core.now, segment) {
            None => return false,
            Some(SegmentFate::Accepted) => core.counters.add(CounterId::TcpAccepted),
            Some(_) => count_drop(core, SegmentDrop::Checksum),
        }
        let brings_data = !segment.payload.is_empty();
        match &mut self.run {
            Some((index, has_data)) if *index == id.index => *has_data |= brings_data,
            _ => {
                self.settle_run(core);
                self.run = Some((id.index, brings_data));
            }
        }
        true
    }

    /// Sees to what follows from the last run of expected segments.
    #[inline]
    pub fn settle_run(&mut self, core: &mut HostCore) {
        if let Some((index, has_data)) = self.run.take() {
            self.owners.slots.announce(index, has_data);
            self.settle(core, index);
        }
    }

    /// The connection that received the last segment, if it received the one before as well.
    #[inline]
    pub fn received_again(&self) -> Option<TcpId> {
        self.owners.slots.id(self.last).filter(|_| self.is_repeated)
    }

    #[inline]
    fn receive_for_connection(
        &mut self,
        core: &mut HostCore,
        (index, ends): (u32, &TcpEnds),
        segment: &mut InboundSegment<'_>,
    ) -> Option<TcpReply> {
        self.is_repeated = self.last == index;
        self.last = index;
        let connection = &mut self.owners.slots.entry_mut(index)?.connection;
        let fate = connection.handle_segment(core.now, segment);
        let has_news = !segment.payload.is_empty()
            || segment.flags.contains(TcpFlags::FIN)
            || connection.state() == TcpState::Closed;
        let mut reply = None;
        match fate {
            SegmentFate::Accepted => core.counters.add(CounterId::TcpAccepted),
            SegmentFate::Dropped(reason) => count_drop(core, reason),
            SegmentFate::Challenge(reason) => {
                count_drop(core, reason);
                let rate = connection.config.personality.challenge_acks;
                if may_challenge(&mut self.challenges, core, rate) {
                    connection.challenge();
                }
            }
            SegmentFate::Reset(reset) => {
                core.counters.add(CounterId::TcpNoSocket);
                reply = self.reset(core, ends, segment, reset);
            }
        }
        self.owners.slots.announce(index, has_news);
        self.settle(core, index);
        reply
    }

    /// The connection is half-open.
    fn receive_half_open(
        &mut self,
        core: &mut HostCore,
        (index, ends): (u32, &TcpEnds),
        segment: &mut InboundSegment<'_>,
        paths: PathLookup<'_>,
    ) -> Option<TcpReply> {
        let record = self.owners.half_open.get(index)?;
        let id = record.listener;
        let Some(config) = self.config_of(id) else {
            self.remove_half_open(index);
            return self.refuse(core, ends, segment);
        };
        match record.classify(segment) {
            HalfOpenFate::Completes => {
                return self.complete((core, paths), (index, ends), id, segment);
            }
            HalfOpenFate::Repeats => {
                core.counters.add(CounterId::TcpAccepted);
                self.owners.half_open.on_repeated(index);
                return self.syn_ack_again(core, index, &config, paths);
            }
            HalfOpenFate::Ends => {
                core.counters.add(CounterId::TcpAccepted);
                self.remove_half_open(index);
            }
            HalfOpenFate::Dropped(reason) => count_drop(core, reason),
            HalfOpenFate::Challenge(reason) => {
                let marks = config.marks;
                let segment = OutboundSegment { marks, ..record.challenge_ack(core.now) };
                count_drop(core, reason);
                let rate = config.personality.challenge_acks;
                return may_challenge(&mut self.challenges, core, rate)
                    .then_some(TcpReply { ends: *ends, segment });
            }
            HalfOpenFate::Reset(reset) => {
                count_drop(core, SegmentDrop::BadAck);
                return self.reset(core, ends, segment, reset);
            }
        }
        None
    }

    /// The handshake is complete, if there is room in the accept queue; else the record stays and the peer's next segment may find
    /// some, as in Linux.
    fn complete(
        &mut self,
        (core, paths): (&mut HostCore, PathLookup<'_>),
        (index, ends): (u32, &TcpEnds),
        id: ListenerId,
        segment: &mut InboundSegment<'_>,
    ) -> Option<TcpReply> {
        if self.is_queue_full(core, id) {
            return None;
        }
        let record = self.remove_half_open(index)?;
        let handshake = record.completed(core.now);
        self.admit((core, paths), ends, id, &handshake, segment)
    }

    /// Whether a listener takes no more connections until some are accepted; counted.
    fn is_queue_full(&self, core: &mut HostCore, id: ListenerId) -> bool {
        let is_full = self.listener(id).is_none_or(Listener::is_full);
        if is_full {
            core.counters.add(CounterId::TcpAcceptQueueFull);
        }
        is_full
    }

    /// Makes the connection of a handshake, queues it to be accepted, and hands it the segment that completed the handshake.
    fn admit(
        &mut self,
        (core, paths): (&mut HostCore, PathLookup<'_>),
        ends: &TcpEnds,
        id: ListenerId,
        handshake: &Handshake,
        segment: &mut InboundSegment<'_>,
    ) -> Option<TcpReply> {
        let config = self.config_of(id)?;
        let TcpPath { limits, port } = paths(ends);
        let connection = Connection::accepted(core.now, *ends, handshake, config, limits);
        let connection = self.insert(core, connection, Holder::Listener, port);
        core.counters.add(CounterId::TcpOpened);
        self.listener_mut(id)?.accepted.push_back(connection);
        self.announce_waiting(id);
        self.receive_for_connection(core, (connection.index, ends), segment)
    }

    /// The ends are in TIME-WAIT.
    fn receive_in_time_wait(
        &mut self,
        core: &mut HostCore,
        (index, ends): (u32, &TcpEnds),
        segment: &mut InboundSegment<'_>,
        paths: PathLookup<'_>,
    ) -> Option<TcpReply> {
        let challenge = match self.owners.time_wait.handle_segment(core.now, index, segment) {
            TimeWaitFate::Accepted => {
                core.counters.add(CounterId::TcpAccepted);
                return None;
            }
            TimeWaitFate::Repeats(segment) => {
                core.counters.add(CounterId::TcpAccepted);
                return Some(TcpReply { ends: *ends, segment });
            }
            TimeWaitFate::Dropped(reason) => {
                count_drop(core, reason);
                return None;
            }
            TimeWaitFate::Challenge(reason, challenge) => {
                count_drop(core, reason);
                challenge
            }
            TimeWaitFate::Reopens(last) => {
                if let Some(id) = self.listener_at(ends) {
                    if self.is_queue_full(core, id) {
                        return None;
                    }
                    self.owners.remove_time_wait(index);
                    return self.open((core, paths), ends, id, segment, Some(last));
                }
                core.counters.add(CounterId::TcpNoSocket);
                return None;
            }
        };
        let rate = Personality::linux().challenge_acks;
        may_challenge(&mut self.challenges, core, rate)
            .then_some(TcpReply { ends: *ends, segment: challenge })
    }

    /// The segment may be for a listener (RFC 9293 §3.10.7.1 and 2).
    fn receive_without_connection(
        &mut self,
        core: &mut HostCore,
        ends: &TcpEnds,
        segment: &mut InboundSegment<'_>,
        paths: PathLookup<'_>,
    ) -> Option<TcpReply> {
        let has = |flags| segment.flags.contains(flags);
        let Some(id) = self.listener_at(ends).filter(|_| !has(TcpFlags::RST)) else {
            return self.refuse(core, ends, segment);
        };
        if has(TcpFlags::ACK) {
            return self.receive_cookie((core, paths), ends, id, segment);
        }
        let may_have_fin =
            self.listener(id).is_some_and(|listener| listener.config.personality.syn_fin);
        if !has(TcpFlags::SYN) || (has(TcpFlags::FIN) && !may_have_fin) {
            core.counters.add(CounterId::TcpNoSocket);
            return None;
        }
        if self.is_queue_full(core, id) {
            return None;
        }
        self.open((core, paths), ends, id, segment, None)
    }

    /// The acknowledgement of a SYN-ACK for which no record was kept, if it is one.
    fn receive_cookie(
        &mut self,
        (core, paths): (&mut HostCore, PathLookup<'_>),
        ends: &TcpEnds,
        id: ListenerId,
        segment: &mut InboundSegment<'_>,
    ) -> Option<TcpReply> {
        let listener = self.listener(id)?;
        let (irs, cookie) = (segment.seq.wrapping_sub(1), segment.ack.wrapping_sub(1));
        let may_be = listener.awaits_cookies(core.now) && !segment.flags.contains(TcpFlags::SYN);
        let mss = may_be.then(|| self.cookies.check(core.now, ends, irs, cookie)).flatten();
        let Some(mss) = mss else { return self.refuse(core, ends, segment) };
        if self.is_queue_full(core, id) {
            return None;
        }
        core.counters.add(CounterId::TcpCookieAccepted);
        let clock = self.numbers.clock(ends);
        let handshake = self.listener(id)?.handshake_of_cookie(segment, mss, clock);
        self.admit((core, paths), ends, id, &handshake, segment)
    }

    /// Answers a SYN; a record is kept, or a cookie sent where too many are. `last` is where the numbers of the connection ended that
    /// had these ends before: it gets a record in any case, which takes the place of the one in TIME-WAIT.
    fn open(
        &mut self,
        (core, paths): (&mut HostCore, PathLookup<'_>),
        ends: &TcpEnds,
        id: ListenerId,
        segment: &InboundSegment<'_>,
        last: Option<u32>,
    ) -> Option<TcpReply> {
        let (now, clock) = (core.now, self.numbers.clock(ends));
        let iss = first_after(self.numbers.number(now, ends), last);
        let listener = self.listener_mut(id)?;
        let needs_cookie = listener.is_syn_queue_full() && last.is_none();
        if needs_cookie && !listener.config.syn_cookies {
            core.counters.add(CounterId::TcpSynQueueFull);
            return None;
        }
        let mut handshake = listener.handshake(now, segment, (ends, iss, clock));
        core.counters.add(CounterId::TcpAccepted);
        let (limits, is_v6) = (paths(ends).limits, ends.local.is_ipv6());
        let config = Arc::clone(&listener.config);
        if needs_cookie {
            let timestamp = Listener::limit_to_cookie(&mut handshake).encode(clock.value(now));
            listener.on_cookie_sent(now);
            core.counters.add(CounterId::TcpCookieSent);
            let mss = handshake.peer_mss;
            (handshake.iss, _) = self.cookies.make(now, ends, handshake.irs, mss);
            let segment = syn_ack(&handshake, &config, limits, is_v6, timestamp);
            return Some(TcpReply { ends: *ends, segment });
        }
        listener.half_open += 1;
        let record = HalfOpenConnection::new(now, ends, id, handshake, &config);
        let segment = record.syn_ack(now, &config, limits);
        let index = self.owners.half_open.insert(record);
        self.owners.tuples.insert(ends, TupleOwner::HalfOpen(index));
        self.half_open_timer.ensure(&mut core.timers, self.owners.half_open.deadline());
        Some(TcpReply { ends: *ends, segment })
    }

    pub(super) fn remove_half_open(&mut self, index: u32) -> Option<HalfOpenConnection> {
        let record = self.owners.remove_half_open(index)?;
        if let Some(listener) = self.listener_mut(record.listener) {
            listener.half_open -= 1;
        }
        Some(record)
    }

    /// A SYN-ACK that is due to be sent again; `None` when no more are.
    pub fn poll_half_open(
        &mut self,
        core: &mut HostCore,
        paths: PathLookup<'_>,
    ) -> Option<TcpReply> {
        while let Some(index) = self.owners.half_open.due(core.now) {
            let id = self.owners.half_open.get(index)?.listener;
            match self.config_of(id) {
                Some(config) if self.owners.half_open.back_off(core.now, index, &config) => {
                    core.counters.add(CounterId::TcpSynAckRepeated);
                    return self.syn_ack_again(core, index, &config, paths);
                }
                Some(_) => core.counters.add(CounterId::TcpHalfOpenTimeout),
                None => {}
            }
            self.remove_half_open(index);
        }
        self.half_open_timer.on_expired();
        self.half_open_timer.ensure(&mut core.timers, self.owners.half_open.deadline());
        None
    }

    fn syn_ack_again(
        &self,
        core: &HostCore,
        index: u32,
        config: &TcpConfig,
        paths: PathLookup<'_>,
    ) -> Option<TcpReply> {
        let record = self.owners.half_open.get(index)?;
        let ends = record.ends.ends();
        let segment = record.syn_ack(core.now, config, paths(&ends).limits);
        Some(TcpReply { ends, segment })
    }

    fn config_of(&self, id: ListenerId) -> Option<Arc<TcpConfig>> {
        self.listener(id).map(|listener| Arc::clone(&listener.config))
    }

    /// A segment for nobody: RFC 9293 §3.10.7.1.
    #[cold]
    fn refuse(
        &mut self,
        core: &mut HostCore,
        ends: &TcpEnds,
        segment: &InboundSegment<'_>,
    ) -> Option<TcpReply> {
        core.counters.add(CounterId::TcpNoSocket);
        self.reset(core, ends, segment, reset_for(segment))
    }

    /// A RST in answer to a segment, unless that is one, or there were too many.
    fn reset(
        &mut self,
        core: &mut HostCore,
        ends: &TcpEnds,
        segment: &InboundSegment<'_>,
        reset: OutboundSegment,
    ) -> Option<TcpReply> {
        if segment.flags.contains(TcpFlags::RST) {
            return None;
        }
        if !self.resets.take(core.now) {
            core.counters.add(CounterId::TcpResetLimited);
            return None;
        }
        core.counters.add(CounterId::TcpResetSent);
        let segment = OutboundSegment { marks: self.marks, ..reset };
        Some(TcpReply { ends: *ends, segment })
    }
}

fn may_challenge(
    limit: &mut crate::tcp::table::ChallengeLimit,
    core: &mut HostCore,
    rate: u32,
) -> bool {
    let may = limit.take(core.now, rate);
    core.counters.add(if may {
        CounterId::TcpChallengeSent
    } else {
        CounterId::TcpChallengeLimited
    });
    may
}

/// The initial number `iss`, or one beyond the `last` of a connection with the same ends (RFC 9293 §3.4.3).
fn first_after(iss: u32, last: Option<u32>) -> u32 {
    match last {
        Some(last) if iss.wrapping_sub(last).cast_signed() <= 0 => {
            last.wrapping_add(REOPEN_DISTANCE)
        }
        _ => iss,
    }
}

#[cold]
fn count_drop(core: &mut HostCore, reason: SegmentDrop) {
    let counter = match reason {
        SegmentDrop::Checksum => {
            return core.counters.add_malformed(ProtocolLayer::Tcp, FormatError::Checksum);
        }
        SegmentDrop::OldTimestamp => CounterId::TcpOldTimestamp,
        SegmentDrop::NoTimestamp => CounterId::TcpNoTimestamp,
        SegmentDrop::OutOfWindow => CounterId::TcpOutOfWindow,
        SegmentDrop::BadAck => CounterId::TcpBadAck,
        SegmentDrop::NoAck => CounterId::TcpNoAck,
        SegmentDrop::Suspicious => CounterId::TcpSuspicious,
        SegmentDrop::Closed => CounterId::TcpNoSocket,
    };
    core.counters.add(counter);
}
