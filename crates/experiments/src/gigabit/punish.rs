//! `punish`: what queues that punish win against senders that do not listen, and what evades them.
//!
//! Simulated. Eight connections of TCP and a cheat, which sends as fast as the link by itself, share a link of 10 Mb/s; or two such links in a
//! row, of which only the first, or both, have the defence. Or a great number of flows that send 10 kb/s each, and nine tenths of the link
//! together, share it with a cheat that sends as much as the link by itself.

use plumb_harness::report::LaunchFault;
use plumb_report::figure::by_level::{self, LevelPlot};
use plumb_sim::report::jain;

use crate::claims::{WEIGLE, medians_within};
use crate::factor::channel;
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
            "an unresponsive stream: as one flow, striped over 8, or with headers forged so that 64 flows seem to send it",
            &CHEATS,
        )
        .labelled(&[("plain", "one flow"), ("striped", "striped over 8"), ("forged", "forged headers")]),
        Factor::of_words(
            "deployment",
            "which of two scarce links in a row has the defence: both, or only the one that the cheat does not cross",
            &["all", "elsewhere"],
        )
        .labelled(&[("all", "defence everywhere"), ("elsewhere", "no defence where the cheat sends")]),
        Factor::new(
            "flows",
            "flows beside the cheat: 8 connections of TCP, or as many as are given that send 10 kb/s each whatever becomes of them",
            FactorDomain::Between(8, 1_000_000, "a number"),
            Numbers(&[TCP_FLOWS, 100, 10_000, 100_000]),
        )
        .at_quick(Numbers(&[TCP_FLOWS, 100, 10_000])),
    ],
    responses: &[
        ResponseVariable::new("won", Unit::Count, Better::Lower, "what the cheat gets, in shares of nine that are equal"),
        ResponseVariable::rate("honest", "bytes a second of each TCP that shares a link with it"),
        ResponseVariable::share("fairness", Better::Higher, "Jain's index of all nine"),
        ResponseVariable::share("arrived", Better::Higher, "share of what the others send that arrives"),
        ResponseVariable::new("state", Unit::Bytes, Better::Lower, "memory by which the queue tells flows apart"),
    ],
    plan_cell: |point| {
        let is_tcp = channel::level_number::<u64>(point.factors, "flows") == TCP_FLOWS;
        let is_plain = point.text("cheat") == Some("plain") && point.text("deployment") == Some("all");
        let is_of_tcp = matches!(point.response, "won" | "honest" | "fairness");
        if is_tcp != is_of_tcp || !is_tcp && !is_plain {
            return Err(Exclusion::NotApplicable);
        }
        Ok(simulation::cell(EXPERIMENT.id, point))
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Queues that punish",
        figures: Some(|data| {
            let mut figures = by_level::figures(&data.cells, &DEFENCE);
            figures.extend(by_level::figures(&data.cells, &SCALE));
            figures
        }),
        responses: &[
            ("won", "what the cheat wins, in fair shares"),
            ("honest", "throughput of each TCP"),
            ("fairness", "Jain's index"),
            ("arrived", "others' packets that arrive"),
            ("state", "memory of the queue for flows"),
        ],
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
        ("Goodput of each TCP", &["honest"], true),
    ],
};

/// The same for very many flows.
const SCALE: LevelPlot = LevelPlot {
    factor: "defence",
    order: &DEFENCES,
    panel_factors: &["flows"],
    pictures: &[
        ("Others' packets that arrive", &["arrived"], true),
        ("Memory of the queue for flows", &["state"], false),
    ],
};

/// Connections of TCP.
const HONEST: u32 = 8;
/// The same as a level.
const TCP_FLOWS: u64 = 8;
/// Bits a second of one of very many flows, and what part of the link they send together.
const FLOW_RATE: f64 = 10e3;
const LOAD: f64 = 0.9;
/// Flows that come from one host: sources have as many ports.
const FLOWS_OF_HOST: u64 = 50_000;
/// Packets that may wait where flows are not told apart.
const HONEST_QUEUE: u64 = 60;
/// Rate of a link, in bits a second; the cheat sends as much.
const RATE: f64 = 10e6;

/// The queue of a defence, in a link's text.
fn queue(defence: &str, packets: u64) -> String {
    match defence {
        "drr" => format!("queue=drr,limit={}packets", packets * 10 / 3),
        "fq-codel" => "queue=fq-codel".to_owned(),
        "csfq" | "red-pd" => format!("queue={defence},limit={packets}packets"),
        _ => format!("limit={packets}packets"),
    }
}

/// Packets that may wait of very many flows: as long as those of the few.
fn packets_of(flows: u64) -> u64 {
    HONEST_QUEUE * flows.div_ceil(1_000)
}

/// Simulates very many flows over one link; the cheat sends as much as it carries.
fn simulate_many(cell: &SimulatedCell<'_>, flows: u64) -> Result<ResponseValues, LaunchFault> {
    let rate = FLOW_RATE * flows as f64 / LOAD;
    let packets = packets_of(flows);
    let seconds = if flows < 1_000 { 100 } else { 10 };
    let mut text = simulation::link(
        "router1",
        "router2",
        &format!("rate={rate:.0}bit,delay=5ms,{}", queue(cell.level("defence"), packets)),
    );
    text.insert_str(0, &format!("duration = \"{seconds}s\"\nwarmup = \"2s\"\n"));
    let fast = format!("rate={:.0}bit,delay=1ms", rate * 2.0);
    let mut pair = |number: u64, pattern: &str, rate: f64, options: &str| {
        let (from, to) = (format!("s{number}"), format!("d{number}"));
        text += &simulation::link(&from, "router1", &fast);
        text += &simulation::link("router2", &to, &fast);
        text += &simulation::source((&from, &to), pattern, rate, 1_500, options);
    };
    pair(0, "poisson", rate, "name = \"cheat\"");
    let hosts = flows.div_ceil(FLOWS_OF_HOST);
    for number in 0..hosts {
        // Their first packets come over the time between two of one flow.
        let count = flows / hosts;
        let options = format!("name = \"others\"\ncount = {count}\nstart = \"0s..1200ms\"");
        pair(number + 1, "poisson", FLOW_RATE, &options);
    }
    let report = cell.simulate(&text)?;
    let others = report.sources.iter().filter(|source| source.name == "others");
    let (sent, received) = others.fold((0, 0), |(sent, received), source| {
        (sent + source.counts.sent, received + source.counts.received)
    });
    Ok(vec![
        ("arrived", (received as f64 / sent.max(1) as f64).min(1.0)),
        // The first link's, from router1.
        ("state", report.links[0].flow_state as f64),
    ])
}

/// Simulates one setting: routers 1 to 3 in a row; the honest go all the way, the cheat over the first link.
pub(crate) fn simulate(cell: &SimulatedCell<'_>) -> Result<ResponseValues, LaunchFault> {
    let flows: u64 = cell.number("flows")?;
    if flows != TCP_FLOWS {
        return simulate_many(cell, flows);
    }
    let defence = queue(cell.level("defence"), HONEST_QUEUE);
    let is_everywhere = cell.level("deployment") == "all";
    let first = if is_everywhere { defence.clone() } else { queue("fifo", HONEST_QUEUE) };
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
        id: "gigabit.punish.state-does-not-scale",
        claim: "Per-flow penalties need state that a backbone router with millions of connections cannot hold economically (judged by \
                simulations of 10,000 flows or more: a queue of which nine of ten of the others' packets get past the cheat takes as much \
                memory to tell flows apart as for the packets that wait, or more).",
        judge: |evidence| {
            let protects = |state: &MeasuredCell<'_>| {
                let mut cells = evidence.cells(EXPERIMENT.id, "arrived");
                cells.any(|cell| {
                    ["defence", "flows"].iter().all(|name| cell.level(name) == state.level(name))
                        && cell.median() >= 0.9
                })
            };
            let many = |cell: &MeasuredCell<'_>| cell.int("flows") >= Some(MANY) && protects(cell);
            let case = |cell: &MeasuredCell<'_>| {
                let flows = cell.int("flows").unwrap_or(0).unsigned_abs();
                let label = format!("{} of {flows} flows", cell.level("defence"));
                let waiting = (packets_of(flows) * 1_500) as f64;
                ClaimCase::median_within("", label, cell, (waiting, f64::INFINITY))
            };
            let cells = evidence.cells(EXPERIMENT.id, "state").filter(|cell| many(cell));
            judge_all(cells.map(case).collect(), "plumb run punish --set flows=10000")
        },
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

/// Flows that are very many.
const MANY: i64 = 10_000;

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
