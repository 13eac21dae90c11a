//! Disorder: a frame now and then goes later than it should, and others overtake it.
//!
//! Left out: disorder by delays that differ, which a delay that lets frames overtake makes.

use plumb_base::seed::Stream;
use plumb_base::time::{Instant, Span};

use super::Fault;
use crate::chance::Chance;
use crate::context::Context;
use crate::frame::Frame;
use crate::spec::FaultSpec;

#[derive(Debug)]
pub(super) struct Reorder {
    chance: Chance,
    by: Span,
    stream: Stream,
}

impl Reorder {
    pub(super) fn new(share: f64, by: Span, stream: Stream) -> Self {
        Self { chance: Chance::new(share), by, stream }
    }
}

impl Fault for Reorder {
    fn strike(
        &mut self,
        at: Instant,
        frame: Frame,
        out: &mut Vec<(Instant, Frame)>,
        context: &mut Context<'_>,
    ) {
        if self.chance.strikes(&mut self.stream) {
            context.changes.reordered += u64::from(frame.count);
            out.push((at + self.by, frame));
        } else {
            out.push((at, frame));
        }
    }

    fn retune(&mut self, spec: &FaultSpec) -> bool {
        let FaultSpec::Reorder { share, by } = spec else { return false };
        (self.chance, self.by) = (Chance::new(*share), *by);
        true
    }
}
