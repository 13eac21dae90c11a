//! Attackers on the link: lies about addresses, floods and hostile fragments are ignored and counted, and honest
//! hosts are served all the same.

use std::net::IpAddr;

use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_stack::host::{HostEvent, IpHost};
use plumb_stack::neighbor::NeighborState;
use plumb_stack::reassembly::ReassemblyConfig;
use plumb_wire::compose::{self, LinkTemplate, PacketTemplate};
use plumb_wire::ethernet::MacAddr;
use plumb_wire::ip::{Fragment, IpProtocol};
use plumb_wire::machine::Medium;
use plumb_wire::ndp;
use rand::RngExt;

use crate::lan::{address, check, lan, mac};
use crate::virtual_link::{PORT, VirtualLink};

const MALLORY: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x66]);

/// Whether machine 0's echo request of this number is answered by host 2.
fn pings(world: &mut VirtualLink<IpHost>, v6: bool, number: u16) -> bool {
    let sent = world.with(0, |host, now, pool| {
        host.ping(now, address(v6, 2), (1, number), b"are you there?", pool)
    });
    sent.unwrap();
    world.run(Span::from_ms(3_500));
    let mut answered = false;
    world.with(0, |host, _, _| {
        while let Some(event) = host.poll_event() {
            answered |=
                matches!(event, HostEvent::EchoReply { sequence, .. } if sequence == number);
        }
    });
    answered
}

fn path(v6: bool, from: u8, to: u8) -> PacketTemplate {
    PacketTemplate::new(address(v6, from), address(v6, to))
        .over(LinkTemplate::new(MALLORY, mac(to)))
}

/// To host 1: host 2 is at Mallory's. In IPv6 as if it had been asked, and overriding or not.
fn lie(v6: bool, overrides: bool) -> Vec<u8> {
    match (address(v6, 1), address(v6, 2)) {
        (IpAddr::V4(here), IpAddr::V4(other)) => compose::arp_reply(MALLORY, other, mac(1), here),
        (_, IpAddr::V6(other)) => path(true, 2, 1).ndp(ndp::NdpMessage::NeighborAdvertisement {
            target: other,
            target_mac: Some(MALLORY),
            is_solicited: true,
            overrides,
        }),
        _ => unreachable!("one family"),
    }
}

fn finish(mut world: VirtualLink<IpHost>, what: &str) {
    assert!(world.settle(Span::from_secs(600)), "{what}: an idle host is quiet");
    check(&world, what);
}

#[test]
fn unsolicited_replies_do_not_poison_the_cache() {
    for v6 in [false, true] {
        for known in [false, true] {
            let mut world = lan(2, Medium::Ethernet, false, Seed(1));
            if known {
                assert!(pings(&mut world, v6, 1));
            }
            let lie = lie(v6, false);
            for _ in 0..100 {
                assert!(world.inject(&lie));
                world.run(Span::from_ms(10));
            }
            let entry = world.machines[0].neighbors().lookup(PORT, address(v6, 2));
            assert!(entry.is_none_or(|(_, at)| at != Some(MALLORY)), "{v6} {known} {entry:?}");
            assert_eq!(entry.is_some(), known);
            assert!(pings(&mut world, v6, 2), "IPv6: {v6}, known: {known}");
            finish(world, "unasked answers");
        }
    }
}

#[test]
fn overriding_lie_is_undone_by_a_probe() {
    // RFC 4861 §7.2.5 has the address replaced, but not confirmed: the next use asks.
    let mut world = lan(2, Medium::Ethernet, false, Seed(6));
    assert!(pings(&mut world, true, 1));
    assert!(world.inject(&lie(true, true)));
    world.run(Span::from_ms(10));
    let (state, _) = world.machines[0].neighbors().lookup(PORT, address(true, 2)).unwrap();
    assert!(!matches!(state, NeighborState::Reachable(_)), "{state:?}");
    let answered = (2..8).find(|number| pings(&mut world, true, *number));
    assert!(answered.is_some(), "the neighbor is found again");
    finish(world, "an override");
}

#[test]
fn hostile_fragments_hold_bounded_memory() {
    println!("seed 4");
    let mut stream = Seed(4).stream("fragments");
    for v6 in [false, true] {
        let mut world = lan(2, Medium::Ethernet, false, Seed(4));
        let config = ReassemblyConfig::default();
        let before = world.pool.available();
        for round in 0..20_000_u32 {
            let source = path(v6, stream.random_range(3..=254), 2);
            let identification = match round / 5_000 {
                0 => 1,
                _ => stream.random_range(0..500),
            };
            // Overlaps, gaps, tiny pieces, far ends.
            let offset =
                stream.random_range(0..8_100_u16) * 8 / [1, 64, 512][stream.random_range(0..3)];
            let fragment =
                Fragment { identification, offset: offset / 8 * 8, more: stream.random_bool(0.9) };
            let len = stream.random_range(1..20) * 8;
            let data: Vec<u8> = (0..len).map(|_| stream.random()).collect();
            world.inject(&source.fragment(fragment, IpProtocol::UDP, &data));
            if round % 64 == 0 {
                world.run(Span::from_ms(1));
            }
            let held = before.1 - world.pool.available().1;
            assert!(held <= config.bytes / plumb_wire::packet::LARGE_FRAME, "{held} large frames");
        }
        assert!(pings(&mut world, v6, 1), "IPv6: {v6}");
        finish(world, "a flood of fragments");
    }
}
