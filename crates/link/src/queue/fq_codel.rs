//! A queue a flow: flow queueing with controlled delay, and deficit round robin.
//!
//! RFC 8290, as Linux's `sch_fq_codel` does it: new flows first; what is too much is dropped from the fattest flow, half of it
//! or 64 frames at a time. Shreedhar & Varghese, "Efficient Fair Queuing using Deficit Round Robin" (SIGCOMM 1995): each flow
//! sends a quantum of bytes a round; without room the longest queue loses its last frame (§3 there, after McKenney).

use std::collections::VecDeque;

use plumb_base::time::Instant;

use super::codel::{CoDelController, CoDelParameters};
use super::{FrameFifo, QueueDiscipline};
use crate::frame::{DiscardReason, FrameTotals, HopContext, LinkFrame};
use crate::spec::QueueLimit;

/// Frames dropped at once from the fattest flow, at most (RFC 8290 §4.1.3).
const BATCH: u32 = 64;

/// The queue of the flows that share a hash.
#[derive(Debug, Default)]
struct FqCoDelFlow {
    fifo: FrameFifo,
    controller: CoDelController,
    deficit: i64,
    is_listed: bool,
}

/// Queues of flows.
#[derive(Debug)]
pub(super) struct FqCoDelQueue {
    limit: QueueLimit,
    quantum: i64,
    parameters: CoDelParameters,
    flows: Box<[FqCoDelFlow]>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    backlog: FrameTotals,
}

impl FqCoDelQueue {
    /// Of at least one flow, and a quantum of at least one byte.
    pub fn new(limit: QueueLimit, flows: u32, quantum: u32, parameters: CoDelParameters) -> Self {
        Self {
            limit,
            quantum: i64::from(quantum.max(1)),
            parameters,
            flows: (0..flows.max(1)).map(|_| FqCoDelFlow::default()).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            backlog: FrameTotals::default(),
        }
    }

    /// Drops from the head of the flow with most bytes, until half of them are gone.
    fn drop_from_fattest(&mut self, context: &mut HopContext<'_>) {
        let fattest = self.flows.iter_mut().max_by_key(|flow| flow.fifo.backlog().bytes);
        let flow = fattest.expect("there is a flow at least");
        let enough = flow.fifo.backlog().bytes / 2;
        let mut dropped = 0;
        while dropped < BATCH && (dropped == 0 || flow.fifo.backlog().bytes > enough) {
            let Some(frame) = flow.fifo.pop() else { break };
            self.backlog.remove(&frame);
            context.discard(frame, DiscardReason::Full);
            dropped += 1;
        }
        flow.controller.on_overflow(dropped);
    }

    /// The flow whose turn it is, and whether it is a new one.
    fn next_flow(&mut self) -> Option<(usize, bool)> {
        loop {
            let (at, is_new) = match (self.new.front(), self.old.front()) {
                (Some(at), _) => (*at, true),
                (None, Some(at)) => (*at, false),
                (None, None) => return None,
            };
            if self.flows[at].deficit > 0 {
                return Some((at, is_new));
            }
            self.flows[at].deficit += self.quantum;
            self.list(is_new).pop_front();
            self.old.push_back(at);
        }
    }

    fn list(&mut self, is_new: bool) -> &mut VecDeque<usize> {
        if is_new { &mut self.new } else { &mut self.old }
    }
}

impl QueueDiscipline for FqCoDelQueue {
    fn enqueue(&mut self, _: Instant, frame: LinkFrame, context: &mut HopContext<'_>) {
        let at = index(frame.flow, self.flows.len());
        let flow = &mut self.flows[at];
        self.backlog.add(&frame);
        flow.fifo.push(frame);
        if !flow.is_listed {
            flow.is_listed = true;
            flow.deficit = self.quantum;
            self.new.push_back(at);
        }
        while self.limit.is_exceeded(self.backlog) {
            self.drop_from_fattest(context);
        }
    }

    fn dequeue(&mut self, now: Instant, context: &mut HopContext<'_>) -> Option<LinkFrame> {
        loop {
            let (at, is_new) = self.next_flow()?;
            let flow = &mut self.flows[at];
            let queue = (&mut flow.fifo, &mut self.backlog);
            if let Some(frame) = flow.controller.dequeue(now, &self.parameters, queue, context) {
                flow.deficit -= i64::from(frame.wire_len);
                return Some(frame);
            }
            self.list(is_new).pop_front();
            if is_new && !self.old.is_empty() {
                // It passes the old flows once, so that no flow can stay new by sending little.
                self.old.push_back(at);
            } else {
                self.flows[at].is_listed = false;
            }
        }
    }

    fn backlog(&self) -> FrameTotals {
        self.backlog
    }

    fn flow_state(&self) -> usize {
        size_of_val(&*self.flows)
    }

    fn drain(&mut self, out: &mut Vec<LinkFrame>) {
        for flow in &mut self.flows {
            flow.fifo.drain(out);
            flow.is_listed = false;
        }
        self.new.clear();
        self.old.clear();
        self.backlog = FrameTotals::default();
        out.sort_by_key(|frame| frame.arrived);
    }

    fn set_limit(&mut self, limit: QueueLimit, context: &mut HopContext<'_>) {
        self.limit = limit;
        while self.limit.is_exceeded(self.backlog) {
            self.drop_from_fattest(context);
        }
    }
}

/// The queue of a hash: its share of the range, as evenly as the hash is spread.
#[inline]
pub(super) fn index(hash: u64, queues: usize) -> usize {
    let product = u128::from(hash) * queues as u128;
    usize::try_from(product >> 64).expect("less than the number of queues")
}

#[derive(Debug, Default)]
struct DrrFlow {
    fifo: FrameFifo,
    deficit: u64,
}

/// Queues of flows, served in turn.
#[derive(Debug)]
pub(super) struct DrrQueue {
    limit: QueueLimit,
    quantum: u64,
    flows: Box<[DrrFlow]>,
    /// Those with frames; the first has the turn.
    active: VecDeque<usize>,
    /// Whether the first was given its quantum.
    is_served: bool,
    backlog: FrameTotals,
}

impl DrrQueue {
    /// Of at least one flow, and a quantum of at least one byte.
    pub fn new(limit: QueueLimit, flows: u32, quantum: u32) -> Self {
        Self {
            limit,
            quantum: u64::from(quantum.max(1)),
            flows: (0..flows.max(1)).map(|_| DrrFlow::default()).collect(),
            active: VecDeque::new(),
            is_served: false,
            backlog: FrameTotals::default(),
        }
    }

    fn drop_from_longest(&mut self, context: &mut HopContext<'_>) {
        let bytes_of = |at: &&usize| self.flows[**at].fifo.backlog().bytes;
        let Some(longest) = self.active.iter().max_by_key(bytes_of).copied() else { return };
        let fifo = &mut self.flows[longest].fifo;
        if let Some(frame) = fifo.pop_back() {
            self.backlog.remove(&frame);
            context.discard(frame, DiscardReason::Full);
        }
        if fifo.front().is_none() {
            self.is_served &= self.active.front() != Some(&longest);
            self.active.retain(|at| *at != longest);
            self.flows[longest].deficit = 0;
        }
    }

    fn end_turn(&mut self) {
        self.active.pop_front();
        self.is_served = false;
    }
}

impl QueueDiscipline for DrrQueue {
    fn enqueue(&mut self, _: Instant, frame: LinkFrame, context: &mut HopContext<'_>) {
        let at = index(frame.flow, self.flows.len());
        let fifo = &mut self.flows[at].fifo;
        if fifo.front().is_none() {
            self.active.push_back(at);
        }
        self.backlog.add(&frame);
        fifo.push(frame);
        while self.limit.is_exceeded(self.backlog) {
            self.drop_from_longest(context);
        }
    }

    fn dequeue(&mut self, _: Instant, _: &mut HopContext<'_>) -> Option<LinkFrame> {
        loop {
            let at = *self.active.front()?;
            let flow = &mut self.flows[at];
            if !self.is_served {
                self.is_served = true;
                flow.deficit += self.quantum;
            }
            let len = u64::from(flow.fifo.front().expect("an active flow has frames").wire_len);
            if len > flow.deficit {
                self.end_turn();
                self.active.push_back(at);
                continue;
            }
            flow.deficit -= len;
            let frame = flow.fifo.pop().expect("its length was read");
            self.backlog.remove(&frame);
            if flow.fifo.front().is_none() {
                flow.deficit = 0;
                self.end_turn();
            }
            return Some(frame);
        }
    }

    fn backlog(&self) -> FrameTotals {
        self.backlog
    }

    fn flow_state(&self) -> usize {
        size_of_val(&*self.flows)
    }

    fn drain(&mut self, out: &mut Vec<LinkFrame>) {
        for flow in &mut self.flows {
            flow.fifo.drain(out);
            flow.deficit = 0;
        }
        self.active.clear();
        self.is_served = false;
        self.backlog = FrameTotals::default();
        out.sort_by_key(|frame| frame.arrived);
    }

    fn set_limit(&mut self, limit: QueueLimit, context: &mut HopContext<'_>) {
        self.limit = limit;
        while self.limit.is_exceeded(self.backlog) {
            self.drop_from_longest(context);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::below;
    use crate::fixture::ElementFixture;
    use plumb_base::seed::Seed;
    use plumb_base::time::Span;

    const QUANTUM: u32 = 1_514;

    fn queue(limit: u64) -> FqCoDelQueue {
        let parameters = CoDelParameters::new(Span::from_ms(5), Span::from_ms(100), false);
        FqCoDelQueue::new(QueueLimit::Frames(limit), 1_024, QUANTUM, parameters)
    }

    /// A hash that falls into queue `n` of 1,024.
    fn hash(n: u64) -> u64 {
        n << 54
    }

    /// A link of 10 Mb/s: a flood of full frames at ten times its rate, and a flow that sends a small
    /// frame every 20 ms. The longest that each flow's frames waited.
    fn worst_waits(queue: &mut dyn QueueDiscipline) -> (Span, Span) {
        let mut bench = ElementFixture::new(12_000);
        let (mut flood_wait, mut sparse_wait) = (Span::ZERO, Span::ZERO);
        let per_byte = Span::from_ns(800);
        let mut free_at = Instant::ORIGIN;
        for step in 0..25_000_u64 {
            let now = Instant::ORIGIN + Span::from_us(120) * step;
            while free_at <= now {
                let Some(frame) = queue.dequeue(free_at, &mut bench.context()) else { break };
                let waited = free_at.saturating_since(frame.arrived);
                let worst = if frame.flow == hash(7) { &mut sparse_wait } else { &mut flood_wait };
                *worst = (*worst).max(waited);
                free_at += per_byte * u64::from(frame.wire_len);
                bench.free(frame);
            }
            free_at = free_at.max(now);
            let frame = bench.frame(now, &[0; 8], 1_514, hash(3));
            queue.enqueue(now, frame, &mut bench.context());
            if step % 167 == 0 {
                let frame = bench.frame(now, &[0; 8], 100, hash(7));
                queue.enqueue(now, frame, &mut bench.context());
            }
        }
        (flood_wait, sparse_wait)
    }

    #[test]
    fn a_flood_does_not_delay_a_sparse_flow_by_more_than_the_frames_under_way() {
        let (flood, sparse) = worst_waits(&mut queue(10_240));
        // One frame that is being sent, and one of the flood's turn: 2 × 1.21 ms.
        assert!(sparse <= Span::from_us(2_423), "the sparse flow waited {sparse}");
        assert!(flood > Span::from_ms(100), "the flood waited {flood}");
        let (_, sparse) =
            worst_waits(&mut super::super::DropTailQueue::new(QueueLimit::Frames(1_000)));
        assert!(sparse > Span::from_ms(1_000), "without flow queueing it waited {sparse}");
    }

    #[test]
    fn what_is_too_much_is_dropped_from_the_fattest_flow_only() {
        let mut bench = ElementFixture::new(300);
        let mut queue = queue(200);
        let now = Instant::ORIGIN;
        for _ in 0..10 {
            let frame = bench.frame(now, &[0; 8], 1_500, hash(1));
            queue.enqueue(now, frame, &mut bench.context());
        }
        for _ in 0..1_000 {
            let frame = bench.frame(now, &[0; 8], 200, hash(2));
            queue.enqueue(now, frame, &mut bench.context());
            assert!(queue.backlog().frames <= 200);
        }
        assert_eq!(bench.discarded(DiscardReason::Full), 1_010 - queue.backlog().frames);
        assert_eq!(queue.flows[1].fifo.backlog().frames, 10);
        let waiting = queue.backlog();
        let mut drained = Vec::new();
        queue.drain(&mut drained);
        assert_eq!(
            (drained.len() as u64, queue.backlog()),
            (waiting.frames, FrameTotals::default())
        );
        for frame in drained {
            bench.free(frame);
        }
        assert_eq!(bench.pool.available().0, 300);
    }

    #[test]
    fn backlogged_flows_get_equal_bytes_whatever_the_size_of_their_frames() {
        let mut bench = ElementFixture::new(20_000);
        let mut queue = queue(20_000);
        // Two sizes, enqueued at the moment they are taken at, so that nothing waits above the target.
        let now = Instant::ORIGIN;
        for _ in 0..2_000 {
            for (flow, len) in [(1, 1_500), (2, 100)] {
                for _ in 0..1_500 / len {
                    let frame = bench.frame(now, &[0; 8], len, hash(flow));
                    queue.enqueue(now, frame, &mut bench.context());
                }
            }
            if bench.pool.available().0 < 100 {
                break;
            }
        }
        let mut sent = [0_i64; 3];
        for _ in 0..8_000 {
            let frame = queue.dequeue(now, &mut bench.context()).unwrap();
            sent[usize::try_from(frame.flow >> 54).unwrap()] += i64::from(frame.wire_len);
            bench.free(frame);
            let difference = (sent[1] - sent[2]).abs();
            assert!(difference <= i64::from(QUANTUM) + 2 * 1_500, "{sent:?}");
        }
    }

    fn drr_hash(n: u64) -> u64 {
        n << 60
    }

    #[test]
    fn what_backlogged_flows_have_sent_differs_by_a_quantum_and_two_frames_at_most() {
        for seed in 0..20 {
            let mut stream = Seed(seed).stream("sizes");
            let mut bench = ElementFixture::new(8_000);
            let quantum = 500 + 300 * u32::try_from(seed).unwrap();
            let mut drr = DrrQueue::new(QueueLimit::Frames(8_000), 16, quantum);
            let now = Instant::ORIGIN;
            let longest = [64, 300, 900, 1_500];
            for _ in 0..2_000 {
                for (flow, longest) in longest.iter().enumerate() {
                    let len = 40 + u32::try_from(below(&mut stream, longest - 39)).unwrap();
                    let frame = bench.frame(now, &[0; 8], len, drr_hash(flow as u64));
                    drr.enqueue(now, frame, &mut bench.context());
                }
            }
            let mut sent = [0_u64; 4];
            while drr.flows[..4].iter().all(|flow| flow.fifo.backlog().frames > 0) {
                let frame = drr.dequeue(now, &mut bench.context()).unwrap();
                sent[usize::try_from(frame.flow >> 60).unwrap()] += u64::from(frame.wire_len);
                bench.free(frame);
                let spread = sent.iter().max().unwrap() - sent.iter().min().unwrap();
                assert!(spread <= u64::from(quantum) + 2 * 1_500, "seed {seed}: {sent:?}");
            }
        }
    }

    #[test]
    fn without_room_the_longest_queue_loses_and_a_short_one_does_not() {
        let mut bench = ElementFixture::new(64);
        let mut drr = DrrQueue::new(QueueLimit::Bytes(10_000), 16, 1_500);
        let now = Instant::ORIGIN;
        for flow in [1, 2] {
            for _ in 0..if flow == 1 { 1 } else { 40 } {
                let frame = bench.frame(now, &[0; 8], 1_000, drr_hash(flow));
                drr.enqueue(now, frame, &mut bench.context());
            }
        }
        assert_eq!((drr.backlog().bytes, bench.discarded(DiscardReason::Full)), (10_000, 31));
        assert_eq!(drr.flows[1].fifo.backlog().frames, 1);
        let mut taken = 0;
        while let Some(frame) = drr.dequeue(now, &mut bench.context()) {
            bench.free(frame);
            taken += 1;
        }
        assert_eq!((taken, drr.backlog()), (10, FrameTotals::default()));
        assert!(drr.active.is_empty() && !drr.is_served);
    }
}
