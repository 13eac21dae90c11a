//! Coverage: how often the interval of the median holds the true median of simulated cells.

use std::num::NonZero;

use plumb_analysis::document::selftest::SelftestCheck;
use plumb_base::seed::Seed;
use plumb_base::stats::hierarchy::SampleHierarchy;
use plumb_base::stats::simulation::{DistributionShape, SimulationDesign};
use plumb_base::stats::{ConfidenceInterval, stopping};

use super::SelftestProgress;
use super::check_interrupted;
use super::rate;
use crate::error::ExperimentError;
use crate::preset::{RunLimits, RunPreset};

/// Simulated cells of each distribution.
const TRIALS: u64 = 2_000;

/// A cell of a default run: two blocks, samples enough to matter, and launches that differ by so much that the
/// rule stops at any number of them, where looking after each does the most harm.
const DESIGN: SimulationDesign =
    SimulationDesign { launches: 0, blocks: 2, samples: 100, launch_sd: 0.03 };

/// What a 95 % interval may do.
const BOUNDS: [f64; 2] = [0.93, 0.97];

/// One check for each distribution.
pub(super) fn check(
    seed: Seed,
    progress: &mut SelftestProgress<'_>,
) -> Result<Vec<SelftestCheck>, ExperimentError> {
    let limits = RunPreset::Default.limits();
    let mut checks = Vec::new();
    for (index, shape) in DistributionShape::ALL.into_iter().enumerate() {
        progress(&format!("coverage on {} samples", shape.name()), 0.02 * index as f64);
        check_interrupted()?;
        let seed = seed.derive("selftest coverage").derive(shape.name());
        let covers = |trial: &u64| {
            let seed = seed.derive(&trial.to_string());
            let interval = interval(shape, &limits, seed);
            interval.is_some_and(|i| (i.lo..=i.hi).contains(&shape.median()))
        };
        let hits = count(TRIALS, &covers);
        checks.push(rate(
            &format!("coverage.{}", shape.name()),
            format!("95 % intervals hold the true median of {} samples", shape.name()),
            (hits, TRIALS),
            BOUNDS,
            format!(
                "simulated: {} to {} launches × {} blocks × {} samples until the interval is within {} %, launch \
                 effect {} %",
                limits.launches_min,
                limits.launches_max,
                DESIGN.blocks,
                DESIGN.samples,
                limits.precision * 100.0,
                DESIGN.launch_sd * 100.0
            ),
        ));
    }
    Ok(checks)
}

/// How many of the trials do, tried on all CPUs: each has a seed of its own, whoever tries it.
fn count(trials: u64, does: &(impl Fn(&u64) -> bool + Sync)) -> u64 {
    let hands = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        let share = |hand| move || (hand as u64..trials).step_by(hands).filter(does).count();
        let started: Vec<_> = (1..hands).map(|hand| scope.spawn(share(hand))).collect();
        let own = share(0)();
        let others = started.into_iter().map(|hand| hand.join().expect("trials do not panic"));
        (own + others.sum::<usize>()) as u64
    })
}

/// The interval at which a run stops measuring a cell.
fn interval(
    shape: DistributionShape,
    limits: &RunLimits,
    seed: Seed,
) -> Option<ConfidenceInterval> {
    let [least, most] = [limits.launches_min, limits.launches_max].map(|count| count as usize);
    let samples = SimulationDesign { launches: most, ..DESIGN }.samples(shape, 1.0, seed, None);
    let mut last = None;
    for count in least..=most {
        let cell = SampleHierarchy::new(samples[..count].to_vec());
        let interval = stopping::interval(&cell, seed)?;
        last = Some(interval);
        if stopping::is_precise(&interval, cell.quantile(0.5), limits.precision) {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trial_is_tried_once_however_many_try() {
        let tried = std::sync::Mutex::new(Vec::new());
        let is_third = |trial: &u64| {
            tried.lock().expect("nobody panicked").push(*trial);
            trial.is_multiple_of(3)
        };
        assert_eq!(count(1_000, &is_third), 334);
        let mut tried = tried.into_inner().expect("nobody panicked");
        tried.sort_unstable();
        assert!(tried.into_iter().eq(0..1_000));
    }
}
