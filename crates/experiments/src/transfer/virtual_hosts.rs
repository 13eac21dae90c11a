//! Two hosts in virtual time with plumb's TCP, a link between them, and one connection.

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_harness::report::LaunchFault;
use plumb_link::link::{FAR, Link, NEAR};
use plumb_link::spec::LinkSpec;
use plumb_stack::host::IpHost;
use plumb_stack::tcp::config::TcpConfig;
use plumb_stack::tcp::{ListenerId, TcpId};
use plumb_wire::machine::{Machine as _, Medium, PortId};
use plumb_wire::packet::{Batch, Pool, PoolConfig};

use super::{host, open};

/// Packets handed over at once.
const BATCH: usize = 32;
const PORT: PortId = PortId(0);
/// The end that listens.
const LISTENER: usize = 1;
/// The link's side at each end.
const SIDES: [PortId; 2] = [NEAR, FAR];

/// Both hosts at a moment.
pub(crate) struct VirtualHosts {
    pub(crate) hosts: [IpHost; 2],
    /// The connection at each end; at the second once it is accepted.
    pub(crate) connections: [Option<TcpId>; 2],
    pub(crate) now: Instant,
    listener: ListenerId,
    link: Link,
    pool: Pool,
    batch: Batch,
}

impl VirtualHosts {
    /// The first host has begun to open a connection to the second.
    ///
    /// # Errors
    /// There can be no such link.
    pub(crate) fn new(
        link: &LinkSpec,
        config: &TcpConfig,
        seed: Seed,
    ) -> Result<Self, LaunchFault> {
        let now = Instant::after_origin(Span::from_secs(1));
        let link = LinkSpec { seed: seed.derive("link"), ..link.clone() };
        let link = Link::new(&link, Medium::Ethernet, now)
            .map_err(|error| LaunchFault::Failed(error.to_string()))?;
        let mut hosts = [0, 1].map(|end| host(end, seed));
        let pool = Pool::new(PoolConfig { count: 4_096, size: 2_048, large: 0 });
        let (opened, listener) = open(&mut hosts, now, config, &pool);
        let (connections, batch) = ([Some(opened), None], Batch::with_capacity(BATCH));
        Ok(Self { hosts, connections, now, listener, link, pool, batch })
    }

    /// The connection at the end that listens, accepted if it is there.
    pub(crate) fn accept(&mut self) -> Option<TcpId> {
        let connection = &mut self.connections[LISTENER];
        *connection = connection.or_else(|| self.hosts[LISTENER].tcp_accept(self.listener));
        *connection
    }

    /// Hands over to the link what a host has to send.
    pub(crate) fn collect(&mut self, end: usize) {
        let Self { hosts, link, pool, batch, now, .. } = self;
        loop {
            hosts[end].poll_packets(*now, PORT, batch, BATCH, pool);
            if batch.is_empty() {
                break;
            }
            link.handle_packets(*now, SIDES[end], batch, pool);
        }
    }

    /// Moves on to the next moment at which a host, the link or an application does something, but not beyond `until`;
    /// whether there is one. The second host is given the packets that `admits` takes.
    pub(crate) fn advance(
        &mut self,
        application: impl Iterator<Item = Instant>,
        until: Instant,
        mut admits: impl FnMut(Instant, &[u8]) -> bool,
    ) -> bool {
        self.collect(0);
        self.collect(1);
        let deadlines = self.hosts.iter().filter_map(IpHost::deadline);
        let application = application.filter(|at| *at > self.now);
        let Some(next) = deadlines.chain(self.link.deadline()).chain(application).min() else {
            return false;
        };
        self.now = next.max(self.now).min(until);
        let Self { hosts, link, pool, batch, now, .. } = self;
        for (end, side) in SIDES.into_iter().enumerate() {
            loop {
                link.poll_packets(*now, side, batch, BATCH, pool);
                if batch.is_empty() {
                    break;
                }
                if end == LISTENER {
                    for packet in std::mem::take(batch) {
                        if admits(*now, pool.bytes(&packet)) {
                            batch.push(packet);
                        } else {
                            pool.free(packet);
                        }
                    }
                }
                hosts[end].handle_packets(*now, PORT, batch, pool);
            }
            if hosts[end].deadline().is_some_and(|deadline| deadline <= *now) {
                hosts[end].handle_deadline(*now, pool);
            }
        }
        true
    }
}
