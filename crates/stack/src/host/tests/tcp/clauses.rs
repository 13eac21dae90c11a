//! Clauses of RFC 9293 about what an application may ask for and is told.

use super::*;

// MUST-42.
#[test]
fn port_can_be_listened_at_while_a_connection_from_it_opens() {
    for family in Family::both() {
        for crossed in [false, true] {
            let mut bench = HostFixture::new();
            bench.introduce(family.peer, PEER_MAC);
            let local = SocketAddr::new(family.ours, 80);
            let remote = SocketAddr::new(family.peer, 7_000);
            let config = TcpConfig::default();
            let opening =
                bench.host.tcp_connect(bench.now, local, remote, config.clone(), &bench.pool);
            let opening = opening.unwrap();
            bench.take();
            if crossed {
                bench.exchange(&RawPeer::new(family, 7_000).syn());
            }
            let state = if crossed { TcpState::SynReceived } else { TcpState::SynSent };
            let listener = bench.host.tcp_listen(local, 8, config).unwrap();
            RawPeer::new(family, 9_000).open(&mut bench);
            assert!(bench.host.tcp_accept(listener).is_some());
            assert_eq!(bench.host.tcp_state(opening), Some(state));
            bench.account();
        }
    }
}

// MUST-43.
#[test]
fn connection_has_the_local_address_that_is_asked_for() {
    for family in Family::both() {
        let mut bench = HostFixture::new();
        let interface = InterfaceConfig::ethernet(OUR_MAC, 1_500)
            .with_address(family.ours, 24)
            .with_address(family.absent, 24);
        bench.host = IpHost::new(HostConfig::default(), Seed(1));
        bench.host.add_interface(&interface).unwrap();
        bench.introduce(family.peer, PEER_MAC);
        for own in [family.ours, family.absent] {
            let (local, remote) = (SocketAddr::new(own, 0), SocketAddr::new(family.peer, 80));
            let config = TcpConfig::default();
            bench.host.tcp_connect(bench.now, local, remote, config, &bench.pool).unwrap();
            let [syn] = bench.take().try_into().unwrap();
            match own {
                IpAddr::V4(own) => assert_eq!(syn[26..30], own.octets()),
                IpAddr::V6(own) => assert_eq!(syn[22..38], own.octets()),
            }
        }
        let (local, remote) =
            (SocketAddr::new(family.foreign, 0), SocketAddr::new(family.peer, 80));
        let refused =
            bench.host.tcp_connect(bench.now, local, remote, TcpConfig::default(), &bench.pool);
        assert_eq!(refused, Err(TcpOpenError::NotLocal(family.foreign)));
    }
}

// MUST-58, MUST-59.
#[test]
fn segments_received_together_are_acknowledged_once() {
    for family in Family::both() {
        let (mut bench, mut peer, _) = connected(family);
        let mut batch = Vec::new();
        for _ in 0..6 {
            let frame = peer.frame(ACK, &[7; 1_000]);
            batch.push(bench.pool.packet_of(&frame).unwrap());
            peer.seq += 1_000;
        }
        bench.host.handle_packets(bench.now, PORT, &mut batch, &mut bench.pool);
        let [ack] = heard(&bench.take()).try_into().expect("one acknowledgement");
        assert_eq!(ack.header.ack, peer.seq);
    }
}

// MUST-47.
#[test]
fn soft_error_is_told_until_the_peer_answers() {
    for family in Family::both() {
        let (mut bench, mut peer, id) = connected(family);
        bench.host.tcp_send(bench.now, id, b"data").unwrap();
        let [data] = bench.take().try_into().unwrap();
        let soft = |bench: &HostFixture| bench.host.tcp_info(id).unwrap().soft_error;
        assert_eq!(soft(&bench), None);
        bench.give(&error(family, IcmpMessage::TimeExceeded { code: 0 }, &data));
        assert_eq!(soft(&bench), Some(DeliveryFailureKind::HopLimit));
        assert_eq!(bench.host.tcp_error(id), None);
        peer.hear(&Heard::of(&data));
        bench.give(&peer.frame(ACK, b""));
        assert_eq!(soft(&bench), None);
        bench.account();
    }
}

/// As Linux: what the network said is the reason, where it said something.
#[test]
fn connection_that_times_out_names_the_last_soft_error() {
    for family in Family::both() {
        let (mut bench, _, id) = connected(family);
        bench.host.tcp_send(bench.now, id, b"data").unwrap();
        let [data] = bench.take().try_into().unwrap();
        bench.give(&error(family, IcmpMessage::TimeExceeded { code: 0 }, &data));
        let change = |config: &mut TcpConfig| config.user_timeout = Some(Span::from_secs(2));
        bench.host.tcp_reconfigure(bench.now, id, change).unwrap();
        for _ in 0..20 {
            bench.pass(Span::from_ms(500));
            bench.take();
        }
        let expected = TcpSocketError::Unreachable(DeliveryFailureKind::HopLimit);
        assert_eq!(bench.host.tcp_error(id), Some(expected));
    }
}
