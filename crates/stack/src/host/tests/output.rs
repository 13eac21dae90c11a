//! Packets on their way out: both ways send the same bytes, and devices get what they take.

use plumb_wire::ip::Ecn;
use plumb_wire::ipv4;
use plumb_wire::machine::DeviceCapabilities;
use plumb_wire::packet::{ChecksumState, SegmentKind, SegmentationInfo};

use super::*;
use crate::host::HostSendError;
use crate::routing::PathError;
use crate::udp::PayloadSum;

fn bench(capabilities: DeviceCapabilities) -> HostFixture {
    let mut bench = HostFixture::of(HostConfig::default(), capabilities);
    for family in Family::both() {
        bench.introduce(family.peer, PEER_MAC);
    }
    bench
}

fn ends(family: Family) -> (SocketAddr, SocketAddr) {
    (SocketAddr::new(family.ours, 1_000), SocketAddr::new(family.peer, 9))
}

fn payload(bench: &mut HostFixture, len: usize, ecn: Ecn) -> Packet {
    let bytes: Vec<u8> = (0..=250).cycle().take(len).collect();
    let mut packet = bench.pool.packet_of(&bytes).unwrap();
    packet.meta.ecn = ecn;
    packet
}

fn send(bench: &mut HostFixture, family: Family, packet: Packet) {
    let packet = (packet, PayloadSum::Unknown);
    bench.host.send_slow_path(ends(family), packet, &mut bench.pool).unwrap();
}

/// What the device is given: bytes, and the state of the checksum.
fn taken(bench: &mut HostFixture) -> Vec<(Vec<u8>, ChecksumState)> {
    let mut batch = Vec::new();
    bench.host.poll_packets(bench.now, PORT, &mut batch, usize::MAX, &mut bench.pool);
    let seen = |packet: &Packet| (bench.pool.bytes(packet).to_vec(), packet.meta.checksum);
    let frames = batch.iter().map(seen).collect();
    bench.pool.free_all(&mut batch);
    frames
}

#[test]
fn fast_path_sends_the_bytes_of_the_slow_path() {
    for checksum_tx in [false, true] {
        let mut bench = bench(DeviceCapabilities { checksum_tx, ..ETHERNET });
        for family in Family::both() {
            let ends = ends(family);
            for (len, ecn) in [
                (0, Ecn::NotCapable),
                (1, Ecn::Capable0),
                (18, Ecn::Capable1),
                (1_400, Ecn::Congestion),
            ] {
                for sum in [PayloadSum::Unknown, PayloadSum::Unwanted] {
                    let packet = (payload(&mut bench, len, ecn), sum);
                    let general = bench.host.send_slow_path(ends, packet, &mut bench.pool);
                    assert_eq!(general, Ok(()));
                    let packet = (payload(&mut bench, len, ecn), sum);
                    let short = bench.host.send_fast_path(ends, packet, &mut bench.pool);
                    assert!(short.is_ok(), "the path is known by now");
                    let [general, short] = taken(&mut bench).try_into().unwrap();
                    assert_eq!(general, short, "{family:?} {len} {sum:?} {checksum_tx}");
                }
            }
        }
        bench.finish();
    }
}

#[test]
fn partial_checksum_only_for_devices_that_offload_it() {
    for family in Family::both() {
        let mut whole = Vec::new();
        for checksum_tx in [false, true] {
            let mut bench = bench(DeviceCapabilities { checksum_tx, ..ETHERNET });
            let packet = payload(&mut bench, 33, Ecn::NotCapable);
            send(&mut bench, family, packet);
            let (mut bytes, state) = taken(&mut bench).remove(0);
            if let ChecksumState::Partial { start, offset } = state {
                assert!(checksum_tx);
                let (start, offset) = (usize::from(start), usize::from(offset));
                assert!(plumb_wire::checksum::complete(&mut bytes, start, offset));
            } else {
                assert!(!checksum_tx);
            }
            whole.push(bytes);
            bench.finish();
        }
        assert_eq!(whole[0], whole[1], "completed, it is the same packet");
    }
}

#[test]
fn fragments_carry_complete_checksums_despite_offload() {
    for family in Family::both() {
        let mut sender = bench(DeviceCapabilities { checksum_tx: true, ..ETHERNET });
        let (local, remote) = ends(family);
        let packet = payload(&mut sender, 4_000, Ecn::NotCapable);
        send(&mut sender, family, packet);
        let fragments = taken(&mut sender);
        assert_eq!(fragments.len(), 3);
        assert!(fragments.iter().all(|(_, state)| *state == ChecksumState::Plain));
        // The peer gets them: seen from there the datagram is whole and its checksum right.
        let mut receiver = HostFixture::new();
        let mut host = IpHost::new(HostConfig::default(), Seed(2));
        let interface = InterfaceConfig::ethernet(PEER_MAC, 1_500);
        let len = if family.ours.is_ipv4() { 24 } else { 64 };
        host.add_interface(&interface.with_address(family.peer, len)).unwrap();
        receiver.host = host;
        let id = receiver.host.udp_bind(remote, UdpOptions::default()).unwrap();
        for (bytes, _) in fragments {
            receiver.give(&bytes);
        }
        let datagram = receiver.host.udp_receive(id, &receiver.pool).unwrap();
        assert_eq!((datagram.packet.len(), datagram.remote), (4_000, local));
        receiver.pool.free(datagram.packet);
        sender.finish();
    }
}

#[test]
fn super_segment_is_segmented_unless_offloaded() {
    for family in Family::both() {
        let kind = if family.ours.is_ipv4() { SegmentKind::Udp4 } else { SegmentKind::Udp6 };
        for segments_udp in [true, false] {
            let mut bench =
                bench(DeviceCapabilities { segments_udp, checksum_tx: segments_udp, ..ETHERNET });
            let mut packet = payload(&mut bench, 5_000, Ecn::NotCapable);
            packet.meta.segments = Some(SegmentationInfo { kind, size: 1_200, header_len: 0 });
            send(&mut bench, family, packet);
            let frames = taken(&mut bench);
            if segments_udp {
                assert_eq!(frames.len(), 1);
            } else {
                assert_eq!(frames.len(), 5);
                let family_header = if family.ours.is_ipv4() { 42 } else { 62 };
                let expected: Vec<u8> = (0..=250).cycle().take(5_000).collect();
                let payloads: Vec<u8> =
                    frames.iter().flat_map(|(bytes, _)| bytes[family_header..].to_vec()).collect();
                assert_eq!(payloads, expected);
            }
            bench.finish();
        }
    }
}

#[test]
fn only_fragments_have_identifications_and_clear_df() {
    let (mut bench, _) = HostFixture::acquainted();
    let [family, _] = Family::both();
    let mut identifications = Vec::new();
    for len in [1_000, 2_000, 2_000] {
        let packet = payload(&mut bench, len, Ecn::NotCapable);
        send(&mut bench, family, packet);
        let frames = bench.take();
        for frame in &frames {
            let packet = ipv4::Ipv4Packet::parse(&frame[14..]).unwrap();
            assert_eq!(packet.fragment_field().dont_fragment(), len == 1_000);
            identifications.push(packet.identification());
        }
    }
    let [atomic, a, b, c, d] = identifications.try_into().unwrap();
    assert_eq!((atomic, a, c), (0, b, d));
    assert_ne!(a, c);
    bench.finish();
}

#[test]
fn failed_sends_say_why_and_leak_nothing() {
    let (mut bench, _) = HostFixture::acquainted();
    let send = |bench: &mut HostFixture, id, to| {
        bench.host.udp_send(bench.now, id, b"ten bytes.", to, CopyPolicy::Fused, &mut bench.pool)
    };
    for family in Family::both() {
        let local = SocketAddr::new(family.ours, 1_000);
        let id = bench.host.udp_bind(local, UdpOptions::default()).unwrap();
        let (nowhere, other): (IpAddr, IpAddr) = if family.ours.is_ipv4() {
            ([127, 0, 0, 1].into(), Family::both()[1].peer)
        } else {
            ("::1".parse().unwrap(), Family::both()[0].peer)
        };
        for (to, error) in [
            (family.foreign, HostSendError::Path(PathError::NoRoute(family.foreign))),
            (family.ours, HostSendError::Path(PathError::OwnAddress(family.ours))),
            (nowhere, HostSendError::Path(PathError::InvalidDestination(nowhere))),
            (other, HostSendError::Unreachable { local, remote: SocketAddr::new(other, 9) }),
        ] {
            let sent = send(&mut bench, id, Some(SocketAddr::new(to, 9)));
            assert_eq!(sent, Err(error));
        }
        assert_eq!(send(&mut bench, id, None), Err(HostSendError::NotConnected));
        bench.host.udp_close(id, &mut bench.pool);
        assert_eq!(send(&mut bench, id, None), Err(HostSendError::Closed));
    }
    bench.finish();
}

#[test]
fn off_link_packets_go_to_the_router() {
    for family in Family::both() {
        let (mut bench, _) = HostFixture::acquainted();
        let everything = IpPrefix::default_route(family.ours.is_ipv6());
        bench.host.add_route(Route { prefix: everything, port: PORT, gateway: Some(family.peer) });
        let now = bench.now;
        bench.host.ping(now, family.foreign, (1, 1), b"", &mut bench.pool).unwrap();
        let [frame] = bench.take().try_into().unwrap();
        assert_eq!(EthernetFrame::parse(&frame).unwrap().destination(), PEER_MAC);
        bench.host.add_route(Route {
            prefix: everything,
            port: PORT,
            gateway: Some(family.absent),
        });
        bench.host.ping(now, family.foreign, (1, 2), b"", &mut bench.pool).unwrap();
        assert_ne!(bench.take(), [frame], "a cached path does not outlive its route");
        bench.finish();
    }
}

#[test]
fn packet_without_headroom_is_moved() {
    let (mut bench, _) = HostFixture::acquainted();
    for family in Family::both() {
        for headroom in [0, 41, 61, 62, 69, 128] {
            let mut packet = payload(&mut bench, 10, Ecn::NotCapable);
            bench.pool.prepend(&mut packet, 128 - headroom).fill(7);
            let len = packet.len();
            send(&mut bench, family, packet);
            let [frame] = bench.take().try_into().unwrap();
            let headers = if family.ours.is_ipv4() { 42 } else { 62 };
            assert_eq!(frame.len(), headers + len);
        }
    }
    bench.finish();
}
