//! Random early detection: the probability of a drop grows with the average queue, gently beyond its upper threshold.
//!
//! Floyd & Jacobson, "Random Early Detection Gateways for Congestion Avoidance" (IEEE/ACM Transactions on Networking 1(4), 1993);
//! the gentle slope from Floyd, "Recommendation on using the 'gentle_' variant of RED" (2000). Thresholds and average are in
//! bytes; the probability does not depend on a frame's length.

use plumb_base::seed::RandomStream;
use plumb_base::time::Instant;

use super::{DropTailQueue, QueueDiscipline};
use crate::chance::open_unit;
use crate::frame::{DiscardReason, FrameTotals, HopContext, LinkFrame};
use crate::spec::QueueLimit;

/// Weight of the newest length in the average (§11 of the paper).
const WEIGHT: f64 = 0.002;

/// The curve of a first probability over the average queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct RedCurve {
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) p_max: f64,
}

impl RedCurve {
    /// From 0 at `min` to `p_max` at `max`, and on to 1 at twice `max`.
    fn probability(&self, average: f64) -> f64 {
        if average < self.min {
            0.0
        } else if average < self.max {
            self.p_max * (average - self.min) / (self.max - self.min)
        } else if average < 2.0 * self.max {
            self.p_max + (1.0 - self.p_max) * (average - self.max) / self.max
        } else {
            1.0
        }
    }
}

/// The queue's average length, also over the time in which it was empty.
#[derive(Debug, Default)]
struct RedAverage {
    bytes: f64,
    idle_since: Option<Instant>,
    /// When a frame was last taken while another waited, and how long one is sent, on average.
    last_taken: Option<Instant>,
    spacing: Option<f64>,
}

impl RedAverage {
    fn on_arrival(&mut self, now: Instant, waiting: u64) {
        if let (Some(since), Some(spacing)) = (self.idle_since, self.spacing)
            && waiting == 0
        {
            // As if so many frames had found the queue empty as could have been sent meanwhile.
            let missed = now.saturating_since(since).as_ps() as f64 / spacing.max(1.0);
            self.bytes *= (1.0 - WEIGHT).powf(missed);
        }
        self.idle_since = None;
        self.bytes += WEIGHT * (waiting as f64 - self.bytes);
    }

    fn on_departure(&mut self, now: Instant, waiting: u64) {
        if let Some(last) = self.last_taken {
            let gap = now.saturating_since(last).as_ps() as f64;
            let spacing = self.spacing.unwrap_or(gap);
            self.spacing = Some(spacing + (gap - spacing) / 16.0);
        }
        // The next gap is a sending time only if a frame waits for it to end.
        self.last_taken = (waiting > 0).then_some(now);
        self.idle_since = (waiting == 0).then_some(now);
    }
}

/// One queue that drops early.
#[derive(Debug)]
pub(super) struct RedQueue {
    queue: DropTailQueue,
    curve: RedCurve,
    ecn: bool,
    stream: RandomStream,
    average: RedAverage,
    /// Frames since the last drop or mark; `None` below the lower threshold.
    since: Option<u64>,
}

impl RedQueue {
    pub fn new(limit: QueueLimit, curve: RedCurve, ecn: bool, stream: RandomStream) -> Self {
        let (queue, average) = (DropTailQueue::new(limit), RedAverage::default());
        Self { queue, curve, ecn, stream, average, since: None }
    }

    /// Whether this frame is chosen: p / (1 − count · p), so that the distance between two choices is
    /// uniform (§7 of the paper).
    fn chooses(&mut self) -> bool {
        let p = self.curve.probability(self.average.bytes);
        if p <= 0.0 {
            self.since = None;
            return false;
        }
        if p >= 1.0 {
            self.since = Some(0);
            return true;
        }
        // The paper counts the first frame above the threshold as number 0.
        let count = self.since.map_or(0, |since| since + 1);
        let spread = 1.0 - count as f64 * p;
        let is_chosen = spread <= p || open_unit(&mut self.stream) < p / spread;
        self.since = Some(if is_chosen { 0 } else { count });
        is_chosen
    }

    /// Whether the average queue is long enough for choices.
    pub(super) fn is_active(&self) -> bool {
        self.average.bytes >= self.curve.min
    }

    /// Takes a frame; whether it was chosen, or there was no room for it.
    pub(super) fn offer(
        &mut self,
        now: Instant,
        mut frame: LinkFrame,
        context: &mut HopContext<'_>,
    ) -> bool {
        self.average.on_arrival(now, self.queue.backlog().bytes);
        let is_chosen = self.chooses();
        if is_chosen {
            // Above the upper threshold frames are dropped though they could be marked (RFC 3168 §7).
            let may_mark = self.ecn && self.average.bytes < self.curve.max;
            if !may_mark || !context.mark(&mut frame) {
                context.discard(frame, DiscardReason::Early);
                return true;
            }
        }
        let is_taken = self.queue.takes(&frame);
        self.queue.enqueue(now, frame, context);
        is_chosen || !is_taken
    }
}

impl QueueDiscipline for RedQueue {
    fn enqueue(&mut self, now: Instant, frame: LinkFrame, context: &mut HopContext<'_>) {
        self.offer(now, frame, context);
    }

    fn dequeue(&mut self, now: Instant, _: &mut HopContext<'_>) -> Option<LinkFrame> {
        let frame = self.queue.fifo.pop()?;
        self.average.on_departure(now, self.queue.backlog().bytes);
        Some(frame)
    }

    fn backlog(&self) -> FrameTotals {
        self.queue.backlog()
    }

    fn drain(&mut self, out: &mut Vec<LinkFrame>) {
        self.queue.drain(out);
    }

    fn set_limit(&mut self, limit: QueueLimit, context: &mut HopContext<'_>) {
        self.queue.set_limit(limit, context);
    }
}

#[cfg(test)]
mod tests {
    use plumb_base::seed::Seed;
    use plumb_base::time::Span;
    use plumb_wire::ip::Ecn;

    use super::*;
    use crate::fixture::{ElementFixture, at_us, udp};

    const CURVE: RedCurve = RedCurve { min: 20_000.0, max: 60_000.0, p_max: 0.1 };

    fn red(ecn: bool) -> RedQueue {
        RedQueue::new(QueueLimit::Frames(10_000), CURVE, ecn, Seed(11).stream("red"))
    }

    /// The share of frames that are chosen while exactly `waiting` bytes wait, and the largest
    /// distance between two that are.
    fn chosen_at(waiting: u64) -> (f64, u64) {
        let mut red = red(false);
        red.average.bytes = waiting as f64;
        let n = 200_000;
        let (mut chosen, mut last, mut longest) = (0_u32, 0, 0);
        for number in 0..n {
            if red.chooses() {
                chosen += 1;
                longest = longest.max(number - last);
                last = number;
            }
        }
        (f64::from(chosen) / n as f64, longest)
    }

    #[test]
    fn choices_are_uniformly_spread_at_twice_the_curves_probability() {
        // The paper's counter gives distances that are uniform on 1 … 1/p − 1, whose mean is 1/2p.
        for waiting in [22_000, 30_000, 40_000, 59_000, 70_000] {
            let p = CURVE.probability(waiting as f64);
            let (share, longest) = chosen_at(waiting);
            let expected = 2.0 * p;
            assert!((share / expected - 1.0).abs() < 0.05, "{waiting}: {share}, {expected}");
            assert!(longest as f64 <= 1.0 / p + 1.0, "{waiting}: {longest}");
        }
        assert_eq!(chosen_at(19_999).1, 0);
        assert!((chosen_at(120_000).0 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_curve_is_continuous_gentle_and_ends_at_twice_the_upper_threshold() {
        let close = |at, p: f64| assert!((CURVE.probability(at) - p).abs() < 1e-4, "{at}");
        close(19_999.0, 0.0);
        close(40_000.0, 0.05);
        close(59_999.9, 0.1);
        close(60_000.1, 0.1);
        close(90_000.0, 0.55);
        close(119_999.9, 1.0);
        close(1e9, 1.0);
    }

    #[test]
    fn the_average_follows_the_queue_and_fades_while_it_is_empty() {
        let mut average = RedAverage::default();
        for _ in 0..5_000 {
            average.on_arrival(at_us(0), 50_000);
        }
        assert!((average.bytes / 50_000.0 - 1.0).abs() < 1e-4);
        for frame in 0..100 {
            average.on_departure(at_us(frame * 100), 1_500);
        }
        average.on_departure(at_us(10_000), 0);
        assert!((average.spacing.unwrap() / 1e8 - 1.0).abs() < 1e-9, "100 µs a frame");
        // After n frames' time without any it is (1 − w)ⁿ of what it was: half, for this n.
        let frames = 0.5_f64.ln() / (1.0 - WEIGHT).ln();
        let idle = Span::from_secs_f64(100e-6 * frames);
        average.on_arrival(at_us(10_000) + idle, 0);
        assert!((average.bytes / 25_000.0 - 1.0).abs() < 0.01, "{}", average.bytes);
    }

    #[test]
    fn capable_frames_are_marked_up_to_the_upper_threshold_and_dropped_above() {
        for (average, marks) in [(50_000.0, true), (100_000.0, false)] {
            let mut bench = ElementFixture::new(2_100);
            let mut red = red(true);
            let bytes = udp(false, Ecn::Capable1.into(), (1, 2), 8);
            for _ in 0..2_000 {
                red.average.bytes = average;
                let frame = bench.frame(at_us(0), &bytes, 20, 0);
                red.enqueue(at_us(0), frame, &mut bench.context());
            }
            assert_eq!(bench.marked > 100, marks);
            assert_eq!(bench.discarded(DiscardReason::Early) > 100, !marks);
        }
    }
}
