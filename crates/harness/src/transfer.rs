//! Transfers over plumb's own TCP, in the worker: the program carries them out, for this crate does not know the stack.

use plumb_clock::Stopwatch;

use crate::effort::{Canary, EffortMeter, KernelTimes};
use crate::mirror::mirror_process::NamedSamples;
use crate::report::{BlockError, BlockOutcome, BlockPartReport, BlockReport, LaunchFault};
use crate::sampler;
use crate::spec::{BlockSpec, TransferPath, TransferSpec};

/// What one block of transfers is given.
#[derive(Clone, Copy, Debug)]
pub struct TransferRun {
    /// Seed of the block.
    pub seed: u64,
    /// Reads the clock.
    pub watch: Stopwatch,
    /// Ticks of the watch to aim at, in real time.
    pub duration_ticks: u64,
}

/// Carries out the transfers of a block; the samples of each response.
pub type RunTransfers = fn(&TransferSpec, &TransferRun) -> Result<NamedSamples, LaunchFault>;

/// Measures a block.
pub(super) fn measure(
    transfer: &TransferSpec,
    block: &BlockSpec,
    run: &TransferRun,
    transfers: RunTransfers,
) -> BlockOutcome {
    let watch = run.watch;
    let canary = Canary::before(watch, block);
    let mut kernel = KernelTimes::new(Vec::new());
    let meter = EffortMeter::start(&mut kernel, watch, block);
    let samples = transfers(transfer, run).map_err(|fault| match fault {
        LaunchFault::Unavailable(reason) => BlockError::Unavailable(reason),
        LaunchFault::Failed(reason) => BlockError::Failed(reason),
    })?;
    let operations = samples.iter().map(|(_, values)| values.len()).max().unwrap_or(0) as u64;
    let effort = meter.stop(&mut kernel, watch, operations);
    let mut report = BlockReport { batch: 1, effort, ..BlockReport::default() };
    report.effort.canary_ns = canary.after();
    if matches!(transfer.path, TransferPath::Virtual(_)) {
        report.flags.push("virtual-time".to_owned());
    }
    for (response, values) in samples {
        // A histogram counts in thousandths of the middle one.
        let middle = values.get(values.len() / 2).copied().unwrap_or(1.0);
        let mut part = BlockReport::default();
        sampler::summarize(&values, (middle / 1_000.0).max(1e-9), block, &mut part);
        let BlockReport { n, samples, histogram, histogram_scale, n_eff, .. } = part;
        report.parts.push(BlockPartReport {
            response,
            n,
            samples,
            histogram,
            histogram_scale,
            n_eff,
        });
    }
    Ok(report)
}
