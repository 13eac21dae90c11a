//! Every n-th frame lost, counted from the link's start, or from when there was such a fault.
//!
//! Left out: any randomness.

use plumb_base::time::Instant;

use super::Fault;
use crate::context::{Context, Reason};
use crate::frame::Frame;
use crate::spec::FaultSpec;

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
        if self.every > 0 && self.seen.is_multiple_of(self.every) {
            context.discard(frame, Reason::Lost);
        } else {
            out.push((at, frame));
        }
    }

    fn retune(&mut self, spec: &FaultSpec) -> bool {
        let FaultSpec::Periodic(every) = spec else { return false };
        self.every = *every;
        true
    }
}
