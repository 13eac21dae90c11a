//! TCP through the gateway: connect outside, then let the first segment in, accept, and relay.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use plumb_base::time::Span;
use plumb_sys::fd::{EpollEvent, EpollInterest};
use plumb_sys::socket::{self, InetSocketKind};
use plumb_wire::flow::FiveTuple;
use plumb_wire::ip::IpProtocol;

use super::engine::{GatewayContext, WatchedSocket};
use super::flow_table::{
    ATTEMPT_MIN, EvictionCandidate, EvictionReason, HALF_ENDED_MAX, IDLE_MIN, is_silent,
};
use super::relay::{SIDES, TcpRelay};

/// How long a connection may say nothing: RFC 5382 §5 asks translators for at least this.
const IDLE_MAX: Span = Span::from_ms((2 * 3_600 + 4 * 60) * 1_000);
/// How long a connection that stands outside waits to be begun inside.
const BEGIN_MAX: Span = Span::from_ms(130_000);
/// How long a listener stays without a connection.
const LISTENER_IDLE_MAX: Span = Span::from_ms(30_000);
/// Connections that may wait to be accepted at one place.
const BACKLOG: i32 = 128;

/// Where connections to one place outside are accepted.
#[derive(Debug)]
struct GatewayListener {
    socket: TcpListener,
    token: u64,
    used_ns: u64,
}

/// A connection under way.
#[derive(Debug)]
enum GatewayConnection {
    /// Not yet decided outside; the first segment is held.
    Connecting { outside: TcpStream, token: u64, frame: Vec<u8> },
    /// It stands outside; the first segment has been let in.
    Connected { outside: TcpStream },
    /// It stands on both sides.
    Relayed { relay: TcpRelay, tokens: [u64; 2], watched: [Option<EpollInterest>; 2] },
}

impl GatewayConnection {
    /// What its sockets are waited for by.
    fn tokens(&self) -> &[u64] {
        match self {
            Self::Connecting { token, .. } => std::slice::from_ref(token),
            Self::Connected { .. } => &[],
            Self::Relayed { tokens, .. } => tokens,
        }
    }
}

#[derive(Debug)]
struct TcpFlow {
    connection: GatewayConnection,
    used_ns: u64,
}

impl TcpFlow {
    /// Why it could be spared, where it could.
    fn eviction_reason(&self, now_ns: u64) -> Option<EvictionReason> {
        let (reason, least) = match &self.connection {
            GatewayConnection::Connecting { .. } | GatewayConnection::Connected { .. } => {
                (EvictionReason::Unanswered, ATTEMPT_MIN)
            }
            GatewayConnection::Relayed { relay, .. } => match relay.ends() {
                0 => return None,
                1 => (EvictionReason::Over, HALF_ENDED_MAX),
                _ => (EvictionReason::Over, IDLE_MIN),
            },
        };
        is_silent(now_ns, self.used_ns, least).then_some(reason)
    }
}

/// Every TCP connection of the gateway.
#[derive(Debug, Default)]
pub(super) struct TcpFlows {
    listeners: BTreeMap<SocketAddr, GatewayListener>,
    entries: BTreeMap<FiveTuple, TcpFlow>,
}

impl TcpFlows {
    /// A first segment has come: asks outside.
    pub fn begin(&mut self, flow: FiveTuple, frame: Vec<u8>, hub: &mut GatewayContext) {
        hub.table.on_released(flow);
        let target = hub.targets.outside(destination(flow), hub.questions.answering());
        match connect(target, hub) {
            Ok(outside) => {
                let write = EpollInterest { read: false, write: true };
                let token = hub.watch(outside.as_fd(), WatchedSocket::Stream(flow), write);
                let connection = GatewayConnection::Connecting { outside, token, frame };
                self.entries.insert(flow, TcpFlow { connection, used_ns: hub.now_ns });
            }
            Err(_) => self.refuse(flow, &frame, hub),
        }
    }

    /// Something has happened to a connection.
    pub fn handle(&mut self, flow: FiveTuple, event: EpollEvent, hub: &mut GatewayContext) {
        let Some(mut entry) = self.entries.remove(&flow) else { return };
        entry.used_ns = hub.now_ns;
        match entry.connection {
            GatewayConnection::Connecting { outside, token, frame } => {
                hub.unwatch(outside.as_fd(), token);
                self.on_connect_result(flow, outside, &frame, hub);
            }
            GatewayConnection::Connected { .. } => {
                self.entries.insert(flow, entry);
            }
            GatewayConnection::Relayed { mut relay, tokens, watched } => {
                let outcome = relay.pump(&mut hub.scratch).and_then(|bytes| {
                    let sides = SIDES.into_iter().zip(tokens);
                    let failed = sides.filter(|(_, token)| event.failed && *token == event.token);
                    failed.map(|(side, _)| side).try_for_each(|side| relay.on_failed(side))?;
                    Ok(bytes)
                });
                self.relay_or_end(flow, relay, tokens, watched, outcome.ok(), hub);
            }
        }
    }

    fn on_connect_result(
        &mut self,
        flow: FiveTuple,
        outside: TcpStream,
        frame: &[u8],
        hub: &mut GatewayContext,
    ) {
        let error = outside.take_error().unwrap_or_else(Some);
        let listens = error.is_none().then(|| self.listen(destination(flow), hub));
        match (error, listens) {
            (None, Some(Ok(()))) => {
                hub.table.admit(flow);
                hub.inject(frame);
                let connection = GatewayConnection::Connected { outside };
                self.entries.insert(flow, TcpFlow { connection, used_ns: hub.now_ns });
            }
            // The client gets no answer, as it would without a gateway.
            (Some(error), _) if error.kind() == io::ErrorKind::TimedOut => {
                hub.table.forget(flow);
            }
            _ => self.refuse(flow, frame, hub),
        }
    }

    /// Lets a first segment in where nobody listens: the kernel refuses it.
    fn refuse(&mut self, flow: FiveTuple, frame: &[u8], hub: &mut GatewayContext) {
        if let Some(listener) = self.listeners.remove(&destination(flow)) {
            hub.unwatch(listener.socket.as_fd(), listener.token);
        }
        hub.table.count(|counts| counts.refused += 1);
        hub.inject(frame);
        hub.table.forget(flow);
    }

    /// Makes sure that somebody listens at a place.
    fn listen(&mut self, place: SocketAddr, hub: &mut GatewayContext) -> io::Result<()> {
        if let Some(listener) = self.listeners.get_mut(&place) {
            listener.used_ns = hub.now_ns;
            return Ok(());
        }
        self.evict_idle_listener(hub);
        let socket = socket::open(place.is_ipv6(), InetSocketKind::Stream)?;
        socket::bind(&socket, place)?;
        socket::listen(&socket, BACKLOG)?;
        let read = EpollInterest { read: true, write: false };
        let token = hub.watch(socket.as_fd(), WatchedSocket::Listener(place), read);
        let listener = GatewayListener { socket: socket.into(), token, used_ns: hub.now_ns };
        self.listeners.insert(place, listener);
        Ok(())
    }

    /// Keeps no more listeners than flows: the one that goes has had no connection for longest.
    fn evict_idle_listener(&mut self, hub: &mut GatewayContext) {
        if self.listeners.len() < hub.table.most {
            return;
        }
        let idle = self.listeners.iter().filter(|(place, _)| !self.is_in_use(**place));
        let first = idle.min_by_key(|(_, listener)| listener.used_ns).map(|(place, _)| *place);
        if let Some(listener) = first.and_then(|place| self.listeners.remove(&place)) {
            hub.unwatch(listener.socket.as_fd(), listener.token);
        }
    }

    fn is_in_use(&self, place: SocketAddr) -> bool {
        self.entries.keys().any(|flow| destination(*flow) == place)
    }

    /// Connections have been begun inside.
    pub fn accept(&mut self, place: SocketAddr, hub: &mut GatewayContext) {
        let Some(listener) = self.listeners.get_mut(&place) else { return };
        listener.used_ns = hub.now_ns;
        let mut accepted = Vec::new();
        while let Ok(pair) = listener.socket.accept() {
            accepted.push(pair);
        }
        for (inside, peer) in accepted {
            let flow = FiveTuple {
                source: peer.ip(),
                destination: place.ip(),
                protocol: IpProtocol::TCP,
                source_port: peer.port(),
                destination_port: place.port(),
            };
            self.on_accepted(flow, inside, hub);
        }
    }

    /// A connection stands on both sides.
    fn on_accepted(&mut self, flow: FiveTuple, inside: TcpStream, hub: &mut GatewayContext) {
        let outside = match self.entries.remove(&flow) {
            Some(TcpFlow { connection: GatewayConnection::Connected { outside }, .. }) => outside,
            other => {
                // No connection outside belongs to it.
                socket::reset_on_close(inside.as_fd()).ok();
                if let Some(entry) = other {
                    self.entries.insert(flow, entry);
                }
                return;
            }
        };
        if inside.set_nonblocking(true).is_err() {
            hub.table.forget(flow);
            return;
        }
        hub.table.count(|counts| counts.connections += 1);
        self.start_relay(flow, TcpRelay::new(inside, outside), hub);
    }

    fn start_relay(&mut self, flow: FiveTuple, mut relay: TcpRelay, hub: &mut GatewayContext) {
        let nothing = EpollInterest::default();
        let tokens =
            SIDES.map(|side| hub.watch(relay.fd(side), WatchedSocket::Stream(flow), nothing));
        let carried = relay.pump(&mut hub.scratch).ok();
        self.relay_or_end(flow, relay, tokens, [Some(nothing); 2], carried, hub);
    }

    /// Carries on with a connection, or ends it, after so many bytes of it were carried; by a reset where
    /// a side has failed.
    fn relay_or_end(
        &mut self,
        flow: FiveTuple,
        relay: TcpRelay,
        tokens: [u64; 2],
        mut watched: [Option<EpollInterest>; 2],
        carried: Option<[u64; 2]>,
        hub: &mut GatewayContext,
    ) {
        let ended = match carried {
            Some([up, down]) => {
                hub.table.count(|counts| {
                    counts.bytes_up += up;
                    counts.bytes_down += down;
                });
                relay.is_over()
            }
            None => true,
        };
        if ended {
            for (side, token) in SIDES.into_iter().zip(tokens) {
                hub.unwatch(relay.fd(side), token);
            }
            hub.table.forget(flow);
            if carried.is_none() {
                relay.reset();
            }
            return;
        }
        for (index, side) in SIDES.into_iter().enumerate() {
            let wanted = relay.interest(side);
            if wanted != watched[index] {
                hub.rewatch(relay.fd(side), tokens[index], [watched[index], wanted]);
                watched[index] = wanted;
            }
        }
        let connection = GatewayConnection::Relayed { relay, tokens, watched };
        self.entries.insert(flow, TcpFlow { connection, used_ns: hub.now_ns });
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The connection that can best be spared, of those that come behind `after`.
    pub fn eviction_candidate(
        &self,
        now_ns: u64,
        after: Option<EvictionCandidate>,
    ) -> Option<EvictionCandidate> {
        let candidates = self.entries.iter().filter_map(|(&flow, entry)| {
            Some(EvictionCandidate {
                reason: entry.eviction_reason(now_ns)?,
                used_ns: entry.used_ns,
                flow,
            })
        });
        candidates.filter(|candidate| Some(*candidate) > after).min()
    }

    /// Ends a connection, unless a first segment of it is on its way here; both sides are told.
    /// Whether it did.
    pub fn evict(&mut self, flow: FiveTuple, hub: &mut GatewayContext) -> bool {
        if !hub.table.forget_unless_waiting(flow) {
            return false;
        }
        if let Some(TcpFlow { connection, .. }) = self.entries.remove(&flow) {
            for token in connection.tokens() {
                hub.watched.remove(token);
            }
            if let GatewayConnection::Relayed { relay, .. } = connection {
                relay.reset();
            }
        }
        true
    }

    /// Ends what has been idle for too long.
    pub fn expire(&mut self, hub: &mut GatewayContext) {
        let now_ns = hub.now_ns;
        let is_old = |used_ns: u64, max: Span| now_ns.saturating_sub(used_ns) > max.as_ns();
        let (table, things) = (&hub.table, &mut hub.watched);
        self.entries.retain(|flow, entry| {
            let max = match entry.connection {
                GatewayConnection::Relayed { .. } => IDLE_MAX,
                GatewayConnection::Connecting { .. } | GatewayConnection::Connected { .. } => {
                    BEGIN_MAX
                }
            };
            let old = is_old(entry.used_ns, max);
            if old {
                table.forget(*flow);
                for token in entry.connection.tokens() {
                    things.remove(token);
                }
            }
            !old
        });
        let entries = &self.entries;
        self.listeners.retain(|place, listener| {
            let in_use = entries.keys().any(|flow| destination(*flow) == *place);
            let stays = in_use || !is_old(listener.used_ns, LISTENER_IDLE_MAX);
            if !stays {
                things.remove(&listener.token);
            }
            stays
        });
    }
}

/// The place that a flow is for.
pub(super) fn destination(flow: FiveTuple) -> SocketAddr {
    (flow.destination, flow.destination_port).into()
}

/// A connection outside, made or under way.
fn connect(target: SocketAddr, hub: &GatewayContext) -> io::Result<TcpStream> {
    let socket = hub.outside.socket(target.is_ipv6(), InetSocketKind::Stream)?;
    let fd: BorrowedFd<'_> = socket.as_fd();
    match socket::connect(fd, target) {
        Err(error) if !socket::is_in_progress(&error) => Err(error),
        _ => Ok(socket.into()),
    }
}

#[cfg(test)]
impl TcpFlows {
    /// Carries a connection of `flow`; its two ends beyond the relay, the program's first.
    pub fn establish(&mut self, flow: FiveTuple, hub: &mut GatewayContext) -> [TcpStream; 2] {
        let pair = || {
            let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
            let end = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let own = listener.accept().unwrap().0;
            own.set_nonblocking(true).unwrap();
            (own, end)
        };
        let ((inside, program), (outside, server)) = (pair(), pair());
        self.start_relay(flow, TcpRelay::new(inside, outside), hub);
        [program, server]
    }

    /// Whether bytes of a connection wait for room in either direction.
    pub fn is_held_up(&self, flow: FiveTuple) -> bool {
        let connection = self.entries.get(&flow).map(|entry| &entry.connection);
        matches!(connection, Some(GatewayConnection::Relayed { relay, .. }) if relay.is_held_up())
    }

    pub fn contains(&self, flow: FiveTuple) -> bool {
        self.entries.contains_key(&flow)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::flow_table::GateVerdict;
    use super::*;

    #[test]
    fn a_connection_that_nobody_begins_inside_ends_after_its_time() {
        let mut hub = GatewayContext::for_test(1);
        let mut streams = TcpFlows::default();
        // It takes connections outside, and is never asked for them.
        let outside = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let flow = FiveTuple {
            source: Ipv4Addr::LOCALHOST.into(),
            destination: Ipv4Addr::LOCALHOST.into(),
            protocol: IpProtocol::TCP,
            source_port: 1,
            destination_port: outside.local_addr().unwrap().port(),
        };
        assert_eq!(hub.table.on_syn(flow), GateVerdict::Hold);
        streams.begin(flow, Vec::new(), &mut hub);
        assert_eq!((streams.entries.len(), hub.watched.len()), (1, 1));
        hub.now_ns = BEGIN_MAX.as_ns();
        streams.expire(&mut hub);
        assert_eq!(streams.entries.len(), 1);
        hub.now_ns += 1;
        streams.expire(&mut hub);
        assert!(streams.entries.is_empty() && hub.watched.is_empty());
        assert_eq!(hub.table.on_syn(flow), GateVerdict::Hold, "it begins anew");
    }
}
