//! What it costs to read and to write the headers of one packet, in nanoseconds.
//!
//! `cargo run --release -p plumb-wire --example cost`. Warm, one packet again and again; left out:
//! caches, and the statistics that a claim would need.
#![expect(clippy::disallowed_methods, reason = "an example that times reads the clock itself")]
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use plumb_wire::checksum::PseudoHeader;
use plumb_wire::compose::{LinkTemplate, PacketTemplate};
use plumb_wire::ethernet::{self, EtherType, EthernetFrame, EthernetTags, MacAddr};
use plumb_wire::flow::FiveTuple;
use plumb_wire::ip::IpProtocol;
use plumb_wire::{ipv4, ipv6, udp};

const ROUNDS: u32 = 1_000_000;
const REPEATS: usize = 15;

fn main() {
    let link = LinkTemplate::new(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
    let v4 =
        PacketTemplate::new(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)).over(link);
    let source: IpAddr = Ipv6Addr::LOCALHOST.into();
    let v6 = PacketTemplate::new(source, source).over(link);
    let payload = [7; 18];
    let (frame_v4, frame_v6) = (v4.udp(1_000, 7, &payload), v6.udp(1_000, 7, &payload));
    println!("60-byte frames: Ethernet, IP, UDP");
    time("read IPv4, header checksum verified", || {
        read_v4(black_box(&frame_v4)).map(|datagram| datagram.destination_port())
    });
    time("read IPv4, both checksums verified", || {
        let datagram = read_v4(black_box(&frame_v4))?;
        let pseudo =
            PseudoHeader::v4([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), IpProtocol::UDP);
        datagram.verify_v4(pseudo).ok().map(|datagram| datagram.destination_port())
    });
    time("read IPv6, checksum verified", || {
        let frame = EthernetFrame::parse(black_box(&frame_v6)).ok()?;
        let packet = ipv6::Ipv6Packet::parse(frame.payload()).ok()?;
        let mut extensions = packet.extensions();
        if extensions.by_ref().next().is_some() {
            return None;
        }
        let datagram = udp::UdpDatagram::parse(extensions.payload()).ok()?;
        datagram.verify_v6(packet.pseudo(IpProtocol::UDP)).ok().map(|d| d.destination_port())
    });
    time("tell the flow, IPv4", || FiveTuple::of_frame(black_box(&frame_v4)).map(|f| f.words()));
    let mut out = [0; 60];
    time("write IPv4, both checksums", || {
        write_v4(black_box(&mut out), black_box(&payload));
        Some(out[40])
    });
    let mut mirrored = frame_v4.clone();
    time("mirror IPv4 in place", || {
        let bytes = black_box(&mut mirrored);
        ipv4::swap_addresses(&mut bytes[14..]);
        udp::swap_ports(&mut bytes[34..]);
        Some(bytes[30])
    });
}

#[inline]
fn read_v4(bytes: &[u8]) -> Option<udp::UdpDatagram<'_>> {
    let frame = EthernetFrame::parse(bytes).ok()?;
    if frame.ether_type() != EtherType::IPV4 {
        return None;
    }
    let packet = ipv4::Ipv4Packet::parse(frame.payload()).ok()?.verify().ok()?;
    udp::UdpDatagram::parse(packet.payload()).ok()
}

#[inline]
fn write_v4(out: &mut [u8; 60], payload: &[u8; 18]) {
    let (link, packet) = out.split_at_mut(ethernet::HEADER_LEN);
    let (source, destination) = (MacAddr([2; 6]), MacAddr([4; 6]));
    let ether_type = EtherType::IPV4;
    ethernet::EthernetHeader { destination, source, tags: EthernetTags::Untagged, ether_type }
        .emit(link);
    let header = ipv4::Ipv4Header::new(
        Ipv4Addr::new(192, 0, 2, 1),
        Ipv4Addr::new(192, 0, 2, 2),
        IpProtocol::UDP,
        26,
    );
    let (ip, transport) = packet.split_at_mut(ipv4::HEADER_LEN);
    header.emit(ip);
    let (head, body) = transport.split_at_mut(udp::HEADER_LEN);
    let sum = plumb_copy::copy_and_sum(payload, body);
    udp::UdpHeader::new(1_000, 7, payload.len()).with_checksum(header.pseudo(), sum).emit(head);
}

/// The fastest and the middle one of [`REPEATS`] means.
fn time<T>(what: &str, mut operation: impl FnMut() -> Option<T>) {
    let mut means: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..ROUNDS {
                assert!(black_box(operation()).is_some(), "{what} goes well");
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
        })
        .collect();
    means.sort_by(f64::total_cmp);
    println!("{what:38} {:6.1} ns  ({:.1} median)", means[0], means[REPEATS / 2]);
}
