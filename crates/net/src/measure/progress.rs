//! What can be told about a test while it runs: how far it is, round trips by size, and what the senders of this side
//! waited for.
//!
//! Noting a round trip is one addition in memory, so that it may stand where probes are read. Left out: the figures
//! of a report, which are exact and come at the end.

use std::sync::atomic::{AtomicU32, Ordering};

use plumb_base::time::{Instant, Span};
use plumb_result::net::SenderLimits;

use super::report::StreamSample;
use crate::measure::reading_schedule::CHECK_INTERVAL_NS;

/// Steps of a doubling.
const STEPS: usize = 8;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Round trips below 2 to the power of this are in the first step: 1 µs.
const LEAST_BITS: u32 = 10;
/// Up to 17 s.
const BUCKETS: usize = 24 * STEPS;

/// The most that counts of the time between two calls: for the rest of it this process did not run.
const GAP_MAX: Span = Span::from_ns(CHECK_INTERVAL_NS);

/// How far a test is, as this side sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TestProgress {
    /// Whether everything was read; if not, only the numbers of bytes and answers are of now.
    pub is_reading: bool,
    /// Time since it began.
    pub at_ns: u64,
    /// How long it takes, but for what is drained.
    pub planned_ns: u64,
    /// Bytes so far from the client to the agent.
    pub up_bytes: u64,
    /// Bytes so far from the agent to the client.
    pub down_bytes: u64,
    /// Probes and requests answered so far.
    pub answered: u64,
    /// Of all these, what shows that the other side is there: not the datagrams that this side sends, which nobody
    /// acknowledges, but what their receiver sends to show it.
    pub peer_activity: u64,
    /// Whether this side sends datagrams now.
    pub sends_datagrams: bool,
    /// What the senders of this side had waited for.
    pub waits: SenderLimitedTime,
    /// Round trips so far, of those that count.
    pub round_trips: RttHistogram,
}

/// Round trips by size, in eight steps a doubling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RttHistogram {
    counts: [u32; BUCKETS],
}

impl Default for RttHistogram {
    fn default() -> Self {
        Self { counts: [0; BUCKETS] }
    }
}

fn bucket(ns: u64) -> usize {
    if ns < 1 << LEAST_BITS {
        return 0;
    }
    let bits = ns.ilog2();
    let step = usize::try_from(ns >> (bits - STEP_BITS)).unwrap_or(STEPS) - STEPS;
    let doubling = usize::try_from(bits - LEAST_BITS).unwrap_or(BUCKETS);
    (doubling * STEPS + step).min(BUCKETS - 1)
}

/// The least round trip of a bucket.
fn floor_ns(bucket: usize) -> u64 {
    let step = (STEPS + bucket % STEPS) as u64;
    step << (bucket / STEPS) << (LEAST_BITS - STEP_BITS)
}

impl RttHistogram {
    /// How many there are.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }

    /// The round trip that a share of all does not exceed, to a step of nine in a hundred; `None` without any.
    pub fn quantile_ns(&self, share: f64) -> Option<f64> {
        let rank = (share * self.total() as f64).ceil().max(1.0);
        let mut below = 0.0;
        let found = self.counts.iter().position(|&count| {
            below += f64::from(count);
            below >= rank
        })?;
        Some((floor_ns(found) as f64).midpoint(floor_ns(found + 1) as f64))
    }

    /// The steps from the least to the greatest that has any: where each begins, and how many it has.
    pub fn steps(&self) -> Vec<(u64, u32)> {
        let first = self.counts.iter().position(|&count| count > 0).unwrap_or(0);
        let last = self.counts.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        (first..last).map(|step| (floor_ns(step), self.counts[step])).collect()
    }
}

/// Round trips as they come, noted by one thread and read by another.
#[derive(Debug)]
pub struct AtomicRttHistogram {
    counts: [AtomicU32; BUCKETS],
}

impl Default for AtomicRttHistogram {
    fn default() -> Self {
        Self { counts: [const { AtomicU32::new(0) }; BUCKETS] }
    }
}

impl AtomicRttHistogram {
    /// Notes one.
    #[inline]
    pub fn record(&self, ns: u64) {
        self.counts[bucket(ns)].fetch_add(1, Ordering::Relaxed);
    }

    /// All so far.
    pub fn snapshot(&self) -> RttHistogram {
        let mut counts = [0; BUCKETS];
        for (count, noted) in counts.iter_mut().zip(&self.counts) {
            *count = noted.load(Ordering::Relaxed);
        }
        RttHistogram { counts }
    }
}

/// What the senders of one side had waited for by some moment, all connections together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderLimitedTime {
    /// How many connections send.
    pub senders: u32,
    /// Time with something to send.
    pub busy_us: u64,
    /// Of it, with the receiver's window full.
    pub receive_window_us: u64,
    /// Of it, with the send buffer full.
    pub send_buffer_us: u64,
}

impl SenderLimitedTime {
    /// The same with another connection.
    pub const fn add(&mut self, sample: &StreamSample) {
        self.senders += 1;
        self.busy_us += sample.tcp.busy_us;
        self.receive_window_us += sample.tcp.receive_window_us;
        self.send_buffer_us += sample.tcp.send_buffer_us;
    }

    /// Where the time since an earlier reading went; `None` where nothing sends, or no time passed.
    pub fn since(&self, earlier: &Self, elapsed_ns: u64) -> Option<SenderLimits> {
        let all_us = elapsed_ns as f64 / 1e3 * f64::from(self.senders);
        let share = |now: u64, then: u64| now.saturating_sub(then) as f64 / all_us;
        (all_us > 0.0).then(|| {
            SenderLimits::of(
                share(self.busy_us, earlier.busy_us),
                share(self.receive_window_us, earlier.receive_window_us),
                share(self.send_buffer_us, earlier.send_buffer_us),
            )
        })
    }
}

/// Whether anything of a test still gets through: a test whose control connection is lost goes on for as long as it
/// does. Datagrams that are only sent are no sign of that, for a client that has vanished takes them as well.
///
/// Only time in which this process ran counts: after a suspension, what the peer sent meanwhile has yet to be read.
#[derive(Clone, Copy, Debug)]
pub struct StallDetector {
    peer_activity: u64,
    /// When it was last called.
    last_call: Instant,
    /// Time without activity, as far as this process ran.
    idle: Span,
    /// How long nothing may move.
    patience: Span,
}

impl StallDetector {
    /// Of a test that begins now.
    pub const fn new(now: Instant, patience: Span) -> Self {
        Self { peer_activity: 0, last_call: now, idle: Span::ZERO, patience }
    }

    /// Takes in how far the test is.
    pub fn observe(&mut self, now: Instant, progress: &TestProgress) {
        self.advance(now);
        if progress.peer_activity > self.peer_activity {
            (self.peer_activity, self.idle) = (progress.peer_activity, Span::ZERO);
        }
    }

    /// Something else has shown that the peer is there.
    pub const fn restart(&mut self) {
        self.idle = Span::ZERO;
    }

    /// Whether nothing has got through for so long that nothing will. To be called some times a second.
    pub fn is_stalled(&mut self, now: Instant) -> bool {
        self.advance(now);
        self.idle > self.patience
    }

    fn advance(&mut self, now: Instant) {
        self.idle += now.saturating_since(self.last_call).min(GAP_MAX);
        self.last_call = now;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_noted() {
        let tally = AtomicRttHistogram::default();
        for us in 1..=1_000_u64 {
            tally.record(us * 1_000);
        }
        let trips = tally.snapshot();
        assert_eq!(trips.total(), 1_000);
        for (share, expected) in [(0.5, 500e3), (0.99, 990e3), (1.0, 1e6)] {
            let found = trips.quantile_ns(share).unwrap();
            assert!((found / expected - 1.0).abs() < 0.1, "{share}: {found}");
        }
        let steps = trips.steps();
        assert!(steps[0].0 <= 1_024 && steps.last().unwrap().0 > 900_000, "{steps:?}");
        assert_eq!(RttHistogram::default().quantile_ns(0.5), None);
        assert!(RttHistogram::default().steps().is_empty());
    }

    #[test]
    fn a_sender_that_waits_for_the_window_half_of_the_time_says_so() {
        let mut before = SenderLimitedTime::default();
        let mut after = SenderLimitedTime::default();
        let reading = |busy_us, receive_window_us| {
            let mut sample = StreamSample::default();
            (sample.tcp.busy_us, sample.tcp.receive_window_us) = (busy_us, receive_window_us);
            sample
        };
        for waits in [reading(0, 0), reading(1_000, 1_000)] {
            before.add(&waits);
        }
        for waits in [reading(100_000, 100_000), reading(101_000, 1_000)] {
            after.add(&waits);
        }
        let shares = after.since(&before, 100_000_000).unwrap();
        assert!((shares.receive_window - 0.5).abs() < 1e-9, "{shares:?}");
        assert!((shares.network - 0.5).abs() < 1e-9 && shares.application.abs() < 1e-9);
        assert_eq!(after.since(&before, 0), None);
    }

    #[test]
    fn shares_of_no_time_are_shares_all_the_same() {
        let shares = SenderLimits::of(f64::NAN, f64::INFINITY, f64::NAN);
        assert_eq!(shares, SenderLimits { application: 1.0, ..SenderLimits::default() });
    }

    fn at_ms(ms: u64) -> Instant {
        Instant::after_origin(Span::from_ms(ms))
    }

    /// The first moment, in ms, at which a test is stalled that got something at 5 s last.
    fn stalled_at_ms(calls_ms: impl Iterator<Item = u64>) -> Option<u64> {
        let mut detector = StallDetector::new(at_ms(0), Span::from_ms(1_500));
        let progress = TestProgress { peer_activity: 7, ..TestProgress::default() };
        detector.observe(at_ms(5_000), &progress);
        for ms in calls_ms {
            detector.observe(at_ms(ms), &progress);
            if detector.is_stalled(at_ms(ms)) {
                return Some(ms);
            }
        }
        None
    }

    #[test]
    fn a_test_without_activity_is_stalled_within_two_seconds() {
        assert_eq!(stalled_at_ms((5_100..60_000).step_by(100)), Some(6_600));
        assert_eq!(stalled_at_ms((5_250..60_000).step_by(250)), Some(6_750));
    }

    #[test]
    fn a_suspended_process_does_not_take_its_peer_for_lost() {
        let frozen = (5_100..=5_500).step_by(100).chain((16_000..16_500).step_by(100));
        assert_eq!(stalled_at_ms(frozen), None);
    }

    proptest! {
        #[test]
        fn a_round_trip_is_in_the_bucket_that_begins_below_it(ns in 0..1_u64 << 34) {
            let found = bucket(ns);
            prop_assert!(floor_ns(found) <= ns.max(1 << LEAST_BITS));
            prop_assert!(ns < floor_ns(found + 1), "{ns} {found}");
        }

        #[test]
        fn any_round_trip_is_noted(ns: u64) {
            let tally = AtomicRttHistogram::default();
            tally.record(ns);
            prop_assert_eq!(tally.snapshot().total(), 1);
        }

        #[test]
        fn shares_come_to_one(busy in 0.0..2.0, window in 0.0..2.0, buffer in 0.0..2.0) {
            let SenderLimits { network, receive_window, send_buffer, application } =
                SenderLimits::of(busy, window, buffer);
            let all = [network, receive_window, send_buffer, application];
            prop_assert!(all.iter().all(|share| (0.0..=1.0).contains(share)), "{all:?}");
            prop_assert!((all.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }
}
