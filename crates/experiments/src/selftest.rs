//! The self-test: proof, on this machine and with the shipped code, that intervals cover, that
//! comparisons keep quiet about nothing, and that an injected delay is found as what it is.
//!
//! Coverage is tried on simulated samples, whose truth is known; the rest on real round trips,
//! with delays spun by the peer. Left out: printing the outcome.

use plumb_analysis::document::selftest::{SCHEMA, SelftestCheck, SelftestDocument};
use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_clock::monotonic_ns;
use plumb_harness::mechanisms;
use plumb_harness::stop_signals;
use statrs::distribution::{Beta, ContinuousCDF};

use crate::error::{ErrorKind, ExperimentError};

mod channel;
mod coverage;
mod delay;
mod verdicts;

use channel::SelftestChannel;

/// Whoever watches; called only while nothing is being measured.
pub type SelftestProgress<'a> = dyn FnMut(&str, f64) + 'a;

/// Runs every check; `progress` hears what is being tried and the share that is done.
///
/// # Errors
/// When measuring processes cannot be started, or the user stops it. A check that fails is an
/// entry of the document and no error.
pub fn run(
    seed: Seed,
    code_version: &'static str,
    progress: &mut SelftestProgress<'_>,
) -> Result<SelftestDocument, ExperimentError> {
    stop_signals::count_stop_requests()
        .map_err(|error| ExperimentError::failure("cannot listen for Ctrl-C").because(error))?;
    mechanisms::sweep_leftovers();
    let began = monotonic_ns();
    let mut checks = coverage::check(seed, progress)?;
    checks.extend(delay::check(&mut SelftestChannel::spinning(seed)?, progress)?);
    checks.extend(verdicts::check(&mut SelftestChannel::pipe(seed)?, progress)?);
    let seconds = Span::from_ns(monotonic_ns().saturating_sub(began)).as_secs_f64();
    Ok(SelftestDocument {
        schema: SCHEMA.to_owned(),
        code: code_version.to_owned(),
        seed: seed.0,
        seconds,
        passed: checks.iter().all(|check| check.passed),
        checks,
    })
}

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

/// The exact 95 % interval of a binomial share (Clopper & Pearson 1934).
fn binomial_interval(hits: u64, trials: u64) -> [f64; 2] {
    let (k, n) = (hits as f64, trials as f64);
    let quantile = |a: f64, b: f64, p: f64| Beta::new(a, b).map_or(f64::NAN, |d| d.inverse_cdf(p));
    let lo = if hits == 0 { 0.0 } else { quantile(k, n - k + 1.0, 0.025) };
    let hi = if hits == trials { 1.0 } else { quantile(k + 1.0, n - k, 0.975) };
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
}
