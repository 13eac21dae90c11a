//! `host.interrupt`: what one interrupt takes from the process that it interrupts.
//!
//! A timer's, because no card can be made to interrupt without a packet, whose processing would be timed with it. On
//! a virtual machine the hypervisor's part is in it. And in simulations what a full link of 10 Gb/s asks of a processor whose interrupts take
//! as many cycles as the document says.

use plumb_harness::report::LaunchFault;

use crate::claims::{WEIGLE, gain_interval, medians_within};
use crate::pages::of;
use crate::prelude::*;
use crate::simulation::{self, ResponseValues, SimulatedCell};

/// The gap in a process that spins.
pub static EXPERIMENT: Experiment = Experiment {
    id: "host.interrupt",
    study: "gigabit",
    question: "What does it cost to leave a process for an interrupt handler and to come back?",
    hypothesis: "It takes longer than 2,000 cycles, because the entry has become costlier since 2001.",
    factors: &[
        Factor::of_words(
            "source",
            "what interrupts: a timer here, or simulated the packets of a full link of 10 Gb/s",
            &["timer", LINK],
        )
        .labelled(&[(LINK, "packets at 10 Gb/s, simulated")]),
        Factor {
            applies: is_simulated,
            ..Factor::new(
                "packet",
                "bytes of a packet, without Ethernet's 38",
                FactorDomain::Between(64, 9_000, "a number of bytes"),
                Numbers(&[1_500, 9_000]),
            )
        },
        Factor {
            applies: is_simulated,
            ..Factor::of_words(
                "coalesce",
                "how long the card waits for others before it interrupts",
                &["0us", "100us"],
            )
        },
    ],
    responses: &[
        ResponseVariable::time(
            "interrupt",
            "time that an interrupt takes from a process, from its last instruction to its next",
        ),
        ResponseVariable::new(
            "packets",
            Unit::Count,
            Better::Higher,
            "packets a second that the full link carries",
        ),
        ResponseVariable::new(
            "cycles",
            Unit::Count,
            Better::Lower,
            "cycles a second that interrupts of 2,000 take",
        ),
    ],
    plan_cell: |point| match (point.response, is_simulated(point.factors)) {
        ("interrupt", false) => Ok((LaunchGroup::alone(), BlockTask::Interrupt)),
        ("packets" | "cycles", true) => Ok(simulation::cell(EXPERIMENT.id, point)),
        _ => Err(Exclusion::NotApplicable),
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage { title: "An interrupt", sentences, ..ExperimentPage::PLAIN },
};

/// The level of simulated packets.
const LINK: &str = "link";

fn is_simulated(first: &Factors) -> bool {
    first.text("source") == Some(LINK)
}

/// Simulates a full link of 10 Gb/s to a host whose processor does nothing but to be interrupted, and is fast enough for it.
pub(crate) fn simulate(cell: &SimulatedCell<'_>) -> Result<ResponseValues, LaunchFault> {
    // 2,000 cycles of 10 GHz.
    let (clock, interrupt_ns) = (10e9, 200);
    let text = format!(
        "duration = \"20ms\"\nwarmup = \"1ms\"\n{}\
         [[source]]\npattern = \"constant\"\nfrom = \"left\"\nto = \"right\"\nrate = \"10gbit\"\nsize = {}\n\
         [[processor]]\nhosts = \"right\"\nper_interrupt = \"{interrupt_ns}ns\"\ncoalesce = \"{}\"\nring = 4096\n",
        simulation::chain(
            "rate=100gbit,delay=1us",
            "rate=10gbit,delay=1us,overhead=38,limit=100packets"
        ),
        cell.level("packet"),
        cell.level("coalesce"),
    );
    let report = cell.simulate(&text)?;
    let seconds = report.elapsed.saturating_sub(report.warmup).as_secs_f64();
    let link = report.link("router > right").expect("a link of the scenario");
    Ok(vec![
        ("packets", link.left as f64 / seconds),
        ("cycles", report.processors[0].busy_share * clock),
    ])
}

const CLAIMS: &[PublishedClaim] = &[PACKETS, INTERRUPTS, TWO_THOUSAND, ONE_EACH];

const TWO_THOUSAND: PublishedClaim = PublishedClaim {
    id: "gigabit.interrupt.two-thousand-cycles",
    claim: "Switching from a user process to the interrupt handler and back takes at least 2,000 cycles (judged by a timer's interrupts, not \
            a card's).",
    historical: Some("2,000 cycles under Linux 2.2.17"),
    figures: &[PublishedFigure::comparable("cycles an interrupt", 2_000.0, Unit::Count, "¶5")],
    judge: |evidence| timer_interrupts(evidence, 1.0, 2_000.0),
    ..PublishedClaim::of(WEIGLE)
};

const PACKETS: PublishedClaim = PublishedClaim {
    id: "gigabit.mtu.packets-at-ten-gigabit",
    claim: "A fully used 10-Gb/s Ethernet produces at least 830,000 packets a second at an MTU of 1,500 bytes (judged by a simulated link with \
            Ethernet's 38 bytes around each packet).",
    historical: Some("830,000 packets/s"),
    figures: &[PublishedFigure::comparable("packets a second", 830e3, Unit::Count, "830,000")],
    judge: |evidence| {
        let cases =
            medians_within(evidence, (EXPERIMENT.id, "packets"), (830e3, f64::INFINITY), |cell| {
                cell.is("packet", 1_500_u64)
            });
        judge_all(cases, "plumb run host.interrupt")
    },
    ..PublishedClaim::of(WEIGLE)
};

const INTERRUPTS: PublishedClaim = PublishedClaim {
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
    judge: |evidence| timer_interrupts(evidence, PACKETS_A_SECOND, CYCLES_A_SECOND),
    ..PublishedClaim::of(WEIGLE)
};

const ONE_EACH: PublishedClaim = PublishedClaim {
    id: "gigabit.interrupt.one-per-packet",
    claim: "Without interrupt coalescing each received packet interrupts the host (judged by a simulated processor that is idle between packets: \
            0.95 interrupts a packet or more, and less than a tenth of that where the card waits for others).",
    figures: &[PublishedFigure::ratio("interrupts a packet", 1.0, "¶5")],
    judge: |evidence| {
        let share = |coalesce: &str| {
            let of = |response| {
                evidence
                    .cells(EXPERIMENT.id, response)
                    .find(|cell| cell.is("packet", 1_500_u64) && cell.is("coalesce", coalesce))
            };
            let interrupts = gain_interval([of("cycles")?, of("packets")?])?;
            Some(interrupts.map(|it| it / CYCLES_EACH))
        };
        let cases = [("0us", (0.95, 1.05)), ("100us", (0.0, 0.1))].into_iter().filter_map(
            |(coalesce, bounds)| {
                let [low, middle, high] = share(coalesce)?;
                let label = format!("interrupts a packet, {coalesce}");
                let ends = Some([low, high]);
                Some(ClaimCase::quantity("", label, middle, ends, bounds, Unit::Count))
            },
        );
        judge_all(cases.collect(), "plumb run host.interrupt")
    },
    ..PublishedClaim::of(WEIGLE)
};

/// Cycles of an interrupt.
const CYCLES_EACH: f64 = 2_000.0;

/// The packets of the published sum.
const PACKETS_A_SECOND: f64 = 10e9 / 8.0 / 1_500.0;

const CYCLES_A_SECOND: f64 = 1.6e9;

/// Whether the cycles of so many interrupts are at least `least`.
fn timer_interrupts(evidence: &ClaimEvidence<'_>, count: f64, least: f64) -> ClaimJudgment {
    let Some(ticks_per_ns) = evidence.note_number("clock.ticks_per_ns") else {
        return ClaimJudgment::not_measured(
            "a machine whose counter of cycles ticks at a known rate",
        );
    };
    let needed = |ns: f64| ns * ticks_per_ns * count;
    let case = |cell: &MeasuredCell<'_>| {
        let cycles = significant(cell.median() * ticks_per_ns, 3);
        let each = format!("{} interrupts of {cycles} cycles", cell.level("source"));
        let label = if count > 1.0 { format!("{each}, a second:") } else { each };
        let ends = cell.ends().map(|ends| ends.map(needed));
        let bounds = (least, f64::INFINITY);
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
