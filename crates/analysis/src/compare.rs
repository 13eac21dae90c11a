//! Comparisons: every cell of two runs, or of two levels of a factor within one, with a verdict.
//!
//! Rule 16: the effect first, then one of four verdicts, and how much more it would take.

use std::collections::{BTreeMap, BTreeSet};

use plumb_base::stats::means;
use plumb_base::stats::rank::holm;
use plumb_store::record::{Cell, CellStatus, FactorLevel, Factors, RunData, RunRecord, RunStatus};

use crate::build::{instant, trust};
use crate::cost_ratio::LaunchPairing;
use crate::document::compare::{
    CellName, CompareDocument, ComparedCell, ComparedSide, ComparisonCounts, MedianEstimate,
    SCHEMA, SettingDifference,
};
use crate::document::{OUTER_LINK, host_notes};
use crate::summary::{self, MeasuredCell};

mod markdown;
mod verdict;

pub use markdown::markdown;

use verdict::{CellComparison, ComparisonVerdict, VerdictThresholds};

/// Costs within this share of each other are practically equal, unless the user says otherwise.
pub const MARGIN_DEFAULT: f64 = 0.02;

/// Cells that were lost and are named; of more, the number is told.
const LOST_NAMED: usize = 5;

/// Compares two runs cell by cell, B against A, as unpaired launches.
///
/// `margin` is a share such as [`MARGIN_DEFAULT`].
pub fn compare_runs(a: &RunData, b: &RunData, margin: f64) -> CompareDocument {
    let (cells_a, cells_b) = (summary::measured_cells(a), summary::measured_cells(b));
    let mut warnings = vec![
        "unpaired: the runs were measured apart, so drift between them counts as a difference"
            .to_owned(),
    ];
    warnings.extend([a, b].into_iter().filter_map(trust_warning));
    warnings.extend([a, b].into_iter().filter_map(imported_warning));
    warnings.extend(link_warning(&a.run, &b.run));
    let sides = (side(&a.run, a.run.id.clone()), side(&b.run, b.run.id.clone()));
    let differences = setting_differences(&a.run, &b.run);
    let mut comparison = ComparisonBuilder::new(margin, LaunchPairing::Unpaired, warnings);
    // What somebody changed on purpose is not to be explained away by what it did to the canary.
    comparison.same_machine = differences.iter().all(|difference| difference.key == "code");
    let names = |data: &RunData| -> Vec<(String, Cell)> {
        data.cells.iter().map(|cell| (match_key(cell), cell.clone())).collect()
    };
    comparison.compare(
        &SideCells { cells: names(a), measured: by_key(&cells_a, match_key) },
        &SideCells { cells: names(b), measured: by_key(&cells_b, match_key) },
    );
    comparison.document(sides.0, sides.1, differences)
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
            measured: chosen.map(|measured| (rest(measured.cell), measured)).collect(),
        }
    };
    let side_of = |level: &FactorLevel| side(&data.run, format!("{factor}={level}"));
    let warnings = trust_warning(data).into_iter().collect();
    let mut comparison = ComparisonBuilder::new(margin, LaunchPairing::Paired, warnings);
    comparison.compare(&group(level_a), &group(level_b));
    comparison.document(side_of(level_a), side_of(level_b), Vec::new())
}

/// What two cells that differ in one factor have in common.
pub fn factors_without(factors: &Factors, factor: &str) -> Factors {
    let others = factors.clone().without(factor);
    // TCP has a congestion control and a pipe has none, and still they are to be compared.
    if factor == "mechanism" { others.without("congestion") } else { others }
}

/// What the cells of two runs are matched by. The link that a run was behind, or the host that it went to, is no
/// reason for two cells not to be compared, only to say so.
fn match_key(cell: &Cell) -> String {
    let link = cell.factors.text("link").unwrap_or_default();
    let Some(which) = ["outer", "host"].into_iter().find(|which| link.starts_with(which)) else {
        return cell.key();
    };
    Cell { factors: cell.factors.clone().with("link", which), ..cell.clone() }.key()
}

/// One side's cells: all that were planned, and those that have numbers, by the key to match.
struct SideCells<'a> {
    cells: Vec<(String, Cell)>,
    measured: BTreeMap<String, &'a MeasuredCell<'a>>,
}

fn by_key<'a>(
    measured: &'a [MeasuredCell<'a>],
    key: fn(&Cell) -> String,
) -> BTreeMap<String, &'a MeasuredCell<'a>> {
    measured.iter().map(|measured| (key(measured.cell), measured)).collect()
}

fn trust_warning(data: &RunData) -> Option<String> {
    let trust = trust(data);
    (!trust.trusted).then(|| {
        format!(
            "not to be trusted: {} of {} blocks of {} were disturbed",
            trust.flagged, trust.blocks, data.run.id
        )
    })
}

fn imported_warning(data: &RunData) -> Option<String> {
    (data.run.status == RunStatus::Imported).then(|| {
        format!("{} was measured by another tool: its cells carry no verdict", data.run.id)
    })
}

/// What differs most between two runs, where it does.
fn link_warning(a: &RunRecord, b: &RunRecord) -> Option<String> {
    let [of_a, of_b] = [a, b].map(|run| run.notes.get(OUTER_LINK));
    let told = |link: Option<&String>| {
        link.map_or_else(|| "no link".to_owned(), |link| format!("the link {link}"))
    };
    (of_a != of_b).then(|| {
        format!(
            "measured behind different links: {} behind {}, {} behind {}; a difference may be the \
             network's",
            a.id,
            told(of_a),
            b.id,
            told(of_b)
        )
    })
}

fn side(run: &RunRecord, label: String) -> ComparedSide {
    ComparedSide {
        run: run.id.clone(),
        label,
        created: instant(run.created_unix_ms),
        code: run.code_version.clone(),
    }
}

/// A comparison being made.
struct ComparisonBuilder {
    margin: f64,
    pairing: LaunchPairing,
    /// Whether both sides were measured apart, but on one machine with the same settings.
    same_machine: bool,
    warnings: Vec<String>,
    rows: Vec<ComparedCell>,
    tally: ComparisonCounts,
    /// Whether a cell that is not decided may be slower.
    may_be_slower: bool,
    /// What A measured and B tried to, in vain, in words.
    lost: Vec<String>,
    only_in_a: Vec<CellName>,
    only_in_b: Vec<CellName>,
}

impl ComparisonBuilder {
    fn new(margin: f64, pairing: LaunchPairing, warnings: Vec<String>) -> Self {
        Self {
            margin,
            pairing,
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
                (Some(left), Some(right)) => matches.push((cell, *left, *right)),
                (Some(_), None) => self.only_in_a.push(name(cell, b, key)),
                (None, _) => {
                    let other = b.cells.iter().find(|(other, _)| other == key);
                    imported.extend(other.map(|(_, other)| (cell, other)));
                }
            }
        }
        for (key, cell) in &b.cells {
            if b.measured.contains_key(key) && !a.measured.contains_key(key) {
                self.only_in_b.push(name(cell, a, key));
            }
        }
        let trials: Vec<CellComparison> = matches
            .iter()
            .map(|(_, left, right)| CellComparison::new(left, right, self.pairing))
            .collect();
        // Holm's step-down over every cell that can be judged: the chance of one false
        // "faster" or "slower" in the whole table stays at 5 %.
        let judged: Vec<f64> = trials.iter().filter_map(|trial| trial.p(self.margin)).collect();
        let mut adjusted = holm(&judged).into_iter();
        for ((cell, left, right), trial) in matches.into_iter().zip(trials) {
            let p = trial.p(self.margin).and_then(|_| adjusted.next());
            let slowdown = if self.same_machine { verdict::slowdown(left, right) } else { None };
            let bar = VerdictThresholds { p_adjusted: p, margin: self.margin, slowdown };
            let (verdict, row) = trial.row(cell, left, right, bar);
            self.push(verdict, row);
        }
        for (cell, other) in imported {
            if let Some(row) = verdict::imported_row(cell, other) {
                self.push(ComparisonVerdict::Inconclusive { may_be_slower: true }, row);
            }
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
    /// is known of it; that something does not exist any more is a loss.
    fn lost_cell(&self, b: &SideCells<'_>, key: &str) -> Option<String> {
        let (_, cell) = b.cells.iter().find(|(candidate, _)| candidate == key)?;
        let is_lost = match &cell.status {
            CellStatus::Failed(_) => true,
            CellStatus::Unavailable(_) => self.pairing == LaunchPairing::Unpaired,
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
            pairing: match self.pairing {
                LaunchPairing::Paired => "paired".to_owned(),
                LaunchPairing::Unpaired => "unpaired".to_owned(),
            },
            margin: self.margin,
            method: verdict::method(self.margin, self.pairing),
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

/// A cell that only one side measured, with the reason that the other side has.
fn name(cell: &Cell, other: &SideCells<'_>, key: &str) -> CellName {
    let reason = other.cells.iter().find(|(candidate, _)| candidate == key).map_or_else(
        || "not in its plan".to_owned(),
        |(_, cell)| summary::missing_reason(&cell.status).1,
    );
    CellName {
        experiment: cell.experiment.clone(),
        factors: summary::factors(cell),
        response: cell.response.clone(),
        reason,
    }
}

fn estimate(cell: &MeasuredCell<'_>) -> MedianEstimate {
    let ends = cell.interval().map(|i| [summary::rounded(i.lo), summary::rounded(i.hi)]);
    MedianEstimate {
        median: Some(cell.median()).filter(|median| median.is_finite()).map(summary::rounded),
        ci95: ends,
        launches: cell.launches.len() as u64,
    }
}

/// Facts that vary from run to run without anybody setting them.
const TRANSIENT_KEYS: [&str; 6] = [
    "cgroup.cpu.throttled",
    "cpu.mhz",
    "kernel.clock.correction_ppm",
    "kernel.uptime_s",
    "memory.available",
    "memory.swap.free",
];

/// Facts below this are conditions of the moment as well.
const TRANSIENT_PREFIX: &str = "load.";

fn is_setting(key: &str) -> bool {
    !TRANSIENT_KEYS.contains(&key) && !key.starts_with(TRANSIENT_PREFIX)
}

/// Settings that differ, the outer link, the other host and the program's version among them, by their names.
pub fn setting_differences(a: &RunRecord, b: &RunRecord) -> Vec<SettingDifference> {
    let keys = |of: fn(&RunRecord) -> &BTreeMap<String, String>| -> BTreeSet<&String> {
        of(a).keys().chain(of(b).keys()).collect()
    };
    let difference = |key: &str, a: Option<&String>, b: Option<&String>| {
        (a != b).then(|| SettingDifference { key: key.to_owned(), a: a.cloned(), b: b.cloned() })
    };
    let mut found: Vec<SettingDifference> = keys(|run| &run.provenance)
        .into_iter()
        .filter(|key| is_setting(key))
        .filter_map(|key| difference(key, a.provenance.get(key), b.provenance.get(key)))
        .collect();
    found.extend(difference(OUTER_LINK, a.notes.get(OUTER_LINK), b.notes.get(OUTER_LINK)));
    let of_host = keys(|run| &run.notes).into_iter().filter(|name| host_notes::is_setting(name));
    found.extend(of_host.filter_map(|key| difference(key, a.notes.get(key), b.notes.get(key))));
    found.extend(difference("code", Some(&a.code_version), Some(&b.code_version)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
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
        // What nobody set differs between any two runs.
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
