//! `punish`: what queues that punish win against senders that do not listen, and what evades them.
//!
//! Simulated. Eight connections of TCP and a cheat, which sends as fast as the link by itself, share a link of 10 Mb/s; or two such links in a
//! row, of which only the first, or both, have the defence.

use plumb_harness::report::LaunchFault;
use plumb_report::figure::by_level::{self, LevelPlot};
use plumb_sim::report::jain;

use crate::claims::{WEIGLE, medians_within};
use crate::prelude::*;
use crate::simulation::{self, ResponseValues, SimulatedCell};

/// What the cheat wins, against the defence and the disguise.
pub static EXPERIMENT: Experiment = Experiment {
    id: "punish",
    study: "gigabit",
    question: "Do queues that punish those who take more than their share work, and what evades them?",
    hypothesis: "Queues by flow give the cheat one share, and its disguises as many shares as it has flows; a queue without flows gives it \
                 nearly all. A defence works where the link is scarce, whoever else has it.",
    factors: &[
        Factor::of_words(
            "defence",
            "how the link queues: first in, first out; by flow (deficit round robin, or flow-queueing CoDel); by rates that edges tell \
             (CSFQ); or dropping more of those found above their share (RED-PD)",
            &DEFENCES,
        )
        .labelled(&[
            ("fifo", "FIFO"),
            ("drr", "fair queueing"),
            ("fq-codel", "FQ-CoDel"),
            ("csfq", "CSFQ"),
            ("red-pd", "RED-PD"),
        ]),
        Factor::of_words(
            "cheat",
            "a stream that listens to nothing: as one flow, striped over 8, or with headers forged so that 64 flows seem to send it",
            &CHEATS,
        )
        .labelled(&[("plain", "one flow"), ("striped", "striped over 8"), ("forged", "forged headers")]),
        Factor::of_words(
            "deployment",
            "which of two scarce links in a row has the defence: both, or only the one that the cheat does not cross",
            &["all", "elsewhere"],
        )
        .labelled(&[("all", "defence everywhere"), ("elsewhere", "no defence where the cheat sends")]),
    ],
    responses: &[
        ResponseVariable::new("won", Unit::Count, Better::Lower, "what the cheat gets, in shares of nine that are equal"),
        ResponseVariable::rate("honest", "bytes a second of each TCP that shares a link with it"),
        ResponseVariable::share("fairness", Better::Higher, "Jain's index of all nine"),
    ],
    plan_cell: |point| Ok(simulation::cell(EXPERIMENT.id, point)),
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Queues that punish",
        figures: Some(|data| by_level::figures(&data.cells, &DEFENCE)),
        responses: &[("won", "what the cheat wins, in fair shares"), ("honest", "throughput of each TCP"), ("fairness", "Jain's index")],
        ..ExperimentPage::PLAIN
    },
};

const DEFENCES: [&str; 5] = ["fifo", "drr", "fq-codel", "csfq", "red-pd"];
const CHEATS: [&str; 3] = ["plain", "striped", "forged"];

const DEFENCE: LevelPlot = LevelPlot {
    factor: "defence",
    order: &DEFENCES,
    panel_factors: &["deployment", "cheat"],
    pictures: &[
        ("What the cheat wins, in fair shares", &["won"], false),
        ("What each TCP gets", &["honest"], true),
    ],
};

/// Connections of TCP.
const HONEST: u32 = 8;
/// Rate of a link, in bits a second; the cheat sends as much.
const RATE: f64 = 10e6;

/// The queue of a defence, in a link's text.
fn queue(defence: &str) -> &'static str {
    match defence {
        "drr" => "queue=drr,limit=200packets",
        "fq-codel" => "queue=fq-codel",
        "csfq" => "queue=csfq,limit=60packets",
        "red-pd" => "queue=red-pd,limit=60packets",
        _ => "limit=60packets",
    }
}

/// Simulates one setting: routers 1 to 3 in a row; the honest go all the way, the cheat over the first link.
pub(crate) fn simulate(cell: &SimulatedCell<'_>) -> Result<ResponseValues, LaunchFault> {
    let defence = queue(cell.level("defence"));
    let first = if cell.level("deployment") == "all" { defence } else { queue("fifo") };
    let mut text = format!(
        "duration = \"30s\"\nwarmup = \"10s\"\n\
         [[link]]\nbetween = [\"router1\", \"router2\"]\nlink = \"rate={RATE}bit,delay=5ms,{first}\"\n\
         [[link]]\nbetween = [\"router2\", \"router3\"]\nlink = \"rate={RATE}bit,delay=5ms,{defence}\"\n\
         [[link]]\nbetween = [\"cheat\", \"router1\"]\nlink = \"rate=100mbit,delay=1ms\"\n\
         [[link]]\nbetween = [\"router2\", \"sink\"]\nlink = \"rate=100mbit,delay=1ms\"\n"
    );
    for number in 1..=HONEST {
        let (from, to) = (format!("s{number}"), format!("d{number}"));
        text += &simulation::link(
            &from,
            "router1",
            "rate=100mbit,delay=5ms..7ms|rate=100mbit,delay=5ms",
        );
        text += &simulation::link("router3", &to, "rate=100mbit,delay=5ms");
        text += &simulation::flow(&from, &to, "newreno", "start = \"0s..1s\"");
    }
    let flows = match cell.level("cheat") {
        "striped" => 8,
        "forged" => 64,
        _ => 1,
    };
    for _ in 0..flows {
        let rate = RATE / f64::from(flows);
        text += &simulation::source(("cheat", "sink"), "poisson", rate, 1_500, "");
    }
    let report = cell.simulate(&text)?;
    let won: f64 = report
        .sources
        .iter()
        .map(|source| source.counts.received_bytes as f64 * 8.0 / source.active.as_secs_f64())
        .sum();
    // With their headers.
    let honest: Vec<f64> =
        report.flows.iter().map(|flow| flow.goodput() * 1_500.0 / 1_448.0).collect();
    let everybody = honest.iter().copied().chain([won]);
    Ok(vec![
        ("won", won / (RATE / f64::from(HONEST + 1))),
        ("honest", honest.iter().sum::<f64>() / 8.0 / f64::from(HONEST)),
        ("fairness", jain(everybody)),
    ])
}

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "gigabit.punish.forged-headers-evade",
        claim: "Forged IP headers evade per-flow penalties (judged by simulations: with 64 forged flows a cheat wins two fair shares or \
                more from each defence that holds it to less as one flow).",
        judge: |evidence| evades(evidence, "forged"),
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.punish.striping-evades",
        claim: "Striping packets over several connections evades per-flow penalties (judged by simulations: over 8 a cheat wins two fair \
                shares or more from each defence that holds it to less as one flow).",
        judge: |evidence| evades(evidence, "striped"),
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.punish.needs-wide-adoption",
        claim: "Penalising queues need wide adoption to work (judged by simulations: a cheat wins two fair shares or more where the link \
                that it sends over has none, whatever the next one has).",
        judge: |evidence| {
            let cases = medians_within(evidence, (EXPERIMENT.id, "won"), EVADES, |cell| {
                cell.is("deployment", "elsewhere")
                    && cell.is("cheat", "plain")
                    && !cell.is("defence", "fifo")
            });
            judge_all(cases, "plumb run punish")
        },
        ..PublishedClaim::of(WEIGLE)
    },
];

/// Fair shares that a cheat wins where it is not punished.
const EVADES: (f64, f64) = (2.0, f64::INFINITY);

/// What a disguised cheat wins from each defence that works against it without.
fn evades(evidence: &ClaimEvidence<'_>, cheat: &str) -> ClaimJudgment {
    let works = |defence: &str| {
        let mut cells = evidence.cells(EXPERIMENT.id, "won");
        cells.any(|cell| {
            cell.is("defence", defence)
                && cell.is("cheat", "plain")
                && cell.is("deployment", "all")
                && cell.median() < EVADES.0
        })
    };
    let cases = medians_within(evidence, (EXPERIMENT.id, "won"), EVADES, |cell| {
        cell.is("cheat", cheat) && cell.is("deployment", "all") && works(cell.level("defence"))
    });
    judge_all(cases, "plumb run punish")
}
