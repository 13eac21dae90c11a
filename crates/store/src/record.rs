//! What a stored run says about itself: the vocabulary shared by store, analysis and report.
//!
//! A run holds cells (one experiment, one setting of every factor, one response), launches
//! (fresh pairs of processes) and blocks (one cell measured once, inside one launch). Summaries
//! are never stored for measured cells: they are recomputed from blocks. Left out: how records
//! reach the disk (`crate::sqlite`) and what they mean (`plumb-analysis`).
//!
//! A run is named like `ladder-20261121-7f3a`: short enough to type, sortable by eye, unique in its store.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use plumb_base::units::Unit;
use plumb_result::CpuUsage;
use serde::{Deserialize, Serialize};

/// The level of one factor: a number where it is one (sizes, counts), a word otherwise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FactorLevel {
    /// A whole number; sizes are in bytes.
    Int(i64),
    /// A word, such as `pipe` or `same-cpu`.
    Text(String),
}

impl fmt::Display for FactorLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(n) => n.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl From<&str> for FactorLevel {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for FactorLevel {
    fn from(n: u64) -> Self {
        Self::Int(i64::try_from(n).unwrap_or(i64::MAX))
    }
}

/// The setting of every factor of a cell, ordered by factor name.
///
/// Names in use: `mechanism`, `placement`, `wake`, `size`, `call`, `via`, `clock`, `cpu`,
/// `nodelay`, `quickack`, `buffer`, `congestion`, `loss`, `receiver`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Factors(pub BTreeMap<String, FactorLevel>);

impl Factors {
    /// The level of a factor.
    pub fn level(&self, name: &str) -> Option<&FactorLevel> {
        self.0.get(name)
    }

    /// The level of a factor that is a word.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some(FactorLevel::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The level of a factor that is a number.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.0.get(name) {
            Some(FactorLevel::Int(n)) => Some(*n),
            _ => None,
        }
    }

    /// These factors with one more, or with that one changed.
    #[must_use]
    pub fn with(mut self, name: &str, level: impl Into<FactorLevel>) -> Self {
        self.0.insert(name.to_owned(), level.into());
        self
    }

    /// These factors without one.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.0.remove(name);
        self
    }
}

impl fmt::Display for Factors {
    /// `mechanism=pipe placement=same-cpu size=64`: a stable key, and what people read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, level)) in self.0.iter().enumerate() {
            let gap = if index == 0 { "" } else { " " };
            write!(f, "{gap}{name}={level}")?;
        }
        Ok(())
    }
}

/// Which direction of a response is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Latencies and costs.
    Lower,
    /// Throughputs and delivered shares.
    Higher,
}

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunStatus {
    /// Being measured, or the measuring process was killed.
    Running,
    /// Every planned cell has its result.
    Complete,
    /// Stopped by the user after a block; can be resumed.
    Interrupted,
    /// Read from another tool's file.
    Imported,
}

/// One run: a plan carried out once on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Short, unique: `ladder-20261121-7f3a`.
    pub id: String,
    /// The study or experiment that was asked for: `ladder`, `latency.local`, a plan's name.
    pub title: String,
    /// When it began, in milliseconds since 1970 UTC.
    pub created_unix_ms: i64,
    /// How it stands.
    pub status: RunStatus,
    /// The whole plan, as TOML that `plumb run` accepts: enough for `plumb rerun`.
    pub plan_toml: String,
    /// The seed of every random choice.
    pub seed: u64,
    /// The program's version and commit.
    pub code_version: String,
    /// The machine and its settings (rule 20): `cpu.model`, `kernel.release`, `tcp.congestion`, …
    pub provenance: BTreeMap<String, String>,
    /// Facts about the measurement itself: clock calibration, why it stopped, durations.
    pub notes: BTreeMap<String, String>,
}

impl RunRecord {
    /// The note of an imported run that names its file.
    pub const IMPORT_FILE: &str = "import.file";

    /// Whether it was measured by another tool, or came in a file and so may be of another host.
    pub fn is_imported(&self) -> bool {
        self.status == RunStatus::Imported || self.notes.contains_key(Self::IMPORT_FILE)
    }
}

/// Why a cell has no numbers, or that it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "reason")]
pub enum CellStatus {
    /// Planned; some launches may be stored already.
    Open,
    /// Measured; the reason says what ended it: `precise`, `budget`, `launches`.
    Done(String),
    /// This host cannot do it, and why: a result, not a failure.
    Unavailable(String),
    /// It was tried and went wrong: a peer died, a deadline passed.
    Failed(String),
}

/// One experiment at one setting of its factors, with one response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Unique in its run, counted from 1.
    pub id: i64,
    /// `latency.local`, `call.kernel`, …
    pub experiment: String,
    /// Every factor and its level.
    pub factors: Factors,
    /// What is measured: `latency`, `throughput`, `throughput.acked`, `call`, `resolution`, …
    pub response: String,
    /// The unit of every value of the cell, by its stored name (`ns`, `B/s`, `share`, `count`).
    pub unit: String,
    /// Which direction is good.
    pub better: Better,
    /// Whether there are numbers.
    pub status: CellStatus,
    /// Summary of an imported cell, which has no blocks.
    pub imported: Option<ImportedSummary>,
}

impl Cell {
    /// The unit as a type; unknown names count as plain counts.
    pub fn unit_type(&self) -> Unit {
        Unit::from_name(&self.unit).unwrap_or(Unit::Count)
    }

    /// The key under which the same cell is found in another run.
    pub fn key(&self) -> String {
        format!("{} {} [{}]", self.experiment, self.factors, self.response)
    }
}

/// What another tool printed about a cell; absent where it said nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImportedSummary {
    /// The tool and its version.
    pub tool: String,
    /// Its central figure, in the cell's unit.
    pub value: f64,
    /// Which figure that is: `median`, `mean`, `total`.
    pub statistic: String,
    /// Number of samples behind it.
    pub n: Option<u64>,
    /// Smallest sample.
    pub min: Option<f64>,
    /// Largest sample.
    pub max: Option<f64>,
    /// Percentiles as printed: `p50` → value.
    pub percentiles: BTreeMap<String, f64>,
}

/// One launch: a fresh pair of processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchRecord {
    /// Unique in its run, counted from 1, in the order they were made.
    pub id: i64,
    /// The round of the plan it belongs to: launches of one round are interleaved.
    pub round: u32,
    /// What the launch had in common for all its cells: mechanism, placement, wake mode, options.
    pub group: String,
    /// When it began, in nanoseconds since the run began.
    pub started_ns: i64,
}

/// What the block cost and what disturbed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockUsage {
    /// When it began, in nanoseconds since the run began; unknown of blocks stored before this was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ns: Option<u64>,
    /// The side that times.
    pub local: CpuUsage,
    /// The other side.
    pub peer: CpuUsage,
    /// Softirq and irq time of the CPUs used, from /proc/stat (ticks of 10 ms).
    pub softirq_ns: u64,
    /// Steal time of the CPUs used, from /proc/stat.
    pub steal_ns: u64,
    /// The canary kernel just before the block: its duration on the measuring CPU.
    pub canary_ns: f64,
    /// Wall time of the timed region.
    pub wall_ns: u64,
    /// Operations (round trips, messages or calls) in the timed region.
    pub operations: u64,
}

/// One cell measured once inside one launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleBlock {
    /// The cell.
    pub cell: i64,
    /// The launch.
    pub launch: i64,
    /// Which visit of this launch to the cell, from 0.
    pub pass: u32,
    /// Operations per sample: 1, or more where one would be too short for the clock (rule 2).
    pub batch: u32,
    /// Samples taken after warm-up; `samples` may hold fewer.
    pub n: u64,
    /// Samples discarded as warm-up, by change point.
    pub warmup: u64,
    /// The first samples after warm-up in time order, in the cell's unit, capped.
    pub samples: Vec<f64>,
    /// Every sample after warm-up: HDR histogram, V2 + deflate; its counts are in
    /// `histogram_scale` of the cell's unit. Empty when `samples` holds them all.
    pub histogram: Vec<u8>,
    /// What one histogram count unit is worth in the cell's unit (0.001: picoseconds for ns).
    pub histogram_scale: f64,
    /// Independent samples that all of them are worth for the median, p90, p99 and p99.9, by their
    /// autocorrelation; none where `samples` holds them all, or was not recorded.
    pub n_eff: Option<[f64; 4]>,
    /// CPU time and disturbances.
    pub effort: BlockUsage,
    /// Things counted: `short_reads`, `lost`, `retried`, `corrupted`, `reordered`, `duplicated`, …
    pub counters: BTreeMap<String, u64>,
    /// What was odd: `steal`, `migration`, `canary`, `no-steady-state`, `batched`, `below-floor`, …
    pub flags: Vec<String>,
}

/// A run with everything in it, as analysis wants it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunData {
    /// The run.
    pub run: RunRecord,
    /// Its cells by id.
    pub cells: Vec<Cell>,
    /// Its launches by id.
    pub launches: Vec<LaunchRecord>,
    /// Its blocks in the order they were measured.
    pub blocks: Vec<SampleBlock>,
}

/// Longest title kept in an id.
const SLUG_MAX: usize = 24;

/// The first free id of the form `<title>-<yyyymmdd>-<4 hex digits>`.
///
/// The date is UTC. `random` supplies the digits and, where one is taken, those that follow it;
/// `taken` says whether an id is in use. All 65,536 taken on one day: six digits are used.
///
/// # Errors
/// Those of `taken`.
pub fn new_run_id<E>(
    title: &str,
    now_unix_ms: i64,
    random: u64,
    taken: impl Fn(&str) -> Result<bool, E>,
) -> Result<String, E> {
    let stem = format!("{}-{}", slug(title), day(now_unix_ms));
    let (bits, wide) = (random & 0xffff, (random >> 16) & 0xff);
    for step in 0..=0xffff_u64 {
        let id = format!("{stem}-{:04x}", (bits + step) & 0xffff);
        if !taken(&id)? {
            return Ok(id);
        }
    }
    Ok(format!("{stem}-{wide:02x}{bits:04x}"))
}

/// Lower-case letters and digits of a title, everything else as single dashes.
fn slug(title: &str) -> String {
    let mut slug = String::new();
    for c in title.chars().map(|c| c.to_ascii_lowercase()) {
        if c.is_ascii_alphanumeric() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
        if slug.len() >= SLUG_MAX {
            break;
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { "run".to_owned() } else { slug.to_owned() }
}

/// The UTC date of an instant as eight digits; an instant beyond the calendar gives 00000000.
fn day(unix_ms: i64) -> String {
    match Timestamp::from_millisecond(unix_ms) {
        Ok(instant) => {
            let date = instant.to_zoned(TimeZone::UTC).date();
            format!("{:04}{:02}{:02}", date.year(), date.month(), date.day())
        }
        Err(_) => "00000000".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_title_day_and_digits_that_are_free() {
        let id = |title, now_unix_ms, random, taken: &[&str]| {
            new_run_id(title, now_unix_ms, random, |id| Ok::<_, ()>(taken.contains(&id))).unwrap()
        };
        assert_eq!(id("ladder", 1_795_230_985_000, 0x7f3a, &[]), "ladder-20261121-7f3a");
        assert_eq!(id("Latency.local  (quick)", 0, 1, &[]), "latency-local-quick-19700101-0001");
        assert_eq!(id("…", i64::MAX, 0, &[]), "run-00000000-0000");
        let taken = ["a-19700101-ffff", "a-19700101-0000"];
        assert_eq!(id("a", 0, 0xffff, &taken), "a-19700101-0001");
    }
}
