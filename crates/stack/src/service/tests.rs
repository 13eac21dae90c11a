//! Servers answer what they should, and only that.

use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_wire::packet::Frames;

use super::*;
use crate::counters::{Count, Counters, Kind};
use crate::host::HostConfig;
use crate::host::tests::{Family, OUR_MAC, PEER_MAC, PORT};
use crate::interface::InterfaceConfig;

fn host() -> Host {
    let mut host = Host::new(HostConfig::default(), Seed(1));
    let mut interface = InterfaceConfig::ethernet(OUR_MAC, 1_500);
    for family in Family::both() {
        interface =
            interface.with_address(family.ours, if family.ours.is_ipv4() { 24 } else { 64 });
    }
    host.add_interface(&interface).unwrap();
    host
}

fn exchange(machine: &mut impl Machine, pool: &mut Pool, frame: &[u8]) -> Vec<Vec<u8>> {
    let now = Instant::ORIGIN + Span::from_secs(1);
    let packet = pool.packet_of(frame).unwrap();
    machine.handle_packets(now, PORT, &mut vec![packet], pool);
    let mut batch = Vec::new();
    machine.poll_packets(now, PORT, &mut batch, usize::MAX, pool);
    let frames = batch.iter().map(|packet| pool.bytes(packet).to_vec()).collect();
    pool.free_all(&mut batch);
    frames
}

fn introduce(machine: &mut impl Machine, pool: &mut Pool) {
    for family in Family::both() {
        let frame = match (family.peer, family.ours) {
            (std::net::IpAddr::V4(peer), std::net::IpAddr::V4(ours)) => {
                plumb_wire::compose::arp_request(PEER_MAC, peer, ours)
            }
            (std::net::IpAddr::V6(peer), std::net::IpAddr::V6(ours)) => {
                plumb_wire::compose::neighbour_solicitation(PEER_MAC, peer, ours)
            }
            _ => unreachable!("one family"),
        };
        assert_eq!(exchange(machine, pool, &frame).len(), 1);
    }
}

fn account(counters: &Counters, pool: &Pool) {
    counters.check(0).unwrap();
    assert_eq!(counters.sum(Kind::RxDrop), 0);
    assert_eq!(pool.available().0, Frames::default().count as usize);
}

#[test]
fn every_mirror_sends_back_what_came_to_where_it_came_from() {
    let services = [
        Service::Mirror,
        Service::Echo(CopyPolicy::Fused),
        Service::Echo(CopyPolicy::Separate),
        Service::Echo(CopyPolicy::NoChecksum),
    ];
    for service in services {
        for family in Family::both() {
            let mut pool = Pool::new(Frames::default());
            let mut server = Server::new(host());
            let local = SocketAddr::new(family.ours, 7);
            server.serve(service, local, UdpOptions::default()).unwrap();
            introduce(&mut server, &mut pool);
            let answers =
                exchange(&mut server, &mut pool, &family.inward().udp(4_000, 7, b"payload"));
            let mut expected = family.inward().reversed().udp(7, 4_000, b"payload");
            let checksum = expected.len() - b"payload".len() - 2;
            if service == Service::Echo(CopyPolicy::NoChecksum) && family.ours.is_ipv4() {
                expected[checksum..checksum + 2].fill(0);
            }
            assert_eq!(answers, [expected], "{service:?} {family:?}");
            assert_eq!(server.served(), Served { received: 1, bytes: 7, sent: 1, failed: 0 });
            account(server.host().counters(), &pool);
        }
    }
}

#[test]
fn discard_answers_nothing() {
    let mut pool = Pool::new(Frames::default());
    let mut server = Server::new(host());
    let [family, _] = Family::both();
    server.serve(Service::Discard, SocketAddr::new(family.ours, 9), UdpOptions::default()).unwrap();
    introduce(&mut server, &mut pool);
    assert!(exchange(&mut server, &mut pool, &family.inward().udp(4_000, 9, b"gone")).is_empty());
    assert_eq!(server.served(), Served { received: 1, bytes: 4, sent: 0, failed: 0 });
    account(server.host().counters(), &pool);
}

#[test]
fn a_swap_turns_datagrams_round_without_a_new_checksum_and_leaves_the_rest_to_the_host() {
    for family in Family::both() {
        let mut pool = Pool::new(Frames::default());
        let mut swap = Swap::new(host(), 7);
        introduce(&mut swap, &mut pool);
        let frame = family.inward().udp(4_000, 7, b"payload");
        let expected = family.inward().reversed().udp(7, 4_000, b"payload");
        assert_eq!(exchange(&mut swap, &mut pool, &frame), [expected]);
        let echo = exchange(&mut swap, &mut pool, &family.inward().echo_request(1, 1, b""));
        assert_eq!(echo, [family.inward().reversed().echo_reply(1, 1, b"")]);
        account(swap.host().counters(), &pool);
        let counters = swap.host().counters();
        assert_eq!((counters.of(Count::Swapped), counters.of(Count::EchoAnswered)), (1, 1));
        let other_port = family.inward().udp(4_000, 8, b"payload");
        exchange(&mut swap, &mut pool, &other_port);
        assert_eq!(swap.host().counters().of(Count::UdpNoSocket), 1);
    }
}
