//! A link that loses nothing and keeps the order: whatever the applications do, nothing is sent twice.

use plumb_base::time::Span;

use super::pair::{CLIENT, Pair, SERVER, Weather};
use crate::tcp::config::{Personality, TcpConfig};
use crate::tcp::info::TcpInfo;
use crate::tcp::socket::TcpState;
use crate::tcp::stream::Received;

/// What the applications do.
#[derive(Clone, Copy, Debug, Default)]
struct TrafficPattern {
    /// Bytes of a write, and how many there are.
    write: usize,
    writes: usize,
    /// Time between two writes; 0: as soon as there is room.
    every: Span,
    /// The reader takes so many bytes each time, and then waits.
    read: usize,
    wait: Span,
    nagle: bool,
    /// What is read is answered with as much, and the writer waits for the answer.
    answers: bool,
}

/// Runs a pattern over a link with this delay; what both ends say afterwards.
fn infos(pattern: TrafficPattern, personalities: [Personality; 2], delay: Span) -> [TcpInfo; 2] {
    let config =
        |personality| TcpConfig { personality, nagle: pattern.nagle, ..TcpConfig::default() };
    let mut pair = Pair::new(config(personalities[0]), config(personalities[1]), 5);
    pair.weather = [Weather { delay, ..Weather::default() }; 2];
    let open = |pair: &mut Pair| {
        pair.ends.iter().flatten().filter(|end| end.state() == TcpState::Established).count() == 2
    };
    assert!(pair.run_until(Span::from_secs(5), open));
    let total = pattern.write * pattern.writes;
    let (mut written, mut read, mut answered) = (0, 0, 0);
    let (mut write_at, mut read_at) = (pair.now, pair.now);
    let mut out = vec![0; pattern.read];
    while read < total {
        let now = pair.now;
        let may_write = !pattern.answers || answered == written;
        while now >= write_at && written < total && (may_write || written == 0) {
            let sent = pair.end(CLIENT).send(now, &vec![7; pattern.write]).unwrap();
            written += sent;
            if sent < pattern.write || pattern.answers || pattern.every > Span::ZERO {
                write_at = now + pattern.every;
                break;
            }
        }
        if now >= read_at {
            if let Ok(Received::Data(len)) = pair.end(SERVER).receive(now, &mut out) {
                read += len;
                if pattern.answers {
                    assert_eq!(pair.end(SERVER).send(now, &out[..len]), Ok(len));
                }
            }
            read_at = now + pattern.wait;
        }
        if let Ok(Received::Data(len)) = pair.end(CLIENT).receive(now, &mut out) {
            answered += len;
        }
        let wakes = [write_at, read_at].into_iter().filter(|at| *at > now);
        pair.wake = wakes.min();
        if !pair.step() {
            pair.now = pair.wake.unwrap_or(now);
        }
    }
    [CLIENT, SERVER].map(|end| pair.end(end).info())
}

/// All that differ in one of: who sends and who receives, Nagle's algorithm, delay of the link, wait of the reader.
///
/// Both acknowledge within 200 ms, which is what a sender allows for; [`Personality::plain`] may take 500 ms.
fn check(pattern: TrafficPattern, waits_ms: &[u64]) {
    let both = [Personality::linux(), Personality::freebsd()];
    for from in both {
        for to in both {
            for (nagle, wait) in [true, false]
                .into_iter()
                .flat_map(|nagle| waits_ms.iter().map(move |wait| (nagle, *wait)))
            {
                for delay in [Span::from_us(20), Span::from_ms(20)] {
                    let pattern = TrafficPattern { nagle, wait: Span::from_ms(wait), ..pattern };
                    let ends = infos(pattern, [from, to], delay);
                    let count = ends.map(|info| info.sent.retransmits);
                    assert_eq!(count, [0, 0], "{delay:?}, {pattern:?} from {from:?} to {to:?}");
                }
            }
        }
    }
}

#[test]
fn lines_to_a_slow_reader_are_sent_once() {
    for (write, writes) in [(40, 200), (700, 60), (2_000, 20)] {
        for every in [Span::ZERO, Span::from_us(10), Span::from_ms(30)] {
            let pattern =
                TrafficPattern { write, writes, every, read: 1_000, ..TrafficPattern::default() };
            check(pattern, &[0, 30]);
        }
    }
}

#[test]
fn requests_and_responses_are_sent_once() {
    for write in [1, 64, 2_000] {
        let pattern = TrafficPattern {
            write,
            writes: 20,
            read: 64,
            answers: true,
            ..TrafficPattern::default()
        };
        check(pattern, &[0, 1, 30, 250]);
    }
}

/// Where a receiver acknowledges later than the 200 ms that a sender allows for, RFC 8985 §7.2 makes a probe of what would be a timeout,
/// and its D-SACK says that nothing was lost (§7.4.2): the window stays. Before long the estimator knows the delay.
#[test]
fn acknowledgements_after_half_a_second_cost_a_few_probes_and_no_window() {
    let pattern = TrafficPattern {
        write: 100,
        writes: 40,
        every: Span::from_secs(1),
        read: 1_000,
        ..TrafficPattern::default()
    };
    for delay in [Span::from_us(20), Span::from_ms(20)] {
        let info = infos(pattern, [Personality::linux(), Personality::plain()], delay)[CLIENT];
        let sent = info.sent;
        assert!((1..=6).contains(&sent.tail_probes), "{delay:?}: {info:#?}");
        assert_eq!((sent.retransmits, sent.dsacks), (sent.tail_probes, sent.tail_probes));
        assert_eq!((sent.timeouts, sent.marks), (0, 0), "{delay:?}: {info:#?}");
        assert_eq!(info.cwnd, 10 * u64::from(info.mss));
    }
}
