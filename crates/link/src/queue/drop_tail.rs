//! Drop-tail: first in, first out, and what finds no room is dropped.
//!
//! Left out: any management of how long frames wait.

use plumb_base::time::Instant;

use super::fifo::Fifo;
use super::{Backlog, Limit, Queue};
use crate::context::{Context, Reason};
use crate::frame::Frame;

/// The queue of most interfaces.
#[derive(Debug)]
pub(super) struct DropTail {
    limit: Limit,
    fifo: Fifo,
}

impl DropTail {
    pub(super) fn new(limit: Limit) -> Self {
        Self { limit, fifo: Fifo::default() }
    }
}

impl Queue for DropTail {
    fn enqueue(&mut self, _: Instant, frame: Frame, context: &mut Context<'_>) {
        if self.limit.takes(self.fifo.backlog(), &frame) {
            self.fifo.push(frame);
        } else {
            context.discard(frame, Reason::Full);
        }
    }

    fn dequeue(&mut self, _: Instant, _: &mut Context<'_>) -> Option<Frame> {
        self.fifo.pop()
    }

    fn backlog(&self) -> Backlog {
        self.fifo.backlog()
    }

    fn drain(&mut self, out: &mut Vec<Frame>) {
        self.fifo.drain(out);
    }

    fn set_limit(&mut self, limit: Limit, context: &mut Context<'_>) {
        self.limit = limit;
        self.fifo.shrink(limit, context);
    }
}
