//! Verdicts: comparisons of nothing with nothing must keep quiet, a real slowdown must be called.
//!
//! Both go through the comparison that `plumb compare` and `plumb ab` use, on real launches.

use std::collections::BTreeMap;

use plumb_analysis::compare::{self, MARGIN_DEFAULT};
use plumb_analysis::document::checks::SelftestCheck;
use plumb_base::stats::quantile;
use plumb_base::time::Span;
use plumb_harness::environment;
use plumb_harness::report::BlockReport;
use plumb_store::record::{
    Better, Cell, CellStatus, FactorLevel, Factors, LaunchRecord, RunData, RunRecord, RunStatus,
};

use super::SelftestProgress;
use super::channel::SelftestChannel;
use super::rate;
use crate::error::ExperimentError;
use crate::run::block;

/// Comparisons of each kind.
const TRIALS: u64 = 90;

/// Launches in a comparison of two runs, each.
const LAUNCHES_APART: usize = 5;

/// Launches in an interleaved comparison. As many in every trial: to end where the interval happens to
/// be narrow would favour those that are too narrow.
const LAUNCHES_PAIRED: usize = 10;

/// The variants of a launch's blocks. The sequence of Thue and Morse: neither a drift nor a bend of it
/// favours one of them.
const TURNS: [usize; 32] = {
    let mut turns = [0; 32];
    let mut turn = 0;
    while turn < turns.len() {
        turns[turn] = (turn.count_ones() % 2) as usize;
        turn += 1;
    }
    turns
};

/// Blocks of a launch in a comparison of two runs.
const BLOCKS_APART: usize = 6;

/// A canary longer than the shortest by so much says that something else used the core.
const DISTURBED: f64 = 1.1;

/// The weight of the newest block in what a round trip usually takes.
const NEWEST: f64 = 0.25;

/// The slowdown that must be called.
const SLOWDOWN: f64 = 0.03;

/// The three checks.
pub(super) fn check(
    bench: &mut SelftestChannel,
    progress: &mut SelftestProgress<'_>,
) -> Result<Vec<SelftestCheck>, ExperimentError> {
    let mut usual = usual_trip_ns(bench)?;
    let paired_same = trials(bench, progress, 0.2, |bench| paired(bench, &mut usual, 0.0))?;
    let apart_same = trials(bench, progress, 0.45, apart)?;
    let slower = trials(bench, progress, 0.75, |bench| paired(bench, &mut usual, SLOWDOWN))?;
    let false_of = |counts: &VerdictCounts| counts.slower + counts.faster;
    let disturbed = disturbed_share(&bench.canaries);
    let spelt = |counts: &VerdictCounts, launches: usize| {
        format!(
            "{} slower, {} faster, {} equivalent, {} inconclusive; {launches} launches each; \
             {disturbed:.0} % of all blocks had a neighbour on the core (canary)",
            counts.slower, counts.faster, counts.equivalent, counts.inconclusive
        )
    };
    Ok(vec![
        rate(
            "aa.interleaved",
            "comparing a pipe with itself, interleaved, gives no verdict of faster or slower"
                .to_owned(),
            (false_of(&paired_same), TRIALS),
            [0.0, 0.05],
            spelt(&paired_same, LAUNCHES_PAIRED),
        ),
        rate(
            "aa.apart",
            "comparing two runs of the same pipe gives no verdict of faster or slower".to_owned(),
            (false_of(&apart_same), TRIALS),
            [0.0, 0.05],
            spelt(&apart_same, LAUNCHES_APART),
        ),
        rate(
            "power.slowdown-3-percent",
            format!(
                "an injected slowdown of 3 % ({:.0} ns of {usual:.0} ns at last) is called slower",
                SLOWDOWN * usual
            ),
            (slower.slower, TRIALS),
            [0.8, 1.0],
            spelt(&slower, LAUNCHES_PAIRED),
        ),
    ])
}

/// The usual round trip, to know what 3 % of it is.
fn usual_trip_ns(bench: &mut SelftestChannel) -> Result<f64, ExperimentError> {
    let mut medians = Vec::new();
    for _ in 0..10 {
        medians.extend(bench.launch(&[0, 0])?.iter().map(trip_ns));
    }
    Ok(quantile::of_sorted(&quantile::sorted(&medians), 0.5))
}

/// The percentage of blocks whose canary was disturbed.
fn disturbed_share(canaries: &[f64]) -> f64 {
    let least = canaries.iter().copied().fold(f64::INFINITY, f64::min);
    let disturbed = canaries.iter().filter(|canary| **canary > DISTURBED * least).count();
    100.0 * disturbed as f64 / canaries.len().max(1) as f64
}

/// The median round trip of a block, in nanoseconds.
fn trip_ns(block: &BlockReport) -> f64 {
    2.0 * quantile::of_sorted(&quantile::sorted(&block.samples), 0.5)
}

/// Verdicts by kind.
#[derive(Debug, Default)]
struct VerdictCounts {
    slower: u64,
    faster: u64,
    equivalent: u64,
    inconclusive: u64,
}

fn trials(
    bench: &mut SelftestChannel,
    progress: &mut SelftestProgress<'_>,
    from: f64,
    mut trial: impl FnMut(&mut SelftestChannel) -> Result<String, ExperimentError>,
) -> Result<VerdictCounts, ExperimentError> {
    let mut counts = VerdictCounts::default();
    for number in 0..TRIALS {
        progress("comparisons", from + 0.25 * number as f64 / TRIALS as f64);
        match trial(bench)?.as_str() {
            "slower" => counts.slower += 1,
            "faster" => counts.faster += 1,
            "equivalent" => counts.equivalent += 1,
            _ => counts.inconclusive += 1,
        }
    }
    Ok(counts)
}

/// One interleaved comparison, as `plumb ab` makes it: every launch visits both variants in turn.
///
/// `slowdown` is a share of what a round trip took lately, `usual`, in nanoseconds: with a neighbour on
/// the core it takes half as long again, and so does whatever makes a program slower.
fn paired(
    bench: &mut SelftestChannel,
    usual: &mut f64,
    slowdown: f64,
) -> Result<String, ExperimentError> {
    let mut run = RunUnderTest::new(&["a", "b"]);
    let (a, b) = (FactorLevel::from("a"), FactorLevel::from("b"));
    for launch in 0..LAUNCHES_PAIRED {
        let order = TURNS.map(|variant| if launch % 2 == 0 { variant } else { 1 - variant });
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a round trip is a few hundred nanoseconds"
        )]
        let delay_ns = (slowdown * *usual).round() as u64;
        let delays: Vec<u64> = order.iter().map(|&v| if v == 1 { delay_ns } else { 0 }).collect();
        let blocks = bench.launch(&delays)?;
        let undelayed = order.iter().zip(&blocks).filter(|(variant, _)| **variant == 0);
        for trip in undelayed.map(|(_, block)| trip_ns(block)) {
            *usual += (trip - *usual) * NEWEST;
        }
        run.add(&order, blocks);
    }
    let document = compare::compare_levels(&run.data, "variant", &a, &b, MARGIN_DEFAULT);
    Ok(document.rows.first().map_or_else(String::new, |cell| cell.verdict.clone()))
}

/// One comparison of two runs, one after the other, as `plumb compare` makes it.
fn apart(bench: &mut SelftestChannel) -> Result<String, ExperimentError> {
    let mut runs = [RunUnderTest::new(&["a"]), RunUnderTest::new(&["a"])];
    for run in &mut runs {
        for _ in 0..LAUNCHES_APART {
            let blocks = bench.launch(&[0; BLOCKS_APART])?;
            run.add(&[0; BLOCKS_APART], blocks);
        }
    }
    let document = compare::compare_runs(&runs[0].data, &runs[1].data, MARGIN_DEFAULT);
    Ok(document.rows.first().map_or_else(String::new, |cell| cell.verdict.clone()))
}

/// A run in memory: one cell for each variant.
struct RunUnderTest {
    data: RunData,
}

impl RunUnderTest {
    fn new(variants: &[&str]) -> Self {
        let cell = |(id, variant): (i64, &&str)| Cell {
            id,
            experiment: "selftest".to_owned(),
            factors: Factors::default().with("variant", *variant),
            response: "latency".to_owned(),
            unit: "ns".to_owned(),
            better: Better::Lower,
            status: CellStatus::Done("launches".to_owned()),
            imported: None,
        };
        let run = RunRecord {
            id: "selftest".to_owned(),
            title: "selftest".to_owned(),
            created_unix_ms: 0,
            status: RunStatus::Complete,
            plan_toml: String::new(),
            seed: 0,
            code_version: String::new(),
            provenance: environment::capture(),
            notes: BTreeMap::new(),
        };
        let cells = (1..).zip(variants).map(cell).collect();
        Self { data: RunData { run, cells, launches: Vec::new(), blocks: Vec::new() } }
    }

    /// Adds a launch whose blocks belong to these variants.
    fn add(&mut self, variants: &[usize], blocks: Vec<BlockReport>) {
        let round = u32::try_from(self.data.launches.len()).unwrap_or(u32::MAX);
        let id = i64::from(round) + 1;
        self.data.launches.push(LaunchRecord {
            id,
            round,
            group: "pipe".to_owned(),
            started_ns: 0,
        });
        for (&variant, report) in variants.iter().zip(blocks) {
            let cell = i64::try_from(variant).unwrap_or(0) + 1;
            self.data.blocks.push(block::record(cell, id, 0, report, Vec::new(), Span::ZERO));
        }
    }
}
