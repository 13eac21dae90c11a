//! TCP through the gateway: connect outside, then let the first segment in, accept, and relay.
//!
//! Left out: waiting and injecting (`super::engine`).

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use plumb_base::time::Span;
use plumb_sys::epoll::{Event, Interest};
use plumb_sys::inet::{self, Kind};
use plumb_wire::flow::FiveTuple;
use plumb_wire::protocol::Protocol;

use super::engine::{Hub, Thing};
use super::eviction::{ATTEMPT_MIN, Candidate, HALF_ENDED_MAX, IDLE_MIN, Reason, is_silent};
use super::relay::{Relay, SIDES};

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
struct Listener {
    socket: TcpListener,
    token: u64,
    used_ns: u64,
}

/// A connection under way.
#[derive(Debug)]
enum Connection {
    /// Not yet decided outside; the first segment is held.
    Asked { outside: TcpStream, token: u64, frame: Vec<u8> },
    /// It stands outside; the first segment has been let in.
    Stands { outside: TcpStream },
    /// It stands on both sides.
    Carried { relay: Relay, tokens: [u64; 2], watched: [Option<Interest>; 2] },
}

#[derive(Debug)]
struct Entry {
    connection: Connection,
    used_ns: u64,
}

impl Entry {
    /// Why it could be spared, where it could.
    fn spared(&self, now_ns: u64) -> Option<Reason> {
        let (reason, least) = match &self.connection {
            Connection::Asked { .. } | Connection::Stands { .. } => {
                (Reason::Unanswered, ATTEMPT_MIN)
            }
            Connection::Carried { relay, .. } => match relay.ends() {
                0 => return None,
                1 => (Reason::Over, HALF_ENDED_MAX),
                _ => (Reason::Over, IDLE_MIN),
            },
        };
        is_silent(now_ns, self.used_ns, least).then_some(reason)
    }
}

/// Every TCP connection of the gateway.
#[derive(Debug, Default)]
pub(super) struct Streams {
    listeners: BTreeMap<SocketAddr, Listener>,
    entries: BTreeMap<FiveTuple, Entry>,
}

impl Streams {
    /// A first segment has come: asks outside.
    pub(super) fn begin(&mut self, flow: FiveTuple, frame: Vec<u8>, hub: &mut Hub) {
        hub.table.on_released(flow);
        let target = hub.targets.outside(destination(flow), hub.questions.answering());
        match connect(target, hub) {
            Ok(outside) => {
                let write = Interest { read: false, write: true };
                let token = hub.watch(outside.as_fd(), Thing::Stream(flow), write);
                let connection = Connection::Asked { outside, token, frame };
                self.entries.insert(flow, Entry { connection, used_ns: hub.now_ns });
            }
            Err(_) => self.refuse(flow, &frame, hub),
        }
    }

    /// Something has happened to a connection.
    pub(super) fn handle(&mut self, flow: FiveTuple, event: Event, hub: &mut Hub) {
        let Some(mut entry) = self.entries.remove(&flow) else { return };
        entry.used_ns = hub.now_ns;
        match entry.connection {
            Connection::Asked { outside, token, frame } => {
                hub.unwatch(outside.as_fd(), token);
                self.on_decided(flow, outside, &frame, hub);
            }
            Connection::Stands { .. } => {
                self.entries.insert(flow, entry);
            }
            Connection::Carried { mut relay, tokens, watched } => {
                let outcome = relay.pump(&mut hub.scratch).and_then(|bytes| {
                    let sides = SIDES.into_iter().zip(tokens);
                    let failed = sides.filter(|(_, token)| event.failed && *token == event.token);
                    failed.map(|(side, _)| side).try_for_each(|side| relay.on_failed(side))?;
                    Ok(bytes)
                });
                self.carry(flow, relay, tokens, watched, outcome.ok(), hub);
            }
        }
    }

    fn on_decided(&mut self, flow: FiveTuple, outside: TcpStream, frame: &[u8], hub: &mut Hub) {
        let error = outside.take_error().unwrap_or_else(Some);
        let listens = error.is_none().then(|| self.listen(destination(flow), hub));
        match (error, listens) {
            (None, Some(Ok(()))) => {
                hub.table.admit(flow);
                hub.inject(frame);
                let connection = Connection::Stands { outside };
                self.entries.insert(flow, Entry { connection, used_ns: hub.now_ns });
            }
            // Who asked hears nothing either, as without a gateway.
            (Some(error), _) if error.kind() == io::ErrorKind::TimedOut => {
                hub.table.forget(flow);
            }
            _ => self.refuse(flow, frame, hub),
        }
    }

    /// Lets a first segment in where nobody listens: the kernel refuses it.
    fn refuse(&mut self, flow: FiveTuple, frame: &[u8], hub: &mut Hub) {
        if let Some(listener) = self.listeners.remove(&destination(flow)) {
            hub.unwatch(listener.socket.as_fd(), listener.token);
        }
        hub.table.count(|counts| counts.refused += 1);
        hub.inject(frame);
        hub.table.forget(flow);
    }

    /// Makes sure that somebody listens at a place.
    fn listen(&mut self, place: SocketAddr, hub: &mut Hub) -> io::Result<()> {
        if let Some(listener) = self.listeners.get_mut(&place) {
            listener.used_ns = hub.now_ns;
            return Ok(());
        }
        self.bound_listeners(hub);
        let socket = inet::socket(place.is_ipv6(), Kind::Stream)?;
        inet::bind(&socket, place)?;
        inet::listen(&socket, BACKLOG)?;
        let read = Interest { read: true, write: false };
        let token = hub.watch(socket.as_fd(), Thing::Listener(place), read);
        let listener = Listener { socket: socket.into(), token, used_ns: hub.now_ns };
        self.listeners.insert(place, listener);
        Ok(())
    }

    /// Keeps no more listeners than flows: the one that goes has had no connection for longest.
    fn bound_listeners(&mut self, hub: &mut Hub) {
        if self.listeners.len() < hub.table.most() {
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
    pub(super) fn accept(&mut self, place: SocketAddr, hub: &mut Hub) {
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
                protocol: Protocol::TCP,
                source_port: peer.port(),
                destination_port: place.port(),
            };
            self.join(flow, inside, hub);
        }
    }

    /// A connection stands on both sides.
    fn join(&mut self, flow: FiveTuple, inside: TcpStream, hub: &mut Hub) {
        let outside = match self.entries.remove(&flow) {
            Some(Entry { connection: Connection::Stands { outside }, .. }) => outside,
            other => {
                // Whoever it is, nothing outside belongs to it.
                inet::reset_on_close(inside.as_fd()).ok();
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
        self.begin_to_carry(flow, Relay::new(inside, outside), hub);
    }

    fn begin_to_carry(&mut self, flow: FiveTuple, mut relay: Relay, hub: &mut Hub) {
        let nothing = Interest::default();
        let tokens = SIDES.map(|side| hub.watch(relay.fd(side), Thing::Stream(flow), nothing));
        let carried = relay.pump(&mut hub.scratch).ok();
        self.carry(flow, relay, tokens, [Some(nothing); 2], carried, hub);
    }

    /// Carries on with a connection, or ends it, after so many bytes of it were carried; by a reset where
    /// a side has failed.
    fn carry(
        &mut self,
        flow: FiveTuple,
        relay: Relay,
        tokens: [u64; 2],
        mut watched: [Option<Interest>; 2],
        carried: Option<(u64, u64)>,
        hub: &mut Hub,
    ) {
        let ended = match carried {
            Some((up, down)) => {
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
        let connection = Connection::Carried { relay, tokens, watched };
        self.entries.insert(flow, Entry { connection, used_ns: hub.now_ns });
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The connection that can best be spared, of those that come behind `after`.
    pub(super) fn dispensable(&self, now_ns: u64, after: Option<Candidate>) -> Option<Candidate> {
        let candidates = self.entries.iter().filter_map(|(&flow, entry)| {
            Some(Candidate { reason: entry.spared(now_ns)?, used_ns: entry.used_ns, flow })
        });
        candidates.filter(|candidate| Some(*candidate) > after).min()
    }

    /// Ends a connection, unless a first segment of it is on its way here; both sides are told.
    /// Whether it did.
    pub(super) fn evict(&mut self, flow: FiveTuple, hub: &mut Hub) -> bool {
        if !hub.table.dismiss(flow) {
            return false;
        }
        match self.entries.remove(&flow).map(|entry| entry.connection) {
            Some(Connection::Asked { token, .. }) => {
                hub.things.remove(&token);
            }
            Some(Connection::Carried { relay, tokens, .. }) => {
                for token in tokens {
                    hub.things.remove(&token);
                }
                relay.reset();
            }
            Some(Connection::Stands { .. }) | None => {}
        }
        true
    }

    /// Ends what has been idle for too long.
    pub(super) fn expire(&mut self, hub: &mut Hub) {
        let now_ns = hub.now_ns;
        let is_old = |used_ns: u64, max: Span| now_ns.saturating_sub(used_ns) > max.as_ns();
        let (table, things) = (&hub.table, &mut hub.things);
        self.entries.retain(|flow, entry| {
            let max = match entry.connection {
                Connection::Carried { .. } => IDLE_MAX,
                Connection::Asked { .. } | Connection::Stands { .. } => BEGIN_MAX,
            };
            let old = is_old(entry.used_ns, max);
            if old {
                table.forget(*flow);
                match &entry.connection {
                    Connection::Asked { token, .. } => {
                        things.remove(token);
                    }
                    Connection::Carried { tokens, .. } => {
                        for token in tokens {
                            things.remove(token);
                        }
                    }
                    Connection::Stands { .. } => {}
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
fn connect(target: SocketAddr, hub: &Hub) -> io::Result<TcpStream> {
    let socket = hub.outside.socket(target.is_ipv6(), Kind::Stream)?;
    let fd: BorrowedFd<'_> = socket.as_fd();
    match inet::connect(fd, target) {
        Err(error) if !inet::is_in_progress(&error) => Err(error),
        _ => Ok(socket.into()),
    }
}

#[cfg(test)]
impl Streams {
    /// Carries a connection of `flow`; its two ends beyond the relay, the program's first.
    pub(super) fn stand(&mut self, flow: FiveTuple, hub: &mut Hub) -> [TcpStream; 2] {
        let pair = || {
            let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
            let end = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let own = listener.accept().unwrap().0;
            own.set_nonblocking(true).unwrap();
            (own, end)
        };
        let ((inside, program), (outside, server)) = (pair(), pair());
        self.begin_to_carry(flow, Relay::new(inside, outside), hub);
        [program, server]
    }

    /// Whether bytes of a connection wait for room in either direction.
    pub(super) fn is_held_up(&self, flow: FiveTuple) -> bool {
        let connection = self.entries.get(&flow).map(|entry| &entry.connection);
        matches!(connection, Some(Connection::Carried { relay, .. }) if relay.is_held_up())
    }

    pub(super) fn knows(&self, flow: FiveTuple) -> bool {
        self.entries.contains_key(&flow)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::table::Verdict;
    use super::*;

    #[test]
    fn a_connection_that_nobody_begins_inside_ends_after_its_time() {
        let mut hub = Hub::lone(1);
        let mut streams = Streams::default();
        // It takes connections outside, and is never asked for them.
        let outside = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let flow = FiveTuple {
            source: Ipv4Addr::LOCALHOST.into(),
            destination: Ipv4Addr::LOCALHOST.into(),
            protocol: Protocol::TCP,
            source_port: 1,
            destination_port: outside.local_addr().unwrap().port(),
        };
        assert_eq!(hub.table.on_syn(flow), Verdict::Hold);
        streams.begin(flow, Vec::new(), &mut hub);
        assert_eq!((streams.entries.len(), hub.things.len()), (1, 1));
        hub.now_ns = BEGIN_MAX.as_ns();
        streams.expire(&mut hub);
        assert_eq!(streams.entries.len(), 1);
        hub.now_ns += 1;
        streams.expire(&mut hub);
        assert!(streams.entries.is_empty() && hub.things.is_empty());
        assert_eq!(hub.table.on_syn(flow), Verdict::Hold, "it begins anew");
    }
}
