//! The estimators against SciPy's answers to the same questions.
//!
//! `golden.txt` was made once by `tools/golden.py`.

use std::collections::BTreeMap;

use plumb_base::seed::Seed;
use plumb_base::stats::regression::theil_sen;
use plumb_base::stats::shift::Shift;
use plumb_base::stats::{autocorrelation, bootstrap, distribution, means, modes, quantile, rank};

/// The table: name → numbers.
struct GoldenValues(BTreeMap<&'static str, Vec<f64>>);

impl GoldenValues {
    fn load() -> Self {
        let table = include_str!("golden.txt").lines().map(|line| {
            let (name, numbers) = line.split_once(' ').expect("a name, then numbers");
            (name, numbers.split(' ').map(|n| n.parse().expect("a number")).collect())
        });
        Self(table.collect())
    }

    fn list(&self, name: &str) -> &[f64] {
        self.0.get(name).unwrap_or_else(|| panic!("golden.txt has no {name}"))
    }
}

/// Fails unless each value is within a relative `tolerance` of its golden one.
#[track_caller]
fn close(found: &[f64], golden: &[f64], tolerance: f64) {
    assert_eq!(found.len(), golden.len());
    for (f, g) in found.iter().zip(golden) {
        assert!((f - g).abs() <= tolerance * g.abs().max(1e-9), "{found:?} is not {golden:?}");
    }
}

#[test]
fn quantiles_are_numpys_default() {
    let golden = GoldenValues::load();
    let sorted = quantile::sorted(golden.list("sample.x"));
    let found: Vec<f64> =
        golden.list("quantile.p").iter().map(|&p| quantile::of_sorted(&sorted, p)).collect();
    close(&found, golden.list("quantile.x"), 1e-14);
}

#[test]
fn order_statistic_intervals_are_those_of_scipys_quantile_test() {
    let golden = GoldenValues::load();
    let sorted = quantile::sorted(golden.list("sample.x"));
    for (p, name) in [(0.25, "order.0.25"), (0.5, "order.0.5"), (0.9, "order.0.9")] {
        let found = quantile::order_statistic_interval(&sorted, p, 0.95).expect("41 suffice");
        close(&[found.lo, found.hi], golden.list(name), 1e-14);
    }
}

#[test]
fn reference_distributions_agree_to_nine_digits() {
    let golden = GoldenValues::load();
    let map = |name: &str, f: &dyn Fn(f64) -> f64| -> Vec<f64> {
        golden.list(name).iter().map(|&v| f(v)).collect()
    };
    close(&map("normal.z", &distribution::normal_cdf), golden.list("normal.cdf"), 1e-9);
    close(&map("normal.p", &distribution::normal_quantile), golden.list("normal.quantile"), 1e-9);
    for freedom in ["1", "2", "4", "9", "19.5", "120"] {
        let nu: f64 = freedom.parse().expect("a number");
        let points = [-30.0, -2.5, -0.3, 0.0, 1.0, 4.0, 50.0];
        let found = points.map(|t| distribution::student_cdf(t, nu));
        close(&found, golden.list(&format!("student.cdf.{freedom}")), 1e-9);
        let shares = [0.001, 0.025, 0.1, 0.5, 0.95, 0.975, 0.9995];
        let found = shares.map(|p| distribution::student_quantile(p, nu));
        close(&found, golden.list(&format!("student.quantile.{freedom}")), 1e-9);
    }
    let small: Vec<f64> = (0..=10).map(|k| distribution::binomial_cdf(k, 10, 0.3)).collect();
    close(&small, golden.list("binomial.10.0.3"), 1e-9);
    let large = [3900, 3950, 3960, 3980, 3999].map(|k| distribution::binomial_cdf(k, 4000, 0.99));
    close(&large, golden.list("binomial.4000.0.99"), 1e-9);
}

#[test]
fn mann_whitney_agrees_exactly_approximately_and_with_ties() {
    let golden = GoldenValues::load();
    let (x, y) = (golden.list("sample.x"), golden.list("sample.y"));
    let (a, b) = (golden.list("mannwhitney.tied.a"), golden.list("mannwhitney.tied.b"));
    for (name, test) in [
        ("mannwhitney.exact", rank::mann_whitney(&x[..8], &y[..11])),
        ("mannwhitney.normal", rank::mann_whitney(x, y)),
        ("mannwhitney.tied", rank::mann_whitney(a, b)),
    ] {
        close(&[test.u, test.p], golden.list(name), 1e-9);
    }
}

#[test]
fn means_agree() {
    let golden = GoldenValues::load();
    let x = golden.list("sample.x");
    let found = [means::arithmetic(x), means::geometric(x)];
    close(&found.map(|m| m.expect("positive values")), golden.list("means"), 1e-13);
}

#[test]
fn bootstrap_intervals_agree_within_their_own_noise() {
    let golden = GoldenValues::load();
    let x = golden.list("sample.x");
    let mean = |values: &[f64]| means::arithmetic(values).unwrap_or(f64::NAN);
    let median = |values: &[f64]| quantile::of_sorted(&quantile::sorted(values), 0.5);
    let made = [
        ("bootstrap.mean.percentile", bootstrap::percentile(x, mean, 20_000, 0.95, Seed(1))),
        ("bootstrap.median.percentile", bootstrap::percentile(x, median, 20_000, 0.95, Seed(1))),
    ];
    for (name, interval) in made {
        let interval = interval.expect("41 values");
        close(&[interval.lo, interval.hi], golden.list(name), 4e-3);
    }
}

#[test]
fn the_autocorrelation_time_agrees_with_a_direct_computation() {
    let golden = GoldenValues::load();
    for (series, time) in [("series", "series.time"), ("sample.x", "series.time.independent")] {
        let found = autocorrelation::integrated_time(golden.list(series));
        close(&[found], golden.list(time), 1e-9);
    }
}

#[test]
fn theil_sen_agrees_with_scipys_theilslopes() {
    let golden = GoldenValues::load();
    let line = theil_sen(golden.list("line.x"), golden.list("line.y"), 0.95).expect("ten points");
    let found = [line.slope, line.slope_interval.lo, line.slope_interval.hi];
    close(&found, golden.list("line.theil_sen"), 1e-12);
    close(&[line.intercept], golden.list("line.theil_sen.intercept"), 1e-12);
}

#[test]
fn shifts_of_launches_are_scipys_exact_rank_tests() {
    let golden = GoldenValues::load();
    let logs = |name| -> Vec<f64> { golden.list(name).iter().map(|value| value.ln()).collect() };
    let (a, b) = (logs("launches.a"), logs("launches.b"));
    let differences: Vec<f64> = a.iter().zip(&b).map(|(a, b)| b - a).collect();
    for (name, shift) in
        [("shift.between", Shift::between(&a, &b)), ("shift.pairs", Shift::of_pairs(&differences))]
    {
        let shift = shift.expect("seven launches");
        close(&[shift.estimate()], golden.list(name), 1e-9);
        let p = [shift.p_above(0.0), shift.p_below(0.0)];
        close(&p, golden.list(&format!("{name}.p")), 1e-9);
    }
}

#[test]
fn the_dip_agrees_with_the_published_implementation() {
    let golden = GoldenValues::load();
    let x = golden.list("sample.x");
    let mut two: Vec<f64> = golden.list("sample.y").iter().map(|y| 130.0 + y).collect();
    two.extend(x);
    for (name, sample) in [
        ("dip.one", x),
        ("dip.two", two.as_slice()),
        ("dip.tied", golden.list("mannwhitney.tied.a")),
        ("dip.series", golden.list("series")),
    ] {
        close(&[modes::dip(&quantile::sorted(sample))], golden.list(name), 1e-9);
    }
}
