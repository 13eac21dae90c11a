//! Every n-th frame lost, counted from the link's start.
//!
//! Left out: any randomness.

use plumb_base::time::Instant;

use super::Fault;
use crate::context::{Context, Reason};
use crate::frame::Frame;

#[derive(Debug)]
pub(super) struct Periodic {
    every: u64,
    seen: u64,
}

impl Periodic {
    /// Never loses any with `every` 0.
    pub(super) fn new(every: u64) -> Self {
        Self { every, seen: 0 }
    }
}

impl Fault for Periodic {
    fn strike(
        &mut self,
        at: Instant,
        frame: Frame,
        out: &mut Vec<(Instant, Frame)>,
        context: &mut Context<'_>,
    ) {
        self.seen += 1;
        if self.seen == self.every {
            self.seen = 0;
            context.discard(frame, Reason::Lost);
        } else {
            out.push((at, frame));
        }
    }
}
