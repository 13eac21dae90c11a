//! Queues: what waits for the rate of a hop, one discipline a file.

use plumb_base::seed::RandomStream;
use plumb_base::time::Instant;

use crate::frame::{CountedFrame, FrameTotals, HopContext, LinkFrame};
use crate::spec::{QueueLimit, QueueSpec};

mod codel;
mod csfq;
mod fifo;
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
        QueueSpec::DropTail { .. } => Box::new(fifo::DropTailQueue::new(limit)),
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
        QueueSpec::Priority { .. } => Box::new(fifo::PriorityQueue::new(limit)),
        QueueSpec::Red { min, max, p_max, ecn, .. } => {
            let curve = red::RedCurve { min: min as f64, max: max as f64, p_max };
            Box::new(red::RedQueue::new(limit, curve, ecn, stream))
        }
        QueueSpec::Pie { target, update, ecn, .. } => {
            Box::new(pie::PieQueue::new(limit, target, update, ecn, stream))
        }
    }
}

#[cfg(test)]
mod tests;
