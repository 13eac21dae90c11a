//! One JSON object a block, one block a line, each complete in itself: `plumb.block/1`.
//!
//! Left out: cells without blocks; they are in the run document.

use std::collections::BTreeMap;
use std::io::Write;

use plumb_base::stats::histogram::Histogram;
use serde::Serialize;

use super::{ExportError, ExportedBlock, exported_blocks};
use crate::record::{BlockUsage, Factors, RunData};

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
    effort: &'a BlockUsage,
    counters: &'a BTreeMap<String, u64>,
    flags: &'a [String],
}

/// Writes the blocks of a run, in the order they were measured, values in the cell's unit.
///
/// # Errors
/// [`ExportError`]; what was written before it stays written.
pub fn write(data: &RunData, output: &mut impl Write) -> Result<(), ExportError> {
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
            effort: &entry.block.effort,
            counters: &entry.block.counters,
            flags: &entry.block.flags,
        };
        serde_json::to_writer(&mut *output, &line).map_err(std::io::Error::from)?;
        output.write_all(b"\n")?;
    }
    Ok(())
}

/// The histogram of a block as values in the cell's unit, each with its count.
fn counts(entry: &ExportedBlock<'_>) -> Result<Option<Vec<(f64, u64)>>, ExportError> {
    if entry.block.histogram.is_empty() {
        return Ok(None);
    }
    let histogram =
        Histogram::decode(&entry.block.histogram).map_err(|source| entry.unreadable(source))?;
    let scale = entry.block.histogram_scale;
    let counts = histogram.iter_recorded().map(|(value, count)| (value as f64 * scale, count));
    Ok(Some(counts.collect()))
}
