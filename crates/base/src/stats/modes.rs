//! Modes of a sample: how many places it gathers around, where, and with what share.
//!
//! The dip test decides *whether* there is more than one mode (it keeps its level for every
//! unimodal shape), a density estimate decides *where*. Works on logarithms when all values are
//! positive, so that 1 µs ± 2 % and 50 µs ± 2 % are equally wide. Left out: modes with less than a
//! twentieth of the samples, which are tails, and modes closer than the clock's resolution.

mod density;
mod dip;

pub use dip::dip;

use super::{floor_index, quantile, sorted_finite};

/// Samples below which nothing is said about modes.
const MIN_SAMPLES: usize = 50;
/// Samples looked at; more are thinned evenly in rank.
const MAX_SAMPLES: usize = 4_000;
/// Share of the samples below which a gathering is a tail.
const MIN_SHARE: f64 = 0.05;
/// Widest spread given to tied values, as a share of the value.
const MAX_TIE_SPREAD: f64 = 0.01;
/// Steps of the values' resolution below which two modes are one.
const MIN_STEPS: f64 = 3.0;

/// One mode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mode {
    /// Where the density peaks, in the samples' unit.
    pub value: f64,
    /// Share of the samples nearer to it than the valleys beside it.
    pub share: f64,
}

/// The modes of a sample, ascending by value; shares add up to 1.
///
/// One mode unless the dip test (Hartigan & Hartigan, Annals of Statistics 13, 1985) rejects
/// unimodality between each neighbouring pair. None for an empty sample.
pub fn modes(values: &[f64]) -> Vec<Mode> {
    let sorted = thinned(&sorted_finite(values));
    let Some(&smallest) = sorted.first() else { return Vec::new() };
    let logarithmic = smallest > 0.0;
    let (spread, step) = spread_ties(&sorted);
    let scale = |v: f64| if logarithmic { v.ln() } else { v };
    let points: Vec<f64> = spread.iter().map(|&v| scale(v)).collect();
    if points.len() < MIN_SAMPLES || !dip::rejects_unimodality(&points) {
        return vec![single(&points, logarithmic)];
    }
    let mut parts = density::parts(&points, MIN_SHARE);
    merge_insignificant(&mut parts, &points, &sorted, step);
    parts
        .iter()
        .map(|part| Mode {
            value: if logarithmic { part.peak.exp() } else { part.peak },
            share: (part.end - part.start) as f64 / points.len() as f64,
        })
        .collect()
}

fn single(points: &[f64], logarithmic: bool) -> Mode {
    let peak = density::peak(points);
    Mode { value: if logarithmic { peak.exp() } else { peak }, share: 1.0 }
}

/// At most [`MAX_SAMPLES`] of an ascending sample, evenly spaced in rank.
fn thinned(sorted: &[f64]) -> Vec<f64> {
    if sorted.len() <= MAX_SAMPLES {
        return sorted.to_vec();
    }
    let step = (sorted.len() - 1) as f64 / (MAX_SAMPLES - 1) as f64;
    (0..MAX_SAMPLES).map(|i| sorted[floor_index(i as f64 * step)]).collect()
}

/// Spreads tied values evenly over one step of the resolution, and says how long that step is.
///
/// A clock that ticks makes every tick a mode; a step is what the values cannot tell apart.
fn spread_ties(sorted: &[f64]) -> (Vec<f64>, f64) {
    let mut distinct = sorted.to_vec();
    distinct.dedup();
    // Without ties there is no resolution to speak of.
    if distinct.len() * 10 > sorted.len() * 9 {
        return (sorted.to_vec(), 0.0);
    }
    let gaps: Vec<f64> = distinct.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let middle = quantile::of_sorted(sorted, 0.5).abs();
    let typical = quantile::of_sorted(&sorted_finite(&gaps), 0.25);
    let step = if typical.is_nan() { 0.0 } else { typical.min(MAX_TIE_SPREAD * middle) };
    let mut spread = Vec::with_capacity(sorted.len());
    for tied in sorted.chunk_by(|a, b| a.total_cmp(b).is_eq()) {
        let n = tied.len() as f64;
        spread
            .extend(tied.iter().enumerate().map(|(i, v)| v + step * ((i as f64 + 0.5) / n - 0.5)));
    }
    spread.sort_unstable_by(f64::total_cmp);
    (spread, step)
}

/// Joins neighbouring parts that are one mode by the dip test, or closer than the values resolve.
fn merge_insignificant(parts: &mut Vec<density::Part>, points: &[f64], sorted: &[f64], step: f64) {
    let middle = |part: &density::Part| sorted[usize::midpoint(part.start, part.end - 1)];
    let mut index = 0;
    while index + 1 < parts.len() {
        let (left, right) = (&parts[index], &parts[index + 1]);
        let close = middle(right) - middle(left) < MIN_STEPS * step;
        if close || !dip::rejects_unimodality(&points[left.start..right.end]) {
            let right = parts.remove(index + 1);
            let left = &mut parts[index];
            left.end = right.end;
            if right.height > left.height {
                (left.peak, left.height) = (right.peak, right.height);
            }
            index = index.saturating_sub(1);
        } else {
            index += 1;
        }
    }
}
