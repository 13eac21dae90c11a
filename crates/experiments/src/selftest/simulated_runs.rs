//! Simulated runs: execution, stopping, store, summary, comparison and correction as shipped, on a host whose truth is
//! known.

use std::num::NonZero;

use plumb_analysis::compare::{self, MARGIN_DEFAULT};
use plumb_analysis::document::compare::CompareDocument;
use plumb_analysis::document::host::SelftestCheck;
use plumb_analysis::summary;
use plumb_base::seed::Seed;
use plumb_base::stats::simulation::{BurstySamples, LaunchEffect};
use plumb_base::time::Span;
use plumb_harness::topology::CpuTopology;
use plumb_store::record::RunData;
use plumb_store::sqlite::Store;

use super::simulated_host::{HostNoise, LEVELS, MEDIAN_NS, SimulatedHost, SimulatedTruth};
use super::{SelftestProgress, check_interrupted, sampled_rate};
use crate::error::ExperimentError;
use crate::plan::{PlannedExperiment, RunPlan, expand};
use crate::preset::{RunLimits, RunPreset};
use crate::run::{self, MachineFacts, RunObserver, RunRequest};
use crate::surroundings::{RunSurroundings, Surroundings};

/// Cells of a table.
const CELLS: u64 = 20;

/// What launches may differ by, with the name of its checks. The last one is correlated from launch to launch, by a
/// drift of the host.
const EFFECTS: [(&str, LaunchEffect); 6] = [
    ("normal", LaunchEffect::Normal(0.02)),
    // So far apart that the margin decides nothing, and the correction for all cells everything.
    ("wide", LaunchEffect::Normal(0.1)),
    ("skewed", LaunchEffect::Skewed(0.03)),
    ("mixed-10", LaunchEffect::Mixed(0.1)),
    ("mixed-30", LaunchEffect::Mixed(0.3)),
    ("correlated", LaunchEffect::Normal(DRIFT_SD)),
];

/// Standard deviation of the drift of a host whose launches are correlated, and of what its launches differ by
/// besides.
const DRIFT_SD: f64 = 0.03;

/// Correlation of a launch with the next one.
const DRIFT_CORRELATION: f64 = 0.7;

/// How many simulated tables, and of which presets.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedSample {
    /// Tables of each kind.
    pub(super) tables: u64,
    /// The presets.
    pub(super) presets: &'static [RunPreset],
}

/// Every check on simulated runs.
pub(super) fn check(
    seed: Seed,
    sample: SimulatedSample,
    progress: &mut SelftestProgress<'_>,
) -> Result<Vec<SelftestCheck>, ExperimentError> {
    let mut checks = Vec::new();
    let topology = CpuTopology::machine();
    let stages = sample.presets.len() * (EFFECTS.len() + 1);
    let mut stage = 0_usize;
    let mut begin = |preset: RunPreset, what: &str| {
        progress(
            &format!("simulated runs, preset {}, {what}", preset.name()),
            stage as f64 / stages as f64,
        );
        stage += 1;
        check_interrupted()
    };
    for &preset in sample.presets {
        let simulation = Simulation { preset, topology: &topology, tables: sample.tables };
        for (name, effect) in EFFECTS {
            begin(preset, name)?;
            let seed = seed.derive(preset.name()).derive(name);
            checks.extend(simulation.compared_with_itself(name, effect, seed)?);
        }
        begin(preset, "effects")?;
        checks.extend(simulation.effects_found(seed.derive(preset.name()))?);
    }
    Ok(checks)
}

/// Runs of one preset.
struct Simulation<'a> {
    preset: RunPreset,
    topology: &'a CpuTopology,
    tables: u64,
}

/// What tables of equal cells came to.
#[derive(Clone, Copy, Debug, Default)]
struct TableCounts {
    tables: u64,
    cells: u64,
    /// Cells without an interval of their ratio.
    refused: u64,
    /// Cells whose interval excludes 1.
    excluded: u64,
    /// Tables in which some cell was called faster or slower.
    false_tables: u64,
    /// Cells whose own interval holds the truth, of so many that have one.
    covered: [u64; 2],
}

impl TableCounts {
    fn of(document: &CompareDocument) -> Self {
        let excludes = |ends: [f64; 2]| !(ends[0]..=ends[1]).contains(&1.0);
        let tally = document.tally;
        Self {
            tables: 1,
            cells: document.rows.len() as u64,
            refused: document.rows.iter().filter(|row| row.ci95.is_none()).count() as u64,
            excluded: document.rows.iter().filter(|row| row.ci95.is_some_and(excludes)).count()
                as u64,
            false_tables: u64::from(tally.faster + tally.slower > 0),
            covered: [0; 2],
        }
    }

    fn sum(self, other: Self) -> Self {
        Self {
            tables: self.tables + other.tables,
            cells: self.cells + other.cells,
            refused: self.refused + other.refused,
            excluded: self.excluded + other.excluded,
            false_tables: self.false_tables + other.false_tables,
            covered: [0, 1].map(|at| self.covered[at] + other.covered[at]),
        }
    }
}

impl Simulation<'_> {
    /// Tables of equal cells, by `plumb ab` and by `plumb compare`.
    fn compared_with_itself(
        &self,
        name: &str,
        effect: LaunchEffect,
        seed: Seed,
    ) -> Result<Vec<SelftestCheck>, ExperimentError> {
        let is_correlated = name == "correlated";
        let mut truth = SimulatedTruth::equal(effect);
        if is_correlated {
            truth.effect = LaunchEffect::Normal(DRIFT_SD / 10.0);
        }
        let ab = self.tried(|trial| {
            let noise = Self::drift(&self.preset.limits().interleaved(), 2, is_correlated);
            self.ab(SimulatedTruth { noise, ..truth }, CELLS, seed.derive(&format!("ab {trial}")))
                .map(|document| TableCounts::of(&document))
        })?;
        let mut checks = self.table_checks("ab", name, sum(&ab));
        // Runs made apart differ by what lasts: `plumb compare` says how seldom it would see that.
        if !is_correlated {
            let apart =
                self.tried(|trial| self.apart(truth, seed.derive(&format!("apart {trial}"))))?;
            let apart = sum(&apart);
            checks.extend(self.table_checks("compare", name, apart));
            let least = if effect.has_modes() { [0.93, 1.0] } else { [0.93, 0.97] };
            checks.push(sampled_rate(
                &self.id("coverage", name),
                "95 % intervals hold the median launch".to_owned(),
                (apart.covered[0], apart.covered[1]),
                least,
                self.note(name),
            ));
        }
        Ok(checks)
    }

    fn table_checks(&self, command: &str, name: &str, found: TableCounts) -> Vec<SelftestCheck> {
        let check = |what: &str, claim: &str, counts, bounds| {
            let id = self.id(&format!("{command}.{what}"), name);
            sampled_rate(&id, format!("plumb {command}: {claim}"), counts, bounds, self.note(name))
        };
        // Launches in modes leave the middle of the ratios empty: intervals reach over it.
        let least = if name.starts_with("mixed") || name == "correlated" { 0.0 } else { 0.03 };
        vec![
            check(
                "excludes-1",
                "95 % intervals of the ratio of equal cells exclude 1",
                (found.excluded, found.cells - found.refused),
                [least, 0.07],
            ),
            check(
                "false-verdict",
                "a table of 20 equal cells has a verdict of faster or slower",
                (found.false_tables, found.tables),
                [0.0, 0.05],
            ),
            check(
                "refused",
                "an equal cell is refused an interval",
                (found.refused, found.cells),
                [0.0, 0.05],
            ),
        ]
    }

    /// Effects that must be called, and some that must not.
    fn effects_found(&self, seed: Seed) -> Result<Vec<SelftestCheck>, ExperimentError> {
        let steady = SimulatedTruth::equal(LaunchEffect::Normal(0.002));
        let cases = [
            (
                "ab.slower.3-percent",
                "+3 % in a disturbed hour is called slower",
                SimulatedTruth { second: 1.03, noise: HostNoise::Spells, ..steady },
                "slower",
                [0.9, 1.0],
            ),
            (
                "ab.slower.1.8-percent",
                "+1.8 %, within the margin, is called slower",
                SimulatedTruth { second: 1.018, ..steady },
                "slower",
                [0.0, 0.05],
            ),
            (
                "ab.equivalent.2-percent",
                "+2 %, the margin itself, is called equivalent",
                SimulatedTruth { second: 1.02, ..steady },
                "equivalent",
                [0.0, 0.05],
            ),
            (
                "ab.equivalent.slow-blocks",
                "+50 % in a tenth of the blocks is called equivalent",
                SimulatedTruth { second_slow: 0.1, ..steady },
                "equivalent",
                [0.0, 0.05],
            ),
        ];
        let mut checks = Vec::new();
        for (id, claim, truth, verdict, bounds) in cases {
            let seed = seed.derive(id);
            let verdicts = self.tried(|trial| {
                let document = self.ab(truth, 1, seed.derive(&trial.to_string()))?;
                Ok(document.rows.iter().any(|row| row.verdict == verdict))
            })?;
            let hits = verdicts.iter().filter(|found| **found).count() as u64;
            let id = self.id(id, "");
            let note = self.note("normal, 0.2 %");
            checks.push(sampled_rate(&id, claim.to_owned(), (hits, self.tables), bounds, note));
        }
        checks.push(self.tails_covered(seed.derive("tails"))?);
        Ok(checks)
    }

    /// How often the printed interval of p99 holds the true one, where slow samples come in bursts.
    fn tails_covered(&self, seed: Seed) -> Result<SelftestCheck, ExperimentError> {
        let truth = SimulatedTruth {
            is_bursty: true,
            ..SimulatedTruth::equal(LaunchEffect::Normal(0.002))
        };
        let p99 = MEDIAN_NS * BurstySamples::TYPICAL.quantile(0.99);
        let told = self.tried(|trial| {
            let data = self.run(truth, &LEVELS[..1], 1, seed.derive(&trial.to_string()))?;
            let cells = summary::measured_cells(&data);
            let found = cells.first().and_then(|cell| cell.result().summary.p99_ci95);
            Ok(found.map(|[lo, hi]| (lo..=hi).contains(&p99)))
        })?;
        let trials = told.iter().flatten().count() as u64;
        let hits = told.iter().flatten().filter(|holds| **holds).count() as u64;
        Ok(sampled_rate(
            &self.id("p99", "bursts"),
            "95 % intervals of p99 hold it where slow samples come in bursts".to_owned(),
            (hits, trials),
            [0.93, 0.97],
            format!("{}; {} of {} cells have one", self.note("normal, 0.2 %"), trials, self.tables),
        ))
    }

    fn id(&self, what: &str, name: &str) -> String {
        let id = format!("simulated.{}.{what}.{name}", self.preset.name());
        id.trim_end_matches('.').to_owned()
    }

    fn note(&self, name: &str) -> String {
        format!("preset {}; launches differ: {name}", self.preset.name())
    }

    /// The noise of a host whose rounds, of so many levels, are correlated; quiet otherwise.
    fn drift(limits: &RunLimits, levels: u64, is_correlated: bool) -> HostNoise {
        let round = limits.block * (u64::from(limits.passes) * CELLS * levels);
        let time = Span::from_secs_f64(round.as_secs_f64() / -DRIFT_CORRELATION.ln());
        if is_correlated { HostNoise::Drift(DRIFT_SD, time) } else { HostNoise::Quiet }
    }

    /// One `plumb ab` of so many cells.
    fn ab(
        &self,
        truth: SimulatedTruth,
        cells: u64,
        seed: Seed,
    ) -> Result<CompareDocument, ExperimentError> {
        let data = self.run(truth, &LEVELS, cells, seed)?;
        let [a, b] = LEVELS.map(|level| level.name().into());
        Ok(compare::compare_levels(&data, FACTOR, &a, &b, MARGIN_DEFAULT))
    }

    /// Two runs of the same cells on one host, by `plumb compare`.
    fn apart(&self, truth: SimulatedTruth, seed: Seed) -> Result<TableCounts, ExperimentError> {
        let runs = ["first", "second"]
            .map(|which| self.run(truth, &LEVELS[..1], CELLS, seed.derive(which)));
        let [a, b] = runs;
        let (a, b) = (a?, b?);
        let mut counts = TableCounts::of(&compare::compare_runs(&a, &b, MARGIN_DEFAULT));
        let median = MEDIAN_NS * truth.effect.median();
        for cell in summary::measured_cells(&a) {
            let interval = cell.interval();
            counts.covered[1] += u64::from(interval.is_some());
            counts.covered[0] += u64::from(interval.is_some_and(|found| found.contains(median)));
        }
        Ok(counts)
    }

    /// One run of these levels, interleaved where there are two.
    fn run(
        &self,
        truth: SimulatedTruth,
        levels: &[plumb_harness::spec::Mechanism],
        cells: u64,
        seed: Seed,
    ) -> Result<RunData, ExperimentError> {
        let limits = self.preset.limits();
        let is_interleaved = levels.len() > 1;
        let plan = RunPlan {
            title: "selftest".to_owned(),
            seed: Some(seed.0),
            limits: if is_interleaved { limits.interleaved() } else { limits },
            interleave: is_interleaved.then(|| FACTOR.to_owned()),
            experiments: vec![
                PlannedExperiment::bare("latency.local")
                    .with(FACTOR, levels.iter().map(|level| level.name()))
                    .with("placement", ["same-cpu"])
                    .with("wake", ["block"])
                    .with("size", 1..=cells),
            ],
        };
        let cells = expand(&plan, self.topology, &Surroundings::NONE)?;
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
        let machine = MachineFacts::default();
        let mut host = SimulatedHost::new(truth, seed);
        let outcome = run::carry_out(request, &machine, &mut host, &mut Unwatched, None)?;
        Ok(store.load(&outcome.run_id)?)
    }

    /// The outcomes of all tables, tried on all CPUs.
    fn tried<T: Send>(
        &self,
        table: impl Fn(u64) -> Result<T, ExperimentError> + Sync,
    ) -> Result<Vec<T>, ExperimentError> {
        let hands = std::thread::available_parallelism().map_or(1, NonZero::get) as u64;
        let share = |hand: u64| -> Result<Vec<T>, ExperimentError> {
            let mine = (hand..self.tables).step_by(usize::try_from(hands).unwrap_or(1));
            mine.map(|trial| check_interrupted().and_then(|()| table(trial))).collect()
        };
        std::thread::scope(|scope| {
            let share = &share;
            let started: Vec<_> = (1..hands).map(|hand| scope.spawn(move || share(hand))).collect();
            let mut all = share(0)?;
            for hand in started {
                all.extend(hand.join().expect("trials do not panic")?);
            }
            Ok(all)
        })
    }
}

/// The factor whose levels are compared.
const FACTOR: &str = "mechanism";

fn sum(counts: &[TableCounts]) -> TableCounts {
    counts.iter().copied().fold(TableCounts::default(), TableCounts::sum)
}

/// Nobody watches.
pub(super) struct Unwatched;

impl RunObserver for Unwatched {
    fn started(&mut self, _id: &str, _estimate: Span, _blocks_planned: u64) {}
    fn block(&mut self, _: u64, _: u64, _: &crate::definition::CellPlan, _left: Span) {}
    fn note(&mut self, _text: &str) {}
}
