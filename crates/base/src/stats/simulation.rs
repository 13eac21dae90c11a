//! Samples whose truth is known: five shapes of latency, with an effect for each launch.
//!
//! What proves the estimators, here in tests and on the user's machine in `plumb selftest`. Each
//! shape has a true median of [`DistributionShape::median`], and a launch multiplies all of its samples by
//! exp(e) with e normal around zero, which leaves the median over launches where it was. Left out:
//! any claim that real latencies look like this.

use rand::RngExt;

use super::distribution::normal_cdf;
use super::hierarchy::SampleHierarchy;
use crate::seed::{RandomStream, Seed};

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

/// How a simulated cell is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulationDesign {
    /// Launches.
    pub launches: usize,
    /// Blocks in each.
    pub blocks: usize,
    /// Samples in each block.
    pub samples: usize,
    /// Standard deviation of the logarithm of the launch effect: 0.01 for 1 %.
    pub launch_sd: f64,
}

impl SimulationDesign {
    /// The raw samples of a cell, launch → block → samples, all multiplied by `factor`.
    ///
    /// `pair` adds a launch effect shared by every cell with the same `pair` seed, as interleaved
    /// launches share the state of the machine; its standard deviation is `launch_sd` too.
    pub fn samples(
        self,
        shape: DistributionShape,
        factor: f64,
        seed: Seed,
        pair: Option<Seed>,
    ) -> Vec<Vec<Vec<f64>>> {
        let mut stream = seed.stream("simulate.cell");
        let mut shared = pair.map(|seed| seed.stream("simulate.pair"));
        (0..self.launches)
            .map(|_| {
                let common = shared.as_mut().map_or(0.0, normal);
                let effect = factor * (self.launch_sd * (normal(&mut stream) + common)).exp();
                (0..self.blocks)
                    .map(|_| {
                        let series = shape.series(self.samples, &mut stream);
                        series.into_iter().map(|v| v * effect).collect()
                    })
                    .collect()
            })
            .collect()
    }

    /// [`SimulationDesign::samples`] as a hierarchy.
    pub fn cell(
        self,
        shape: DistributionShape,
        factor: f64,
        seed: Seed,
        pair: Option<Seed>,
    ) -> SampleHierarchy {
        SampleHierarchy::new(self.samples(shape, factor, seed, pair))
    }
}

/// A standard normal variable, by Box & Muller 1958.
pub fn normal(stream: &mut RandomStream) -> f64 {
    let radius = (-2.0 * (1.0 - stream.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * stream.random::<f64>()).cos()
}

/// The median of the two-mode mixture, by bisection of its distribution function.
fn bimodal_median() -> f64 {
    let (mut lo, mut hi) = (90.0, 115.0);
    for _ in 0..60 {
        let middle = f64::midpoint(lo, hi);
        let share =
            0.7 * normal_cdf((middle - 100.0) / 3.0) + 0.3 * normal_cdf((middle - 130.0) / 3.0);
        if share < 0.5 {
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
    use crate::stats::quantile;

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
    fn launches_differ_by_the_effect_asked_and_pairs_share_theirs() {
        let design = SimulationDesign { launches: 400, blocks: 1, samples: 50, launch_sd: 0.03 };
        let logs = |cell: SampleHierarchy| -> Vec<f64> {
            cell.launch_medians().iter().map(|m| (m / 100.0).ln()).collect()
        };
        let spread = |values: &[f64]| {
            let squares: Vec<f64> = values.iter().map(|v| v * v).collect();
            quantile::of_sorted(&quantile::sorted(&squares), 0.683).sqrt()
        };
        let alone = logs(design.cell(DistributionShape::Normal, 1.0, Seed(1), None));
        assert!((0.027..0.035).contains(&spread(&alone)), "{}", spread(&alone));
        let a = logs(design.cell(DistributionShape::Normal, 1.0, Seed(2), Some(Seed(7))));
        let b = logs(design.cell(DistributionShape::Normal, 1.0, Seed(3), Some(Seed(7))));
        let product: f64 = a.iter().zip(&b).map(|(a, b)| a * b).sum::<f64>() / 400.0;
        // Half of the variance is shared.
        assert!((0.6e-3..1.2e-3).contains(&product), "{product}");
    }
}
