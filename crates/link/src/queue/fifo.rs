//! Frames in the order of their arrival, and how much they are: what every discipline is made of.
//!
//! Left out: any limit.

use std::collections::VecDeque;

use super::{Backlog, Limit};
use crate::context::{Context, Reason};
use crate::frame::Frame;

/// First in, first out.
#[derive(Debug, Default)]
pub(super) struct Fifo {
    frames: VecDeque<Frame>,
    backlog: Backlog,
}

impl Fifo {
    #[inline]
    pub(super) fn push(&mut self, frame: Frame) {
        self.backlog.add(&frame);
        self.frames.push_back(frame);
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop_front()?;
        self.backlog.remove(&frame);
        Some(frame)
    }

    /// Takes the one that came last.
    pub(super) fn pop_back(&mut self) -> Option<Frame> {
        let frame = self.frames.pop_back()?;
        self.backlog.remove(&frame);
        Some(frame)
    }

    /// Discards what came last until no more waits than may.
    pub(super) fn shrink(&mut self, limit: Limit, context: &mut Context<'_>) {
        while limit.is_exceeded(self.backlog) {
            let Some(frame) = self.pop_back() else { return };
            context.discard(frame, Reason::Full);
        }
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&Frame> {
        self.frames.front()
    }

    #[inline]
    pub(super) fn backlog(&self) -> Backlog {
        self.backlog
    }

    pub(super) fn drain(&mut self, out: &mut Vec<Frame>) {
        out.extend(self.frames.drain(..));
        self.backlog = Backlog::default();
    }
}
