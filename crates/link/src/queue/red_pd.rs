//! RED with preferential dropping: flows that RED drops from (or marks) again and again lose some of their packets before they reach it.
//!
//! Mahajan, Floyd & Wetherall, "Controlling High-Bandwidth Flows at the Congested Router" (ICNP 2001). A TCP with the target round
//! trip R has a drop once in R / √(1.5 p) at a drop rate p. A flow with drops in `OFTEN` of the last `LISTS` intervals, each
//! `OFTEN / LISTS` of that, sends more than such a TCP: it is penalised until it has no more drops than others.

use std::collections::{BTreeMap, VecDeque};

use plumb_base::seed::RandomStream;
use plumb_base::time::{Instant, Span};

use super::QueueDiscipline;
use super::red::{RedCurve, RedQueue};
use crate::chance::open_unit;
use crate::frame::{DiscardReason, FrameTotals, HopContext, LinkFrame};
use crate::spec::QueueLimit;

/// Intervals that are remembered, and in how many of them a penalised flow has drops (§3.1 of the paper).
const LISTS: usize = 5;
const OFTEN: usize = 3;
/// Flows of one interval that are remembered at most, so that forged addresses do not fill memory.
const LISTED_MAX: usize = 4_096;
/// Below this drop rate nobody is penalised.
const DROP_RATE_MIN: f64 = 0.001;
/// Intervals from one change of a penalty to the next: until a higher one shows, and until a lower one does.
const RAISE_AFTER: u64 = 4;
const LOWER_AFTER: u64 = 3;
/// A penalty is halved, but lowered by no more than this at once; below the least it ends.
const LOWER_MAX: f64 = 0.05;
const PENALTY_MIN: f64 = 0.005;

/// The penalty of a flow.
#[derive(Clone, Copy, Debug)]
struct FlowPenalty {
    /// Probability with which a frame is dropped before RED.
    probability: f64,
    /// The interval in which it last changed.
    changed: u64,
}

/// Bytes of each flow that RED dropped or marked in one interval.
type EarlyDrops = BTreeMap<u64, u64>;

/// Who is penalised, and how much.
#[derive(Debug, Default)]
struct PenaltyBox {
    penalties: BTreeMap<u64, FlowPenalty>,
    /// Of the intervals before, the last at the end.
    history: VecDeque<EarlyDrops>,
    early_drops: EarlyDrops,
    /// Bytes that came to RED in this interval, and that it dropped or marked.
    arrived_bytes: u64,
    dropped_bytes: u64,
    /// Averaged over intervals.
    drop_rate: Option<f64>,
    interval: u64,
}

impl PenaltyBox {
    fn penalty(&self, flow: u64) -> f64 {
        self.penalties.get(&flow).map_or(0.0, |penalty| penalty.probability)
    }

    fn record(&mut self, flow: u64, bytes: u64, is_dropped: bool) {
        self.arrived_bytes += bytes;
        if is_dropped {
            self.dropped_bytes += bytes;
            if self.early_drops.len() < LISTED_MAX || self.early_drops.contains_key(&flow) {
                *self.early_drops.entry(flow).or_default() += bytes;
            }
        }
    }

    /// Bytes of what it remembers.
    fn bytes(&self) -> usize {
        let lists = self.history.iter().chain([&self.early_drops]);
        let listed: usize = lists.map(BTreeMap::len).sum();
        self.penalties.len() * size_of::<(u64, FlowPenalty)>() + listed * size_of::<(u64, u64)>()
    }

    /// Nothing to forget.
    fn is_idle(&self) -> bool {
        self.penalties.is_empty()
            && self.arrived_bytes == 0
            && self.history.iter().all(BTreeMap::is_empty)
    }

    /// An interval has ended: penalties change.
    fn end_interval(&mut self) {
        self.interval += 1;
        let dropped = std::mem::take(&mut self.dropped_bytes) as f64;
        let now = dropped / (std::mem::take(&mut self.arrived_bytes).max(1)) as f64;
        let average = f64::midpoint(self.drop_rate.unwrap_or(now), now);
        self.drop_rate = Some(average);
        self.history.push_back(std::mem::take(&mut self.early_drops));
        if self.history.len() > LISTS {
            self.history.pop_front();
        }
        if now > DROP_RATE_MIN {
            self.raise(now.min(average));
        }
        self.lower();
    }

    /// Raises penalties of flows with frequent drops, by the drop rate in proportion to the bytes that each lost.
    fn raise(&mut self, drop_rate: f64) {
        let mut often: BTreeMap<u64, (usize, u64)> = BTreeMap::new();
        for (flow, bytes) in self.history.iter().flatten() {
            let (lists, sum) = often.entry(*flow).or_default();
            (*lists, *sum) = (*lists + 1, *sum + bytes);
        }
        often.retain(|_, (lists, _)| *lists >= OFTEN);
        let mean = often.values().map(|(_, bytes)| *bytes as f64).sum::<f64>() / often.len() as f64;
        for (flow, (_, bytes)) in often {
            if !self.history.back().is_some_and(|last| last.contains_key(&flow)) {
                continue;
            }
            let step = drop_rate * bytes as f64 / mean;
            let Some(penalty) = self.penalties.get_mut(&flow) else {
                let probability = step.min(2.0 * drop_rate).min(0.5);
                self.penalties.insert(flow, FlowPenalty { probability, changed: self.interval });
                continue;
            };
            if self.interval - penalty.changed >= RAISE_AFTER {
                let raised = penalty.probability + step.min(penalty.probability);
                // Where nothing would pass, the passing share is halved instead.
                let halved = f64::midpoint(1.0, penalty.probability);
                penalty.probability = if raised < 1.0 { raised } else { halved };
                penalty.changed = self.interval;
            }
        }
    }

    /// Lowers penalties of flows without recent drops.
    fn lower(&mut self) {
        let (history, interval) = (&self.history, self.interval);
        self.penalties.retain(|flow, penalty| {
            let is_dropped = history.iter().any(|list| list.contains_key(flow));
            if is_dropped || interval - penalty.changed < LOWER_AFTER {
                return true;
            }
            penalty.changed = interval;
            let kept = penalty.probability > PENALTY_MIN;
            penalty.probability -= (penalty.probability / 2.0).min(LOWER_MAX);
            kept
        });
    }

    /// How long the next interval is; no longer than at the least drop rate.
    fn interval_length(&self, rtt: Span) -> Span {
        let rate = self.drop_rate.unwrap_or(0.0).max(DROP_RATE_MIN);
        let rounds = OFTEN as f64 / LISTS as f64 / (1.5 * rate).sqrt();
        Span::from_secs_f64(rtt.as_secs_f64() * rounds.max(1.0))
    }
}

/// A RED queue behind a penalty box.
#[derive(Debug)]
pub(super) struct PreferentialQueue {
    red: RedQueue,
    penalised: PenaltyBox,
    rtt: Span,
    stream: RandomStream,
    /// When the interval ends, while anything is remembered.
    due: Option<Instant>,
}

impl PreferentialQueue {
    /// With RED's curve and whether it marks, and the target round trip.
    pub fn new(
        limit: QueueLimit,
        (curve, ecn): (RedCurve, bool),
        rtt: Span,
        stream: RandomStream,
    ) -> Self {
        // 2¹²⁸ draws apart.
        let mut red_stream = stream.clone();
        red_stream.jump();
        let red = RedQueue::new(limit, curve, ecn, red_stream);
        Self { red, penalised: PenaltyBox::default(), rtt, stream, due: None }
    }
}

impl QueueDiscipline for PreferentialQueue {
    fn enqueue(&mut self, now: Instant, frame: LinkFrame, context: &mut HopContext<'_>) {
        let penalty = self.penalised.penalty(frame.flow);
        // A penalty is not to leave the link without work.
        let may_drop = self.red.is_active() && self.red.backlog().frames > 1;
        if penalty > 0.0 && may_drop && open_unit(&mut self.stream) < penalty {
            return context.discard(frame, DiscardReason::Early);
        }
        let (flow, bytes) = (frame.flow, u64::from(frame.wire_len));
        let is_dropped = self.red.offer(now, frame, context);
        self.penalised.record(flow, bytes, is_dropped);
        if self.due.is_none() {
            self.due = Some(now + self.penalised.interval_length(self.rtt));
        }
    }

    fn dequeue(&mut self, now: Instant, context: &mut HopContext<'_>) -> Option<LinkFrame> {
        self.red.dequeue(now, context)
    }

    fn backlog(&self) -> FrameTotals {
        self.red.backlog()
    }

    fn flow_state(&self) -> usize {
        self.penalised.bytes()
    }

    fn drain(&mut self, out: &mut Vec<LinkFrame>) {
        self.red.drain(out);
    }

    fn set_limit(&mut self, limit: QueueLimit, context: &mut HopContext<'_>) {
        self.red.set_limit(limit, context);
    }

    fn deadline(&self) -> Option<Instant> {
        self.due
    }

    fn handle_deadline(&mut self, now: Instant, _: &mut HopContext<'_>) {
        while let Some(due) = self.due.filter(|due| *due <= now) {
            self.penalised.end_interval();
            let next = due + self.penalised.interval_length(self.rtt);
            self.due = (!self.penalised.is_idle()).then_some(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use plumb_base::seed::Seed;

    use super::*;
    use crate::fixture::{ElementFixture, at_us};

    const CURVE: RedCurve = RedCurve { min: 20_000.0, max: 60_000.0, p_max: 0.1 };

    /// What flows of a link of 10 Mb/s sent and got, in packets of 1,250 bytes, of which the link sends one a millisecond.
    struct FlowShares {
        bench: ElementFixture,
        queue: PreferentialQueue,
        now_us: u64,
        stream: RandomStream,
    }

    impl FlowShares {
        fn new() -> Self {
            let limit = QueueLimit::Frames(200);
            let rtt = Span::from_ms(40);
            let queue = PreferentialQueue::new(limit, (CURVE, false), rtt, Seed(3).stream("q"));
            let bench = ElementFixture::new(1_000);
            Self { bench, queue, now_us: 0, stream: Seed(4).stream("arrivals") }
        }

        /// Flows send so many packets each on average for a while: how many of each got through.
        fn run(&mut self, seconds: u64, packets: &[f64]) -> Vec<f64> {
            let steps = seconds * 1_000;
            let mut got = vec![0.0; packets.len()];
            for _ in 0..steps {
                let now = at_us(self.now_us);
                self.now_us += 1_000;
                if self.queue.deadline().is_some_and(|due| due <= now) {
                    self.queue.handle_deadline(now, &mut self.bench.context());
                }
                for (flow, packets) in (0..).zip(packets) {
                    let mut left = packets / steps as f64;
                    while open_unit(&mut self.stream) < left {
                        let frame = self.bench.frame(now, &[0; 8], 1_250, flow);
                        self.queue.enqueue(now, frame, &mut self.bench.context());
                        left -= 1.0;
                    }
                }
                if let Some(frame) = self.queue.dequeue(now, &mut self.bench.context()) {
                    got[usize::try_from(frame.flow).unwrap()] += 1.0;
                    self.bench.free(frame);
                }
            }
            got
        }
    }

    /// Nine flows of 0.5 Mb/s and one of 9.
    fn offered(seconds: u64, fat: f64) -> Vec<f64> {
        let mut packets = vec![50.0 * seconds as f64; 9];
        packets.push(fat * 100.0 * seconds as f64);
        packets
    }

    #[test]
    fn a_flow_of_nine_tenths_loses_what_is_too_much_and_others_do_not() {
        let mut shared = FlowShares::new();
        shared.run(60, &offered(60, 9.0));
        let got = shared.run(60, &offered(60, 9.0));
        for (flow, got) in got.iter().enumerate().take(9) {
            assert!(*got > 0.97 * 3_000.0, "flow {flow}: {got} of about 3,000");
        }
        assert!((0.5..0.6).contains(&(got[9] / 60_000.0)), "the rest: {}", got[9]);
        for flow in 0..9 {
            assert!(shared.queue.penalised.penalty(flow) < 0.05, "flow {flow}");
        }
    }

    #[test]
    fn a_penalty_ends_after_its_flow_sends_no_more_than_others() {
        let mut shared = FlowShares::new();
        shared.run(60, &offered(60, 9.0));
        assert!(shared.queue.penalised.penalty(9) > 0.2);
        shared.run(120, &offered(120, 0.5));
        assert!(shared.queue.penalised.penalties.is_empty());
        let quiet = at_us(shared.now_us + 60_000_000);
        shared.queue.handle_deadline(quiet, &mut shared.bench.context());
        assert_eq!(shared.queue.deadline(), None, "nothing is left to forget");
    }

    #[test]
    fn equal_flows_that_fit_are_never_penalised() {
        let mut shared = FlowShares::new();
        shared.run(120, &offered(120, 5.0));
        assert!(shared.queue.penalised.penalties.is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut penalised = PenaltyBox::default();
        for interval in 0..20 {
            for flow in 0..20_000 {
                penalised.record(flow + interval, 100, true);
            }
            penalised.end_interval();
        }
        let lists = penalised.history.iter().map(BTreeMap::len).max();
        assert_eq!((lists, penalised.history.len()), (Some(LISTED_MAX), LISTS));
        assert!(penalised.penalties.len() <= LISTS * LISTED_MAX);
    }
}
