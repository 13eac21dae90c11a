//! Whether launches made one after the other are independent, as every interval over launches takes them to be.
//!
//! The rank version of von Neumann's ratio (Bartels 1982): the sum of squared differences of neighbouring ranks. It is
//! small where a launch resembles the one before, by a trend or by conditions that last. Few launches show
//! little of it, so [`power`] says how much.

use super::bootstrap::draw;
use super::simulation::LaunchEffect;
use super::{floor_index, rank};
use crate::seed::{RandomStream, Seed};

/// The chance that independent launches are called correlated.
pub const LEVEL: f64 = 0.01;

/// Random orders that the order of the launches is compared with.
const PERMUTATIONS: usize = 2_000;

/// Series whose correlation is known, to find the power with.
const SERIES: usize = 1_000;

/// What [`power`] is the power against: of ranks, so the standard deviation does not matter.
const CORRELATED: LaunchEffect = LaunchEffect::Correlated(1.0);

/// Whether neighbours in a series resemble each other more than in all but [`LEVEL`] of its random orders.
///
/// One series always has the same verdict.
pub fn is_correlated(series: &[f64]) -> bool {
    let mut ranks = rank::ranks(series);
    let observed = roughness(&ranks);
    let mut stream = Seed(series.len() as u64).stream("drift");
    // Stops as soon as the verdict is certain.
    let allowed = floor_index(LEVEL * (PERMUTATIONS + 1) as f64);
    let mut as_smooth = 1;
    for _ in 0..PERMUTATIONS {
        shuffle(&mut ranks, &mut stream);
        as_smooth += usize::from(roughness(&ranks) <= observed);
        if as_smooth > allowed {
            return false;
        }
    }
    true
}

/// The chance that [`is_correlated`] finds the correlation of [`LaunchEffect::Correlated`] in so many launches.
pub fn power(launches: usize) -> f64 {
    let mut stream = Seed(launches as u64).stream("power of drift");
    let mut ranks: Vec<f64> = (0..launches).map(|i| i as f64).collect();
    let mut random = || {
        shuffle(&mut ranks, &mut stream);
        roughness(&ranks)
    };
    let mut null: Vec<f64> = (0..PERMUTATIONS).map(|_| random()).collect();
    null.sort_unstable_by(f64::total_cmp);
    // As many of the random orders as `is_correlated` allows, which counts the observed one with them.
    let allowed = floor_index(LEVEL * (PERMUTATIONS + 1) as f64) - 1;
    let found = (0..SERIES)
        .filter(|_| {
            let observed = roughness(&rank::ranks(&CORRELATED.factors(launches, &mut stream)));
            null.partition_point(|value| *value <= observed) <= allowed
        })
        .count();
    found as f64 / SERIES as f64
}

fn roughness(ranks: &[f64]) -> f64 {
    ranks.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum()
}

fn shuffle(values: &mut [f64], stream: &mut RandomStream) {
    for last in (1..values.len()).rev() {
        values.swap(last, draw(stream, last + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share_found(n: usize, effect: LaunchEffect) -> f64 {
        let mut stream = Seed(n as u64).stream("drift test");
        let found = (0..1_000).filter(|_| is_correlated(&effect.factors(n, &mut stream))).count();
        found as f64 / 1_000.0
    }

    #[test]
    fn independent_launches_are_seldom_called_correlated() {
        for n in [6, 10, 30] {
            // 21 or more of 1,000 would have a probability of one in a thousand.
            let share = share_found(n, LaunchEffect::Skewed(0.03));
            assert!(share <= 0.02, "{share} of series of {n}");
        }
    }

    #[test]
    fn the_power_is_that_of_the_test() {
        for n in [6, 10, 20, 30] {
            let (share, power) = (share_found(n, CORRELATED), power(n));
            assert!((share - power).abs() < 0.06, "{n} launches: {share}, said to be {power}");
        }
        assert!(power(30) > 0.7 && power(10) < 0.5, "{} and {}", power(30), power(10));
    }

    #[test]
    fn a_trend_is_a_correlation_and_equal_launches_are_not() {
        let trend: Vec<f64> = (0..8).map(f64::from).collect();
        assert!(is_correlated(&trend));
        assert!(!is_correlated(&[5.0; 8]));
        assert!(!is_correlated(&[]) && !is_correlated(&[1.0, 2.0, 3.0, 4.0]));
    }
}
