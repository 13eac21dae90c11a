//! The self-test: proof, on this machine and with the shipped code, that intervals cover, that
//! comparisons keep quiet about nothing, and that an injected delay is found as what it is.
//!
//! Intervals and verdicts are tried on simulated launches, whose truth is known, through the code that carries out
//! real runs; the rest on real round trips, with delays spun by the peer.

use plumb_analysis::document::host::{SELFTEST_SCHEMA, SelftestCheck, SelftestDocument};
use plumb_base::seed::Seed;
use plumb_base::stats::quantile;
use plumb_base::time::Span;
use plumb_clock::monotonic_ns;
use plumb_harness::{mechanisms, stop_signals};
use statrs::distribution::{Beta, ContinuousCDF};

use crate::error::{ErrorKind, ExperimentError};
use crate::preset::RunPreset;

mod channel;
mod simulated_host;
mod simulated_runs;
mod verdicts;

use channel::SelftestChannel;
use simulated_runs::SimulatedSample;

/// Told what is under way and how far it is; called only while nothing is being measured.
pub type SelftestProgress<'a> = dyn FnMut(&str, f64) + 'a;

/// Runs every check; `progress` hears what is being tried and the share that is done.
///
/// Simulated runs are a sample of the default preset, or so many `tables` of each preset and launch effect.
///
/// # Errors
/// When measuring processes cannot be started, or the user stops it. A check that fails is an
/// entry of the document and no error.
pub fn run(
    seed: Seed,
    tables: Option<u64>,
    code_version: &'static str,
    progress: &mut SelftestProgress<'_>,
) -> Result<SelftestDocument, ExperimentError> {
    stop_signals::count_stop_requests()
        .map_err(|error| ExperimentError::failure("cannot listen for Ctrl-C").because(error))?;
    mechanisms::sweep_leftovers();
    let began = monotonic_ns();
    let (sample, simulated_until) = match tables {
        Some(tables) => (SimulatedSample { tables, presets: &RunPreset::ALL }, 0.95),
        None => (SAMPLE, 0.35),
    };
    let rest = 1.0 - simulated_until;
    let mut checks = simulated_runs::check(seed, sample, &mut |what, share| {
        progress(what, simulated_until * share);
    })?;
    checks.extend(check_delays(&mut SelftestChannel::spinning(seed)?, &mut |what, share| {
        progress(what, simulated_until + rest * 0.2 * share);
    })?);
    checks.extend(verdicts::check(seed, &mut |what, share| {
        progress(what, simulated_until + rest * (0.2 + 0.8 * share));
    })?);
    let seconds = Span::from_ns(monotonic_ns().saturating_sub(began)).as_secs_f64();
    Ok(SelftestDocument {
        schema: SELFTEST_SCHEMA.to_owned(),
        code: code_version.to_owned(),
        seed: seed.0,
        seconds,
        passed: checks.iter().all(|check| check.passed),
        checks,
    })
}

/// The simulated runs of an ordinary self-test.
const SAMPLE: SimulatedSample = SimulatedSample { tables: 50, presets: &[RunPreset::Default] };

/// A check of a rate: so many of so many trials, which must lie within bounds.
fn rate(
    id: &str,
    claim: String,
    (hits, trials): (u64, u64),
    bounds: [f64; 2],
    note: String,
) -> SelftestCheck {
    let observed = hits as f64 / trials as f64;
    SelftestCheck {
        id: id.to_owned(),
        claim,
        trials,
        observed,
        ci95: Some(binomial_interval(hits, trials)),
        bounds,
        unit: "share".to_owned(),
        passed: (bounds[0]..=bounds[1]).contains(&observed),
        note,
    }
}

/// A check of a rate by a sample of simulations, which fails when its 99.9 % interval lies outside the bounds.
fn sampled_rate(
    id: &str,
    claim: String,
    (hits, trials): (u64, u64),
    bounds: [f64; 2],
    note: String,
) -> SelftestCheck {
    let [lo, hi] = binomial_interval_at(0.999, hits, trials);
    let passed = hi >= bounds[0] && lo <= bounds[1] && trials > 0;
    SelftestCheck { passed, ..rate(id, claim, (hits, trials), bounds, note) }
}

/// The exact 95 % interval of a binomial share.
fn binomial_interval(hits: u64, trials: u64) -> [f64; 2] {
    binomial_interval_at(0.95, hits, trials)
}

/// The exact interval of a binomial share (Clopper & Pearson 1934).
fn binomial_interval_at(confidence: f64, hits: u64, trials: u64) -> [f64; 2] {
    let tail = (1.0 - confidence) / 2.0;
    let (k, n) = (hits as f64, trials as f64);
    let quantile = |a: f64, b: f64, p: f64| Beta::new(a, b).map_or(f64::NAN, |d| d.inverse_cdf(p));
    let lo = if hits == 0 { 0.0 } else { quantile(k, n - k + 1.0, tail) };
    let hi = if hits == trials { 1.0 } else { quantile(k + 1.0, n - k, 1.0 - tail) };
    [lo, hi]
}

/// An error when the user has asked to stop.
fn check_interrupted() -> Result<(), ExperimentError> {
    if stop_signals::stop_requests() == 0 {
        return Ok(());
    }
    Err(ExperimentError {
        kind: ErrorKind::Interrupted,
        ..ExperimentError::failure("the self-test was interrupted")
    })
}

/// The delays, in nanoseconds.
const DELAYS_NS: [u64; 4] = [200, 1_000, 5_000, 20_000];

/// What the peer takes in any case, before it replies.
///
/// A side that waits longer also wakes later: it has left its branch predictions and sits in a
/// longer pause, some tens of nanoseconds of truth that are not the delay's. With a service time
/// ten times the delay in both variants, they wait alike in both.
const SERVICE_NS: u64 = 10_000;
const SERVICE_DELAYS: u64 = 10;

/// What the peer takes in any case where this delay is injected.
const fn service_ns(delay_ns: u64) -> u64 {
    let proportional = SERVICE_DELAYS * delay_ns;
    if proportional > SERVICE_NS { proportional } else { SERVICE_NS }
}

/// Launches behind each, and at most where the intervals are not sharp before.
const LAUNCHES: u64 = 30;
const LAUNCHES_MAX: u64 = 90;

/// Widest half interval that proves something: a share of the delay, and at least so much.
const SHARPNESS: f64 = 0.1;
const SHARP_NS: f64 = 40.0;

/// Injected delays: a spin in the peer must be found as what it is, within its interval.
fn check_delays(
    bench: &mut SelftestChannel,
    progress: &mut SelftestProgress<'_>,
) -> Result<Vec<SelftestCheck>, ExperimentError> {
    let mut differences: Vec<Vec<f64>> = vec![Vec::new(); DELAYS_NS.len()];
    let grain_ns = bench.grain_ns();
    for launch in 0..LAUNCHES_MAX {
        progress("injected delays", (launch as f64 / LAUNCHES as f64).min(1.0));
        for (delay, found) in DELAYS_NS.into_iter().zip(&mut differences) {
            if launch >= LAUNCHES && is_sharp(delay, delay_interval(found, grain_ns)) {
                continue;
            }
            // Without, with, with, without: a drift within the launch cancels.
            let service = service_ns(delay);
            let longer = service + delay;
            let blocks = bench.launch(&[service, longer, longer, service])?;
            let trip = |index: usize| {
                let sorted = quantile::sorted(&blocks[index].samples);
                2.0 * quantile::of_sorted(&sorted, 0.5)
            };
            found.push(f64::midpoint(trip(1), trip(2)) - f64::midpoint(trip(0), trip(3)));
        }
    }
    let judged = |(delay, found): (u64, Vec<f64>)| judge(delay, &found, bench.subject, grain_ns);
    Ok(DELAYS_NS.into_iter().zip(differences).map(judged).collect())
}

/// The interval of the median difference, by order statistics: one launch that something else disturbed moves no rank
/// by more than one. What was injected is itself known only to a turn of the spin's loop, half to either side.
fn delay_interval(differences: &[f64], grain_ns: f64) -> [f64; 2] {
    let sorted = quantile::sorted(differences);
    let interval = quantile::order_statistic_interval(&sorted, 0.5, 0.95);
    interval.map_or([f64::NEG_INFINITY, f64::INFINITY], |found| {
        [found.lo - grain_ns / 2.0, found.hi + grain_ns / 2.0]
    })
}

/// Whether an interval proves something: one as wide as the delay itself would hold it in any case.
fn is_sharp(delay_ns: u64, [lo, hi]: [f64; 2]) -> bool {
    (hi - lo) / 2.0 <= (delay_ns as f64 * SHARPNESS).max(SHARP_NS)
}

/// Whether the interval of the differences holds the delay.
fn judge(delay_ns: u64, differences: &[f64], subject: &str, grain_ns: f64) -> SelftestCheck {
    let observed = quantile::of_sorted(&quantile::sorted(differences), 0.5);
    let delay = delay_ns as f64;
    let ci95 = delay_interval(differences, grain_ns);
    let is_sharp = is_sharp(delay_ns, ci95);
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
            Span::from_ns(service_ns(delay_ns)),
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
    fn the_binomial_interval_is_clopper_and_pearsons() {
        // scipy.stats.binomtest(7, 200).proportion_ci(method='exact')
        let [lo, hi] = binomial_interval(7, 200);
        assert!((lo - 0.014_18).abs() < 1e-4, "{lo}");
        assert!((hi - 0.070_77).abs() < 1e-4, "{hi}");
        assert!(binomial_interval(0, 50)[0].abs() < 1e-12);
        assert!((binomial_interval(50, 50)[1] - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_rate_outside_its_bounds_fails_its_check() {
        let check = |hits| rate("x", String::new(), (hits, 100), [0.0, 0.05], String::new());
        assert!(check(5).passed);
        assert!(!check(6).passed);
    }

    #[test]
    fn a_sampled_rate_fails_only_where_its_interval_leaves_the_bounds() {
        let check =
            |hits| sampled_rate("x", String::new(), (hits, 100), [0.0, 0.05], String::new());
        assert!(check(6).passed);
        assert!(!check(20).passed);
    }

    #[test]
    fn simulated_runs_of_equal_levels_pass_and_the_true_effects_are_found() {
        let tables = std::env::var("PLUMB_SELFTEST_TABLES").ok().and_then(|n| n.parse().ok());
        let sample = SimulatedSample { tables: tables.unwrap_or(40), presets: &[RunPreset::Quick] };
        let checks = simulated_runs::check(Seed(20_261_124), sample, &mut |_, _| ()).unwrap();
        let failed: Vec<_> = checks.iter().filter(|check| !check.passed).collect();
        assert!(failed.is_empty(), "{failed:#?}");
    }

    #[test]
    fn a_delay_outside_its_interval_and_an_interval_that_proves_nothing_fail() {
        let around = |centre: f64| -> Vec<f64> {
            (0..30).map(|i| centre + f64::from(i % 5) - 2.0).collect()
        };
        assert!(judge(1_000, &around(1_000.5), "x", 0.0).passed);
        assert!(!judge(1_000, &around(1_100.0), "x", 0.0).passed);
        let wild: Vec<f64> = (0..30).map(|i| f64::from(i % 2) * 10_000.0 - 4_000.0).collect();
        assert!(!judge(1_000, &wild, "x", 0.0).passed);
    }
}
