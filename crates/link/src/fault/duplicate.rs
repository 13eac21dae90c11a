//! Duplication: a frame now and then arrives twice, the second right behind the first.
//!
//! Left out: more copies than one, and copies that come late.

use plumb_base::seed::Stream;
use plumb_base::time::Instant;

use super::Fault;
use crate::chance::Chance;
use crate::context::Context;
use crate::frame::Frame;
use crate::spec::FaultSpec;

#[derive(Debug)]
pub(super) struct Duplicate {
    chance: Chance,
    stream: Stream,
}

impl Duplicate {
    pub(super) fn new(share: f64, stream: Stream) -> Self {
        Self { chance: Chance::new(share), stream }
    }
}

impl Fault for Duplicate {
    fn strike(
        &mut self,
        at: Instant,
        frame: Frame,
        out: &mut Vec<(Instant, Frame)>,
        context: &mut Context<'_>,
    ) {
        let copy =
            if self.chance.strikes(&mut self.stream) { context.duplicate(&frame) } else { None };
        out.push((at, frame));
        out.extend(copy.map(|copy| (at, copy)));
    }

    fn retune(&mut self, spec: &FaultSpec) -> bool {
        let FaultSpec::Duplicate(share) = spec else { return false };
        self.chance = Chance::new(*share);
        true
    }
}
