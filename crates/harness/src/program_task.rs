//! Blocks that the program carries out itself, in the worker: this crate knows neither the stack, the simulator nor the display.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use plumb_clock::Stopwatch;
use plumb_sys::clock::{self, ClockId};
use plumb_sys::{fd, process, sched};

use crate::effort::{Canary, EffortMeter, KernelTimes};
use crate::mirror::mirror_process::NamedSamples;
use crate::page_load::FetchPage;
use crate::report::{BlockError, BlockOutcome, BlockReport, LaunchFault, summarize_part};
use crate::spec::{
    BlockSpec, BlockTask, DisplayPath, DisplaySpec, SimulationSpec, TransferPath, TransferSpec,
};

/// Flag of a block whose samples are of virtual time.
pub const SIMULATED: &str = "simulated";

/// What one block is given.
#[derive(Clone, Copy, Debug)]
pub struct ProgramRun {
    /// Seed of the block.
    pub seed: u64,
    /// Reads the clock.
    pub watch: Stopwatch,
    /// Ticks of the watch to aim at, in real time.
    pub duration_ticks: u64,
    /// The CPU of a second thread.
    pub cpu_peer: Option<u32>,
}

/// Binds the calling thread to a CPU: that of [`ProgramRun::cpu_peer`], for a second thread.
///
/// # Errors
/// The CPU is not this process's to use.
pub fn bind_thread(cpu: u32) -> io::Result<()> {
    sched::bind(&[cpu])
}

/// Raises the calling thread's nice value by 10, which needs no privilege.
///
/// # Errors
/// The kernel refuses it.
pub fn hold_thread_back() -> io::Result<()> {
    sched::set_nice((sched::nice()? + 10).min(19))
}

/// What this process has cost so far, all its threads together.
#[derive(Clone, Copy, Debug)]
pub struct ProcessCost {
    /// CPU time.
    pub cpu_ns: u64,
    /// Context switches.
    pub switches: u64,
}

/// Reads it.
pub fn process_cost() -> ProcessCost {
    let usage = process::usage().unwrap_or_default();
    ProcessCost {
        cpu_ns: clock::read_ns(ClockId::ProcessCpu),
        switches: usage.switches_voluntary + usage.switches_involuntary,
    }
}

/// Page faults of this process when the block under way had prepared itself, and one; 0 while it has not. A worker has one block at a time.
static PREPARED: AtomicU64 = AtomicU64::new(0);

/// Ends the preparation of a block: page faults before, of memory and threads that did not exist, disturb no sample.
pub fn end_preparation() {
    let faults = process::usage().unwrap_or_default().page_faults;
    PREPARED.store(faults + 1, Ordering::Relaxed);
}

/// A terminal in raw mode: the side of whoever emulates it, and the program's.
///
/// # Errors
/// The kernel has none left.
pub fn raw_terminal() -> io::Result<(File, File)> {
    fd::raw_terminal().map(|(emulator, program)| (emulator.into(), program.into()))
}

/// Carries out the transfers of a block; the samples of each response.
pub type RunTransfers = fn(&TransferSpec, &ProgramRun) -> Result<NamedSamples, LaunchFault>;

/// Simulates a cell; the samples of each response.
pub type SimulateCell = fn(&SimulationSpec, &ProgramRun) -> Result<NamedSamples, LaunchFault>;

/// Draws on a display for a block; the samples of each response.
pub type DrawPictures = fn(&DisplaySpec, &ProgramRun) -> Result<NamedSamples, LaunchFault>;

/// What the program does in a worker.
#[derive(Clone, Copy, Debug)]
pub struct ProgramTasks {
    /// Fetches a page.
    pub fetch: FetchPage,
    /// Carries out transfers.
    pub transfers: RunTransfers,
    /// Simulates a cell.
    pub simulate: SimulateCell,
    /// Draws on a display.
    pub draw: DrawPictures,
}

/// Carries out a block, where it is one of the program's.
pub(super) fn measure(
    tasks: &ProgramTasks,
    block: &BlockSpec,
    run: &ProgramRun,
) -> Option<BlockOutcome> {
    match &block.task {
        BlockTask::Transfer(transfer) => {
            let is_virtual = matches!(transfer.path, TransferPath::Virtual(_));
            Some(report(block, run, is_virtual, || (tasks.transfers)(transfer, run)))
        }
        BlockTask::Simulation(simulation) => {
            Some(report(block, run, true, || (tasks.simulate)(simulation, run)))
        }
        BlockTask::Display(display) => {
            let is_virtual = matches!(display.path, DisplayPath::Virtual { .. });
            Some(report(block, run, is_virtual, || (tasks.draw)(display, run)))
        }
        _ => None,
    }
}

/// The report of what `samples` gives.
fn report(
    block: &BlockSpec,
    run: &ProgramRun,
    is_virtual: bool,
    samples: impl FnOnce() -> Result<NamedSamples, LaunchFault>,
) -> BlockOutcome {
    let watch = run.watch;
    let canary = Canary::before(watch, block);
    let mut kernel = KernelTimes::new(Vec::new());
    let meter = EffortMeter::start(&mut kernel, watch, block);
    PREPARED.store(0, Ordering::Relaxed);
    let samples = samples().map_err(|fault| match fault {
        LaunchFault::Unavailable(reason) => BlockError::Unavailable(reason),
        LaunchFault::Failed(reason) => BlockError::Failed(reason),
    })?;
    let operations = samples.iter().map(|(_, values)| values.len()).max().unwrap_or(0) as u64;
    let effort = meter.stop(&mut kernel, watch, operations);
    let mut report = BlockReport { batch: 1, effort, ..BlockReport::default() };
    if let Some(prepared) = PREPARED.load(Ordering::Relaxed).checked_sub(1) {
        let faults = process::usage().unwrap_or_default().page_faults;
        report.effort.local.page_faults = faults.saturating_sub(prepared);
    }
    report.effort.canary_ns = canary.after();
    if is_virtual {
        report.flags.push(SIMULATED.to_owned());
    }
    for (response, values) in samples {
        // A histogram counts in thousandths of the middle one.
        let middle = values.get(values.len() / 2).copied().unwrap_or(1.0);
        let scale = (middle / 1_000.0).max(1e-9);
        report.parts.push(summarize_part(response, &values, scale, block));
    }
    Ok(report)
}
