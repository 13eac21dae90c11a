//! Whole streams of datagrams over loopback, some through a relay that does to them what is known.
#![expect(clippy::unwrap_used, reason = "a test whose sockets fail has failed")]

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use plumb_base::time::Span;
use plumb_base::units::Rate;
use plumb_net::measure::datagram;
use plumb_net::measure::datagram::receiver::{
    DatagramProgress, ReceiverConfig, ReceiverReport, prepare, receive,
};
use plumb_net::measure::datagram::sender::{
    DatagramSendError, DatagramSendPlan, SenderReport, send,
};
use plumb_remote::datagram_header::{TestDatagramHeader, TestDatagramKind, TestToken};
use plumb_result::net::ReceiveEnding;

const TOKEN: TestToken = TestToken(*b"sixteen bytes ok");

fn plan(datagram_bytes: usize, megabits: Option<u64>, ms: u64) -> DatagramSendPlan {
    DatagramSendPlan {
        token: TOKEN,
        stream: 1,
        datagram_bytes,
        rate: megabits.and_then(|rate| Rate::from_bits_per_second(rate * 1_000_000)),
        duration: Span::from_ms(ms),
        segmentation: true,
    }
}

fn socket(at: &str) -> UdpSocket {
    UdpSocket::bind(at).unwrap()
}

fn pair() -> (UdpSocket, UdpSocket) {
    let (near, far) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
    near.connect(far.local_addr().unwrap()).unwrap();
    (near, far)
}

/// Sends from `near`, connected to wherever, and receives at `far`.
fn stream(
    near: &UdpSocket,
    far: &UdpSocket,
    plan: &DatagramSendPlan,
) -> (SenderReport, ReceiverReport) {
    let expectation = ReceiverConfig::new(TOKEN, 1, plan.rate, Span::from_secs(60));
    let prepared = prepare(far, &expectation).unwrap();
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            receive(far, prepared, &expectation, &DatagramProgress::default(), &|| Some(0))
        });
        let sent = send(near, plan, &DatagramProgress::default()).unwrap();
        assert!(sent.error.is_none(), "{sent:?}");
        (sent.report, receiving.join().unwrap().unwrap())
    })
}

#[test]
fn a_rate_that_loopback_carries_loses_nothing_in_either_family_at_any_batch() {
    for (at, bytes, megabits) in [
        ("127.0.0.1:0", 1400, 10),
        ("[::1]:0", 1200, 200),
        ("127.0.0.1:0", 1448, 1500),
        ("127.0.0.1:0", 40, 5),
        ("[::1]:0", 9000, 300),
    ] {
        let (near, far) = (socket(at), socket(at));
        near.connect(far.local_addr().unwrap()).unwrap();
        let (sent, came) = stream(&near, &far, &plan(bytes, Some(megabits), 100));
        let context = format!("{at} {bytes} {megabits}: {sent:?}");
        // Only a stream that is half a second behind its schedule is cut.
        let is_overdue = sent.end_ns - sent.start_ns > 600_000_000;
        assert!(sent.planned == Some(sent.count) || is_overdue, "{context}");
        assert_eq!(
            (sent.refused, came.tally.unique, came.tally.lost),
            (0, sent.count, 0),
            "{context}"
        );
        assert_eq!((came.tally.duplicates, came.tally.reordered, came.foreign), (0, 0, 0));
        assert_eq!((came.count, came.ending), (Some(sent.count), ReceiveEnding::Complete));
        assert_eq!(came.bytes, sent.count * u64::try_from(bytes).unwrap());
        assert!(sent.end_heard, "{context}");
        assert!(came.trace.least.unwrap().transit_ns > 0, "one clock: no time runs backwards");
    }
}

#[test]
fn what_is_sent_faster_than_it_is_read_is_lost_in_the_receivers_buffer_and_nowhere_else() {
    let (near, far) = pair();
    let plan = DatagramSendPlan { segmentation: false, ..plan(64, None, 200) };
    let (sent, came) = stream(&near, &far, &plan);
    let located = datagram::locate(&sent, &came);
    assert!(sent.count > 0 && sent.planned.is_none());
    assert_eq!(located.receiver_buffer + came.tally.unique, sent.count);
    assert_eq!((located.path, located.sender_queue), (0, 0), "{located:?}");
    // Each drop is one datagram where none are joined.
    assert_eq!(came.overflow, located.receiver_buffer);
}

/// What the relay did.
#[derive(Debug, Default)]
struct RelayActions {
    dropped: u64,
    doubled: u64,
    swapped: u64,
}

/// Passes on what comes to `relay` to `far`: drops every tenth, doubles every seventh, and swaps every
/// thirteenth with the next. Answers go back.
fn pass_on(relay: &UdpSocket, far: &UdpSocket, stop: &AtomicBool) -> RelayActions {
    let (mut deeds, mut held, mut near) = (RelayActions::default(), None::<Vec<u8>>, None);
    let out = socket("127.0.0.1:0");
    out.connect(far.local_addr().unwrap()).unwrap();
    out.set_nonblocking(true).unwrap();
    relay.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let mut buffer = [0; 2000];
    while !stop.load(Ordering::Relaxed) {
        while let Ok(len) = out.recv(&mut buffer) {
            relay.send_to(&buffer[..len], near.unwrap()).unwrap();
        }
        let Ok((len, from)) = relay.recv_from(&mut buffer) else { continue };
        near = Some(from);
        let bytes = &buffer[..len];
        let header = TestDatagramHeader::read(&TOKEN, bytes).unwrap();
        if header.kind != TestDatagramKind::Data {
            held.take().map_or(Ok(0), |held: Vec<u8>| out.send(&held)).unwrap();
            out.send(bytes).unwrap();
            continue;
        }
        match header.sequence {
            number if number % 10 == 3 => deeds.dropped += 1,
            number if number % 13 == 5 && held.is_none() => held = Some(bytes.to_vec()),
            number => {
                out.send(bytes).unwrap();
                if let Some(held) = held.take() {
                    out.send(&held).unwrap();
                    deeds.swapped += 1;
                }
                if number % 7 == 0 {
                    out.send(bytes).unwrap();
                    deeds.doubled += 1;
                }
            }
        }
    }
    deeds
}

#[test]
fn a_relay_that_drops_doubles_and_swaps_is_told_exactly() {
    let (near, relay, far) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"), socket("127.0.0.1:0"));
    near.connect(relay.local_addr().unwrap()).unwrap();
    let stop = AtomicBool::new(false);
    let (sent, came, deeds) = std::thread::scope(|scope| {
        let relaying = scope.spawn(|| pass_on(&relay, &far, &stop));
        // Few enough to fit the relay's receive buffer while it waits for a CPU.
        let (sent, came) = stream(&near, &far, &plan(160, Some(2), 160));
        stop.store(true, Ordering::Relaxed);
        (sent, came, relaying.join().unwrap())
    });
    assert_eq!(sent.count, 250);
    let tally = &came.tally;
    assert_eq!((tally.lost, tally.duplicates), (deeds.dropped, deeds.doubled), "{tally:?}");
    assert_eq!((tally.reordered, tally.beyond_window), (deeds.swapped, 0));
    assert_eq!((tally.loss_runs, tally.loss_run_max), (deeds.dropped, 1));
    let located = datagram::locate(&sent, &came);
    assert_eq!(
        (located.sender_queue, located.path, located.receiver_buffer),
        (0, deeds.dropped, 0)
    );
    assert_eq!(came.ending, ReceiveEnding::Grace);
}

#[test]
fn what_the_senders_queue_dropped_later_is_not_lost_on_the_path() {
    let (near, far) = pair();
    let (mut sent, mut came) = stream(&near, &far, &plan(100, Some(1), 50));
    let count = came.tally.unique;
    (sent.count, sent.refused, came.overflow) = (count + 100, 10, 5);
    // How much its count grew, those refused included; and what is then lost there and on the path.
    for (grew, places) in
        [(None, (10, 85)), (Some(10), (10, 85)), (Some(70), (70, 25)), (Some(1_000), (95, 0))]
    {
        sent.queue_dropped = grew;
        let located = datagram::locate(&sent, &came);
        assert_eq!((located.sender_queue, located.path), places, "{grew:?}");
        assert_eq!(located.receiver_buffer, 5);
    }
}

#[test]
fn a_port_that_nobody_listens_on_ends_the_stream_with_its_name_and_what_was_sent() {
    let near = socket("127.0.0.1:0");
    let closed = socket("127.0.0.1:0").local_addr().unwrap();
    near.connect(closed).unwrap();
    let sent = send(&near, &plan(100, Some(10), 5000), &DatagramProgress::default()).unwrap();
    let Some(DatagramSendError::Unreachable { sent: count }) = sent.error else {
        panic!("{sent:?}")
    };
    let report = sent.report;
    assert!(count > 0 && report.count == count && report.count < report.planned.unwrap());
    assert!(report.cut_short && !report.end_heard && report.unreachable >= 64, "{report:?}");
}

#[test]
fn lengths_that_udp_does_not_carry_are_refused_before_anything_is_sent() {
    let near = socket("127.0.0.1:0");
    for bytes in [0, 39, 65_508] {
        let outcome = send(&near, &plan(bytes, Some(1), 10), &DatagramProgress::default());
        assert!(matches!(outcome, Err(DatagramSendError::Length { .. })), "{outcome:?}");
    }
}

#[test]
fn foreign_datagrams_are_counted_and_not_answered() {
    let (near, far) = pair();
    let unknown_client = socket("127.0.0.1:0");
    unknown_client.connect(far.local_addr().unwrap()).unwrap();
    let end =
        |token: &TestToken| TestDatagramHeader::of(TestDatagramKind::End, 1, 0, 0).to_bytes(token);
    unknown_client.send(&end(&TestToken(*b"another token..."))).unwrap();
    unknown_client.send(&[0; 3]).unwrap();
    let other_stream = TestDatagramHeader::of(TestDatagramKind::Data, 2, 0, 0).to_bytes(&TOKEN);
    unknown_client.send(&other_stream).unwrap();
    let (sent, came) = stream(&near, &far, &plan(100, Some(1), 100));
    assert_eq!((came.foreign, came.tally.unique), (3, sent.count));
    unknown_client.set_nonblocking(true).unwrap();
    let silence = unknown_client.recv(&mut [0; 64]).unwrap_err();
    assert_eq!(silence.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn a_sender_that_vanishes_leaves_a_report_of_what_came() {
    let (near, far) = pair();
    for sequence in [0, 1, 4] {
        near.send(&TestDatagramHeader::of(TestDatagramKind::Data, 1, sequence, 0).to_bytes(&TOKEN))
            .unwrap();
    }
    let idle = Span::from_ms(50);
    let expectation =
        ReceiverConfig { idle, ..ReceiverConfig::new(TOKEN, 1, None, Span::from_secs(60)) };
    let prepared = prepare(&far, &expectation).unwrap();
    let came =
        receive(&far, prepared, &expectation, &DatagramProgress::default(), &|| Some(0)).unwrap();
    assert_eq!((came.ending, came.count), (ReceiveEnding::Idle, None));
    assert_eq!((came.tally.unique, came.tally.lost), (3, 2));
}

#[test]
fn what_comes_after_a_long_silence_is_counted_while_the_sender_is_to_send() {
    let (near, far) = pair();
    let idle = Span::from_ns(1);
    let expectation =
        ReceiverConfig { idle, ..ReceiverConfig::new(TOKEN, 1, None, Span::from_secs(60)) };
    let prepared = prepare(&far, &expectation).unwrap();
    let progress = DatagramProgress::default();
    // Asked once in each silence.
    let silences = AtomicU64::new(0);
    let due_ns = || {
        let asked = silences.fetch_add(1, Ordering::Relaxed);
        (asked > 2).then_some(u64::MAX)
    };
    let say = |kind, sequence, count| {
        near.send(&TestDatagramHeader::of(kind, 1, sequence, count).to_bytes(&TOKEN)).unwrap();
    };
    let came = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&far, prepared, &expectation, &progress, &due_ns));
        let silence = |beyond: u64| {
            while silences.load(Ordering::Relaxed) < beyond && !receiving.is_finished() {
                std::thread::yield_now();
            }
        };
        silence(5);
        say(TestDatagramKind::Data, 0, 0);
        silence(silences.load(Ordering::Relaxed) + 5);
        say(TestDatagramKind::Data, 1, 0);
        say(TestDatagramKind::End, 0, 2);
        receiving.join().unwrap().unwrap()
    });
    assert_eq!((came.ending, came.tally.unique, came.count), (ReceiveEnding::Complete, 2, Some(2)));
}

#[test]
fn both_sides_stop_when_told_to() {
    let (near, far) = pair();
    let expectation = ReceiverConfig::new(TOKEN, 1, None, Span::from_secs(60));
    let prepared = prepare(&far, &expectation).unwrap();
    let (sending, receiving) = (DatagramProgress::default(), DatagramProgress::default());
    std::thread::scope(|scope| {
        let came = scope.spawn(|| receive(&far, prepared, &expectation, &receiving, &|| Some(0)));
        let sent = scope.spawn(|| send(&near, &plan(100, Some(1), 60_000), &sending));
        while receiving.datagrams.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        sending.stop.store(true, Ordering::Relaxed);
        let sent = sent.join().unwrap().unwrap().report;
        assert!(sent.cut_short && sent.count < sent.planned.unwrap());
        let came = came.join().unwrap().unwrap();
        assert_eq!((came.ending, came.tally.unique), (ReceiveEnding::Complete, sent.count));
        receiving.stop.store(true, Ordering::Relaxed);
        let stopped = receive(&far, prepared, &expectation, &receiving, &|| Some(0)).unwrap();
        assert_eq!(stopped.ending, ReceiveEnding::Stopped);
    });
}
