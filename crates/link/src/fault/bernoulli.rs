//! Independent loss: each frame with the same probability.
//!
//! Left out: bursts, which [`super::gilbert_elliott`] makes.

use plumb_base::seed::Stream;
use plumb_base::time::Instant;

use super::Fault;
use crate::chance::Chance;
use crate::context::{Context, Reason};
use crate::frame::Frame;
use crate::spec::FaultSpec;

#[derive(Debug)]
pub(super) struct Bernoulli {
    loss: Chance,
    stream: Stream,
}

impl Bernoulli {
    pub(super) fn new(share: f64, stream: Stream) -> Self {
        Self { loss: Chance::new(share), stream }
    }
}

impl Fault for Bernoulli {
    fn strike(
        &mut self,
        at: Instant,
        frame: Frame,
        out: &mut Vec<(Instant, Frame)>,
        context: &mut Context<'_>,
    ) {
        if self.loss.strikes(&mut self.stream) {
            context.discard(frame, Reason::Lost);
        } else {
            out.push((at, frame));
        }
    }

    fn retune(&mut self, spec: &FaultSpec) -> bool {
        let FaultSpec::Loss(share) = spec else { return false };
        self.loss = Chance::new(*share);
        true
    }
}
