//! The blocks of a run for other tools: every sample that was kept, nothing summarised.
//!
//! Left out: formats made of summaries (JSON, CSV, Markdown), which begin with analysis.

pub mod run_file;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{
    IntervalLogWriterBuilder, IntervalLogWriterError, Tag,
};
use hdrhistogram::serialization::{Deserializer, V2DeflateSerializer};
use plumb_base::stats::histogram::{Histogram as StoredHistogram, HistogramDecodeError};
use plumb_base::units::Unit;
use serde::Serialize;

use crate::record::{BlockUsage, Cell, Factors, LaunchRecord, RunData, SampleBlock};

/// Why a run was not exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// There is no block to export, or one that cannot be.
    #[error("{0}")]
    Blocks(String),
    /// The output cannot be written.
    #[error("cannot write the export: {0}")]
    Io(#[from] io::Error),
}

/// A block beside what it belongs to.
struct ExportedBlock<'a> {
    block: &'a SampleBlock,
    cell: &'a Cell,
    launch: &'a LaunchRecord,
}

/// The blocks of a run in the order they were measured.
fn exported_blocks(data: &RunData) -> Result<Vec<ExportedBlock<'_>>, ExportError> {
    if data.blocks.is_empty() {
        let why = if data.cells.iter().any(|cell| cell.imported.is_some()) {
            "it was imported from a tool that prints only summaries"
        } else {
            "nothing was measured before it ended"
        };
        return Err(ExportError::Blocks(format!(
            "run {} has no blocks to export: {why}; summaries are exported as json, csv or markdown",
            data.run.id
        )));
    }
    let cells: BTreeMap<i64, &Cell> = data.cells.iter().map(|cell| (cell.id, cell)).collect();
    let launches: BTreeMap<i64, &LaunchRecord> =
        data.launches.iter().map(|launch| (launch.id, launch)).collect();
    data.blocks
        .iter()
        .map(|block| {
            match (cells.get(&block.cell), launches.get(&block.launch)) {
                (Some(cell), Some(launch)) => Ok(ExportedBlock { block, cell, launch }),
                _ => Err(ExportError::Blocks(format!(
                    "a block names cell {} and launch {}, which are not both in the run; the store is damaged: \
                     copy the file away and measure into a new one with --store",
                    block.cell, block.launch
                ))),
            }
        })
        .collect()
}

impl ExportedBlock<'_> {
    fn unreadable(&self, source: &HistogramDecodeError) -> ExportError {
        let SampleBlock { cell, launch, .. } = self.block;
        let text =
            format!("the histogram of cell {cell} in launch {launch} cannot be read: {source}");
        ExportError::Blocks(text)
    }
}

#[derive(Serialize)]
struct JsonBlock<'a> {
    schema: &'static str,
    run: &'a str,
    experiment: &'a str,
    factors: &'a Factors,
    response: &'a str,
    unit: &'a str,
    cell: i64,
    launch: i64,
    round: u32,
    pass: u32,
    batch: u32,
    n: u64,
    warmup: u64,
    /// The first samples in time order; all of them when there is no histogram.
    samples: &'a [f64],
    /// Every sample as value and count, or null when `samples` holds them all.
    histogram: Option<Vec<(f64, u64)>>,
    /// Independent samples they are worth for the median, p90, p99 and p99.9; null where it was
    /// not recorded or `samples` holds them all.
    n_eff: Option<[f64; 4]>,
    effort: &'a BlockUsage,
    counters: &'a BTreeMap<String, u64>,
    flags: &'a [String],
}

/// Writes one JSON object a block, one block a line, each complete in itself: `plumb.block/1`.
///
/// In the order they were measured, values in the cell's unit. Left out: cells without blocks; they
/// are in the run document.
///
/// # Errors
/// [`ExportError`]; what was written before it stays written.
pub fn jsonl(data: &RunData, output: &mut impl Write) -> Result<(), ExportError> {
    for entry in exported_blocks(data)? {
        let line = JsonBlock {
            schema: "plumb.block/1",
            run: &data.run.id,
            experiment: &entry.cell.experiment,
            factors: &entry.cell.factors,
            response: &entry.cell.response,
            unit: &entry.cell.unit,
            cell: entry.cell.id,
            launch: entry.launch.id,
            round: entry.launch.round,
            pass: entry.block.pass,
            batch: entry.block.batch,
            n: entry.block.n,
            warmup: entry.block.warmup,
            samples: &entry.block.samples,
            histogram: counts(&entry)?,
            n_eff: entry.block.n_eff,
            effort: &entry.block.effort,
            counters: &entry.block.counters,
            flags: &entry.block.flags,
        };
        serde_json::to_writer(&mut *output, &line).map_err(io::Error::from)?;
        output.write_all(b"\n")?;
    }
    Ok(())
}

/// The histogram of a block as values in the cell's unit, each with its count.
fn counts(entry: &ExportedBlock<'_>) -> Result<Option<Vec<(f64, u64)>>, ExportError> {
    if entry.block.histogram.is_empty() {
        return Ok(None);
    }
    let histogram = StoredHistogram::decode(&entry.block.histogram)
        .map_err(|source| entry.unreadable(&source))?;
    let scale = entry.block.histogram_scale;
    let counts = histogram.iter_recorded().map(|(value, count)| (value as f64 * scale, count));
    Ok(Some(counts.collect()))
}

/// Writes the blocks of a run as an HdrHistogram interval log, version 1.3, as the tools of
/// HdrHistogram.org read it.
///
/// One line a block, tagged with its cell, so that a log processor asked for a tag merges the
/// blocks of that cell. Times are the launch's, moved on by the blocks before it. Left out: what
/// has no place in such a log (effort, counters, flags).
///
/// Values are counts of the scale that a comment names for each tag; HistogramLogProcessor's
/// `-outputValueUnitRatio` turns them into another unit.
///
/// # Errors
/// [`ExportError`]; what was written before it stays written.
pub fn hdr(data: &RunData, output: &mut impl Write) -> Result<(), ExportError> {
    let entries = exported_blocks(data)?;
    let began = Duration::from_millis(data.run.created_unix_ms.try_into().unwrap_or(0));
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[Histogram log format version 1.3]")
        .add_comment(&format!("[plumb run {}]", data.run.id.replace('\n', " ")))
        .with_start_time(SystemTime::UNIX_EPOCH + began)
        .with_base_time(SystemTime::UNIX_EPOCH + began)
        .begin_log_with(output, &mut serializer)?;
    let mut described: BTreeSet<String> = BTreeSet::new();
    let mut elapsed: BTreeMap<i64, u64> = BTreeMap::new();
    for entry in &entries {
        let scale = scale(entry);
        let tag = tag(entry.cell, scale);
        if described.insert(tag.clone()) {
            log.write_comment(&format!("[Tag {tag}: one count is {scale} {}]", entry.cell.unit))?;
        }
        let before = elapsed.entry(entry.launch.id).or_insert(0);
        let start = entry.launch.started_ns.max(0).unsigned_abs().saturating_add(*before);
        *before = before.saturating_add(entry.block.effort.wall_ns);
        log.write_histogram(
            &histogram(entry, scale)?,
            Duration::from_nanos(start),
            Duration::from_nanos(entry.block.effort.wall_ns),
            Tag::new(&tag),
        )
        .map_err(|error| match error {
            IntervalLogWriterError::IoError(error) => error,
            IntervalLogWriterError::SerializeError(error) => io::Error::other(error.to_string()),
        })?;
    }
    Ok(())
}

/// What one count is worth: the block's own scale, or one fine enough for its unit.
fn scale(entry: &ExportedBlock<'_>) -> f64 {
    let own = entry.block.histogram_scale;
    if own > 0.0 && (!entry.block.histogram.is_empty() || entry.cell.unit_type() != Unit::Share) {
        return own;
    }
    match entry.cell.unit_type() {
        Unit::Nanoseconds => 0.001,
        Unit::Share => 1e-6,
        Unit::BytesPerSecond | Unit::NetworkRate | Unit::Bytes | Unit::Count => 1.0,
    }
}

/// A cell as a tag: no commas, no white space. The scale is part of it, as counts of different
/// worth must not be merged.
fn tag(cell: &Cell, scale: f64) -> String {
    let mut levels = cell.factors.to_string().replace(' ', ":");
    if !levels.is_empty() {
        levels.insert(0, ':');
    }
    let tag = format!("{}:{}{levels}@{scale}{}", cell.experiment, cell.response, cell.unit);
    tag.replace(|c: char| c == ',' || c.is_whitespace() || c.is_control(), "_")
}

/// Every sample of a block: its stored histogram, or one made of its samples.
fn histogram(entry: &ExportedBlock<'_>, scale: f64) -> Result<Histogram<u64>, ExportError> {
    if !entry.block.histogram.is_empty() {
        // The stored form is checked first, as the deserialiser trusts sizes that it is told.
        StoredHistogram::decode(&entry.block.histogram)
            .map_err(|source| entry.unreadable(&source))?;
        return Deserializer::new().deserialize(&mut entry.block.histogram.as_slice()).map_err(
            |error| entry.unreadable(&HistogramDecodeError::Malformed(error.to_string())),
        );
    }
    let mut histogram = Histogram::new(3).expect("three digits are allowed");
    for sample in &entry.block.samples {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float cast saturates; a negative sample counts as 0"
        )]
        let count = (sample / scale).round() as u64;
        histogram.record(count).expect("a growing histogram takes every value");
    }
    Ok(histogram)
}

#[cfg(test)]
mod tests;
