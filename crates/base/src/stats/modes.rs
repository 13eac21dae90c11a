//! Modes of a sample: how many places it gathers around, where, and with what share.
//!
//! The dip test decides *whether* there is more than one mode (it keeps its level for every
//! unimodal shape), a density estimate decides *where*. Works on logarithms when all values are
//! positive, so that 1 µs ± 2 % and 50 µs ± 2 % are equally wide. Left out: modes with less than a
//! twentieth of the samples, which are tails, and modes closer than the clock's resolution.

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
fn split(points: &[f64], stretch: Range<usize>, parts: &mut Vec<DensityPeak>) {
    let here = &points[stretch.clone()];
    let least = MIN_SHARE * points.len() as f64;
    if here.len() >= MIN_SAMPLES && rejects_unimodality(here) {
        let found = density_parts(here, least);
        if found.len() > 1 {
            for part in found {
                split(points, stretch.start + part.start..stretch.start + part.end, parts);
            }
            return;
        }
    }
    parts.extend(whole_peak(here).map(|part| DensityPeak {
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
fn merge_insignificant(parts: &mut Vec<DensityPeak>, points: &[f64], sorted: &[f64], step: f64) {
    let middle = |part: &DensityPeak| sorted[usize::midpoint(part.start, part.end - 1)];
    let mut index = 0;
    while index + 1 < parts.len() {
        let (left, right) = (&parts[index], &parts[index + 1]);
        let close = middle(right) - middle(left) < MIN_STEPS * step;
        if close || !rejects_unimodality(&points[left.start..right.end]) {
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

/// The dip of an ascending sample: between 1/(2n) and 1/4.
///
/// The largest distance between the empirical distribution function and the nearest unimodal one.
pub fn dip(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    if n < 2 || sorted[n - 1] <= sorted[0] {
        return 0.5 / n.max(1) as f64;
    }
    let minorant = minorant_links(sorted);
    let majorant = majorant_links(sorted);
    let (mut low, mut high) = (0, n - 1);
    let mut dip = 1.0_f64;
    loop {
        let gcm = chain(high, |i| (i > low).then(|| minorant[i]));
        let lcm = chain(low, |i| (i < high).then(|| majorant[i]));
        let Some(gap) = widest_gap(sorted, &gcm, &lcm) else { break };
        if gap.distance < dip {
            break;
        }
        let below = gcm[gap.gcm..]
            .windows(2)
            .map(|pair| deviation(sorted, pair[1], pair[0], 1.0))
            .fold(0.0, f64::max);
        let above = lcm[gap.lcm..]
            .windows(2)
            .map(|pair| deviation(sorted, pair[0], pair[1], -1.0))
            .fold(0.0, f64::max);
        dip = dip.max(below).max(above);
        if low == gcm[gap.gcm] && high == lcm[gap.lcm] {
            break;
        }
        (low, high) = (gcm[gap.gcm], lcm[gap.lcm]);
    }
    dip / (2.0 * n as f64)
}

/// Whether an ascending sample is unlikely to come from any unimodal distribution.
///
/// Against the uniform distribution, the unimodal one with the largest dips.
fn rejects_unimodality(sorted: &[f64]) -> bool {
    sorted.len() >= 10 && dip(sorted) * (sorted.len() as f64).sqrt() > critical(sorted.len())
}

/// The 97 % point of √n · dip for `n` uniform samples, interpolated in ln n.
fn critical(n: usize) -> f64 {
    let n = (n as f64).ln();
    let above = CRITICAL.partition_point(|(size, _)| size.ln() < n).clamp(1, CRITICAL.len() - 1);
    let ((size_lo, value_lo), (size_hi, value_hi)) = (CRITICAL[above - 1], CRITICAL[above]);
    let fraction = (n - size_lo.ln()) / (size_hi.ln() - size_lo.ln());
    value_lo + fraction.clamp(0.0, 1.0) * (value_hi - value_lo)
}

/// Size and 97 % point, each from 100,000 uniform samples.
const CRITICAL: [(f64, f64); 9] = [
    (10.0, 0.460),
    (20.0, 0.494),
    (50.0, 0.524),
    (100.0, 0.537),
    (200.0, 0.549),
    (500.0, 0.560),
    (1000.0, 0.564),
    (2000.0, 0.567),
    (4000.0, 0.571),
];

/// For each point, the one before it on the greatest convex minorant that ends there.
fn minorant_links(x: &[f64]) -> Vec<usize> {
    let mut links = vec![0; x.len()];
    for j in 1..x.len() {
        links[j] = j - 1;
        loop {
            let near = links[j];
            let far = links[near];
            if near == 0
                || (x[j] - x[near]) * ((near - far) as f64)
                    < (x[near] - x[far]) * ((j - near) as f64)
            {
                break;
            }
            links[j] = far;
        }
    }
    links
}

/// For each point, the one after it on the least concave majorant that begins there: the minorant of the points
/// turned around.
fn majorant_links(x: &[f64]) -> Vec<usize> {
    let turned: Vec<f64> = x.iter().rev().map(|value| -value).collect();
    minorant_links(&turned).into_iter().rev().map(|link| x.len() - 1 - link).collect()
}

/// `start` and what follows it link by link.
fn chain(start: usize, next: impl Fn(usize) -> Option<usize>) -> Vec<usize> {
    std::iter::successors(Some(start), |&i| next(i)).collect()
}

/// Where the minorant and the majorant are farthest apart: positions in the two chains.
struct EnvelopeGap {
    distance: f64,
    gcm: usize,
    lcm: usize,
}

/// `None` when both chains are single segments.
fn widest_gap(x: &[f64], gcm: &[usize], lcm: &[usize]) -> Option<EnvelopeGap> {
    if gcm.len() == 2 && lcm.len() == 2 {
        return None;
    }
    let mut best = EnvelopeGap { distance: 0.0, gcm: gcm.len() - 1, lcm: lcm.len() - 1 };
    // The minorant is walked from its low end upwards, that is backwards in its chain.
    let (mut ix, mut iv) = (gcm.len().saturating_sub(2), 1_usize.min(lcm.len() - 1));
    loop {
        let (g, l) = (gcm[ix], lcm[iv]);
        if g > l {
            let before = gcm[ix + 1];
            let slope = (g - before) as f64 / (x[g] - x[before]);
            let distance = (l as f64 - before as f64 + 1.0) - (x[l] - x[before]) * slope;
            iv += 1;
            if distance >= best.distance {
                best = EnvelopeGap { distance, gcm: ix + 1, lcm: iv - 1 };
            }
        } else {
            let before = lcm[iv - 1];
            let slope = (l - before) as f64 / (x[l] - x[before]);
            let distance = (x[g] - x[before]) * slope - (g as f64 - before as f64 - 1.0);
            let at = ix;
            ix = ix.saturating_sub(1);
            if distance >= best.distance {
                best = EnvelopeGap { distance, gcm: at, lcm: iv };
            }
        }
        iv = iv.min(lcm.len() - 1);
        if gcm[ix] == lcm[iv] {
            return Some(best);
        }
    }
}

/// The largest distance of the steps of the distribution function from one straight segment:
/// above it for `side` 1, below it for −1; at least one step.
fn deviation(x: &[f64], begin: usize, end: usize, side: f64) -> f64 {
    if end - begin <= 1 || x[end] <= x[begin] {
        return 1.0;
    }
    let slope = (end - begin) as f64 / (x[end] - x[begin]);
    (begin..=end)
        .map(|i| {
            let steps = (i - begin) as f64;
            side * (steps - (x[i] - x[begin]) * slope) + 1.0
        })
        .fold(1.0, f64::max)
}

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
struct DensityPeak {
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
fn whole_peak(sorted: &[f64]) -> Option<DensityPeak> {
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
fn density_parts(sorted: &[f64], least: f64) -> Vec<DensityPeak> {
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
                // A part that is too small joins its neighbour.
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
