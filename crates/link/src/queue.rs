//! Queues: what waits for the rate of a hop, one discipline a file.
//!
//! Left out: the rate itself, and where frames come from.

use plumb_base::time::Instant;

use crate::context::Context;
use crate::frame::Frame;

/// What waits in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Frames.
    pub frames: u64,
    /// Bytes as the rate counts them.
    pub bytes: u64,
}

/// A queueing discipline. Moments given to one queue never go backwards.
pub trait Queue: std::fmt::Debug + Send {
    /// Takes a frame that arrives at `now`; discards it, or another, where there is no room.
    fn enqueue(&mut self, now: Instant, frame: Frame, context: &mut Context<'_>);

    /// The frame to be sent next, at `now`; may discard others on its way to it. `None` only when nothing waits.
    fn dequeue(&mut self, now: Instant, context: &mut Context<'_>) -> Option<Frame>;

    /// What waits.
    fn backlog(&self) -> Backlog;

    /// When [`Queue::handle_deadline`] is due, if the discipline does anything by the clock alone.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Does what is due; afterwards the deadline lies after `now`.
    fn handle_deadline(&mut self, now: Instant, context: &mut Context<'_>) {
        let _ = (now, context);
    }
}
