//! Verdicts: comparisons of nothing with nothing must keep quiet, a real slowdown must be called.
//!
//! Both go through the comparison that `plumb compare` and `plumb ab` use, on real launches.

use std::collections::BTreeMap;

use plumb_analysis::compare::{self, MARGIN_DEFAULT};
use plumb_analysis::document::selftest::SelftestCheck;
use plumb_base::stats::quantile;
use plumb_host::harness::spec::BlockReport;
use plumb_store::record::{
    Better, Block, Cell, CellStatus, Effort, Factors, Launch, Level, Run, RunData, RunStatus,
};

use super::bench::Bench;
use super::{Progress, rate};
use crate::problem::Problem;

/// Comparisons of each kind.
const TRIALS: u64 = 90;

/// Launches in a comparison, at least.
const LAUNCHES: usize = 5;

/// Launches in an interleaved comparison, at most.
const LAUNCHES_MAX: usize = 17;

/// Launches that are added at a time while the interval is wider than wanted.
const LAUNCHES_MORE: usize = 3;

/// Half the width of the ratio's interval that ends an interleaved comparison (rule 9).
const PRECISE: f64 = 0.015;

/// The slowdown that must be called.
const SLOWDOWN: f64 = 0.03;

/// The three checks.
pub(super) fn check(
    bench: &mut Bench,
    progress: &mut Progress<'_>,
) -> Result<Vec<SelftestCheck>, Problem> {
    let usual = usual_trip_ns(bench)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a round trip is a few hundred nanoseconds"
    )]
    let delay = (SLOWDOWN * usual).round() as u64;
    let paired_same = trials(bench, progress, 0.2, |bench| paired(bench, 0))?;
    let apart_same = trials(bench, progress, 0.45, apart)?;
    let slower = trials(bench, progress, 0.75, |bench| paired(bench, delay))?;
    let false_of = |counts: &Counts| counts.slower + counts.faster;
    let spelt = |counts: &Counts| {
        format!(
            "{} slower, {} faster, {} equivalent, {} inconclusive; {} launches each",
            counts.slower,
            counts.faster,
            counts.equivalent,
            counts.inconclusive,
            if counts.launches_max == counts.launches_min {
                counts.launches_min.to_string()
            } else {
                format!("{} to {}", counts.launches_min, counts.launches_max)
            }
        )
    };
    Ok(vec![
        rate(
            "aa.interleaved",
            "comparing a pipe with itself, interleaved, gives no verdict of faster or slower"
                .to_owned(),
            (false_of(&paired_same), TRIALS),
            [0.0, 0.05],
            spelt(&paired_same),
        ),
        rate(
            "aa.apart",
            "comparing two runs of the same pipe gives no verdict of faster or slower".to_owned(),
            (false_of(&apart_same), TRIALS),
            [0.0, 0.05],
            spelt(&apart_same),
        ),
        rate(
            "power.slowdown-3-percent",
            format!("an injected slowdown of 3 % ({delay} ns of {usual:.0} ns) is called slower"),
            (slower.slower, TRIALS),
            [0.8, 1.0],
            spelt(&slower),
        ),
    ])
}

/// The usual round trip, to know what 3 % of it is.
fn usual_trip_ns(bench: &mut Bench) -> Result<f64, Problem> {
    let mut medians = Vec::new();
    for _ in 0..10 {
        for block in bench.launch(&[0, 0])? {
            medians.push(2.0 * quantile::of_sorted(&quantile::sorted(&block.samples), 0.5));
        }
    }
    Ok(quantile::of_sorted(&quantile::sorted(&medians), 0.5))
}

/// Verdicts by kind.
#[derive(Debug, Default)]
struct Counts {
    slower: u64,
    faster: u64,
    equivalent: u64,
    inconclusive: u64,
    /// Launches of the shortest trial.
    launches_min: usize,
    /// Launches of the longest.
    launches_max: usize,
}

fn trials(
    bench: &mut Bench,
    progress: &mut Progress<'_>,
    from: f64,
    mut trial: impl FnMut(&mut Bench) -> Result<(String, usize), Problem>,
) -> Result<Counts, Problem> {
    let mut counts = Counts { launches_min: usize::MAX, ..Counts::default() };
    for number in 0..TRIALS {
        progress("comparisons", from + 0.25 * number as f64 / TRIALS as f64);
        let (verdict, launches) = trial(bench)?;
        counts.launches_min = counts.launches_min.min(launches);
        counts.launches_max = counts.launches_max.max(launches);
        match verdict.as_str() {
            "slower" => counts.slower += 1,
            "faster" => counts.faster += 1,
            "equivalent" => counts.equivalent += 1,
            _ => counts.inconclusive += 1,
        }
    }
    Ok(counts)
}

/// One interleaved comparison, as `plumb ab` makes it: every launch visits both variants twice, and
/// launches are added until the interval is narrow enough, however the verdict would turn out.
fn paired(bench: &mut Bench, delay_ns: u64) -> Result<(String, usize), Problem> {
    let mut run = RunUnderTest::new(&["a", "b"]);
    let (a, b) = (Level::from("a"), Level::from("b"));
    for launch in 0..LAUNCHES_MAX {
        let order: [usize; 4] = if launch % 2 == 0 { [0, 1, 1, 0] } else { [1, 0, 0, 1] };
        let delays: Vec<u64> = order.iter().map(|&v| if v == 1 { delay_ns } else { 0 }).collect();
        let blocks = bench.launch(&delays)?;
        run.add(&order, blocks);
        let made = launch + 1;
        if made < LAUNCHES || !(made - LAUNCHES).is_multiple_of(LAUNCHES_MORE) {
            continue;
        }
        let document = compare::within(&run.data, "variant", &a, &b, MARGIN_DEFAULT);
        let Some(cell) = document.rows.into_iter().next() else { continue };
        let is_precise = cell.ci95.is_some_and(|[lo, hi]| (hi / lo).ln() / 2.0 <= PRECISE);
        if is_precise || made == LAUNCHES_MAX {
            return Ok((cell.verdict, made));
        }
    }
    Ok((String::new(), LAUNCHES_MAX))
}

/// One comparison of two runs, as `plumb compare` makes it; their launches alternate only so that
/// the trials together take as long as the machine's drift.
fn apart(bench: &mut Bench) -> Result<(String, usize), Problem> {
    let mut runs = [RunUnderTest::new(&["a"]), RunUnderTest::new(&["a"])];
    for run in &mut runs {
        for _ in 0..LAUNCHES {
            let blocks = bench.launch(&[0, 0])?;
            run.add(&[0, 0], blocks);
        }
    }
    let document = compare::runs(&runs[0].data, &runs[1].data, MARGIN_DEFAULT);
    let verdict = document.rows.first().map_or_else(String::new, |cell| cell.verdict.clone());
    Ok((verdict, LAUNCHES))
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
        let run = Run {
            id: "selftest".to_owned(),
            title: "selftest".to_owned(),
            created_unix_ms: 0,
            status: RunStatus::Complete,
            plan_toml: String::new(),
            seed: 0,
            code_version: super::CODE_VERSION.to_owned(),
            provenance: BTreeMap::new(),
            notes: BTreeMap::new(),
        };
        let cells = (1..).zip(variants).map(cell).collect();
        Self { data: RunData { run, cells, launches: Vec::new(), blocks: Vec::new() } }
    }

    /// Adds a launch whose blocks belong to these variants.
    fn add(&mut self, variants: &[usize], blocks: Vec<BlockReport>) {
        let round = u32::try_from(self.data.launches.len()).unwrap_or(u32::MAX);
        let id = i64::from(round) + 1;
        self.data.launches.push(Launch { id, round, group: "pipe".to_owned(), started_ns: 0 });
        for (&variant, report) in variants.iter().zip(blocks) {
            self.data.blocks.push(Block {
                cell: i64::try_from(variant).unwrap_or(0) + 1,
                launch: id,
                pass: 0,
                batch: report.batch,
                n: report.n,
                warmup: report.warmup,
                samples: report.samples,
                histogram: report.histogram,
                histogram_scale: report.histogram_scale,
                effort: Effort { canary_ns: report.effort.canary_ns, ..Effort::default() },
                counters: report.counters,
                flags: Vec::new(),
            });
        }
    }
}
