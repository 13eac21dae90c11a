//! Modes of a sample: how many places it gathers around, where, and with what share.
//!
//! The dip test decides *whether* there is more than one mode (it keeps its level for every
//! unimodal shape), a density estimate decides *where*. Works on logarithms when all values are
//! positive, so that 1 µs ± 2 % and 50 µs ± 2 % are equally wide. Left out: modes with less than a
//! twentieth of the samples, which are tails, and modes closer than the clock's resolution.

mod density;
mod dip;

pub use dip::dip;

use std::ops::Range;

use super::{floor_index, quantile, sorted_finite};

/// Samples below which nothing is said about modes.
const MIN_SAMPLES: usize = 50;
/// Samples looked at; more are thinned evenly in rank.
const MAX_SAMPLES: usize = 4_000;
/// Share of the samples below which a gathering is a tail.
const MIN_SHARE: f64 = 0.05;
/// Widest step taken for the clock's, as a share of the median; ties farther apart are modes.
const MAX_TIE_SPREAD: f64 = 0.25;
/// Steps of the values' resolution below which two modes are one.
const MIN_STEPS: f64 = 3.0;

/// One mode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleMode {
    /// Where the density peaks, in the samples' unit.
    pub value: f64,
    /// Share of the samples nearer to it than the valleys beside it.
    pub share: f64,
}

/// The modes of a sample, ascending by value; shares add up to 1.
///
/// One mode unless the dip test (Hartigan & Hartigan, Annals of Statistics 13, 1985) rejects
/// unimodality between each neighbouring pair: at most one unimodal sample in twenty shows two.
/// Modes of shares 0.7 and 0.3 that lie four standard deviations apart are seen in 95 % of samples
/// of 1,000, those ten apart in as many of 100. None for an empty sample.
pub fn modes(values: &[f64]) -> Vec<SampleMode> {
    let sorted = thinned(&sorted_finite(values));
    let Some(&smallest) = sorted.first() else { return Vec::new() };
    let logarithmic = smallest > 0.0;
    let (spread, step) = spread_ties(&sorted);
    let scale = |v: f64| if logarithmic { v.ln() } else { v };
    let points: Vec<f64> = spread.iter().map(|&v| scale(v)).collect();
    let mut parts = Vec::new();
    split(&points, 0..points.len(), &mut parts);
    merge_insignificant(&mut parts, &points, &sorted, step);
    parts
        .iter()
        .map(|part| SampleMode {
            value: if logarithmic { part.peak.exp() } else { part.peak },
            share: (part.end - part.start) as f64 / points.len() as f64,
        })
        .collect()
}

/// Splits a stretch of the points until the dip test finds each part unimodal.
fn split(points: &[f64], stretch: Range<usize>, parts: &mut Vec<density::DensityPeak>) {
    let here = &points[stretch.clone()];
    let least = MIN_SHARE * points.len() as f64;
    if here.len() >= MIN_SAMPLES && dip::rejects_unimodality(here) {
        let found = density::parts(here, least);
        if found.len() > 1 {
            for part in found {
                split(points, stretch.start + part.start..stretch.start + part.end, parts);
            }
            return;
        }
    }
    parts.extend(density::whole(here).map(|part| density::DensityPeak {
        start: stretch.start,
        end: stretch.end,
        ..part
    }));
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
fn merge_insignificant(
    parts: &mut Vec<density::DensityPeak>,
    points: &[f64],
    sorted: &[f64],
    step: f64,
) {
    let middle = |part: &density::DensityPeak| sorted[usize::midpoint(part.start, part.end - 1)];
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{RandomStream, Seed};
    use crate::stats::simulation::{DistributionShape, normal};
    use proptest::prelude::*;
    use rand::RngExt;

    /// Share of `trials` samples of size `n` in which `count` modes are seen.
    fn seen(n: usize, trials: u64, count: usize, draw: impl Fn(&mut RandomStream) -> f64) -> f64 {
        let hits = (0..trials)
            .filter(|&trial| {
                let mut stream = Seed(trial).stream(&format!("modes {n}"));
                let sample: Vec<f64> = (0..n).map(|_| draw(&mut stream)).collect();
                modes(&sample).len() == count
            })
            .count();
        hits as f64 / trials as f64
    }

    /// Shares of 0.7 and 0.3, `distance` standard deviations apart.
    fn two(distance: f64) -> impl Fn(&mut RandomStream) -> f64 {
        move |stream| {
            let mode = if stream.random::<f64>() < 0.7 { 100.0 } else { 100.0 + distance };
            mode + normal(stream)
        }
    }

    #[test]
    fn unimodal_samples_show_one_mode() {
        type Draw = fn(&mut RandomStream) -> f64;
        let unimodal: [(&str, Draw); 6] = [
            ("uniform", |s| 100.0 + s.random::<f64>()),
            ("normal", |s| 100.0 + normal(s)),
            ("lognormal", |s| (0.5 * normal(s)).exp()),
            ("exponential", |s| 80.0 - (1.0 - s.random::<f64>()).ln()),
            ("heavy tail", |s| {
                (100.0 + normal(s)) * if s.random::<f64>() < 0.03 { 9.0 } else { 1.0 }
            }),
            ("ticking clock", |s| (26.0 + 0.6 * normal(s)).round()),
        ];
        for (name, draw) in unimodal {
            for n in [100, 1_000] {
                let single = seen(n, 200, 1, draw);
                // 200 trials: at most 5 % false, two standard errors allowed.
                assert!(single > 0.92, "{name}, n = {n}: {single}");
            }
        }
    }

    #[test]
    fn two_modes_four_deviations_apart_are_seen_in_two_thousand_samples() {
        assert!(seen(2_000, 100, 2, two(4.0)) >= 0.97);
    }

    #[test]
    fn two_modes_ten_deviations_apart_are_seen_in_a_hundred_samples() {
        assert!(seen(100, 300, 2, two(10.0)) >= 0.95);
    }

    #[test]
    fn three_modes_are_seen_as_three() {
        let three = |stream: &mut RandomStream| {
            [100.0, 110.0, 120.0][floor_index(stream.random::<f64>() * 3.0)] + normal(stream)
        };
        assert!(seen(500, 100, 3, three) >= 0.95);
    }

    #[test]
    fn modes_are_found_where_they_are_with_their_shares() {
        let sample = DistributionShape::Bimodal.series(4_000, &mut Seed(1).stream("modes"));
        let found = modes(&sample);
        assert_eq!(found.len(), 2);
        assert!((found[0].value - 100.0).abs() < 1.5 && (found[1].value - 130.0).abs() < 2.0);
        assert!((found[0].share - 0.7).abs() < 0.03);
    }

    #[test]
    fn two_ticks_are_one_mode_and_two_distant_values_are_two() {
        let sample = |low: f64, high: f64| -> Vec<f64> {
            (0..600).map(|i| if i % 5 < 3 { low } else { high }).collect()
        };
        assert_eq!(modes(&sample(26.0, 27.0)).len(), 1);
        assert_eq!(modes(&sample(25.0, 100.0)).len(), 2);
        // Two ticks apart, with a little between: too close to tell from the clock's own rounding.
        let ticks: Vec<f64> =
            (0..900).map(|i| [26.0, 28.0][i % 2] + f64::from(u8::from(i % 20 == 0))).collect();
        assert_eq!(modes(&ticks).len(), 1);
    }

    proptest! {
        #[test]
        fn shares_add_up_whatever_the_values(
            values in proptest::collection::vec(any::<f64>(), 0..200)
        ) {
            let found = modes(&values);
            let finite = values.iter().filter(|v| v.is_finite()).count();
            let total: f64 = found.iter().map(|mode| mode.share).sum();
            let expected = f64::from(u8::from(finite > 0));
            prop_assert!((total - expected).abs() < 1e-9, "{:?}", found);
        }

        #[test]
        fn the_dip_lies_between_its_bounds(
            values in proptest::collection::vec(-1e3_f64..1e3, 2..100)
        ) {
            let sorted = quantile::sorted(&values);
            let found = dip(&sorted);
            let least = 0.5 / sorted.len() as f64;
            prop_assert!(found >= least - 1e-12 && found <= 0.25 + 1e-12, "{}", found);
        }
    }
}
