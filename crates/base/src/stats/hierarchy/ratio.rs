//! The ratio of two cells' medians, paired by launch or not.
//!
//! Left out: verdicts, which need a margin as well ([`super::super::equivalence`]).

use super::{Hierarchy, LaunchSamples, MIN_LAUNCHES, pooled_quantile, student_interval};
use crate::seed::Seed;
use crate::stats::Interval;
use crate::stats::distribution::student_quantile;

/// How the launches of two cells belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Launch i of one was interleaved with launch i of the other: they share its conditions.
    Paired,
    /// They were made apart.
    Unpaired,
}

/// The ratio of two medians, second over first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Median of the second over median of the first.
    pub estimate: f64,
    /// Where the true ratio lies.
    pub interval: Interval,
}

/// The ratio of medians `b`/`a`.
///
/// `None` for fewer than three launches (pairs of launches) or medians that are not positive.
pub fn ratio(
    a: &Hierarchy,
    b: &Hierarchy,
    pairing: Pairing,
    confidence: f64,
    _seed: Seed,
) -> Option<Ratio> {
    let (first, second): (Vec<&LaunchSamples>, Vec<&LaunchSamples>) = match pairing {
        Pairing::Paired => {
            a.launches.iter().zip(&b.launches).filter(|(a, b)| a.n > 0 && b.n > 0).unzip()
        }
        Pairing::Unpaired => (a.measured().collect(), b.measured().collect()),
    };
    if first.len() < MIN_LAUNCHES || second.len() < MIN_LAUNCHES {
        return None;
    }
    let logs_a = log_medians(&first)?;
    let logs_b = log_medians(&second)?;
    let (lo, hi) = match pairing {
        Pairing::Paired => {
            let differences: Vec<f64> = logs_a.iter().zip(&logs_b).map(|(a, b)| b - a).collect();
            student_interval(&differences, confidence)?
        }
        Pairing::Unpaired => welch_interval(&logs_a, &logs_b, confidence)?,
    };
    let estimate = pooled_quantile(&second, 0.5) / pooled_quantile(&first, 0.5);
    Some(Ratio { estimate, interval: Interval { lo: lo.exp(), hi: hi.exp(), confidence } })
}

fn log_medians(launches: &[&LaunchSamples]) -> Option<Vec<f64>> {
    launches.iter().map(|launch| Some(launch.median()).filter(|&m| m > 0.0).map(f64::ln)).collect()
}

/// Welch's interval for the difference of two means, second minus first (Welch 1947).
fn welch_interval(a: &[f64], b: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let moments = |values: &[f64]| {
        let n = values.len() as f64;
        let mean = crate::stats::means::arithmetic(values)?;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
        Some((mean, variance / n, n - 1.0))
    };
    let (mean_a, square_a, freedom_a) = moments(a)?;
    let (mean_b, square_b, freedom_b) = moments(b)?;
    let square = square_a + square_b;
    let difference = mean_b - mean_a;
    if square <= 0.0 {
        return Some((difference, difference));
    }
    let freedom = square.powi(2) / (square_a.powi(2) / freedom_a + square_b.powi(2) / freedom_b);
    let reach = student_quantile(f64::midpoint(1.0, confidence), freedom) * square.sqrt();
    Some((difference - reach, difference + reach))
}
