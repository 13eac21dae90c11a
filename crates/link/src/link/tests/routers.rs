//! Routers between hops, and MTUs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use plumb_wire::compose::{self, LinkTemplate, PacketTemplate};
use plumb_wire::ethernet::EthernetFrame;
use plumb_wire::ethernet::MacAddr;
use plumb_wire::icmp::{IcmpMessage, IcmpPacket};
use plumb_wire::ip::IpProtocol;
use plumb_wire::ipv4::{self, FragmentField};
use plumb_wire::ipv6;

use super::*;
use crate::frame::DiscardReason;

const NEAR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const FAR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

fn path(v6: bool, hop_limit: u8) -> PacketTemplate {
    let path = if v6 {
        let host = |n| Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, n);
        PacketTemplate::new(host(1), host(2))
    } else {
        PacketTemplate::new(Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2))
    };
    PacketTemplate { link: Some(LinkTemplate::new(NEAR_MAC, FAR_MAC)), hop_limit, ..path }
}

/// What an error frame says, having been verified on every layer.
fn read(frame: &[u8]) -> (IpAddr, String, Vec<u8>) {
    let ethernet = EthernetFrame::parse(frame).unwrap();
    assert_eq!((ethernet.source(), ethernet.destination()), (FAR_MAC, NEAR_MAC));
    let bytes = ethernet.payload();
    if bytes[0] >> 4 == 4 {
        let packet = ipv4::Ipv4Packet::parse(bytes).unwrap().verify().unwrap();
        assert_eq!(packet.destination(), Ipv4Addr::new(10, 77, 0, 1));
        let icmp = IcmpPacket::parse(packet.payload(), None).unwrap().verify().unwrap();
        return (packet.source().into(), format!("{:?}", icmp.message()), icmp.body().to_vec());
    }
    let packet = ipv6::Ipv6Packet::parse(bytes).unwrap();
    assert!(bytes.len() <= 1_280);
    let pseudo = Some(packet.pseudo(IpProtocol::ICMPV6));
    let icmp = IcmpPacket::parse(packet.payload(), pseudo).unwrap().verify().unwrap();
    (packet.source().into(), format!("{:?}", icmp.message()), icmp.body().to_vec())
}

#[test]
fn each_router_is_found_by_the_hop_limit_that_ends_there() {
    for v6 in [false, true] {
        for hop_limit in 1..=4_u8 {
            let mut rig = Rig::new("delay=1ms;delay=2ms;delay=3ms;delay=4ms");
            let sent = path(v6, hop_limit).udp(1, 2, b"how far?");
            rig.send(rig.start, NEAR, &sent);
            let later = rig.start + Span::from_secs(1);
            let back = rig.receive(later, NEAR);
            let through = rig.receive(later, FAR);
            assert_eq!(rig.violations(later), []);
            if hop_limit == 4 {
                assert!(back.is_empty());
                let packet = &through[0].1[14..];
                if !v6 {
                    ipv4::Ipv4Packet::parse(packet).unwrap().verify().unwrap();
                }
                assert_eq!(packet[if v6 { 7 } else { 8 }], 1, "three routers have counted");
                continue;
            }
            assert!(through.is_empty());
            let (from, message, body) = read(&back[0].1);
            assert!(message.contains("TimeExceeded { code: 0 }"), "{message}");
            let ms = u64::from(hop_limit) * (u64::from(hop_limit) + 1);
            assert_eq!(back[0].0 - rig.start, Span::from_ms(ms), "there and back");
            let router: IpAddr = if v6 {
                Ipv6Addr::new(0x2001, 0xdb8, 0, 0x77, 0, 0, 0, hop_limit.into()).into()
            } else {
                Ipv4Addr::new(192, 0, 2, hop_limit).into()
            };
            assert_eq!(from, router);
            let quoted = if v6 { 40 } else { 20 };
            assert_eq!(body[quoted..], sent[14 + quoted..]);
        }
    }
}

#[test]
fn from_the_far_side_routers_are_met_in_the_other_order() {
    let mut rig = Rig::new("delay=1ms;delay=2ms;delay=3ms");
    let far = path(false, 1).reversed();
    rig.send(rig.start, FAR, &far.udp(2, 1, b""));
    let back = rig.receive(rig.start + Span::from_secs(1), FAR);
    let packet = ipv4::Ipv4Packet::parse(&back[0].1[14..]).unwrap();
    assert_eq!(packet.source(), Ipv4Addr::new(192, 0, 2, 2));
    assert_eq!(back[0].0 - rig.start, Span::from_ms(6));
}

#[test]
fn what_belongs_to_one_network_passes_uncounted() {
    let solicitation = compose::neighbor_solicitation(
        NEAR_MAC,
        Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2),
    );
    let arp =
        compose::arp_request(NEAR_MAC, Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let mut local = path(false, 1);
    local.destination = Ipv4Addr::new(224, 0, 0, 251).into();
    for frame in [solicitation, arp, local.udp(1, 2, b"mdns")] {
        let mut rig = Rig::new("plain;plain");
        rig.send(rig.start, NEAR, &frame);
        assert_eq!(rig.receive(rig.start, FAR)[0].1, frame);
    }
}

#[test]
fn a_long_packet_is_refused_and_its_sender_told_the_mtu() {
    for (text, number, at_ms) in [("mtu=1400", 254, 0), ("delay=1ms;delay=1ms,mtu=1400", 1, 2)] {
        for v6 in [false, true] {
            let mut rig = Rig::new(text);
            rig.send(rig.start, NEAR, &path(v6, 64).udp(1, 2, &[7; 1_450]));
            rig.send(rig.start, NEAR, &path(v6, 64).udp(1, 2, &[7; 1_350]));
            let later = rig.start + Span::from_secs(1);
            assert_eq!(rig.receive(later, FAR).len(), 1, "the short one passes");
            let back = rig.receive(later, NEAR);
            let (from, message, body) = read(&back[0].1);
            assert!(message.contains("mtu: 1400"), "{message}");
            assert_eq!(back[0].0 - rig.start, Span::from_ms(at_ms));
            match from {
                IpAddr::V4(from) => assert_eq!(from.octets(), [192, 0, 2, number]),
                IpAddr::V6(from) => assert_eq!(from.segments()[7], number.into()),
            }
            assert_eq!(body.len(), if v6 { 1_280 - 48 } else { 576 - 28 });
            let report = rig.link.report(later);
            let lost: u64 =
                report.directions.iter().map(|d| d.discards.of(DiscardReason::TooLong).0).sum();
            assert_eq!((lost, report.routers.errors_sent), (1, 1));
            assert_eq!(report.violations, []);
        }
    }
}

#[test]
fn a_black_hole_tells_nobody() {
    for text in ["mtu=1400/silent", "mtu=1000"] {
        let mut rig = Rig::new(text);
        // IPv6 is told about no MTU below its least.
        rig.send(rig.start, NEAR, &path(true, 64).udp(1, 2, &[7; 1_450]));
        assert!(rig.receive(rig.start, NEAR).is_empty() && rig.receive(rig.start, FAR).is_empty());
        let report = rig.link.report(rig.start);
        assert_eq!(report.directions[0].discards.of(DiscardReason::TooLong).0, 1);
        assert_eq!(report.routers.errors_sent, 0);
    }
}

#[test]
fn a_packet_that_may_be_cut_arrives_in_fragments_that_make_it_again() {
    let data: Vec<u8> = (0..1_400_u32).map(|i| i.to_le_bytes()[0]).collect();
    let whole = path(false, 64).udp(1, 2, &data);
    let mut cuttable = whole.clone();
    cuttable[20..22].copy_from_slice(&FragmentField::WHOLE.0.to_be_bytes());
    // The header's checksum without "don't fragment".
    let sum = u16::from_be_bytes([cuttable[24], cuttable[25]]);
    let sum = plumb_wire::checksum::updated(sum, 0x4000, 0);
    cuttable[24..26].copy_from_slice(&sum.to_be_bytes());
    // A second router cuts the fragments again.
    let mut rig = Rig::new("mtu=600;mtu=300");
    rig.send(rig.start, NEAR, &cuttable);
    let received = rig.receive(rig.start, FAR);
    let mut payload = vec![0; whole.len() - 34];
    let mut more = 0;
    for (_, bytes) in &received {
        assert!(bytes.len() <= 314);
        let packet = ipv4::Ipv4Packet::parse(&bytes[14..]).unwrap().verify().unwrap();
        let field = packet.fragment_field();
        let at = usize::from(field.offset());
        payload[at..at + packet.payload().len()].copy_from_slice(packet.payload());
        more += usize::from(field.more());
    }
    assert_eq!(payload, whole[34..]);
    assert_eq!(more, received.len() - 1, "all but the last say that more follow");
    let report = rig.link.report(rig.start);
    // Three at the first, and the two long ones of them in three each.
    assert_eq!((report.routers.fragments, received.len()), (9, 7));
    assert_eq!(report.violations, []);
}

#[test]
fn no_error_is_sent_about_an_error_nor_a_thousand_and_one_in_a_second() {
    let mut rig = Rig::new("plain;plain");
    let expired = path(false, 1).icmp(IcmpMessage::TimeExceeded { code: 0 }, &[0; 28]);
    rig.send(rig.start, NEAR, &expired);
    assert!(rig.receive(rig.start, NEAR).is_empty());
    for _ in 0..200 {
        rig.send(rig.start, NEAR, &path(false, 1).udp(1, 2, b""));
        rig.send(rig.start, NEAR, &path(true, 1).udp(1, 2, b""));
    }
    assert_eq!(rig.receive(rig.start, NEAR).len(), 50, "Linux's burst");
    let report = rig.link.report(rig.start);
    assert_eq!((report.routers.errors_sent, report.routers.errors_withheld), (50, 351));
    assert_eq!(report.directions[2].discards.of(DiscardReason::Expired).0, 401);
}

#[test]
fn what_cannot_be_cut_is_malformed_and_what_finds_no_memory_is_that() {
    let mut whole = path(false, 64).udp(1, 2, &[7; 1_400]);
    whole[20..22].copy_from_slice(&FragmentField::WHOLE.0.to_be_bytes());
    // It says that it is longer than it is.
    let mut short = whole.clone();
    short.truncate(1_000);
    for (frame, frames, reason) in
        [(short, 8, DiscardReason::Malformed), (whole, 2, DiscardReason::NoMemory)]
    {
        let mut rig = Rig::new("mtu=600");
        rig.pool = Pool::new(PoolConfig { count: frames, size: 2_048, large: 0 });
        rig.send(rig.start, NEAR, &frame);
        let report = rig.link.report(rig.start);
        assert_eq!(report.directions[0].discards.of(reason).0, 1, "{reason:?}");
        assert_eq!(report.discarded().frames, 1);
        assert_eq!(report.no_memory(), u64::from(reason == DiscardReason::NoMemory));
        assert_eq!(report.violations, []);
        assert_eq!(rig.pool.available().0, usize::try_from(frames).unwrap());
    }
}
