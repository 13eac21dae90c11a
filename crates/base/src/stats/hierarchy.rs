//! A cell measured over launches: its pooled distribution and what its median is sure of.
//!
//! Samples are nested in blocks, blocks in launches, and the launch is what is replicated: samples
//! of one launch share its memory layout, ports and luck (Kalibera & Jones 2013; Georges, Buytaert
//! & Eeckhout 2007). Left out: comparing more than two cells.

mod ratio;

pub use ratio::{Pairing, Ratio, ratio};

use super::distribution::student_quantile;
use super::{Interval, quantile};
use crate::seed::Seed;

/// Fewer launches than this give no interval: two have one degree of freedom, and t = 12.7.
const MIN_LAUNCHES: usize = 3;

/// Samples of one cell: launch → block → samples. Values that are not finite are left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Hierarchy {
    launches: Vec<LaunchSamples>,
}

/// The blocks of one launch, each ascending; none empty.
#[derive(Clone, Debug, PartialEq)]
struct LaunchSamples {
    blocks: Vec<Vec<f64>>,
    n: usize,
}

impl Hierarchy {
    /// A cell of these samples; launches and blocks may be empty and of any length.
    pub fn new(launches: Vec<Vec<Vec<f64>>>) -> Self {
        Self { launches: launches.into_iter().map(LaunchSamples::new).collect() }
    }

    /// Launches that have samples.
    pub fn launches(&self) -> usize {
        self.measured().count()
    }

    /// Samples in all.
    pub fn n(&self) -> u64 {
        self.measured().map(|launch| launch.n as u64).sum()
    }

    /// The `p`-quantile of the pooled distribution, in which every launch weighs the same.
    ///
    /// Type 7 within a block; not-a-number without samples.
    pub fn quantile(&self, p: f64) -> f64 {
        let launches: Vec<&LaunchSamples> = self.measured().collect();
        pooled_quantile(&launches, p)
    }

    /// The median of every launch that has samples, in launch order.
    pub fn launch_medians(&self) -> Vec<f64> {
        self.measured().map(LaunchSamples::median).collect()
    }

    /// An interval for the median over all launches that could have been made.
    ///
    /// `None` for fewer than three launches.
    pub fn median_interval(&self, confidence: f64, _seed: Seed) -> Option<Interval> {
        let medians = self.launch_medians();
        if medians.len() < MIN_LAUNCHES {
            return None;
        }
        let positive = medians.iter().all(|&m| m > 0.0);
        let logs: Vec<f64> = medians.iter().map(|&m| if positive { m.ln() } else { m }).collect();
        let (lo, hi) = student_interval(&logs, confidence)?;
        let back = |v: f64| if positive { v.exp() } else { v };
        Some(Interval { lo: back(lo), hi: back(hi), confidence })
    }

    fn measured(&self) -> impl Iterator<Item = &LaunchSamples> {
        self.launches.iter().filter(|launch| launch.n > 0)
    }
}

impl LaunchSamples {
    fn new(mut blocks: Vec<Vec<f64>>) -> Self {
        for block in &mut blocks {
            block.retain(|v| v.is_finite());
            block.sort_unstable_by(f64::total_cmp);
        }
        blocks.retain(|block| !block.is_empty());
        let n = blocks.iter().map(Vec::len).sum();
        Self { blocks, n }
    }

    /// The share of the launch at or below `value`, interpolated between samples.
    fn share_below(&self, value: f64) -> f64 {
        let weighted: f64 =
            self.blocks.iter().map(|block| block.len() as f64 * share_below(block, value)).sum();
        weighted / self.n as f64
    }

    fn median(&self) -> f64 {
        pooled_quantile(&[self], 0.5)
    }
}

/// The inverse of the type 7 quantile: the share of an ascending block at or below `value`.
fn share_below(block: &[f64], value: f64) -> f64 {
    let count = block.partition_point(|&v| v <= value);
    if count == 0 {
        return 0.0;
    }
    if count == block.len() {
        return 1.0;
    }
    let (below, above) = (block[count - 1], block[count]);
    let fraction = (value - below) / (above - below);
    ((count - 1) as f64 + fraction) / (block.len() - 1) as f64
}

/// The smallest value at or below which the share `p` of the launches lies on average.
fn pooled_quantile(launches: &[&LaunchSamples], p: f64) -> f64 {
    let blocks = || launches.iter().flat_map(|launch| &launch.blocks);
    let quantiles = || blocks().map(|block| quantile::of_sorted(block, p));
    // The pooled quantile cannot lie outside those of the blocks.
    let mut lo = quantiles().fold(f64::INFINITY, f64::min);
    let mut hi = quantiles().fold(f64::NEG_INFINITY, f64::max);
    if lo >= hi {
        return hi;
    }
    if hi == f64::NEG_INFINITY {
        return f64::NAN;
    }
    let share = |value: f64| {
        launches.iter().map(|launch| launch.share_below(value)).sum::<f64>() / launches.len() as f64
    };
    loop {
        let middle = f64::midpoint(lo, hi);
        if middle <= lo || middle >= hi {
            return hi;
        }
        if share(middle) < p {
            lo = middle;
        } else {
            hi = middle;
        }
    }
}

/// Student's interval for the mean of a few values.
fn student_interval(values: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let n = values.len() as f64;
    if n < 2.0 {
        return None;
    }
    let mean = super::means::arithmetic(values)?;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let reach = student_quantile(f64::midpoint(1.0, confidence), n - 1.0) * (variance / n).sqrt();
    Some((mean - reach, mean + reach))
}
