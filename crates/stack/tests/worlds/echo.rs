//! UDP echo over a hostile link, in both families and over both media: nothing corrupt is delivered,
//! nothing twice unless the link doubled it, nothing is leaked, and when the link is good again the
//! exchange completes.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use plumb_base::seed::{RandomStream, Seed};
use plumb_base::time::Span;
use plumb_stack::host::IpHost;
use plumb_stack::udp::{CopyPolicy, UdpId, UdpOptions};
use plumb_wire::machine::Medium;
use rand::RngExt;

use crate::lan::{check, end, lan};
use crate::virtual_link::{LinkFaults, VirtualLink};

const CLIENT: usize = 0;
const SERVER: usize = 1;

/// One client that sends datagrams until each was echoed, one server that echoes.
struct EchoExchange {
    world: VirtualLink<IpHost>,
    v6: bool,
    client: UdpId,
    server: UdpId,
    remote: Option<SocketAddr>,
    payloads: Vec<Vec<u8>>,
    sent: Vec<u64>,
    /// How often each arrived: at the server, and back.
    arrived: [BTreeMap<usize, u64>; 2],
    seed: u64,
}

impl EchoExchange {
    fn new(seed: u64) -> Self {
        let mut stream = Seed(seed).stream("exchange");
        let v6 = seed % 2 == 1;
        let medium = if seed / 2 % 2 == 1 { Medium::Ip } else { Medium::Ethernet };
        let mut world = lan(2, medium, seed / 4 % 2 == 1, Seed(seed));
        let (bound, connected) = (stream.random(), stream.random());
        let options = UdpOptions::default();
        let any: SocketAddr = if v6 { "[::]:0" } else { "0.0.0.0:0" }.parse().unwrap();
        let (remote, wildcard) = (end(v6, 2, 7), SocketAddr::new(any.ip(), 7));
        let server = if bound { remote } else { wildcard };
        let server = world.with(SERVER, |host, _, _| host.udp_bind(server, options)).unwrap();
        let client = world.with(CLIENT, |host, now, _| {
            let id = host.udp_bind(any, options).unwrap();
            if connected {
                host.udp_connect(now, id, remote).unwrap();
            }
            id
        });
        let count = stream.random_range(1..30);
        let payloads: Vec<Vec<u8>> = (0..count).map(|n| payload(n, &mut stream)).collect();
        Self {
            world,
            v6,
            client,
            server,
            remote: (!connected).then_some(remote),
            sent: vec![0; payloads.len()],
            payloads,
            arrived: [BTreeMap::new(), BTreeMap::new()],
            seed,
        }
    }

    /// Sends everything that has not come back.
    fn send(&mut self) {
        for n in 0..self.payloads.len() {
            if self.arrived[1].contains_key(&n) {
                continue;
            }
            let (id, remote) = (self.client, self.remote);
            let policy = [CopyPolicy::Fused, CopyPolicy::Separate][n % 2];
            let payload = &self.payloads[n];
            let sent = self.world.with(CLIENT, |host, now, pool| {
                host.udp_send(now, id, payload, remote, policy, pool)
            });
            // A full queue or pool is the world's doing; everything is sent again.
            self.sent[n] += u64::from(sent.is_ok());
            self.serve();
        }
    }

    /// Lets time pass, the server echoing whatever it gets as soon as it gets it.
    fn run(&mut self, span: Span) {
        let until = self.world.now() + span;
        while self.world.step(until) {
            self.serve();
        }
        self.serve();
    }

    fn serve(&mut self) {
        for (machine, id) in [(SERVER, self.server), (CLIENT, self.client)] {
            let payloads = &self.payloads;
            let (arrived, seed) = (&mut self.arrived[usize::from(machine == CLIENT)], self.seed);
            self.world.with(machine, |host, now, pool| {
                while let Some(datagram) = host.udp_receive(id, pool) {
                    let bytes = pool.bytes(&datagram.packet);
                    let n = payloads.iter().position(|payload| payload == bytes);
                    let Some(n) = n else {
                        panic!("seed {seed}: delivered but never sent: {} bytes", bytes.len())
                    };
                    *arrived.entry(n).or_insert(0) += 1;
                    if machine == SERVER {
                        let _ = host.udp_reply(now, datagram, pool);
                    } else {
                        pool.free(datagram.packet);
                    }
                }
            });
        }
    }

    fn is_complete(&self) -> bool {
        self.arrived[1].len() == self.payloads.len()
    }

    /// What the link was given twice is all that may arrive oftener than it was sent.
    fn check_duplicates(&self) {
        let duplicated = self.world.fates().duplicated;
        let excess = |arrived: &BTreeMap<usize, u64>, sent: &dyn Fn(usize) -> u64| -> u64 {
            arrived.iter().map(|(n, times)| times.saturating_sub(sent(*n))).sum()
        };
        let there = excess(&self.arrived[0], &|n| self.sent[n]);
        let back = excess(&self.arrived[1], &|n| self.arrived[0].get(&n).copied().unwrap_or(0));
        assert!(there + back <= duplicated, "seed {}: {there} + {back} > {duplicated}", self.seed);
    }
}

/// Unlike any other, and sometimes longer than a packet.
fn payload(n: u32, stream: &mut RandomStream) -> Vec<u8> {
    let len = match stream.random_range(0..4) {
        0 => stream.random_range(1_400..1_500),
        1 => stream.random_range(1_500..6_000),
        _ => stream.random_range(4..200),
    };
    let mut payload = n.to_be_bytes().to_vec();
    payload.extend((4..len).map(|_| stream.random::<u8>()));
    payload
}

#[test]
fn hostile_link_delivers_nothing_corrupt() {
    let mut total = crate::virtual_link::LinkCounts::default();
    for seed in 0..3_000 {
        let mut exchange = EchoExchange::new(seed);
        let mut stream = Seed(seed).stream("faults");
        exchange.world.set_faults(LinkFaults::random(&mut stream));
        for _ in 0..stream.random_range(1..6) {
            exchange.send();
            exchange.run(Span::from_ms(stream.random_range(1..2_000)));
        }
        exchange.world.set_faults(LinkFaults::default());
        // The longest that a neighbor broken by a bit can mislead: until it is confirmed again.
        for _ in 0..60 {
            if exchange.is_complete() {
                break;
            }
            exchange.send();
            exchange.run(Span::from_secs(2));
        }
        assert!(exchange.is_complete(), "seed {seed}: {:?}", exchange.arrived);
        exchange.check_duplicates();
        exchange.run(Span::from_secs(120));
        assert!(exchange.world.settle(Span::from_secs(120)), "seed {seed}: an idle host is quiet");
        check(&exchange.world, &format!("seed {seed}, IPv6: {}", exchange.v6));
        let fates = exchange.world.fates();
        total.lost += fates.lost;
        total.duplicated += fates.duplicated;
        total.corrupted += fates.corrupted;
        total.truncated += fates.truncated;
        total.delayed += fates.delayed;
    }
    println!("seeds 0 to 2999: {total:?}");
    assert!(
        [total.lost, total.duplicated, total.corrupted, total.truncated, total.delayed]
            .iter()
            .all(|n| *n > 1_000)
    );
}
