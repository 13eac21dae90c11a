//! UDP through the gateway: a connected socket inside and one outside for every flow.

use std::collections::BTreeMap;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;

use plumb_base::time::Span;
use plumb_sys::fd::EpollInterest;
use plumb_sys::socket::{self, InetSocketKind};
use plumb_wire::flow::FiveTuple;

use super::engine::{GatewayContext, WatchedSocket};
use super::flow_table::{EvictionCandidate, EvictionReason, IDLE_MIN, is_silent};
use super::relay::RelaySide;
use super::resolver::DNS_PORT;
use super::tcp::destination;

/// How long a flow may say nothing: RFC 4787 §4.3 (REQ-5) asks translators for at least this.
const IDLE_MAX: Span = Span::from_ms(120_000);
/// The same of a question to a resolver.
const IDLE_MAX_DNS: Span = Span::from_ms(10_000);
/// Datagrams of one turn, so that no flow keeps the others waiting.
const DATAGRAMS: usize = 32;
const READ: EpollInterest = EpollInterest { read: true, write: false };

#[derive(Debug)]
struct UdpFlow {
    /// The lab's side and the host's.
    sockets: [UdpSocket; 2],
    tokens: [u64; 2],
    /// Of questions to resolvers, whom they are put to now.
    resolver: Option<usize>,
    used_ns: u64,
    /// Datagrams that came from inside.
    asked: u64,
    /// Datagrams that came from outside.
    answered: u64,
}

impl UdpFlow {
    /// Why it could be spared, where it could.
    fn eviction_reason(&self, flow: FiveTuple, now_ns: u64) -> Option<EvictionReason> {
        let is_question = flow.destination_port == DNS_PORT;
        if is_question && self.asked > 0 && self.answered >= self.asked {
            return Some(EvictionReason::Over);
        }
        is_silent(now_ns, self.used_ns, IDLE_MIN).then_some(EvictionReason::Idle)
    }

    /// Turns to the resolver of the question that was read last, so many bytes long. A flow whose
    /// questions are under way with one stays with it: what that one still has to say would be lost.
    fn select_resolver(&mut self, flow: FiveTuple, len: usize, hub: &mut GatewayContext) {
        let Some(before) = self.resolver else { return };
        let is_in_use = self.asked > 0 && !is_silent(hub.now_ns, self.used_ns, IDLE_MIN);
        let GatewayContext { questions, scratch, now_ns, .. } = hub;
        let resolver =
            questions.choose_resolver(&scratch[..len], is_in_use.then_some(before), *now_ns);
        if resolver == before {
            return;
        }
        // Without a socket for it the one before is asked again.
        if let Ok((outside, token)) = open_outside(flow, resolver, hub) {
            hub.unwatch(self.sockets[1].as_fd(), self.tokens[1]);
            (self.sockets[1], self.tokens[1], self.resolver) = (outside, token, Some(resolver));
        }
    }
}

/// Every flow of UDP of the gateway.
#[derive(Debug, Default)]
pub(super) struct UdpFlows {
    entries: BTreeMap<FiveTuple, UdpFlow>,
}

impl UdpFlows {
    /// A datagram of a flow has come that has no sockets yet, or had none a moment ago.
    pub fn begin(&mut self, flow: FiveTuple, frame: &[u8], hub: &mut GatewayContext) {
        if !self.contains(flow) {
            let Ok(entry) = open(flow, hub) else {
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
    pub fn handle(&mut self, flow: FiveTuple, side: RelaySide, hub: &mut GatewayContext) {
        let Some(entry) = self.entries.get_mut(&flow) else { return };
        for _ in 0..DATAGRAMS {
            let from = entry.sockets[side as usize].as_fd();
            let len = match socket::receive(from, &mut hub.scratch, false) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // An error that a datagram sent earlier has come back with.
                Err(_) => continue,
            };
            match side {
                RelaySide::Inside => {
                    entry.select_resolver(flow, len, hub);
                    entry.asked += 1;
                }
                RelaySide::Outside => {
                    if let Some(resolver) = entry.resolver {
                        hub.questions.on_answer(&hub.scratch[..len], resolver);
                    }
                    entry.answered += 1;
                }
            }
            entry.used_ns = hub.now_ns;
            let to = entry.sockets[1 - side as usize].as_fd();
            if socket::send(to, &hub.scratch[..len]).is_ok() {
                hub.table.count(|counts| match side {
                    RelaySide::Inside => counts.bytes_up += len as u64,
                    RelaySide::Outside => counts.bytes_down += len as u64,
                });
            }
        }
        entry.used_ns = hub.now_ns;
    }

    /// Whether it has sockets for a flow.
    pub fn contains(&self, flow: FiveTuple) -> bool {
        self.entries.contains_key(&flow)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The flow that can best be spared, of those that come behind `after`.
    pub fn eviction_candidate(
        &self,
        now_ns: u64,
        after: Option<EvictionCandidate>,
    ) -> Option<EvictionCandidate> {
        let candidates = self.entries.iter().filter_map(|(&flow, entry)| {
            let reason = entry.eviction_reason(flow, now_ns)?;
            Some(EvictionCandidate { reason, used_ns: entry.used_ns, flow })
        });
        candidates.filter(|candidate| Some(*candidate) > after).min()
    }

    /// Ends a flow, unless a packet of it is on its way here; whether it did.
    pub fn evict(&mut self, flow: FiveTuple, hub: &mut GatewayContext) -> bool {
        let gone = hub.table.forget_unless_waiting(flow);
        if let Some(entry) = gone.then(|| self.entries.remove(&flow)).flatten() {
            for token in entry.tokens {
                hub.watched.remove(&token);
            }
        }
        gone
    }

    /// Ends what has been idle for too long.
    pub fn expire(&mut self, hub: &mut GatewayContext) {
        let GatewayContext { now_ns, table, watched: things, .. } = hub;
        self.entries.retain(|flow, entry| {
            let max = if flow.destination_port == DNS_PORT { IDLE_MAX_DNS } else { IDLE_MAX };
            let old = now_ns.saturating_sub(entry.used_ns) > max.as_ns()
                && table.forget_unless_waiting(*flow);
            if old {
                for token in entry.tokens {
                    things.remove(&token);
                }
            }
            !old
        });
    }
}

fn open(flow: FiveTuple, hub: &mut GatewayContext) -> io::Result<UdpFlow> {
    let inside = socket::open(flow.destination.is_ipv6(), InetSocketKind::Datagram)?;
    socket::bind(&inside, destination(flow))?;
    socket::connect(inside.as_fd(), (flow.source, flow.source_port).into())?;
    let resolver = hub.targets.is_resolver(destination(flow)).then_some(0);
    let (outside, token) = open_outside(flow, 0, hub)?;
    let tokens =
        [hub.watch(inside.as_fd(), WatchedSocket::Datagrams(flow, RelaySide::Inside), READ), token];
    let (sockets, used_ns) = ([inside.into(), outside], hub.now_ns);
    Ok(UdpFlow { sockets, tokens, resolver, used_ns, asked: 0, answered: 0 })
}

/// The socket outside of a flow whose questions, if it has any, are put to this resolver.
fn open_outside(
    flow: FiveTuple,
    resolver: usize,
    hub: &mut GatewayContext,
) -> io::Result<(UdpSocket, u64)> {
    let target = hub.targets.outside(destination(flow), resolver);
    let outside = hub.outside.socket(target.is_ipv6(), InetSocketKind::Datagram)?;
    socket::connect(outside.as_fd(), target)?;
    let token =
        hub.watch(outside.as_fd(), WatchedSocket::Datagrams(flow, RelaySide::Outside), READ);
    Ok((outside.into(), token))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use plumb_wire::ip::IpProtocol;

    use super::super::flow_table::GateVerdict;
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
            protocol: IpProtocol::UDP,
            source_port: free(),
            destination_port: free(),
        }
    }

    #[test]
    fn a_question_that_has_its_answer_is_over_and_another_flow_is_idle_after_a_second() {
        let socket = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let entry = |asked, answered| UdpFlow {
            sockets: [socket(), socket()],
            tokens: [1, 2],
            resolver: None,
            used_ns: 0,
            asked,
            answered,
        };
        let question = FiveTuple { destination_port: DNS_PORT, ..flow() };
        assert_eq!(entry(2, 2).eviction_reason(question, 1), Some(EvictionReason::Over));
        assert_eq!(entry(2, 1).eviction_reason(question, 1), None);
        assert_eq!(
            entry(0, 0).eviction_reason(question, 1),
            None,
            "its first packet is on its way"
        );
        let other = flow();
        assert_eq!(entry(2, 2).eviction_reason(other, IDLE_MIN.as_ns() - 1), None);
        assert_eq!(
            entry(2, 2).eviction_reason(other, IDLE_MIN.as_ns()),
            Some(EvictionReason::Idle)
        );
    }

    #[test]
    fn a_flow_that_says_nothing_ends_after_its_time_and_not_before() {
        let mut hub = GatewayContext::for_test(1);
        let mut datagrams = UdpFlows::default();
        let first = flow();
        assert_eq!(hub.table.on_datagram(first), GateVerdict::Hold);
        datagrams.begin(first, &[], &mut hub);
        assert_eq!(hub.table.on_datagram(first), GateVerdict::Pass);
        hub.now_ns = IDLE_MAX.as_ns();
        datagrams.expire(&mut hub);
        assert_eq!(hub.table.on_datagram(first), GateVerdict::Pass);
        // A datagram from outside keeps the flow alive.
        datagrams.handle(first, RelaySide::Outside, &mut hub);
        hub.now_ns = 2 * IDLE_MAX.as_ns();
        datagrams.expire(&mut hub);
        assert_eq!(hub.table.on_datagram(first), GateVerdict::Pass);
        hub.now_ns += 1;
        datagrams.expire(&mut hub);
        assert!(hub.watched.is_empty() && datagrams.entries.is_empty());
        assert_eq!(hub.table.on_datagram(first), GateVerdict::Hold, "it begins anew");
    }
}
