//! The blocks of a run for other tools: every sample that was kept, nothing summarised.
//!
//! Left out: formats made of summaries (JSON, CSV, Markdown), which begin with analysis.

mod hdr;
mod jsonl;

use std::collections::BTreeMap;
use std::io;

use plumb_base::stats::histogram::HistogramDecodeError;

pub use hdr::write as hdr;
pub use jsonl::write as jsonl;

use crate::record::{Cell, LaunchRecord, RunData, SampleBlock};

/// Why a run was not exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// There is no block to export.
    #[error(
        "run {run} has no blocks to export: {}; summaries are exported as json, csv or markdown",
        if *imported { "it was imported from a tool that prints only summaries" }
        else { "nothing was measured before it ended" }
    )]
    NoBlocks {
        /// The run.
        run: String,
        /// Whether it came from another tool.
        imported: bool,
    },
    /// A block's histogram cannot be read.
    #[error("the histogram of cell {cell} in launch {launch} cannot be read: {source}")]
    Histogram {
        /// The cell.
        cell: i64,
        /// The launch.
        launch: i64,
        /// What is wrong with it.
        source: HistogramDecodeError,
    },
    /// A block belongs to nothing.
    #[error(
        "a block names cell {cell} and launch {launch}, which are not both in the run; the store \
         is damaged: copy the file away and measure into a new one with --store"
    )]
    DanglingBlock {
        /// The cell.
        cell: i64,
        /// The launch.
        launch: i64,
    },
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
        let imported = data.cells.iter().any(|cell| cell.imported.is_some());
        return Err(ExportError::NoBlocks { run: data.run.id.clone(), imported });
    }
    let cells: BTreeMap<i64, &Cell> = data.cells.iter().map(|cell| (cell.id, cell)).collect();
    let launches: BTreeMap<i64, &LaunchRecord> =
        data.launches.iter().map(|launch| (launch.id, launch)).collect();
    data.blocks
        .iter()
        .map(|block| {
            let stray = ExportError::DanglingBlock { cell: block.cell, launch: block.launch };
            match (cells.get(&block.cell), launches.get(&block.launch)) {
                (Some(cell), Some(launch)) => Ok(ExportedBlock { block, cell, launch }),
                _ => Err(stray),
            }
        })
        .collect()
}

impl ExportedBlock<'_> {
    fn unreadable(&self, source: HistogramDecodeError) -> ExportError {
        ExportError::Histogram { cell: self.block.cell, launch: self.block.launch, source }
    }
}

#[cfg(test)]
mod tests;
