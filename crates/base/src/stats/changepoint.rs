//! Warm-up by change point: from which window on a series is steady, if it ever is.
//!
//! A fixed number of discarded iterations is either too few or a waste, and some series never
//! settle (Barrett et al., OOPSLA 2017). Left out: periodic behaviour, and changes of spread
//! without a change of level.

use std::ops::Range;

use super::bootstrap::draw;
use super::{floor_index, quantile, sorted_finite};
use crate::seed::Seed;

/// Level of the permutation test: the share of steady series that are called otherwise.
const ALPHA: f64 = 0.04;
/// Permutations behind each test.
const PERMUTATIONS: usize = 499;
/// Changes of level below this share are flat: a quarter of the ±2 % that a run aims for.
const NEGLIGIBLE: f64 = 0.005;
/// Robust standard deviations beyond which a window counts no more: one interrupt is no change.
const CLIP: f64 = 6.0;
/// Fewest windows on each side of a change inside a series.
const MIN_SEGMENT: usize = 4;

/// From where on a series is steady.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steady {
    /// From this window on, counted from 0, to the end.
    From(usize),
    /// Not for at least half of its length.
    Never,
}

/// Finds where the warm-up of a series of 16–64 window medians ends.
///
/// `From(0)` for a flat series, `From(k)` when what follows window k is flat for at least half of
/// the series, `Never` otherwise. Independent noise of any distribution is called unsteady in at
/// most 5 % of cases, being judged against its own permutations. Series of fewer than 8 windows
/// show nothing and count as steady.
pub fn steady_from(series: &[f64]) -> Steady {
    let n = series.len();
    let mut start = 0;
    while start <= n / 2 {
        let rest = &series[start..];
        let Some(change) = change_in(rest) else { return Steady::From(start) };
        start += change;
    }
    Steady::Never
}

/// Cuts a series into segments of constant level, by binary segmentation.
///
/// Each cut is a significant change of at least half a percent between neighbours.
pub fn segments(series: &[f64]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut pending = Vec::new();
    pending.push(0..series.len());
    while let Some(range) = pending.pop() {
        match change_in(&series[range.clone()]) {
            Some(cut) => {
                pending.push(range.start + cut..range.end);
                pending.push(range.start..range.start + cut);
            }
            None => found.push(range),
        }
    }
    found.retain(|range| !range.is_empty());
    found
}

/// The most likely place of a change of level, when there is a significant one that matters.
fn change_in(series: &[f64]) -> Option<usize> {
    if series.len() < 2 * MIN_SEGMENT {
        return None;
    }
    let scores = clipped_scores(series);
    let (cut, observed) = strongest_cut(&scores);
    if observed <= 0.0 || !matters(series, cut) {
        return None;
    }
    let mut stream = Seed(series.len() as u64).stream("changepoint");
    let mut shuffled = scores;
    // Stops as soon as the verdict is certain.
    let allowed = floor_index(ALPHA * (PERMUTATIONS + 1) as f64);
    let mut exceeding = 1;
    for _ in 0..PERMUTATIONS {
        for last in (1..shuffled.len()).rev() {
            shuffled.swap(last, draw(&mut stream, last + 1));
        }
        if strongest_cut(&shuffled).1 >= observed {
            exceeding += 1;
            if exceeding > allowed {
                return None;
            }
        }
    }
    Some(cut)
}

/// Deviations from the median in robust standard deviations, clipped.
fn clipped_scores(series: &[f64]) -> Vec<f64> {
    let sorted = sorted_finite(series);
    let middle = quantile::of_sorted(&sorted, 0.5);
    let deviations: Vec<f64> = sorted.iter().map(|v| (v - middle).abs()).collect();
    let deviations = sorted_finite(&deviations);
    let spread = [0.5, 0.75, 0.9, 1.0]
        .into_iter()
        .map(|p| quantile::of_sorted(&deviations, p))
        .find(|&d| d > 0.0)
        .unwrap_or(1.0);
    let clip = |v: f64| ((v - middle) / (1.4826 * spread)).clamp(-CLIP, CLIP);
    series.iter().map(|&v| if v.is_finite() { clip(v) } else { 0.0 }).collect()
}

/// The cut with the largest standardised difference of means, and that difference squared.
fn strongest_cut(scores: &[f64]) -> (usize, f64) {
    let n = scores.len();
    let total: f64 = scores.iter().sum();
    let mut left = 0.0;
    let mut best = (0, 0.0);
    for cut in 1..n {
        left += scores[cut - 1];
        let (before, after) = (cut as f64, (n - cut) as f64);
        let difference = left / before - (total - left) / after;
        let strength = difference * difference * before * after / n as f64;
        if strength > best.1 {
            best = (cut, strength);
        }
    }
    best
}

/// Whether the levels before and after a cut differ by more than a negligible share.
fn matters(series: &[f64], cut: usize) -> bool {
    let before = quantile::of_sorted(&sorted_finite(&series[..cut]), 0.5);
    let after = quantile::of_sorted(&sorted_finite(&series[cut..]), 0.5);
    (before - after).abs() > NEGLIGIBLE * before.abs().max(after.abs())
}
