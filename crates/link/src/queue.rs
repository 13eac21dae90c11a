//! Queues: what waits for the rate of a hop, one discipline a file.
//!
//! Left out: the rate itself, and where frames come from.

use plumb_base::seed::Stream;
use plumb_base::time::Instant;

use crate::context::Context;
use crate::frame::Frame;
use crate::spec::QueueSpec;

mod codel;
mod drop_tail;
mod drr;
mod fifo;
mod fq_codel;
mod pie;
mod priority;
mod red;

/// What waits in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Frames.
    pub frames: u64,
    /// Bytes as the rate counts them.
    pub bytes: u64,
}

impl Backlog {
    fn add(&mut self, frame: &Frame) {
        self.frames += u64::from(frame.count);
        self.bytes += u64::from(frame.wire_len);
    }

    fn remove(&mut self, frame: &Frame) {
        self.frames -= u64::from(frame.count);
        self.bytes -= u64::from(frame.wire_len);
    }
}

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// So many frames.
    Frames(u64),
    /// So many bytes.
    Bytes(u64),
}

impl Limit {
    /// Whether a frame still fits. One always does where nothing waits: a limit shorter than a frame
    /// would otherwise be a link that is down.
    #[inline]
    pub fn takes(self, backlog: Backlog, frame: &Frame) -> bool {
        backlog.frames == 0
            || match self {
                Self::Frames(limit) => backlog.frames + u64::from(frame.count) <= limit,
                Self::Bytes(limit) => backlog.bytes + u64::from(frame.wire_len) <= limit,
            }
    }

    /// Whether more waits than may.
    #[inline]
    pub fn is_exceeded(self, backlog: Backlog) -> bool {
        backlog.frames > 1
            && match self {
                Self::Frames(limit) => backlog.frames > limit,
                Self::Bytes(limit) => backlog.bytes > limit,
            }
    }
}

/// A queueing discipline. Moments given to one queue never go backwards.
pub trait Queue: std::fmt::Debug + Send {
    /// Takes a frame that arrives at `now`, which is its `arrived`; discards it, or another, where there is no room.
    fn enqueue(&mut self, now: Instant, frame: Frame, context: &mut Context<'_>);

    /// The frame to be sent next, at `now`; may discard others on its way to it. `None` only when nothing waits.
    fn dequeue(&mut self, now: Instant, context: &mut Context<'_>) -> Option<Frame>;

    /// What waits.
    fn backlog(&self) -> Backlog;

    /// Empties it into `out`, judging none: for another discipline that takes its place while a link runs.
    fn drain(&mut self, out: &mut Vec<Frame>);

    /// Changes how much may wait: what finds no room any more is discarded, and everything else that the discipline
    /// knows stays as it is.
    fn set_limit(&mut self, limit: Limit, context: &mut Context<'_>);

    /// When [`Queue::handle_deadline`] is due, if the discipline does anything by the clock alone.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Does what is due; afterwards the deadline lies after `now`.
    fn handle_deadline(&mut self, now: Instant, context: &mut Context<'_>) {
        let _ = (now, context);
    }
}

/// The queue that a description asks for.
///
/// `limit` is the description's, resolved; `stream` is what its random choices come from.
pub fn make(spec: &QueueSpec, limit: Limit, stream: Stream) -> Box<dyn Queue> {
    match *spec {
        QueueSpec::DropTail { .. } => Box::new(drop_tail::DropTail::new(limit)),
        QueueSpec::CoDel { target, interval, ecn, .. } => {
            let parameters = codel::Parameters::new(target, interval, ecn);
            Box::new(codel::CoDel::new(limit, parameters))
        }
        QueueSpec::FqCoDel { flows, quantum, target, interval, ecn, .. } => {
            let parameters = codel::Parameters::new(target, interval, ecn);
            Box::new(fq_codel::FqCoDel::new(limit, flows, quantum, parameters))
        }
        QueueSpec::Drr { flows, quantum, .. } => Box::new(drr::Drr::new(limit, flows, quantum)),
        QueueSpec::Priority { .. } => Box::new(priority::Priority::new(limit)),
        QueueSpec::Red { min, max, p_max, ecn, .. } => {
            let curve = red::Curve { min: min as f64, max: max as f64, p_max };
            Box::new(red::Red::new(limit, curve, ecn, stream))
        }
        QueueSpec::Pie { target, update, ecn, .. } => {
            Box::new(pie::Pie::new(limit, target, update, ecn, stream))
        }
    }
}

#[cfg(test)]
mod tests;
