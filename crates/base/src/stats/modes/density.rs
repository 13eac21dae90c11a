//! A kernel density estimate, and its cut into parts at deep valleys.
//!
//! Gaussian kernel on a grid. Left out: significance, which the dip test decides.

use crate::stats::{floor_index, quantile};

/// Grid points over the bulk of the sample.
const GRID: usize = 512;
/// A valley counts when its density is below this share of the lower of the peaks beside it.
const DEPTH: f64 = 0.7;
/// Bandwidths tried, each this share of the one before.
const NARROWING: f64 = 0.8;
/// How many of them: down to a twentieth of the first.
const ATTEMPTS: i32 = 14;

/// A stretch of an ascending sample between two valleys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DensityPeak {
    /// First sample.
    pub start: usize,
    /// One beyond the last sample.
    pub end: usize,
    /// Where the density peaks.
    pub peak: f64,
    /// The density there, in arbitrary units.
    pub height: f64,
}

/// An ascending sample as one part; `None` when it is empty.
pub(super) fn whole(sorted: &[f64]) -> Option<DensityPeak> {
    let end = sorted.len();
    let constant =
        sorted.first().map(|&peak| DensityPeak { start: 0, end, peak, height: f64::INFINITY });
    let Some(grid) = DensityGrid::new(sorted) else { return constant };
    let smooth = grid.smoothed(grid.bandwidth);
    let top = (0..GRID).max_by(|&a, &b| smooth[a].total_cmp(&smooth[b])).unwrap_or(0);
    // Kernels are summed unscaled: densities are comparable after division by their width.
    let height = smooth[top] / grid.bandwidth.max(grid.width);
    Some(DensityPeak { start: 0, end, peak: grid.position(top), height })
}

/// The parts of an ascending sample around each peak that holds at least `least` samples.
///
/// The widest bandwidth that shows two such parts is taken; none when no bandwidth does.
pub(super) fn parts(sorted: &[f64], least: f64) -> Vec<DensityPeak> {
    let Some(grid) = DensityGrid::new(sorted) else { return Vec::new() };
    (0..ATTEMPTS)
        .map(|attempt| grid.parts(sorted, grid.bandwidth * NARROWING.powi(attempt), least))
        .find(|found| found.len() > 1)
        .unwrap_or_default()
}

/// Counts of the samples in even bins.
struct DensityGrid {
    lo: f64,
    width: f64,
    counts: Vec<f64>,
    /// Silverman's rule of thumb.
    bandwidth: f64,
}

impl DensityGrid {
    /// Bins over the bulk; `None` when the bulk is a single value.
    fn new(sorted: &[f64]) -> Option<Self> {
        let at = |p| quantile::of_sorted(sorted, p);
        let (lo, hi) = (at(0.01), at(0.99));
        let margin = 0.1 * (hi - lo);
        let (lo, hi) = (lo - margin, hi + margin);
        let width = (hi - lo) / GRID as f64;
        if width.is_nan() || width <= 0.0 {
            return None;
        }
        let mut counts = vec![0.0; GRID];
        for &v in sorted.iter().filter(|&&v| lo <= v && v < hi) {
            counts[floor_index((v - lo) / width).min(GRID - 1)] += 1.0;
        }
        // The interquartile range of one normal mode, or the bulk where that collapses.
        let iqr = (at(0.75) - at(0.25)) / 1.349;
        let scale = if iqr > 0.0 { iqr } else { (hi - lo) / 4.0 };
        let bandwidth = 0.9 * scale * (sorted.len() as f64).powf(-0.2);
        Some(Self { lo, width, counts, bandwidth })
    }

    fn position(&self, index: usize) -> f64 {
        self.lo + (index as f64 + 0.5) * self.width
    }

    fn smoothed(&self, bandwidth: f64) -> Vec<f64> {
        let bins = (bandwidth / self.width).max(0.5);
        let reach = floor_index(4.0 * bins).min(GRID);
        let kernel: Vec<f64> =
            (0..=reach).map(|i| (-0.5 * (i as f64 / bins).powi(2)).exp()).collect();
        let mut smooth = vec![0.0; GRID];
        for (centre, &count) in self.counts.iter().enumerate().filter(|(_, c)| **c > 0.0) {
            let from = centre.saturating_sub(reach);
            for (index, slot) in smooth.iter_mut().enumerate().take(centre + reach + 1).skip(from) {
                *slot += count * kernel[index.abs_diff(centre)];
            }
        }
        smooth
    }

    /// Cuts at every valley deep enough that both sides hold the least share.
    fn parts(&self, sorted: &[f64], bandwidth: f64, least: f64) -> Vec<DensityPeak> {
        let smooth = self.smoothed(bandwidth);
        let mut parts: Vec<DensityPeak> = Vec::new();
        let mut start = 0;
        for (from, to) in deep_stretches(&smooth) {
            let end = if to == GRID {
                sorted.len()
            } else {
                let edge = self.position(to);
                sorted.partition_point(|&v| v < edge)
            };
            let top = (from..to).max_by(|&a, &b| smooth[a].total_cmp(&smooth[b])).unwrap_or(from);
            let part = DensityPeak { start, end, peak: self.position(top), height: smooth[top] };
            start = end;
            match parts.last_mut() {
                // What is too small joins its neighbour.
                Some(last)
                    if ((part.end - part.start) as f64) < least
                        || ((last.end - last.start) as f64) < least =>
                {
                    last.end = part.end;
                    if part.height > last.height {
                        (last.peak, last.height) = (part.peak, part.height);
                    }
                }
                _ => parts.push(part),
            }
        }
        parts
    }
}

/// Stretches of a curve between valleys deeper than [`DEPTH`] of both peaks beside them.
fn deep_stretches(smooth: &[f64]) -> Vec<(usize, usize)> {
    let mut stretches = Vec::new();
    let (mut start, mut peak, mut valley) = (0, 0, None::<usize>);
    for index in 0..smooth.len() {
        let value = smooth[index];
        match valley {
            // Climbing out of a deep valley far enough makes it a cut.
            Some(bottom) if smooth[bottom] < DEPTH * smooth[peak].min(value) => {
                stretches.push((start, bottom));
                start = bottom;
                peak = index;
                valley = None;
            }
            // Higher than the peak without a deep valley between: the same hill.
            Some(_) if value > smooth[peak] => {
                peak = index;
                valley = None;
            }
            Some(bottom) if value < smooth[bottom] => valley = Some(index),
            Some(_) => {}
            None if value >= smooth[peak] => peak = index,
            None => valley = Some(index),
        }
    }
    stretches.push((start, smooth.len()));
    stretches
}
