//! One frame for ever: what a packet costs in the stack, in nanoseconds, without device or kernel.
//!
//! `cargo run --release -p plumb-stack --example replay [seconds ["IPv4 60 in place"]]`. Left out: statistics; the
//! experiment `stack.replay` has them.
#![expect(clippy::print_stdout, reason = "it is a program")]
#![expect(clippy::disallowed_methods, reason = "it reads the clock: nothing pure does here")]

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant as Clock};

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_stack::host::{HostConfig, IpHost};
use plumb_stack::interface::InterfaceConfig;
use plumb_stack::service::{HostNode, SwapMirror, UdpService, UdpServices};
use plumb_stack::udp::{CopyPolicy, UdpOptions};
use plumb_wire::compose::{self, LinkTemplate, PacketTemplate};
use plumb_wire::ethernet::MacAddr;
use plumb_wire::machine::{Machine, PortId};
use plumb_wire::packet::{Packet, Pool, PoolConfig};

const OURS: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const BATCH: usize = 64;

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0.5);
    let budget = Duration::from_secs_f64(seconds);
    println!("{:<6} {:<14} {:>6} {:>8} {:>12}", "family", "mirror", "frame", "ns", "packets/s");
    let only = std::env::args().nth(2).unwrap_or_default();
    let families = [("192.0.2.1", "192.0.2.2", 42), ("2001:db8::1", "2001:db8::2", 62)];
    for (ours, peer, headers) in families {
        let (ours, peer): (IpAddr, IpAddr) = (parse(ours), parse(peer));
        let family = if ours.is_ipv4() { "IPv4" } else { "IPv6" };
        for frame_len in [60_usize, 1_514] {
            let payload = vec![0x5a; frame_len.saturating_sub(headers)];
            let path = PacketTemplate::new(peer, ours).over(LinkTemplate::new(PEER, OURS));
            let frame = path.udp(4_000, 7, &payload);
            for (name, service) in [
                ("in place", UdpService::Mirror),
                ("fused", UdpService::Echo(CopyPolicy::Fused)),
                ("separate", UdpService::Echo(CopyPolicy::Separate)),
                ("no checksum", UdpService::Echo(CopyPolicy::NoChecksum)),
                ("discard", UdpService::Discard),
            ] {
                if !format!("{family} {frame_len} {name}").contains(&only) {
                    continue;
                }
                let (mut host, mut application) = (host(ours), UdpServices::new(()));
                let (local, options) = (SocketAddr::new(ours, 7), UdpOptions::default());
                application.open(&mut host, service, local, options).expect("a free port");
                let node = HostNode { host, application };
                report(family, name, &frame, measure(node, &frame, (ours, peer), budget));
            }
            if !format!("{family} {frame_len} swap").contains(&only) {
                continue;
            }
            let swap = HostNode { host: host(ours), application: SwapMirror::new(7) };
            report(family, "swap", &frame, measure(swap, &frame, (ours, peer), budget));
        }
    }
}

fn parse(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn host(ours: IpAddr) -> IpHost {
    let mut host = IpHost::new(HostConfig::default(), Seed(1));
    let len = if ours.is_ipv4() { 24 } else { 64 };
    let interface = InterfaceConfig::ethernet(OURS, 1_500).with_address(ours, len);
    host.add_interface(&interface).expect("a sound interface");
    host
}

/// Nanoseconds a packet: the median of many stretches of 100 batches.
fn measure<M: Machine>(
    mut machine: M,
    frame: &[u8],
    (ours, peer): (IpAddr, IpAddr),
    budget: Duration,
) -> f64 {
    let mut pool = Pool::new(PoolConfig { count: 256, size: 2_048, large: 0 });
    let mut batch: Vec<Packet> = Vec::with_capacity(BATCH);
    let now = Instant::ORIGIN + Span::from_secs(1);
    let port = PortId(0);
    let hello = match (ours, peer) {
        (IpAddr::V4(ours), IpAddr::V4(peer)) => compose::arp_request(PEER, peer, ours),
        (IpAddr::V6(ours), IpAddr::V6(peer)) => compose::neighbor_solicitation(PEER, peer, ours),
        _ => unreachable!("one family"),
    };
    batch.extend(pool.packet_of(&hello));
    machine.handle_packets(now, port, &mut batch, &mut pool);
    machine.poll_packets(now, port, &mut batch, BATCH, &mut pool);
    pool.free_all(&mut batch);
    let mut figures = Vec::new();
    let began = Clock::now();
    while began.elapsed() < budget {
        let start = Clock::now();
        for _ in 0..100 {
            for _ in 0..BATCH {
                batch.extend(pool.packet_of(frame));
            }
            machine.handle_packets(now, port, &mut batch, &mut pool);
            machine.poll_packets(now, port, &mut batch, BATCH, &mut pool);
            pool.free_all(&mut batch);
        }
        figures.push(start.elapsed().as_secs_f64() * 1e9 / (100.0 * BATCH as f64));
    }
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn report(family: &str, name: &str, frame: &[u8], ns: f64) {
    println!("{family:<6} {name:<14} {:>6} {ns:>8.1} {:>12.0}", frame.len(), 1e9 / ns);
}
