//! ICMP errors: when one is sent, and which are believed.

use std::net::{Ipv4Addr, Ipv6Addr};

use plumb_wire::fragment::Fragment;
use plumb_wire::ipv4::FragmentField;
use plumb_wire::ipv6::extension::Extension;
use plumb_wire::ipv6::option as option6;
use plumb_wire::protocol::Protocol;
use plumb_wire::{icmpv4, icmpv6};

use super::*;
use crate::icmp::FailureKind;

const ROUTER: u8 = 254;

/// Messages of both families that say the same.
#[derive(Clone, Copy)]
enum Say {
    Port,
    TooBig(u16),
    HopLimit,
}

/// An error of a router about `quoted`, an IP packet of ours.
fn error(family: Family, say: Say, quoted: &[u8]) -> Vec<u8> {
    let path = match family.ours {
        IpAddr::V4(_) => Path::new(Ipv4Addr::new(192, 0, 2, ROUTER), family.ours),
        IpAddr::V6(_) => Path::new("2001:db8::fe".parse::<Ipv6Addr>().unwrap(), family.ours),
    };
    let path = path.over(Link::new(PEER_MAC, OUR_MAC));
    if family.ours.is_ipv4() {
        let message = match say {
            Say::Port => icmpv4::Message::Unreachable { code: 3, next_hop_mtu: 0 },
            Say::TooBig(mtu) => icmpv4::Message::Unreachable { code: 4, next_hop_mtu: mtu },
            Say::HopLimit => icmpv4::Message::TimeExceeded { code: 0 },
        };
        return path.icmpv4(message, quoted);
    }
    let message = match say {
        Say::Port => icmpv6::Message::Unreachable { code: 4 },
        Say::TooBig(mtu) => icmpv6::Message::PacketTooBig { mtu: mtu.into() },
        Say::HopLimit => icmpv6::Message::TimeExceeded { code: 0 },
    };
    path.icmpv6(message, quoted)
}

/// A bench whose socket at port 1000 sent one datagram to the peer's port 9; the IP packet of it.
fn sent(family: Family, connected: bool, len: usize) -> (Bench, UdpId, Vec<u8>) {
    let (mut bench, _) = Bench::acquainted();
    let local = SocketAddr::new(family.ours, 1_000);
    let remote = SocketAddr::new(family.peer, 9);
    let id = bench.host.udp_bind(local, UdpOptions::default()).unwrap();
    if connected {
        bench.host.udp_connect(bench.now, id, remote).unwrap();
    }
    send(&mut bench, id, family, len);
    let frame = bench.take().remove(0);
    (bench, id, frame[14..].to_vec())
}

fn send(bench: &mut Bench, id: UdpId, family: Family, len: usize) {
    let (remote, payload) = (Some(SocketAddr::new(family.peer, 9)), vec![1; len]);
    let now = bench.now;
    bench.host.udp_send(now, id, &payload, remote, CopyPolicy::Fused, &mut bench.pool).unwrap();
}

#[test]
fn a_port_where_nobody_listens_is_reported_with_the_packet_as_it_came() {
    for family in Family::both() {
        let (mut bench, _) = Bench::acquainted();
        for len in [0, 100, 1_400] {
            let frame = family.inward().udp(9, 4_444, &vec![3; len]);
            let [answer] = bench.exchange(&frame).try_into().unwrap();
            let most = if family.ours.is_ipv4() { 576 } else { 1_280 };
            let head = if family.ours.is_ipv4() { 28 } else { 48 };
            let quoted = &frame[14..frame.len().min(14 + most - head)];
            let back = family.inward().reversed();
            let expected = if family.ours.is_ipv4() {
                back.icmpv4(icmpv4::Message::Unreachable { code: 3, next_hop_mtu: 0 }, quoted)
            } else {
                back.icmpv6(icmpv6::Message::Unreachable { code: 4 }, quoted)
            };
            assert_eq!(answer, expected);
        }
        bench.finish();
    }
}

#[test]
fn errors_are_not_answered_with_errors() {
    for family in Family::both() {
        let (mut bench, _) = Bench::acquainted();
        // An error about a packet that we never sent, itself sent to us; nothing may come back.
        let quoted = Path::new(family.ours, family.peer).udp(7, 7, b"x");
        bench.drops(&error(family, Say::Port, &quoted), Count::IcmpErrorForeign);
        // Errors that quote errors that quote errors: each is looked at once.
        let mut nested = quoted;
        for _ in 0..8 {
            nested = error(family, Say::HopLimit, &nested)[14..].to_vec();
        }
        let link = Link::new(PEER_MAC, OUR_MAC);
        let ether_type = if family.ours.is_ipv4() {
            plumb_wire::ethernet::EtherType::IPV4
        } else {
            plumb_wire::ethernet::EtherType::IPV6
        };
        bench.drops(&link.frame(ether_type, &nested), Count::IcmpErrorForeign);
        bench.finish();
    }
}

/// RFC 4443 §2.4 (e.1), and (e.2) of redirects: however many headers hide them.
#[test]
fn what_is_wrong_before_an_error_is_not_reported_and_before_a_question_it_is() {
    let [_, family] = Family::both();
    let (mut bench, _) = Bench::acquainted();
    let unknown = [0x9e, 4, 0, 0, 0, 0];
    let options = Extension::Destination(option6::Options::new(&unknown));
    let route = Extension::Routing { kind: 99, segments_left: 1, data: &[0; 4] };
    let authentication = Extension::Authentication(&[0; 6]);
    let padding = Extension::Destination(option6::Options::new(&[1, 4, 0, 0, 0, 0]));
    for (extension, count) in [
        (options, Count::RxUnknownOption),
        (route, Count::RxSourceRoute),
        (authentication, Count::RxExtension),
    ] {
        for chain in [vec![extension], vec![padding, extension, padding]] {
            for kind in [1, 2, 3, 4, 100, 127, 137] {
                let message = [kind, 0, 0, 0, 0, 0, 0, 0];
                let frame = family.inward().extended(&chain, Protocol::ICMPV6, &message);
                bench.drops(&frame, count);
            }
            let question = family.inward().extended(&chain, Protocol::ICMPV6, &[128; 8]);
            assert_eq!(bench.exchange(&question).len(), 1, "{chain:?}");
            // Of a later fragment nobody can tell.
            let later = Fragment { identification: 1, offset: 64, more: false };
            let chain = [&chain[..], &[Extension::Fragment(later)]].concat();
            bench.drops(&family.inward().extended(&chain, Protocol::ICMPV6, &[200; 8]), count);
        }
    }
    bench.finish();
}

/// RFC 1122 §3.2.2.
#[test]
fn a_broken_option_is_reported_of_the_first_fragment_and_of_no_other() {
    let [family, _] = Family::both();
    let (mut bench, _) = Bench::acquainted();
    let mut path = family.inward();
    path.options = plumb_wire::option_area::OptionArea::new(&[1, 7, 200, 4]).unwrap();
    let fragments = path.fragments(1, Protocol::UDP, &[3; 24], 8);
    assert_eq!(bench.exchange(&fragments[0]).len(), 1);
    for later in &fragments[1..] {
        bench.drops(later, Count::RxIpOption);
    }
    bench.finish();
}

#[test]
fn what_was_sent_to_many_is_not_answered_with_errors() {
    let (mut bench, _) = Bench::acquainted();
    for (destination, mac) in [
        ("192.0.2.255", MacAddr::BROADCAST),
        ("255.255.255.255", MacAddr::BROADCAST),
        ("224.0.0.1", MacAddr::multicast_v4(Ipv4Addr::new(224, 0, 0, 1))),
        ("ff02::1", MacAddr::multicast_v6("ff02::1".parse().unwrap())),
    ] {
        let destination: IpAddr = destination.parse().unwrap();
        let family = Family::both()[usize::from(destination.is_ipv6())];
        let path = Path::new(family.peer, destination).over(Link::new(PEER_MAC, mac));
        bench.drops(&path.udp(9, 4_444, b"x"), Count::UdpNoSocket);
        bench.drops(&path.packet(Protocol(200), b"x"), Count::RxProtocol);
    }
    bench.finish();
}

#[test]
fn echo_to_many_is_ignored_over_ipv4_and_answered_from_one_address_over_ipv6() {
    let (mut bench, _) = Bench::acquainted();
    let [v4, v6] = Family::both();
    let all: Ipv4Addr = Ipv4Addr::BROADCAST;
    let path = Path::new(v4.peer, all).over(Link::new(PEER_MAC, MacAddr::BROADCAST));
    bench.drops(&path.echo_request(1, 1, b""), Count::EchoBroadcast);
    let group: Ipv6Addr = "ff02::1".parse().unwrap();
    let path = Path::new(v6.peer, group).over(Link::new(PEER_MAC, MacAddr::multicast_v6(group)));
    let answers = bench.exchange(&path.echo_request(1, 1, b"data"));
    assert_eq!(answers, [v6.inward().reversed().echo_reply(1, 1, b"data")]);
    bench.finish();
}

#[test]
fn errors_are_rate_limited_and_echo_is_not() {
    for family in Family::both() {
        let (mut bench, _) = Bench::acquainted();
        let frame = family.inward().udp(9, 4_444, b"x");
        let mut errors = 0;
        for _ in 0..200 {
            errors += bench.exchange(&frame).len();
        }
        let config = HostConfig::default();
        assert_eq!(errors, config.icmp_error_burst as usize);
        assert_eq!(bench.host.counters.of(Count::IcmpErrorLimited), 150);
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
fn an_error_about_what_a_connected_socket_sent_reaches_it() {
    for family in Family::both() {
        let (mut bench, id, packet) = sent(family, true, 10);
        assert!(bench.exchange(&error(family, Say::Port, &packet)).is_empty());
        let Some(Event::Failure(failure)) = bench.host.poll_event() else { panic!("an event") };
        assert_eq!((failure.kind, failure.udp), (FailureKind::Port, Some(id)));
        assert_eq!(failure.remote, SocketAddr::new(family.peer, 9));
        bench.finish();
    }
}

#[test]
fn errors_about_packets_that_we_did_not_send_are_not_believed() {
    for family in Family::both() {
        let (mut bench, _, packet) = sent(family, true, 10);
        let ours = Path::new(family.ours, family.peer);
        for quoted in [
            // From nobody here, to whom we never sent, from another port, to another port, TCP.
            Path::new(family.absent, family.peer).udp(1_000, 9, b"x"),
            Path::new(family.ours, family.absent).udp(1_000, 9, b"x"),
            ours.udp(1_001, 9, b"x"),
            ours.udp(1_000, 10, b"x"),
            ours.packet(Protocol::TCP, &[0; 20]),
            ours.echo_request(1, 1, b""),
            packet[..packet.len() - 14].to_vec(),
        ] {
            for say in [Say::Port, Say::TooBig(1_300), Say::HopLimit] {
                bench.drops(&error(family, say, &quoted), Count::IcmpErrorForeign);
            }
        }
        assert!(bench.host.poll_event().is_none());
        assert!(bench.host.path_mtus.is_empty());
        bench.finish();
    }
}

#[test]
fn source_quench_and_redirects_change_nothing() {
    let [family, _] = Family::both();
    let (mut bench, _, packet) = sent(family, true, 10);
    let quench = icmpv4::Message::Other { kind: 4, code: 0, rest: [0; 4] };
    bench.drops(&family.inward().icmpv4(quench, &packet), Count::IcmpSourceQuench);
    let gateway = Ipv4Addr::new(192, 0, 2, 66);
    let redirect = icmpv4::Message::Redirect { code: 1, gateway };
    bench.drops(&family.inward().icmpv4(redirect, &packet), Count::IcmpRedirect);
    let timestamp = icmpv4::Message::Other { kind: 13, code: 0, rest: [0; 4] };
    bench.drops(&family.inward().icmpv4(timestamp, &[0; 12]), Count::IcmpKind);
    assert!(bench.host.poll_event().is_none());
    bench.finish();
}

#[test]
fn a_smaller_path_is_heeded_for_ten_minutes() {
    for family in Family::both() {
        let (mut bench, id, packet) = sent(family, false, 1_400);
        if family.ours.is_ipv4() {
            let field = FragmentField(u16::from_be_bytes([packet[6], packet[7]]));
            assert!(field.dont_fragment(), "the path is probed");
        }
        bench.exchange(&error(family, Say::TooBig(1_300), &packet));
        assert_eq!(bench.host.counters.of(Count::PathMtuLearnt), 1);
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
fn absurd_path_sizes_are_bounded() {
    let [v4, v6] = Family::both();
    let (mut bench, id, packet) = sent(v4, false, 1_400);
    bench.exchange(&error(v4, Say::TooBig(68), &packet));
    send(&mut bench, id, v4, 1_400);
    let fragments = bench.take();
    assert!(fragments.iter().all(|frame| frame.len() <= 14 + 552) && fragments.len() == 3);
    send(&mut bench, id, v4, 100);
    let [small] = bench.take().try_into().unwrap();
    let field = FragmentField(u16::from_be_bytes([small[20], small[21]]));
    assert!(!field.dont_fragment(), "the path is smaller than what we send");
    bench.finish();
    let (mut bench, id, packet) = sent(v6, false, 1_400);
    bench.drops(&error(v6, Say::TooBig(1_279), &packet), Count::IcmpTooSmall);
    // A packet that fits was not refused for its size.
    bench.drops(&error(v6, Say::TooBig(1_500), &packet), Count::IcmpErrorForeign);
    send(&mut bench, id, v6, 1_400);
    assert_eq!(bench.take().len(), 1);
    bench.finish();
}

#[test]
fn a_ping_that_cannot_arrive_is_reported_to_who_sent_it() {
    for family in Family::both() {
        let (mut bench, _) = Bench::acquainted();
        let now = bench.now;
        bench.host.ping(now, family.peer, (5, 6), b"data", &mut bench.pool).unwrap();
        let [frame] = bench.take().try_into().unwrap();
        bench.exchange(&error(family, Say::HopLimit, &frame[14..]));
        let Some(Event::Failure(failure)) = bench.host.poll_event() else { panic!("an event") };
        assert_eq!((failure.kind, failure.udp), (FailureKind::HopLimit, None));
        // A reply to something else, and a second reply, are nobody's.
        bench.drops(&family.inward().echo_reply(5, 7, b"data"), Count::EchoUnexpected);
        bench.exchange(&family.inward().echo_reply(5, 6, b"data"));
        bench.drops(&family.inward().echo_reply(5, 6, b"data"), Count::EchoUnexpected);
        bench.finish();
    }
}
