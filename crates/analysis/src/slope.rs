//! Slopes of a response over a factor, with launches as what is replicated.

use std::collections::BTreeMap;

use plumb_base::stats::quantile;
use plumb_base::stats::regression::theil_sen;
use plumb_base::stats::shift::Shift;

use crate::summary::{CONFIDENCE, LAUNCHES_NEEDED, MeasuredCell};

/// The slope of the medians of cells over their `x`, each through `scale`.
///
/// Each round gives the Theil-Sen slope through the launches that it made of every cell; estimate, interval and
/// probability are over rounds, however few levels the factor has. `None` for too few rounds, or fewer than three levels.
pub fn slope(line: &[(f64, &MeasuredCell<'_>)], scale: impl Fn(f64) -> f64) -> Option<Shift> {
    let mut rounds: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
    for (x, cell) in line {
        for launch in &cell.launches {
            let samples = quantile::sorted(&launch.samples().concat());
            let median = scale(quantile::of_sorted(&samples, 0.5));
            rounds.entry(launch.round).or_default().push((scale(*x), median));
        }
    }
    let whole = rounds.into_values().filter(|points| points.len() == line.len());
    let slopes: Vec<f64> = whole
        .filter_map(|points| {
            let (x, y): (Vec<f64>, Vec<f64>) = points.into_iter().unzip();
            Some(theil_sen(&x, &y, CONFIDENCE)?.slope)
        })
        .collect();
    if slopes.len() < LAUNCHES_NEEDED {
        return None;
    }
    Shift::of_pairs(&slopes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{SyntheticRun, local};
    use crate::summary::measured_cells;

    #[test]
    fn three_levels_give_a_slope_whose_interval_is_over_launches() {
        let mut synthetic = SyntheticRun::new(1);
        for size in [1_u64, 2, 4] {
            let factors = local("pipe", "same-cpu", size);
            let median = 1_000.0 + 50.0 * size as f64;
            synthetic.measure("latency.local", "latency", factors, median);
        }
        let cells = measured_cells(&synthetic.data);
        let line: Vec<(f64, &MeasuredCell<'_>)> = [1.0, 2.0, 4.0].into_iter().zip(&cells).collect();
        let found = slope(&line, |value| value).unwrap();
        let interval = found.interval(CONFIDENCE).unwrap();
        assert!(interval.contains(50.0) && interval.half_width() < 5.0, "{interval:?}");
        assert!(slope(&line[..2], |value| value).is_none());
    }
}
