//! All samples of a cell in one weighted, sorted pool: merged data, never merged percentiles.
//!
//! Each launch has the same weight, as in the interval. Left out: uncertainty.

use std::collections::BTreeMap;

use plumb_base::stats::histogram::Histogram;
use plumb_base::stats::quantile;
use plumb_store::record::{Better, SampleBlock};

use super::{CONFIDENCE, MeasuredCell, MeasuredLaunch, rounded};

/// Points that stand for a block whose samples are only in its histogram.
const POINTS: usize = 512;

/// Quantiles written down for figures: steps of one fortieth.
const GRID_STEPS: u32 = 40;

/// A weighted sample in ascending order, with cumulative weights at the middle of each value.
#[derive(Clone, Debug)]
pub struct WeightedSamples {
    values: Vec<f64>,
    weights: Vec<f64>,
    middles: Vec<f64>,
}

impl WeightedSamples {
    /// Merges every block of a cell.
    pub fn new(cell: &MeasuredCell<'_>) -> Self {
        Self::of(&cell.launches)
    }

    /// Merges every block of some launches.
    pub fn of(launches: &[MeasuredLaunch<'_>]) -> Self {
        let mut weighted: Vec<(f64, f64)> = launches.iter().flat_map(of_launch).collect();
        weighted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let total: f64 = weighted.iter().map(|(_, weight)| weight).sum();
        let mut below = 0.0;
        let mut middles = Vec::with_capacity(weighted.len());
        for (_, weight) in &weighted {
            middles.push((below + weight / 2.0) / total);
            below += weight;
        }
        let (values, weights) = weighted.into_iter().unzip();
        Self { values, weights, middles }
    }

    /// Whether no block had a finite sample.
    pub const fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The `p`-quantile: type 7 of Hyndman & Fan (1996), extended to weights.
    ///
    /// Not-a-number when the pool is empty.
    pub fn quantile(&self, p: f64) -> f64 {
        let (Some(first), Some(last)) = (self.middles.first(), self.middles.last()) else {
            return f64::NAN;
        };
        let position = first + p.clamp(0.0, 1.0) * (last - first);
        let above = self.middles.partition_point(|middle| *middle < position);
        if above == 0 {
            return self.values[0];
        }
        let Some(end) = self.middles.get(above) else { return self.values[above - 1] };
        let start = self.middles[above - 1];
        let step = (position - start) / (end - start).max(f64::MIN_POSITIVE);
        self.values[above - 1] + step * (self.values[above] - self.values[above - 1])
    }

    /// The weighted mean: arithmetic for costs, harmonic for rates (rule 15).
    pub fn mean(&self, better: Better) -> f64 {
        let total: f64 = self.weights.iter().sum();
        let pairs = self.values.iter().zip(&self.weights);
        match better {
            Better::Higher if self.values.iter().all(|value| *value > 0.0) => {
                total / pairs.map(|(value, weight)| weight / value).sum::<f64>()
            }
            _ => pairs.map(|(value, weight)| value * weight).sum::<f64>() / total,
        }
    }

    /// The mean without the slowest share of the samples; at least one is kept.
    pub fn mean_without_slowest(&self, share: f64) -> f64 {
        let limit: f64 = self.weights.iter().sum::<f64>() * (1.0 - share);
        let (mut weights, mut sum) = (0.0, 0.0);
        for (value, weight) in self.values.iter().zip(&self.weights) {
            if weights > 0.0 && weights + weight / 2.0 > limit {
                break;
            }
            weights += weight;
            sum += value * weight;
        }
        sum / weights
    }

    /// Evenly spaced quantiles that the effective samples support, with the minimum and the maximum,
    /// up to the highest that is asked for.
    pub fn grid(&self, n_eff: [f64; 4], highest: f64) -> Vec<[f64; 2]> {
        let [body, p90, ..] = n_eff;
        (0..=GRID_STEPS)
            .map(|step| f64::from(step) / f64::from(GRID_STEPS))
            .filter(|p| *p <= highest)
            .filter(|p| {
                let end = *p <= 0.0 || *p >= 1.0;
                let has = if *p < 0.9 { body } else { p90 };
                end || quantile::samples_needed(*p, CONFIDENCE) as f64 <= has
            })
            .map(|p| [p, rounded(self.quantile(p))])
            .collect()
    }
}

/// The samples of a launch, in no order, each with its share of them.
pub fn of_launch(launch: &MeasuredLaunch<'_>) -> Vec<(f64, f64)> {
    let n = launch.blocks.iter().map(|block| block.n).fold(0, u64::saturating_add);
    let mut weighted = Vec::new();
    for block in &launch.blocks {
        append(block, 1.0 / n.max(1) as f64, &mut weighted);
    }
    weighted
}

/// Appends a block's samples with a weight each: raw where all were kept, else its histogram.
fn append(block: &SampleBlock, share: f64, weighted: &mut Vec<(f64, f64)>) {
    if let Some(histogram) = decode(block) {
        let scale = block.histogram_scale;
        weighted.extend(
            histogram
                .iter_recorded()
                .map(|(value, count)| (value as f64 * scale, count as f64 * share)),
        );
    } else {
        // An unreadable histogram leaves the samples that were kept to stand for all.
        let weight = share * block.n as f64 / block.samples.len().max(1) as f64;
        let kept = block.samples.iter().filter(|value| value.is_finite());
        weighted.extend(kept.map(|value| (*value, weight)));
    }
}

/// The histogram of a block whose raw samples are not all there.
fn decode(block: &SampleBlock) -> Option<Histogram> {
    if block.histogram.is_empty() || block.samples.len() as u64 >= block.n {
        return None;
    }
    Histogram::decode(&block.histogram).ok().filter(|histogram| !histogram.is_empty())
}

/// Whether a block's histogram is needed and cannot be read, so that its kept samples stand for all.
pub fn is_damaged(block: &SampleBlock) -> bool {
    let needed = !block.histogram.is_empty() && (block.samples.len() as u64) < block.n;
    needed && Histogram::decode(&block.histogram).is_err()
}

/// The samples of a block for the hierarchy: raw, or evenly spaced quantiles of its histogram.
pub fn points(block: &SampleBlock) -> Vec<f64> {
    let Some(histogram) = decode(block) else { return block.samples.clone() };
    let bins: BTreeMap<u64, u64> = histogram.iter_recorded().collect();
    let total: u64 = bins.values().sum();
    let mut points = Vec::with_capacity(POINTS);
    let mut below = 0;
    let mut next = 0;
    for (value, count) in bins {
        below += count;
        while next < POINTS && (next as f64 + 0.5) / POINTS as f64 * total as f64 <= below as f64 {
            points.push(value as f64 * block.histogram_scale);
            next += 1;
        }
    }
    points
}
