//! `clock.resolution`: how finely each clock steps, what it costs to read, and how far the CPUs
//! disagree about it.

use plumb_harness::topology::CpuTopology;

use crate::claims::ZHAO;
use crate::prelude::*;

/// Every clock of the system on every CPU.
pub static EXPERIMENT: Experiment = Experiment {
    id: "clock.resolution",
    study: "ipc",
    question: "How short a time can this machine's clocks tell apart, and what does asking cost?",
    hypothesis: "The time-stamp counter steps by about a nanosecond or less and costs tens of \
                 nanoseconds to read; clocks that enter the kernel cost as much as a kernel call.",
    factors: &[
        Factor::of_words("clock", "which clock", &CLOCKS),
        Factor::new("cpu", "on which CPU", FactorDomain::Cpus, Words(&["each"])),
    ],
    responses: &[
        ResponseVariable::time("resolution", "smallest positive step between two readings"),
        ResponseVariable::time("read-cost", "time of one reading"),
        ResponseVariable::time("offset", "how far this CPU's clock is from the first CPU's"),
    ],
    plan_cell,
    analysis: ExperimentAnalysis {
        claims: CLAIMS,
        rung: Some(|result| {
            let clock = result.text("clock").unwrap_or("unnamed");
            (result.response == "read-cost")
                .then(|| RungLabel::local(format!("clock read, {clock}")))
        }),
        ..ExperimentAnalysis::PLAIN
    },
    page: ExperimentPage {
        title: "Clocks: resolution and cost of reading",
        ..ExperimentPage::PLAIN
    },
};

/// The clocks by name.
const CLOCKS: [&str; 8] = [
    "tsc",
    "monotonic",
    "monotonic-raw",
    "monotonic-coarse",
    "realtime",
    "gettimeofday",
    "process-cpu",
    "thread-cpu",
];

/// The clocks that two CPUs may see differently: the others are one per process or thread, or are
/// made from these.
const COMPARED: [&str; 2] = ["tsc", "monotonic"];

/// Most CPUs that the level `each` stands for.
const CPUS_MAX: usize = 8;

fn plan_cell(point: &DesignPoint<'_>) -> CellDecision {
    let clock = point.text("clock").unwrap_or_default().to_owned();
    let Some(cpu) = point.factors.int("cpu").and_then(|cpu| u32::try_from(cpu).ok()) else {
        return Err(Exclusion::impossible("no CPU is given"));
    };
    if !point.topology.allowed().contains(&cpu) {
        let why = format!("CPU {cpu} does not exist here or is not allowed");
        return Err(Exclusion::unavailable(why));
    }
    let there = LaunchGroup { cpu: Some(cpu), ..LaunchGroup::alone() };
    match point.response {
        "resolution" => Ok((there, BlockTask::ClockResolution { clock })),
        "read-cost" => Ok((there, BlockTask::ClockReadCost { clock })),
        _ if !COMPARED.contains(&clock.as_str()) || Some(cpu) == first_cpu(point.topology) => {
            Err(Exclusion::NotApplicable)
        }
        _ => Ok((LaunchGroup::alone(), BlockTask::ClockOffset { clock, cpu })),
    }
}

/// The CPU on which single processes are measured.
fn first_cpu(topology: &CpuTopology) -> Option<u32> {
    topology.pair(CpuPlacement::SameCpu).ok().and_then(|pair| pair.local)
}

/// The CPUs that a level stands for.
pub(crate) fn cpus_of(level: &FactorLevel, topology: &CpuTopology) -> Vec<FactorLevel> {
    let cpus = topology.allowed();
    let chosen: Vec<u32> = match level {
        FactorLevel::Text(word) if word == "first" => first_cpu(topology).into_iter().collect(),
        FactorLevel::Text(_) => {
            let shown = cpus.len().min(CPUS_MAX);
            (0..shown).map(|nth| cpus[nth * cpus.len() / shown]).collect()
        }
        FactorLevel::Int(_) => return vec![level.clone()],
    };
    chosen.into_iter().map(|cpu| u64::from(cpu).into()).collect()
}

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "ipc.clock.resolution-25ns",
        claim: "The clock's resolution is about 25 ns.",
        historical: Some("a median of 25 ns (§IV), i5-4570 at 3.2 GHz"),
        figures: &[PublishedFigure::comparable("clock resolution", 25.0, Unit::Nanoseconds, "§IV")],
        judge: |evidence| judge_all(on_each_cpu(evidence, "monotonic", ABOUT_25).collect(), NEEDS),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.clock.eighty-cycles",
        claim: "About 80 cycles pass between starting and stopping the clock.",
        historical: Some("25 ns at 3.2 GHz (§V)"),
        figures: &[PublishedFigure::ratio("cycles between two readings", 80.0, "§V")],
        judge: eighty_cycles,
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.clock.finer-clock-reaches-1ns",
        claim: "A more precise clock could give a precision closer to 1 ns.",
        historical: Some("a conjecture (§V); nearer to 1 ns than to 25 ns is below 5 ns"),
        figures: &[PublishedFigure::comparable("clock resolution", 1.0, Unit::Nanoseconds, "§V")],
        judge: |evidence| {
            let clocks = ["tsc", "monotonic-raw", "monotonic"].into_iter();
            let cases = clocks.flat_map(|clock| on_each_cpu(evidence, clock, NEARER_1));
            judge_any(cases.collect(), NEEDS)
        },
        ..PublishedClaim::of(ZHAO)
    },
];

const NEEDS: &str = "plumb run clock.resolution";

/// "About 25 ns", taken as within a fifth.
const ABOUT_25: (f64, f64) = (20.0, 30.0);

/// "Closer to 1 ns" than to 25 ns, on the scale of ratios: below √25.
const NEARER_1: (f64, f64) = (0.0, 5.0);

/// The resolution of one clock on every CPU, against bounds in nanoseconds.
fn on_each_cpu(
    evidence: &ClaimEvidence<'_>,
    clock: &'static str,
    bounds: (f64, f64),
) -> impl Iterator<Item = ClaimCase> {
    let cells = evidence.cells(EXPERIMENT.id, "resolution");
    cells.filter(move |cell| cell.is("clock", clock)).map(move |cell| {
        let cpu = cell.cell.factors.level("cpu");
        let cpu = cpu.map_or_else(String::new, |cpu| format!(" on CPU {cpu}"));
        ClaimCase::median_within("", format!("{clock}{cpu}"), cell, bounds)
    })
}

/// Cycles of the time-stamp counter between two readings of the monotonic clock.
fn eighty_cycles(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let Some(ticks) = evidence.note_number("clock.ticks_per_ns").filter(|ticks| *ticks > 0.0)
    else {
        return ClaimJudgment::not_measured(
            "a time-stamp counter whose rate is known; plumb doctor says why not",
        );
    };
    let cases = on_each_cpu(evidence, "monotonic", (64.0 / ticks, 96.0 / ticks));
    let in_cycles = cases.map(|case| {
        let value = case.value.map(|ns| ns * ticks);
        let ci95 = case.ci95.map(|ends| ends.map(|ns| ns * ticks));
        let text = value.map_or(case.text, |cycles| format!("{cycles:.0} cycles"));
        ClaimCase { value, ci95, text, ..case }
    });
    judge_all(in_cycles.collect(), NEEDS)
}
