//! An HdrHistogram interval log, version 1.3, as the tools of HdrHistogram.org read it.
//!
//! One line a block, tagged with its cell, so that a log processor asked for a tag merges the
//! blocks of that cell. Times are the launch's, moved on by the blocks before it. Left out: what
//! has no place in such a log (effort, counters, flags).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{
    IntervalLogWriterBuilder, IntervalLogWriterError, Tag,
};
use hdrhistogram::serialization::{Deserializer, V2DeflateSerializer};
use plumb_base::stats::histogram::{Histogram as Stored, HistogramDecodeError};
use plumb_base::units::Unit;

use super::{ExportError, ExportedBlock, exported_blocks};
use crate::record::{Cell, RunData};

/// Writes the blocks of a run as an interval log.
///
/// Values are counts of the scale that a comment names for each tag; HistogramLogProcessor's
/// `-outputValueUnitRatio` turns them into another unit.
///
/// # Errors
/// [`ExportError`]; what was written before it stays written.
pub fn write(data: &RunData, output: &mut impl Write) -> Result<(), ExportError> {
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
        Unit::BytesPerSecond | Unit::Bytes | Unit::Count => 1.0,
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
        Stored::decode(&entry.block.histogram).map_err(|source| entry.unreadable(source))?;
        return Deserializer::new()
            .deserialize(&mut entry.block.histogram.as_slice())
            .map_err(|error| entry.unreadable(HistogramDecodeError::Malformed(error.to_string())));
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
