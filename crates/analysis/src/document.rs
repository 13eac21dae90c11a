//! The run document, `plumb.run/1`: what `--json` prints and every page is made from.
//!
//! One shape for people's pages and machines' pipes, published as JSON Schema in `docs/schema/`.
//! The documents of the other commands are beside it, one file each. Left out: how their numbers
//! are computed (`crate::summary`, `crate::claim`, `crate::compare`).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub mod advise;
pub mod compare;
pub mod display;
pub mod explain;
pub mod host;
pub mod host_notes;
pub mod link;
pub mod list;
pub mod model;
pub mod scale;
pub mod schema;
pub mod sim;
pub mod stack;

/// The name of this document's shape.
pub const RUN_SCHEMA: &str = "plumb.run/1";

/// The note that names the link that a whole run was measured behind: its text.
pub const OUTER_LINK: &str = "link.outer";

/// The note that says what that link was at the run's end, where it changed meanwhile: its text.
pub const OUTER_LINK_AFTER: &str = "link.outer.after";

/// A whole run, summarised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunDocument {
    /// Always `plumb.run/1`.
    pub schema: String,
    /// The run's identity and state.
    pub run: RunHeader,
    /// The machine and its settings.
    pub machine: BTreeMap<String, String>,
    /// Facts about the measurement: calibration, why it stopped.
    pub notes: BTreeMap<String, String>,
    /// Whether the run is to be trusted, and why not.
    pub trust: RunTrust,
    /// One entry for each measured cell.
    pub results: Vec<CellResult>,
    /// Cells without numbers, each with its reason.
    pub unavailable: Vec<UnavailableCell>,
    /// Verdicts on published claims.
    pub claims: Vec<ClaimVerdict>,
    /// The documents that make these claims, each with all its testable statements counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub statements: Vec<DocumentStatements>,
    /// Verdicts on statements of our own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expectations: Vec<ExpectationVerdict>,
    /// Mechanisms in order of their medians, beside the published order where there is one.
    #[serde(default)]
    pub ranks: Vec<RankTable>,
    /// What it costs to cross each boundary, cheapest first; empty unless this run is a ladder.
    #[serde(default)]
    pub ladder: Vec<LadderRung>,
    /// Where round trips go, one entry for each that was broken down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub breakdowns: Vec<BreakdownSummary>,
    /// Costs of one stack or way over those of another at the same setting.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ratios: Vec<MeasuredRatio>,
}

impl RunDocument {
    /// The command that measures it again; none where another tool has measured it.
    pub fn repeat_command(&self) -> Option<String> {
        if self.run.plan.is_empty() {
            return self.notes.get(host_notes::COMMAND).cloned();
        }
        let options =
            self.notes.get(host_notes::OPTIONS).map_or(String::new(), |text| format!(" {text}"));
        Some(format!("plumb rerun {}{options}", self.run.id))
    }
}

/// Identity and state of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunHeader {
    /// Short id.
    pub id: String,
    /// Study, experiment or plan.
    pub title: String,
    /// RFC 3339, UTC.
    pub created: String,
    /// `running`, `complete`, `interrupted` or `imported`.
    pub status: String,
    /// Seed of every random choice.
    pub seed: u64,
    /// Version and commit of the program that measured.
    pub code: String,
    /// The plan as TOML.
    pub plan: String,
}

/// Rule 10's judgement of the whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunTrust {
    /// Blocks measured; simulated ones do not count here.
    pub blocks: u64,
    /// Blocks disturbed by steal, migration, a slow canary or page faults.
    pub flagged: u64,
    /// False when more than 20 % of the blocks are flagged.
    pub trusted: bool,
    /// Flag → number of blocks.
    pub flags: BTreeMap<String, u64>,
}

/// One measured cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellResult {
    /// Experiment id.
    pub experiment: String,
    /// Every factor; sizes in bytes.
    pub factors: BTreeMap<String, serde_json::Value>,
    /// What was measured.
    pub response: String,
    /// `ns`, `B/s`, `B`, `count` or `share`.
    pub unit: String,
    /// `lower` or `higher`.
    pub better: String,
    /// The distribution, with its interval.
    pub summary: SampleSummary,
    /// CPU nanoseconds per operation; null where nothing was recorded.
    pub cpu: CpuCost,
    /// Totals of everything counted.
    pub counters: BTreeMap<String, u64>,
    /// What a reader must know: refused percentiles, batching, modes, disturbances, why it stopped.
    pub flags: Vec<String>,
}

impl CellResult {
    /// The level of a factor, where it is a word.
    pub fn text(&self, factor: &str) -> Option<&str> {
        self.factors.get(factor).and_then(serde_json::Value::as_str)
    }

    /// The level of a factor that is a word; empty where it has none.
    pub fn level(&self, factor: &str) -> &str {
        self.text(factor).unwrap_or("")
    }

    /// The level of a factor, where it is a whole number.
    pub fn number(&self, factor: &str) -> Option<u64> {
        self.factors.get(factor).and_then(serde_json::Value::as_u64)
    }
}

/// Five-number summary, percentiles and interval, all in the cell's unit.
///
/// A number is null when the sample cannot support it; the reason is in the cell's flags.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SampleSummary {
    /// Fresh pairs of processes behind it.
    pub launches: u64,
    /// Samples.
    pub n: u64,
    /// Effective number of independent samples for quartiles and median, autocorrelation counted.
    /// For p90 and above, samples that are large together count once; their flags say how many.
    pub n_eff: f64,
    /// Smallest sample.
    pub min: Option<f64>,
    /// First quartile.
    pub q1: Option<f64>,
    /// Median.
    pub median: Option<f64>,
    /// Third quartile.
    pub q3: Option<f64>,
    /// 90th percentile. Of response `latency`, this and those above are of half round trips: a stall
    /// of one way counts half.
    pub p90: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p999: Option<f64>,
    /// 95 % interval of the 90th percentile over launches; there whenever the percentile was measured
    /// over launches.
    pub p90_ci95: Option<[f64; 2]>,
    /// The same of the 99th.
    pub p99_ci95: Option<[f64; 2]>,
    /// The same of the 99.9th.
    pub p999_ci95: Option<[f64; 2]>,
    /// Largest sample; null where samples are means of batches.
    pub max: Option<f64>,
    /// Mean; withheld where there are several modes.
    pub mean: Option<f64>,
    /// What another tool printed without saying which statistic it is.
    #[serde(default)]
    pub printed: Option<f64>,
    /// 95 % interval of the median over launches.
    pub ci95: Option<[f64; 2]>,
    /// Centres and shares of the modes, when there is more than one.
    pub modes: Vec<DistributionMode>,
    /// A few dozen evenly spaced quantiles (p, value), for figures.
    pub quantiles: Vec<[f64; 2]>,
    /// The median of every launch, in launch order, for figures.
    pub launch_medians: Vec<f64>,
}

/// One mode of a distribution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DistributionMode {
    /// Where it peaks.
    pub value: f64,
    /// Share of the samples nearest to it.
    pub share: f64,
}

/// CPU nanoseconds per operation, by who paid.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuCost {
    /// The side that times (process clock).
    pub local: Option<f64>,
    /// Of that, the share spent in the kernel (getrusage), 0–1.
    pub local_kernel_share: Option<f64>,
    /// The other side.
    pub peer: Option<f64>,
    /// Of that, the share spent in the kernel.
    pub peer_kernel_share: Option<f64>,
    /// Softirq time of the CPUs used. Unless the kernel times interrupts (`kernel.cpu_accounting` of
    /// the machine), it is also in the times of both sides: do not add them.
    pub softirq: Option<f64>,
    /// Wall time per operation, to compare the above with.
    pub wall: Option<f64>,
    /// Voluntary context switches per operation, both sides.
    pub switches: Option<f64>,
}

/// A cell without numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnavailableCell {
    /// Experiment id.
    pub experiment: String,
    /// Every factor.
    pub factors: BTreeMap<String, serde_json::Value>,
    /// What would have been measured.
    pub response: String,
    /// `open`, `unavailable` or `failed`.
    pub state: String,
    /// Why.
    pub reason: String,
}

/// The verdict on one published claim, computed from the results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimVerdict {
    /// Stable id: `ipc.latency.pipe-slower-than-sockets`.
    pub id: String,
    /// The experiment that re-tests it.
    pub experiment: String,
    /// The claim, in one sentence.
    pub claim: String,
    /// Where it was published.
    pub source: String,
    /// The historical figure, where the document gives one.
    pub historical: Option<String>,
    /// The published numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<PublishedNumber>,
    /// `holds`, `does not hold` or `not decided`.
    pub verdict: String,
    /// The effect that decided, in words with numbers.
    pub effect: String,
    /// Ratio or difference behind the verdict, and its 95 % interval, where there is one.
    pub estimate: Option<f64>,
    /// The interval.
    pub ci95: Option<[f64; 2]>,
    /// What it would take to decide; empty when decided.
    pub needs: String,
}

/// How many testable statements of one document are judged, and what is to judge the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DocumentStatements {
    /// `ipc`, `scaling`, `stack`, `gigabit` or `distributed`.
    pub document: String,
    /// Statements of it that a measurement or a simulation could decide.
    pub testable: u64,
    /// Of those, the ones that some experiment judges.
    pub encoded: u64,
    /// Of those, the ones that were judged in this run, whatever the verdict.
    pub judged: u64,
    /// The others by the experiment that is to decide them, `none` where none is planned: ids.
    pub open: BTreeMap<String, Vec<String>>,
}

/// A published number, beside what is measured here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublishedNumber {
    /// What it is of.
    pub label: String,
    /// The number.
    pub value: f64,
    /// `ns`, `B/s`, `B`, `count` or `share`; a ratio is a count.
    pub unit: String,
    /// Table, figure or section.
    pub place: String,
    /// The same quantity as measured here; null where nothing measured is.
    #[serde(default)]
    pub now: Option<f64>,
    /// What is measured here as a multiple of what was published.
    pub ratio: Option<f64>,
}

/// A verdict on a statement of our own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExpectationVerdict {
    /// Stable id.
    pub id: String,
    /// The experiment that tests it.
    pub experiment: String,
    /// What is expected, in one sentence.
    pub statement: String,
    /// What it rests on.
    pub basis: String,
    /// `holds`, `does not hold` or `not decided`.
    pub verdict: String,
    /// The effect that decided, in words with numbers.
    pub effect: String,
    /// Ratio or quantity behind the verdict.
    pub estimate: Option<f64>,
    /// Its 95 % interval.
    pub ci95: Option<[f64; 2]>,
    /// What it would take to decide; empty when decided.
    pub needs: String,
}

/// Mechanisms ordered by one response at one size, placement and wake mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankTable {
    /// Experiment id.
    pub experiment: String,
    /// `latency`, `throughput` or `throughput.acked`.
    pub response: String,
    /// `ns` or `B/s`.
    pub unit: String,
    /// Message size in bytes.
    pub size: i64,
    /// Placement of both processes.
    pub placement: String,
    /// How the receiver waits.
    pub wake: String,
    /// Best first.
    pub rows: Vec<RankRow>,
    /// The published order at this size, where there is one.
    pub published: Option<PublishedOrder>,
}

/// One mechanism's place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankRow {
    /// Rank, from 1; tied mechanisms share the best rank of their tie.
    pub rank: u32,
    /// Whether the next better or next worse mechanism has the same rank.
    pub tied: bool,
    /// The mechanism.
    pub mechanism: String,
    /// Its median, in the table's unit.
    pub median: f64,
    /// 95 % interval of the median.
    pub ci95: Option<[f64; 2]>,
    /// Cost relative to the first row: 2 is twice as slow.
    pub ratio_to_best: f64,
    /// Its place among the published local mechanisms, from 1.
    pub published_rank: Option<u32>,
    /// Its place among the same mechanisms today, ties sharing the better place.
    pub rank_among_published: Option<u32>,
}

/// A published order and what is left of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublishedOrder {
    /// Where it was published.
    pub source: String,
    /// The local mechanisms it ranks, best first.
    pub order: Vec<String>,
    /// Each pair of that order, judged today.
    pub relations: Vec<RankRelation>,
}

/// One published relation, "`faster` beats `slower`", and whether it holds here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankRelation {
    /// The mechanism published as the better one.
    pub faster: String,
    /// The mechanism published as the worse one.
    pub slower: String,
    /// `holds`, `does not hold` or `not decided`.
    pub verdict: String,
    /// Cost of `slower` over cost of `faster`: above 1 the published order holds.
    pub ratio: Option<f64>,
    /// 95 % interval of the ratio.
    pub ci95: Option<[f64; 2]>,
}

/// One rung: one boundary crossed, one way. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LadderRung {
    /// What is crossed: `clock read`, `empty system call`, `pipe`.
    pub label: String,
    /// Experiment id.
    pub experiment: String,
    /// What was measured.
    pub response: String,
    /// Placement of both processes; null for clocks and kernel calls.
    pub placement: Option<String>,
    /// How the receiver waits; null for clocks and kernel calls.
    pub wake: Option<String>,
    /// Message size in bytes; null for clocks and kernel calls.
    pub size: Option<i64>,
    /// Median.
    pub median: f64,
    /// 95 % interval of the median over launches.
    pub ci95: Option<[f64; 2]>,
    /// First quartile.
    pub q1: Option<f64>,
    /// Third quartile.
    pub q3: Option<f64>,
    /// CPU time of the side that times, for one crossing.
    pub cpu_local: Option<f64>,
    /// CPU time of the other side, for one crossing.
    pub cpu_peer: Option<f64>,
    /// Softirq time of the CPUs used, for one crossing.
    pub cpu_softirq: Option<f64>,
    /// Share of the wall time during which neither side ran, 0–1.
    pub idle_share: Option<f64>,
    /// The median as a multiple of the empty system call of the same run.
    pub calls: Option<f64>,
    /// Where the time goes.
    pub sentence: String,
    /// What a reader must know; the flags of the result.
    pub flags: Vec<String>,
}

/// One round trip in parts, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BreakdownSummary {
    /// Experiment id.
    pub experiment: String,
    /// Every factor; sizes in bytes.
    pub factors: BTreeMap<String, serde_json::Value>,
    /// The parts in the order of the message's path; what is unexplained is apart.
    pub parts: Vec<PartMean>,
    /// The time that no part explains.
    pub unexplained: MeanEstimate,
    /// Its share of the sum, 0–1.
    pub unexplained_share: MeanEstimate,
    /// The sum of the parts' means and of what is unexplained.
    pub sum: f64,
    /// The whole round trip with the probes off, without its slowest fiftieth as the parts are; null
    /// where it was not measured.
    pub whole: Option<MeanEstimate>,
    /// The whole round trip with the probes on, likewise.
    pub probed: Option<MeanEstimate>,
    /// What the probes cost, as a share of the whole; the parts are corrected for it.
    pub probe_cost: Option<MeanEstimate>,
    /// Launches behind it.
    pub launches: u64,
}

/// One part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartMean {
    /// Which: `send-path`, `wake-up`, …
    pub part: String,
    /// Its mean in a round trip, both ways together.
    pub mean: f64,
    /// 95 % interval of the mean over launches.
    pub ci95: Option<[f64; 2]>,
    /// Its share of the sum, 0–1.
    pub share: f64,
}

/// A mean with its interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeanEstimate {
    /// The mean over launches, each with the same weight.
    pub mean: f64,
    /// 95 % interval over launches; null with fewer than three.
    pub ci95: Option<[f64; 2]>,
}

/// What one thing costs as a multiple of what another costs at the same setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredRatio {
    /// Experiment id.
    pub experiment: String,
    /// What was measured.
    pub response: String,
    /// The factors of the cost on top.
    pub of: BTreeMap<String, serde_json::Value>,
    /// The factors of the cost below.
    pub to: BTreeMap<String, serde_json::Value>,
    /// The ratio of their medians: below 1, the first costs less.
    pub ratio: f64,
    /// Its 95 % interval over launches.
    pub ci95: [f64; 2],
}
