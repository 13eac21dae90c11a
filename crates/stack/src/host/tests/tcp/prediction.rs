//! Header prediction of segments: a host that predicts does as one that does not.

use plumb_wire::packet::ChecksumState;

use super::super::prediction::{forget, frame_fate, is_predicted, make_sound};
use super::*;

/// Segments until a flow is known.
const LEARNING: u32 = 2;

/// The byte at `at` of a segment changed, or the segment cut short.
fn changed(good: &[u8], at: usize, change: u8) -> Vec<u8> {
    let mut frame = good.to_vec();
    match frame.get_mut(at) {
        Some(byte) => *byte ^= change,
        None => frame.truncate(good.len().saturating_sub(change.into())),
    }
    frame
}

#[test]
fn prediction_never_changes_what_a_segment_does() {
    let (plain, verified) = (ChecksumState::Plain, ChecksumState::Verified);
    for family in Family::both() {
        let len = connected(family).1.frame(ACK, b"eighteen bytes, ok").len();
        for at in 0..=len {
            for change in [0x01, 0x02, 0x10, 0x40, 0x80, 0xff] {
                let (mut predicting, mut peer, id) = connected(family);
                let (mut general, ..) = connected(family);
                for step in 0..LEARNING + 3 {
                    let good = peer.frame(ACK, b"eighteen bytes, ok");
                    if step == LEARNING {
                        assert!(is_predicted(&mut predicting, &good));
                    }
                    let (frame, state) = match step.checked_sub(LEARNING) {
                        Some(0) => (changed(&good, at, change), plain),
                        Some(1) => {
                            let mut frame = changed(&good, at, change);
                            make_sound(&mut frame, 14);
                            (frame, verified)
                        }
                        _ => (good, plain),
                    };
                    forget(&mut general);
                    let fates = [&mut predicting, &mut general].map(|bench| {
                        let fate = frame_fate(bench, &frame, state);
                        let mut read = [0; 100];
                        let read = bench.host.tcp_receive(bench.now, id, &mut read).map(|_| read);
                        (fate, read, bench.host.tcp_state(id), bench.host.poll_tcp_event())
                    });
                    assert_eq!(fates[0], fates[1], "byte {at} changed by {change:#x}, {step}");
                    if step < LEARNING {
                        peer.seq += 18;
                    }
                }
                predicting.account();
            }
        }
    }
}

#[test]
fn flow_of_a_closed_connection_is_received_as_any_other() {
    for family in Family::both() {
        let (mut bench, mut peer, id) = connected(family);
        for _ in 0..LEARNING {
            bench.give(&peer.frame(ACK, b"data"));
            peer.seq += 4;
        }
        bench.take();
        let next = peer.frame(ACK, b"data");
        assert!(is_predicted(&mut bench, &next));
        bench.host.tcp_abort(bench.now, id);
        bench.take();
        let reset = only(&bench.exchange(&next)).header;
        assert_eq!(reset.flags, RST, "nobody is there");
    }
}

#[test]
fn run_of_predicted_segments_is_told_once_and_acknowledged_once() {
    for family in Family::both() {
        let (mut bench, mut peer, id) = connected(family);
        for _ in 0..LEARNING {
            bench.give(&peer.frame(ACK, b"data"));
            peer.seq += 4;
        }
        bench.take();
        while bench.host.poll_tcp_event().is_some() {}
        let mut batch = Vec::new();
        for _ in 0..20 {
            let frame = peer.frame(ACK, &[5; 1_000]);
            batch.push(bench.pool.packet_of(&frame).unwrap());
            peer.seq += 1_000;
        }
        bench.host.handle_packets(bench.now, PORT, &mut batch, &mut bench.pool);
        let events: Vec<_> = std::iter::from_fn(|| bench.host.poll_tcp_event()).collect();
        assert_eq!(events, [TcpEvent::Readable(id)]);
        assert_eq!(only(&bench.take()).header.ack, peer.seq);
    }
}
