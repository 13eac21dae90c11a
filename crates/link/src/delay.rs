//! How long a frame travels: one draw a frame from a distribution.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use plumb_base::seed::RandomStream;
use plumb_base::stats::distribution::{normal_cdf, normal_quantile};
use plumb_base::time::{Instant, Span};

use crate::chance::{below, open_unit};
use crate::frame::LinkFrame;
use crate::spec::{DelayDistribution, DelaySpec};

/// Draws delays.
#[derive(Clone, Debug)]
pub struct DelaySampler {
    distribution: DelayDistribution,
    stream: RandomStream,
    next: usize,
}

/// The delays that a description asks for, drawn from a stream.
pub fn make(spec: &DelaySpec, stream: RandomStream) -> DelaySampler {
    DelaySampler { distribution: spec.distribution.clone(), stream, next: 0 }
}

impl DelaySampler {
    /// Becomes what a description asks for, and goes on among its random draws; a list that is
    /// another one begins at its first.
    pub fn reconfigure(&mut self, spec: &DelaySpec) {
        use DelayDistribution::Replayed;
        match (&self.distribution, &spec.distribution) {
            (Replayed { delays: old, .. }, Replayed { delays: new, .. }) if old == new => {}
            _ => self.next = 0,
        }
        self.distribution = spec.distribution.clone();
    }

    /// The next frame's delay: whole picoseconds, at most 213 days.
    #[inline]
    pub fn sample(&mut self) -> Span {
        match &self.distribution {
            DelayDistribution::Constant(delay) => *delay,
            DelayDistribution::Uniform { min, max } => {
                let width = max.saturating_sub(*min).as_ps().saturating_add(1);
                *min + Span::from_ps(below(&mut self.stream, width))
            }
            DelayDistribution::Normal { mean, deviation } => {
                let z = normal_quantile(open_unit(&mut self.stream));
                shifted(*mean, z * deviation.as_ps() as f64)
            }
            DelayDistribution::Pareto { scale, shape_thousandths } => {
                let shape = *shape_thousandths as f64 / 1e3;
                let stretch = open_unit(&mut self.stream).powf(-1.0 / shape);
                shifted(Span::ZERO, scale.as_ps() as f64 * stretch)
            }
            DelayDistribution::Replayed { delays, .. } => {
                let Some(delay) = delays.get(self.next) else { return Span::ZERO };
                self.next = (self.next + 1) % delays.len();
                *delay
            }
        }
    }
}

/// `span` and so many picoseconds, which may be negative: zero at the least.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, which is what is wanted at both ends"
)]
fn shifted(span: Span, ps: f64) -> Span {
    if ps < 0.0 {
        span.saturating_sub(Span::from_ps(-ps.round() as u64))
    } else {
        span + Span::from_ps(ps.round() as u64)
    }
}

impl DelayDistribution {
    /// The share of delays that are at most `delay`: what a measured distribution is compared with.
    pub fn cdf(&self, delay: Span) -> f64 {
        match self {
            Self::Constant(constant) => f64::from(u8::from(delay >= *constant)),
            Self::Uniform { min, max } => {
                let width = max.saturating_sub(*min).as_ps() as f64 + 1.0;
                let below = if delay < *min { 0.0 } else { (delay - *min).as_ps() as f64 + 1.0 };
                (below / width).min(1.0)
            }
            Self::Normal { mean, deviation } => {
                let beyond = delay.as_ps() as f64 - mean.as_ps() as f64;
                match deviation.as_ps() {
                    0 => f64::from(u8::from(beyond >= 0.0)),
                    deviation => normal_cdf(beyond / deviation as f64),
                }
            }
            Self::Pareto { scale, .. } if delay < *scale || delay == Span::ZERO => 0.0,
            Self::Pareto { scale, shape_thousandths } => {
                let shape = *shape_thousandths as f64 / 1e3;
                1.0 - (scale.as_ps() as f64 / delay.as_ps() as f64).powf(shape)
            }
            Self::Replayed { delays, .. } => {
                let below = delays.iter().filter(|one| **one <= delay).count();
                below as f64 / delays.len().max(1) as f64
            }
        }
    }

    /// The mean delay; of a normal distribution before what is negative is made zero.
    pub fn mean(&self) -> Span {
        match self {
            Self::Constant(delay) => *delay,
            Self::Uniform { min, max } => *min + max.saturating_sub(*min) / 2,
            Self::Normal { mean, .. } => *mean,
            Self::Pareto { scale, shape_thousandths } => {
                let shape = (*shape_thousandths as f64 / 1e3).max(1.001);
                shifted(Span::ZERO, scale.as_ps() as f64 * shape / (shape - 1.0))
            }
            Self::Replayed { delays, .. } => {
                let sum: u128 = delays.iter().map(|delay| u128::from(delay.as_ps())).sum();
                let mean = sum / delays.len().max(1) as u128;
                Span::from_ps(u64::try_from(mean).unwrap_or(u64::MAX))
            }
        }
    }
}

/// Frames by the moment at which they are due; of the same moment, the one that came first.
///
/// A FIFO ring for frames that come due in order, and a heap beside it for those that overtake.
#[derive(Debug, Default)]
pub(crate) struct DelayLine {
    ring: VecDeque<DelayLineEntry>,
    heap: BinaryHeap<Reverse<DelayLineEntry>>,
    number: u64,
}

#[derive(Debug)]
struct DelayLineEntry {
    due: Instant,
    number: u64,
    frame: LinkFrame,
}

impl DelayLine {
    /// Puts a frame in.
    #[inline]
    pub fn push(&mut self, due: Instant, frame: LinkFrame) {
        self.number += 1;
        let entry = DelayLineEntry { due, number: self.number, frame };
        if self.ring.back().is_none_or(|last| last.due <= due) {
            self.ring.push_back(entry);
        } else {
            self.heap.push(Reverse(entry));
        }
    }

    /// When the first is due; [`Instant::NEVER`] when there is none.
    #[inline]
    pub fn due(&self) -> Instant {
        let ring = self.ring.front().map_or(Instant::NEVER, |entry| entry.due);
        if self.heap.is_empty() {
            return ring;
        }
        ring.min(self.heap.peek().map_or(Instant::NEVER, |entry| entry.0.due))
    }

    /// Takes out the first, if it is due at `now`.
    #[inline]
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, LinkFrame)> {
        let ring = self.ring.front().map(DelayLineEntry::key).filter(|(due, _)| *due <= now);
        let heap = if self.heap.is_empty() {
            None
        } else {
            self.heap.peek().map(|entry| entry.0.key()).filter(|(due, _)| *due <= now)
        };
        let entry = match (ring, heap) {
            (None, None) => return None,
            (Some(ring), Some(heap)) if heap < ring => self.heap.pop()?.0,
            (Some(_), _) => self.ring.pop_front()?,
            (None, Some(_)) => self.heap.pop()?.0,
        };
        Some((entry.due, entry.frame))
    }

    /// The frames in it.
    pub fn frames(&self) -> impl Iterator<Item = &LinkFrame> {
        let heap = self.heap.iter().map(|entry| &entry.0.frame);
        self.ring.iter().map(|entry| &entry.frame).chain(heap)
    }
}

impl DelayLineEntry {
    fn key(&self) -> (Instant, u64) {
        (self.due, self.number)
    }
}

impl PartialEq for DelayLineEntry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for DelayLineEntry {}

impl PartialOrd for DelayLineEntry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DelayLineEntry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use plumb_base::seed::Seed;

    use super::*;

    fn draws(distribution: &DelayDistribution, n: usize) -> Vec<Span> {
        let spec = DelaySpec { distribution: distribution.clone(), may_overtake: true };
        let mut delay = make(&spec, Seed(17).stream("delay"));
        (0..n).map(|_| delay.sample()).collect()
    }

    fn random() -> [DelayDistribution; 3] {
        let ms = Span::from_ms;
        [
            DelayDistribution::Uniform { min: ms(10), max: ms(30) },
            DelayDistribution::Normal { mean: ms(50), deviation: ms(5) },
            DelayDistribution::Pareto { scale: ms(10), shape_thousandths: 3_000 },
        ]
    }

    #[test]
    fn draws_lie_as_close_to_their_distribution_as_kolmogorov_and_smirnov_allow() {
        for distribution in random() {
            let mut drawn = draws(&distribution, 20_000);
            drawn.sort_unstable();
            let n = drawn.len() as f64;
            let distance = drawn.iter().enumerate().fold(0.0_f64, |worst, (i, delay)| {
                let expected = distribution.cdf(*delay);
                let (before, after) = (i as f64 / n, (i + 1) as f64 / n);
                worst.max((expected - before).abs()).max((expected - after).abs())
            });
            // The critical value at 0.1 %: 1.95 / √n.
            assert!(distance < 1.95 / n.sqrt(), "{distribution:?}: {distance}");
        }
    }

    #[test]
    fn draws_average_to_the_mean_that_is_stated() {
        for distribution in random() {
            let drawn = draws(&distribution, 100_000);
            let mean = drawn.iter().map(|delay| delay.as_secs_f64()).sum::<f64>() / 1e5;
            let expected = distribution.mean().as_secs_f64();
            assert!((mean / expected - 1.0).abs() < 0.01, "{distribution:?}: {mean}");
        }
    }

    #[test]
    fn a_uniform_delay_reaches_both_ends_and_a_normal_one_stops_at_zero() {
        let ps = Span::from_ps;
        let drawn = draws(&DelayDistribution::Uniform { min: ps(5), max: ps(7) }, 1_000);
        assert_eq!(drawn.iter().min(), Some(&ps(5)));
        assert_eq!(drawn.iter().max(), Some(&ps(7)));
        let normal = DelayDistribution::Normal { mean: ps(1_000), deviation: ps(1_000) };
        let zeros = draws(&normal, 10_000).iter().filter(|delay| **delay == Span::ZERO).count();
        assert!((1_400..1_800).contains(&zeros), "{zeros} of 10,000, expected 1,587");
    }

    #[test]
    fn delays_are_replayed_in_order_and_for_ever_and_one_seed_gives_one_series() {
        let delays = [3, 1, 2].map(Span::from_us);
        let replayed = DelayDistribution::Replayed { file: "f".into(), delays: delays.into() };
        assert_eq!(draws(&replayed, 7), [3, 1, 2, 3, 1, 2, 3].map(Span::from_us));
        assert_eq!(replayed.mean(), Span::from_us(2));
        for distribution in random() {
            assert_eq!(draws(&distribution, 100), draws(&distribution, 100));
        }
    }
}
