//! Core-stateless fair queueing: a FIFO that drops frames of a flow by how far its rate exceeds the fair one.
//!
//! Stoica, Shenker & Zhang, "Core-Stateless Fair Queueing" (SIGCOMM 1998). The first such queue on a frame's path is the edge: it
//! estimates the rate of the flow and labels the frame with it. Every queue drops with probability 1 − α/label, where α is the share
//! at which what is let through comes to the rate of the link.

use plumb_base::seed::RandomStream;
use plumb_base::time::{Instant, Span};

use super::fq_codel::index;
use super::{DropTailQueue, QueueDiscipline};
use crate::chance::open_unit;
use crate::frame::{DiscardReason, FrameTotals, HopContext, LinkFrame};
use crate::spec::QueueLimit;

/// A full buffer lowers the fair share by so much (§3.3), but not below the least part of what it was at its last update.
const OVERFLOW_FACTOR: f64 = 0.99;
const OVERFLOW_LEAST: f64 = 0.75;

/// An exponential average of a rate, in bits a second, over irregular arrivals (§3.2 of the paper).
#[derive(Clone, Copy, Debug, Default)]
struct AveragedRate {
    bits_per_second: f64,
    last: Option<Instant>,
}

impl AveragedRate {
    fn add(&mut self, now: Instant, bits: f64, constant: f64) {
        let gap = self.last.map_or(constant, |last| now.saturating_since(last).as_secs_f64());
        let kept = (-gap / constant).exp();
        // (1 − e^(−T/K)) / T, and its limit where frames come at one moment.
        let weight = if gap > 0.0 { (1.0 - kept) / gap } else { 1.0 / constant };
        self.bits_per_second = weight * bits + kept * self.bits_per_second;
        self.last = Some(now);
    }
}

/// The share of a flow that the link has room for (§3.2).
#[derive(Debug)]
struct FairShare {
    /// Bits a second of the link.
    capacity: f64,
    /// Seconds that its rates are averaged over, and of a window.
    window: f64,
    arrived: AveragedRate,
    accepted: AveragedRate,
    /// Bits a second; `None` until a window has passed without congestion, or congestion begins.
    alpha: Option<f64>,
    at_update: f64,
    is_congested: bool,
    window_began: Instant,
    label_max: f64,
}

impl FairShare {
    /// None while the link is not congested: there the share is the largest label of a window, which a flow that grows exceeds.
    fn drop_probability(&self, label: f64) -> f64 {
        self.alpha
            .filter(|_| self.is_congested)
            .map_or(0.0, |alpha| (1.0 - alpha / label.max(1.0)).max(0.0))
    }

    /// A frame has come; `is_short` is whether little waits, so that a link that is not congested stays so.
    fn update(&mut self, now: Instant, bits: f64, label: f64, is_dropped: bool, is_short: bool) {
        self.arrived.add(now, bits, self.window);
        if !is_dropped {
            self.accepted.add(now, bits, self.window);
        }
        let is_over = now.saturating_since(self.window_began).as_secs_f64() >= self.window;
        let exceeds = self.arrived.bits_per_second >= self.capacity;
        if exceeds && (self.is_congested || !is_short) {
            if !self.is_congested {
                self.is_congested = true;
                self.window_began = now;
                // From the largest label down, until what is accepted fits.
                self.set_alpha(self.alpha.unwrap_or(self.label_max.max(label)));
            } else if is_over {
                let alpha = self.alpha.unwrap_or(self.capacity);
                let accepted = self.accepted.bits_per_second.max(1.0);
                self.set_alpha((alpha * self.capacity / accepted).min(self.capacity));
                self.window_began = now;
            }
        } else if self.is_congested {
            self.is_congested = false;
            self.window_began = now;
            self.label_max = 0.0;
        } else {
            self.label_max = self.label_max.max(label);
            if is_over {
                self.set_alpha(self.label_max);
                self.window_began = now;
                self.label_max = 0.0;
            }
        }
    }

    fn set_alpha(&mut self, alpha: f64) {
        self.alpha = Some(alpha);
        self.at_update = alpha;
    }

    fn on_overflow(&mut self) {
        let least = self.at_update * OVERFLOW_LEAST;
        self.alpha = self.alpha.map(|alpha| (alpha * OVERFLOW_FACTOR).max(least));
    }
}

/// One queue, edge and core in one.
#[derive(Debug)]
pub(super) struct CoreStatelessQueue {
    queue: DropTailQueue,
    /// Seconds that rates of flows are averaged over.
    average: f64,
    flows: Box<[AveragedRate]>,
    share: FairShare,
    /// Below it, in bytes or frames as the limit is, little waits.
    threshold: QueueLimit,
    stream: RandomStream,
}

impl CoreStatelessQueue {
    /// With estimates of at least one flow, each averaged over `average`, the fair share over twice that; `rate` is the link's, in
    /// bits a second.
    pub fn new(
        limit: QueueLimit,
        flows: u32,
        average: Span,
        rate: u64,
        stream: RandomStream,
    ) -> Self {
        let average = average.as_secs_f64();
        let share = FairShare {
            capacity: rate as f64,
            window: 2.0 * average,
            arrived: AveragedRate::default(),
            accepted: AveragedRate::default(),
            alpha: None,
            at_update: 0.0,
            is_congested: false,
            window_began: Instant::ORIGIN,
            label_max: 0.0,
        };
        Self {
            queue: DropTailQueue::new(limit),
            average,
            flows: vec![AveragedRate::default(); flows.max(1) as usize].into(),
            share,
            threshold: quarter(limit),
            stream,
        }
    }

    /// The rate that the frame is labelled with, which the edge estimates.
    fn label(&mut self, now: Instant, frame: &LinkFrame) -> f64 {
        let label = f64::from(frame.packet.meta.flow_rate);
        if label > 0.0 {
            return label;
        }
        let flow = &mut self.flows[index(frame.flow, self.flows.len())];
        flow.add(now, bits_of(frame), self.average);
        flow.bits_per_second
    }
}

/// A quarter, as the paper's simulations have it (16 KB of 64 KB).
fn quarter(limit: QueueLimit) -> QueueLimit {
    match limit {
        QueueLimit::Frames(frames) => QueueLimit::Frames(frames / 4),
        QueueLimit::Bytes(bytes) => QueueLimit::Bytes(bytes / 4),
    }
}

fn bits_of(frame: &LinkFrame) -> f64 {
    8.0 * f64::from(frame.wire_len)
}

impl QueueDiscipline for CoreStatelessQueue {
    #[expect(clippy::cast_possible_truncation, reason = "a label needs no more than 24 bits")]
    fn enqueue(&mut self, now: Instant, mut frame: LinkFrame, context: &mut HopContext<'_>) {
        let label = self.label(now, &frame);
        let probability = self.share.drop_probability(label);
        let is_dropped = probability > 0.0 && open_unit(&mut self.stream) < probability;
        let is_short = !self.threshold.is_exceeded(self.queue.backlog());
        self.share.update(now, bits_of(&frame), label, is_dropped, is_short);
        if is_dropped {
            return context.discard(frame, DiscardReason::Early);
        }
        let alpha = self.share.alpha.filter(|_| probability > 0.0);
        frame.packet.meta.flow_rate = alpha.unwrap_or(label) as f32;
        if !self.queue.takes(&frame) {
            self.share.on_overflow();
        }
        self.queue.enqueue(now, frame, context);
    }

    fn dequeue(&mut self, _: Instant, _: &mut HopContext<'_>) -> Option<LinkFrame> {
        self.queue.fifo.pop()
    }

    fn backlog(&self) -> FrameTotals {
        self.queue.backlog()
    }

    fn flow_state(&self) -> usize {
        size_of_val(&*self.flows)
    }

    fn drain(&mut self, out: &mut Vec<LinkFrame>) {
        self.queue.drain(out);
    }

    fn set_limit(&mut self, limit: QueueLimit, context: &mut HopContext<'_>) {
        self.threshold = quarter(limit);
        self.queue.set_limit(limit, context);
    }

    fn set_rate(&mut self, rate: u64) {
        self.share.capacity = rate as f64;
    }
}

#[cfg(test)]
mod tests {
    use plumb_base::seed::Seed;

    use super::*;
    use crate::fixture::{ElementFixture, at_us};

    /// Bits a second that constant flows of these rates get through queues of these numbers of estimates and rates, one behind the
    /// other, after five seconds.
    fn shares(flows: &[f64], queues: &[(u32, u64)]) -> Vec<f64> {
        const LEN: u32 = 1_000;
        let mut bench = ElementFixture::new(1_000);
        let mut hops: Vec<_> = (0..)
            .zip(queues)
            .map(|(number, (estimates, rate))| {
                let limit = QueueLimit::Bytes(64_000);
                let stream = Seed(number).stream("csfq");
                let average = Span::from_ms(100);
                let queue = CoreStatelessQueue::new(limit, *estimates, average, *rate, stream);
                (queue, u64::from(LEN) * 8_000_000 / rate, 0)
            })
            .collect();
        let mut due: Vec<f64> = (0..flows.len()).map(|flow| flow as f64 * 17.0).collect();
        let mut got = vec![0.0; flows.len()];
        for us in 0..15_000_000_u64 {
            let now = at_us(us);
            let mut arriving = Vec::new();
            for (flow, (due, rate)) in (0_u64..).zip(due.iter_mut().zip(flows)) {
                if *due <= us as f64 {
                    *due += f64::from(LEN) * 8e6 / rate;
                    arriving.push(bench.frame(now, &[0; 8], LEN, flow << 54));
                }
            }
            for (queue, time, free_at) in &mut hops {
                for frame in arriving.drain(..) {
                    queue.enqueue(now, frame, &mut bench.context());
                }
                if us >= *free_at
                    && let Some(frame) = queue.dequeue(now, &mut bench.context())
                {
                    *free_at = us + *time;
                    arriving.push(frame);
                }
            }
            for frame in arriving {
                let bits = if us >= 5_000_000 { bits_of(&frame) } else { 0.0 };
                got[usize::try_from(frame.flow >> 54).unwrap()] += bits / 10.0;
                bench.free(frame);
            }
        }
        got
    }

    #[track_caller]
    fn assert_near(got: &[f64], expected: &[f64], tolerance: f64) {
        for (flow, (got, expected)) in got.iter().zip(expected).enumerate() {
            assert!((got / expected - 1.0).abs() < tolerance, "flow {flow}: {got}, {expected}");
        }
    }

    #[test]
    fn thirty_two_flows_of_rates_one_to_thirty_two_get_equal_shares() {
        // Figure 5 of the paper: C = 10 Mb/s, flow i sends i · C/32.
        let flows: Vec<f64> = (1..=32).map(|flow| f64::from(flow) * 312_500.0).collect();
        let got = shares(&flows, &[(1_024, 10_000_000)]);
        assert_near(&got, &[312_500.0; 32], 0.15);
        let sum: f64 = got.iter().sum();
        assert!((sum / 1e7 - 1.0).abs() < 0.01, "the link is used: {sum}");
    }

    #[test]
    fn flows_below_the_fair_share_lose_nothing() {
        // 0.5 + 1 + 3α = 10.
        let got = shares(&[0.5e6, 1e6, 4e6, 8e6, 20e6], &[(1_024, 10_000_000)]);
        assert_near(&got[..2], &[0.5e6, 1e6], 0.01);
        assert_near(&got[2..], &[2.833e6; 3], 0.1);
    }

    #[test]
    fn behind_the_edge_labels_do_what_the_state_of_flows_does() {
        // The second has one estimate for all flows, and needs none.
        let got = shares(&[1e6, 4e6, 8e6, 20e6], &[(1_024, 10_000_000), (1, 5_000_000)]);
        // 1 + 3 α = 5 there.
        assert_near(&got, &[1e6, 1.333e6, 1.333e6, 1.333e6], 0.15);
    }

    #[test]
    fn a_flow_that_grows_loses_nothing_while_there_is_room() {
        let mut bench = ElementFixture::new(4);
        let average = Span::from_ms(100);
        let limit = QueueLimit::Bytes(64_000);
        let stream = Seed(1).stream("csfq");
        let mut queue = CoreStatelessQueue::new(limit, 16, average, 10_000_000, stream);
        let mut us = 0;
        // From 0.4 to 8 Mb/s, four times faster every second.
        for gap in [20_000, 5_000, 1_250, 1_000] {
            for _ in 0..1_000_000 / gap {
                us += gap;
                let frame = bench.frame(at_us(us), &[0; 8], 1_000, 7);
                queue.enqueue(at_us(us), frame, &mut bench.context());
                while let Some(frame) = queue.dequeue(at_us(us), &mut bench.context()) {
                    bench.free(frame);
                }
            }
        }
        assert_eq!(bench.discards.total(), (0, 0));
    }

    #[test]
    fn a_link_with_room_drops_nothing() {
        let got = shares(&[2e6, 3e6, 4e6], &[(1_024, 10_000_000)]);
        assert_near(&got, &[2e6, 3e6, 4e6], 0.001);
    }
}
