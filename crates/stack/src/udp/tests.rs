//! What UDP sockets promise, each claim for both families where it differs.

use plumb_wire::ip::IpProtocol;
use plumb_wire::malformed::FormatError;
use plumb_wire::packet::{ChecksumState, PoolConfig, SegmentKind, SegmentationInfo};

use super::*;
use crate::ip::{FragmentKind, IpIngress};

fn pool() -> Pool {
    Pool::new(PoolConfig { count: 64, size: 2_048, large: 2 })
}

fn end(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Both families: ours, another of ours, a peer, all of ours.
fn families() -> [[SocketAddr; 4]; 2] {
    [
        [end("192.0.2.1:7"), end("192.0.2.2:7"), end("198.51.100.9:4000"), end("0.0.0.0:7")],
        [
            end("[2001:db8::1]:7"),
            end("[2001:db8::2]:7"),
            end("[2001:db8:9::9]:4000"),
            end("[::]:7"),
        ],
    ]
}

fn sent(from: SocketAddr, to: SocketAddr, payload: &[u8], pool: &mut Pool) -> (IpIngress, Packet) {
    let (mut packet, sum) = copied(payload, CopyPolicy::Fused, pool).unwrap();
    prepend_header(from, to, sum, &mut packet, pool);
    (arrival(from, to, &packet), packet)
}

fn arrival(from: SocketAddr, to: SocketAddr, packet: &Packet) -> IpIngress {
    IpIngress {
        port: PortId(0),
        source: from.ip(),
        destination: to.ip(),
        protocol: IpProtocol::UDP,
        protocol_at: 0,
        header_len: 0,
        at: 0,
        end: packet.len(),
        hop_limit: 64,
        ecn: packet.meta.ecn,
        group: false,
        fragment: FragmentKind::Whole,
    }
}

fn arrive(
    table: &mut UdpTable,
    from: SocketAddr,
    to: SocketAddr,
    pool: &mut Pool,
) -> Result<UdpId, UdpDrop> {
    let (arrival, packet) = sent(from, to, b"data", pool);
    let result = table.handle_datagram(&arrival, packet, pool);
    result.map(|delivery| delivery.socket).map_err(|(packet, refused)| {
        pool.free(packet);
        refused
    })
}

#[test]
fn most_specific_socket_gets_a_datagram() {
    for [ours, other, peer, all] in families() {
        let (mut pool, mut table) = (pool(), UdpTable::new(Seed(1)));
        assert_eq!(arrive(&mut table, peer, ours, &mut pool), Err(UdpDrop::NoSocket));
        let every = table.bind(all, UdpOptions::default()).unwrap();
        let bound = table.bind(ours, UdpOptions::default()).unwrap();
        assert_eq!(arrive(&mut table, peer, other, &mut pool), Ok(every));
        assert_eq!(arrive(&mut table, peer, ours, &mut pool), Ok(bound));
        // A connected socket hears its peer and nobody else; its place is free for another.
        table.connect(bound, ours.ip(), peer).unwrap();
        let foreign = SocketAddr::new(peer.ip(), peer.port() + 1);
        assert_eq!(arrive(&mut table, peer, ours, &mut pool), Ok(bound));
        assert_eq!(arrive(&mut table, foreign, ours, &mut pool), Ok(every));
        let second = table.bind(ours, UdpOptions::default()).unwrap();
        assert_eq!(arrive(&mut table, foreign, ours, &mut pool), Ok(second));
        for id in [every, bound, second] {
            table.close(id, &mut pool);
            assert!(table.receive(id, &pool).is_none());
        }
        assert_eq!(table.poll_readable(), None);
        assert_eq!(arrive(&mut table, peer, ours, &mut pool), Err(UdpDrop::NoSocket));
        assert_eq!(pool.available(), (64, 2));
    }
}

#[test]
fn socket_receives_only_its_family() {
    let (mut pool, mut table) = (pool(), UdpTable::new(Seed(1)));
    table.bind(end("[::]:7"), UdpOptions::default()).unwrap();
    let refused = arrive(&mut table, end("192.0.2.9:1"), end("192.0.2.1:7"), &mut pool);
    assert_eq!(refused, Err(UdpDrop::NoSocket));
}

#[test]
fn port_is_free_again_after_close() {
    for [ours, _, peer, all] in families() {
        let (mut pool, mut table) = (pool(), UdpTable::new(Seed(1)));
        for place in [ours, all] {
            let id = table.bind(place, UdpOptions::default()).unwrap();
            assert_eq!(table.bind(place, UdpOptions::default()), Err(BindError::InUse(place)));
            table.close(id, &mut pool);
            let again = table.bind(place, UdpOptions::default()).unwrap();
            assert_ne!(again, id);
            table.close(id, &mut pool);
            assert_eq!(table.local(again), Some(place));
            assert_eq!(table.connect(id, ours.ip(), peer), Err(BindError::Closed));
        }
    }
}

#[test]
fn connect_needs_one_family() {
    let mut table = UdpTable::new(Seed(1));
    let id = table.bind(end("0.0.0.0:7"), UdpOptions::default()).unwrap();
    let local = end("192.0.2.1:7").ip();
    for remote in ["0.0.0.0:9", "192.0.2.9:0", "[2001:db8::9]:9"] {
        let refused = table.connect(id, local, end(remote));
        assert!(matches!(refused, Err(BindError::Unconnectable { .. })), "{remote}");
    }
    assert_eq!(table.local(id), Some(end("0.0.0.0:7")));
}

#[test]
fn full_queue_drops_the_newest() {
    let [ours, _, peer, _] = families()[0];
    for options in [
        UdpOptions { receive_packets: 2, ..UdpOptions::default() },
        UdpOptions { receive_bytes: 2 * 2_048 + 2_047, ..UdpOptions::default() },
    ] {
        let (mut pool, mut table) = (pool(), UdpTable::new(Seed(1)));
        let id = table.bind(ours, options).unwrap();
        for _ in 0..2 {
            assert_eq!(arrive(&mut table, peer, ours, &mut pool), Ok(id));
        }
        assert_eq!(arrive(&mut table, peer, ours, &mut pool), Err(UdpDrop::QueueFull));
        pool.free(table.receive(id, &pool).unwrap().packet);
        assert_eq!(arrive(&mut table, peer, ours, &mut pool), Ok(id));
        table.close(id, &mut pool);
        assert_eq!(pool.available(), (64, 2));
    }
}

#[test]
fn malformed_datagram_is_dropped_with_its_error() {
    for [ours, _, peer, _] in families() {
        let (mut pool, mut table) = (pool(), UdpTable::new(Seed(1)));
        table.bind(ours, UdpOptions::default()).unwrap();
        let mut refused = |change: &dyn Fn(&mut Vec<u8>)| {
            let (arrival, packet) = sent(peer, ours, b"data", &mut pool);
            let mut bytes = pool.bytes(&packet).to_vec();
            pool.free(packet);
            change(&mut bytes);
            let packet = pool.packet_of(&bytes).unwrap();
            let arrival = IpIngress { end: bytes.len(), ..arrival };
            let result = table.handle_datagram(&arrival, packet, &mut pool);
            result.map_err(|(packet, refused)| {
                assert_eq!(pool.bytes(&packet), bytes, "given back as it came");
                pool.free(packet);
                refused
            })
        };
        assert!(refused(&|_| {}).is_ok());
        // Bytes of the IP payload beyond the datagram are cut off.
        assert!(refused(&|bytes| bytes.extend([9; 9])).is_ok());
        let malformed = |malformed| Err(UdpDrop::Malformed(malformed));
        assert_eq!(refused(&|bytes| bytes.truncate(7)), malformed(FormatError::Truncated));
        assert_eq!(refused(&|bytes| bytes.truncate(11)), malformed(FormatError::Truncated));
        assert_eq!(refused(&|bytes| bytes[5] = 7), malformed(FormatError::Length));
        assert_eq!(refused(&|bytes| bytes[9] ^= 1), malformed(FormatError::Checksum));
        assert_eq!(refused(&|bytes| bytes[3] ^= 1), malformed(FormatError::Checksum));
        assert_eq!(refused(&|bytes| bytes[2..4].fill(0)), Err(UdpDrop::PortZero));
        let absent = refused(&|bytes| bytes[6..8].fill(0));
        if ours.is_ipv6() {
            assert_eq!(absent, malformed(FormatError::ChecksumAbsent));
        } else {
            assert!(absent.is_ok());
        }
    }
}

#[test]
fn a_checksum_that_the_device_vouches_for_is_not_looked_at() {
    let [ours, _, peer, _] = families()[1];
    let (mut pool, mut table) = (pool(), UdpTable::new(Seed(1)));
    table.bind(ours, UdpOptions::default()).unwrap();
    for (state, accepted) in [
        (ChecksumState::Verified, true),
        (ChecksumState::Partial { start: 0, offset: 6 }, true),
        (ChecksumState::Plain, false),
    ] {
        let (arrival, mut packet) = sent(peer, ours, b"data", &mut pool);
        pool.bytes_mut(&mut packet)[6] ^= 0x55;
        packet.meta.checksum = state;
        let result = table.handle_datagram(&arrival, packet, &mut pool);
        assert_eq!(result.is_ok(), accepted, "{state:?}");
    }
}

#[test]
fn every_copy_policy_sends_valid_datagrams() {
    for [ours, _, peer, _] in families() {
        let (mut pool, mut table) = (pool(), UdpTable::new(Seed(1)));
        let id = table.bind(ours, UdpOptions::default()).unwrap();
        for len in [0, 1, 17, 1_472] {
            let payload: Vec<u8> = (0..len).map(|i: u32| i.to_le_bytes()[0]).collect();
            for policy in [CopyPolicy::Fused, CopyPolicy::Separate, CopyPolicy::NoChecksum] {
                let (mut packet, sum) = copied(&payload, policy, &mut pool).unwrap();
                let sum = sum.on_path(ours.is_ipv4(), false);
                prepend_header(peer, ours, sum, &mut packet, &mut pool);
                let none = pool.bytes(&packet)[6..8] == [0, 0];
                assert_eq!(none, policy == CopyPolicy::NoChecksum && ours.is_ipv4());
                let arrival = arrival(peer, ours, &packet);
                let delivery = table.handle_datagram(&arrival, packet, &mut pool).unwrap();
                assert_eq!((delivery.socket, delivery.delivered), (id, 1));
                assert_eq!((table.poll_readable(), table.poll_readable()), (Some(id), None));
                let datagram = table.receive(id, &pool).unwrap();
                assert_eq!(pool.bytes(&datagram.packet), payload);
                assert_eq!((datagram.remote, datagram.local), (peer, ours));
                assert!(table.receive(id, &pool).is_none());
                // And back in place, in the room of the headers that it came with.
                let mut packet = datagram.packet;
                prepend_header(ours, peer, PayloadSum::Unknown, &mut packet, &mut pool);
                pool.free(packet);
            }
        }
        assert_eq!(pool.available(), (64, 2));
    }
}

#[test]
fn super_segment_is_delivered_split_or_whole() {
    let [ours, _, peer, _] = families()[0];
    let payload: Vec<u8> = (0..2_500_u32).map(|i| i.to_le_bytes()[0]).collect();
    for super_segments in [false, true] {
        let (mut pool, mut table) = (pool(), UdpTable::new(Seed(1)));
        let options = UdpOptions { super_segments, ..UdpOptions::default() };
        let id = table.bind(ours, options).unwrap();
        let (arrival, mut packet) = sent(peer, ours, &payload, &mut pool);
        packet.meta.segments =
            Some(SegmentationInfo { kind: SegmentKind::Udp4, size: 1_000, header_len: 42 });
        let delivery = table.handle_datagram(&arrival, packet, &mut pool).unwrap();
        let delivered = if super_segments { 1 } else { 3 };
        assert_eq!((delivery.socket, delivery.delivered), (id, delivered));
        let mut arrived = Vec::new();
        while let Some(datagram) = table.receive(id, &pool) {
            assert_eq!(datagram.packet.meta.segments.is_some(), super_segments);
            arrived.push(pool.bytes(&datagram.packet).to_vec());
            pool.free(datagram.packet);
        }
        let expected: Vec<_> = if super_segments {
            vec![payload.clone()]
        } else {
            payload.chunks(1_000).map(<[u8]>::to_vec).collect()
        };
        assert_eq!(arrived, expected);
        assert_eq!(pool.available(), (64, 2));
    }
}
