//! `display.priority`: a client and the process that carries its bytes to the network, by who runs first.
//!
//! After Lantz, Nowicki & Theimer (1985, §6.2, Table 6-1). The report's third column gives both priority over others; nothing else runs here.

use plumb_harness::spec::DisplayPath;
use plumb_report::figure::by_level::{self, LevelPlot};

use crate::claims::{LANTZ, order_cases, pairs_within};
use crate::factor::channel::{PLACEMENT, placement_of};
use crate::factor::display::{RATE, RESPONSES, WRITES, cell, rate_at, table_entry};
use crate::pages::against;
use crate::prelude::*;

/// A priority and a mode a cell.
pub static EXPERIMENT: Experiment = Experiment {
    id: "display.priority",
    study: "distributed",
    question: "Which should run first on a busy CPU: a client, or the process that carries its bytes to the network?",
    hypothesis: "The client: what it has ready then leaves in fewer and larger pieces. Where each message is waited for it makes no difference.",
    factors: &[
        Factor::of_words(
            "priority",
            "which of client and relay has priority on one CPU: neither, or one, the other at nice 10",
            &PRIORITIES,
        )
        .labelled(&[("relay", "neither"), ("relay-first", "relay first"), ("client-first", "client first")]),
        Factor::of_words(
            "mode",
            "630 vectors added in batches, then drawn; or each drawn as it is added, waiting for every reply or not",
            &["batch", "incremental", PIPELINED],
        ),
        Factor { meaning: "where the display runs, beside client and relay", ..PLACEMENT }
            .at(Words(&["other-cpu"])),
    ],
    responses: &[RATE, WRITES],
    plan_cell: |point| {
        let path = DisplayPath::Local(point.text("priority").unwrap_or("relay").to_owned());
        let (_, task) = cell("polygon", point.text("mode").unwrap_or("batch"), Some(path))?;
        let placement = placement_of(point, WakeMode::Block)?;
        Ok((LaunchGroup::new(LaunchSubject::Alone, placement), task))
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Priority of client and relay",
        figures: Some(|data| by_level::figures(&data.cells, &PLOT)),
        sentences: |data| against(&data.cells, &PLOT, "relay", "rate", "rate"),
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

const PIPELINED: &str = "pipelined-incremental";
const PRIORITIES: [&str; 3] = ["relay", "relay-first", "client-first"];

const PLOT: LevelPlot = LevelPlot {
    factor: "priority",
    order: &PRIORITIES,
    panel_factors: &["mode"],
    pictures: &[("Vectors a second", &["rate"], true)],
};

const RESPONSE: (&str, &str) = ("display.priority", "rate");
const COMMAND: &str = "plumb run display.priority";

const EQUAL: &[(&str, &str)] = &[("priority", "relay")];
const RELAY: &[(&str, &str)] = &[("priority", "relay-first")];
const CLIENT: &[(&str, &str)] = &[("priority", "client-first")];

fn rate_of(evidence: &ClaimEvidence<'_>, priority: &str, mode: &str) -> Option<f64> {
    rate_at(evidence, RESPONSE.0, &[("priority", priority), ("mode", mode)])
}

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "distributed.priority.batch",
        claim: "Batch display is slower with priority to the TELNET server than without, and fastest with priority to the application (judged by \
                messages that do not wait, as a terminal has them: a batch is one write here).",
        figures: &[
            table_entry("normal", 170.0, "Table 6-1", |it| rate_of(it, "relay", PIPELINED)),
            table_entry("TELNET server first", 160.0, "Table 6-1", |it| {
                rate_of(it, "relay-first", PIPELINED)
            }),
            table_entry("application first", 200.0, "Table 6-1", |it| {
                rate_of(it, "client-first", PIPELINED)
            }),
        ],
        judge: |evidence| {
            let is_batch = |cell: &MeasuredCell<'_>| cell.is("mode", PIPELINED);
            let slower = order_cases(evidence, RESPONSE, (EQUAL, RELAY), is_batch).cases;
            let faster = order_cases(evidence, RESPONSE, (CLIENT, EQUAL), is_batch).cases;
            judge_all(slower.into_iter().chain(faster).collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.priority.server-first-sends-more-packets",
        claim: "Priority to the TELNET server lowers the batch rate because more network packets are sent (judged by the relay's writes, of \
                messages that do not wait).",
        judge: |evidence| {
            let is_batch = |cell: &MeasuredCell<'_>| cell.is("mode", PIPELINED);
            let writes = (EXPERIMENT.id, WRITES.name);
            judge_all(order_cases(evidence, writes, (EQUAL, RELAY), is_batch), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.priority.incremental",
        claim: "Incremental display gains little from priority to the TELNET server, and more when it goes to the application (judged by at most \
                a tenth, and by a twentieth or more).",
        figures: &[
            table_entry("normal", 47.0, "Table 6-1", |it| rate_of(it, "relay", "incremental")),
            table_entry("TELNET server first", 48.0, "Table 6-1", |it| {
                rate_of(it, "relay-first", "incremental")
            }),
            table_entry("application first", 58.0, "Table 6-1", |it| {
                rate_of(it, "client-first", "incremental")
            }),
        ],
        judge: |evidence| {
            let is_incremental = |cell: &MeasuredCell<'_>| cell.is("mode", "incremental");
            let within =
                |levels, bounds| pairs_within(evidence, RESPONSE, levels, bounds, is_incremental);
            let little = within((RELAY, EQUAL), (0.95, 1.1));
            let more = within((CLIENT, EQUAL), (1.05, f64::INFINITY));
            judge_all(little.into_iter().chain(more).collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.priority.application-first",
        claim: "The best performance comes from priority to the application rather than to the transport process.",
        judge: |evidence| {
            judge_all(order_cases(evidence, RESPONSE, (CLIENT, RELAY), |_| true), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
];
