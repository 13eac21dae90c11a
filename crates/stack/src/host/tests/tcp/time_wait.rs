//! Ends in TIME-WAIT.

use super::*;

/// A connection that we closed first, both ways: its ends are in TIME-WAIT. The peer's FIN.
fn closed(family: Family, config: TcpConfig) -> (HostFixture, RawPeer, Vec<u8>) {
    let (mut bench, listener) = listening_with(family, 8, config);
    let mut peer = RawPeer::new(family, 9_000).stamped();
    peer.open(&mut bench);
    let id = bench.host.tcp_accept(listener).unwrap();
    bench.host.tcp_close(bench.now, id);
    peer.hear(&only(&bench.take()));
    let fin = peer.frame(ACK | FIN, b"");
    peer.seq += 1;
    assert_eq!(only(&bench.exchange(&fin)).header.ack, peer.seq);
    assert_eq!((counts(&bench).connections, counts(&bench).time_wait), (0, 1));
    (bench, peer, fin)
}

// MUST-13.
#[test]
fn repeated_fin_is_acknowledged_and_starts_the_time_anew() {
    for family in Family::both() {
        let (mut bench, peer, fin) = closed(family, TcpConfig::default());
        pass(&mut bench, family, Span::from_secs(50));
        let ack = only(&bench.exchange(&fin)).header;
        assert_eq!((ack.seq, ack.ack, ack.flags), (peer.ack, peer.seq, ACK));
        bench.pass(Span::from_secs(59));
        assert_eq!(counts(&bench).time_wait, 1);
        bench.pass(Span::from_secs(1));
        assert_eq!(counts(&bench).time_wait, 0);
        bench.finish();
    }
}

/// RFC 1337 and RFC 7323 §5.
#[test]
fn old_segments_are_not_taken_for_those_of_another_connection() {
    for family in Family::both() {
        let (mut bench, peer, _) = closed(family, TcpConfig::default());
        bench.drops(&peer.frame(RST, b""), CounterId::TcpSuspicious);
        bench.drops(&peer.frame(TcpFlags::NONE, b"x"), CounterId::TcpNoAck);
        let older = RawPeer { timestamps: Some((4_000, 0)), ..peer };
        let behind = RawPeer { seq: peer.seq - 1, timestamps: None, ..peer };
        let equal = RawPeer { seq: peer.seq - 1, ..peer };
        for (frame, counter) in [
            (older.frame(ACK, b"x"), CounterId::TcpOldTimestamp),
            (RawPeer { seq: peer.seq + 9, ..older }.syn(), CounterId::TcpOldTimestamp),
            (behind.syn(), CounterId::TcpSuspicious),
            (equal.syn(), CounterId::TcpSuspicious),
            (peer.frame(ACK, b"x"), CounterId::TcpOutOfWindow),
        ] {
            let before = bench.count(counter);
            let ack = only(&bench.exchange(&frame)).header;
            assert_eq!((ack.seq, ack.ack, ack.flags), (peer.ack, peer.seq, ACK), "{counter:?}");
            assert_eq!(bench.count(counter), before + 1);
        }
        assert!(bench.exchange(&peer.frame(ACK, b"")).is_empty(), "nothing to be said");
        assert_eq!(counts(&bench).time_wait, 1);
        bench.finish();
    }
}

/// RFC 9293 §3.10.7.4 and RFC 6191 §2.
#[test]
fn syn_with_a_later_timestamp_or_number_opens_a_connection() {
    for family in Family::both() {
        let later = |peer: RawPeer| RawPeer {
            seq: peer.seq.wrapping_sub(50_000),
            timestamps: Some((5_001, 0)),
            ..peer
        };
        let beyond = |peer: RawPeer| RawPeer { seq: peer.seq + 1, timestamps: None, ..peer };
        let both: [&dyn Fn(RawPeer) -> RawPeer; 2] = [&later, &beyond];
        for next in both {
            let (mut bench, peer, _) = closed(family, TcpConfig::default());
            let next = next(peer);
            let syn_ack = only(&bench.exchange(&next.syn())).header;
            assert_eq!((syn_ack.flags, syn_ack.ack), (SYN | ACK, next.seq.wrapping_add(1)));
            let distance = syn_ack.seq.wrapping_sub(peer.ack).cast_signed();
            assert!(distance > 0, "numbers go on: {distance}");
            let expected = TcpCounts { listeners: 1, half_open: 1, ..TcpCounts::default() };
            assert_eq!(counts(&bench), expected);
            bench.finish();
        }
    }
}

#[test]
fn oldest_record_makes_room() {
    let [family, _] = Family::both();
    let tcp = TcpLimits { time_wait: 4, ..TcpLimits::default() };
    let mut bench = HostFixture::with(HostConfig { tcp, ..HostConfig::default() });
    bench.introduce(family.peer, PEER_MAC);
    let local = SocketAddr::new(family.ours, 80);
    let listener = bench.host.tcp_listen(local, 8, TcpConfig::default()).unwrap();
    let mut fins = Vec::new();
    for port in 9_000..9_010 {
        let mut peer = RawPeer::new(family, port);
        peer.open(&mut bench);
        let id = bench.host.tcp_accept(listener).unwrap();
        bench.host.tcp_close(bench.now, id);
        peer.hear(&only(&bench.take()));
        fins.push(peer.frame(ACK | FIN, b""));
        bench.exchange(&fins[fins.len() - 1]);
        assert!(counts(&bench).time_wait <= 4);
        bench.pass(Span::from_ms(1));
    }
    assert_eq!(bench.count(CounterId::TcpTimeWaitEvicted), 6);
    let answers: Vec<bool> =
        fins.iter().map(|fin| only(&bench.exchange(fin)).header.flags == ACK).collect();
    let kept = [[false; 6].as_slice(), &[true; 4]].concat();
    assert_eq!(answers, kept, "others are answered with a RST");
    bench.finish();
}

#[test]
fn data_outlive_their_connection() {
    for family in Family::both() {
        let (mut bench, mut peer, id) = connected(family);
        bench.host.tcp_shutdown(bench.now, id).unwrap();
        peer.hear(&only(&bench.take()));
        bench.give(&peer.frame(ACK | FIN, b"last words"));
        bench.take();
        assert_eq!(bench.host.tcp_state(id), Some(TcpState::TimeWait));
        bench.pass(Span::from_secs(100));
        assert_eq!(counts(&bench).time_wait, 0);
        assert_eq!(bench.host.tcp_state(id), Some(TcpState::Closed));
        let mut out = [0; 20];
        assert_eq!(bench.host.tcp_receive(bench.now, id, &mut out), Ok(Received::Data(10)));
        assert_eq!(bench.host.tcp_receive(bench.now, id, &mut out), Ok(Received::End));
        bench.host.tcp_close(bench.now, id);
        let gone = bench.host.tcp_receive(bench.now, id, &mut out);
        assert_eq!((gone, counts(&bench).connections), (Err(TcpSocketError::Closed), 0));
        while bench.host.poll_tcp_event().is_some() {}
        bench.finish();
    }
}
