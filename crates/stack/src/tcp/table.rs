//! Everything of TCP in a host around its connections: who has which ends, whose turn it is to send, what the application is told, what
//! ICMP and routing report about segments that were sent, the limit of challenge acknowledgements (RFC 5961 §7), and when each is
//! due.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use plumb_base::seed::{RandomStream, Seed};
use plumb_base::time::{Instant, Span};
use plumb_wire::flow::SipKey;
use plumb_wire::machine::PortId;
use rand::Rng;
use slots::{ConnectionSlots, Holder};

use super::config::{IpMarks, TcpConfig};
use super::connection::{Connection, PathLimits, TcpEnds, TcpSocketError, is_hard};
use super::isn::{InitialNumbers, SynCookies};
use super::listen::{HalfOpenConnection, HalfOpenTable, Listener};
use super::socket::{ListenerId, TcpCounts, TcpEvent, TcpId, TcpOpenError, TcpState};
use super::time_wait::TimeWaitTable;
use super::tuple::{TupleDemux, TupleOwner};
use crate::context::{DeliveryFailureKind, HostCore, TimerOwner};
use crate::counters::CounterId;
use crate::demux::{EphemeralPorts, SocketBinding, SocketDemux};
use crate::host::payload_tail::PayloadTail;
use crate::timers::{LazyTimer, TokenBucket};

mod segments;
mod slots;

pub(crate) use segments::TcpReply;
pub(crate) use slots::{TcpEntry, TcpTurn};

/// Bounds of a host's TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpLimits {
    /// Records in TIME-WAIT; beyond it the one that ends first is given up.
    pub time_wait: usize,
    /// RSTs to segments without a connection, a second.
    pub resets: u32,
    /// The same at once.
    pub reset_burst: u32,
}

impl Default for TcpLimits {
    /// 65,536 records; 1,000 RSTs a second and 200 at once.
    fn default() -> Self {
        Self { time_wait: 65_536, resets: 1_000, reset_burst: 200 }
    }
}

/// Where a connection's packets go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpPath {
    pub limits: PathLimits,
    pub port: PortId,
}

#[derive(Debug, Default)]
struct ListenerSlot {
    generation: u32,
    listener: Option<Listener>,
}

/// Everything that has a pair of ends, and the lookup by them.
#[derive(Debug)]
struct Owners {
    slots: ConnectionSlots,
    half_open: HalfOpenTable,
    time_wait: TimeWaitTable,
    tuples: TupleDemux,
}

impl Owners {
    #[inline]
    fn find(&self, ends: &TcpEnds) -> Option<TupleOwner> {
        self.tuples.find(ends, |owner| match owner {
            TupleOwner::Connection(index) => self.slots.has_ends(index, ends),
            TupleOwner::HalfOpen(index) => {
                self.half_open.get(index).is_some_and(|record| record.ends.ends() == *ends)
            }
            TupleOwner::TimeWait(index) => {
                self.time_wait.get(index).is_some_and(|record| record.ends() == *ends)
            }
        })
    }

    fn remove_half_open(&mut self, index: u32) -> Option<HalfOpenConnection> {
        let record = self.half_open.remove(index)?;
        self.tuples.remove(&record.ends.ends(), TupleOwner::HalfOpen(index));
        Some(record)
    }

    fn remove_time_wait(&mut self, index: u32) {
        if let Some(record) = self.time_wait.remove(index) {
            self.tuples.remove(&record.ends(), TupleOwner::TimeWait(index));
        }
    }
}

/// The connections and listeners of a host.
#[derive(Debug)]
pub(crate) struct TcpTable {
    owners: Owners,
    /// The connection that received a segment last.
    last: u32,
    /// It received the one before as well.
    is_repeated: bool,
    /// The connection that may receive the next.
    expected: Option<u32>,
    /// The connection of a run of expected segments that has not been settled, and whether they brought data.
    run: Option<(u32, bool)>,
    listeners: Vec<ListenerSlot>,
    vacant: Vec<u32>,
    local_ends: SocketDemux,
    /// Listeners with connections that the application was not told about.
    acceptable: VecDeque<ListenerId>,
    half_open_timer: LazyTimer,
    time_wait_timer: LazyTimer,
    numbers: InitialNumbers,
    cookies: SynCookies,
    ephemeral: EphemeralPorts,
    resets: TokenBucket,
    /// What the IP headers of RSTs that answer segments for nobody have.
    pub marks: IpMarks,
    challenges: ChallengeLimit,
}

impl TcpTable {
    /// Neither connections nor listeners; every secret depends on the seed.
    pub fn new(limits: TcpLimits, seed: Seed, core: &mut HostCore) -> Self {
        let seed = seed.derive("tcp");
        Self {
            owners: Owners {
                slots: ConnectionSlots::default(),
                half_open: HalfOpenTable::default(),
                time_wait: TimeWaitTable::new(limits.time_wait),
                tuples: TupleDemux::new(SipKey::new(seed, "tuples")),
            },
            last: 0,
            expected: None,
            is_repeated: false,
            run: None,
            listeners: Vec::new(),
            vacant: Vec::new(),
            local_ends: SocketDemux::new(SipKey::new(seed, "listeners")),
            acceptable: VecDeque::new(),
            half_open_timer: LazyTimer::new(&mut core.timers, TimerOwner::TcpHalfOpen),
            time_wait_timer: LazyTimer::new(&mut core.timers, TimerOwner::TcpTimeWait),
            numbers: InitialNumbers::new(seed),
            cookies: SynCookies::new(seed),
            ephemeral: EphemeralPorts::new(seed),
            resets: TokenBucket::new(limits.resets, limits.reset_burst),
            marks: IpMarks::DEFAULT,
            challenges: ChallengeLimit::new(seed),
        }
    }

    /// How many of each there are.
    pub fn counts(&self) -> TcpCounts {
        TcpCounts {
            connections: self.owners.slots.len(),
            listeners: self.listeners.len() - self.vacant.len(),
            half_open: self.owners.half_open.len(),
            time_wait: self.owners.time_wait.len(),
        }
    }

    /// Listens at `local`; an unspecified address stands for every one of its family, port 0 for any that is free.
    pub fn listen(
        &mut self,
        local: SocketAddr,
        backlog: usize,
        config: Arc<TcpConfig>,
    ) -> Result<ListenerId, TcpOpenError> {
        let local = self.listening_end(local)?;
        let next = u32::try_from(self.listeners.len()).expect("fewer than 2^32 listeners");
        let index = self.vacant.last().copied().unwrap_or(next);
        if !self.local_ends.insert(SocketBinding::new(local, None), index) {
            return Err(TcpOpenError::ListenerInUse(local));
        }
        if self.vacant.pop().is_none() {
            self.listeners.push(ListenerSlot::default());
        }
        let slot = &mut self.listeners[index as usize];
        slot.listener = Some(Listener::new(local, backlog, config));
        Ok(ListenerId { index, generation: slot.generation })
    }

    fn listening_end(&mut self, local: SocketAddr) -> Result<SocketAddr, TcpOpenError> {
        if local.port() != 0 {
            return Ok(SocketAddr::new(local.ip(), local.port()));
        }
        let end = |port| SocketAddr::new(local.ip(), port);
        let taken = &self.local_ends;
        let is_free = |port| taken.bound_to(SocketBinding::new(end(port), None)).is_none();
        let port = self.ephemeral.choose(local.ip(), None, is_free);
        port.map(end).ok_or(TcpOpenError::NoPort(local.ip()))
    }

    /// Opens a connection between these ends, of one family; local port 0 stands for any that is free.
    pub fn connect(
        &mut self,
        core: &mut HostCore,
        ends: TcpEnds,
        config: Arc<TcpConfig>,
        path: TcpPath,
    ) -> Result<TcpId, TcpOpenError> {
        let TcpEnds { local, remote } = ends;
        let local =
            if local.port() != 0 { local } else { self.connecting_end(local.ip(), remote)? };
        let ends = TcpEnds { local, remote };
        if self.owners.find(&ends).is_some() {
            return Err(TcpOpenError::InUse { local, remote });
        }
        let (iss, clock) = (self.numbers.number(core.now, &ends), self.numbers.clock(&ends));
        let connection = Connection::connect(core.now, ends, iss, clock, config, path.limits);
        let id = self.insert(core, connection, Holder::Application, path.port);
        self.settle(core, id.index);
        Ok(id)
    }

    /// Our end of a new connection: a port at which nobody listens, and that no connection to this peer has.
    fn connecting_end(
        &mut self,
        ip: IpAddr,
        remote: SocketAddr,
    ) -> Result<SocketAddr, TcpOpenError> {
        let end = |port| SocketAddr::new(ip, port);
        let (owners, listeners) = (&self.owners, &self.local_ends);
        let port = self.ephemeral.choose(ip, Some(remote), |port| {
            let ends = TcpEnds { local: end(port), remote };
            owners.find(&ends).is_none() && listeners.lookup(ends.local, remote).is_none()
        });
        port.map(end).ok_or(TcpOpenError::NoPort(ip))
    }

    fn insert(
        &mut self,
        core: &mut HostCore,
        connection: Connection,
        holder: Holder,
        port: PortId,
    ) -> TcpId {
        let ends = connection.ends();
        let id = self.owners.slots.insert(core, connection, holder, port);
        self.owners.tuples.insert(&ends, TupleOwner::Connection(id.index));
        id
    }

    /// The next connection that waits to be accepted; the application is told again of those behind it.
    pub fn accept(&mut self, id: ListenerId) -> Option<TcpId> {
        let listener = self.listener_mut(id)?;
        let accepted = listener.accepted.pop_front()?;
        if !listener.accepted.is_empty() {
            self.announce_waiting(id);
        }
        self.owners.slots.hand_over(accepted.index);
        Some(accepted)
    }

    /// Tells the application that connections wait to be accepted.
    fn announce_waiting(&mut self, id: ListenerId) {
        if let Some(listener) = self.listener_mut(id)
            && !std::mem::replace(&mut listener.is_announced, true)
        {
            self.acceptable.push_back(id);
        }
    }

    /// Where a listener is.
    pub fn listening_at(&self, id: ListenerId) -> Option<SocketAddr> {
        self.listener(id).map(|listener| listener.local)
    }

    /// Closes a listener; connections that wait to be accepted are reset, half-open ones answered with a RST when they are heard of.
    pub fn close_listener(&mut self, core: &mut HostCore, id: ListenerId) {
        if self.listener(id).is_none() {
            return;
        }
        let slot = &mut self.listeners[id.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        let Some(listener) = slot.listener.take() else { return };
        self.vacant.push(id.index);
        self.local_ends.remove(SocketBinding::new(listener.local, None));
        self.acceptable.retain(|acceptable| *acceptable != id);
        for waiting in listener.accepted {
            self.release(core, waiting, Connection::abort);
        }
    }

    fn listener(&self, id: ListenerId) -> Option<&Listener> {
        let slot = self.listeners.get(id.index as usize)?;
        slot.listener.as_ref().filter(|_| slot.generation == id.generation)
    }

    fn listener_mut(&mut self, id: ListenerId) -> Option<&mut Listener> {
        let slot = self.listeners.get_mut(id.index as usize)?;
        slot.listener.as_mut().filter(|_| slot.generation == id.generation)
    }

    /// The listener for a segment that belongs to no connection.
    fn listener_at(&self, ends: &TcpEnds) -> Option<ListenerId> {
        let index = self.local_ends.lookup(ends.local, ends.remote)?;
        Some(ListenerId { index, generation: self.listeners[index as usize].generation })
    }

    /// A connection, as it is.
    #[inline]
    pub fn connection(&self, id: TcpId) -> Option<&Connection> {
        self.owners.slots.get(id).map(|entry| &entry.connection)
    }

    /// Its state; one in TIME-WAIT is closed when that is over.
    pub fn state(&self, id: TcpId) -> Option<TcpState> {
        let connection = self.connection(id)?;
        let is_over = connection.state() == TcpState::TimeWait
            && self.owners.find(&connection.ends()).is_none();
        Some(if is_over { TcpState::Closed } else { connection.state() })
    }

    /// Lets `act` use a connection, and sees to what follows.
    ///
    /// # Errors
    /// [`TcpSocketError::Closed`] where there is none.
    #[inline]
    pub fn with<R>(
        &mut self,
        core: &mut HostCore,
        id: TcpId,
        act: impl FnOnce(&mut Connection) -> R,
    ) -> Result<R, TcpSocketError> {
        let entry = self.owners.slots.get_mut(id).ok_or(TcpSocketError::Closed)?;
        let result = act(&mut entry.connection);
        self.settle(core, id.index);
        Ok(result)
    }

    /// The connection took less than the application had: it will be told when there is room.
    #[inline]
    pub fn want_room(&mut self, id: TcpId) {
        if let Some(entry) = self.owners.slots.get_mut(id) {
            entry.wants_room = true;
        }
    }

    /// The application has done with a connection, whose last act this is.
    pub fn release(&mut self, core: &mut HostCore, id: TcpId, act: impl FnOnce(&mut Connection)) {
        let Some(entry) = self.owners.slots.get_mut(id) else { return };
        entry.holder = Holder::Nobody;
        act(&mut entry.connection);
        self.owners.slots.forget_events(id.index);
        self.settle(core, id.index);
    }

    /// Something happened to a connection: it may have become ready to send, due earlier, or ended.
    #[inline]
    fn settle(&mut self, core: &mut HostCore, index: u32) {
        let Some(state) = self.owners.slots.settle(core, index) else { return };
        if matches!(state, TcpState::Closed | TcpState::TimeWait) {
            self.end(core, index);
        }
    }

    /// A connection has ended: once it has sent its last segment, its ends are free, or left to a record in TIME-WAIT. It stays while the
    /// application holds it, with what was not read.
    #[cold]
    fn end(&mut self, core: &mut HostCore, index: u32) {
        let Some(entry) = self.owners.slots.entry_mut(index) else { return };
        let connection = &entry.connection;
        if entry.timer.is_some() && !connection.has_output() {
            let (ends, time_wait) = (connection.ends(), connection.time_wait());
            if let Some(timer) = entry.timer.take() {
                timer.remove(&mut core.timers);
            }
            self.owners.tuples.remove(&ends, TupleOwner::Connection(index));
            if let Some(state) = time_wait {
                self.make_room_in_time_wait(core);
                let record = self.owners.time_wait.insert(&ends, &state);
                self.owners.tuples.insert(&ends, TupleOwner::TimeWait(record));
                self.time_wait_timer.ensure(&mut core.timers, Some(state.until));
            }
        }
        self.owners.slots.announce_end(index);
        self.owners.slots.free_if_unheld(index);
    }

    fn make_room_in_time_wait(&mut self, core: &mut HostCore) {
        if let Some(oldest) = self.owners.time_wait.excess() {
            core.counters.add(CounterId::TcpTimeWaitEvicted);
            self.owners.remove_time_wait(oldest);
        }
    }

    /// Ends the time of records in TIME-WAIT that are due.
    pub fn expire_time_wait(&mut self, core: &mut HostCore) {
        while let Some(index) = self.owners.time_wait.due(core.now) {
            self.owners.remove_time_wait(index);
        }
        self.time_wait_timer.on_expired();
        self.time_wait_timer.ensure(&mut core.timers, self.owners.time_wait.deadline());
    }

    /// The timer of a connection expired, perhaps earlier than anything is due.
    pub fn handle_timer(&mut self, core: &mut HostCore, index: u32) {
        let Some(entry) = self.owners.slots.entry_mut(index) else { return };
        if let Some(timer) = &mut entry.timer {
            timer.on_expired();
        }
        if entry.connection.deadline().is_some_and(|deadline| deadline <= core.now) {
            entry.connection.handle_deadline(core.now);
            debug_assert!(
                entry.connection.deadline().is_none_or(|deadline| deadline > core.now),
                "what was due has been done"
            );
            let is_over = entry.connection.state() == TcpState::Closed;
            self.owners.slots.announce(index, is_over);
        } else {
            // Armed for what has been acknowledged since: at most one retransmission timeout passes between two looks.
            entry.connection.release_idle_memory();
        }
        self.settle(core, index);
    }

    /// The next event for the application.
    pub fn poll_event(&mut self) -> Option<TcpEvent> {
        let Some(id) = self.acceptable.pop_front() else { return self.owners.slots.poll_event() };
        if let Some(listener) = self.listener_mut(id) {
            listener.is_announced = false;
        }
        Some(TcpEvent::Acceptable(id))
    }

    /// A connection that may send by `port`, taken out until [`TcpTable::end_turn`].
    pub fn begin_turn(&mut self, port: PortId) -> Option<TcpTurn> {
        self.owners.slots.begin_turn(port)
    }

    /// The payload of a segment that has just been sent; nothing once its connection is gone.
    #[inline]
    pub fn payload(&self, tail: PayloadTail) -> [&[u8]; 2] {
        let entry = self.owners.slots.entry(tail.connection);
        entry.map_or([&[], &[]], |entry| entry.connection.payload(tail.seq, tail.len))
    }

    /// Puts a connection back that sent; `is_interrupted` if it is to go on before the others.
    pub fn end_turn(&mut self, core: &mut HostCore, turn: TcpTurn, is_interrupted: bool) {
        let index = self.owners.slots.end_turn(turn, is_interrupted);
        self.settle(core, index);
    }
}

impl TcpTable {
    /// An ICMP error about a segment between these ends that began at `seq`: whether it is believed (RFC 5927 §4.1).
    pub fn handle_error(
        &mut self,
        core: &mut HostCore,
        ends: &TcpEnds,
        kind: DeliveryFailureKind,
        seq: u32,
    ) -> bool {
        let index = match self.owners.find(ends) {
            Some(TupleOwner::Connection(index)) => index,
            Some(TupleOwner::HalfOpen(index)) => return self.half_open_error(index, kind, seq),
            _ => return false,
        };
        let Some(entry) = self.owners.slots.entry_mut(index) else { return false };
        let is_believed = entry.connection.on_unreachable(kind, seq);
        let is_over = entry.connection.state() == TcpState::Closed;
        self.owners.slots.announce(index, is_over);
        self.settle(core, index);
        is_believed
    }

    /// The same about the SYN-ACK of a half-open connection, which an error ends that cannot pass.
    fn half_open_error(&mut self, index: u32, kind: DeliveryFailureKind, seq: u32) -> bool {
        let record = self.owners.half_open.get(index);
        let is_believed = record.is_some_and(|record| record.handshake.iss == seq);
        if is_believed && is_hard(kind) {
            self.remove_half_open(index);
        }
        is_believed
    }

    /// The path between these ends has changed.
    pub fn on_path(&mut self, core: &mut HostCore, ends: &TcpEnds, limits: PathLimits) {
        if let Some(TupleOwner::Connection(index)) = self.owners.find(ends)
            && let Some(entry) = self.owners.slots.entry_mut(index)
        {
            entry.connection.on_path(limits);
            self.settle(core, index);
        }
    }
}

/// How many more may be sent until when.
#[derive(Debug)]
pub(super) struct ChallengeLimit {
    left: u32,
    until: Instant,
    random: RandomStream,
}

impl ChallengeLimit {
    pub fn new(seed: Seed) -> Self {
        Self { left: 0, until: Instant::ORIGIN, random: seed.stream("challenge acknowledgements") }
    }

    /// Whether one may be sent now, of `rate` a second on average. How many they are in one second is random, between half and one and a
    /// half times as many: a fixed number tells an attacker whether somebody else's connection used some of it (CVE-2016-5696).
    pub fn take(&mut self, now: Instant, rate: u32) -> bool {
        if now >= self.until {
            self.until = now + Span::from_secs(1);
            let drawn = (u64::from(self.random.next_u32()) * (u64::from(rate) + 1)) >> 32;
            self.left = rate / 2 + u32::try_from(drawn).expect("at most the rate");
        }
        let may = self.left > 0;
        self.left -= u32::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn challenges_a_second_are_random_around_their_rate() {
        let mut limit = ChallengeLimit::new(Seed(1));
        let mut seen = BTreeSet::new();
        let mut sum = 0;
        for second in 1..=400 {
            let at = Instant::ORIGIN + Span::from_secs(second);
            let sent = (0..1_000).filter(|_| limit.take(at, 100)).count();
            assert!((50..=150).contains(&sent), "{sent}");
            seen.insert(sent);
            sum += sent;
        }
        assert!(seen.len() > 60, "{seen:?}");
        assert!((38_000..42_000).contains(&sum), "{sum}");
        assert!(!ChallengeLimit::new(Seed(1)).take(Instant::ORIGIN, 0));
    }
}
