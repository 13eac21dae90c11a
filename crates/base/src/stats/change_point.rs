//! Warm-up by change point: from which window on a series is steady, if it ever is.
//!
//! A fixed number of discarded iterations is either too few or a waste, and some series never
//! settle (Barrett et al., OOPSLA 2017). Left out: periodic behaviour, and changes of spread
//! without a change of level.

use super::bootstrap::draw;
use super::{floor_index, quantile, sorted_finite};
use crate::seed::Seed;

/// Level of the first permutation test: the share of steady series that are called otherwise.
const ALPHA: f64 = 0.03;
/// Level of the tests of what is left after a change, of which there can be several.
const ALPHA_REST: f64 = 0.02;
/// Permutations behind each test.
const PERMUTATIONS: usize = 499;
/// Changes of level below this share are flat: a quarter of the ±2 % that a run aims for.
const MATERIAL_CHANGE: f64 = 0.005;
/// Robust standard deviations beyond which a window counts no more: one interrupt is no change.
const CLIP: f64 = 6.0;
/// Added to the correlation of neighbours that a series shows, which is too small in a short one: a
/// level and a place of change, or a slope, are fitted to it first.
const CORRELATION_MARGIN: f64 = 0.25;
/// Neighbours correlated more than this cannot be told from a drift.
const CORRELATION_MAX: f64 = 0.97;
/// Shortest series in which a change is looked for.
const MIN_WINDOWS: usize = 8;
/// Shortest series whose first window may stand out alone: one in sixteen does by chance.
const MIN_WINDOWS_OUTLIER: usize = 16;
/// Robust standard deviations within which the others lie when the first stands out alone.
const OUTLIER_LIMIT: f64 = 4.0;

/// From where on a series is steady.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteadyState {
    /// From this window on, counted from 0, to the end.
    From(usize),
    /// Not for at least half of its length.
    Never,
}

/// Finds where the warm-up of a series of 16–64 window medians ends.
///
/// `From(0)` for a flat series, `From(k)` when what follows window k is flat for at least half of
/// the series, `Never` otherwise. Independent noise of any distribution is called unsteady in at
/// most 5 % of cases, being judged against its own permutations, each as correlated as the series is
/// beside its change or slope: first-order autoregressions of 0.3 and 0.6 in at most 5 %, of 0.9 in
/// about 11 %. Series of fewer than 8 windows show nothing and count as steady.
pub fn steady_from(series: &[f64]) -> SteadyState {
    let mut start = 0;
    while start <= series.len() / 2 {
        let rest = &series[start..];
        let alpha = if start == 0 { ALPHA } else { ALPHA_REST };
        let change = change_in(rest, alpha)
            .or_else(|| (start == 0 && first_window_is_outlier(rest)).then_some(1));
        let Some(change) = change else { return SteadyState::From(start) };
        start += change;
    }
    SteadyState::Never
}

/// The most likely place of a change of level, when there is a significant one that matters.
fn change_in(series: &[f64], alpha: f64) -> Option<usize> {
    if series.len() < MIN_WINDOWS {
        return None;
    }
    let scores = clipped_z_scores(series);
    let weights = cut_weights(scores.len());
    let (cut, observed) = strongest_cut(&scores, &weights);
    if observed <= 0.0 || !is_material_change(series, cut) {
        return None;
    }
    // A fixed seed: the permutations are part of the test, and one series has one verdict.
    let mut stream = Seed(series.len() as u64).stream("changepoint");
    let correlation =
        (neighbor_correlation(&scores, cut) + CORRELATION_MARGIN).clamp(0.0, CORRELATION_MAX);
    let (mut shuffled, mut series) = (scores, Vec::new());
    // Stops as soon as the verdict is certain.
    let allowed = floor_index(alpha * (PERMUTATIONS + 1) as f64);
    let mut exceeding = 1;
    for _ in 0..PERMUTATIONS {
        for last in (1..shuffled.len()).rev() {
            shuffled.swap(last, draw(&mut stream, last + 1));
        }
        correlate(&shuffled, correlation, &mut series);
        if strongest_cut(&series, &weights).1 >= observed {
            exceeding += 1;
            if exceeding > allowed {
                return None;
            }
        }
    }
    Some(cut)
}

/// The correlation of neighbours in what a step at `cut`, or a straight line, leaves of a series; of
/// the one that leaves less of it.
fn neighbor_correlation(scores: &[f64], cut: usize) -> f64 {
    let line = |at: f64, points: &[f64]| {
        let n = points.len() as f64;
        let (middle, mean) = ((n - 1.0) / 2.0, points.iter().sum::<f64>() / n);
        let of = |(i, v): (usize, &f64)| (i as f64 - middle) * (v - mean);
        let slope = points.iter().enumerate().map(of).sum::<f64>() / (n * (n * n - 1.0) / 12.0);
        mean + slope * (at - middle)
    };
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (before, after) = (mean(&scores[..cut]), mean(&scores[cut..]));
    let step = scores.iter().enumerate().map(|(i, v)| v - if i < cut { before } else { after });
    let slope = scores.iter().enumerate().map(|(i, v)| v - line(i as f64, scores));
    lag_one(&step.collect::<Vec<_>>()).min(lag_one(&slope.collect::<Vec<_>>()))
}

/// The autocorrelation of a series of mean zero at lag 1; 0 for a series of zeros.
fn lag_one(series: &[f64]) -> f64 {
    let square: f64 = series.iter().map(|v| v * v).sum();
    let product: f64 = series.windows(2).map(|pair| pair[0] * pair[1]).sum();
    if square > 0.0 { product / square } else { 0.0 }
}

/// Makes `series` a first-order autoregression whose innovations are these values, with their variance.
fn correlate(innovations: &[f64], correlation: f64, series: &mut Vec<f64>) {
    let share = (1.0 - correlation * correlation).sqrt();
    let mut last = None;
    let next = |&innovation: &f64| {
        let value = last.map_or(innovation, |last| correlation * last + share * innovation);
        last = Some(value);
        value
    };
    series.clear();
    series.extend(innovations.iter().map(next));
}

/// Whether the first window alone is far from the others, which a permutation test cannot show: in
/// one of n orders any window is the first.
fn first_window_is_outlier(series: &[f64]) -> bool {
    if series.len() < MIN_WINDOWS_OUTLIER || !is_material_change(series, 1) {
        return false;
    }
    let scores = clipped_z_scores(series);
    scores[0].abs() >= CLIP && scores[1..].iter().all(|score| score.abs() <= OUTLIER_LIMIT)
}

/// Deviations from the median in robust standard deviations, clipped.
fn clipped_z_scores(series: &[f64]) -> Vec<f64> {
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

/// By what the square of the sum of deviations before each cut is multiplied, from the first cut on.
fn cut_weights(n: usize) -> Vec<f64> {
    (1..n).map(|cut| n as f64 / (cut as f64 * (n - cut) as f64)).collect()
}

/// The cut with the largest standardised difference of means, and that difference squared.
fn strongest_cut(scores: &[f64], weights: &[f64]) -> (usize, f64) {
    let mean = scores.iter().sum::<f64>() / scores.len() as f64;
    let mut deviation = 0.0;
    let mut best = (0, 0.0);
    for ((cut, score), weight) in (1..).zip(scores).zip(weights) {
        deviation += score - mean;
        let strength = deviation * deviation * weight;
        if strength > best.1 {
            best = (cut, strength);
        }
    }
    best
}

/// Whether the levels before and after a cut differ by more than a negligible share.
fn is_material_change(series: &[f64], cut: usize) -> bool {
    let before = quantile::of_sorted(&sorted_finite(&series[..cut]), 0.5);
    let after = quantile::of_sorted(&sorted_finite(&series[cut..]), 0.5);
    (before - after).abs() > MATERIAL_CHANGE * before.abs().max(after.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::RandomStream;
    use crate::stats::simulation::normal;
    use proptest::prelude::*;

    /// Share of 400 series of `n` windows whose verdict satisfies `holds`.
    fn share(
        n: usize,
        window: impl Fn(usize, &mut RandomStream) -> f64,
        holds: impl Fn(SteadyState) -> bool,
    ) -> f64 {
        let hits = (0..400)
            .filter(|&trial| {
                let mut stream = Seed(trial).stream(&format!("steady {n}"));
                let series: Vec<f64> = (0..n).map(|i| window(i, &mut stream)).collect();
                holds(steady_from(&series))
            })
            .count();
        hits as f64 / 400.0
    }

    #[test]
    fn the_strongest_cut_has_the_largest_standardised_difference_of_means() {
        let scores = [1.0, 3.0, 2.0, 9.0, 7.0, 8.0, 7.5, 2.0];
        let strength = |cut: usize| {
            let (before, after) = (cut as f64, (scores.len() - cut) as f64);
            let difference = scores[..cut].iter().sum::<f64>() / before
                - scores[cut..].iter().sum::<f64>() / after;
            difference * difference * before * after / (before + after)
        };
        let (cut, found) = strongest_cut(&scores, &cut_weights(scores.len()));
        assert!((found - strength(cut)).abs() < 1e-12);
        assert!((1..scores.len()).all(|other| strength(other) <= found + 1e-12));
    }

    #[test]
    fn independent_noise_is_steady_from_the_start() {
        for n in [16, 32, 64] {
            let flat = |steady| steady == SteadyState::From(0);
            let plain = share(n, |_, s| 100.0 + normal(s), flat);
            let skewed = share(n, |_, s| 100.0 + (2.0 * normal(s)).exp(), flat);
            let ticking = share(n, |_, s| (26.0 + 0.6 * normal(s)).round(), flat);
            // 400 trials: at most 5 % false, and 1.5 standard errors allowed.
            for found in [plain, skewed, ticking] {
                assert!(found > 0.934, "{n}: {plain} {skewed} {ticking}");
            }
        }
    }

    #[test]
    fn correlated_noise_is_steady_from_the_start() {
        for (correlation, least) in [(0.3, 0.95), (0.6, 0.94), (0.9, 0.87)] {
            let flat = (0..400).filter(|trial| {
                let mut stream = Seed(*trial).stream(&format!("correlated {correlation}"));
                let noise: Vec<f64> = (0..32).map(|_| normal(&mut stream)).collect();
                let mut series = Vec::new();
                correlate(&noise, correlation, &mut series);
                for value in &mut series {
                    *value += 100.0;
                }
                steady_from(&series) == SteadyState::From(0)
            });
            let share = flat.count() as f64 / 400.0;
            assert!(share >= least, "{correlation}: {share}");
        }
    }

    #[test]
    fn a_transient_ends_where_it_ends() {
        let from =
            |lo, hi| move |steady| matches!(steady, SteadyState::From(k) if (lo..=hi).contains(&k));
        let noise = |s: &mut RandomStream| 100.0 + normal(s);
        let step = share(32, |i, s| noise(s) + if i < 8 { 5.0 } else { 0.0 }, from(7, 10));
        let first = share(32, |i, s| noise(s) + if i < 1 { 20.0 } else { 0.0 }, from(1, 2));
        let decay = share(32, |i, s| noise(s) + 30.0 * (-(i as f64) / 3.0).exp(), from(4, 16));
        // A decay is half like correlated noise, and is found less often than a step.
        assert!(step > 0.9 && first > 0.9 && decay > 0.75, "{step} {first} {decay}");
    }

    #[test]
    fn what_never_settles_is_called_so() {
        let never = |steady| steady == SteadyState::Never;
        let noise = |s: &mut RandomStream| 100.0 + normal(s);
        let drift = share(32, |i, s| noise(s) + i as f64 / 3.0, never);
        let late = share(32, |i, s| noise(s) + if i < 24 { 0.0 } else { 5.0 }, never);
        // Noise that is correlated enough looks like a drift.
        assert!(drift > 0.75 && late > 0.95, "{drift} {late}");
    }

    #[test]
    fn a_change_too_small_to_matter_is_flat() {
        let flat = |steady| steady == SteadyState::From(0);
        let tiny = share(32, |i, s| 100.0 + 0.01 * normal(s) + if i < 9 { 0.3 } else { 0.0 }, flat);
        assert!(tiny > 0.99, "{tiny}");
        assert_eq!(steady_from(&[]), SteadyState::From(0));
        assert_eq!(steady_from(&[7.0; 40]), SteadyState::From(0));
        assert_eq!(steady_from(&[9.0, 1.0, 1.0]), SteadyState::From(0));
    }

    proptest! {
        #[test]
        fn any_series_has_a_verdict(
            series in proptest::collection::vec(any::<f64>(), 0..70)
        ) {
            if let SteadyState::From(k) = steady_from(&series) {
                prop_assert!(k <= series.len() / 2);
            }
        }
    }
}
