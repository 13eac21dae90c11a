//! Rates: how long the sender of a hop is busy with a frame, one kind a file.
//!
//! Exact: what a division leaves is carried to the next frame, so that a busy sender never drifts
//! from its rate. Left out: what waits for it.

use plumb_base::time::Instant;

use crate::spec::RateSpec;

pub mod bucket;
pub mod constant;
pub mod on_off;
pub mod opportunities;

use bucket::Bucket;
use constant::Constant;
use on_off::OnOff;
use opportunities::Opportunities;

/// Picoseconds in a second.
pub(crate) const SECOND: u64 = 1_000_000_000_000;

/// What sends the frames of a hop, one after the other.
#[derive(Clone, Debug)]
pub enum Server {
    /// At once.
    Unlimited,
    /// Bit after bit.
    Constant(Constant),
    /// When there are tokens.
    Bucket(Bucket),
    /// Bit after bit, with pauses.
    OnOff(OnOff),
    /// When a trace says so.
    Opportunities(Opportunities),
}

/// The sender that a description asks for, on a link that begins at `start`.
pub fn make(spec: &RateSpec, start: Instant) -> Server {
    match spec {
        RateSpec::Unlimited => Server::Unlimited,
        RateSpec::Constant(rate) => Server::Constant(Constant::new(*rate)),
        RateSpec::Bucket(spec) => Server::Bucket(Bucket::new(*spec, start)),
        RateSpec::OnOff { rate, on, off } => Server::OnOff(OnOff::new(*rate, *on, *off, start)),
        RateSpec::Trace(trace) => Server::Opportunities(Opportunities::new(trace, start)),
    }
}

impl Server {
    /// When the last of `bits` is sent, of a frame that is begun at `start`.
    ///
    /// Never begun before the one before it was finished.
    #[inline]
    pub fn finish(&mut self, start: Instant, bits: u64) -> Instant {
        match self {
            Self::Unlimited => start,
            Self::Constant(constant) => constant.finish(start, bits),
            Self::Bucket(bucket) => bucket.finish(start, bits),
            Self::OnOff(on_off) => on_off.finish(start, bits),
            Self::Opportunities(opportunities) => opportunities.finish(start, bits),
        }
    }

    /// Bits still to be sent at `now` of a frame of `bits` that is finished at `finish`: rounded up.
    ///
    /// A frame that waits for tokens or for an opportunity has sent nothing yet.
    pub fn remaining(&self, now: Instant, finish: Instant, bits: u64) -> u64 {
        match self {
            Self::Unlimited => 0,
            Self::Constant(constant) => constant.bits_in(finish.saturating_since(now)).min(bits),
            Self::Bucket(_) | Self::Opportunities(_) => bits,
            Self::OnOff(on_off) => on_off.bits_between(now, finish).min(bits),
        }
    }
}
