//! No frame comes before its moment, whatever waits for it, and lateness is told.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use plumb_base::time::Span;
use plumb_clock::{InstantClock, Stopwatch};
use plumb_netdev::emulator::{EmulatorEndedError, EmulatorOptions, TimerPrecision};
use plumb_netdev::lab::TestBed;

use crate::bed::{EmulatorWire, StoppedEmulator, start, start_over};

const WAYS: [TimerPrecision; 3] =
    [TimerPrecision::Timer, TimerPrecision::Hybrid { spin: None }, TimerPrecision::Busy];

#[test]
fn a_datagram_takes_its_delay_and_not_less_however_its_moment_is_waited_for() {
    let span = Span::from_ms(2);
    let timeline = InstantClock::begin(Stopwatch::new(None));
    for precision in WAYS {
        let options = EmulatorOptions { precision, ..EmulatorOptions::default() };
        let Some(running) = start("delay=2ms", options) else { return };
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
        assert!(left.report.timing.frames >= sent, "{left:?}");
        assert_eq!(left.report.timing.lateness.len(), left.report.timing.frames);
        assert_eq!(left.missing, (0, 0), "{precision}: every frame came back");
        let lateness = &left.report.timing.lateness;
        println!(
            "{precision}: p50 {} ns, p99 {} ns",
            lateness.quantile(0.5),
            lateness.quantile(0.99)
        );
    }
}

/// Sends so many bytes and gets them back; what was left.
fn echo_stream(wire: EmulatorWire, len: u32) -> Option<StoppedEmulator> {
    let running = start_over(wire, "delay=1ms", EmulatorOptions::default())?;
    let sent: Vec<u8> = (0..len).map(|n| n.to_le_bytes()[n as usize % 3]).collect();
    let address = SocketAddr::from((TestBed::FAR_V4, 9));
    let listener = running.bed.in_far(|| TcpListener::bind(address).unwrap()).unwrap();
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            stream.write_all(&received).unwrap();
        });
        let mut stream = running.bed.in_near(|| TcpStream::connect(address).unwrap()).unwrap();
        stream.write_all(&sent).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        assert!(back == sent, "{wire:?}: what came back is what was sent");
        echo.join().unwrap();
    });
    Some(running.stop())
}

#[test]
fn a_stream_crosses_two_taps_whole_both_ways_in_super_segments_and_nothing_is_lost() {
    let Some(left) = echo_stream(EmulatorWire::Taps, 4_000_000) else { return };
    assert_eq!(left.missing, (0, 0));
    for counters in &left.counters {
        assert_eq!((counters.rx_dropped, counters.tx_dropped), (0, 0), "{counters:?}");
        assert!(counters.tx_packets < 4_000_000 / 1_448, "super-segments: {counters:?}");
    }
}

#[test]
fn a_stream_crosses_packet_sockets_and_af_xdp_whole_and_every_frame_comes_back() {
    for wire in [EmulatorWire::Packet, EmulatorWire::Xdp] {
        let Some(left) = echo_stream(wire, 1_000_000) else { continue };
        assert_eq!(left.missing, (0, 0), "{wire:?}");
    }
}

#[test]
fn a_link_that_runs_is_changed_and_asked_and_says_when_it_has_ended() {
    let Some(running) = start("delay=1ms", EmulatorOptions::default()) else { return };
    let control = running.control.clone();
    let timeline = InstantClock::begin(Stopwatch::new(None));
    let (a, b) = running.pair(TestBed::NEAR_V4.into(), TestBed::FAR_V4.into());
    let cross = || {
        let before = timeline.now();
        a.send(b"datagram").unwrap();
        b.recv(&mut [0; 8]).unwrap();
        timeline.now() - before
    };
    cross();
    control.set("delay=20ms".parse().unwrap()).unwrap().unwrap();
    assert!(cross() >= Span::from_ms(20));
    let refused = control.set("delay=1ms;delay=2ms".parse().unwrap()).unwrap();
    assert!(refused.is_err(), "a link keeps its number of hops");
    assert!(cross() >= Span::from_ms(20), "and stays what it was");
    assert!(control.report().unwrap().timing.frames >= 3);
    running.stop();
    assert_eq!(control.report().unwrap_err(), EmulatorEndedError);
}
