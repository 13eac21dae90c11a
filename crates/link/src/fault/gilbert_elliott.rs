//! Loss in bursts: a chain of two states, good and bad, that steps at each frame.
//!
//! Gilbert, "Capacity of a Burst-Noise Channel" (Bell System Technical Journal 39, 1960); Elliott, "Estimates of Error Rates for
//! Codes on Burst-Noise Channels" (ibid. 42, 1963). Left out: states that last for a time instead of a number of frames.

use plumb_base::seed::Stream;
use plumb_base::time::Instant;

use super::Fault;
use crate::chance::Chance;
use crate::context::{Context, Reason};
use crate::frame::Frame;
use crate::spec::FaultSpec;

/// The chain's four probabilities.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    pub(super) to_bad: f64,
    pub(super) to_good: f64,
    pub(super) loss_good: f64,
    pub(super) loss_bad: f64,
}

#[derive(Debug)]
pub(super) struct GilbertElliott {
    is_bad: bool,
    to_bad: Chance,
    to_good: Chance,
    loss_good: Chance,
    loss_bad: Chance,
    stream: Stream,
}

impl GilbertElliott {
    /// Begins good.
    pub(super) fn new(shares: Shares, stream: Stream) -> Self {
        Self {
            is_bad: false,
            to_bad: Chance::new(shares.to_bad),
            to_good: Chance::new(shares.to_good),
            loss_good: Chance::new(shares.loss_good),
            loss_bad: Chance::new(shares.loss_bad),
            stream,
        }
    }
}

impl Fault for GilbertElliott {
    fn strike(
        &mut self,
        at: Instant,
        frame: Frame,
        out: &mut Vec<(Instant, Frame)>,
        context: &mut Context<'_>,
    ) {
        let (loss, step) =
            if self.is_bad { (self.loss_bad, self.to_good) } else { (self.loss_good, self.to_bad) };
        let is_lost = loss.strikes(&mut self.stream);
        self.is_bad ^= step.strikes(&mut self.stream);
        if is_lost {
            context.discard(frame, Reason::Lost);
        } else {
            out.push((at, frame));
        }
    }

    fn retune(&mut self, spec: &FaultSpec) -> bool {
        let FaultSpec::GilbertElliott { p, r, loss_good, loss_bad } = spec else { return false };
        (self.to_bad, self.to_good) = (Chance::new(*p), Chance::new(*r));
        (self.loss_good, self.loss_bad) = (Chance::new(*loss_good), Chance::new(*loss_bad));
        true
    }
}
