//! Two hosts on a good link: neighbor resolution, datagrams of every size, echo, and a liar beside them.

use std::net::IpAddr;

use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_stack::counters::CounterKind;
use plumb_stack::host::{HostEvent, IpHost};
use plumb_stack::neighbor::NeighborState;
use plumb_stack::udp::{CopyPolicy, UdpOptions};
use plumb_wire::compose::neighbor_advertisement;
use plumb_wire::ethernet::MacAddr;
use plumb_wire::machine::Medium;

use crate::lan::{address, check, end, lan, mac};
use crate::virtual_link::{PORT, VirtualLink};

#[test]
fn hosts_exchange_datagrams_of_every_size() {
    for medium in [Medium::Ethernet, Medium::Ip] {
        let mut world = lan(2, medium, false, Seed(3));
        for v6 in [false, true] {
            let (ours, theirs) = (end(v6, 1, 7), end(v6, 2, 9));
            let a = world.machines[0].udp_bind(ours, UdpOptions::default()).unwrap();
            let b = world.machines[1].udp_bind(theirs, UdpOptions::default()).unwrap();
            for len in [0, 1, 18, 1_400, 1_472, 1_473, 4_000, 20_000] {
                let payload: Vec<u8> = (0..=250).cycle().take(len).collect();
                for policy in [CopyPolicy::Fused, CopyPolicy::Separate, CopyPolicy::NoChecksum] {
                    let sent = world.with(0, |host, now, pool| {
                        host.udp_send(now, a, &payload, Some(theirs), policy, pool)
                    });
                    sent.unwrap();
                    assert!(world.settle(Span::from_secs(90)) || medium == Medium::Ethernet);
                    let datagram = world.with(1, |host, _, pool| host.udp_receive(b, pool));
                    let datagram = datagram
                        .unwrap_or_else(|| panic!("IPv6 {v6}: {len} bytes over {medium:?}"));
                    assert_eq!(world.pool.bytes(&datagram.packet), payload);
                    assert_eq!((datagram.remote, datagram.local), (ours, theirs));
                    world.with(1, |host, now, pool| host.udp_reply(now, datagram, pool)).unwrap();
                    assert!(world.settle(Span::from_secs(90)));
                    let back = world.with(0, |host, _, pool| host.udp_receive(a, pool)).unwrap();
                    assert_eq!(world.pool.bytes(&back.packet), payload);
                    world.pool.free(back.packet);
                }
            }
        }
        for host in &world.machines {
            assert_eq!(host.counters().sum(CounterKind::RxDrop), 0);
            assert_eq!(host.counters().sum(CounterKind::TxDrop), 0);
        }
        check(&world, "datagrams of every size");
    }
}

#[test]
fn echo_replies_of_every_size_become_events() {
    for medium in [Medium::Ethernet, Medium::Ip] {
        let mut world = lan(2, medium, false, Seed(4));
        for remote in [address(false, 2), address(true, 2)] {
            for (sequence, len) in [(0, 0), (1, 56), (2, 1_452), (3, 9_000)] {
                let data = vec![0xa5; len];
                let sent = world
                    .with(0, |host, now, pool| host.ping(now, remote, (77, sequence), &data, pool));
                sent.unwrap();
                assert!(world.settle(Span::from_secs(90)));
                let event = world.machines[0].poll_event();
                let is_reply = matches!(event, Some(HostEvent::EchoReply {
                    remote: from, identifier: 77, sequence: number, len: back, ..
                }) if (from, number, back) == (remote, sequence, len));
                assert!(is_reply, "{event:?} for {len} bytes to {remote}");
            }
        }
        check(&world, "echo of every size");
    }
}

/// A lie about host 2's address, as if host 1 had asked for it. RFC 4861 §7.2.5 has the address replaced, but not
/// confirmed: the next use asks.
#[test]
fn overriding_lie_is_undone_by_a_probe() {
    const MALLORY: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x66]);
    let mut world = lan(2, Medium::Ethernet, false, Seed(6));
    let (here, other) = (address(true, 1), address(true, 2));
    let is_answered = |world: &mut VirtualLink<IpHost>, number| {
        let sent = world.with(0, |host, now, pool| host.ping(now, other, (1, number), b"?", pool));
        sent.unwrap();
        world.run(Span::from_ms(3_500));
        let mut events = std::iter::from_fn(|| world.machines[0].poll_event());
        events.any(|event| matches!(event, HostEvent::EchoReply { .. }))
    };
    assert!(is_answered(&mut world, 1));
    let (IpAddr::V6(here), IpAddr::V6(claimed)) = (here, other) else { unreachable!("IPv6") };
    assert!(world.inject(&neighbor_advertisement(MALLORY, claimed, mac(1), here)));
    world.run(Span::from_ms(10));
    let (state, _) = world.machines[0].neighbors().lookup(PORT, other).unwrap();
    assert!(!matches!(state, NeighborState::Reachable(_)), "{state:?}");
    assert!((2..8).any(|number| is_answered(&mut world, number)), "the neighbor is found again");
    assert!(world.settle(Span::from_secs(600)), "an idle host is quiet");
    check(&world, "an override");
}
