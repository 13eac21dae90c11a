//! The hierarchical bootstrap: intervals of any pooled quantile, by resampling launches.
//!
//! Launches are drawn with replacement and kept whole. Drawing blocks within them as well would
//! count the spread within launches twice, which is in the spread between them already: Davison &
//! Hinkley, *Bootstrap Methods and their Application*, 1997, §3.8; intervals then cover 98–99 %
//! where 95 % is asked. Left out: the median, for which Student's t does better with few launches.

use super::{LaunchSamples, pooled_quantile};
use crate::seed::Seed;
use crate::stats::bootstrap::draw;
use crate::stats::distribution::{normal_cdf, student_quantile};
use crate::stats::{Interval, quantile};

/// Resamples of the launches.
const RESAMPLES: usize = 2_000;
/// Points each block lends to the sketch on which resamples are evaluated.
const SKETCH: usize = 16;

/// The interval of the pooled `p`-quantile.
pub(super) fn quantile_interval(
    launches: &[&LaunchSamples],
    p: f64,
    confidence: f64,
    seed: Seed,
) -> Interval {
    let grid = sketch(launches, p);
    let shares: Vec<Vec<f64>> = launches
        .iter()
        .map(|launch| grid.iter().map(|&value| launch.share_below(value)).collect())
        .collect();
    let count = launches.len();
    let needed = p * count as f64;
    let mut stream = seed.stream("hierarchy.quantile");
    let mut drawn = vec![0; count];
    let mut replicates: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            drawn.fill_with(|| draw(&mut stream, count));
            let short = |index: usize| {
                drawn.iter().map(|&launch| shares[launch][index]).sum::<f64>() < needed
            };
            grid[first_not(grid.len(), short)]
        })
        .collect();
    replicates.sort_unstable_by(f64::total_cmp);
    let tail = expanded_tail(confidence, count);
    let centre = pooled_quantile(launches, p);
    Interval {
        lo: quantile::of_sorted(&replicates, tail).min(centre),
        hi: quantile::of_sorted(&replicates, 1.0 - tail).max(centre),
        confidence,
    }
}

/// The tail of the replicates to cut off so that few launches still cover as asked.
///
/// Percentile intervals of n launches are too short by √((n − 1)/n) and by what Student's t has
/// over the normal distribution; Hesterberg, "What teachers should know about the bootstrap",
/// American Statistician 69 (2015), §4.4, mends both.
fn expanded_tail(confidence: f64, launches: usize) -> f64 {
    let n = launches as f64;
    normal_cdf((n / (n - 1.0)).sqrt() * student_quantile((1.0 - confidence) / 2.0, n - 1.0))
}

/// Values between which every resample's quantile lies, dense where the samples are; ascending.
fn sketch(launches: &[&LaunchSamples], p: f64) -> Vec<f64> {
    let ends: Vec<f64> = launches.iter().map(|launch| pooled_quantile(&[launch], p)).collect();
    let lo = ends.iter().copied().fold(f64::INFINITY, f64::min);
    let hi = ends.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut grid = ends;
    for launch in launches {
        for block in &launch.blocks {
            let (from, to) = (super::share_below(block, lo), super::share_below(block, hi));
            grid.extend(
                (1..SKETCH)
                    .map(|i| from + (to - from) * i as f64 / SKETCH as f64)
                    .map(|share| quantile::of_sorted(block, share).clamp(lo, hi)),
            );
        }
    }
    grid.sort_unstable_by(f64::total_cmp);
    grid.dedup();
    grid
}

/// The first index for which `holds` is false, when it is true and then false; else the last.
fn first_not(len: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut lo, mut hi) = (0, len - 1);
    while lo < hi {
        let middle = usize::midpoint(lo, hi);
        if holds(middle) {
            lo = middle + 1;
        } else {
            hi = middle;
        }
    }
    lo
}
