//! Servers answer what they should, and only that.

use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_wire::ethernet::MacAddr;
use plumb_wire::machine::Machine;
use plumb_wire::packet::PoolConfig;

use super::*;
use crate::counters::{CounterId, CounterKind, HostCounters};
use crate::host::HostConfig;
use crate::host::tests::{Family, HostFixture, OUR_MAC, PEER_MAC, PORT};
use crate::interface::InterfaceConfig;

/// A host that knows its peers, with frames for both.
fn acquainted() -> (IpHost, Pool) {
    let mut bench = HostFixture::new();
    for family in Family::both() {
        bench.introduce(family.peer, PEER_MAC);
    }
    (bench.host, bench.pool)
}

fn server(service: UdpService, local: SocketAddr) -> (HostNode<UdpServices>, Pool) {
    let ((mut host, pool), mut application) = (acquainted(), UdpServices::default());
    application.open(&mut host, service, local, UdpOptions::default()).unwrap();
    (HostNode { host, application }, pool)
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

fn account(counters: &HostCounters, pool: &Pool) {
    counters.check(0).unwrap();
    assert_eq!(counters.sum(CounterKind::RxDrop), 0);
    assert_eq!(pool.available().0, pool.frames().count as usize);
}

#[test]
fn every_mirror_returns_the_payload_to_its_source() {
    let services = [
        UdpService::Mirror,
        UdpService::Echo(CopyPolicy::Fused),
        UdpService::Echo(CopyPolicy::Separate),
        UdpService::Echo(CopyPolicy::NoChecksum),
    ];
    for service in services {
        for family in Family::both() {
            let (mut server, mut pool) = server(service, SocketAddr::new(family.ours, 7));
            let answers =
                exchange(&mut server, &mut pool, &family.inward().udp(4_000, 7, b"payload"));
            let mut expected = family.inward().reversed().udp(7, 4_000, b"payload");
            let checksum = expected.len() - b"payload".len() - 2;
            if service == UdpService::Echo(CopyPolicy::NoChecksum) && family.ours.is_ipv4() {
                expected[checksum..checksum + 2].fill(0);
            }
            assert_eq!(answers, [expected], "{service:?} {family:?}");
            let served =
                ServiceCounts { received: 1, bytes: 7, sent: 1, ..ServiceCounts::default() };
            assert_eq!(server.application.counts().collect::<Vec<_>>(), [served]);
            account(server.host.counters(), &pool);
        }
    }
}

/// RFC 1122 §4.1.3.5: however many addresses of one network the host has.
#[test]
fn answers_leave_from_the_requested_address() {
    for service in [UdpService::Mirror, UdpService::Echo(CopyPolicy::Fused)] {
        for (family, second) in Family::both().into_iter().zip(["192.0.2.77", "2001:db8::77"]) {
            let second = second.parse().unwrap();
            let mut host = IpHost::new(HostConfig::default(), Seed(1));
            let len = if family.ours.is_ipv4() { 24 } else { 64 };
            let interface = InterfaceConfig::ethernet(OUR_MAC, 1_500)
                .with_address(family.ours, len)
                .with_address(second, len);
            host.add_interface(&interface).unwrap();
            let mut application: UdpServices = UdpServices::default();
            let any = SocketAddr::new(crate::ip::unspecified_like(second), 7);
            application.open(&mut host, service, any, UdpOptions::default()).unwrap();
            let mut server = HostNode { host, application };
            let mut pool = Pool::new(PoolConfig::default());
            let question = HostFixture::question(family.peer, PEER_MAC);
            assert_eq!(exchange(&mut server, &mut pool, &question).len(), 1);
            for asked in [second, family.ours, second] {
                let path =
                    plumb_wire::compose::PacketTemplate { destination: asked, ..family.inward() };
                let answers = exchange(&mut server, &mut pool, &path.udp(4_000, 7, b"payload"));
                assert_eq!(answers, [path.reversed().udp(7, 4_000, b"payload")], "{service:?}");
            }
        }
    }
}

#[test]
fn discard_answers_nothing() {
    let [family, _] = Family::both();
    let (mut server, mut pool) = server(UdpService::Discard, SocketAddr::new(family.ours, 9));
    assert!(exchange(&mut server, &mut pool, &family.inward().udp(4_000, 9, b"gone")).is_empty());
    let served = ServiceCounts { received: 1, bytes: 4, ..ServiceCounts::default() };
    assert_eq!(server.application.take_counts(), served);
    assert_eq!(server.application.take_counts(), ServiceCounts::default());
    account(server.host.counters(), &pool);
}

#[test]
fn answering_ports_and_groups_are_not_answered() {
    let [family, _] = Family::both();
    let (mut server, mut pool) = server(UdpService::Mirror, "0.0.0.0:1997".parse().unwrap());
    let everybody = family.inward();
    let everybody = plumb_wire::compose::PacketTemplate {
        destination: "192.0.2.255".parse().unwrap(),
        link: everybody.link.map(|link| plumb_wire::compose::LinkTemplate {
            destination: MacAddr::BROADCAST,
            ..link
        }),
        ..everybody
    };
    for frame in [
        family.inward().udp(7, 1_997, b"echo"),
        family.inward().udp(1_997, 1_997, b"one like us"),
        everybody.udp(4_000, 1_997, b"all"),
    ] {
        assert!(exchange(&mut server, &mut pool, &frame).is_empty());
    }
    let served = server.application.take_counts();
    assert_eq!((served.received, served.from_service, served.to_group), (3, 2, 1));
    account(server.host.counters(), &pool);
}

#[test]
fn swap_returns_datagrams_and_leaves_the_rest() {
    for family in Family::both() {
        let (host, mut pool) = acquainted();
        let mut swap = HostNode { host, application: SwapMirror::new(7) };
        let frame = family.inward().udp(4_000, 7, b"payload");
        let expected = family.inward().reversed().udp(7, 4_000, b"payload");
        assert_eq!(exchange(&mut swap, &mut pool, &frame), [expected]);
        let echo = exchange(&mut swap, &mut pool, &family.inward().echo_request(1, 1, b""));
        assert_eq!(echo, [family.inward().reversed().echo_reply(1, 1, b"")]);
        account(swap.host.counters(), &pool);
        let counters = swap.host.counters();
        assert_eq!(
            (counters.value(CounterId::UdpSwapped), counters.value(CounterId::EchoAnswered)),
            (1, 1)
        );
        let other_port = family.inward().udp(4_000, 8, b"payload");
        exchange(&mut swap, &mut pool, &other_port);
        assert_eq!(swap.host.counters().value(CounterId::UdpNoSocket), 1);
    }
}
