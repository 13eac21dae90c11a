//! Injected delays: a spin in the peer must be found as what it is, within its interval.

use plumb_analysis::document::selftest::SelftestCheck;
use plumb_base::stats::quantile;
use plumb_base::time::Span;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::Progress;
use super::bench::Bench;
use crate::problem::Problem;

/// The delays, in nanoseconds.
const DELAYS_NS: [u64; 4] = [200, 1_000, 5_000, 20_000];

/// Launches behind each.
const LAUNCHES: u64 = 30;

/// Widest half interval that proves something: a share of the delay, and at least so much.
const SHARPNESS: f64 = 0.1;
const SHARP_NS: f64 = 40.0;

/// One check for each delay.
pub(super) fn check(
    bench: &mut Bench,
    progress: &mut Progress<'_>,
) -> Result<Vec<SelftestCheck>, Problem> {
    let mut differences: Vec<Vec<f64>> = vec![Vec::new(); DELAYS_NS.len()];
    for launch in 0..LAUNCHES {
        progress("injected delays", 0.1 + 0.1 * launch as f64 / LAUNCHES as f64);
        // Without, with, with, without: a drift within the launch cancels.
        for (delay, found) in DELAYS_NS.into_iter().zip(&mut differences) {
            let blocks = bench.launch(&[0, delay, delay, 0])?;
            let trip = |index: usize| {
                let sorted = quantile::sorted(&blocks[index].samples);
                2.0 * quantile::of_sorted(&sorted, 0.5)
            };
            found.push(f64::midpoint(trip(1), trip(2)) - f64::midpoint(trip(0), trip(3)));
        }
    }
    let judged = |(delay, found): (u64, Vec<f64>)| judge(delay, &found, bench.subject);
    Ok(DELAYS_NS.into_iter().zip(differences).map(judged).collect())
}

/// Whether the interval of the differences holds the delay.
fn judge(delay_ns: u64, differences: &[f64], subject: &str) -> SelftestCheck {
    let n = differences.len() as f64;
    let mean = differences.iter().sum::<f64>() / n;
    let variance = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let t = StudentsT::new(0.0, 1.0, n - 1.0).map_or(f64::NAN, |t| t.inverse_cdf(0.975));
    let half = t * (variance / n).sqrt();
    let delay = delay_ns as f64;
    let ci95 = [mean - half, mean + half];
    // An interval as wide as the delay itself would hold it and prove nothing.
    let is_sharp = half <= (delay * SHARPNESS).max(SHARP_NS);
    let holds = (ci95[0]..=ci95[1]).contains(&delay);
    let name = Span::from_ns(delay_ns);
    SelftestCheck {
        id: format!("injected.{delay_ns}ns"),
        claim: format!("an injected delay of {name} is found within its interval"),
        trials: differences.len() as u64,
        observed: mean,
        ci95: Some(ci95),
        bounds: [delay, delay],
        unit: "ns".to_owned(),
        passed: holds && is_sharp,
        note: if is_sharp {
            format!("added to a round trip over {subject}")
        } else {
            format!(
                "added to a round trip over {subject}; the interval is too wide to prove anything: \
                 something else is running on these CPUs"
            )
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_too_wide_to_prove_anything_fails() {
        let wild: Vec<f64> = (0..30).map(|i| f64::from(i % 2) * 10_000.0 - 4_000.0).collect();
        assert!(!judge(1_000, &wild, "x").passed);
    }

    #[test]
    fn a_delay_outside_the_interval_fails() {
        let around = |centre: f64| -> Vec<f64> {
            (0..30).map(|i| centre + f64::from(i % 5) - 2.0).collect()
        };
        assert!(judge(1_000, &around(1_000.5), "x").passed);
        assert!(!judge(1_000, &around(1_100.0), "x").passed);
    }
}
