//! Connections that open to a listener, with and without a record.

use super::*;

/// A SYN as Linux sends it: MSS 1460, SACK, timestamps, window scale 7.
const OPTIONS: [u8; 10] = [2, 4, 5, 180, 4, 2, 3, 3, 7, 1];

// MUST-14, MUST-67.
#[test]
fn handshake_agrees_on_what_both_offer() {
    for family in Family::both() {
        let (mut bench, _) = listening(family, 8);
        let peer = RawPeer::new(family, 9_000).stamped();
        let full = only(&bench.exchange(&peer.frame_with(SYN, &OPTIONS, &[])));
        let options = full.options();
        assert_eq!((full.header.flags, full.header.ack), (SYN | ACK, IRS + 1));
        let mss = if family.ours.is_ipv4() { 1_460 } else { 1_440 };
        assert_eq!(options.mss, Some(mss));
        assert!(options.sack_permitted && options.window_scale == Some(7));
        assert_eq!(options.timestamps.map(|(_, echo)| echo), Some(5_000));
        let bare = only(&bench.exchange(&RawPeer::new(family, 9_001).syn()));
        assert_eq!(bare.options(), SegmentOptions { mss: Some(mss), ..SegmentOptions::default() });
        bench.finish();
    }
}

// MUST-18.
#[test]
fn repeated_syn_is_answered_with_the_same_syn_ack_and_no_time_is_measured() {
    for family in Family::both() {
        for repeats in [false, true] {
            let (mut bench, listener) = listening(family, 8);
            let mut peer = RawPeer::new(family, 9_000);
            let first = only(&bench.exchange(&peer.syn()));
            bench.pass(Span::from_ms(300));
            if repeats {
                let again = only(&bench.exchange(&peer.syn()));
                assert_eq!(first.header, again.header);
                assert_eq!(counts(&bench).half_open, 1);
            }
            peer.hear(&first);
            peer.seq += 1;
            bench.give(&peer.frame(ACK, b""));
            let id = bench.host.tcp_accept(listener).unwrap();
            let measured = Some(Span::from_ms(300)).filter(|_| !repeats);
            assert_eq!(bench.host.tcp_info(id).unwrap().srtt, measured);
        }
    }
}

/// RFC 9293 §3.10.7.4, and RFC 5961 §3.2 of RSTs.
// MUST-11.
#[test]
fn half_open_connection_accepts_only_what_fits() {
    for family in Family::both() {
        let (mut bench, listener) = listening(family, 8);
        let mut peer = RawPeer::new(family, 9_000).stamped();
        let syn_ack = only(&bench.exchange(&peer.syn()));
        peer.hear(&syn_ack);
        peer.seq += 1;
        // An acknowledgement of what was never sent.
        let wild = RawPeer { ack: peer.ack.wrapping_add(1), ..peer };
        let reset = only(&bench.exchange(&wild.frame(ACK, b""))).header;
        assert_eq!((reset.seq, reset.flags), (wild.ack, RST));
        // Outside of the window, a RST not at its left edge, an old timestamp: an acknowledgement.
        let far = RawPeer { seq: peer.seq.wrapping_add(100_000), ..peer };
        let near = RawPeer { seq: peer.seq + 1, ..peer };
        let old = RawPeer { timestamps: Some((4_999, 0)), ..peer };
        for (frame, counter) in [
            (far.frame(ACK, b""), CounterId::TcpOutOfWindow),
            (near.frame(RST, b""), CounterId::TcpSuspicious),
            (old.frame(ACK, b""), CounterId::TcpOldTimestamp),
        ] {
            let challenge = only(&bench.exchange(&frame)).header;
            assert_eq!((challenge.seq, challenge.ack), (peer.ack, peer.seq), "{counter:?}");
            assert_eq!((challenge.flags, bench.count(counter)), (ACK, 1));
        }
        bench.drops(&far.frame(RST, b""), CounterId::TcpOutOfWindow);
        bench.drops(&peer.frame(TcpFlags::NONE, b"x"), CounterId::TcpNoAck);
        assert_eq!((counts(&bench).half_open, bench.host.tcp_accept(listener)), (1, None));
        // And what fits ends it.
        assert!(bench.exchange(&peer.frame(RST, b"")).is_empty());
        assert_eq!(counts(&bench).half_open, 0);
        bench.finish();
    }
}

#[test]
fn data_that_complete_the_handshake_are_received() {
    for family in Family::both() {
        let (mut bench, listener) = listening(family, 8);
        let mut peer = RawPeer::new(family, 9_000).stamped();
        peer.hear(&only(&bench.exchange(&peer.syn())));
        peer.seq += 1;
        bench.give(&peer.frame(ACK | FIN, b"request"));
        assert_eq!(bench.host.poll_tcp_event(), Some(TcpEvent::Acceptable(listener)));
        assert_eq!(bench.host.poll_tcp_event(), None);
        let id = bench.host.tcp_accept(listener).unwrap();
        assert_eq!(bench.host.poll_tcp_event(), Some(TcpEvent::Readable(id)));
        let mut out = [0; 10];
        let received = bench.host.tcp_receive(bench.now, id, &mut out);
        assert_eq!((received, &out[..7]), (Ok(Received::Data(7)), &b"request"[..]));
        assert_eq!(bench.host.tcp_receive(bench.now, id, &mut out), Ok(Received::End));
        assert_eq!(only(&bench.take()).header.ack, peer.seq + 8);
        bench.account();
    }
}

// MUST-22, MUST-23.
#[test]
fn syn_ack_is_repeated_with_back_off_and_given_up() {
    let [family, _] = Family::both();
    let (mut bench, _) = listening(family, 8);
    let start = bench.now;
    bench.give(&RawPeer::new(family, 9_000).syn());
    let mut times = Vec::new();
    while let Some(at) = bench.host.deadline() {
        bench.give(&HostFixture::question(family.peer, PEER_MAC));
        let sent = heard(&bench.take()).len();
        times.extend(vec![bench.now.saturating_since(start).as_ps(); sent]);
        bench.now = at;
        bench.host.handle_deadline(at, &mut bench.pool);
    }
    let seconds: Vec<u64> = times.iter().map(|ps| ps / 1_000_000_000_000).collect();
    assert_eq!(seconds, [0, 1, 3, 7, 15, 31]);
    assert_eq!(bench.now, start + Span::from_secs(63));
    let expected = TcpCounts { listeners: 1, ..TcpCounts::default() };
    assert_eq!((counts(&bench), bench.count(CounterId::TcpHalfOpenTimeout)), (expected, 1));
    bench.finish();
}

// MUST-11.
#[test]
fn closed_listener_resets_what_was_opening() {
    for family in Family::both() {
        let (mut bench, listener) = listening(family, 8);
        let mut waiting = RawPeer::new(family, 9_000);
        waiting.open(&mut bench);
        let mut half_open = RawPeer::new(family, 9_001);
        half_open.hear(&only(&bench.exchange(&half_open.syn())));
        half_open.seq += 1;
        bench.host.tcp_close_listener(bench.now, listener);
        let reset = only(&bench.take()).header;
        assert_eq!((reset.destination_port, reset.seq), (9_000, waiting.ack));
        assert!(reset.flags.contains(RST));
        let reset = only(&bench.exchange(&half_open.frame(ACK, b""))).header;
        assert_eq!((reset.destination_port, reset.flags), (9_001, RST));
        assert_eq!(counts(&bench), TcpCounts::default());
        bench.pass(Span::from_secs(100));
        bench.finish();
    }
}

/// Sends SYNs of as many peers, each answered once.
fn flood(bench: &mut HostFixture, family: Family, count: u32) {
    for number in 0..count {
        if number % 10_000 == 0 {
            bench.introduce(family.peer, PEER_MAC);
        }
        let port = u16::try_from(number % 60_000).unwrap() + 1;
        let other = RawPeer { seq: number.wrapping_mul(100_003), ..RawPeer::new(family, port) };
        assert_eq!(bench.exchange(&other.syn()).len(), 1);
        bench.pass(Span::from_us(100));
        // SYN-ACKs that were due again.
        bench.take();
    }
}

/// RFC 4987.
#[test]
fn flood_of_syns_takes_no_memory_and_leaves_honest_clients_served() {
    for family in Family::both() {
        let (mut bench, listener) = listening(family, 64);
        flood(&mut bench, family, 100_000);
        assert!(counts(&bench).half_open <= 64 && counts(&bench).connections == 0);
        assert!(bench.count(CounterId::TcpCookieSent) > 90_000);
        for mut peer in [RawPeer::new(family, 60_001), RawPeer::new(family, 60_002).stamped()] {
            let options = if peer.timestamps.is_some() { &OPTIONS[..] } else { &OPTIONS[..4] };
            let syn_ack = only(&bench.exchange(&peer.frame_with(SYN, options, &[])));
            peer.hear(&syn_ack);
            peer.seq += 1;
            pass(&mut bench, family, Span::from_secs(1));
            bench.give(&peer.frame(ACK, b"honest"));
            let id = bench.host.tcp_accept(listener).expect("served");
            let mut out = [0; 10];
            assert_eq!(bench.host.tcp_receive(bench.now, id, &mut out), Ok(Received::Data(6)));
            let info = bench.host.tcp_info(id).unwrap();
            let stamped = peer.timestamps.is_some();
            assert_eq!(info.options, (stamped, stamped, false), "agreed in a cookie");
            assert_eq!(info.window_scale, stamped.then_some((7, 7)));
            let headers = if family.ours.is_ipv4() { 40 } else { 60 };
            assert_eq!(info.mss, 1_500 - headers - if stamped { 12 } else { 0 });
            bench.take();
            bench.host.tcp_abort(bench.now, id);
            bench.take();
        }
        assert_eq!(bench.count(CounterId::TcpCookieAccepted), 2);
        bench.account();
    }
}

#[test]
fn forged_acknowledgement_opens_nothing() {
    let [family, _] = Family::both();
    let (mut bench, listener) = listening(family, 1);
    let mut peer = RawPeer::new(family, 61_000);
    // Without a flood there are no cookies, right or wrong.
    peer.ack = 0x1234_5678;
    assert!(only(&bench.exchange(&peer.frame(ACK, b""))).header.flags.contains(RST));
    flood(&mut bench, family, 10);
    peer.hear(&only(&bench.exchange(&peer.syn())));
    peer.seq += 1;
    for (seq, ack) in [(0, 1), (1, 0), (0, 1 << 24), (0, 1 << 27)] {
        let (seq, ack) = (peer.seq.wrapping_add(seq), peer.ack.wrapping_add(ack));
        let forged = RawPeer { seq, ack, ..peer };
        assert!(only(&bench.exchange(&forged.frame(ACK, b""))).header.flags.contains(RST));
    }
    pass(&mut bench, family, Span::from_secs(130));
    let late = only(&bench.exchange(&peer.frame(ACK, b""))).header;
    assert!(late.flags.contains(RST), "a cookie is worth nothing after two minutes");
    assert_eq!(bench.host.tcp_accept(listener), None);
    bench.finish();
}

// MUST-4, MUST-5, MUST-6, MUST-64.
#[test]
fn unknown_options_are_skipped_at_any_alignment() {
    for family in Family::both() {
        let (mut bench, listener) = listening(family, 8);
        let mut peer = RawPeer::new(family, 9_000);
        let odd = [1, 253, 3, 9, 2, 4, 2, 88, 253, 2, 4, 2];
        let syn_ack = only(&bench.exchange(&peer.frame_with(SYN, &odd, &[])));
        assert!(syn_ack.options().sack_permitted);
        peer.hear(&syn_ack);
        peer.seq += 1;
        bench.give(&peer.frame_with(ACK, &odd, b"data"));
        let id = bench.host.tcp_accept(listener).unwrap();
        let info = bench.host.tcp_info(id).unwrap();
        assert_eq!((info.mss, info.readable), (600, 4));
    }
}

// MUST-7, MUST-15, MUST-65.
#[test]
fn illegal_option_is_survived_and_the_default_size_used() {
    for family in Family::both() {
        for illegal in [[2, 0, 1, 1], [2, 1, 5, 180], [2, 60, 5, 180], [1, 1, 1, 2]] {
            let (mut bench, listener) = listening(family, 8);
            let mut peer = RawPeer::new(family, 9_000);
            let syn_ack = only(&bench.exchange(&peer.frame_with(SYN, &illegal, &[])));
            peer.hear(&syn_ack);
            peer.seq += 1;
            bench.give(&peer.frame_with(ACK, &illegal, b""));
            let id = bench.host.tcp_accept(listener).unwrap();
            let default = if family.ours.is_ipv4() { 536 } else { 1_220 };
            assert_eq!(bench.host.tcp_info(id).unwrap().mss, default);
            bench.host.tcp_send(bench.now, id, b"data").unwrap();
            assert_eq!(only(&bench.take()).options().mss, None, "only a SYN has it");
        }
    }
}

#[test]
fn without_cookies_a_full_listener_drops_further_syns() {
    for family in Family::both() {
        let config = TcpConfig { syn_cookies: false, ..TcpConfig::default() };
        let (mut bench, _) = listening_with(family, 64, config);
        for port in 1..=100 {
            let answers = bench.exchange(&RawPeer::new(family, port).syn());
            assert_eq!(answers.len(), usize::from(port <= 64), "SYN {port}");
        }
        assert_eq!(bench.count(CounterId::TcpSynQueueFull), 36);
        assert_eq!(bench.count(CounterId::TcpCookieSent), 0);
        bench.account();
    }
}
