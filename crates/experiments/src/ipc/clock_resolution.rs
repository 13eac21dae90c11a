//! `clock.resolution`: how finely each clock steps, what it costs to read, and how far the CPUs
//! disagree about it.

use plumb_base::units::Unit;
use plumb_harness::spec::{BlockTask, LaunchSubject};
use plumb_harness::topology::{CpuPlacement, CpuTopology};
use plumb_store::record::{Better, FactorLevel};

use crate::definition::{
    CellDecision, DesignPoint, Exclusion, Experiment, LaunchGroup, ResponseVariable,
};
use crate::factor::{Factor, FactorDomain, always, keep_levels, words};
use plumb_analysis::registry::ExperimentAnalysis;
use plumb_analysis::registry::RungLabel;
use plumb_report::registry::ExperimentPage;

/// Every clock of the system on every CPU.
pub static EXPERIMENT: Experiment = Experiment {
    id: "clock.resolution",
    study: "ipc",
    question: "How short a time can this machine's clocks tell apart, and what does asking cost?",
    hypothesis: "The time-stamp counter steps by about a nanosecond or less and costs tens of \
                 nanoseconds to read; clocks that enter the kernel cost as much as a kernel call.",
    factors: &[
        Factor {
            name: "clock",
            meaning: "which clock",
            domain: FactorDomain::Words(&CLOCKS),
            levels: |_| words(&CLOCKS),
            applies: always,
            fit: keep_levels,
            labels: &[],
        },
        Factor {
            name: "cpu",
            meaning: "on which CPU",
            domain: FactorDomain::Cpus,
            levels: |_| words(&["each"]),
            applies: always,
            fit: keep_levels,
            labels: &[],
        },
    ],
    responses: &[
        ResponseVariable {
            name: "resolution",
            unit: Unit::Nanoseconds,
            better: Better::Lower,
            meaning: "smallest positive step between two readings",
        },
        ResponseVariable {
            name: "read-cost",
            unit: Unit::Nanoseconds,
            better: Better::Lower,
            meaning: "time of one reading",
        },
        ResponseVariable {
            name: "offset",
            unit: Unit::Nanoseconds,
            better: Better::Lower,
            meaning: "how far this CPU's clock is from the first CPU's",
        },
    ],
    plan_cell: form,
    analysis: ExperimentAnalysis {
        claims: claims::CLAIMS,
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

fn form(setting: &DesignPoint<'_>) -> CellDecision {
    let clock = setting.factors.text("clock").unwrap_or_default().to_owned();
    let Some(cpu) = setting.factors.int("cpu").and_then(|cpu| u32::try_from(cpu).ok()) else {
        return CellDecision::impossible("no CPU is given");
    };
    if !setting.topology.allowed().contains(&cpu) {
        let why = format!("CPU {cpu} does not exist here or is not allowed");
        return CellDecision::Excluded(Exclusion::Unavailable(why));
    }
    let on =
        |cpu| LaunchGroup { subject: LaunchSubject::Alone, placement: CpuPlacement::SameCpu, cpu };
    match setting.response {
        "resolution" => CellDecision::Measure {
            group: on(Some(cpu)),
            task: BlockTask::ClockResolution { clock },
        },
        "read-cost" => {
            CellDecision::Measure { group: on(Some(cpu)), task: BlockTask::ClockReadCost { clock } }
        }
        _ if !COMPARED.contains(&clock.as_str()) || Some(cpu) == first_cpu(setting.topology) => {
            CellDecision::NotApplicable
        }
        _ => CellDecision::Measure { group: on(None), task: BlockTask::ClockOffset { clock, cpu } },
    }
}

/// The CPU on which single processes are measured.
pub(crate) fn first_cpu(topology: &CpuTopology) -> Option<u32> {
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

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::ipc::*;
    use plumb_analysis::claim::{
        ClaimCase, ClaimCases, ClaimEvidence, ClaimJudgment, PublishedClaim, PublishedFigure,
        judge_all, judge_any,
    };

    use plumb_base::units::Unit;

    pub(super) const CLAIMS: &[PublishedClaim] = &[
        PublishedClaim {
            id: "ipc.clock.resolution-25ns",
            claim: "The clock's resolution is about 25 ns.",
            source: ZHAO,
            historical: Some("a median of 25 ns (§IV), i5-4570 at 3.2 GHz"),
            figures: &[PublishedFigure::comparable(
                "clock resolution",
                25.0,
                Unit::Nanoseconds,
                "§IV",
            )],
            judge: |evidence| judge_all(on_each_cpu(evidence, "monotonic", ABOUT_25), NEEDS),
        },
        PublishedClaim {
            id: "ipc.clock.eighty-cycles",
            claim: "About 80 cycles pass between starting and stopping the clock.",
            source: ZHAO,
            historical: Some("25 ns at 3.2 GHz (§V)"),
            figures: &[PublishedFigure::comparable(
                "cycles between two readings",
                80.0,
                Unit::Count,
                "§V",
            )],
            judge: eighty_cycles,
        },
        PublishedClaim {
            id: "ipc.clock.finer-clock-reaches-1ns",
            claim: "A more precise clock could give a precision closer to 1 ns.",
            source: ZHAO,
            historical: Some("a conjecture (§V); nearer to 1 ns than to 25 ns is below 5 ns"),
            figures: &[],
            judge: finer_clock,
        },
    ];

    const EXPERIMENT: &str = "clock.resolution";

    const RESPONSE: &str = "resolution";

    const NEEDS: &str = "plumb run clock.resolution";

    /// "About 25 ns", taken as within a fifth.
    const ABOUT_25: (f64, f64) = (20.0, 30.0);

    /// "Closer to 1 ns" than to 25 ns, on the scale of ratios: below √25.
    const NEARER_1: (f64, f64) = (0.0, 5.0);

    /// The resolution of one clock on every CPU, against bounds in nanoseconds.
    fn on_each_cpu(evidence: &ClaimEvidence<'_>, clock: &str, bounds: (f64, f64)) -> ClaimCases {
        let mut pairs = ClaimCases::default();
        for found in evidence.cells(EXPERIMENT, RESPONSE) {
            let factors = &found.cell.factors;
            if factors.text("clock") != Some(clock) {
                continue;
            }
            let cpu = factors.level("cpu").map_or_else(String::new, |cpu| format!(" on CPU {cpu}"));
            let ends = found.interval().map(|interval| [interval.lo, interval.hi]);
            pairs.cases.push(ClaimCase::quantity(
                "",
                format!("{clock}{cpu}"),
                found.median(),
                ends,
                bounds,
                Unit::Nanoseconds,
            ));
        }
        pairs
    }

    /// Cycles of the time-stamp counter between two readings of the monotonic clock.
    fn eighty_cycles(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let Some(ticks) = evidence.note_number("clock.ticks_per_ns").filter(|ticks| *ticks > 0.0)
        else {
            return ClaimJudgment::not_measured(
                "a time-stamp counter whose rate is known; plumb doctor says why not",
            );
        };
        let mut pairs = on_each_cpu(evidence, "monotonic", (64.0 / ticks, 96.0 / ticks));
        for case in &mut pairs.cases {
            case.value = case.value.map(|ns| ns * ticks);
            case.ci95 = case.ci95.map(|ends| ends.map(|ns| ns * ticks));
            if let Some(cycles) = case.value {
                case.text = format!("{cycles:.0} cycles");
            }
        }
        judge_all(pairs, NEEDS)
    }

    fn finer_clock(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let mut pairs = ClaimCases::default();
        for clock in ["tsc", "monotonic-raw", "monotonic"] {
            pairs.cases.extend(on_each_cpu(evidence, clock, NEARER_1).cases);
        }
        judge_any(pairs, NEEDS)
    }
}
