//! UDP through the gateway: a connected socket inside and one outside for every flow.
//!
//! Left out: waiting and injecting (`super::engine`), and errors outside, which are a datagram lost.

use std::collections::BTreeMap;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;

use plumb_base::time::Span;
use plumb_sys::epoll::Interest;
use plumb_sys::inet::{self, Kind};
use plumb_sys::socket;
use plumb_wire::flow::FiveTuple;

use super::engine::{Hub, Thing};
use super::relay::Side;
use super::stream::destination;
use super::target::DNS_PORT;

/// How long a flow may say nothing: RFC 4787 §4.3 (REQ-5) asks translators for at least this.
const IDLE_MAX: Span = Span::from_ms(120_000);
/// The same of a question to a resolver.
const IDLE_MAX_DNS: Span = Span::from_ms(10_000);
/// Datagrams of one turn, so that no flow keeps the others waiting.
const DATAGRAMS: usize = 32;

#[derive(Debug)]
struct Entry {
    inside: UdpSocket,
    outside: UdpSocket,
    tokens: [u64; 2],
    used_ns: u64,
}

/// Every flow of UDP of the gateway.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    entries: BTreeMap<FiveTuple, Entry>,
}

impl Datagrams {
    /// A datagram of a flow has come that has no sockets yet, or had none a moment ago.
    pub(super) fn begin(&mut self, flow: FiveTuple, frame: &[u8], hub: &mut Hub) {
        let known = self.entries.contains_key(&flow);
        if let Some(entry) = if known { None } else { Some(open(flow, hub)) } {
            let Ok(entry) = entry else {
                // The kernel there tells the sender that nobody takes it.
                hub.inject(frame);
                hub.table.forget(flow);
                return;
            };
            hub.table.count(|counts| counts.datagram_flows += 1);
            self.entries.insert(flow, entry);
            hub.table.admit(flow);
        }
        hub.inject(frame);
        hub.table.on_released(flow);
    }

    /// Something has come on one side of a flow.
    pub(super) fn handle(&mut self, flow: FiveTuple, side: Side, hub: &mut Hub) {
        let Some(entry) = self.entries.get_mut(&flow) else { return };
        entry.used_ns = hub.now_ns;
        let (from, to) = match side {
            Side::Inside => (&entry.inside, &entry.outside),
            Side::Outside => (&entry.outside, &entry.inside),
        };
        for _ in 0..DATAGRAMS {
            let len = match socket::receive(from.as_fd(), &mut hub.scratch, false) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An error that a datagram sent earlier has come back with.
                Err(_) => continue,
            };
            if socket::send(to.as_fd(), &hub.scratch[..len]).is_ok() {
                hub.table.count(|counts| match side {
                    Side::Inside => counts.bytes_up += len as u64,
                    Side::Outside => counts.bytes_down += len as u64,
                });
            }
        }
    }

    /// Ends what has been idle for too long.
    pub(super) fn expire(&mut self, hub: &mut Hub) {
        let Hub { now_ns, table, things, .. } = hub;
        self.entries.retain(|flow, entry| {
            let max = if flow.destination_port == DNS_PORT { IDLE_MAX_DNS } else { IDLE_MAX };
            let old = now_ns.saturating_sub(entry.used_ns) > max.as_ns();
            if old {
                table.forget(*flow);
                for token in entry.tokens {
                    things.remove(&token);
                }
            }
            !old
        });
    }
}

fn open(flow: FiveTuple, hub: &mut Hub) -> io::Result<Entry> {
    let target = hub.target(destination(flow));
    let inside = inet::socket(flow.destination.is_ipv6(), Kind::Datagram)?;
    inet::bind(&inside, destination(flow))?;
    inet::connect(inside.as_fd(), (flow.source, flow.source_port).into())?;
    let outside = hub.outside.socket(target.is_ipv6(), Kind::Datagram)?;
    inet::connect(outside.as_fd(), target)?;
    let read = Interest { read: true, write: false };
    let tokens = [
        hub.watch(inside.as_fd(), Thing::Datagrams(flow, Side::Inside), read),
        hub.watch(outside.as_fd(), Thing::Datagrams(flow, Side::Outside), read),
    ];
    let (inside, outside) = (inside.into(), outside.into());
    Ok(Entry { inside, outside, tokens, used_ns: hub.now_ns })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use plumb_wire::protocol::Protocol;

    use super::super::table::Verdict;
    use super::*;

    /// Between two ports of this machine that were free a moment ago.
    fn flow() -> FiveTuple {
        let free = || {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            socket.local_addr().unwrap().port()
        };
        FiveTuple {
            source: Ipv4Addr::LOCALHOST.into(),
            destination: Ipv4Addr::LOCALHOST.into(),
            protocol: Protocol::UDP,
            source_port: free(),
            destination_port: free(),
        }
    }

    #[test]
    fn a_flow_that_says_nothing_ends_after_its_time_and_not_before_and_its_place_is_free() {
        let mut hub = Hub::lone(1);
        let mut datagrams = Datagrams::default();
        let (first, second) = (flow(), flow());
        assert_eq!(hub.table.on_datagram(first), Verdict::Hold);
        datagrams.begin(first, &[], &mut hub);
        assert_eq!(hub.table.on_datagram(first), Verdict::Pass);
        assert_eq!(hub.table.on_datagram(second), Verdict::Drop, "there is room for one");
        hub.now_ns = IDLE_MAX.as_ns();
        datagrams.expire(&mut hub);
        assert_eq!(hub.table.on_datagram(first), Verdict::Pass);
        // What comes from outside keeps it.
        datagrams.handle(first, Side::Outside, &mut hub);
        hub.now_ns = 2 * IDLE_MAX.as_ns();
        datagrams.expire(&mut hub);
        assert_eq!(hub.table.on_datagram(first), Verdict::Pass);
        hub.now_ns += 1;
        datagrams.expire(&mut hub);
        assert!(hub.things.is_empty() && datagrams.entries.is_empty());
        assert_eq!(hub.table.on_datagram(second), Verdict::Hold);
    }
}
