//! `display.text`: a page of text shown line by line, by path.
//!
//! After Lantz, Nowicki & Theimer (1985, §3.2 and Table 3-2). A line is an item; it is shown as it is added, and nothing is waited for but the
//! last.

use plumb_report::figure::by_level::{self, LevelPlot};

use crate::claims::{LANTZ, gain_interval, order_cases};
use crate::factor::display::{
    BYTES, PATH, RATE, RESPONSES, ROUND_TRIPS, cell, cell_at, path, rate_at, table_entry,
};
use crate::prelude::*;

/// A path a cell.
pub static EXPERIMENT: Experiment = Experiment {
    id: "display.text",
    study: "distributed",
    question: "How many characters a second are shown, on this host and remotely?",
    hypothesis: "Locally the most, and with slow processors hardly fewer over Ethernet; over the ARPANET as many as its bytes allow.",
    factors: &[
        PATH,
        Factor::of_words(
            "mode",
            "each of 48 lines shown as it is added, or all at once",
            &["pipelined-incremental", "batch"],
        ),
    ],
    responses: &[RATE, BYTES, ROUND_TRIPS],
    plan_cell: |point| {
        let mode = point.text("mode").unwrap_or("batch");
        cell("text", mode, path(point.text("path").unwrap_or("direct")))
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Text on a display",
        figures: Some(|data| by_level::figures(&data.cells, &PLOT)),
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

const PLOT: LevelPlot = LevelPlot {
    factor: "path",
    order: &["direct", "unix", "tcp", "lan", "wan", "slow-local", "slow-lan", "slow-arpanet"],
    panel_factors: &["mode"],
    pictures: &[("Characters a second", &["rate"], true)],
};

fn rate_of(evidence: &ClaimEvidence<'_>, path: &str) -> Option<f64> {
    rate_at(evidence, "display.text", &[("path", path), ("mode", "pipelined-incremental")])
}

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "distributed.text.rates",
        claim: "Text reaches 7700 characters a second locally, up to 4300 over Ethernet and 1900 over the ARPANET.",
        figures: &[
            table_entry("local", 7_700.0, "Table 3-2", |it| rate_of(it, "slow-local")),
            table_entry("Ethernet, most", 4_300.0, "Table 3-2", |it| rate_of(it, "slow-lan")),
            table_entry("A-IP", 1_900.0, "Table 3-2", |it| rate_of(it, "slow-arpanet")),
        ],
        judge: |evidence| {
            let pairs = [["slow-local", "slow-lan"], ["slow-lan", "slow-arpanet"]];
            let cases = pairs.into_iter().flat_map(|[fast, slow]| {
                let levels = (&[("path", fast)][..], &[("path", slow)][..]);
                order_cases(evidence, ("display.text", "rate"), levels, |cell| {
                    cell.is("mode", "pipelined-incremental")
                })
                .cases
            });
            judge_all(cases.collect(), "plumb run display.text")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.tcp.telnet-uses-a-tenth",
        claim: "TELNET at 4300 characters a second uses less than 10 % of what TCP carries; the rest of the time goes to application, terminal \
                emulation and display (judged by lines shown over loopback TCP, against rectangles of 20 bytes that are stored and not drawn).",
        judge: |evidence| {
            let text = [("path", "tcp"), ("mode", "pipelined-incremental")];
            let stored = [("path", "tcp"), ("mode", "construction")];
            let text = cell_at(evidence, ("display.text", "rate"), &text);
            let stored = cell_at(evidence, ("display.vector", "rate"), &stored);
            let share = text
                .zip(stored)
                .and_then(|(text, stored)| gain_interval([text, stored]))
                .map(|share| share.map(|it| it / ITEM));
            let case = share.map(|[low, middle, high]| {
                let label = "text/stored items".to_owned();
                ClaimCase::quantity("", label, middle, Some([low, high]), (0.0, 0.1), Unit::Share)
            });
            judge_all(case.into_iter().collect(), "plumb study distributed")
        },
        ..PublishedClaim::of(LANTZ)
    },
];

/// Bytes of an item.
const ITEM: f64 = 20.0;
