//! Verdicts on this machine: comparisons of nothing with nothing must keep quiet, a real slowdown must be called.
//!
//! Real launches of a pipe, carried out and compared as `plumb compare` and `plumb ab` do. The levels differ in what a
//! launch holds constant, so that each has processes of its own.

use plumb_analysis::compare::{self, MARGIN_DEFAULT};
use plumb_analysis::document::host::SelftestCheck;
use plumb_analysis::summary;
use plumb_base::seed::Seed;
use plumb_base::stats::quantile;
use plumb_base::time::Span;
use plumb_base::units::Unit;
use plumb_harness::environment;
use plumb_harness::spec::{
    BlockTask, ChannelSpec, LaunchSubject, Mechanism, SocketOptions, WakeMode,
};
use plumb_harness::topology::{CpuPlacement, CpuTopology};
use plumb_store::record::{Better, FactorLevel, Factors, RunData, RunStatus};
use plumb_store::sqlite::Store;

use super::channel::SIZE;
use super::simulated_runs::Unwatched;
use super::{SelftestProgress, check_interrupted, sampled_rate};
use crate::definition::{CellAction, CellPlan, LaunchGroup};
use crate::error::ExperimentError;
use crate::plan::RunPlan;
use crate::preset::RunLimits;
use crate::run::block::ProcessLaunches;
use crate::run::{self, CalibratedClock, MachineFacts, RunRequest};
use crate::surroundings::RunSurroundings;

/// Comparisons of each kind.
const TRIALS: u64 = 40;

/// An interleaved comparison: as many launches in every trial, and blocks so short that a neighbour on the core stays
/// for longer than one.
const INTERLEAVED: RunLimits = RunLimits {
    budget: None,
    launches_min: 8,
    launches_max: 8,
    passes: 16,
    block: Span::from_us(500),
    samples_max: 10_000,
    precision: 0.02,
};

/// One of two runs that are compared.
const APART: RunLimits = RunLimits { launches_min: 6, passes: 6, precision: 0.05, ..INTERLEAVED };

/// The slowdown that must be called where the launches of a machine agree well enough.
const SLOWDOWN: f64 = 0.03;

/// More than this is no proof of anything that a user would care for.
const SLOWDOWN_MAX: f64 = 0.1;

/// The smallest slowdown that intervals of such a half width promise to call: beyond the margin by an interval's
/// two halves, one for the interval and one for where the estimate falls.
fn callable_slowdown(half_width: f64) -> f64 {
    (MARGIN_DEFAULT + 2.0 * half_width).max(SLOWDOWN)
}

/// A canary longer than the shortest by so much says that something else used the core.
const DISTURBED: f64 = 1.1;

const FACTOR: &str = "variant";

/// The three checks.
pub(super) fn check(
    seed: Seed,
    progress: &mut SelftestProgress<'_>,
) -> Result<Vec<SelftestCheck>, ExperimentError> {
    let mut pipe = PipeRuns::new(seed)?;
    let paired_same = pipe.trials(progress, 0.0, |pipe| pipe.interleaved(0.0))?;
    let apart_same = pipe.trials(progress, 0.3, PipeRuns::apart)?;
    let half_widths = quantile::sorted(&pipe.half_widths);
    let slowdown = callable_slowdown(quantile::of_sorted(&half_widths, 0.5));
    let slower = pipe.trials(progress, 0.7, |pipe| pipe.interleaved(slowdown))?;
    let usual = pipe.usual_ns;
    let disturbed = pipe.disturbed_percentage();
    let note = |counts: &VerdictCounts, limits: &RunLimits| {
        format!(
            "{} slower, {} faster, {} equivalent, {} inconclusive; {} to {} launches each; \
             {disturbed:.0} % of all blocks had a neighbour on the core (canary)",
            counts.slower,
            counts.faster,
            counts.equivalent,
            counts.inconclusive,
            limits.launches_min,
            limits.launches_max
        )
    };
    let is_false = |counts: &VerdictCounts| (counts.slower + counts.faster, TRIALS);
    let power = sampled_rate(
        "power.slowdown",
        format!(
            "an injected slowdown of {:.1} % ({:.0} ns of {usual:.0} ns at last) is called slower",
            100.0 * slowdown,
            slowdown * usual
        ),
        (slower.slower, TRIALS),
        [0.8, 1.0],
        format!(
            "{}; injected: the margin and the width of an interval here, {} % at least",
            note(&slower, &INTERLEAVED),
            100.0 * SLOWDOWN
        ),
    );
    Ok(vec![
        sampled_rate(
            "aa.interleaved",
            "comparing a pipe with itself, interleaved, gives a verdict of faster or slower"
                .to_owned(),
            is_false(&paired_same),
            [0.0, 0.05],
            note(&paired_same, &INTERLEAVED),
        ),
        sampled_rate(
            "aa.apart",
            "comparing two runs of the same pipe gives a verdict of faster or slower".to_owned(),
            is_false(&apart_same),
            [0.0, 0.05],
            note(&apart_same, &APART),
        ),
        SelftestCheck { passed: power.passed && slowdown <= SLOWDOWN_MAX, ..power },
    ])
}

/// Verdicts by kind.
#[derive(Debug, Default)]
struct VerdictCounts {
    slower: u64,
    faster: u64,
    equivalent: u64,
    inconclusive: u64,
}

/// Runs of a pipe with both processes on one CPU, where nothing but the pipe varies.
struct PipeRuns {
    clock: CalibratedClock,
    /// The first CPU, by its number and by what the placement means.
    groups: [LaunchGroup; 2],
    machine: MachineFacts,
    seed: Seed,
    runs: u64,
    /// What a round trip takes lately, in nanoseconds: with a neighbour on the core half as long again, and so does
    /// whatever makes a program slower.
    usual_ns: f64,
    canaries: Vec<f64>,
    /// Half the width of each interleaved comparison's interval, as a share.
    half_widths: Vec<f64>,
}

impl PipeRuns {
    fn new(seed: Seed) -> Result<Self, ExperimentError> {
        let pair = CpuTopology::machine().pair(CpuPlacement::SameCpu).map_err(|error| {
            ExperimentError::failure("the self-test needs a CPU to bind to").because(error)
        })?;
        let options = SocketOptions::default();
        let channel = ChannelSpec { mechanism: Mechanism::Pipe, wake: WakeMode::Block, options };
        let group = LaunchGroup::new(LaunchSubject::Channel(channel), CpuPlacement::SameCpu);
        let groups = [group.clone(), LaunchGroup { cpu: pair.local, ..group }];
        let clock = CalibratedClock::calibrate(&[cell(&groups[0], "a", 0)])?;
        let machine = MachineFacts { provenance: environment::capture(), ..Default::default() };
        let mut pipe = Self {
            clock,
            groups,
            machine,
            seed: seed.derive("pipe runs"),
            runs: 0,
            usual_ns: 0.0,
            canaries: Vec::new(),
            half_widths: Vec::new(),
        };
        pipe.interleaved(0.0)?;
        Ok(pipe)
    }

    fn trials(
        &mut self,
        progress: &mut SelftestProgress<'_>,
        from: f64,
        mut trial: impl FnMut(&mut Self) -> Result<String, ExperimentError>,
    ) -> Result<VerdictCounts, ExperimentError> {
        let mut counts = VerdictCounts::default();
        for number in 0..TRIALS {
            progress("comparisons of real runs", from + 0.3 * number as f64 / TRIALS as f64);
            match trial(self)?.as_str() {
                "slower" => counts.slower += 1,
                "faster" => counts.faster += 1,
                "equivalent" => counts.equivalent += 1,
                _ => counts.inconclusive += 1,
            }
        }
        Ok(counts)
    }

    /// The verdict of one interleaved comparison; the second level is slower by this share of a round trip.
    fn interleaved(&mut self, slowdown: f64) -> Result<String, ExperimentError> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a round trip is a few hundred nanoseconds"
        )]
        let delay_ns = (slowdown * self.usual_ns).round() as u64;
        let [first, second] = &self.groups;
        let cells = vec![cell(first, "a", 0), cell(second, "b", delay_ns)];
        let data = self.run(cells, INTERLEAVED, Some(FACTOR))?;
        let measured = summary::measured_cells(&data);
        if let Some(undelayed) = measured.first() {
            self.usual_ns = 2.0 * undelayed.median();
        }
        let (a, b) = (FactorLevel::from("a"), FactorLevel::from("b"));
        let document = compare::compare_levels(&data, FACTOR, &a, &b, MARGIN_DEFAULT);
        let row = document.rows.first();
        // A row without an interval is one that would never be called.
        let width = row.and_then(|row| row.ci95).map_or(f64::INFINITY, |[lo, hi]| hi - lo);
        self.half_widths.push(width / 2.0);
        Ok(row.map_or_else(String::new, |row| row.verdict.clone()))
    }

    /// The verdict of comparing two runs, one after the other.
    fn apart(&mut self) -> Result<String, ExperimentError> {
        let mut run = || self.run(vec![cell(&self.groups[0], "a", 0)], APART, None);
        let (a, b) = (run()?, run()?);
        let document = compare::compare_runs(&a, &b, MARGIN_DEFAULT);
        Ok(document.rows.first().map_or_else(String::new, |row| row.verdict.clone()))
    }

    fn run(
        &mut self,
        cells: Vec<CellPlan>,
        limits: RunLimits,
        interleave: Option<&str>,
    ) -> Result<RunData, ExperimentError> {
        self.runs += 1;
        let plan = RunPlan {
            title: "selftest".to_owned(),
            seed: Some(self.seed.derive(&self.runs.to_string()).0),
            limits,
            interleave: interleave.map(str::to_owned),
            experiments: Vec::new(),
        };
        let mut store = Store::in_memory()?;
        let request = RunRequest {
            title: plan.title.clone(),
            plan,
            cells,
            store: &mut store,
            resume: None,
            code_version: "",
            surroundings: RunSurroundings::NONE,
        };
        let mut source = ProcessLaunches::new(&self.clock);
        let outcome = run::carry_out(request, &self.machine, &mut source, &mut Unwatched, None)?;
        check_interrupted()?;
        let data = store.load(&outcome.run_id)?;
        if outcome.status != RunStatus::Complete || data.blocks.is_empty() {
            return Err(ExperimentError::failure("the self-test could not measure a pipe")
                .because(outcome.stopped_by)
                .fix("see what this host can measure with: plumb doctor"));
        }
        self.canaries.extend(data.blocks.iter().map(|block| block.effort.canary_ns));
        Ok(data)
    }

    /// The percentage of blocks whose canary was disturbed.
    fn disturbed_percentage(&self) -> f64 {
        let least = self.canaries.iter().copied().fold(f64::INFINITY, f64::min);
        let disturbed = self.canaries.iter().filter(|canary| **canary > DISTURBED * least);
        100.0 * disturbed.count() as f64 / self.canaries.len().max(1) as f64
    }
}

fn cell(group: &LaunchGroup, variant: &str, delay_ns: u64) -> CellPlan {
    CellPlan {
        experiment: "selftest".to_owned(),
        factors: Factors::default().with(FACTOR, variant),
        response: "latency".to_owned(),
        unit: Unit::Nanoseconds,
        better: Better::Lower,
        action: CellAction::Measure {
            group: group.clone(),
            task: BlockTask::Latency { size: SIZE },
            injected: Span::from_ns(delay_ns),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdown_to_be_called_grows_with_the_intervals() {
        assert!((callable_slowdown(0.001) - 0.03).abs() < 1e-12);
        assert!((callable_slowdown(0.02) - 0.06).abs() < 1e-12);
        assert!(callable_slowdown(f64::INFINITY) > SLOWDOWN_MAX, "no interval, no proof");
    }
}
