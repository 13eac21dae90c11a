//! Super-segments at the entrance.

use plumb_wire::compose::{LinkTemplate, PacketTemplate};
use plumb_wire::ethernet::MacAddr;
use plumb_wire::packet::{ChecksumState, SegmentKind, SegmentationInfo};
use plumb_wire::tcp;

use super::*;

/// A TCP super-segment of `count` segments of 1,000 bytes, its checksum partial.
pub(super) fn super_segment(rig: &mut Rig, count: usize) -> Packet {
    let link = LinkTemplate::new(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
    let path = PacketTemplate::new(
        std::net::Ipv4Addr::new(10, 0, 0, 1),
        std::net::Ipv4Addr::new(10, 0, 0, 2),
    );
    let path = PacketTemplate { link: Some(link), ..path };
    let header =
        tcp::TcpHeader { source_port: 1, destination_port: 2, ..tcp::TcpHeader::default() };
    let bytes = path.tcp(header, &vec![7; count * 1_000]);
    let mut packet = rig.pool.packet_of(&bytes).unwrap();
    packet.meta.checksum = ChecksumState::Partial { start: 34, offset: 16 };
    packet.meta.segments =
        Some(SegmentationInfo { kind: SegmentKind::Tcp4, size: 1_000, header_len: 54 });
    packet
}

fn lengths(text: &str) -> (Vec<usize>, u64) {
    let mut rig = Rig::new(text);
    let packet = super_segment(&mut rig, 30);
    let start = rig.start;
    rig.link.handle_packets(start, NEAR, &mut vec![packet], &mut rig.pool);
    let received = rig.receive(start + Span::from_secs(10), FAR);
    let report = rig.link.report(start + Span::from_secs(10));
    assert_eq!(report.violations, []);
    assert_eq!(report.directions[0].entered.frames, 30);
    let bytes = report.directions[0].entered.bytes;
    (received.iter().map(|(_, bytes)| bytes.len()).collect(), bytes)
}

#[test]
fn a_super_segment_is_carried_whole_where_nobody_could_tell() {
    for text in ["plain", "delay=5ms", "delay=5ms,overhead=24", "rate=40gbit,delay=5ms"] {
        let (lengths, bytes) = lengths(text);
        assert_eq!(lengths, [30_054], "{text}");
        let overhead = if text.contains("overhead") { 24 } else { 0 };
        assert_eq!(bytes, 30 * (1_054 + overhead), "it costs what its frames would");
    }
}

#[test]
fn a_super_segment_is_cut_where_its_frames_would_fare_differently() {
    for text in [
        "rate=1gbit,limit=1MB",
        "rate=40gbit,delay=1us,limit=10packets",
        "delay=5ms,jitter=1ms",
        "loss=0.0000001%",
        "rate=40gbit,delay=5ms,queue=fq-codel",
        "rate=40gbit,burst=1MB,delay=5ms",
        "police=40gbit/1MB",
        "mtu=1000",
    ] {
        let (lengths, bytes) = lengths(text);
        assert_eq!(bytes, 30 * 1_054, "{text}");
        assert!(lengths.iter().all(|len| *len == 1_054), "{text}: {lengths:?}");
    }
}

#[test]
fn the_frames_of_a_super_segment_are_spaced_by_the_rate() {
    let mut rig = Rig::new("rate=8432kbit,delay=1ms,limit=1MB");
    let packet = super_segment(&mut rig, 4);
    rig.link.handle_packets(rig.start, NEAR, &mut vec![packet], &mut rig.pool);
    assert_eq!(rig.spans(Span::from_secs(1), FAR), [2, 3, 4, 5].map(Span::from_ms));
}

#[test]
fn a_super_segment_without_memory_for_its_frames_is_a_counted_loss() {
    let mut rig = Rig::new("rate=8mbit");
    rig.pool = Pool::new(PoolConfig { count: 8, size: 2_048, large: 4 });
    let packet = super_segment(&mut rig, 30);
    rig.link.handle_packets(rig.start, NEAR, &mut vec![packet], &mut rig.pool);
    let report = rig.link.report(rig.start);
    assert_eq!(report.directions[0].discards.of(crate::frame::DiscardReason::NoMemory).0, 30);
    assert_eq!(report.violations, []);
    assert_eq!(rig.pool.available(), (8, 4));
}
