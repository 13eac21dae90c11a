//! Comparisons: every cell of two runs, of two sets of runs, or of two levels of a factor within one, with a verdict.
//!
//! Rule 16: the effect first, then one of four verdicts, and how much more it would take.

use plumb_base::stats::rank::holm;
use plumb_base::stats::{drift, means, simulation};
use plumb_base::units::significant;
use plumb_store::record::{Cell, CellStatus, FactorLevel, Factors, RunData};

use crate::cost_ratio;
use crate::document::compare::{
    CellName, CompareDocument, ComparedCell, ComparedSide, ComparisonCounts, SCHEMA,
    SettingDifference,
};
use crate::summary;

mod markdown;
mod sides;
mod verdict;

pub use markdown::markdown;
pub use sides::setting_differences;

use sides::SideCells;
use verdict::{CellComparison, CellPair, ComparisonVerdict, VerdictThresholds};

/// Costs within this share of each other are practically equal, unless the user says otherwise.
pub const MARGIN_DEFAULT: f64 = 0.02;

/// Cells that were lost and are named; of more, the number is told.
const LOST_NAMED: usize = 5;

/// More launches a side than any table takes: they show a probability below 1e-300.
const MANY: usize = 1_000;

/// What is replicated: what an interval is over, and what a verdict holds for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replicate {
    /// Launches of one run, those of a round together.
    PairedLaunch,
    /// Launches of two runs: the verdict is about these two runs.
    UnpairedLaunch,
    /// Runs, several a side.
    Run,
}

impl Replicate {
    const fn pairing(self) -> &'static str {
        match self {
            Self::PairedLaunch => "paired",
            Self::UnpairedLaunch | Self::Run => "unpaired",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::PairedLaunch | Self::UnpairedLaunch => "launch",
            Self::Run => "run",
        }
    }

    const fn plural(self) -> &'static str {
        match self {
            Self::PairedLaunch | Self::UnpairedLaunch => "launches",
            Self::Run => "runs",
        }
    }

    /// How many a side it takes for an interval.
    const fn needed(self) -> usize {
        match self {
            Self::PairedLaunch | Self::UnpairedLaunch => summary::LAUNCHES_NEEDED,
            Self::Run => cost_ratio::RUNS_NEEDED,
        }
    }

    /// The least probability of equal costs that so many a side can show.
    fn least_p(self, count: usize) -> f64 {
        let orders = |step: usize| match self {
            Self::PairedLaunch => 2.0,
            Self::UnpairedLaunch | Self::Run => (count + step) as f64 / step as f64,
        };
        2.0 / (1..=count).map(orders).product::<f64>()
    }

    /// How many a side it takes, up to [`MANY`], for one of so many cells to be called faster or slower.
    fn needed_for(self, cells: u64) -> u64 {
        let is_enough =
            |count: &usize| self.least_p(*count) * cells as f64 <= verdict::SIGNIFICANCE;
        (self.needed()..=MANY).find(is_enough).map_or(u64::MAX, |count| count as u64)
    }
}

/// Launches of each level that `plumb ab` needs for one of so many cells to be called faster or slower.
pub fn launches_for_verdicts(cells: u64) -> u64 {
    Replicate::PairedLaunch.needed_for(cells)
}

/// Launches of each of two runs that `plumb compare` needs for one of so many cells to be called faster or slower.
pub fn launches_for_comparison(cells: u64) -> u64 {
    Replicate::UnpairedLaunch.needed_for(cells)
}

/// Compares two runs cell by cell, B against A, as unpaired launches.
///
/// `margin` is a share such as [`MARGIN_DEFAULT`].
pub fn compare_runs(a: &RunData, b: &RunData, margin: f64) -> CompareDocument {
    compare_run_sets(&[a], &[b], margin)
}

/// Compares two sets of runs cell by cell, B against A: as soon as a side has several, the runs are what is replicated,
/// and a verdict holds for further runs as well.
pub fn compare_run_sets(a: &[&RunData], b: &[&RunData], margin: f64) -> CompareDocument {
    let is_one_each = a.len() <= 1 && b.len() <= 1;
    let replicate = if is_one_each { Replicate::UnpairedLaunch } else { Replicate::Run };
    let cells_a: Vec<_> = a.iter().map(|run| summary::measured_cells(run)).collect();
    let cells_b: Vec<_> = b.iter().map(|run| summary::measured_cells(run)).collect();
    let runs_a: Vec<_> = a.iter().map(|data| &data.run).collect();
    let runs_b: Vec<_> = b.iter().map(|data| &data.run).collect();
    let differences = setting_differences(&runs_a, &runs_b);
    let mut comparison = ComparisonBuilder::new(margin, replicate, sides::warnings(a, b));
    // A deliberate change is not to be explained away by its effect on the canary.
    comparison.same_machine = differences.iter().all(|difference| difference.key == "code");
    comparison.compare(&SideCells::of_runs(a, &cells_a), &SideCells::of_runs(b, &cells_b));
    let head = |runs: &[_]| sides::head(runs, sides::label(runs));
    comparison.document(head(&runs_a), head(&runs_b), differences)
}

/// Compares two levels of one factor within a run, paired by the rounds that interleaved them.
pub fn compare_levels(
    data: &RunData,
    factor: &str,
    level_a: &FactorLevel,
    level_b: &FactorLevel,
    margin: f64,
) -> CompareDocument {
    let measured = summary::measured_cells(data);
    let rest = |cell: &Cell| {
        let factors = factors_without(&cell.factors, factor);
        format!("{} {factors} [{}]", cell.experiment, cell.response)
    };
    let group = |level: &FactorLevel| {
        let has = |cell: &Cell| cell.factors.level(factor) == Some(level);
        let chosen = measured.iter().filter(|measured| has(measured.cell));
        let planned = data.cells.iter().filter(|cell| has(cell));
        SideCells {
            cells: planned
                .map(|cell| {
                    let bare =
                        Cell { factors: factors_without(&cell.factors, factor), ..cell.clone() };
                    (rest(cell), bare)
                })
                .collect(),
            measured: chosen.map(|measured| (rest(measured.cell), vec![measured])).collect(),
        }
    };
    let side_of = |level: &FactorLevel| sides::head(&[&data.run], format!("{factor}={level}"));
    let warnings = sides::trust_warning(data).into_iter().collect();
    let mut comparison = ComparisonBuilder::new(margin, Replicate::PairedLaunch, warnings);
    comparison.compare(&group(level_a), &group(level_b));
    comparison.document(side_of(level_a), side_of(level_b), Vec::new())
}

/// What two cells that differ in one factor have in common.
pub fn factors_without(factors: &Factors, factor: &str) -> Factors {
    let others = factors.clone().without(factor);
    // TCP has a congestion control and a pipe has none, and still they are to be compared.
    if factor == "mechanism" { others.without("congestion") } else { others }
}

/// A comparison being made.
struct ComparisonBuilder {
    margin: f64,
    replicate: Replicate,
    /// Whether both sides were measured apart, but on one machine with the same settings.
    same_machine: bool,
    warnings: Vec<String>,
    rows: Vec<ComparedCell>,
    tally: ComparisonCounts,
    /// Whether a cell that is not decided may be slower.
    may_be_slower: bool,
    /// Cells that A measured and B could not, in words.
    lost: Vec<String>,
    only_in_a: Vec<CellName>,
    only_in_b: Vec<CellName>,
}

impl ComparisonBuilder {
    fn new(margin: f64, replicate: Replicate, warnings: Vec<String>) -> Self {
        Self {
            margin,
            replicate,
            same_machine: false,
            warnings,
            rows: Vec::new(),
            tally: ComparisonCounts::default(),
            may_be_slower: false,
            lost: Vec::new(),
            only_in_a: Vec::new(),
            only_in_b: Vec::new(),
        }
    }

    fn compare(&mut self, a: &SideCells<'_>, b: &SideCells<'_>) {
        let mut matches = Vec::new();
        let mut imported = Vec::new();
        for (key, cell) in &a.cells {
            if a.measured.contains_key(key) {
                self.lost.extend(self.lost_cell(b, key));
            }
            match (a.measured.get(key), b.measured.get(key)) {
                (Some(left), Some(right)) => {
                    matches.push((cell, CellPair { a: left, b: right }));
                }
                (Some(_), None) => self.only_in_a.push(b.missing(cell, key)),
                (None, _) => imported.extend(b.planned(key).map(|other| (cell, other))),
            }
        }
        for (key, cell) in &b.cells {
            if b.measured.contains_key(key) && !a.measured.contains_key(key) {
                self.only_in_b.push(a.missing(cell, key));
            }
        }
        let trials: Vec<CellComparison> =
            matches.iter().map(|(_, pair)| CellComparison::new(*pair, self.replicate)).collect();
        self.warn_of_power(&matches, &trials);
        // Holm's step-down over every cell that can be judged: the chance of one false
        // "faster" or "slower" in the whole table stays at 5 %.
        let judged: Vec<f64> = trials.iter().filter_map(|trial| trial.p(self.margin)).collect();
        let mut adjusted = holm(&judged).into_iter();
        for ((cell, pair), trial) in matches.into_iter().zip(trials) {
            let p = trial.p(self.margin).and_then(|_| adjusted.next());
            let bar = VerdictThresholds {
                p_adjusted: p,
                margin: self.margin,
                slowdown: if self.same_machine { pair.slowdown() } else { None },
                has_drift: self.replicate == Replicate::UnpairedLaunch && pair.has_drift(),
            };
            let (verdict, row) = trial.row(cell, pair, self.replicate, bar);
            self.push(verdict, row);
        }
        for (cell, other) in imported {
            if let Some(row) = verdict::imported_row(cell, other) {
                self.push(ComparisonVerdict::Inconclusive { may_be_slower: true }, row);
            }
        }
    }

    /// Says what so few launches, pairs or runs cannot show of so many cells.
    fn warn_of_power(&mut self, matches: &[(&Cell, CellPair<'_>)], trials: &[CellComparison]) {
        let replicate = self.replicate;
        let drift = || {
            let launches = matches.iter().map(|(_, pair)| pair.launches()).min()?;
            let found = significant(100.0 * drift::power(launches), 2);
            Some(format!(
                "; a drift within one run (a correlation of {} from launch to launch) is found in {found}% of cells of \
                 {launches} launches",
                simulation::CORRELATION
            ))
        };
        match replicate {
            Replicate::PairedLaunch => {}
            Replicate::UnpairedLaunch => self.warnings.insert(
                0,
                format!(
                    "unpaired: the runs were measured apart, so drift between them counts as a difference{}",
                    drift().unwrap_or_default()
                ),
            ),
            Replicate::Run => self.warnings.insert(
                0,
                "unpaired: the runs were measured apart; what changed between the two sets counts as a difference"
                    .to_owned(),
            ),
        }
        let ratios = || trials.iter().filter_map(CellComparison::least_p);
        let judged = trials.iter().filter(|trial| trial.p(self.margin).is_some()).count();
        let least = ratios().fold(1.0, f64::min);
        if ratios().count() > 0 && least * judged as f64 > verdict::SIGNIFICANCE {
            self.warnings.push(format!(
                "too few {} for any cell to be called faster or slower: of {judged} cells one takes {} a side",
                replicate.plural(),
                replicate.needed_for(judged as u64)
            ));
        }
    }

    fn push(&mut self, verdict: ComparisonVerdict, row: ComparedCell) {
        match verdict {
            ComparisonVerdict::Faster => self.tally.faster += 1,
            ComparisonVerdict::Slower => self.tally.slower += 1,
            ComparisonVerdict::Equivalent => self.tally.equivalent += 1,
            ComparisonVerdict::Inconclusive { may_be_slower } => {
                self.tally.inconclusive += 1;
                self.may_be_slower |= may_be_slower;
            }
        }
        self.rows.push(row);
    }

    /// Why B has no numbers, or not all, of a cell that it planned. That a level of a factor does not exist here
    /// is known about it; that something does not exist any more is a loss.
    fn lost_cell(&self, b: &SideCells<'_>, key: &str) -> Option<String> {
        let cell = b.planned(key)?;
        let is_lost = match &cell.status {
            CellStatus::Failed(_) => true,
            CellStatus::Unavailable(_) => self.replicate != Replicate::PairedLaunch,
            CellStatus::Open | CellStatus::Done(_) => !b.measured.contains_key(key),
        };
        let name = || format!("{} {} [{}]", cell.experiment, cell.factors, cell.response);
        is_lost.then(|| format!("{}: {}", name(), summary::missing_reason(&cell.status).1))
    }

    fn document(
        self,
        a: ComparedSide,
        b: ComparedSide,
        differences: Vec<SettingDifference>,
    ) -> CompareDocument {
        let (verdict, exit_code) = if self.tally.slower > 0 {
            ("slower", 1)
        } else if self.rows.is_empty() || !self.lost.is_empty() || self.may_be_slower {
            ("inconclusive", 3)
        } else {
            ("not slower", 0)
        };
        let mut warnings = self.warnings;
        if self.rows.is_empty() {
            warnings.push("nothing compared: the sides have no measured cell in common".to_owned());
        }
        let lost = self.lost.iter().take(LOST_NAMED);
        warnings.extend(lost.map(|cell| format!("A measured it, and B could not: {cell}")));
        if let Some(more @ 1..) = self.lost.len().checked_sub(LOST_NAMED) {
            warnings.push(format!("and {more} more that A measured and B could not"));
        }
        let ratios: Vec<f64> = self.rows.iter().filter_map(|row| row.ratio).collect();
        CompareDocument {
            schema: SCHEMA.to_owned(),
            a,
            b,
            pairing: self.replicate.pairing().to_owned(),
            replicate: self.replicate.name().to_owned(),
            margin: self.margin,
            method: verdict::method(self.margin, self.replicate),
            rows: self.rows,
            only_in_a: self.only_in_a,
            only_in_b: self.only_in_b,
            tally: self.tally,
            geometric_mean: means::geometric(&ratios).map(summary::rounded),
            verdict: verdict.to_owned(),
            exit_code,
            differences,
            warnings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::OUTER_LINK;
    use crate::fixture::{SyntheticDesign, SyntheticRun, local};

    /// Four mechanisms with these cost factors.
    fn run(seed: u64, factors: [f64; 4], design: SyntheticDesign) -> RunData {
        let mut synthetic = SyntheticRun::new(seed);
        synthetic.design = design;
        for (mechanism, factor) in ["pipe", "tcp4", "udp4", "unix-stream"].into_iter().zip(factors)
        {
            let factors = local(mechanism, "same-cpu", 64);
            synthetic.measure("latency.local", "latency", factors, 1000.0 * factor);
        }
        synthetic.data
    }

    fn verdicts(document: &CompareDocument) -> Vec<&str> {
        document.rows.iter().map(|row| row.verdict.as_str()).collect()
    }

    #[test]
    fn the_four_verdicts_are_told_apart() {
        let design = SyntheticDesign::default();
        let a = run(1, [1.0; 4], design);
        let b = run(2, [1.2, 0.8, 1.0, 1.0], design);
        let document = compare_runs(&a, &b, MARGIN_DEFAULT);
        assert_eq!(verdicts(&document), ["slower", "faster", "equivalent", "equivalent"]);
        assert_eq!((document.verdict.as_str(), document.exit_code), ("slower", 1));
        let document = compare_runs(&a, &run(2, [0.5; 4], design), MARGIN_DEFAULT);
        assert_eq!(verdicts(&document), ["faster"; 4]);
        assert_eq!((document.verdict.as_str(), document.exit_code), ("not slower", 0));
        assert!((document.geometric_mean.unwrap() - 0.5).abs() < 0.01);
        let noisy = SyntheticDesign { launch_sd: 0.1, rounds: 5, ..design };
        let document =
            compare_runs(&run(3, [1.0; 4], noisy), &run(4, [1.0; 4], noisy), MARGIN_DEFAULT);
        assert!(verdicts(&document).iter().all(|verdict| *verdict == "inconclusive"));
        assert_eq!(document.exit_code, 3);
        assert!(document.rows.iter().any(|row| row.more_launches.is_some()));
    }

    #[test]
    fn a_difference_that_the_canary_shares_is_the_machines() {
        let a = run(1, [1.0; 4], SyntheticDesign::default());
        let mut b = run(2, [1.2, 1.2, 1.02, 1.0], SyntheticDesign::default());
        for block in &mut b.blocks {
            block.effort.canary_ns *= if block.cell == 1 { 1.15 } else { 1.0 };
        }
        let document = compare_runs(&a, &b, 0.01);
        assert_eq!(verdicts(&document)[..2], ["inconclusive", "slower"]);
        assert!(document.rows[0].why.contains("15% slower"), "{}", document.rows[0].why);
        assert!((document.rows[1].machine.unwrap() - 1.0).abs() < 0.05);
        // Facts that nobody sets differ between any two runs.
        let [free, governor] = ["memory.available", "cpu.frequency.governor"].map(str::to_owned);
        b.run.provenance.insert(free, "23785732 kB".to_owned());
        assert_eq!(compare_runs(&a, &b, 0.01), document);
        b.run.provenance.insert(governor, "powersave".to_owned());
        let document = compare_runs(&a, &b, 0.01);
        assert_eq!(verdicts(&document)[..2], ["slower", "slower"], "a setting was changed");
        assert_eq!(document.rows[0].machine, None);
    }

    #[test]
    fn a_gain_that_is_the_machines_may_hide_a_loss() {
        let a = run(1, [1.0; 4], SyntheticDesign::default());
        let mut b = run(2, [0.9, 0.7, 1.0, 1.0], SyntheticDesign::default());
        for block in &mut b.blocks {
            block.effort.canary_ns *= if block.cell <= 2 { 0.8 } else { 1.0 };
        }
        let document = compare_runs(&a, &b, MARGIN_DEFAULT);
        assert_eq!(verdicts(&document)[..2], ["inconclusive"; 2]);
        assert_eq!(document.exit_code, 3, "0.9 on a machine that is faster by a fifth");
        b.cells.remove(0);
        assert_eq!(compare_runs(&a, &b, MARGIN_DEFAULT).exit_code, 0, "0.7 on it is no loss");
    }

    #[test]
    fn what_fails_after_it_worked_is_no_success() {
        let a = run(1, [1.0; 4], SyntheticDesign::default());
        let mut b = run(2, [0.5; 4], SyntheticDesign::default());
        b.blocks.retain(|block| block.cell != 1);
        for status in [
            CellStatus::Failed("died (signal: 11)".to_owned()),
            CellStatus::Unavailable("no pipes here".to_owned()),
            CellStatus::Open,
        ] {
            let why = summary::missing_reason(&status).1;
            b.cells[0].status = status;
            let document = compare_runs(&a, &b, MARGIN_DEFAULT);
            assert_eq!((document.verdict.as_str(), document.exit_code), ("inconclusive", 3));
            assert!(document.warnings.iter().any(|warning| warning.contains(&why)), "{why}");
        }
        b.cells.remove(0);
        assert_eq!(
            compare_runs(&a, &b, MARGIN_DEFAULT).exit_code,
            0,
            "what is not planned is not missed"
        );
    }

    #[test]
    fn zeros_are_judged_by_rank_and_by_no_margin_of_nothing() {
        let share = |zeros: [f64; 6]| {
            let mut data =
                run(1, [1.0; 4], SyntheticDesign { rounds: 6, ..SyntheticDesign::default() });
            data.cells.truncate(1);
            data.blocks.retain(|block| block.cell == 1);
            for (block, loss) in data.blocks.iter_mut().zip(zeros.iter().cycle()) {
                block.samples.fill(*loss);
            }
            data
        };
        let none = share([0.0; 6]);
        let some =
            compare_runs(&none, &share([0.004, 0.003, 0.005, 0.004, 0.004, 0.003]), MARGIN_DEFAULT);
        assert_eq!((verdicts(&some), some.exit_code), (vec!["slower"], 1));
        let open = compare_runs(&none, &share([0.0, 0.0, 0.0, 0.004, 0.0, 0.0]), MARGIN_DEFAULT);
        assert_eq!((verdicts(&open), open.exit_code), (vec!["inconclusive"], 3));
    }

    #[test]
    fn a_real_difference_below_the_margin_is_never_called_slower() {
        let design =
            SyntheticDesign { launch_sd: 0.001, spread: 0.02, ..SyntheticDesign::default() };
        let document =
            compare_runs(&run(1, [1.0; 4], design), &run(2, [1.01; 4], design), MARGIN_DEFAULT);
        assert_eq!(verdicts(&document), ["equivalent"; 4]);
        let row = &document.rows[0];
        assert!(row.ci95.unwrap()[0] > 1.0, "the interval excludes 1: {row:?}");
    }

    #[test]
    fn equal_runs_are_seldom_called_different() {
        let design = SyntheticDesign { rounds: 5, samples: 50, launch_sd: 0.03, spread: 0.05 };
        let mut tables = 0;
        for seed in 0..100 {
            let document = compare_runs(
                &run(2 * seed, [1.0; 4], design),
                &run(2 * seed + 1, [1.0; 4], design),
                0.02,
            );
            let tally = document.tally;
            tables += u64::from(tally.faster + tally.slower > 0);
        }
        // Holm holds the chance of any false verdict in a table at 5 %: 11 or more of 100 tables
        // would have a probability of 1 %.
        assert!(tables <= 10, "{tables} of 100 tables had a false verdict");
    }

    #[test]
    fn throughput_that_fell_is_slower() {
        let made = |seed, rate| {
            let mut synthetic = SyntheticRun::new(seed);
            let factors = local("pipe", "same-cpu", 65_536);
            synthetic.measure("throughput.local", "throughput", factors, rate);
            synthetic.data
        };
        let document = compare_runs(&made(1, 2e9), &made(2, 1e9), 0.02);
        assert_eq!(verdicts(&document), ["slower"]);
        assert!((document.rows[0].ratio.unwrap() - 2.0).abs() < 0.05);
    }

    #[test]
    fn cells_of_one_side_are_listed_with_the_reason() {
        let design = SyntheticDesign::default();
        let mut a = run(1, [1.0; 4], design);
        let b = run(2, [1.0; 4], design);
        a.blocks.retain(|block| block.cell != 1);
        a.cells[0].status = CellStatus::Unavailable("no pipes".to_owned());
        a.cells.remove(3);
        a.blocks.retain(|block| block.cell != 4);
        let document = compare_runs(&a, &b, 0.02);
        assert_eq!(document.rows.len(), 2);
        let reasons: Vec<_> = document.only_in_b.iter().map(|cell| cell.reason.as_str()).collect();
        assert_eq!(reasons, ["no pipes", "not in its plan"]);
    }

    #[test]
    fn levels_of_a_factor_are_compared_paired_and_without_it() {
        let mut synthetic = SyntheticRun::new(1);
        for (wake, median) in [("block", 1000.0), ("spin", 500.0)] {
            let factors = local("tcp4", "same-cache", 64).with("wake", wake);
            synthetic.measure("latency.local", "latency", factors, median);
        }
        let document = compare_levels(
            &synthetic.data,
            "wake",
            &FactorLevel::from("block"),
            &FactorLevel::from("spin"),
            0.02,
        );
        assert_eq!(document.pairing, "paired");
        assert_eq!(verdicts(&document), ["faster"]);
        assert!(!document.rows[0].factors.contains_key("wake"));
        assert_eq!(document.b.label, "wake=spin");
        assert!(document.warnings.is_empty());
    }

    #[test]
    fn cells_over_different_outer_links_are_compared_and_the_links_are_told() {
        let behind = |seed, link: &str, median| {
            let mut synthetic = SyntheticRun::new(seed);
            let level = format!("outer: {link}");
            let factors = local("tcp4", "same-cpu", 64).with("link", level.as_str());
            synthetic.measure("latency.remote", "latency", factors, median);
            synthetic.data.run.notes.insert(OUTER_LINK.to_owned(), link.to_owned());
            synthetic.data
        };
        let (near, far) = (behind(1, "delay=1ms", 1e6), behind(2, "delay=9ms", 9e6));
        let document = compare_runs(&near, &far, 0.02);
        assert_eq!(verdicts(&document), ["slower"]);
        let warning = document.warnings.iter().find(|warning| warning.contains("different links"));
        let warning = warning.unwrap();
        assert!(warning.contains("delay=1ms") && warning.contains("delay=9ms"), "{warning}");
        assert!(document.differences.iter().any(|difference| difference.key == OUTER_LINK));
        let same = compare_runs(&near, &behind(3, "delay=1ms", 1e6), 0.02);
        assert!(!same.warnings.iter().any(|warning| warning.contains("different links")));
        assert!(same.differences.iter().all(|difference| difference.key != OUTER_LINK));
    }

    /// Runs of one cell that differ by 1 % from each other, as their launches do.
    fn set(seed: u64, size: u64, factor: f64) -> Vec<RunData> {
        use plumb_base::seed::Seed;
        use plumb_base::stats::simulation::LaunchEffect;
        let design = SyntheticDesign { launch_sd: 0.01, samples: 50, ..SyntheticDesign::default() };
        let mut stream = Seed(seed).stream("runs");
        let runs = LaunchEffect::Normal(0.01).factors(size.try_into().unwrap(), &mut stream);
        let made = |(i, run_factor): (u64, f64)| {
            let mut synthetic = SyntheticRun::new(seed * size + i);
            synthetic.design = design;
            let factors = local("pipe", "same-cpu", 64);
            synthetic.measure("latency.local", "latency", factors, 1e6 * factor * run_factor);
            synthetic.data
        };
        (0..).zip(runs).map(made).collect()
    }

    fn of_sets(a: &[RunData], b: &[RunData]) -> CompareDocument {
        compare_run_sets(
            &a.iter().collect::<Vec<_>>(),
            &b.iter().collect::<Vec<_>>(),
            MARGIN_DEFAULT,
        )
    }

    #[test]
    fn runs_that_differ_by_chance_are_not_different_sets() {
        let excluded = |size: u64| {
            let of = |seed: u64| {
                let document = of_sets(&set(2 * seed, size, 1.0), &set(2 * seed + 1, size, 1.0));
                let [low, high] = document.rows[0].ci95.unwrap();
                !(low..=high).contains(&1.0)
            };
            (0..400).filter(|seed| of(*seed)).count()
        };
        // The interval of 5 runs a side holds 96.8 %: 25 or more of 400 would have a probability of 0.1 %.
        let by_chance = excluded(5);
        assert!(by_chance <= 24, "{by_chance} of 400");
        // Launches of one run a side know nothing of it.
        assert!(excluded(1) > 100);
        let verdict =
            |seed: u64| of_sets(&set(2 * seed, 6, 1.0), &set(2 * seed + 1, 6, 1.06)).verdict;
        let slower = (0..100).filter(|seed| verdict(*seed) == "slower").count();
        assert!(slower >= 95, "{slower} of 100 sets of 6 runs that are 6 % slower");
    }

    #[test]
    fn sets_of_fewer_than_four_runs_have_no_verdict() {
        let document = of_sets(&set(1, 3, 1.0), &set(2, 5, 2.0));
        assert_eq!((document.replicate.as_str(), document.exit_code), ("run", 3));
        let row = &document.rows[0];
        assert_eq!(row.why, "needs at least 4 runs a side; has 3 and 5");
        assert_eq!((row.more_launches, row.more_runs), (None, Some(1)));
        assert_eq!(document.b.runs.len(), 5);
        assert_eq!(verdicts(&of_sets(&set(1, 4, 1.0), &set(2, 4, 2.0))), ["slower"]);
    }

    #[test]
    fn a_table_too_wide_for_its_launches_says_so() {
        let warned = |rounds| {
            let design = SyntheticDesign { rounds, ..SyntheticDesign::default() };
            let document = compare_runs(&run(1, [1.0; 4], design), &run(2, [1.5; 4], design), 0.02);
            let warned = document.warnings.iter().any(|warning| warning.contains("too few"));
            (document.verdict, warned)
        };
        // The least probability of six and six is 2 in 924: enough for 23 cells, not for 24.
        assert_eq!(warned(6), ("slower".to_owned(), false));
        assert_eq!(Replicate::UnpairedLaunch.needed_for(23), 6);
        assert_eq!(Replicate::UnpairedLaunch.needed_for(24), 7);
        // Of four and four runs 2 in 70; of n pairs 2 in 2^n.
        assert_eq!((Replicate::Run.needed_for(1), Replicate::Run.needed_for(2)), (4, 5));
        assert_eq!((launches_for_verdicts(1), launches_for_verdicts(20)), (6, 10));
        let four = |first: u64| -> Vec<RunData> {
            (first..first + 4).map(|seed| run(seed, [1.0; 4], SyntheticDesign::default())).collect()
        };
        let document = of_sets(&four(1), &four(11));
        let warning = document.warnings.iter().find(|warning| warning.contains("too few"));
        assert!(warning.unwrap().contains("of 4 cells one takes 5 a side"), "{warning:?}");
    }

    #[test]
    fn launches_that_drift_decide_nothing() {
        let quiet = || run(1, [1.0; 4], SyntheticDesign::default());
        let mut drifting = run(2, [1.2; 4], SyntheticDesign::default());
        for block in drifting.blocks.iter_mut().filter(|block| block.cell == 1) {
            let launch = block.launch as f64;
            block.samples.iter_mut().for_each(|sample| *sample *= 1.0 + 0.01 * launch);
        }
        let document = compare_runs(&quiet(), &drifting, MARGIN_DEFAULT);
        assert_eq!(verdicts(&document), ["inconclusive", "slower", "slower", "slower"]);
        assert!(document.rows[0].why.contains("resemble"), "{}", document.rows[0].why);
        assert!(
            document.warnings[0].contains("of cells of 10 launches"),
            "{:?}",
            document.warnings
        );
    }

    #[test]
    fn launches_in_two_groups_are_told() {
        let mut b = run(2, [1.0; 4], SyntheticDesign::default());
        let of_cell = b.blocks.iter().filter(|block| block.cell == 1);
        let slow: Vec<i64> = of_cell.map(|block| block.launch).step_by(3).collect();
        for block in b.blocks.iter_mut().filter(|block| block.cell == 1) {
            let factor = if slow.contains(&block.launch) { 1.2 } else { 1.0 };
            block.samples.iter_mut().for_each(|sample| *sample *= factor);
        }
        let document = compare_runs(&run(1, [1.0; 4], SyntheticDesign::default()), &b, 0.02);
        let why = &document.rows[0].why;
        assert!(
            why.contains("; B: 4 of 10 launches lie") && why.contains("above the others"),
            "{why}"
        );
        assert!(!document.rows[1].why.contains("launches lie"), "{}", document.rows[1].why);
    }

    #[test]
    fn nothing_in_common_is_inconclusive_and_says_so() {
        let document = compare_runs(&SyntheticRun::new(1).data, &SyntheticRun::new(2).data, 0.02);
        assert_eq!(document.exit_code, 3);
        assert!(document.warnings.iter().any(|warning| warning.starts_with("nothing compared")));
    }

    #[test]
    fn the_markdown_table_is_stable() {
        let design = SyntheticDesign::default();
        let mut b = run(2, [1.2, 0.8, 1.0, 1.0], design);
        b.run.provenance.insert("cpu.model".to_owned(), "other | model".to_owned());
        let document = compare_runs(&run(1, [1.0; 4], design), &b, MARGIN_DEFAULT);
        insta::assert_snapshot!(markdown(&document));
    }
}
