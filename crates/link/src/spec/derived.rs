//! What follows from a description: means, leasts, limits.
//!
//! Left out: whether it can be made ([`super::check`]).

use plumb_base::time::Span;
use plumb_base::units::rate::Rate;

use super::{
    DelayDistribution, DelaySpec, DirectionSpec, LimitSpec, LinkSpec, QueueSpec, RateSpec,
};
use crate::queue::Limit;

/// The least that a limit in products of rate and delay comes to: ten full frames, which is an
/// initial window (RFC 6928).
pub const LEAST_BDP: u64 = 10 * 1_514;

impl LinkSpec {
    /// Mean delay there and back, without any serialisation or queue.
    pub fn round_trip(&self) -> Span {
        self.hops
            .iter()
            .fold(Span::ZERO, |sum, hop| sum + hop.up.delay.mean() + hop.down.delay.mean())
    }

    /// The names of the files that it came from: its traces, and the delays that it replays.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.hops.iter().flat_map(|hop| [&hop.up, &hop.down]).flat_map(|direction| {
            let rate = match &direction.rate {
                RateSpec::Trace(trace) => Some(trace.file.as_str()),
                _ => None,
            };
            let delay = match &direction.delay.distribution {
                DelayDistribution::Replayed { file, .. } => Some(file.as_str()),
                _ => None,
            };
            rate.into_iter().chain(delay)
        })
    }
}

impl DirectionSpec {
    /// How much may wait, on a link of this delay there and back.
    ///
    /// Where the rate is not limited nothing waits, and a limit in products of rate and delay is none.
    pub fn limit(&self, round_trip: Span) -> Limit {
        match (self.queue.limit(), self.rate.mean()) {
            (LimitSpec::Frames(frames), _) => Limit::Frames(frames),
            (LimitSpec::Bytes(bytes), _) => Limit::Bytes(bytes),
            (LimitSpec::Bdp(_), None) => Limit::Bytes(u64::MAX),
            (LimitSpec::Bdp(thousandths), Some(rate)) => {
                let product = u128::from(rate.bits_per_second()) * u128::from(round_trip.as_ps());
                let bytes =
                    product.saturating_mul(thousandths.into()) / 8 / 1_000 / 1_000_000_000_000;
                Limit::Bytes(u64::try_from(bytes).unwrap_or(u64::MAX).max(LEAST_BDP))
            }
        }
    }
}

impl RateSpec {
    /// Bits a second in the long run; `None` where it is not limited.
    pub fn mean(&self) -> Option<Rate> {
        let share = |bits: u128, period: Span| {
            let rate = bits * 1_000_000_000_000 / u128::from(period.as_ps().max(1));
            Rate::from_bits_per_second(u64::try_from(rate).unwrap_or(u64::MAX).max(1))
        };
        match self {
            Self::Unlimited => None,
            Self::Constant(rate) => Some(*rate),
            Self::Bucket(bucket) => Some(bucket.rate),
            Self::OnOff { rate, on, off } => {
                let bits = u128::from(rate.bits_per_second()) * u128::from(on.as_ps());
                share(bits / 1_000_000_000_000, *on + *off)
            }
            Self::Trace(trace) => {
                let bytes =
                    trace.opportunities.iter().map(|here| u128::from(here.bytes)).sum::<u128>();
                share(bytes * 8, trace.period)
            }
        }
    }
}

impl QueueSpec {
    /// How much may wait.
    pub fn limit(&self) -> LimitSpec {
        match self {
            Self::DropTail { limit }
            | Self::Red { limit, .. }
            | Self::CoDel { limit, .. }
            | Self::FqCoDel { limit, .. }
            | Self::Pie { limit, .. }
            | Self::Drr { limit, .. }
            | Self::Priority { limit } => *limit,
        }
    }
}

impl QueueSpec {
    /// The same with another limit.
    #[must_use]
    pub fn with_limit(self, limit: LimitSpec) -> Self {
        let mut queue = self;
        *queue.limit_mut() = limit;
        queue
    }
}

impl DelaySpec {
    /// A delay that is always the same.
    pub const fn constant(delay: Span) -> Self {
        Self { distribution: DelayDistribution::Constant(delay), may_overtake: false }
    }

    /// The mean.
    pub fn mean(&self) -> Span {
        self.distribution.mean()
    }

    /// The least that is possible.
    pub fn least(&self) -> Span {
        match &self.distribution {
            DelayDistribution::Constant(delay) => *delay,
            DelayDistribution::Uniform { min, .. } => *min,
            DelayDistribution::Normal { .. } => Span::ZERO,
            DelayDistribution::Pareto { scale, .. } => *scale,
            DelayDistribution::Replayed { delays, .. } => {
                delays.iter().min().copied().unwrap_or_default()
            }
        }
    }
}
