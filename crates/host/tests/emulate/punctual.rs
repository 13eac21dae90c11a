//! No frame comes before its moment, whatever waits for it, and lateness is told.
//!
//! Left out: figures, which depend on the machine.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use plumb_base::time::Span;
use plumb_host::clock::{Stopwatch, Timeline};
use plumb_host::emulate::{Options, Precision};
use plumb_host::lab::TestBed;

use crate::bed::{delay, start};

const WAYS: [Precision; 3] = [Precision::Timer, Precision::Hybrid { spin: None }, Precision::Busy];

#[test]
fn a_datagram_takes_its_delay_and_not_less_however_its_moment_is_waited_for() {
    let span = Span::from_ms(2);
    let timeline = Timeline::begin(Stopwatch::new(None));
    for precision in WAYS {
        let options = Options { precision, ..Options::default() };
        let Some(running) = start(&delay(span), options) else { return };
        let mut sent = 0;
        for (near, far, _) in running.bed.addresses() {
            let (a, b) = running.pair(near, far);
            for number in 0..50_u8 {
                let before = timeline.now();
                a.send(&[number; 100]).unwrap();
                let mut buffer = [0; 200];
                assert_eq!(b.recv(&mut buffer).unwrap(), 100, "{precision}");
                let there = timeline.now() - before;
                assert!(there >= span, "{precision}: {there}");
                assert_eq!(buffer[..100], [number; 100]);
                b.send(&buffer[..100]).unwrap();
                assert_eq!(a.recv(&mut buffer).unwrap(), 100, "{precision}");
                let back = timeline.now() - before;
                assert!(back >= span * 2, "{precision}: {back}");
                sent += 2;
            }
        }
        let left = running.stop();
        assert!(left.report.punctuality.frames >= sent, "{left:?}");
        assert_eq!(left.report.punctuality.lateness.len(), left.report.punctuality.frames);
        assert_eq!(left.missing, (0, 0), "{precision}: every frame came back");
        let lateness = &left.report.punctuality.lateness;
        println!(
            "{precision}: p50 {} ns, p99 {} ns",
            lateness.quantile(0.5),
            lateness.quantile(0.99)
        );
    }
}

#[test]
fn a_stream_crosses_whole_both_ways_and_frames_that_leave_together_are_joined() {
    let Some(running) = start(&delay(Span::from_ms(1)), Options::default()) else { return };
    let sent: Vec<u8> = (0..4_000_000_u32).map(|n| n.to_le_bytes()[n as usize % 3]).collect();
    let address = SocketAddr::from((TestBed::FAR_V4, 9));
    let listener = running.bed.in_b(|| TcpListener::bind(address).unwrap()).unwrap();
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            stream.write_all(&received).unwrap();
        });
        let mut stream = running.bed.in_a(|| TcpStream::connect(address).unwrap()).unwrap();
        stream.write_all(&sent).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        assert!(back == sent, "what came back is what was sent");
        echo.join().unwrap();
    });
    let left = running.stop();
    assert_eq!(left.missing, (0, 0));
    for counters in &left.counters {
        assert_eq!((counters.rx_dropped, counters.tx_dropped), (0, 0), "{counters:?}");
        let frames_at_least = sent.len() as u64 / 1_448;
        assert!(counters.tx_packets < frames_at_least, "super-segments: {counters:?}");
    }
}
