//! From the words of a launch to the words of the store.

use plumb_harness::report::{BlockReport, CpuUsage, EffortReport};
use plumb_store::record::{BlockUsage, SampleBlock, SideCpu};

/// A block as it is stored.
pub(super) fn block(
    cell: i64,
    launch: i64,
    pass: u32,
    report: BlockReport,
    flags: Vec<String>,
) -> SampleBlock {
    SampleBlock {
        cell,
        launch,
        pass,
        batch: report.batch,
        n: report.n,
        warmup: report.warmup,
        samples: report.samples,
        histogram: report.histogram,
        histogram_scale: report.histogram_scale,
        effort: effort(&report.effort),
        counters: report.counters,
        flags,
    }
}

/// The report of one of several responses that a block gives at once, if it gives it.
pub(super) fn part(report: &BlockReport, response: &str) -> Option<BlockReport> {
    let part = report.parts.iter().find(|part| part.response == response && part.n > 0)?;
    Some(BlockReport {
        n: part.n,
        samples: part.samples.clone(),
        histogram: part.histogram.clone(),
        histogram_scale: part.histogram_scale,
        parts: Vec::new(),
        ..report.clone()
    })
}

fn effort(report: &EffortReport) -> BlockUsage {
    BlockUsage {
        local: side(&report.local),
        peer: side(&report.peer),
        softirq_ns: report.softirq_ns,
        steal_ns: report.steal_ns,
        canary_ns: report.canary_ns,
        wall_ns: report.wall_ns,
        operations: report.operations,
    }
}

fn side(cpu: &CpuUsage) -> SideCpu {
    SideCpu {
        process_ns: cpu.process_ns,
        thread_ns: cpu.thread_ns,
        user_ns: cpu.user_ns,
        system_ns: cpu.system_ns,
        switches_voluntary: cpu.switches_voluntary,
        switches_involuntary: cpu.switches_involuntary,
        page_faults: cpu.page_faults,
        migrations: cpu.migrations,
    }
}
