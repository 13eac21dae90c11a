//! `unresponsive`: reliable UDP without congestion control, and streams that listen to nothing, beside TCP.
//!
//! Simulated. Eight connections share a link of 10 Mb/s; behind it six have links of 100 kb/s, and two of 10 Mb/s. What is sent
//! in vain over the first link is dropped behind it (Floyd & Fall 1999).

use std::sync::Arc;

use plumb_base::time::Span;
use plumb_harness::report::LaunchFault;
use plumb_report::figure::by_level::{self, LevelPlot};
use plumb_sim::report::{FlowReport, SimulationReport};
use plumb_stack::tcp::config::TcpDefects;

use crate::claims::{WEIGLE, stack_ratio};
use crate::pages::best_tile;
use crate::prelude::*;
use crate::simulation::{self, ResponseValues, SimulatedCell};

/// Goodput against the share of senders without congestion control.
pub static EXPERIMENT: Experiment = Experiment {
    id: "unresponsive",
    study: "gigabit",
    question: "What do senders without congestion control do to a network, and to TCP in it?",
    hypothesis: "They fill the shared link with what is dropped behind it, so that the network carries less of use the more of them there \
                 are, and TCP beside them next to nothing; queues by flow keep TCP its share. Alone on a LAN they do as well as TCP.",
    factors: &[
        Factor::of_words(
            "network",
            "simulated: eight connections through one link, six of them to slower links behind it; or one alone on a LAN",
            &["shared", "lan"],
        )
        .labelled(&[("shared", "eight through one link"), ("lan", "one on a LAN")]),
        Factor::of_words(
            "sender",
            "senders without congestion control: reliable UDP with a window of 128 packets and a timeout of 200 ms, or a \
             constant stream of 4 Mb/s",
            &["reliable", "stream"],
        )
        .labelled(&[("reliable", "reliable UDP"), ("stream", "a stream")]),
        Factor {
            applies: |first| first.text("network") == Some("shared"),
            ..Factor::of_words("queue", "how the shared link queues: first in, first out, or by flow (deficit round robin)", &["fifo", "fair"])
        },
        Factor {
            fit: |first, levels| match first.text("network") {
                Some("lan") => words(&["none", "all"]),
                _ => levels,
            },
            ..Factor::of_words("senders", "how many of the connections are not TCP", &SHARES)
        }
        .at_quick(Words(&["none", "half", "all"])),
    ],
    responses: &[
        ResponseVariable::rate("useful", "bytes a second that arrive and had not arrived before, of everybody"),
        ResponseVariable::rate("tcp", "goodput of each TCP connection, bytes a second"),
        ResponseVariable::share("vain", Better::Lower, "share of what the shared link carries that is of no use"),
    ],
    plan_cell: |point| {
        match (point.text("network"), point.response, point.text("senders")) {
            (_, "tcp", Some("all")) | (Some("lan"), "tcp" | "vain", _) => Err(Exclusion::NotApplicable),
            _ => Ok(simulation::cell(EXPERIMENT.id, point)),
        }
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Senders without congestion control",
        figures: Some(|data| by_level::figures(&data.cells, &SENDERS)),
        tiles: |data| best_tile(data, "useful", "most that the network carries", false),
        responses: &[("useful", "what the network carries"), ("tcp", "throughput of each TCP"), ("vain", "sent in vain")],
        ..ExperimentPage::PLAIN
    },
};

const SENDERS: LevelPlot = LevelPlot {
    factor: "senders",
    order: &SHARES,
    panel_factors: &["network", "sender"],
    pictures: &[
        ("What the network carries", &["useful"], false),
        ("Goodput of each TCP", &["tcp"], true),
        ("Share sent in vain", &["vain"], false),
    ],
};

/// Shares of the connections, each a quarter more.
const SHARES: [&str; 5] = ["none", "quarter", "half", "most", "all"];

/// Connections.
const CONNECTIONS: u32 = 8;
/// Packets in flight of reliable UDP, each with this payload.
const WINDOW: u32 = 128;
const PAYLOAD: u32 = 1_448;

/// Simulates one setting.
pub(crate) fn simulate(cell: &SimulatedCell<'_>) -> Result<ResponseValues, LaunchFault> {
    let quarters = (0..).zip(SHARES).find(|(_, share)| *share == cell.level("senders"));
    let senders = quarters.map_or(0, |(quarters, _)| quarters * CONNECTIONS / 4);
    let is_lan = cell.level("network") == "lan";
    let text = if is_lan { lan(cell.level("sender"), senders > 0) } else { shared(cell, senders) };
    let mut scenario = cell.scenario(&text, "")?;
    for group in scenario.groups.iter_mut().filter(|group| group.name == "reliable") {
        let defects = TcpDefects {
            fixed_rto: Some(Span::from_ms(200)),
            retransmit_all: true,
            ..TcpDefects::default()
        };
        Arc::make_mut(&mut group.client).defects = defects;
    }
    let report = simulation::finish(simulation::start(scenario)?)?;
    let useful = report.goodput() / 8.0 + streams(&report);
    let mut values = vec![("useful", useful)];
    let tcp: Vec<f64> =
        report.flows.iter().filter(|flow| flow.group == "tcp").map(FlowReport::goodput).collect();
    if !tcp.is_empty() {
        values.push(("tcp", tcp.iter().sum::<f64>() / 8.0 / tcp.len() as f64));
    }
    if let Some(link) = report.link("router1 > router2") {
        let seconds = report.elapsed.saturating_sub(report.warmup).as_secs_f64();
        let carried = link.left_bytes as f64 / seconds * f64::from(PAYLOAD) / 1_500.0;
        values.push(("vain", (1.0 - useful / carried.max(1.0)).max(0.0)));
    }
    Ok(values)
}

/// Bytes of payload a second of streams.
fn streams(report: &SimulationReport) -> f64 {
    let rate = |source: &plumb_sim::report::SourceReport| {
        source.counts.received_bytes as f64 * f64::from(PAYLOAD)
            / 1_500.0
            / source.active.as_secs_f64().max(1e-9)
    };
    report.sources.iter().map(rate).sum()
}

/// One sender of the kind alone, or TCP, on a LAN of 100 Mb/s.
fn lan(sender: &str, is_other: bool) -> String {
    let traffic = match (is_other, sender) {
        (true, "stream") => stream("left1", "right1", 90e6),
        (true, _) => flow("reliable", "left1", "right1"),
        _ => flow("tcp", "left1", "right1"),
    };
    format!(
        "duration = \"4s\"\nwarmup = \"1s\"\n[topology]\nkind = \"dumbbell\"\npairs = 1\naccess = \"rate=1gbit,delay=20us\"\n\
         bottleneck = \"rate=100mbit,delay=100us,limit=256packets\"\n{traffic}"
    )
}

/// Eight connections through one link.
fn shared(cell: &SimulatedCell<'_>, senders: u32) -> String {
    let queue = if cell.level("queue") == "fair" {
        "queue=drr,limit=200packets"
    } else {
        "limit=50packets"
    };
    let mut text = format!(
        "duration = \"40s\"\nwarmup = \"10s\"\n[[link]]\nbetween = [\"router1\", \"router2\"]\nlink = \"rate=10mbit,delay=5ms,{queue}\"\n"
    );
    for number in 1..=CONNECTIONS {
        let behind = if number % 4 == 0 { "10mbit" } else { "100kbit" };
        // Delays vary by a packet's time, or packets that come just behind a departure always find room (Floyd and Jacobson 1992).
        let (from, to) = (format!("s{number}"), format!("d{number}"));
        text +=
            &simulation::link(&from, "router1", "rate=10mbit,delay=5ms..7ms|rate=10mbit,delay=5ms");
        let behind = format!("rate={behind},delay=5ms,limit=20packets|rate=10mbit,delay=5ms");
        text += &simulation::link("router2", &to, &behind);
        text += &match (number <= senders, cell.level("sender")) {
            (true, "stream") => stream(&from, &to, 4e6),
            (true, _) => flow("reliable", &from, &to),
            _ => flow("tcp", &from, &to),
        };
    }
    text
}

fn flow(kind: &str, from: &str, to: &str) -> String {
    let congestion = match kind {
        "reliable" => format!("fixed:{}", WINDOW * PAYLOAD),
        _ => "newreno".to_owned(),
    };
    let options = format!("name = \"{kind}\"\nstart = \"0s..1s\"");
    simulation::flow(from, to, &congestion, &options)
}

/// A stream of this rate.
fn stream(from: &str, to: &str, rate: f64) -> String {
    simulation::source((from, to), "constant", rate, 1_500, "")
}

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "gigabit.udp.reliable-udp-collapses",
        claim: "Reliable UDP without congestion control, widely used, leads to congestion collapse (judged by simulations: where all of \
                eight connections are so, the network carries half of what it does with TCP, or less).",
        historical: Some("the congestion collapse of the mid-1980s; no figure"),
        judge: |evidence| {
            stack_ratio(evidence, (EXPERIMENT.id, "useful"), (NONE, ALL), HALVED, |cell| {
                cell.is("network", "shared")
                    && cell.is("queue", "fifo")
                    && cell.is("sender", "reliable")
            })
        },
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.udp.reliable-udp-serves-lonely-lans",
        claim: "Reliable UDP may serve in a LAN without competing flows (judged by simulations: it carries as much as TCP but for a \
                twentieth, or more).",
        judge: |evidence| {
            stack_ratio(evidence, (EXPERIMENT.id, "useful"), (NONE, ALL), (0.0, 1.05), |cell| {
                cell.is("network", "lan") && cell.is("sender", "reliable")
            })
        },
        ..PublishedClaim::of(WEIGLE)
    },
];

const NONE: &[(&str, &str)] = &[("senders", "none")];
const ALL: &[(&str, &str)] = &[("senders", "all")];
/// Half, or less.
const HALVED: (f64, f64) = (2.0, f64::INFINITY);
