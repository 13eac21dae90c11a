//! `host.interrupt`: what one interrupt takes from the process that it interrupts.
//!
//! A timer's, because no card can be made to interrupt without a packet, whose processing would be timed with it. On
//! a virtual machine the hypervisor's part is in it.

use crate::claims::WEIGLE;
use crate::pages::of;
use crate::prelude::*;

/// The gap in a process that spins.
pub static EXPERIMENT: Experiment = Experiment {
    id: "host.interrupt",
    study: "gigabit",
    question: "What does it cost to leave a process for an interrupt handler and to come back?",
    hypothesis: "It takes longer than 2,000 cycles, because the entry has become costlier since 2001.",
    factors: &[Factor::of_words("source", "what interrupts", &["timer"])],
    responses: &[ResponseVariable::time(
        "interrupt",
        "time that an interrupt takes from a process, from its last instruction to its next",
    )],
    plan_cell: |_| Ok((LaunchGroup::alone(), BlockTask::Interrupt)),
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage { title: "An interrupt", sentences, ..ExperimentPage::PLAIN },
};

const CLAIMS: &[PublishedClaim] = &[PublishedClaim {
    id: "gigabit.mtu.interrupts-need-a-processor",
    claim: "An interrupt without any other processing takes so many cycles that 10 Gb/s in packets of 1,500 bytes, \
            each with an interrupt, need a processor of 1.6 GHz for the interrupts alone (judged by a timer's \
            interrupts, not a card's).",
    historical: Some("830,000 packets/s × 2,000 cycles = 1.6 GHz"),
    figures: &[PublishedFigure::comparable(
        "cycles a second",
        CYCLES_A_SECOND,
        Unit::Count,
        "830,000 packets/s × 2,000 cycles",
    )],
    judge: interrupts_need_a_processor,
    ..PublishedClaim::of(WEIGLE)
}];

/// The packets of the published sum.
const PACKETS_A_SECOND: f64 = 10e9 / 8.0 / 1_500.0;

const CYCLES_A_SECOND: f64 = 1.6e9;

/// The cycles of one interrupt times the packets of 10 Gb/s.
fn interrupts_need_a_processor(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let Some(ticks_per_ns) = evidence.note_number("clock.ticks_per_ns") else {
        return ClaimJudgment::not_measured(
            "a machine whose counter of cycles ticks at a known rate",
        );
    };
    let needed = |ns: f64| ns * ticks_per_ns * PACKETS_A_SECOND;
    let case = |cell: &MeasuredCell<'_>| {
        let cycles = significant(cell.median() * ticks_per_ns, 3);
        let label = format!("{} interrupts of {cycles} cycles, a second:", cell.level("source"));
        let ends = cell.ends().map(|ends| ends.map(needed));
        let bounds = (CYCLES_A_SECOND, f64::INFINITY);
        ClaimCase::quantity("", label, needed(cell.median()), ends, bounds, Unit::Count)
    };
    let cells = evidence.cells(EXPERIMENT.id, "interrupt");
    judge_all(cells.map(case).collect(), "plumb run host.interrupt")
}

fn sentences(data: &PageData<'_>) -> Vec<String> {
    let told = of(&data.cells, "interrupt").into_iter().map(|cell| {
        let (source, time) = (cell.level("source"), value::median(cell));
        format!("A {source}'s interrupt takes {time} from the process that it interrupts.")
    });
    told.collect()
}
