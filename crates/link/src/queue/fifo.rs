//! Frames in the order of their arrival, and how much they are: what every discipline is made of.

use std::collections::VecDeque;

use plumb_base::time::Instant;

use crate::frame::{DiscardReason, FrameTotals, HopContext, LinkFrame, traffic_class};
use crate::queue::QueueDiscipline;
use crate::spec::QueueLimit;

/// First in, first out.
#[derive(Debug, Default)]
pub(super) struct FrameFifo {
    frames: VecDeque<LinkFrame>,
    backlog: FrameTotals,
}

impl FrameFifo {
    #[inline]
    pub fn push(&mut self, frame: LinkFrame) {
        self.backlog.add(&frame);
        self.frames.push_back(frame);
    }

    #[inline]
    pub fn pop(&mut self) -> Option<LinkFrame> {
        let frame = self.frames.pop_front()?;
        self.backlog.remove(&frame);
        Some(frame)
    }

    /// Takes the one that came last.
    pub fn pop_back(&mut self) -> Option<LinkFrame> {
        let frame = self.frames.pop_back()?;
        self.backlog.remove(&frame);
        Some(frame)
    }

    #[inline]
    pub fn front(&self) -> Option<&LinkFrame> {
        self.frames.front()
    }

    #[inline]
    pub fn backlog(&self) -> FrameTotals {
        self.backlog
    }

    pub fn drain(&mut self, out: &mut Vec<LinkFrame>) {
        out.extend(self.frames.drain(..));
        self.backlog = FrameTotals::default();
    }
}

/// The queue of most interfaces.
#[derive(Debug)]
pub(super) struct DropTailQueue {
    limit: QueueLimit,
    pub(super) fifo: FrameFifo,
}

impl DropTailQueue {
    pub fn new(limit: QueueLimit) -> Self {
        Self { limit, fifo: FrameFifo::default() }
    }

    /// Whether a frame still fits.
    #[inline]
    pub fn takes(&self, frame: &LinkFrame) -> bool {
        self.limit.takes(self.fifo.backlog(), frame)
    }
}

impl QueueDiscipline for DropTailQueue {
    fn enqueue(&mut self, _: Instant, frame: LinkFrame, context: &mut HopContext<'_>) {
        if self.takes(&frame) {
            self.fifo.push(frame);
        } else {
            context.discard(frame, DiscardReason::Full);
        }
    }

    fn dequeue(&mut self, _: Instant, _: &mut HopContext<'_>) -> Option<LinkFrame> {
        self.fifo.pop()
    }

    fn backlog(&self) -> FrameTotals {
        self.fifo.backlog()
    }

    fn drain(&mut self, out: &mut Vec<LinkFrame>) {
        self.fifo.drain(out);
    }

    fn set_limit(&mut self, limit: QueueLimit, context: &mut HopContext<'_>) {
        self.limit = limit;
        while limit.is_exceeded(self.fifo.backlog()) {
            let Some(frame) = self.fifo.pop_back() else { return };
            context.discard(frame, DiscardReason::Full);
        }
    }
}

/// Three queues; a band is served when those before it are empty.
///
/// The band is what `ip_tos2prio` and `prio2band` of Linux make of bits 3 and 4 of the octet (RFC 1349); of other than
/// IP it is the middle one. So EF (46), which has both bits, falls into the middle.
#[derive(Debug)]
pub(super) struct PriorityQueue {
    bands: [DropTailQueue; 3],
}

impl PriorityQueue {
    /// With the limit in each band.
    pub fn new(limit: QueueLimit) -> Self {
        Self { bands: [(); 3].map(|()| DropTailQueue::new(limit)) }
    }
}

/// The band of an octet of class: 0 goes first.
const fn band(class: u8) -> usize {
    match class >> 3 & 0b11 {
        0b10 => 0,
        0b01 => 2,
        _ => 1,
    }
}

impl QueueDiscipline for PriorityQueue {
    fn enqueue(&mut self, now: Instant, frame: LinkFrame, context: &mut HopContext<'_>) {
        let class = traffic_class(context.medium, context.pool.bytes(&frame.packet));
        self.bands[class.map_or(1, |class| band(class.0))].enqueue(now, frame, context);
    }

    fn dequeue(&mut self, _: Instant, _: &mut HopContext<'_>) -> Option<LinkFrame> {
        self.bands.iter_mut().find_map(|queue| queue.fifo.pop())
    }

    fn backlog(&self) -> FrameTotals {
        let [a, b, c] = self.bands.each_ref().map(DropTailQueue::backlog);
        FrameTotals { frames: a.frames + b.frames + c.frames, bytes: a.bytes + b.bytes + c.bytes }
    }

    fn drain(&mut self, out: &mut Vec<LinkFrame>) {
        for queue in &mut self.bands {
            queue.drain(out);
        }
        out.sort_by_key(|frame| frame.arrived);
    }

    fn set_limit(&mut self, limit: QueueLimit, context: &mut HopContext<'_>) {
        for queue in &mut self.bands {
            queue.set_limit(limit, context);
        }
    }
}

#[cfg(test)]
mod tests {
    use plumb_wire::ip::TrafficClass;

    use super::*;
    use crate::fixture::{ElementFixture, udp};

    /// Linux's tables, as they stand in net/ipv4/route.c and net/sched/sch_generic.c.
    #[test]
    fn every_octet_falls_into_the_band_that_linuxs_two_tables_give() {
        const TOS_TO_PRIORITY: [usize; 16] = [0, 0, 0, 0, 2, 2, 2, 2, 6, 6, 6, 6, 4, 4, 4, 4];
        const PRIORITY_TO_BAND: [usize; 16] = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];
        for octet in 0..=255_u8 {
            let priority = TOS_TO_PRIORITY[usize::from((octet & 0x1e) >> 1)];
            assert_eq!(band(octet), PRIORITY_TO_BAND[priority], "{octet:#04x}");
        }
    }

    #[test]
    fn urgent_frames_overtake_others_and_a_full_band_leaves_room_in_the_rest() {
        for v6 in [false, true] {
            let mut bench = ElementFixture::new(16);
            let mut priority = PriorityQueue::new(QueueLimit::Frames(2));
            let now = Instant::ORIGIN;
            for class in [0x08, 0x00, 0x08, 0x08, 0x10, 0x00] {
                let bytes = udp(v6, TrafficClass(class), (1, 2), 4);
                let frame = bench.frame(now, &bytes, 100, class.into());
                priority.enqueue(now, frame, &mut bench.context());
            }
            assert_eq!((priority.backlog().frames, bench.discarded(DiscardReason::Full)), (5, 1));
            let mut order = Vec::new();
            while let Some(frame) = priority.dequeue(now, &mut bench.context()) {
                order.push(frame.flow);
                bench.free(frame);
            }
            assert_eq!(order, [0x10, 0, 0, 8, 8]);
        }
    }
}
