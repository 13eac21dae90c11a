//! IP on its way in: who may send, what is refused, and under which name; and floods.

use std::net::{Ipv4Addr, Ipv6Addr};

use plumb_wire::ethernet::{EtherType, EthernetTag, EthernetTags};
use plumb_wire::icmp::{self, IcmpMessage, IcmpPacket};
use plumb_wire::ip::{Fragment, IpProtocol};
use plumb_wire::option::OptionArea;
use plumb_wire::packet::{SegmentKind, SegmentationInfo};
use rand::RngExt;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn link() -> LinkTemplate {
    LinkTemplate::new(PEER_MAC, OUR_MAC)
}

// MUST-63.
#[test]
fn martian_sources_are_dropped() {
    let (mut bench, _) = HostFixture::acquainted();
    for family in Family::both() {
        let martians: &[&str] = if family.ours.is_ipv4() {
            &[
                "0.0.0.0",
                "0.1.2.3",
                "127.0.0.1",
                "224.0.0.1",
                "240.0.0.1",
                "255.255.255.255",
                "192.0.2.255",
                "192.0.2.1",
            ]
        } else {
            &["::", "::1", "ff02::1", "ff05::2", "::ffff:192.0.2.2", "2001:db8::1"]
        };
        for source in martians {
            let frame = PacketTemplate::new(ip(source), family.ours).over(link()).udp(9, 7, b"x");
            bench.drops(&frame, CounterId::RxMartianSource);
        }
    }
    bench.finish();
}

#[test]
fn foreign_destinations_are_dropped() {
    let (mut bench, _) = HostFixture::acquainted();
    for family in Family::both() {
        let (nowhere, multicast) = if family.ours.is_ipv4() {
            ("127.0.0.1", "239.1.2.3")
        } else {
            ("::1", "ff02::1:ff00:77")
        };
        for (destination, reason) in [
            (ip(nowhere), CounterId::RxMartianDestination),
            (family.absent, CounterId::RxNotForUs),
            (family.foreign, CounterId::RxNotForUs),
            (ip(multicast), CounterId::RxNotForUs),
        ] {
            let frame = PacketTemplate::new(family.peer, destination).over(link()).udp(9, 7, b"x");
            bench.drops(&frame, reason);
        }
        let everybody = LinkTemplate::new(PEER_MAC, MacAddr::BROADCAST);
        let frame = PacketTemplate::new(family.peer, family.ours).over(everybody).udp(9, 7, b"x");
        bench.drops(&frame, CounterId::RxLinkBroadcast);
    }
    bench.finish();
}

#[test]
fn foreign_and_tagged_frames_are_dropped() {
    let (mut bench, _) = HostFixture::acquainted();
    for family in Family::both() {
        let frame = |link| PacketTemplate::new(family.peer, family.ours).over(link).udp(9, 7, b"x");
        let other = LinkTemplate::new(PEER_MAC, MacAddr([2, 0, 0, 0, 0, 9]));
        bench.drops(&frame(other), CounterId::RxOtherMac);
        bench.drops(&frame(LinkTemplate::new(MacAddr::BROADCAST, OUR_MAC)), CounterId::RxSourceMac);
        let tagged =
            |n| LinkTemplate { tags: EthernetTags::Single(EthernetTag::vlan(n)), ..link() };
        bench.drops(&frame(tagged(5)), CounterId::RxVlan);
        bench.drops(&link().frame(EtherType(0x1234), b"?"), CounterId::RxEtherType);
        assert!(bench.exchange(&frame(tagged(0))).is_empty());
    }
    assert_eq!(bench.count(CounterId::UdpDelivered), 2, "VLAN 0 is a priority only");
    bench.finish();
}

#[test]
fn malformed_packets_are_counted_by_layer_and_fault() {
    let (mut bench, _) = HostFixture::acquainted();
    let [v4, v6] = Family::both().map(|family| family.inward().udp(9, 7, b"payload"));
    let change = |frame: &[u8], at: usize, to: u8| {
        let mut frame = frame.to_vec();
        frame[at] = to;
        frame
    };
    for (frame, layer, malformed) in [
        (v4[..10].to_vec(), ProtocolLayer::Ethernet, FormatError::Truncated),
        (v4[..30].to_vec(), ProtocolLayer::Ipv4, FormatError::Truncated),
        (v4[..v4.len() - 1].to_vec(), ProtocolLayer::Ipv4, FormatError::Truncated),
        (change(&v4, 14, 0x65), ProtocolLayer::Ipv4, FormatError::Version),
        (change(&v4, 14, 0x44), ProtocolLayer::Ipv4, FormatError::HeaderLength),
        (change(&v4, 24, 0), ProtocolLayer::Ipv4, FormatError::Checksum),
        (change(&v6, 14, 0x45), ProtocolLayer::Ipv6, FormatError::Version),
        (v6[..v6.len() - 1].to_vec(), ProtocolLayer::Ipv6, FormatError::Truncated),
        (change(&v4, v4.len() - 1, 0), ProtocolLayer::Udp, FormatError::Checksum),
        (change(&v6, v6.len() - 1, 0), ProtocolLayer::Udp, FormatError::Checksum),
    ] {
        let before = bench.malformed(layer, malformed);
        assert!(bench.exchange(&frame).is_empty());
        let counted = bench.malformed(layer, malformed);
        assert_eq!(counted, before + 1, "{layer:?} {malformed:?}");
    }
    assert_eq!(bench.count(CounterId::UdpDelivered), 0);
    bench.finish();
}

#[test]
fn link_padding_is_cut_off() {
    for family in Family::both() {
        let (mut bench, _) = HostFixture::acquainted();
        let mut frame = family.inward().echo_request(1, 1, b"");
        frame.extend([0xee; 18]);
        let answer = family.inward().reversed().echo_reply(1, 1, b"");
        assert_eq!(bench.exchange(&frame), [answer]);
        bench.finish();
    }
}

// MUST-50.
#[test]
fn ipv4_options_pass_are_dropped_or_are_reported() {
    let [family, _] = Family::both();
    let with = |options: &[u8]| {
        let mut path = family.inward();
        path.options = OptionArea::new(options).unwrap();
        path.udp(9, 7, b"x")
    };
    let (mut bench, _) = HostFixture::acquainted();
    let record_route = [7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0];
    assert!(bench.exchange(&with(&record_route)).is_empty());
    assert!(bench.exchange(&with(&[0x9e, 4, 1, 2])).is_empty(), "unknown options are skipped");
    assert_eq!(bench.count(CounterId::UdpDelivered), 2);
    for kind in [131, 137] {
        bench.drops(&with(&[kind, 7, 4, 10, 0, 0, 1]), CounterId::RxSourceRoute);
    }
    let problem = IcmpMessage::ParameterProblem { code: 0, pointer: 21 };
    assert_eq!(answer(&mut bench, family, &with(&[1, 7, 200, 4])), Some(problem));
    assert_eq!(bench.count(CounterId::RxIpOption), 1);
    bench.finish();
}

/// The ICMP message in the only answer, to the peer, to a frame.
fn answer(bench: &mut HostFixture, family: Family, frame: &[u8]) -> Option<IcmpMessage> {
    let answers = bench.exchange(frame);
    let [answer] = &answers[..] else {
        assert!(answers.is_empty());
        return None;
    };
    let at = if family.ours.is_ipv4() { 34 } else { 54 };
    let (_, pseudo) = icmp::protocol_between(family.ours, family.peer);
    Some(IcmpPacket::parse(&answer[at..], pseudo).unwrap().verify().unwrap().message())
}

#[test]
fn unknown_ipv6_options_follow_their_high_bits() {
    let [_, family] = Family::both();
    let (mut bench, _) = HostFixture::acquainted();
    let group: Ipv6Addr = "ff02::1".parse().unwrap();
    let to_group = PacketTemplate::new(family.peer, group)
        .over(LinkTemplate::new(PEER_MAC, MacAddr::multicast_v6(group)));
    let report = |at| Some(IcmpMessage::ParameterProblem { code: 2, pointer: at });
    for (kind, unicast, multicast) in [
        (0x1e, None, None),
        (0x5e, None, None),
        (0x9e, report(42), report(42)),
        (0xde, report(42), None),
    ] {
        let bytes = [0, kind, 2, 1, 2, 1, 0];
        for (path, expected) in [(family.inward(), unicast), (to_group, multicast)] {
            for extension in [IpProtocol::HOP_BY_HOP, IpProtocol::DESTINATION] {
                let datagram = &family.inward().udp(9, 7, b"x")[54..];
                let frame = path.extended(&[(extension, &bytes)], IpProtocol::UDP, datagram);
                assert_eq!(answer(&mut bench, family, &frame), expected, "{kind:#x} {path:?}");
            }
        }
    }
    assert_eq!(bench.count(CounterId::RxUnknownOption), 12);
    bench.finish();
}

#[test]
fn routing_and_unknown_headers_are_reported() {
    let [_, family] = Family::both();
    let (mut bench, _) = HostFixture::acquainted();
    let problem = |code, pointer| Some(IcmpMessage::ParameterProblem { code, pointer });
    let datagram = &family.inward().udp(9, 7, b"x")[54..];
    let (sctp, udp, unknown) = (IpProtocol(132), IpProtocol::UDP, IpProtocol(200));
    let begun: (_, &[u8]) = (IpProtocol::ROUTING, &[0, 0, 1, 0, 0, 0, 0]);
    let ended: (_, &[u8]) = (IpProtocol::ROUTING, &[0, 99, 0, 0, 0, 0, 0]);
    let hop_by_hop: (_, &[u8]) = (IpProtocol::HOP_BY_HOP, &[0, 1, 4, 0, 0, 0, 0]);
    let destination: (_, &[u8]) = (IpProtocol::DESTINATION, &[0, 1, 4, 0, 0, 0, 0]);
    for (extensions, protocol, expected, delivered) in [
        (&[begun][..], udp, problem(0, 42), 0),
        // A route at its end is passed over.
        (&[ended], udp, None, 1),
        (&[], unknown, problem(1, 6), 0),
        (&[ended], unknown, problem(1, 40), 0),
        (&[], sctp, problem(1, 6), 0),
        (&[], IpProtocol::NO_NEXT, None, 0),
        // Hop-by-hop options come first or not at all.
        (&[ended, hop_by_hop], udp, problem(1, 40), 0),
        (&[destination; 9], udp, None, 0),
    ] {
        let before = bench.count(CounterId::UdpDelivered);
        let frame = family.inward().extended(extensions, protocol, datagram);
        assert_eq!(answer(&mut bench, family, &frame), expected, "{extensions:?} {protocol:?}");
        assert_eq!(bench.count(CounterId::UdpDelivered), before + delivered);
    }
    assert_eq!(bench.malformed(ProtocolLayer::Ipv6, FormatError::Extensions), 1);
    bench.finish();
}

#[test]
fn reassembled_datagram_is_delivered_if_its_checksum_holds() {
    for family in Family::both() {
        let (mut bench, _) = HostFixture::acquainted();
        let payload = vec![0xab; 3_000];
        let whole = family.inward().udp(9, 7, &payload);
        let header = if family.ours.is_ipv4() { 34 } else { 54 };
        let mut datagram = whole[header..].to_vec();
        for (identification, expected) in [(1, 1), (2, 1)] {
            let mut fragments =
                family.inward().fragments(identification, IpProtocol::UDP, &datagram, 1_400);
            fragments.reverse();
            for fragment in fragments {
                assert!(bench.exchange(&fragment).is_empty());
            }
            assert_eq!(bench.count(CounterId::UdpDelivered), expected);
            *datagram.last_mut().unwrap() ^= 1;
        }
        assert_eq!(bench.malformed(ProtocolLayer::Udp, FormatError::Checksum), 1);
        assert_eq!(bench.count(CounterId::Reassembled), 2);
        assert_eq!(bench.host.deadline(), None);
        bench.finish();
    }
}

#[test]
fn reassembly_timeout_is_reported_with_the_first_fragment() {
    for family in Family::both() {
        for first in [true, false] {
            let (mut bench, _) = HostFixture::acquainted();
            let offset = if first { 0 } else { 1_400 };
            let fragment = Fragment { identification: 5, offset, more: true };
            let frame = family.inward().fragment(fragment, IpProtocol::UDP, &[7; 1_400]);
            assert!(bench.exchange(&frame).is_empty());
            assert!(bench.host.deadline().is_some());
            bench.pass(Span::from_secs(80));
            assert_eq!(!bench.take().is_empty(), first, "an error, then probes of its receiver");
            assert_eq!(bench.count(CounterId::ReassemblyTimeout), 1);
            assert_eq!(bench.count(CounterId::IcmpErrorSent), u64::from(first));
            assert_eq!(bench.host.deadline(), None);
            bench.finish();
        }
    }
}

#[test]
fn atomic_fragment_is_a_whole_datagram() {
    let [_, family] = Family::both();
    let (mut bench, _) = HostFixture::acquainted();
    let later = Fragment { identification: 5, offset: 8, more: true };
    bench.exchange(&family.inward().fragment(later, IpProtocol::UDP, &[7; 8]));
    let datagram = &family.inward().udp(9, 7, b"x")[54..];
    let atomic = Fragment { identification: 5, offset: 0, more: false };
    bench.exchange(&family.inward().fragment(atomic, IpProtocol::UDP, datagram));
    assert_eq!(bench.count(CounterId::UdpDelivered), 1);
}

#[test]
fn spoofed_pings_are_bounded() {
    for family in Family::both() {
        let (mut bench, _) = HostFixture::acquainted();
        // The peer is in use: it was sent to.
        assert_eq!(bench.exchange(&family.inward().echo_request(1, 1, b"")).len(), 1);
        let before = bench.pool.available().0;
        for n in 0_u32..5_000 {
            let source = match family.ours {
                IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(0xc000_0203 + n % 250)),
                IpAddr::V6(base) => {
                    IpAddr::V6(Ipv6Addr::from_bits(base.to_bits() + 0x1_0000 + u128::from(n)))
                }
            };
            let path = PacketTemplate::new(source, family.ours).over(link());
            bench.give(&path.echo_request(9, 9, &[0; 64]));
            bench.take();
            let (entries, incomplete) = bench.host.neighbors.counts();
            assert!(entries <= 64 + 4 && incomplete <= 64 && bench.host.neighbors.queued() <= 256);
        }
        assert!(before - bench.pool.available().0 <= 256);
        let reply = family.inward().reversed().echo_reply(2, 2, b"");
        let answers = bench.exchange(&family.inward().echo_request(2, 2, b""));
        assert_eq!(answers, [reply], "the peer is still known");
        bench.finish();
    }
}

#[test]
fn flood_of_requests_evicts_no_pending_resolution() {
    for family in Family::both() {
        let neighbors = NeighborLimits { entries: 16, ..NeighborLimits::default() };
        let mut bench = HostFixture::with(HostConfig { neighbors, ..HostConfig::default() });
        let unknown_host = |n: u8| match family.ours {
            IpAddr::V4(_) => IpAddr::from([192, 0, 2, 20 + n]),
            IpAddr::V6(base) => Ipv6Addr::from_bits(base.to_bits() + 0x100 + u128::from(n)).into(),
        };
        for n in 0..100 {
            bench.introduce(unknown_host(n), PEER_MAC);
        }
        let id = bench.bind(family.ours, 8);
        bench.send(id, b"wait", family.absent);
        assert_eq!(bench.take().len(), 1, "a question");
        for n in 100..200 {
            bench.introduce(unknown_host(n), PEER_MAC);
        }
        assert_eq!(bench.host.neighbors.queued(), 1, "{family:?}");
        assert_eq!(bench.host.neighbors.counts(), (16, 1));
        bench.give(&HostFixture::question(family.absent, PEER_MAC));
        assert_eq!(bench.take().len(), 2, "what waited, and the answer");
        bench.finish();
    }
}

#[test]
fn queue_of_a_silent_neighbor_keeps_the_newest() {
    for family in Family::both() {
        let (mut bench, _) = HostFixture::acquainted();
        let id = bench.bind(family.ours, 8);
        for n in 0..100_u8 {
            bench.send(id, &[n], family.absent);
        }
        assert_eq!(bench.host.neighbors.queued(), 64);
        assert_eq!(bench.count(CounterId::TxNeighborQueueFull), 36);
        assert_eq!(bench.take().len(), 1, "one question for all of them");
        bench.give(&HostFixture::question(family.absent, PEER_MAC));
        let sent = bench.take();
        assert_eq!(sent.len(), 65, "the answer, and what waited");
        let waited = sent.iter().filter_map(|frame| frame.last().copied()).filter(|n| *n >= 36);
        assert!(waited.count() >= 64, "the newest");
        bench.finish();
    }
}

#[test]
fn output_queue_is_bounded() {
    let config = HostConfig { output_queue: 10, ..HostConfig::default() };
    let mut bench = HostFixture::with(config);
    let [family, _] = Family::both();
    bench.introduce(family.peer, PEER_MAC);
    for n in 0..50 {
        bench.give(&family.inward().echo_request(1, n, b""));
    }
    assert_eq!(bench.count(CounterId::TxQueueFull), 40);
    assert_eq!(bench.take().len(), 10);
    bench.finish();
}

#[test]
fn full_neighbor_cache_still_answers_requests() {
    let neighbors = NeighborLimits { entries: 4, ..NeighborLimits::default() };
    let mut bench = HostFixture::with(HostConfig { neighbors, ..HostConfig::default() });
    let in_use = |n: u8| IpAddr::from([192, 0, 2, 10 + n]);
    let [family, _] = Family::both();
    for n in 0..4 {
        bench.introduce(in_use(n), PEER_MAC);
        let request =
            PacketTemplate::new(in_use(n), family.ours).over(link()).echo_request(1, 1, b"");
        assert_eq!(bench.exchange(&request).len(), 1);
    }
    for n in 100..150 {
        bench.introduce(IpAddr::from([192, 0, 2, n]), PEER_MAC);
    }
    for n in 0..4 {
        assert!(bench.host.neighbors.lookup(PORT, in_use(n)).is_some(), "still known");
    }
    assert_eq!(bench.count(CounterId::NeighborEvicted), 0);
    bench.finish();
}

/// Whatever room and however few frames there are: each datagram is in the queue or counted as dropped.
#[test]
fn super_segment_datagrams_are_delivered_or_counted() {
    let seed = 7;
    println!("seed {seed}");
    let mut stream = Seed(seed).stream("super-segments");
    let mut fates = [0_u64; 3];
    for round in 0..50 {
        for family in Family::both() {
            let mut bench = HostFixture::new();
            let options = UdpOptions {
                receive_packets: stream.random_range(1..40),
                receive_bytes: stream.random_range(1..40) * 2_048,
                ..UdpOptions::default()
            };
            let id = bench.host.udp_bind(SocketAddr::new(family.ours, 7), options).unwrap();
            let spare = bench.pool.available().0;
            let mut held = Vec::new();
            for _ in 0..spare - stream.random_range(1..40) {
                held.push(bench.pool.allocate().unwrap());
            }
            let payload = vec![7; stream.random_range(0..1_400)];
            let size = stream.random_range(1..200);
            let mut packet =
                bench.pool.packet_of(&family.inward().udp(4_000, 7, &payload)).unwrap();
            packet.meta.segments =
                Some(SegmentationInfo { kind: SegmentKind::Udp4, size, header_len: 0 });
            bench.host.handle_packets(bench.now, PORT, &mut vec![packet], &mut bench.pool);
            let sent = payload.len().div_ceil(usize::from(size)).max(1) as u64;
            let fate = [CounterId::UdpDelivered, CounterId::UdpQueueFull, CounterId::UdpNoMemory]
                .map(|count| bench.count(count));
            assert_eq!(fate.iter().sum::<u64>(), sent, "round {round}: {fate:?}");
            let mut arrived = 0;
            while let Some(datagram) = bench.host.udp_receive(id, &bench.pool) {
                arrived += 1;
                bench.pool.free(datagram.packet);
            }
            assert_eq!(arrived, fate[0], "round {round}: what is counted as delivered is there");
            bench.account();
            bench.pool.free_all(&mut held);
            assert_eq!(bench.pool.available().0, spare);
            for (sum, count) in fates.iter_mut().zip(fate) {
                *sum += count;
            }
        }
    }
    assert!(fates.iter().all(|count| *count > 100), "every fate happens: {fates:?}");
}
