//! A bulk transfer between two hosts in one thread, frames handed over in memory: plumb's stack, smoltcp's, and copies alone.
//!
//! Every turn the sender sends at most a burst of frames, of one segment each, with complete checksums; the receiver takes
//! them, its application reads, and what it has to say goes back.

use std::net::SocketAddr;

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_stack::host::{HostConfig, IpHost};
use plumb_stack::interface::InterfaceConfig;
use plumb_stack::tcp::config::{BufferLimits, TcpConfig};
use plumb_stack::tcp::{Received, TcpId};
use plumb_wire::machine::{Machine as _, PortId};
use plumb_wire::packet::{Batch, Pool, PoolConfig};

use crate::application::{BulkSink, BulkSource, SocketApi};
use crate::smoltcp_host::{MemoryLink, MemoryPort, SmoltcpHost};
use crate::{HostSide, PORT, RaceOptions};

/// Frames on the link at once, and in a burst.
pub const BURST: usize = 64;

/// Frames of the pool.
const FRAMES: u32 = 256;

/// Virtual time that a turn takes: that of a burst at about 40 Gb/s.
const TURN: Span = Span::from_us(20);

/// Payload of a full segment with timestamps.
const SEGMENT: usize = 1_448;

/// Something that moves bytes from a source to a sink.
pub trait BulkTransfer {
    /// Takes one turn.
    fn turn(&mut self, source: &mut BulkSource, sink: &mut BulkSink);
}

fn pool() -> Pool {
    Pool::new(PoolConfig { count: FRAMES, size: 2_048, large: 0 })
}

/// Plumb's configuration: buffers of one size.
pub fn tcp_config(options: &RaceOptions) -> TcpConfig {
    let buffer = BufferLimits::fixed(u32::try_from(options.buffer).expect("less than 4 GiB"));
    TcpConfig { send_buffer: buffer, receive_buffer: buffer, nagle: false, ..TcpConfig::default() }
}

/// A host of plumb's stack at one end of a plain Ethernet.
pub fn host(side: HostSide, config: HostConfig) -> IpHost {
    let mut host = IpHost::new(config, Seed(16).derive(side.name()));
    let interface = InterfaceConfig::ethernet(side.mac(), 1_500).with_address(side.ip(), 24);
    host.add_interface(&interface).expect("one interface with one address");
    host
}

/// Two hosts of plumb's and the connection between them.
pub struct PlumbPair {
    hosts: [IpHost; 2],
    connections: [TcpId; 2],
    api: SocketApi,
    pool: Pool,
    batch: Batch,
    now: Instant,
}

const SENDER: usize = 0;
const RECEIVER: usize = 1;
const WIRE: PortId = PortId(0);

impl PlumbPair {
    /// Two hosts with a connection.
    pub fn new(options: &RaceOptions) -> Self {
        let mut hosts = HostSide::BOTH.map(|side| host(side, HostConfig::default()));
        let mut pool = pool();
        let config = tcp_config(options);
        let to = SocketAddr::from((HostSide::Far.ip(), PORT));
        let listener = hosts[RECEIVER].tcp_listen(to, 1, config.clone()).expect("a free port");
        let any = SocketAddr::from((HostSide::Near.ip(), 0));
        let mut now = Instant::after_origin(Span::from_secs(1));
        let opened =
            hosts[SENDER].tcp_connect(now, any, to, config, &pool).expect("a path to the other");
        let mut batch = Batch::with_capacity(BURST);
        let accepted = loop {
            exchange(&mut hosts, now, SENDER, &mut batch, &mut pool);
            exchange(&mut hosts, now, RECEIVER, &mut batch, &mut pool);
            now += TURN;
            if let Some(id) = hosts[RECEIVER].tcp_accept(listener) {
                break id;
            }
        };
        Self { hosts, connections: [opened, accepted], api: options.api, pool, batch, now }
    }
}

/// Hands over at most a burst from one host to the other.
#[inline]
fn exchange(
    hosts: &mut [IpHost; 2],
    now: Instant,
    from: usize,
    batch: &mut Batch,
    pool: &mut Pool,
) {
    hosts[from].poll_packets(now, WIRE, batch, BURST, pool);
    hosts[1 - from].handle_packets(now, WIRE, batch, pool);
}

impl BulkTransfer for PlumbPair {
    #[inline]
    fn turn(&mut self, source: &mut BulkSource, sink: &mut BulkSink) {
        let Self { hosts, connections, api, pool, batch, now } = self;
        feed(&mut hosts[SENDER], *now, connections[SENDER], (source, *api, sink.checks()));
        exchange(hosts, *now, SENDER, batch, pool);
        drain(&mut hosts[RECEIVER], *now, connections[RECEIVER], (sink, *api));
        exchange(hosts, *now, RECEIVER, batch, pool);
        *now += TURN;
        for host in hosts {
            if host.deadline().is_some_and(|deadline| deadline <= *now) {
                host.handle_deadline(*now, pool);
            }
        }
    }
}

/// Gives the stack as much as it takes.
#[inline]
pub fn feed(
    host: &mut IpHost,
    now: Instant,
    id: TcpId,
    (source, api, checks): (&mut BulkSource, SocketApi, bool),
) {
    const OPEN: &str = "the connection is open";
    loop {
        let sent = match api {
            SocketApi::Slices => {
                let sent = host.tcp_send(now, id, source.next()).expect(OPEN);
                source.advance(sent);
                sent
            }
            SocketApi::InPlace if checks => {
                host.tcp_send_with(now, id, usize::MAX, |room| source.fill(room)).expect(OPEN)
            }
            SocketApi::InPlace => {
                host.tcp_send_with(now, id, usize::MAX, |room| room.len()).expect(OPEN)
            }
        };
        if sent == 0 {
            break;
        }
    }
}

/// Takes what the stack has received; whether there may be more later.
#[inline]
pub fn drain(
    host: &mut IpHost,
    now: Instant,
    id: TcpId,
    (sink, api): (&mut BulkSink, SocketApi),
) -> bool {
    loop {
        let received = match api {
            SocketApi::Slices => host.tcp_receive(now, id, sink.room()),
            SocketApi::InPlace => host.tcp_receive_with(now, id, |bytes| sink.take(bytes)),
        };
        match received {
            Ok(Received::Data(len)) if api == SocketApi::Slices => sink.filled(len),
            Ok(Received::Data(_)) => {}
            Ok(Received::Empty) => return true,
            Ok(Received::End) | Err(_) => return false,
        }
    }
}

/// Two hosts of smoltcp's and the connection between them.
pub struct SmoltcpPair {
    hosts: [SmoltcpHost; 2],
    /// What leaves the sender, and what leaves the receiver.
    links: [MemoryLink; 2],
    api: SocketApi,
    now: smoltcp::time::Instant,
}

impl SmoltcpPair {
    /// Two hosts with a connection.
    pub fn new(options: &RaceOptions) -> Self {
        let mut links = [(); 2].map(|()| MemoryLink::new(pool(), BURST));
        let mut hosts = HostSide::BOTH.map(|side| {
            let [from, to] = &mut links;
            SmoltcpHost::new((side.mac(), side.ip()), options.buffer, &mut MemoryPort { from, to })
        });
        hosts[RECEIVER].listen(PORT);
        hosts[SENDER].connect(SocketAddr::from((HostSide::Far.ip(), PORT)));
        let now = smoltcp::time::Instant::from_secs(1);
        let mut pair = Self { hosts, links, api: options.api, now };
        while !pair.hosts[SENDER].socket().may_send() || !pair.hosts[RECEIVER].socket().may_recv() {
            pair.pass(SENDER);
            pair.pass(RECEIVER);
            pair.tick();
        }
        pair
    }

    /// What one host has to send goes to the other.
    #[inline]
    fn pass(&mut self, from: usize) {
        let Self { hosts, links, now, .. } = self;
        let [there, back] = links;
        let (there, back) = if from == SENDER { (there, back) } else { (back, there) };
        hosts[from].send(*now, &mut MemoryPort { from: back, to: there });
        while there.len() > 0 {
            hosts[1 - from].receive(*now, &mut MemoryPort { from: there, to: back });
            there.free_first();
        }
    }

    fn tick(&mut self) {
        self.now += smoltcp::time::Duration::from_micros(TURN.as_ns() / 1_000);
    }
}

impl BulkTransfer for SmoltcpPair {
    #[inline]
    fn turn(&mut self, source: &mut BulkSource, sink: &mut BulkSink) {
        let api = self.api;
        self.hosts[SENDER].feed(source, api, sink.checks());
        self.pass(SENDER);
        self.hosts[RECEIVER].drain(sink, api);
        self.pass(RECEIVER);
        self.tick();
    }
}

/// The two copies that no stack can do without: from the application's memory into frames, and from frames into the application's
/// memory.
pub struct BareCopies {
    pool: Pool,
    batch: Batch,
}

impl BareCopies {
    /// With frames as the stacks have them.
    pub fn new() -> Self {
        Self { pool: pool(), batch: Batch::with_capacity(BURST) }
    }
}

impl BulkTransfer for BareCopies {
    #[inline]
    fn turn(&mut self, source: &mut BulkSource, sink: &mut BulkSink) {
        let Self { pool, batch } = self;
        for _ in 0..BURST {
            let mut packet = pool.allocate().expect("more frames than a burst");
            source.fill(pool.append(&mut packet, SEGMENT).expect("room for a segment"));
            batch.push(packet);
        }
        for packet in batch.drain(..) {
            let mut bytes = pool.bytes(&packet);
            while !bytes.is_empty() {
                let room = sink.room();
                let len = room.len().min(bytes.len());
                room[..len].copy_from_slice(&bytes[..len]);
                sink.filled(len);
                bytes = &bytes[len..];
            }
            pool.free(packet);
        }
    }
}
