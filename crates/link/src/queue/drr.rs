//! Deficit round robin: a queue a flow, each sends a quantum of bytes a round.
//!
//! Shreedhar & Varghese, "Efficient Fair Queuing using Deficit Round Robin" (SIGCOMM 1995); without
//! room the longest queue loses its last frame (§3 there, after McKenney).

use std::collections::VecDeque;

use plumb_base::time::Instant;

use super::fifo::FrameFifo;
use super::fq_codel::index;
use super::{QueueBacklog, QueueDiscipline, QueueLimit};
use crate::frame::{DiscardReason, HopContext, LinkFrame};

#[derive(Debug, Default)]
struct DrrFlow {
    fifo: FrameFifo,
    deficit: u64,
}

/// Queues of flows.
#[derive(Debug)]
pub(super) struct DrrQueue {
    limit: QueueLimit,
    quantum: u64,
    flows: Box<[DrrFlow]>,
    /// Those with frames; the first has the turn.
    active: VecDeque<usize>,
    /// Whether the first was given its quantum.
    is_served: bool,
    backlog: QueueBacklog,
}

impl DrrQueue {
    /// Of at least one flow, and a quantum of at least one byte.
    pub(super) fn new(limit: QueueLimit, flows: u32, quantum: u32) -> Self {
        Self {
            limit,
            quantum: u64::from(quantum.max(1)),
            flows: (0..flows.max(1)).map(|_| DrrFlow::default()).collect(),
            active: VecDeque::new(),
            is_served: false,
            backlog: QueueBacklog::default(),
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

    fn backlog(&self) -> QueueBacklog {
        self.backlog
    }

    fn drain(&mut self, out: &mut Vec<LinkFrame>) {
        for flow in &mut self.flows {
            flow.fifo.drain(out);
            flow.deficit = 0;
        }
        self.active.clear();
        self.is_served = false;
        self.backlog = QueueBacklog::default();
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
    use plumb_base::seed::Seed;

    use super::*;
    use crate::chance::below;
    use crate::fixture::ElementFixture;

    fn hash(n: u64) -> u64 {
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
                    let frame = bench.frame(now, &[0; 8], len, hash(flow as u64));
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
                let frame = bench.frame(now, &[0; 8], 1_000, hash(flow));
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
        assert_eq!((taken, drr.backlog()), (10, QueueBacklog::default()));
        assert!(drr.active.is_empty() && !drr.is_served);
    }
}
