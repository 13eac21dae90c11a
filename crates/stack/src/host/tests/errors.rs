//! ICMP errors: when one is sent, and which are believed.

use std::net::{Ipv4Addr, Ipv6Addr};

use plumb_wire::icmp::{IcmpMessage, unreachable_v4, unreachable_v6};
use plumb_wire::ip::IpProtocol;
use plumb_wire::ipv4::FragmentField;

use super::*;
use crate::context::DeliveryFailureKind;

const HOP_LIMIT_EXCEEDED: IcmpMessage = IcmpMessage::TimeExceeded { code: 0 };

fn port_unreachable(family: Family) -> IcmpMessage {
    let is_v4 = family.ours.is_ipv4();
    let code = if is_v4 { unreachable_v4::PORT } else { unreachable_v6::PORT };
    IcmpMessage::Unreachable { code }
}

/// An error of a router about `quoted`, an IP packet of ours.
fn error(family: Family, say: IcmpMessage, quoted: &[u8]) -> Vec<u8> {
    let router: IpAddr = match family.ours {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 254).into(),
        IpAddr::V6(_) => "2001:db8::fe".parse().unwrap(),
    };
    let link = LinkTemplate::new(PEER_MAC, OUR_MAC);
    PacketTemplate::new(router, family.ours).over(link).icmp(say, quoted)
}

/// A bench whose socket at port 1000 sent one datagram to the peer's port 9; the IP packet of it.
fn sent(family: Family, connected: bool, len: usize) -> (HostFixture, UdpId, Vec<u8>) {
    let (mut bench, _) = HostFixture::acquainted();
    let remote = SocketAddr::new(family.peer, 9);
    let id = bench.bind(family.ours, 1_000);
    if connected {
        bench.host.udp_connect(bench.now, id, remote).unwrap();
    }
    send(&mut bench, id, family, len);
    let frame = bench.take().remove(0);
    (bench, id, frame[14..].to_vec())
}

fn send(bench: &mut HostFixture, id: UdpId, family: Family, len: usize) {
    bench.send(id, &vec![1; len], family.peer);
}

#[test]
fn port_unreachable_quotes_the_packet_as_received() {
    for family in Family::both() {
        let (mut bench, _) = HostFixture::acquainted();
        for len in [0, 100, 1_400] {
            let frame = family.inward().udp(9, 4_444, &vec![3; len]);
            let [answer] = bench.exchange(&frame).try_into().unwrap();
            let most = if family.ours.is_ipv4() { 576 } else { 1_280 };
            let head = if family.ours.is_ipv4() { 28 } else { 48 };
            let quoted = &frame[14..frame.len().min(14 + most - head)];
            let back = family.inward().reversed();
            assert_eq!(answer, back.icmp(port_unreachable(family), quoted));
        }
        bench.finish();
    }
}

#[test]
fn errors_are_not_answered_with_errors() {
    for family in Family::both() {
        let (mut bench, _) = HostFixture::acquainted();
        // An error about a packet that we never sent, itself sent to us; nothing may come back.
        let quoted = PacketTemplate::new(family.ours, family.peer).udp(7, 7, b"x");
        bench.drops(
            &error(family, port_unreachable(family), &quoted),
            CounterId::IcmpErrorUnmatched,
        );
        // Errors that quote errors that quote errors: each is looked at once.
        let mut nested = quoted;
        for _ in 0..8 {
            nested = error(family, HOP_LIMIT_EXCEEDED, &nested)[14..].to_vec();
        }
        let link = LinkTemplate::new(PEER_MAC, OUR_MAC);
        let ether_type = if family.ours.is_ipv4() {
            plumb_wire::ethernet::EtherType::IPV4
        } else {
            plumb_wire::ethernet::EtherType::IPV6
        };
        bench.drops(&link.frame(ether_type, &nested), CounterId::IcmpErrorUnmatched);
        bench.finish();
    }
}

/// RFC 4443 §2.4 (e.1), and (e.2) of redirects: however many headers hide them.
#[test]
fn extension_errors_before_icmp_errors_are_not_reported() {
    let [_, family] = Family::both();
    let (mut bench, _) = HostFixture::acquainted();
    let padding: (_, &[u8]) = (IpProtocol::DESTINATION, &[0, 1, 4, 0, 0, 0, 0]);
    let rows: [(_, &[u8], _); 3] = [
        (IpProtocol::DESTINATION, &[0, 0x9e, 4, 0, 0, 0, 0], CounterId::RxUnknownOption),
        (IpProtocol::ROUTING, &[0, 99, 1, 0, 0, 0, 0], CounterId::RxSourceRoute),
        (IpProtocol::AUTHENTICATION, &[0; 7], CounterId::RxExtension),
    ];
    for (protocol, header, count) in rows {
        let extension = (protocol, header);
        for chain in [vec![extension], vec![padding, extension, padding]] {
            for kind in [1, 2, 3, 4, 100, 127, 137] {
                let message = [kind, 0, 0, 0, 0, 0, 0, 0];
                let frame = family.inward().extended(&chain, IpProtocol::ICMPV6, &message);
                bench.drops(&frame, count);
            }
            let question = family.inward().extended(&chain, IpProtocol::ICMPV6, &[128; 8]);
            assert_eq!(bench.exchange(&question).len(), 1, "{chain:?}");
            // Of a later fragment nobody can tell.
            let later: (_, &[u8]) = (IpProtocol::FRAGMENT, &[0, 0, 64, 0, 0, 0, 1]);
            let chain = [&chain[..], &[later]].concat();
            bench.drops(&family.inward().extended(&chain, IpProtocol::ICMPV6, &[200; 8]), count);
        }
    }
    bench.finish();
}

/// RFC 1122 §3.2.2.
#[test]
fn malformed_option_is_reported_of_first_fragment_only() {
    let [family, _] = Family::both();
    let (mut bench, _) = HostFixture::acquainted();
    let mut path = family.inward();
    path.options = plumb_wire::option::OptionArea::new(&[1, 7, 200, 4]).unwrap();
    let fragments = path.fragments(1, IpProtocol::UDP, &[3; 24], 8);
    assert_eq!(bench.exchange(&fragments[0]).len(), 1);
    for later in &fragments[1..] {
        bench.drops(later, CounterId::RxIpOption);
    }
    bench.finish();
}

#[test]
fn packets_to_groups_cause_no_errors() {
    let (mut bench, _) = HostFixture::acquainted();
    for (destination, mac) in [
        ("192.0.2.255", MacAddr::BROADCAST),
        ("255.255.255.255", MacAddr::BROADCAST),
        ("224.0.0.1", MacAddr::multicast_v4(Ipv4Addr::new(224, 0, 0, 1))),
        ("ff02::1", MacAddr::multicast_v6("ff02::1".parse().unwrap())),
    ] {
        let destination: IpAddr = destination.parse().unwrap();
        let family = Family::both()[usize::from(destination.is_ipv6())];
        let path =
            PacketTemplate::new(family.peer, destination).over(LinkTemplate::new(PEER_MAC, mac));
        bench.drops(&path.udp(9, 4_444, b"x"), CounterId::UdpNoSocket);
        bench.drops(&path.packet(IpProtocol(200), b"x"), CounterId::RxProtocol);
    }
    bench.finish();
}

#[test]
fn echo_to_groups_is_answered_over_ipv6_only() {
    let (mut bench, _) = HostFixture::acquainted();
    let [v4, v6] = Family::both();
    let all: Ipv4Addr = Ipv4Addr::BROADCAST;
    let path =
        PacketTemplate::new(v4.peer, all).over(LinkTemplate::new(PEER_MAC, MacAddr::BROADCAST));
    bench.drops(&path.echo_request(1, 1, b""), CounterId::EchoBroadcast);
    let group: Ipv6Addr = "ff02::1".parse().unwrap();
    let path = PacketTemplate::new(v6.peer, group)
        .over(LinkTemplate::new(PEER_MAC, MacAddr::multicast_v6(group)));
    let answers = bench.exchange(&path.echo_request(1, 1, b"data"));
    assert_eq!(answers, [v6.inward().reversed().echo_reply(1, 1, b"data")]);
    bench.finish();
}

#[test]
fn icmp_errors_are_rate_limited_and_echo_is_not() {
    for family in Family::both() {
        let (mut bench, _) = HostFixture::acquainted();
        let frame = family.inward().udp(9, 4_444, b"x");
        let mut errors = 0;
        for _ in 0..200 {
            errors += bench.exchange(&frame).len();
        }
        let config = HostConfig::default();
        assert_eq!(errors, config.icmp_error_burst as usize);
        assert_eq!(bench.count(CounterId::IcmpErrorLimited), 150);
        bench.pass(Span::from_ms(10));
        errors = 0;
        for _ in 0..200 {
            errors += bench.exchange(&frame).len();
        }
        assert_eq!(errors, 10, "1,000 a second");
        for n in 0..200 {
            assert_eq!(bench.exchange(&family.inward().echo_request(1, n, b"")).len(), 1);
        }
        bench.finish();
    }
}

#[test]
fn icmp_error_reaches_its_connected_socket() {
    for family in Family::both() {
        let (mut bench, id, packet) = sent(family, true, 10);
        assert!(bench.exchange(&error(family, port_unreachable(family), &packet)).is_empty());
        let Some(HostEvent::DeliveryFailed(failure)) = bench.host.poll_event() else {
            panic!("an event")
        };
        assert_eq!((failure.kind, failure.udp), (DeliveryFailureKind::Port, Some(id)));
        assert_eq!(failure.remote, SocketAddr::new(family.peer, 9));
        bench.finish();
    }
}

#[test]
fn icmp_errors_about_foreign_packets_are_ignored() {
    for family in Family::both() {
        let (mut bench, _, packet) = sent(family, true, 10);
        let ours = PacketTemplate::new(family.ours, family.peer);
        for quoted in [
            // From nobody here, to whom we never sent, from another port, to another port, TCP.
            PacketTemplate::new(family.absent, family.peer).udp(1_000, 9, b"x"),
            PacketTemplate::new(family.ours, family.absent).udp(1_000, 9, b"x"),
            ours.udp(1_001, 9, b"x"),
            ours.udp(1_000, 10, b"x"),
            ours.packet(IpProtocol::TCP, &[0; 20]),
            ours.echo_request(1, 1, b""),
            packet[..packet.len() - 14].to_vec(),
        ] {
            for say in [
                port_unreachable(family),
                IcmpMessage::PacketTooBig { mtu: 1_300 },
                HOP_LIMIT_EXCEEDED,
            ] {
                bench.drops(&error(family, say, &quoted), CounterId::IcmpErrorUnmatched);
            }
        }
        assert!(bench.host.poll_event().is_none());
        assert_eq!(bench.count(CounterId::PathMtuLearned), 0);
        bench.finish();
    }
}

// MUST-55.
#[test]
fn source_quench_and_redirects_change_nothing() {
    let [family, _] = Family::both();
    let (mut bench, _, packet) = sent(family, true, 10);
    for (kind, reason) in [
        (4, CounterId::IcmpSourceQuench),
        (5, CounterId::IcmpRedirect),
        // A question for the time.
        (13, CounterId::IcmpKind),
    ] {
        let message = IcmpMessage::Other { kind, code: 1, rest: [192, 0, 2, 66] };
        bench.drops(&family.inward().icmp(message, &packet), reason);
    }
    assert!(bench.host.poll_event().is_none());
    bench.finish();
}

#[test]
fn packet_too_big_limits_the_path_for_ten_minutes() {
    for family in Family::both() {
        let (mut bench, id, packet) = sent(family, false, 1_400);
        if family.ours.is_ipv4() {
            let field = FragmentField(u16::from_be_bytes([packet[6], packet[7]]));
            assert!(field.dont_fragment(), "the path is probed");
        }
        bench.exchange(&error(family, IcmpMessage::PacketTooBig { mtu: 1_300 }, &packet));
        assert_eq!(bench.count(CounterId::PathMtuLearned), 1);
        bench.take();
        send(&mut bench, id, family, 1_400);
        let fragments = bench.take();
        assert_eq!(fragments.len(), 2);
        assert!(fragments.iter().all(|frame| frame.len() <= 14 + 1_300));
        bench.pass(Span::from_secs(600));
        bench.take();
        bench.introduce(family.peer, PEER_MAC);
        send(&mut bench, id, family, 1_400);
        let frames = bench.take();
        assert!(frames.iter().any(|frame| frame.len() > 14 + 1_300), "it is tried again");
        bench.finish();
    }
}

#[test]
fn absurd_path_mtus_are_bounded() {
    let [v4, v6] = Family::both();
    let (mut bench, id, packet) = sent(v4, false, 1_400);
    bench.exchange(&error(v4, IcmpMessage::PacketTooBig { mtu: 68 }, &packet));
    send(&mut bench, id, v4, 1_400);
    let fragments = bench.take();
    assert!(fragments.iter().all(|frame| frame.len() <= 14 + 552) && fragments.len() == 3);
    send(&mut bench, id, v4, 100);
    let [small] = bench.take().try_into().unwrap();
    let field = FragmentField(u16::from_be_bytes([small[20], small[21]]));
    assert!(!field.dont_fragment(), "the path is smaller than what we send");
    bench.finish();
    let (mut bench, id, packet) = sent(v6, false, 1_400);
    bench.drops(
        &error(v6, IcmpMessage::PacketTooBig { mtu: 1_279 }, &packet),
        CounterId::IcmpTooSmall,
    );
    // A packet that fits was not refused for its size.
    bench.drops(
        &error(v6, IcmpMessage::PacketTooBig { mtu: 1_500 }, &packet),
        CounterId::IcmpErrorUnmatched,
    );
    send(&mut bench, id, v6, 1_400);
    assert_eq!(bench.take().len(), 1);
    bench.finish();
}

#[test]
fn ping_failure_becomes_an_event() {
    for family in Family::both() {
        let (mut bench, _) = HostFixture::acquainted();
        let now = bench.now;
        bench.host.ping(now, family.peer, (5, 6), b"data", &mut bench.pool).unwrap();
        let [frame] = bench.take().try_into().unwrap();
        bench.exchange(&error(family, HOP_LIMIT_EXCEEDED, &frame[14..]));
        let Some(HostEvent::DeliveryFailed(failure)) = bench.host.poll_event() else {
            panic!("an event")
        };
        assert_eq!((failure.kind, failure.udp), (DeliveryFailureKind::HopLimit, None));
        // A reply to something else, and a second reply, are nobody's.
        bench.drops(&family.inward().echo_reply(5, 7, b"data"), CounterId::EchoUnexpected);
        bench.exchange(&family.inward().echo_reply(5, 6, b"data"));
        bench.drops(&family.inward().echo_reply(5, 6, b"data"), CounterId::EchoUnexpected);
        bench.finish();
    }
}
