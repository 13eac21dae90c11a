//! Cells with their blocks, gathered and summarised.
//!
//! The unit of everything after is [`MeasuredCell`]: one cell with all its blocks, ordered by launch.
//! Left out: judgements about several cells (`crate::compare`, `crate::claim`, `crate::rank`).

use std::collections::BTreeMap;

use plumb_base::seed::Seed;
use plumb_base::stats::groups::{self, LaunchGroups};
use plumb_base::stats::hierarchy::SampleHierarchy;
use plumb_base::stats::{ConfidenceInterval, autocorrelation, drift, modes, quantile, stopping};
use plumb_base::units::Unit;
use plumb_result::CpuUsage;
use plumb_store::record::{
    Better, Cell, CellStatus, FactorLevel, Factors, RunData, RunRecord, SampleBlock,
};

use crate::document::{CellResult, CpuCost, DistributionMode, SampleSummary};

mod flags;
mod percentile;
pub mod single_process;
mod weighted_samples;

pub use flags::{DISTURBANCES, counts as flag_counts, groups_in_words, is_disturbed, is_simulated};

use percentile::TailPercentiles;
use weighted_samples::WeightedSamples;

/// Confidence of every interval that is printed.
pub const CONFIDENCE: f64 = 0.95;

/// Smallest effective sample in which modes are looked for.
const MODES_FROM: f64 = 100.0;

/// The highest quantile that means of batches may stand for.
const BATCHED_MAX: f64 = 0.75;

/// Most samples handed to the search for modes.
const MODES_SAMPLES: usize = 1_000;

/// Modes closer than this share of their value are one: the margin below which costs are equal.
const MODES_APART: f64 = 0.02;

/// One cell with everything measured of it.
#[derive(Clone, Debug)]
pub struct MeasuredCell<'a> {
    /// The cell.
    pub cell: &'a Cell,
    /// Its launches in the order they were made, each with its blocks.
    pub launches: Vec<MeasuredLaunch<'a>>,
    /// The samples as the estimators want them.
    pub hierarchy: SampleHierarchy,
    /// Seed of whatever is resampled of it.
    pub seed: Seed,
    /// The step of the clock, in the cell's unit: values closer than this are not told apart. 0 where
    /// it is not known, or the cell is no time.
    pub resolution: f64,
    /// Its blocks in which nothing was sampled.
    empty: Vec<&'a SampleBlock>,
}

/// The blocks of one cell in one launch.
#[derive(Clone, Debug)]
pub struct MeasuredLaunch<'a> {
    /// The launch.
    pub id: i64,
    /// Its round: launches of one round were interleaved.
    pub round: u32,
    /// The blocks in the order they were measured.
    pub blocks: Vec<&'a SampleBlock>,
}

impl MeasuredLaunch<'_> {
    /// The samples of every block, as the estimators want them.
    pub fn samples(&self) -> Vec<Vec<f64>> {
        self.blocks.iter().map(|block| weighted_samples::points(block)).collect()
    }
}

/// The median of a block's samples.
pub(crate) fn block_median(block: &SampleBlock) -> f64 {
    quantile::of_sorted(&quantile::sorted(&weighted_samples::points(block)), 0.5)
}

/// Every cell of a run that has samples, in the order of the cells.
///
/// Blocks of unknown launches or cells (a damaged import) are left out.
pub fn measured_cells(data: &RunData) -> Vec<MeasuredCell<'_>> {
    let rounds: BTreeMap<i64, u32> = data.launches.iter().map(|l| (l.id, l.round)).collect();
    let mut by_cell: BTreeMap<i64, BTreeMap<(u32, i64), Vec<&SampleBlock>>> = BTreeMap::new();
    let mut empty: BTreeMap<i64, Vec<&SampleBlock>> = BTreeMap::new();
    for block in &data.blocks {
        if block.n == 0 {
            empty.entry(block.cell).or_default().push(block);
        } else if let Some(round) = rounds.get(&block.launch) {
            let launches = by_cell.entry(block.cell).or_default();
            launches.entry((*round, block.launch)).or_default().push(block);
        }
    }
    let seed = Seed(data.run.seed).derive("analysis");
    data.cells
        .iter()
        .filter_map(|cell| Some((cell, by_cell.remove(&cell.id)?)))
        .map(|(cell, launches)| {
            let empty = empty.remove(&cell.id).unwrap_or_default();
            let mut measured = MeasuredCell::new(cell, launches, seed);
            measured.resolution = resolution(&data.run, cell, measured.blocks());
            MeasuredCell { empty, ..measured }
        })
        .collect()
}

impl<'a> MeasuredCell<'a> {
    fn new(
        cell: &'a Cell,
        launches: BTreeMap<(u32, i64), Vec<&'a SampleBlock>>,
        seed: Seed,
    ) -> Self {
        let launches: Vec<MeasuredLaunch<'a>> = launches
            .into_iter()
            .map(|((round, id), blocks)| MeasuredLaunch { id, round, blocks })
            .collect();
        let samples = launches.iter().map(MeasuredLaunch::samples).collect();
        let seed = seed.derive(&cell.key());
        let hierarchy = SampleHierarchy::new(samples);
        Self { cell, launches, hierarchy, seed, resolution: 0.0, empty: Vec::new() }
    }

    /// Every block of the cell that has samples.
    pub fn blocks(&self) -> impl Iterator<Item = &'a SampleBlock> + '_ {
        self.launches.iter().flat_map(|launch| launch.blocks.iter().copied())
    }

    /// The median launch.
    pub fn median(&self) -> f64 {
        self.hierarchy.median()
    }

    /// The interval of the median over launches; none with too few launches.
    ///
    /// At least as wide as a step of the clock: launches that agree to the last tick do not agree to
    /// less than one.
    pub fn interval(&self) -> Option<ConfidenceInterval> {
        let found = stopping::interval(&self.hierarchy)?;
        Some(self.at_least_a_step(found))
    }

    /// An interval widened evenly to a step of the clock.
    fn at_least_a_step(&self, interval: ConfidenceInterval) -> ConfidenceInterval {
        let missing = (self.resolution / 2.0 - interval.half_width()).max(0.0);
        ConfidenceInterval { lo: interval.lo - missing, hi: interval.hi + missing, ..interval }
    }

    /// The ends of that interval.
    pub fn ends(&self) -> Option<[f64; 2]> {
        self.interval().map(|interval| [interval.lo, interval.hi])
    }

    /// Whether launches made one after the other resemble each other, so that intervals over launches are too short.
    pub fn has_drift(&self) -> bool {
        drift::is_correlated(&self.hierarchy.launch_medians())
    }

    /// The two groups that the launches fall into, where they do and are further apart than two ticks of the clock.
    pub fn launch_groups(&self) -> Option<LaunchGroups> {
        let found = groups::two_groups(&self.hierarchy.launch_medians())?;
        let is_apart = found.above >= found.below * (1.0 + MODES_APART)
            && found.above - found.below > 2.0 * self.resolution;
        is_apart.then_some(found)
    }

    /// The level of a factor that is a word.
    pub fn text(&self, factor: &str) -> Option<&'a str> {
        self.cell.factors.text(factor)
    }

    /// The level of a factor that is a word; `unknown` where it has none.
    pub fn level(&self, factor: &str) -> &'a str {
        self.text(factor).unwrap_or("unknown")
    }

    /// The level of a factor that is a number.
    pub fn int(&self, factor: &str) -> Option<i64> {
        self.cell.factors.int(factor)
    }

    /// Whether a factor has this level.
    pub fn is(&self, factor: &str, level: impl Into<FactorLevel>) -> bool {
        self.cell.factors.level(factor) == Some(&level.into())
    }

    /// The mean of each launch by its round, in the cell's unit, without the slowest share of its
    /// samples; launches without a finite sample are left out.
    pub fn means_by_round(&self, slowest: f64) -> BTreeMap<u32, f64> {
        let mean = |launch: &MeasuredLaunch<'a>| {
            let pool = WeightedSamples::of(std::slice::from_ref(launch));
            (!pool.is_empty()).then(|| (launch.round, pool.mean_without_slowest(slowest)))
        };
        self.launches.iter().filter_map(mean).collect()
    }

    /// The cell's result.
    pub fn result(&self) -> CellResult {
        let pool = WeightedSamples::new(self);
        let blocks: Vec<&SampleBlock> = self.blocks().collect();
        let batch = blocks.iter().map(|block| block.batch).max().unwrap_or(1);
        let mut flags = Vec::new();
        let n_eff = blocks
            .iter()
            .map(|block| effective_sizes(block))
            .fold([0.0; 4], |sum, block| std::array::from_fn(|place| sum[place] + block[place]));
        let mut summary = SampleSummary {
            launches: self.launches.len() as u64,
            n: blocks.iter().map(|block| block.n).fold(0, u64::saturating_add),
            n_eff: rounded(n_eff[0]),
            ..SampleSummary::default()
        };
        self.fill_summary(&mut summary, &pool, n_eff, batch, &mut flags);
        flags.extend(self.launch_groups().map(flags::launch_groups));
        if self.has_drift() {
            flags.push(flags::DRIFT.to_owned());
        }
        flags::below_floor(&blocks, &mut summary, &mut flags);
        let damaged = blocks.iter().filter(|block| weighted_samples::is_damaged(block)).count();
        if damaged > 0 {
            flags.push(format!(
                "histogram unreadable: {damaged} of {} blocks; their first samples stand for all",
                blocks.len()
            ));
        }
        flags::stopped(self.cell, &summary, &mut flags);
        let all: Vec<&SampleBlock> = blocks.iter().chain(&self.empty).copied().collect();
        flags::warm_up(&all, &mut flags);
        flags::disturbances(&all, &mut flags);
        let counters = totals(&all);
        let cpu = cpu_cost(&blocks, self.cell.factors.text("mechanism").is_some());
        cell_result(self.cell, summary, cpu, counters, flags)
    }

    fn fill_summary(
        &self,
        summary: &mut SampleSummary,
        pool: &WeightedSamples,
        n_eff: [f64; 4],
        batch: u32,
        flags: &mut Vec<String>,
    ) {
        if pool.is_empty() {
            flags.push("no finite sample".to_owned());
            return;
        }
        let body = summary.n_eff;
        let launches = self.launches.len();
        let mut supported = |name: &str, p: f64| {
            // Enough launches carry an interval of the median however few samples each has.
            if name == "median" && launches >= LAUNCHES_NEEDED {
                return Some(rounded(self.median()));
            }
            let needed = quantile::samples_needed(p, CONFIDENCE);
            if body < needed as f64 {
                let has = body.floor();
                flags.push(format!("{name} refused: needs {needed} effective samples, has {has}"));
                return None;
            }
            Some(rounded(pool.quantile(p)))
        };
        summary.q1 = supported("q1", 0.25);
        summary.median = supported("median", 0.5);
        summary.q3 = supported("q3", 0.75);
        summary.min = Some(rounded(pool.quantile(0.0)));
        if batch > 1 {
            flags.push(format!(
                "batched: {batch} per sample; p90 and above refused, the rest is of batch means"
            ));
        } else {
            summary.max = Some(rounded(pool.quantile(1.0)));
            let tail = TailPercentiles::new(self, pool, n_eff);
            let mut percentile = |name: &str, place| {
                let estimate = tail.estimate(place);
                estimate.map_err(|why| flags.push(format!("{name} refused: {why}"))).ok().unzip()
            };
            (summary.p90, summary.p90_ci95) = percentile("p90", 1);
            (summary.p99, summary.p99_ci95) = percentile("p99", 2);
            (summary.p999, summary.p999_ci95) = percentile("p99.9", 3);
        }
        summary.ci95 = summary
            .median
            .and_then(|_| self.interval())
            .map(|interval| [rounded(interval.lo), rounded(interval.hi)]);
        if summary.ci95.is_none() && summary.median.is_some() {
            flags.push(format!(
                "interval refused: needs {LAUNCHES_NEEDED} launches, has {}",
                summary.launches
            ));
        }
        summary.launch_medians = self.hierarchy.launch_medians().into_iter().map(rounded).collect();
        summary.quantiles = pool.grid(n_eff, if batch > 1 { BATCHED_MAX } else { 1.0 });
        summary.modes = find_modes(&self.blocks().collect::<Vec<_>>(), body);
        if summary.modes.len() > 1 {
            flags.push(format!("modes: {}; the mean is withheld", summary.modes.len()));
        } else {
            summary.mean = Some(rounded(pool.mean(self.cell.better)));
        }
    }
}

/// The largest step of the run's clocks, as it appears in the values of a cell.
fn resolution<'a>(
    run: &RunRecord,
    cell: &Cell,
    blocks: impl Iterator<Item = &'a SampleBlock>,
) -> f64 {
    if cell.unit_type() != Unit::Nanoseconds {
        return 0.0;
    }
    let is_step = |name: &str| name.starts_with("clock.") && name.ends_with(".resolution_ns");
    let steps = run.notes.iter().filter(|(name, _)| is_step(name));
    let step_ns = steps
        .filter_map(|(_, value)| value.parse::<f64>().ok())
        .filter(|step| step.is_finite())
        .fold(0.0, f64::max);
    // A sample is a batch of operations, and a latency half a round trip.
    let batch = blocks.map(|block| block.batch).min().unwrap_or(1).max(1);
    let share = if cell.response == "latency" { 0.5 } else { 1.0 };
    share * step_ns / f64::from(batch)
}

/// CPU cost per operation: sums over sums, so that long blocks count for more.
fn cpu_cost(blocks: &[&SampleBlock], has_peer: bool) -> CpuCost {
    let sum = |part: fn(&SampleBlock) -> u64| {
        blocks.iter().map(|block| part(block)).fold(0, u64::saturating_add)
    };
    let operations = sum(|block| block.effort.operations);
    if operations == 0 {
        return CpuCost::default();
    }
    let each = |total: u64| rounded(total as f64 / operations as f64);
    let recorded = |total: u64| (total > 0).then(|| each(total));
    let peer = |total: u64| recorded(total).filter(|_| has_peer);
    let switches = sum(|block| {
        let (local, peer) = (&block.effort.local, &block.effort.peer);
        local.switches_voluntary.saturating_add(peer.switches_voluntary)
    });
    CpuCost {
        local: recorded(sum(|block| block.effort.local.process_ns)),
        local_kernel_share: kernel_share(blocks, |block| &block.effort.local),
        peer: peer(sum(|block| block.effort.peer.process_ns)),
        peer_kernel_share: kernel_share(blocks, |block| &block.effort.peer).filter(|_| has_peer),
        softirq: Some(each(sum(|block| block.effort.softirq_ns))),
        wall: recorded(sum(|block| block.effort.wall_ns)),
        switches: Some(each(switches)),
    }
}

fn kernel_share(blocks: &[&SampleBlock], side: fn(&SampleBlock) -> &CpuUsage) -> Option<f64> {
    let system: f64 = blocks.iter().map(|block| side(block).system_ns as f64).sum();
    let user: f64 = blocks.iter().map(|block| side(block).user_ns as f64).sum();
    let total = system + user;
    (total > 0.0).then(|| rounded(system / total))
}

/// Totals of everything counted in any block.
fn totals(blocks: &[&SampleBlock]) -> BTreeMap<String, u64> {
    let mut totals = BTreeMap::new();
    for (name, count) in blocks.iter().flat_map(|block| &block.counters) {
        let total = totals.entry(name.clone()).or_insert(0_u64);
        *total = total.saturating_add(*count);
    }
    totals
}

/// Launches below which nothing is said about all launches that could be made: no interval and no verdict. By their order
/// alone, five cannot hold the median launch with 95 % confidence.
pub const LAUNCHES_NEEDED: usize = 6;

/// Independent samples that a block is worth for the median, p90, p99 and p99.9.
///
/// As the worker found them in all of its samples; else from the raw samples, whose share of
/// independent ones is taken to hold for all where only the first were kept.
fn effective_sizes(block: &SampleBlock) -> [f64; 4] {
    let n = block.n as f64;
    if let Some(sizes) = block.n_eff {
        return sizes.map(|size| size.clamp(0.0, n));
    }
    if block.samples.is_empty() {
        return [n; 4];
    }
    let scale = n / block.samples.len() as f64;
    autocorrelation::effective_sizes(&block.samples).map(|size| (size * scale).min(n))
}

/// The modes of the raw samples, thinned to as many as are independent; empty when there is one.
///
/// Samples as they were measured, not quantiles: interpolation would hide the ticks of the clock,
/// which the search has to know from modes. Neighbours closer than 2 % are joined.
fn find_modes(blocks: &[&SampleBlock], n_eff: f64) -> Vec<DistributionMode> {
    let mut samples: Vec<f64> =
        blocks.iter().flat_map(|block| &block.samples).copied().filter(|v| v.is_finite()).collect();
    if n_eff < MODES_FROM || samples.is_empty() {
        return Vec::new();
    }
    samples.sort_unstable_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates, and the result is capped"
    )]
    let count = (n_eff as usize).min(MODES_SAMPLES).min(samples.len());
    let thinned: Vec<f64> = (0..count).map(|i| samples[i * samples.len() / count]).collect();
    let mut joined: Vec<DistributionMode> = Vec::new();
    for mode in modes::modes(&thinned) {
        match joined.last_mut() {
            Some(last) if mode.value - last.value <= MODES_APART * last.value.abs() => {
                if mode.share > last.share {
                    last.value = mode.value;
                }
                last.share += mode.share;
            }
            _ => joined.push(DistributionMode { value: mode.value, share: mode.share }),
        }
    }
    if joined.len() < 2 {
        return Vec::new();
    }
    joined
        .into_iter()
        .map(|mode| DistributionMode { value: rounded(mode.value), share: rounded(mode.share) })
        .collect()
}

/// A number as it is written down: nine significant digits, beyond any clock, free of noise.
pub fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10f64.powi(8 - exponent(value));
    (value * scale).round() / scale
}

#[expect(clippy::cast_possible_truncation, reason = "log10 of a finite double is within ±400")]
fn exponent(value: f64) -> i32 {
    value.abs().log10().floor() as i32
}

/// What a reader must know about a cell whose every sample is from another tool's log.
pub fn imported_samples(run: &RunRecord) -> String {
    let tool = run.notes.get("import.tool").map_or("another tool", String::as_str);
    format!("imported: {tool} logged these samples; one launch, so no verdict")
}

/// The result of a cell from another tool, which has no blocks: what the tool printed, in our shape, and what a reader must
/// know about it. No printed summary supports an interval or an effective size.
pub fn imported(cell: &Cell) -> Option<CellResult> {
    let imported = cell.imported.as_ref()?;
    let percentile = |name: &str| imported.percentiles.get(name).copied();
    let is = |statistic: &str| (imported.statistic == statistic).then_some(imported.value);
    let mut summary = SampleSummary {
        n: imported.n.unwrap_or(0),
        min: imported.min,
        q1: percentile("p25"),
        median: is("median")
            .or_else(|| is("median of repeated runs"))
            .or_else(|| percentile("p50")),
        q3: percentile("p75"),
        p90: percentile("p90"),
        p99: percentile("p99"),
        p999: percentile("p99.9").or_else(|| percentile("p999")),
        max: imported.max,
        // The share of all that arrived is the mean over them.
        mean: is("mean").or_else(|| is("total")),
        ..SampleSummary::default()
    };
    if summary.median.is_none() && summary.mean.is_none() {
        summary.printed = Some(imported.value);
    }
    let flags = vec![format!(
        "imported: {} printed this ({}); no launches, no interval, percentiles as it printed them",
        imported.tool, imported.statistic
    )];
    Some(cell_result(cell, summary, CpuCost::default(), BTreeMap::new(), flags))
}

fn cell_result(
    cell: &Cell,
    summary: SampleSummary,
    cpu: CpuCost,
    counters: BTreeMap<String, u64>,
    flags: Vec<String>,
) -> CellResult {
    CellResult {
        experiment: cell.experiment.clone(),
        factors: factors(cell),
        response: cell.response.clone(),
        unit: cell.unit.clone(),
        better: direction(cell.better).to_owned(),
        summary,
        cpu,
        counters,
        flags,
    }
}

/// The factors of a cell as JSON values.
pub(crate) fn factors(cell: &Cell) -> BTreeMap<String, serde_json::Value> {
    factor_values(&cell.factors)
}

/// Factors as JSON values.
pub fn factor_values(factors: &Factors) -> BTreeMap<String, serde_json::Value> {
    factors.0.iter().map(|(name, level)| (name.clone(), value(level))).collect()
}

fn value(level: &FactorLevel) -> serde_json::Value {
    match level {
        FactorLevel::Int(n) => (*n).into(),
        FactorLevel::Text(text) => text.clone().into(),
    }
}

/// `lower` or `higher`.
pub(crate) const fn direction(better: Better) -> &'static str {
    match better {
        Better::Lower => "lower",
        Better::Higher => "higher",
    }
}

/// Why a cell without numbers has none, and in which state it is.
pub(crate) fn missing_reason(status: &CellStatus) -> (&'static str, String) {
    match status {
        CellStatus::Open => ("open", "not measured yet".to_owned()),
        CellStatus::Done(why) => ("failed", format!("ended ({why}) without a sample")),
        CellStatus::Unavailable(why) => ("unavailable", why.clone()),
        CellStatus::Failed(why) => ("failed", why.clone()),
    }
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small positive test values"
)]
mod tests {
    use plumb_base::stats::histogram::Histogram;

    use super::*;
    use crate::fixture::{SyntheticDesign, SyntheticRun, local};

    fn one(synthetic: &SyntheticRun) -> CellResult {
        measured_cells(&synthetic.data)[0].result()
    }

    fn pipe(design: SyntheticDesign) -> SyntheticRun {
        let mut synthetic = SyntheticRun::new(1);
        synthetic.design = design;
        synthetic.measure("latency.local", "latency", local("pipe", "same-cpu", 64), 1000.0);
        synthetic
    }

    #[test]
    fn a_known_median_lies_in_its_interval_and_quartiles_around_it() {
        let result = one(&pipe(SyntheticDesign::default()));
        let summary = &result.summary;
        let [lo, hi] = summary.ci95.unwrap();
        assert!(lo < 1000.0 && 1000.0 < hi && hi - lo < 20.0, "{lo}–{hi}");
        let (q1, q3) = (summary.q1.unwrap(), summary.q3.unwrap());
        // A normal spread of 5 % has its quartiles 0.674 standard deviations away.
        assert!((q1 - 966.3).abs() < 5.0 && (q3 - 1033.7).abs() < 5.0, "{q1} {q3}");
        assert_eq!((summary.launches, summary.n), (10, 4000));
        assert!(summary.modes.is_empty() && summary.mean.is_some());
        assert_eq!(result.counters["short_reads"], 10);
    }

    #[test]
    fn a_percentile_beyond_the_effective_sample_is_refused_with_what_it_needs() {
        let result =
            one(&pipe(SyntheticDesign { rounds: 5, samples: 60, ..SyntheticDesign::default() }));
        assert!(result.summary.p90.is_some());
        assert_eq!(result.summary.p99, None);
        let flag = result.flags.iter().find(|flag| flag.starts_with("p99 refused")).unwrap();
        assert!(flag.starts_with("p99 refused: needs 368 effective samples, has "), "{flag}");
    }

    /// The p99 of launches of 2,000 samples, of which so many are slow at random places.
    fn with_slow(launches: u32, slow: i32) -> CellResult {
        let mut synthetic = SyntheticRun::new(9);
        let cell = synthetic.cell("latency.local", "latency", local("pipe", "same-cpu", 64)).id;
        for round in 0..launches {
            let at = |i: i32| (i * 7_919 + round.cast_signed() * 131) % 2_000;
            let slow = |i: i32| if at(i) < slow { 200.0 * f64::from(at(i) % 50 + 10) } else { 0.0 };
            let samples = (0..2_000).map(|i| 100.0 + f64::from(at(i) % 97) / 10.0 + slow(i));
            synthetic.block(cell, round, samples.collect());
        }
        one(&synthetic)
    }

    #[test]
    fn a_percentile_is_printed_with_its_interval_from_five_launches_on() {
        let summary = with_slow(5, 60).summary;
        let [lo, hi] = summary.p99_ci95.unwrap();
        let p99 = summary.p99.unwrap();
        assert!(lo <= p99 && p99 <= hi && lo < hi, "{lo} {p99} {hi}");
        let few = with_slow(4, 60);
        assert_eq!((few.summary.p99, few.summary.p99_ci95), (None, None));
        assert!(few.flags.contains(&"p99 refused: needs 5 launches, has 4".to_owned()));
    }

    #[test]
    fn a_percentile_whose_interval_says_nothing_is_refused() {
        // The slow samples are about 1 % of all, so the true p99 may be among them or not.
        let result = with_slow(5, 20);
        assert_eq!(result.summary.p99, None, "{:?}", result.summary.p99_ci95);
        let flag = result.flags.iter().find(|flag| flag.starts_with("p99 refused")).unwrap();
        assert!(flag.contains("launches would do"), "{flag}");
    }

    #[test]
    fn the_effective_size_that_the_worker_found_is_taken() {
        let mut synthetic = pipe(SyntheticDesign::default());
        for block in &mut synthetic.data.blocks {
            block.n_eff = Some([100.0, 50.0, 10.0, 1.0]);
        }
        let result = one(&synthetic);
        assert!((result.summary.n_eff - 1_000.0).abs() < 1e-9);
        assert!(result.summary.p90.is_some() && result.summary.p99.is_none());
        let told = "p99 refused: needs 368 effective samples, has 100; about 37 launches would do";
        assert!(result.flags.contains(&told.to_owned()), "{:?}", result.flags);
    }

    #[test]
    fn correlated_samples_count_for_less() {
        let mut synthetic = SyntheticRun::new(2);
        let cell = synthetic.cell("latency.local", "latency", local("pipe", "same-cpu", 64)).id;
        for round in 0..5 {
            // Every value ten times over: a tenth of the samples is new.
            let samples = (0..400).map(|i| 1000.0 + f64::from((i / 10) * 7919 % 41)).collect();
            synthetic.block(cell, round, samples);
        }
        let result = one(&synthetic);
        assert_eq!(result.summary.n, 2000);
        assert!(result.summary.n_eff < 500.0, "{}", result.summary.n_eff);
    }

    #[test]
    fn a_block_in_which_nothing_got_through_is_told_and_counted_beside_the_others() {
        let mut synthetic = pipe(SyntheticDesign::default());
        let (plain, blocks) = (one(&synthetic), synthetic.data.blocks.len());
        let mut empty = synthetic.data.blocks[0].clone();
        (empty.n, empty.pass) = (0, 1);
        empty.samples.clear();
        empty.counters = [("lost".to_owned(), 5)].into();
        empty.flags = vec!["nothing-delivered: 5 messages in a row were lost".to_owned()];
        synthetic.data.blocks.push(empty);
        let result = one(&synthetic);
        assert_eq!(result.summary, plain.summary);
        assert_eq!(result.counters["lost"], 5);
        let told = format!("nothing-delivered: 1 of {} blocks", blocks + 1);
        assert!(result.flags.contains(&told), "{:?}", result.flags);
    }

    #[test]
    fn every_figure_of_another_tool_has_a_place_in_the_summary() {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/tests/fixtures/");
        for file in std::fs::read_dir(fixtures).unwrap() {
            let file = file.unwrap();
            let bytes = std::fs::read(file.path()).unwrap();
            let format = plumb_store::import::detect(&bytes);
            let runs = format.map(|format| plumb_store::import::parse(format, &bytes));
            for cell in runs.into_iter().flatten().flatten().flat_map(|run| run.cells) {
                let Some(result) = imported(&cell) else { continue };
                let SampleSummary { median, mean, printed, .. } = result.summary;
                let value = cell.imported.map(|summary| summary.value);
                assert!([median, mean, printed].contains(&value), "{:?}: {value:?}", file.path());
            }
        }
    }

    #[test]
    fn a_discarded_start_is_told_with_its_share_and_side() {
        let mut synthetic = pipe(SyntheticDesign::default());
        for (index, block) in synthetic.data.blocks.iter_mut().enumerate() {
            block.warmup = 100;
            let side = if index < 3 { "warm-up-above" } else { "warm-up-below" };
            block.flags.push(side.to_owned());
        }
        let told = "warm-up: 20% of the samples left out, above what followed in 3 blocks and below \
                    it in 7";
        let flags = one(&synthetic).flags;
        assert!(flags.contains(&told.to_owned()), "{flags:?}");
    }

    #[test]
    fn two_modes_are_shown_and_the_mean_is_withheld() {
        let mut synthetic = SyntheticRun::new(3);
        let cell = synthetic.cell("latency.local", "latency", local("pipe", "other-cpu", 64)).id;
        for round in 0..6 {
            let at = |i: i32| if i % 10 < 7 { 1000.0 } else { 5000.0 };
            let samples = (0..300).map(|i| at(i * 7) + f64::from(i * 37 % 101)).collect();
            synthetic.block(cell, round, samples);
        }
        let result = one(&synthetic);
        assert_eq!(result.summary.modes.len(), 2, "{:?}", result.summary.modes);
        assert_eq!(result.summary.mean, None);
        assert!(result.flags.iter().any(|flag| flag.starts_with("modes: 2")));
    }

    #[test]
    fn the_ticks_of_a_coarse_clock_are_not_modes() {
        let mut synthetic =
            pipe(SyntheticDesign { samples: 1_000, spread: 0.01, ..SyntheticDesign::default() });
        for block in &mut synthetic.data.blocks {
            // Half a round trip, by a clock that ticks every 10 ns.
            block.samples.iter_mut().for_each(|sample| *sample = (*sample / 5.0).round() * 5.0);
        }
        let summary = one(&synthetic).summary;
        assert!(summary.modes.is_empty() && summary.mean.is_some(), "{:?}", summary.modes);
    }

    #[test]
    fn launches_that_agree_to_a_tick_are_known_to_a_tick() {
        let mut synthetic = SyntheticRun::new(6);
        synthetic.data.run.notes.insert("clock.cpu0.resolution_ns".to_owned(), "10".to_owned());
        let factors = local("pipe", "same-cpu", 64);
        synthetic.constant("latency.local", "latency", factors, 2_500.0);
        let summary = one(&synthetic).summary;
        assert_eq!(summary.ci95, Some([2_497.5, 2_502.5]));
        assert_eq!(summary.p99_ci95, Some([2_497.5, 2_502.5]));
        for block in &mut synthetic.data.blocks {
            block.batch = 5;
        }
        assert_eq!(one(&synthetic).summary.ci95, Some([2_499.5, 2_500.5]));
    }

    #[test]
    fn batched_cells_give_no_percentile_above_the_quartile() {
        let mut synthetic = pipe(SyntheticDesign::default());
        for block in &mut synthetic.data.blocks {
            block.batch = 64;
        }
        let result = one(&synthetic);
        assert!(result.summary.q3.is_some());
        assert_eq!((result.summary.p90, result.summary.max), (None, None));
        assert!(result.summary.quantiles.iter().all(|[p, _]| *p <= 0.75));
        assert!(result.flags.iter().any(|flag| flag.starts_with("batched: 64 per sample")));
    }

    #[test]
    fn a_cell_below_the_floor_has_no_numbers_and_says_so() {
        let mut synthetic = pipe(SyntheticDesign::default());
        synthetic.data.blocks[0].flags.push("below-floor".to_owned());
        let result = one(&synthetic);
        assert!(result.summary.median.is_some(), "one of ten withholds nothing");
        assert!(result.flags.contains(&"below-floor: 1 of 10 blocks".to_owned()));
        for block in &mut synthetic.data.blocks[1..] {
            block.flags.push("below-floor".to_owned());
        }
        let result = one(&synthetic);
        assert_eq!(result.summary.median, None);
        assert!(result.summary.quantiles.is_empty());
        assert!(result.flags[0].starts_with("below the floor"), "{:?}", result.flags);
    }

    #[test]
    fn a_histogram_gives_the_same_summary_as_the_samples_it_holds() {
        let raw = pipe(SyntheticDesign { samples: 2_000, ..SyntheticDesign::default() });
        let mut packed = pipe(SyntheticDesign { samples: 2_000, ..SyntheticDesign::default() });
        for block in &mut packed.data.blocks {
            let mut histogram = Histogram::new();
            for sample in &block.samples {
                histogram.record((sample / block.histogram_scale) as u64);
            }
            block.histogram = histogram.encode();
            block.samples.truncate(500);
        }
        let (raw, packed) = (one(&raw).summary, one(&packed).summary);
        for (a, b) in [(raw.median, packed.median), (raw.p99, packed.p99), (raw.max, packed.max)] {
            let (a, b) = (a.unwrap(), b.unwrap());
            assert!((a / b - 1.0).abs() < 2e-3, "{a} {b}");
        }
        assert_eq!(raw.n, packed.n);
        assert!((packed.n_eff / raw.n_eff - 1.0).abs() < 0.3);
    }

    #[test]
    fn an_unreadable_histogram_leaves_the_kept_samples_and_is_told() {
        let mut synthetic = pipe(SyntheticDesign::default());
        for block in &mut synthetic.data.blocks {
            block.n = 1_000_000;
            block.histogram = vec![1, 2, 3];
        }
        let result = one(&synthetic);
        let median = result.summary.median.unwrap();
        assert!((median / 1000.0 - 1.0).abs() < 0.02, "{median}");
        assert!(result.flags.iter().any(|flag| flag.starts_with("histogram unreadable: 10 of 10")));
    }

    #[test]
    fn cpu_cost_is_a_sum_over_a_sum() {
        let mut synthetic = SyntheticRun::new(4);
        let cell = synthetic.cell("latency.local", "latency", local("pipe", "same-cpu", 64)).id;
        for (round, (operations, cpu)) in [(1_u64, 9_000_u64), (9, 9_000)].into_iter().enumerate() {
            let block = synthetic.block(cell, round as u32, vec![1.0; 10]);
            block.effort.operations = operations;
            block.effort.local.process_ns = cpu;
            block.effort.local.user_ns = cpu;
            block.effort.local.system_ns = cpu;
        }
        let cpu = one(&synthetic).cpu;
        assert_eq!(cpu.local, Some(1800.0));
        assert_eq!(cpu.local_kernel_share, Some(0.5));
    }

    #[test]
    fn five_launches_give_no_interval_and_constant_samples_a_point() {
        let mut few = SyntheticRun::new(5);
        few.design.rounds = 5;
        few.measure("latency.local", "latency", local("pipe", "same-cpu", 64), 10.0);
        let result = one(&few);
        assert_eq!(result.summary.ci95, None);
        assert!(result.flags.contains(&"interval refused: needs 6 launches, has 5".to_owned()));
        let mut still = SyntheticRun::new(6);
        let cpu = Factors::default().with("cpu", 0_u64);
        still.constant("clock.resolution", "resolution", cpu, 20.0);
        let summary = one(&still).summary;
        assert_eq!((summary.median, summary.p99), (Some(20.0), Some(20.0)));
        assert_eq!(summary.ci95, Some([20.0, 20.0]));
    }
}
