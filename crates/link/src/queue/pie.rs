//! PIE: a controller of the drop probability that aims at a queue delay.
//!
//! RFC 8033 (proportional integral controller, enhanced), with queue delay from the time stamp of the frame at the head (§5.2
//! there), burst allowance (§4.4), de-randomisation (§5.4) and the cap on its steps (§5.5).

use plumb_base::seed::RandomStream;
use plumb_base::time::{Instant, Span};

use super::{DropTailQueue, QueueDiscipline};
use crate::chance::open_unit;
use crate::frame::{DiscardReason, FrameTotals, HopContext, LinkFrame};
use crate::spec::QueueLimit;

/// Weight of the distance from the target, a second (§4.2).
const ALPHA: f64 = 0.125;
/// Weight of the change since the last update, a second (§4.2).
const BETA: f64 = 1.25;
/// How long a burst passes unharmed (§4.4).
const BURST: Span = Span::from_ms(150);
/// Up to this probability frames are marked where they can be (§5.1).
const MARK_UP_TO: f64 = 0.1;
/// Two frames of this many bytes are no queue (§4.1).
const MEAN_FRAME: u64 = 1_000;

/// The controller and its probability.
#[derive(Debug)]
struct PieController {
    target: Span,
    update: Span,
    probability: f64,
    delay_before: Span,
    burst_left: Span,
    /// Probability gathered since the last drop.
    accumulated_probability: f64,
}

impl PieController {
    /// §4.2: the probability for the next interval, from the delay of now.
    fn update(&mut self, delay: Span) {
        let seconds = |span: Span| span.as_secs_f64();
        let step = ALPHA * (seconds(delay) - seconds(self.target))
            + BETA * (seconds(delay) - seconds(self.delay_before));
        let mut step = step / damping(self.probability);
        if self.probability >= 0.1 {
            step = step.min(0.02);
        }
        self.probability += step;
        if delay == Span::ZERO && self.delay_before == Span::ZERO {
            self.probability *= 0.98;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        self.burst_left = self.burst_left.saturating_sub(self.update);
        if self.is_calm(delay) {
            self.burst_left = BURST;
        }
        self.delay_before = delay;
    }

    /// §4.4: no probability, and both delays below half the target.
    fn is_calm(&self, delay: Span) -> bool {
        self.probability <= 0.0 && delay < self.target / 2 && self.delay_before < self.target / 2
    }

    /// §4.1 and §5.4: whether a frame is chosen that finds so many bytes waiting.
    fn chooses(&mut self, waiting: u64, stream: &mut RandomStream) -> bool {
        if self.burst_left > Span::ZERO
            || (self.delay_before < self.target / 2 && self.probability < 0.2)
            || waiting <= 2 * MEAN_FRAME
        {
            return false;
        }
        if self.probability <= 0.0 {
            self.accumulated_probability = 0.0;
        }
        self.accumulated_probability += self.probability;
        let is_chosen = self.accumulated_probability >= 8.5
            || self.accumulated_probability >= 0.85 && open_unit(stream) < self.probability;
        if is_chosen {
            self.accumulated_probability = 0.0;
        }
        is_chosen
    }
}

/// §4.2: steps are the smaller, the smaller the probability is.
fn damping(probability: f64) -> f64 {
    match probability {
        p if p < 0.000_001 => 2_048.0,
        p if p < 0.000_01 => 512.0,
        p if p < 0.000_1 => 128.0,
        p if p < 0.001 => 32.0,
        p if p < 0.01 => 8.0,
        p if p < 0.1 => 2.0,
        _ => 1.0,
    }
}

/// One queue, controlled.
#[derive(Debug)]
pub(super) struct PieQueue {
    queue: DropTailQueue,
    ecn: bool,
    controller: PieController,
    stream: RandomStream,
    /// While anything waits or is remembered.
    due: Option<Instant>,
}

impl PieQueue {
    /// Updates at least a microsecond apart.
    pub fn new(
        limit: QueueLimit,
        target: Span,
        update: Span,
        ecn: bool,
        stream: RandomStream,
    ) -> Self {
        let controller = PieController {
            target,
            update: update.max(Span::from_us(1)),
            probability: 0.0,
            delay_before: Span::ZERO,
            burst_left: BURST,
            accumulated_probability: 0.0,
        };
        Self { queue: DropTailQueue::new(limit), ecn, controller, stream, due: None }
    }

    fn delay(&self, now: Instant) -> Span {
        self.queue.fifo.front().map_or(Span::ZERO, |frame| now.saturating_since(frame.arrived))
    }

    /// Whether there is nothing for the clock to change.
    fn is_idle(&self) -> bool {
        self.queue.fifo.front().is_none()
            && self.controller.probability <= 0.0
            && self.controller.delay_before == Span::ZERO
            && self.controller.burst_left == BURST
    }
}

impl QueueDiscipline for PieQueue {
    fn enqueue(&mut self, now: Instant, mut frame: LinkFrame, context: &mut HopContext<'_>) {
        if self.due.is_none() {
            self.due = Some(now + self.controller.update);
        }
        if !self.queue.takes(&frame) {
            self.controller.accumulated_probability = 0.0;
        } else if self.controller.chooses(self.queue.backlog().bytes, &mut self.stream) {
            let may_mark = self.ecn && self.controller.probability < MARK_UP_TO;
            if !may_mark || !context.mark(&mut frame) {
                context.discard(frame, DiscardReason::Early);
                return;
            }
        }
        self.queue.enqueue(now, frame, context);
    }

    fn dequeue(&mut self, _: Instant, _: &mut HopContext<'_>) -> Option<LinkFrame> {
        self.queue.fifo.pop()
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

    fn deadline(&self) -> Option<Instant> {
        self.due
    }

    fn handle_deadline(&mut self, now: Instant, _: &mut HopContext<'_>) {
        while let Some(due) = self.due.filter(|due| *due <= now) {
            let delay = self.delay(due);
            self.controller.update(delay);
            self.due = (!self.is_idle()).then(|| due + self.controller.update);
        }
    }
}

#[cfg(test)]
mod tests {
    use plumb_base::seed::Seed;
    use plumb_wire::ip::Ecn;

    use super::*;
    use crate::fixture::{ElementFixture, at_us, udp};

    const TARGET: Span = Span::from_ms(15);

    fn pie(ecn: bool) -> PieQueue {
        let update = Span::from_ms(15);
        PieQueue::new(QueueLimit::Frames(10_000), TARGET, update, ecn, Seed(5).stream("pie"))
    }

    /// What one update at 10 Mb/s of offered load sees.
    struct Seen {
        at_ms: u64,
        delay: Span,
        probability: f64,
    }

    /// Frames of 1,250 bytes, one a millisecond out (10 Mb/s), and in as many as `load` says at that
    /// time, in thousandths.
    fn run(
        queue: &mut PieQueue,
        ms: u64,
        load: impl Fn(u64) -> u64,
    ) -> (ElementFixture, Vec<Seen>) {
        let mut bench = ElementFixture::new(12_000);
        let bytes = udp(false, Ecn::Capable0.into(), (1, 2), 8);
        let mut seen = Vec::new();
        let mut owed = 0;
        for at_ms in 0..ms {
            let now = at_us(at_ms * 1_000);
            while let Some(due) = queue.deadline().filter(|due| *due <= now) {
                let delay = queue.delay(due);
                queue.handle_deadline(due, &mut bench.context());
                seen.push(Seen { at_ms, delay, probability: queue.controller.probability });
            }
            if let Some(frame) = queue.dequeue(now, &mut bench.context()) {
                bench.free(frame);
            }
            owed += load(at_ms);
            while owed >= 1_000 {
                owed -= 1_000;
                let frame = bench.frame(now, &bytes, 1_250, 0);
                queue.enqueue(now, frame, &mut bench.context());
            }
        }
        (bench, seen)
    }

    #[test]
    fn after_a_step_of_the_load_the_delay_settles_at_the_target_and_drops_match_the_excess() {
        // Half the rate, then 25 % more than the rate: a fifth of the frames must go.
        let load = |ms| if ms < 1_000 { 500 } else { 1_250 };
        let (_, seen) = run(&mut pie(false), 60_000, load);
        let before = seen.iter().filter(|seen| seen.at_ms < 1_000);
        assert!(before.into_iter().all(|seen| seen.probability <= 0.0));
        let settled: Vec<&Seen> = seen.iter().filter(|seen| seen.at_ms >= 30_000).collect();
        let n = settled.len() as f64;
        let delay = settled.iter().map(|seen| seen.delay.as_secs_f64()).sum::<f64>() / n;
        let probability = settled.iter().map(|seen| seen.probability).sum::<f64>() / n;
        assert!((delay / TARGET.as_secs_f64() - 1.0).abs() < 0.15, "mean delay {delay}");
        // Choices wait until 0.85 has been gathered, and are then made at the probability.
        let distance = (0.85 / probability).ceil() - 1.0 + 1.0 / probability;
        assert!((distance / 5.0 - 1.0).abs() < 0.15, "one in {distance} at {probability}");
        let worst = settled.iter().map(|seen| seen.delay).max().unwrap();
        assert!(worst < TARGET * 4, "worst delay {worst}");
    }

    #[test]
    fn one_update_is_the_rfcs_sum() {
        let mut controller = pie(false).controller;
        controller.probability = 0.05;
        controller.delay_before = Span::from_ms(20);
        controller.update(Span::from_ms(25));
        let expected = 0.05 + 0.5 * (0.125 * 0.010 + 1.25 * 0.005);
        assert!((controller.probability - expected).abs() < 1e-12);
        controller.probability = 0.5;
        controller.update(Span::from_ms(900));
        assert!((controller.probability - 0.52).abs() < 1e-12, "no step above 2 %");
        controller.probability = 0.001_5;
        controller.delay_before = Span::ZERO;
        controller.update(Span::ZERO);
        let expected = (0.001_5 - 0.125 * 0.015 / 8.0) * 0.98;
        assert!((controller.probability - expected).abs() < 1e-12, "and it fades when idle");
    }

    #[test]
    fn a_burst_of_less_than_the_allowance_passes_whole() {
        let load = |ms| if (200..300).contains(&ms) { 2_000 } else { 200 };
        let (bench, seen) = run(&mut pie(false), 1_000, load);
        assert!(seen.iter().any(|seen| seen.delay > TARGET * 3));
        assert_eq!(bench.discards.total(), (0, 0));
    }

    #[test]
    fn capable_frames_are_marked_while_the_probability_is_low_and_dropped_when_it_is_high() {
        let (bench, _) = run(&mut pie(true), 20_000, |_| 1_040);
        assert!(bench.marked > 100);
        let (bench, seen) = run(&mut pie(true), 20_000, |_| 2_000);
        assert!(seen.last().unwrap().probability > MARK_UP_TO);
        assert!(bench.discarded(DiscardReason::Early) > 1_000);
    }

    #[test]
    fn an_idle_queue_needs_no_clock() {
        let mut queue = pie(false);
        assert_eq!(queue.deadline(), None);
        let (mut bench, _) = run(&mut queue, 3_000, |ms| if ms < 2_000 { 1_500 } else { 0 });
        assert!(queue.controller.probability > 0.0);
        while let Some(frame) = queue.dequeue(at_us(3_000_000), &mut bench.context()) {
            bench.free(frame);
        }
        queue.handle_deadline(at_us(600_000_000), &mut bench.context());
        assert_eq!(queue.deadline(), None);
    }
}
