//! Controlled delay: frames are dropped, or marked, while every frame of an interval waits too long.
//!
//! RFC 8289, with the arithmetic of Linux (`include/net/codel_impl.h`) to the bit: time in steps of 1,024 ns, the
//! square root by one Newton step on 16 bits.

use plumb_base::time::{Instant, Span};

use super::{DropTailQueue, FrameFifo, QueueDiscipline};
use crate::frame::{DiscardReason, FrameTotals, HopContext, LinkFrame};
use crate::spec::QueueLimit;

/// A backlog of at most so many bytes is no standing queue: a frame of Ethernet, as Linux's
/// `psched_mtu` counts it.
const ONE_FRAME: u64 = 1_514;

/// A moment in steps of 1,024 ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct CoDelTick(u64);

impl CoDelTick {
    fn of(at: Instant) -> Self {
        Self(at.since_origin().as_ns() >> 10)
    }
}

fn ticks(span: Span) -> u64 {
    span.as_ns() >> 10
}

/// What a queue's delay shall be.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoDelParameters {
    target: u64,
    interval: u64,
    ecn: bool,
}

impl CoDelParameters {
    /// Spans above 73 minutes are taken for that: the square root multiplies 32 bits.
    pub fn new(target: Span, interval: Span, ecn: bool) -> Self {
        let most = u64::from(u32::MAX);
        Self { target: ticks(target).min(most), interval: ticks(interval).min(most), ecn }
    }
}

/// The state of the control law, of one queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CoDelController {
    count: u32,
    last_count: u32,
    is_dropping: bool,
    inverse_root: u16,
    first_above: Option<CoDelTick>,
    drop_next: CoDelTick,
}

impl CoDelController {
    /// The next frame to be sent of `fifo`, which is a part of `total` or all of it.
    pub fn dequeue(
        &mut self,
        now: Instant,
        parameters: &CoDelParameters,
        (fifo, total): (&mut FrameFifo, &mut FrameTotals),
        context: &mut HopContext<'_>,
    ) -> Option<LinkFrame> {
        let mut frame = take(fifo, total);
        let now = CoDelTick::of(now);
        let shall_drop = self.judge(now, parameters, frame.as_ref(), *total);
        if frame.is_none() {
            self.is_dropping = false;
            return None;
        }
        if self.is_dropping {
            if !shall_drop {
                self.is_dropping = false;
            }
            while self.is_dropping && now >= self.drop_next {
                self.count = self.count.wrapping_add(1);
                self.inverse_root = newton_step(self.inverse_root, self.count);
                if marked(parameters, frame.as_mut(), context) {
                    self.schedule(self.drop_next, parameters);
                    break;
                }
                discard(frame, context);
                frame = take(fifo, total);
                if self.judge(now, parameters, frame.as_ref(), *total) {
                    self.schedule(self.drop_next, parameters);
                } else {
                    self.is_dropping = false;
                }
            }
        } else if shall_drop {
            if !marked(parameters, frame.as_mut(), context) {
                discard(frame, context);
                frame = take(fifo, total);
                self.judge(now, parameters, frame.as_ref(), *total);
            }
            self.begin_dropping(now, parameters);
        }
        frame
    }

    /// Drops so many more of the queue's frames were dropped for want of room: the law counts them.
    pub fn on_overflow(&mut self, frames: u32) {
        self.count = self.count.wrapping_add(frames);
    }

    /// Whether a frame has waited too long, after an interval in which all did.
    fn judge(
        &mut self,
        now: CoDelTick,
        parameters: &CoDelParameters,
        frame: Option<&LinkFrame>,
        left: FrameTotals,
    ) -> bool {
        let sojourn = frame.map(|frame| now.0.saturating_sub(CoDelTick::of(frame.arrived).0));
        if sojourn.is_none_or(|sojourn| sojourn < parameters.target) || left.bytes <= ONE_FRAME {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            None => {
                self.first_above = Some(CoDelTick(now.0 + parameters.interval));
                false
            }
            Some(first_above) => now > first_above,
        }
    }

    fn begin_dropping(&mut self, now: CoDelTick, parameters: &CoDelParameters) {
        self.is_dropping = true;
        // Not long ago the law had found a rate of dropping that held the queue: begin there.
        let found = self.count.wrapping_sub(self.last_count);
        if found > 1 && now.0 < self.drop_next.0 + 16 * parameters.interval {
            self.count = found;
            self.inverse_root = newton_step(self.inverse_root, found);
        } else {
            self.count = 1;
            self.inverse_root = u16::MAX;
        }
        self.last_count = self.count;
        self.schedule(now, parameters);
    }

    /// The next drop comes interval / √count after `after`.
    fn schedule(&mut self, after: CoDelTick, parameters: &CoDelParameters) {
        let spacing = (parameters.interval * (u64::from(self.inverse_root) << 16)) >> 32;
        self.drop_next = CoDelTick(after.0 + spacing);
    }
}

/// One Newton step towards 1 / √count, as a fraction of 2¹⁶, from an earlier value.
fn newton_step(inverse_root: u16, count: u32) -> u16 {
    let inverse = u64::from(inverse_root) << 16;
    let squared = (inverse * inverse) >> 32;
    let left = (3_u64 << 32).wrapping_sub(u64::from(count).wrapping_mul(squared)) >> 2;
    let stepped = left.wrapping_mul(inverse) >> (32 - 2 + 1);
    u16::try_from((stepped >> 16) & 0xffff).expect("16 bits")
}

fn take(fifo: &mut FrameFifo, total: &mut FrameTotals) -> Option<LinkFrame> {
    let frame = fifo.pop()?;
    total.remove(&frame);
    Some(frame)
}

fn marked(
    parameters: &CoDelParameters,
    frame: Option<&mut LinkFrame>,
    context: &mut HopContext<'_>,
) -> bool {
    parameters.ecn && frame.is_some_and(|frame| context.mark(frame))
}

fn discard(frame: Option<LinkFrame>, context: &mut HopContext<'_>) {
    if let Some(frame) = frame {
        context.discard(frame, DiscardReason::Early);
    }
}

/// One queue, controlled.
#[derive(Debug)]
pub(super) struct CoDelQueue {
    queue: DropTailQueue,
    parameters: CoDelParameters,
    controller: CoDelController,
}

impl CoDelQueue {
    pub fn new(limit: QueueLimit, parameters: CoDelParameters) -> Self {
        let queue = DropTailQueue::new(limit);
        Self { queue, parameters, controller: CoDelController::default() }
    }
}

impl QueueDiscipline for CoDelQueue {
    fn enqueue(&mut self, now: Instant, frame: LinkFrame, context: &mut HopContext<'_>) {
        self.queue.enqueue(now, frame, context);
    }

    fn dequeue(&mut self, now: Instant, context: &mut HopContext<'_>) -> Option<LinkFrame> {
        let mut total = self.queue.backlog();
        let queue = (&mut self.queue.fifo, &mut total);
        self.controller.dequeue(now, &self.parameters, queue, context)
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
    use super::*;
    use crate::fixture::{ElementFixture, at_us};

    #[test]
    fn decisions_and_state_are_linuxs_to_the_bit() {
        let mut bench = ElementFixture::new(2_000);
        let parameters = CoDelParameters::new(Span::from_ms(5), Span::from_ms(100), false);
        let mut codel = CoDelQueue::new(QueueLimit::Frames(100_000), parameters);
        let mut arrived = 0;
        let mut decided = 0;
        for line in include_str!("codel.txt").lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| fields[at].parse::<u64>().unwrap();
            let now = Instant::ORIGIN + Span::from_ns(number(1));
            if fields[0] == "e" {
                let frame = bench.numbered(now, arrived, u32::try_from(number(2)).unwrap());
                codel.enqueue(now, frame, &mut bench.context());
                arrived += 1;
                continue;
            }
            let frame = codel.dequeue(now, &mut bench.context());
            let id = frame.map_or(-1, |frame| i64::try_from(bench.number(frame)).unwrap());
            let CoDelController { count, inverse_root, is_dropping, drop_next, .. } =
                codel.controller;
            let state = format!(
                "d {} {id} {count} {inverse_root} {} {}",
                number(1),
                u8::from(is_dropping),
                drop_next.0
            );
            assert_eq!(state, line);
            decided += 1;
        }
        assert!(decided == 3_000 && bench.discarded(DiscardReason::Early) > 20);
    }

    #[test]
    fn a_standing_queue_is_dropped_from_at_intervals_that_shrink_as_the_root_of_their_number() {
        let mut bench = ElementFixture::new(4_000);
        let interval = Span::from_ms(100);
        let mut codel = CoDelQueue::new(
            QueueLimit::Frames(9_999),
            CoDelParameters::new(Span::from_ms(5), interval, false),
        );
        for number in 0..3_500 {
            let frame = bench.numbered(at_us(0), number, 1_000);
            codel.enqueue(at_us(0), frame, &mut bench.context());
        }
        let mut drops = Vec::new();
        for us in (10_000..3_000_000).step_by(1_000) {
            let before = bench.discarded(DiscardReason::Early);
            let frame = codel.dequeue(at_us(us), &mut bench.context()).unwrap();
            bench.free(frame);
            drops.extend((before..bench.discarded(DiscardReason::Early)).map(|_| us));
        }
        // The first comes one interval after the delay was first found above the target.
        assert!((110_000..112_000).contains(&drops[0]), "{}", drops[0]);
        // One Newton step a drop: from the eighth on the root is right to a few thousandths.
        let mut expected = drops[7] as f64;
        for (count, at) in drops.iter().enumerate().skip(8) {
            expected += 100_000.0 / (count as f64).sqrt();
            // Frames are taken once a millisecond.
            let tolerance = 1_000.0 + 0.005 * (expected - drops[7] as f64);
            assert!((*at as f64 - expected).abs() <= tolerance, "drop {count}: {at}, {expected}");
        }
        assert!(drops.len() > 100);
    }

    #[test]
    fn frames_capable_of_ecn_are_marked_where_others_are_dropped() {
        use plumb_wire::ip::Ecn;
        let run = |ecn| {
            let mut bench = ElementFixture::new(700);
            let parameters = CoDelParameters::new(Span::from_ms(5), Span::from_ms(100), true);
            let mut codel = CoDelQueue::new(QueueLimit::Frames(9_999), parameters);
            let bytes = crate::fixture::udp(true, ecn, (1, 2), 8);
            for _ in 0..600 {
                let frame = bench.frame(at_us(0), &bytes, 1_500, 0);
                codel.enqueue(at_us(0), frame, &mut bench.context());
            }
            let mut taken = 0;
            for us in (10_000..500_000).step_by(1_000) {
                let frame = codel.dequeue(at_us(us), &mut bench.context()).unwrap();
                taken += 1;
                bench.free(frame);
            }
            (taken, bench.marked, bench.discarded(DiscardReason::Early))
        };
        let (taken, marked, dropped) = run(Ecn::Capable0.into());
        assert!(taken == 490 && marked > 5 && dropped == 0, "{marked} marked, {dropped} dropped");
        let (taken, marked, dropped) = run(Ecn::NotCapable.into());
        assert!(taken == 490 && marked == 0 && dropped > 5, "{marked} marked, {dropped} dropped");
    }

    #[test]
    fn a_queue_that_empties_within_the_target_is_never_dropped_from() {
        let mut bench = ElementFixture::new(64);
        let parameters = CoDelParameters::new(Span::from_ms(5), Span::from_ms(100), false);
        let mut codel = CoDelQueue::new(QueueLimit::Frames(64), parameters);
        for round in 0..200_u64 {
            let start = round * 10_000;
            for number in 0..4 {
                let frame = bench.numbered(at_us(start), number, 1_500);
                codel.enqueue(at_us(start), frame, &mut bench.context());
            }
            for sent in 0..4 {
                let frame = codel.dequeue(at_us(start + sent * 1_200), &mut bench.context());
                bench.free(frame.unwrap());
            }
        }
        assert_eq!(bench.discards.total(), (0, 0));
    }
}
