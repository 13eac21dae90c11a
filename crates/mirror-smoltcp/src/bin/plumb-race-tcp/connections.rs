//! What a segment takes on a host with many connections, and what an idle connection takes: plumb's stack at both ends, in one thread.
//!
//! A segment and its acknowledgement cross at a time, on one connection or on another each time.

use std::net::SocketAddr;

use anyhow::Context as _;
use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_stack::host::{HostConfig, IpHost};
use plumb_stack::tcp::{ListenerId, Received, TcpEvent, TcpId};
use plumb_wire::machine::{Machine as _, PortId};
use plumb_wire::packet::{Batch, Pool, PoolConfig};
use rand::RngExt as _;
use serde_json::{Value, json};

use crate::memory::{host, tcp_config};
use crate::{HostSide, PORT, RaceOptions};

/// Connections to one port: fewer than there are ephemeral ports.
const TO_ONE_PORT: u32 = 10_000;
/// Bytes of a segment.
const SEGMENT: usize = 64;
/// Virtual time that a segment and its acknowledgement take.
const TURN: Span = Span::from_us(2);
/// Segments between two looks at the clock.
const TURNS: u64 = 1_000;
const WIRE: PortId = PortId(0);

/// Which connection is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Always the same one.
    Hot,
    /// Any, all alike.
    Uniform,
}

/// Opens connections and sends segments on them for so long, or so many.
pub fn measure(options: &RaceOptions) -> anyhow::Result<Value> {
    let mut pair = ConnectedPair::new(options);
    let before = resident_bytes()?;
    pair.open(options)?;
    let idle = resident_bytes()?.saturating_sub(before) as f64 / f64::from(options.count);
    // Buffers are made with the first byte.
    (0..options.count as usize).for_each(|number| pair.exchange(number));
    pair.rest();
    pair.received = 0;
    let mut random = Seed(16).stream("spread");
    let begun = plumb_clock::monotonic_ns();
    let most = options.segments.unwrap_or(u64::MAX);
    let mut sent = 0;
    let ns = loop {
        let turns = TURNS.min(most - sent);
        for _ in 0..turns {
            let number = match options.spread {
                Spread::Hot => 0,
                Spread::Uniform => random.random_range(0..options.count as usize),
            };
            pair.exchange(number);
        }
        sent += turns;
        let ns = plumb_clock::monotonic_ns() - begun;
        if sent == most || (most == u64::MAX && ns as f64 >= options.seconds * 1e9) {
            break ns;
        }
    };
    anyhow::ensure!(pair.received == sent * SEGMENT as u64, "every segment arrives");
    Ok(json!({
        "segment_ns": ns as f64 / sent.max(1) as f64,
        "segments": sent,
        // Both ends of each connection are in this process.
        "idle_bytes": idle / 2.0,
    }))
}

/// Resident memory of this process, in bytes.
fn resident_bytes() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).context("no VmRSS")?;
    Ok(kib.parse::<u64>().context("VmRSS")? << 10)
}

struct ConnectedPair {
    /// The client, and the server.
    hosts: [IpHost; 2],
    connections: Vec<TcpId>,
    pool: Pool,
    batch: Batch,
    now: Instant,
    received: u64,
}

impl ConnectedPair {
    fn new(options: &RaceOptions) -> Self {
        let hosts = HostSide::BOTH.map(|side| host(side, HostConfig::default()));
        Self {
            hosts,
            connections: Vec::with_capacity(options.count as usize),
            pool: Pool::new(PoolConfig { count: 64, size: 2_048, large: 0 }),
            batch: Batch::with_capacity(16),
            now: Instant::after_origin(Span::from_secs(1)),
            received: 0,
        }
    }

    fn open(&mut self, options: &RaceOptions) -> anyhow::Result<()> {
        let mut config = tcp_config(options);
        // Else the first segments of a connection are acknowledged at once, and later small ones together.
        config.personality.delayed_ack.max = Span::ZERO;
        let config = std::sync::Arc::new(config);
        let mut listener: Option<ListenerId> = None;
        for number in 0..options.count {
            let port = PORT + u16::try_from(number / TO_ONE_PORT)?;
            let to = SocketAddr::from((HostSide::Far.ip(), port));
            if number % TO_ONE_PORT == 0 {
                listener = Some(self.hosts[1].tcp_listen(to, 1, config.clone())?);
            }
            let any = SocketAddr::from((HostSide::Near.ip(), 0));
            let id = self.hosts[0].tcp_connect(self.now, any, to, config.clone(), &self.pool)?;
            let accepted = (0..8).find_map(|_| {
                self.turn();
                listener.and_then(|listener| self.hosts[1].tcp_accept(listener))
            });
            accepted.with_context(|| format!("connection {number} was not opened"))?;
            self.connections.push(id);
            self.collect_events();
        }
        Ok(())
    }

    /// One segment on a connection, and its acknowledgement.
    fn exchange(&mut self, number: usize) {
        let id = self.connections[number];
        let sent = self.hosts[0].tcp_send(self.now, id, &[7; SEGMENT]);
        debug_assert_eq!(sent, Ok(SEGMENT), "what was sent before was acknowledged");
        self.turn();
        self.collect_events();
    }

    /// What either host has goes to the other.
    fn turn(&mut self) {
        let Self { hosts, batch, pool, now, received, .. } = self;
        for from in [0, 1] {
            hosts[from].poll_packets(*now, WIRE, batch, 16, pool);
            hosts[1 - from].handle_packets(*now, WIRE, batch, pool);
            if from == 0 {
                while let Some(event) = hosts[1].poll_tcp_event() {
                    let TcpEvent::Readable(id) = event else { continue };
                    while let Ok(Received::Data(len)) =
                        hosts[1].tcp_receive_with(*now, id, <[u8]>::len)
                    {
                        *received += len as u64;
                    }
                }
            }
        }
        *now += TURN;
        for host in hosts {
            if host.deadline().is_some_and(|deadline| deadline <= *now) {
                host.handle_deadline(*now, pool);
            }
        }
    }

    /// Lets every timer expire that what was sent has armed: a connection is idle only then.
    fn rest(&mut self) {
        while let Some(deadline) = self.hosts.iter().filter_map(IpHost::deadline).min() {
            self.now = self.now.max(deadline);
            self.turn();
        }
    }

    fn collect_events(&mut self) {
        while self.hosts[0].poll_tcp_event().is_some() {}
    }
}
