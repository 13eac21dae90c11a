//! Injected delays: a spin in the peer must be found as what it is, within its interval.

use plumb_analysis::document::selftest::SelftestCheck;
use plumb_base::stats::quantile;
use plumb_base::time::Span;

use super::SelftestProgress;
use super::channel::SelftestChannel;
use crate::error::ExperimentError;

/// The delays, in nanoseconds.
const DELAYS_NS: [u64; 4] = [200, 1_000, 5_000, 20_000];

/// What the peer takes in any case, before it replies.
///
/// A side that waits longer also wakes later: it has left its branch predictions and sits in a
/// longer pause, some tens of nanoseconds of truth that are not the delay's. With a service time
/// in both variants they wait long in both, and only the delay differs.
const SERVICE_NS: u64 = 10_000;

/// Launches behind each.
const LAUNCHES: u64 = 30;

/// Widest half interval that proves something: a share of the delay, and at least so much.
const SHARPNESS: f64 = 0.1;
const SHARP_NS: f64 = 40.0;

/// One check for each delay.
pub(super) fn check(
    bench: &mut SelftestChannel,
    progress: &mut SelftestProgress<'_>,
) -> Result<Vec<SelftestCheck>, ExperimentError> {
    let mut differences: Vec<Vec<f64>> = vec![Vec::new(); DELAYS_NS.len()];
    for launch in 0..LAUNCHES {
        progress("injected delays", 0.1 + 0.1 * launch as f64 / LAUNCHES as f64);
        // Without, with, with, without: a drift within the launch cancels.
        for (delay, found) in DELAYS_NS.into_iter().zip(&mut differences) {
            let longer = SERVICE_NS + delay;
            let blocks = bench.launch(&[SERVICE_NS, longer, longer, SERVICE_NS])?;
            let trip = |index: usize| {
                let sorted = quantile::sorted(&blocks[index].samples);
                2.0 * quantile::of_sorted(&sorted, 0.5)
            };
            found.push(f64::midpoint(trip(1), trip(2)) - f64::midpoint(trip(0), trip(3)));
        }
    }
    let judged =
        |(delay, found): (u64, Vec<f64>)| judge(delay, &found, bench.subject, bench.grain_ns());
    Ok(DELAYS_NS.into_iter().zip(differences).map(judged).collect())
}

/// Whether the interval of the differences holds the delay.
fn judge(delay_ns: u64, differences: &[f64], subject: &str, grain_ns: f64) -> SelftestCheck {
    let sorted = quantile::sorted(differences);
    let observed = quantile::of_sorted(&sorted, 0.5);
    let delay = delay_ns as f64;
    // By order statistics: one launch that something else disturbed moves no rank by more than one.
    let interval = quantile::order_statistic_interval(&sorted, 0.5, 0.95);
    // What was injected is itself known only to a turn of the spin's loop, half to either side.
    let ci95 = interval.map_or([f64::NEG_INFINITY, f64::INFINITY], |i| {
        [i.lo - grain_ns / 2.0, i.hi + grain_ns / 2.0]
    });
    let half = (ci95[1] - ci95[0]) / 2.0;
    // An interval as wide as the delay itself would hold it and prove nothing.
    let is_sharp = half <= (delay * SHARPNESS).max(SHARP_NS);
    let holds = (ci95[0]..=ci95[1]).contains(&delay);
    let name = Span::from_ns(delay_ns);
    SelftestCheck {
        id: format!("injected.{delay_ns}ns"),
        claim: format!("an injected delay of {name} is found within its interval"),
        trials: differences.len() as u64,
        observed,
        ci95: Some(ci95),
        bounds: [delay, delay],
        unit: "ns".to_owned(),
        passed: holds && is_sharp,
        note: format!(
            "added to a service time of {} behind {subject}; the interval allows {grain_ns:.0} ns \
             for the grain of the spin that injects it{}",
            Span::from_ns(SERVICE_NS),
            if is_sharp {
                ""
            } else {
                "; the interval is too wide to prove anything: something else runs on these CPUs"
            }
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_too_wide_to_prove_anything_fails() {
        let wild: Vec<f64> = (0..30).map(|i| f64::from(i % 2) * 10_000.0 - 4_000.0).collect();
        assert!(!judge(1_000, &wild, "x", 0.0).passed);
    }

    #[test]
    fn a_delay_outside_the_interval_fails() {
        let around = |centre: f64| -> Vec<f64> {
            (0..30).map(|i| centre + f64::from(i % 5) - 2.0).collect()
        };
        assert!(judge(1_000, &around(1_000.5), "x", 0.0).passed);
        assert!(!judge(1_000, &around(1_100.0), "x", 0.0).passed);
    }
}
