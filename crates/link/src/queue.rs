//! Queues: what waits for the rate of a hop, one discipline a file; here what all are made of, and frames in the order of their
//! arrival.

use std::collections::VecDeque;

use plumb_base::seed::RandomStream;
use plumb_base::time::Instant;

use crate::frame::{
    CountedFrame, DiscardReason, FrameTotals, HopContext, LinkFrame, traffic_class,
};
use crate::spec::{QueueLimit, QueueSpec};

mod codel;
mod csfq;
mod fq_codel;
mod pie;
mod red;
mod red_pd;

impl QueueLimit {
    /// Whether a frame still fits. One always does where nothing waits: a limit shorter than a frame
    /// would otherwise be a link that is down.
    #[inline]
    pub(crate) fn takes(self, backlog: FrameTotals, frame: impl Into<CountedFrame>) -> bool {
        let frame = frame.into();
        backlog.frames == 0
            || match self {
                Self::Frames(limit) => backlog.frames + u64::from(frame.count) <= limit,
                Self::Bytes(limit) => backlog.bytes + u64::from(frame.wire_len) <= limit,
            }
    }

    /// Whether more waits than may.
    #[inline]
    pub fn is_exceeded(self, backlog: FrameTotals) -> bool {
        backlog.frames > 1
            && match self {
                Self::Frames(limit) => backlog.frames > limit,
                Self::Bytes(limit) => backlog.bytes > limit,
            }
    }
}

/// A queueing discipline. Moments given to one queue never go backwards.
pub trait QueueDiscipline: std::fmt::Debug + Send {
    /// Takes a frame that arrives at `now`, which is its `arrived`; discards it, or another, where there is no room.
    fn enqueue(&mut self, now: Instant, frame: LinkFrame, context: &mut HopContext<'_>);

    /// The frame to be sent next, at `now`; may discard others on its way to it. `None` only when nothing waits.
    fn dequeue(&mut self, now: Instant, context: &mut HopContext<'_>) -> Option<LinkFrame>;

    /// What waits.
    fn backlog(&self) -> FrameTotals;

    /// Bytes of memory that it takes to tell flows apart, beside what waits.
    fn flow_state(&self) -> usize {
        0
    }

    /// Moves every frame to `out`, for another discipline that replaces this one while a link runs.
    fn drain(&mut self, out: &mut Vec<LinkFrame>);

    /// Changes how much may wait: what finds no room any more is discarded, and everything else that the discipline
    /// knows stays as it is.
    fn set_limit(&mut self, limit: QueueLimit, context: &mut HopContext<'_>);

    /// The link sends so many bits a second in the long run from now on; 0 where nothing limits it.
    fn set_rate(&mut self, rate: u64) {
        let _ = rate;
    }

    /// When [`QueueDiscipline::handle_deadline`] is due, if the discipline does anything by the clock alone.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Does what is due; afterwards the deadline lies after `now`.
    fn handle_deadline(&mut self, now: Instant, context: &mut HopContext<'_>) {
        let _ = (now, context);
    }
}

/// The queue that a description asks for.
///
/// `limit` is the description's, resolved; `rate` is the link's in bits a second; `stream` is what its random choices come from.
pub fn make(
    spec: &QueueSpec,
    limit: QueueLimit,
    rate: u64,
    stream: RandomStream,
) -> Box<dyn QueueDiscipline> {
    match *spec {
        QueueSpec::DropTail { .. } => Box::new(DropTailQueue::new(limit)),
        QueueSpec::CoDel { target, interval, ecn, .. } => {
            let parameters = codel::CoDelParameters::new(target, interval, ecn);
            Box::new(codel::CoDelQueue::new(limit, parameters))
        }
        QueueSpec::FqCoDel { flows, quantum, target, interval, ecn, .. } => {
            let parameters = codel::CoDelParameters::new(target, interval, ecn);
            Box::new(fq_codel::FqCoDelQueue::new(limit, flows, quantum, parameters))
        }
        QueueSpec::Drr { flows, quantum, .. } => {
            Box::new(fq_codel::DrrQueue::new(limit, flows, quantum))
        }
        QueueSpec::Csfq { flows, average, .. } => {
            Box::new(csfq::CoreStatelessQueue::new(limit, flows, average, rate, stream))
        }
        QueueSpec::RedPd { min, max, p_max, ecn, rtt, .. } => {
            let curve = red::RedCurve { min: min as f64, max: max as f64, p_max };
            Box::new(red_pd::PreferentialQueue::new(limit, (curve, ecn), rtt, stream))
        }
        QueueSpec::Priority { .. } => Box::new(PriorityQueue::new(limit)),
        QueueSpec::Red { min, max, p_max, ecn, .. } => {
            let curve = red::RedCurve { min: min as f64, max: max as f64, p_max };
            Box::new(red::RedQueue::new(limit, curve, ecn, stream))
        }
        QueueSpec::Pie { target, update, ecn, .. } => {
            Box::new(pie::PieQueue::new(limit, target, update, ecn, stream))
        }
    }
}

/// First in, first out.
#[derive(Debug, Default)]
struct FrameFifo {
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
struct DropTailQueue {
    limit: QueueLimit,
    fifo: FrameFifo,
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
struct PriorityQueue {
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
mod tests;
