//! `display.transport`: the same pictures over streams and by message transactions, on this host.
//!
//! After Lantz, Nowicki & Theimer (1985, §6): an inter-kernel protocol in V's manner beside byte streams, and a reply before or after a message
//! is carried out.

use plumb_harness::spec::DisplayPath;
use plumb_report::figure::by_level::{self, LevelPlot};

use crate::claims::{LANTZ, gains_in_order, order_cases, pairs_within};
use crate::factor::channel::{PLACEMENT, placement_of};
use crate::factor::display::{
    BYTES, RATE, RESPONSES, ROUND_TRIPS, cell, cell_at, rate_at, table_entry,
};
use crate::pages::against;
use crate::prelude::*;

/// A transport and a mode a cell.
pub static EXPERIMENT: Experiment = Experiment {
    id: "display.transport",
    study: "distributed",
    question: "How much does the transport matter to a display, and how much its implementation?",
    hypothesis: "Where each message is waited for, its round trip decides. In batches of a kilobyte that wait for their replies, a reply before the \
                 message is carried out wins what both ends can do at the same time.",
    factors: &[
        Factor::of_words(
            "transport",
            "a call, a unix socket, TCP over loopback, or message transactions of up to 1 KiB over UDP, replied to after or before they are \
             carried out; or TCP behind a relay that polls its terminal each 100 µs",
            &TRANSPORTS,
        )
        .labelled(&[
            ("messages", "messages, late reply"),
            (EARLY, "messages, early reply"),
            (POLLING, "TCP behind a polling relay"),
        ]),
        Factor::of_words(
            "mode",
            "780 rectangles added in batches; the same, then drawn; or each drawn as it is added, waiting for every reply or not",
            &["construction", "batch", "incremental", "pipelined-incremental"],
        ),
        Factor { meaning: "whether both ends share a CPU", ..PLACEMENT }
            .at(Words(&["same-cpu", "other-cpu"])),
    ],
    responses: &[RATE, BYTES, ROUND_TRIPS],
    plan_cell: |point| {
        let transport = point.text("transport").unwrap_or("direct").to_owned();
        let mode = point.text("mode").unwrap_or("batch");
        let (_, task) = cell("array", mode, Some(DisplayPath::Local(transport)))?;
        let placement = placement_of(point, WakeMode::Block)?;
        if point.text("transport") == Some("direct") && placement != CpuPlacement::SameCpu {
            return Err(Exclusion::impossible("a call has one thread: choose placement same-cpu"));
        }
        Ok((LaunchGroup::new(LaunchSubject::Alone, placement), task))
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Transports of a display",
        figures: Some(|data| by_level::figures(&data.cells, &PLOT)),
        sentences: |data| against(&data.cells, &PLOT, "tcp", "rate", "rate"),
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

const EARLY: &str = "messages-early";
const POLLING: &str = "relay-polling";
const PIPELINED: &str = "pipelined-incremental";
const TRANSPORTS: [&str; 6] = ["direct", "unix", "tcp", "messages", EARLY, POLLING];

const PLOT: LevelPlot = LevelPlot {
    factor: "transport",
    order: &TRANSPORTS,
    panel_factors: &["mode", "placement"],
    pictures: &[("Rectangles a second", &["rate"], true)],
};

const RESPONSE: (&str, &str) = ("display.transport", "rate");
const COMMAND: &str = "plumb run display.transport";

/// Early replies beside late ones, and messages beside TCP.
const REPLIES: [&[(&str, &str)]; 2] = [&[("transport", EARLY)], &[("transport", "messages")]];
const PROTOCOLS: [&[(&str, &str)]; 2] = [&[("transport", "messages")], &[("transport", "tcp")]];

/// Table 6-2: a host whose server process polls a pipe and sends a stream, against a workstation whose messages are transactions.
fn host_and_workstation(
    evidence: &ClaimEvidence<'_>,
    mode: &'static str,
    bounds: (f64, f64),
) -> ClaimJudgment {
    let levels = (&[("transport", POLLING)][..], REPLIES[1]);
    let cases = pairs_within(evidence, RESPONSE, levels, bounds, |cell| cell.is("mode", mode));
    judge_all(cases.into_iter().collect(), COMMAND)
}

fn rate_of(evidence: &ClaimEvidence<'_>, transport: &str, mode: &str) -> Option<f64> {
    rate_at(evidence, RESPONSE.0, &[("transport", transport), ("mode", mode)])
}

/// Modes in which a message need not wait for what the one before shows.
fn is_throughput(cell: &MeasuredCell<'_>) -> bool {
    !cell.is("mode", "incremental")
}

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "distributed.ikp.construction",
        claim: "Construction is as fast from a timesharing host as from another workstation (judged by half to twice).",
        figures: &[
            table_entry("SUN IKP", 380.0, "Table 6-2", |it| {
                rate_of(it, "messages", "construction")
            }),
            table_entry("VAX IKP", 380.0, "Table 6-2", |it| rate_of(it, POLLING, "construction")),
        ],
        judge: |evidence| host_and_workstation(evidence, "construction", (0.5, 2.0)),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.ikp.batch",
        claim: "Batch is much faster from a VAX than from another workstation (judged by a half or more).",
        figures: &[
            table_entry("SUN IKP", 190.0, "Table 6-2", |it| rate_of(it, "messages", "batch")),
            table_entry("VAX IKP", 350.0, "Table 6-2", |it| rate_of(it, POLLING, "batch")),
        ],
        judge: |evidence| host_and_workstation(evidence, "batch", (1.5, f64::INFINITY)),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.ikp.incremental",
        claim: "Incremental display without pipelining is far slower from a VAX, whose server polls, than from another workstation (judged by \
                half or less).",
        figures: &[
            table_entry("SUN IKP", 29.0, "Table 6-2", |it| rate_of(it, "messages", "incremental")),
            table_entry("VAX IKP", 4.6, "Table 6-2", |it| rate_of(it, POLLING, "incremental")),
        ],
        judge: |evidence| host_and_workstation(evidence, "incremental", (0.0, 0.5)),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.ikp.pipelined-incremental",
        claim: "Pipelined incremental display is much faster from a VAX than from another workstation (judged by a half or more).",
        figures: &[
            table_entry("SUN IKP", 44.0, "Table 6-2", |it| rate_of(it, "messages", PIPELINED)),
            table_entry("VAX IKP", 81.0, "Table 6-2", |it| rate_of(it, POLLING, PIPELINED)),
        ],
        judge: |evidence| host_and_workstation(evidence, PIPELINED, (1.5, f64::INFINITY)),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.ikp.polling-is-slow",
        claim: "The unpipelined rate is that low because the server polls its pipe where others are notified (judged against TCP without a relay: \
                half or less).",
        judge: |evidence| {
            let levels = (&[("transport", POLLING)][..], PROTOCOLS[1]);
            let cases = pairs_within(evidence, RESPONSE, levels, (0.0, 0.5), |cell| {
                cell.is("mode", "incremental")
            });
            judge_all(cases.into_iter().collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.ikp.early-reply",
        claim: "Replying to a message before it is processed would be much faster than replying after (judged by a fifth or more in batches and \
                pipelined, with a CPU for each end).",
        judge: |evidence| {
            let [early, late] = REPLIES;
            let bounds = (1.2, f64::INFINITY);
            let cases = pairs_within(evidence, RESPONSE, (early, late), bounds, |cell| {
                is_throughput(cell) && !cell.is("placement", "same-cpu")
            });
            judge_all(cases.into_iter().collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.ikp.synchrony-costs-concurrency",
        claim: "Batch and pipelined rates are lower because synchronous messages leave less concurrency (judged against TCP).",
        judge: |evidence| {
            let levels = (&[("transport", "tcp")][..], REPLIES[1]);
            judge_all(order_cases(evidence, RESPONSE, levels, is_throughput), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.transport.ikp-usually-better",
        claim: "A protocol specialised for the local network, IKP, usually performs significantly better than Internet protocols (judged by \
                messages against TCP, on one host).",
        judge: |evidence| {
            let [messages, tcp] = PROTOCOLS;
            judge_all(order_cases(evidence, RESPONSE, (messages, tcp), |_| true), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.transport.implementation-beats-protocol",
        claim: "A protocol's implementation can affect performance more than its inherent properties (judged by when it \
                replies, beside messages instead of TCP, in any mode on one CPU).",
        judge: |evidence| {
            let better_first =
                |a: &'_ MeasuredCell<'_>, b: &'_ MeasuredCell<'_>| a.median() > b.median();
            let modes = ["batch", "incremental", "pipelined-incremental"].into_iter();
            let cases = modes.filter_map(|mode| {
                let of = |transport| {
                    cell_at(evidence, RESPONSE, &[("transport", transport), ("mode", mode)])
                };
                let (early, late, tcp) = (of(EARLY)?, of("messages")?, of("tcp")?);
                let [reply, protocol] = [early, tcp].map(|other| {
                    if better_first(late, other) { [late, other] } else { [other, late] }
                });
                gains_in_order(&format!("reply/protocol {mode}"), Some(reply), Some(protocol))
            });
            judge_any(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
];
