//! Samples whose truth is known: five shapes of latency, and what launches differ by.
//!
//! What proves the estimators, here in tests and on the user's machine in `plumb selftest`. Each
//! shape has a true median of [`DistributionShape::median`], and a launch multiplies all of its samples by a
//! factor of its own. Real latencies need not look like this.

use rand::RngExt;

use super::distribution::normal_cdf;
use crate::seed::RandomStream;

/// The shape of the samples within a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DistributionShape {
    /// Normal, standard deviation 5 % of the median.
    Normal,
    /// Log-normal with σ = 0.3.
    LogNormal,
    /// A floor with an exponential tail: 80 + an exponential of mean 20 / ln 2.
    Exponential,
    /// Normal with standard deviation 5 %, each sample correlated 0.8 with the one before.
    Autoregressive,
    /// Seven tenths around one mode, three tenths around another 30 % above, both 3 % wide.
    Bimodal,
}

impl DistributionShape {
    /// Every shape.
    pub const ALL: [Self; 5] =
        [Self::Normal, Self::LogNormal, Self::Exponential, Self::Autoregressive, Self::Bimodal];

    /// A word for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::LogNormal => "lognormal",
            Self::Exponential => "exponential",
            Self::Autoregressive => "autoregressive",
            Self::Bimodal => "bimodal",
        }
    }

    /// The true median.
    pub fn median(self) -> f64 {
        match self {
            Self::Bimodal => bimodal_median(),
            _ => 100.0,
        }
    }

    /// A stretch of `n` samples in time order.
    pub fn series(self, n: usize, stream: &mut RandomStream) -> Vec<f64> {
        let mut state = normal(stream);
        (0..n)
            .map(|_| match self {
                Self::Normal => 100.0 + 5.0 * normal(stream),
                Self::LogNormal => 100.0 * (0.3 * normal(stream)).exp(),
                Self::Exponential => {
                    80.0 - 20.0 / std::f64::consts::LN_2 * (1.0 - stream.random::<f64>()).ln()
                }
                Self::Autoregressive => {
                    state = 0.8 * state + 0.6 * normal(stream);
                    100.0 + 5.0 * state
                }
                Self::Bimodal => {
                    let mode = if stream.random::<f64>() < 0.7 { 100.0 } else { 130.0 };
                    mode + 3.0 * normal(stream)
                }
            })
            .collect()
    }
}

/// By what the launches of a cell differ: the logarithm of a factor on all of a launch's samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LaunchEffect {
    /// Normal with this standard deviation.
    Normal(f64),
    /// Exponential with this standard deviation: a floor, and a long tail of slow launches.
    Skewed(f64),
    /// Normal with a standard deviation of 1 %, and this share of launches 20 % slower.
    Mixed(f64),
    /// Normal with this standard deviation, each launch correlated 0.7 with the one before.
    Correlated(f64),
}

/// The correlation of [`LaunchEffect::Correlated`].
pub const CORRELATION: f64 = 0.7;

impl LaunchEffect {
    /// Effects of launches that are independent.
    pub const ALL: [Self; 7] = [
        Self::Normal(0.01),
        Self::Normal(0.02),
        Self::Normal(0.04),
        Self::Skewed(0.02),
        Self::Skewed(0.03),
        Self::Mixed(0.1),
        Self::Mixed(0.3),
    ];

    /// Whether launches form modes, of which the median launch is not in the middle.
    pub const fn has_modes(self) -> bool {
        matches!(self, Self::Mixed(_))
    }

    /// The factor of the median launch.
    pub fn median(self) -> f64 {
        let Self::Mixed(share) = self else { return 1.0 };
        let slower = 1.2_f64.ln();
        let below = |log: f64| {
            (1.0 - share) * normal_cdf(log / 0.01) + share * normal_cdf((log - slower) / 0.01)
        };
        middle(-0.1, 0.3, below).exp()
    }

    /// The factors of `n` launches in turn.
    pub fn factors(self, n: usize, stream: &mut RandomStream) -> Vec<f64> {
        let mut state = normal(stream);
        let mut log = || match self {
            Self::Normal(sd) => sd * normal(stream),
            Self::Skewed(sd) => {
                sd * (-(1.0 - stream.random::<f64>()).ln() - std::f64::consts::LN_2)
            }
            Self::Mixed(share) => {
                let slower = if stream.random::<f64>() < share { 1.2_f64.ln() } else { 0.0 };
                slower + 0.01 * normal(stream)
            }
            Self::Correlated(sd) => {
                let fresh = (1.0 - CORRELATION * CORRELATION).sqrt();
                state = CORRELATION * state + fresh * normal(stream);
                sd * state
            }
        };
        (0..n).map(|_| log().exp()).collect()
    }
}

/// Samples of which some come in bursts: a body around 1, and bursts about three times as slow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstySamples {
    /// Share of the samples that are in bursts.
    pub slow: f64,
    /// Mean length of a burst, in samples.
    pub length: f64,
    /// Standard deviation of the logarithm of the body.
    pub body_sd: f64,
    /// Standard deviation of the logarithm of a burst's level, and of the samples in it.
    pub burst_sd: f64,
}

impl BurstySamples {
    /// 1.5 % of the samples in bursts of about a hundred.
    pub const TYPICAL: Self = Self { slow: 0.015, length: 100.0, body_sd: 0.05, burst_sd: 0.3 };

    /// `n` samples in time order.
    pub fn block(self, n: usize, stream: &mut RandomStream) -> Vec<f64> {
        // Bursts begin between bursts, so this often for the share to be what it is called.
        let begin = self.slow / (self.slow + self.length * (1.0 - self.slow));
        let (mut left, mut level) = (0.0, 0.0);
        let mut log = |at: usize| {
            let chance = if at == 0 { self.slow } else { begin };
            if left < 1.0 && stream.random::<f64>() < chance {
                left = 0.5 - (1.0 - stream.random::<f64>()).ln() * self.length;
                left = left.floor() + 1.0;
                level = 3_f64.ln() + self.burst_sd * normal(stream);
            }
            left -= 1.0;
            let is_slow = left >= 0.0;
            if is_slow {
                level + self.burst_sd * normal(stream)
            } else {
                self.body_sd * normal(stream)
            }
        };
        (0..n).map(|at| log(at).exp()).collect()
    }

    /// The true quantile of such samples.
    pub fn quantile(self, p: f64) -> f64 {
        let below = |log: f64| {
            let slow = (log - 3_f64.ln()) / (self.burst_sd * 2_f64.sqrt());
            (1.0 - self.slow) * normal_cdf(log / self.body_sd) + self.slow * normal_cdf(slow)
        };
        crossing(-1.0, 4.0, p, below).exp()
    }
}

/// A standard normal variable, by Box & Muller 1958.
pub fn normal(stream: &mut RandomStream) -> f64 {
    let radius = (-2.0 * (1.0 - stream.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * stream.random::<f64>()).cos()
}

/// The median of the two-mode mixture.
fn bimodal_median() -> f64 {
    let below = |value: f64| {
        0.7 * normal_cdf((value - 100.0) / 3.0) + 0.3 * normal_cdf((value - 130.0) / 3.0)
    };
    middle(90.0, 115.0, below)
}

/// Where an increasing distribution function is one half.
fn middle(lo: f64, hi: f64, below: impl Fn(f64) -> f64) -> f64 {
    crossing(lo, hi, 0.5, below)
}

/// Where an increasing distribution function is `p`, by bisection.
fn crossing(mut lo: f64, mut hi: f64, p: f64, below: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..60 {
        let middle = f64::midpoint(lo, hi);
        if below(middle) < p {
            lo = middle;
        } else {
            hi = middle;
        }
    }
    hi
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    #[test]
    fn every_shape_has_the_median_it_claims() {
        for shape in DistributionShape::ALL {
            let mut stream = Seed(9).stream(shape.name());
            let series = shape.series(200_000, &mut stream);
            let below = series.iter().filter(|&&v| v < shape.median()).count();
            // Autocorrelation leaves a ninth of the samples: five standard errors are 0.017.
            let share = below as f64 / 200_000.0;
            assert!((share - 0.5).abs() < 0.017, "{}: {share}", shape.name());
        }
    }

    #[test]
    fn every_launch_effect_has_the_median_it_claims() {
        for effect in LaunchEffect::ALL.into_iter().chain([LaunchEffect::Correlated(0.03)]) {
            let mut stream = Seed(1).stream(&format!("{effect:?}"));
            let factors = effect.factors(100_000, &mut stream);
            let below = factors.iter().filter(|&&f| f < effect.median()).count() as f64 / 1e5;
            assert!((below - 0.5).abs() < 0.012, "{effect:?}: {below}");
        }
    }
}
