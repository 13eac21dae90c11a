//! `display.vector`: a polygon of 630 vectors built, drawn at once, one by one, and again, by path.
//!
//! After Lantz, Nowicki & Theimer (1985, §3.2 and Table 3-1).

use plumb_analysis::claim::FigureFinder;
use plumb_report::figure::by_level::{self, LevelPlot};

use crate::claims::{LANTZ, medians_within, order_cases, pairs_within, stack_ratio};
use crate::factor::display::{
    BYTES, PATH, RATE, RESPONSES, ROUND_TRIPS, cell, path, rate_at, table_entry,
};
use crate::pages::against;
use crate::prelude::*;

/// A mode and a path a cell.
pub static EXPERIMENT: Experiment = Experiment {
    id: "display.vector",
    study: "distributed",
    question: "At what rates are vectors added and drawn, on this host and remotely?",
    hypothesis: "A batch is faster than drawing each vector as it comes, on every path. The rate of drawing what is there does not depend on the \
                 path. With slow processors a remote client is faster than one that shares the display's.",
    factors: &[
        PATH,
        Factor::of_words(
            "mode",
            "all added in batches; the same, then drawn; each drawn as it is added, waiting for every reply or not; all that is there drawn again, also pixel by pixel; or the pixels, drawn by the client beforehand, sent as a bitmap",
            &MODES,
        ),
    ],
    responses: &[RATE, BYTES, ROUND_TRIPS],
    plan_cell: |point| {
        let mode = point.text("mode").unwrap_or("batch");
        if mode == PLAIN_DISPLAY && point.text("path") != Some("direct") {
            return Err(Exclusion::NotApplicable);
        }
        cell("polygon", mode, path(point.text("path").unwrap_or("direct")))
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Vectors on a display",
        figures: Some(|data| by_level::figures(&data.cells, &PLOT)),
        sentences: |data| against(&data.cells, &PLOT, "incremental", "rate", "rate"),
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

const PLAIN_DISPLAY: &str = "display-plain";
const MODES: [&str; 7] = [
    "construction",
    "batch",
    "incremental",
    "pipelined-incremental",
    "display",
    PLAIN_DISPLAY,
    "bitmap",
];

const PLOT: LevelPlot = LevelPlot {
    factor: "mode",
    order: &MODES,
    panel_factors: &["path"],
    pictures: &[("Vectors a second", &["rate"], true)],
};

const RESPONSE: (&str, &str) = ("display.vector", "rate");
const COMMAND: &str = "plumb run display.vector";

/// A number of Table 3-1, and where today's is found.
const fn entry(label: &'static str, value: f64, find: FigureFinder) -> PublishedFigure {
    table_entry(label, value, "Table 3-1", find)
}

fn rate_of(evidence: &ClaimEvidence<'_>, path: &str, mode: &str) -> Option<f64> {
    rate_at(evidence, RESPONSE.0, &[("path", path), ("mode", mode)])
}

/// "It is faster on the first path than on the second", for each pair, in a mode.
fn paths_in_order(
    evidence: &ClaimEvidence<'_>,
    pairs: [[&'static str; 2]; 2],
    mode: &'static str,
) -> ClaimJudgment {
    let cases = pairs.into_iter().flat_map(|[fast, slow]| {
        let (fast, slow) = (&[("path", fast)][..], &[("path", slow)][..]);
        order_cases(evidence, RESPONSE, (fast, slow), |cell| cell.is("mode", mode)).cases
    });
    judge_all(cases.collect(), COMMAND)
}

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "distributed.vector.inner-loop",
        claim: "Recoding the inner loop of line drawing raised display rates by 200 %, an improvement that can be had only once (judged by words and \
                additions in place of a pixel at a time, 2 to 5 times).",
        historical: Some("×3, §3.3"),
        figures: &[PublishedFigure::ratio("tuned to plain", 3.0, "§3.3 (200 %)")],
        judge: |evidence| {
            let levels = (&[("mode", "display")][..], &[("mode", PLAIN_DISPLAY)][..]);
            stack_ratio(evidence, RESPONSE, levels, (2.0, 5.0), |_| true)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.display.construction-is-offered-load",
        claim: "The construction rate is the best measure of the peak load offered to the network, the batch rate of overall throughput, the \
                incremental rate of response time (judged by their order, as the same bytes are sent in each).",
        judge: |evidence| {
            let order = [["construction", "batch"], ["batch", "incremental"]];
            let cases = order.iter().flat_map(|[more, less]| {
                let levels = (&[("mode", *more)][..], &[("mode", *less)][..]);
                order_cases(evidence, RESPONSE, levels, |_| true).cases
            });
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.appear-in-a-few-bytes",
        claim: "Once defined, objects appear and disappear by commands of a few bytes (judged by at most 100 B both ways to draw a stored \
                picture of 630 vectors anew).",
        judge: |evidence| {
            let cases =
                medians_within(evidence, ("display.vector", BYTES.name), (0.0, 100.0), |cell| {
                    cell.is("path", "direct") && cell.is("mode", "display")
                });
            judge_all(cases, "plumb run display.vector")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.vector.construction",
        claim: "Objects are constructed faster locally than remotely, and slowest over the ARPANET.",
        figures: &[
            entry("local", 440.0, |it| rate_of(it, "slow-local", "construction")),
            entry("E-IP", 220.0, |it| rate_of(it, "slow-lan", "construction")),
            entry("A-IP", 130.0, |it| rate_of(it, "slow-arpanet", "construction")),
        ],
        judge: |evidence| {
            let order = [["slow-local", "slow-lan"], ["slow-lan", "slow-arpanet"]];
            paths_in_order(evidence, order, "construction")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.vector.batch",
        claim: "In batch, applications on Ethernet reach more vectors a second than a local one, and on the ARPANET fewer.",
        figures: &[
            entry("local", 220.0, |it| rate_of(it, "slow-local", "batch")),
            entry("Ethernet, most", 350.0, |it| rate_of(it, "slow-lan", "batch")),
            entry("A-IP", 120.0, |it| rate_of(it, "slow-arpanet", "batch")),
        ],
        judge: |evidence| {
            let order = [["slow-lan", "slow-local"], ["slow-local", "slow-arpanet"]];
            paths_in_order(evidence, order, "batch")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.vector.incremental",
        claim: "Incrementally, applications on Ethernet reach more vectors a second than a local one, and on the ARPANET fewer.",
        figures: &[
            entry("local", 62.0, |it| rate_of(it, "slow-local", "pipelined-incremental")),
            entry("Ethernet, most", 87.0, |it| rate_of(it, "slow-lan", "pipelined-incremental")),
            entry("A-IP", 39.0, |it| rate_of(it, "slow-arpanet", "pipelined-incremental")),
        ],
        judge: |evidence| {
            let order = [["slow-lan", "slow-local"], ["slow-local", "slow-arpanet"]];
            paths_in_order(evidence, order, "pipelined-incremental")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.vector.display-rate",
        claim: "Vectors are displayed from the display file at 430 a second.",
        figures: &[entry("local", 430.0, |it| rate_of(it, "slow-local", "display"))],
        judge: |evidence| {
            // Half as many and twice as many are about it, with processors that are about as slow.
            let cases = medians_within(evidence, RESPONSE, (215.0, 860.0), |cell| {
                cell.is("path", "slow-local") && cell.is("mode", "display")
            });
            judge_all(cases, COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.vector.batch-beats-incremental",
        claim: "The batch rate exceeds the incremental rate wherever both were measured.",
        judge: |evidence| {
            let batch = &[("mode", "batch")][..];
            let cases = ["incremental", "pipelined-incremental"].into_iter().flat_map(|mode| {
                let levels = (batch, &[("mode", mode)][..]);
                order_cases(evidence, RESPONSE, levels, |_| true).cases
            });
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.display.rate-not-affected-by-distribution",
        claim: "Distribution does not affect the rate of display out of the display file.",
        judge: |evidence| {
            let local = &[("path", "slow-local")][..];
            let cases = ["slow-lan", "slow-arpanet"].into_iter().flat_map(|path| {
                let levels = (local, &[("path", path)][..]);
                pairs_within(evidence, RESPONSE, levels, (0.8, 1.25), |cell| {
                    cell.is("mode", "display")
                })
            });
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
];
