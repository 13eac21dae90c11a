//! `display.rect`: an array of 780 rectangles drawn one by one, pipelined, in batches and structured, by path.
//!
//! After Lantz, Nowicki & Theimer (1985, §5 and Table 5-1). In real time on this host, and in virtual time over links, with processors as
//! they are and as slow as theirs.

use plumb_analysis::claim::FigureFinder;
use plumb_report::figure::by_level::{self, LevelPlot};

use crate::claims::{LANTZ, order_cases, pairs_within, stack_ratio};
use crate::factor::display::{
    BYTES, PATH, RATE, RESPONSES, ROUND_TRIPS, cell, path, rate_at, table_entry,
};
use crate::pages::against;
use crate::prelude::*;

/// A mode and a path a cell.
pub static EXPERIMENT: Experiment = Experiment {
    id: "display.rect",
    study: "distributed",
    question: "What do pipelining, batching and structure add to the rate at which a picture is drawn remotely?",
    hypothesis: "Each adds to the rate on every path. Pipelining adds the most where a round trip is long, batching where a message costs \
                 much, structure where bytes cost much.",
    factors: &[
        PATH,
        Factor::of_words(
            "mode",
            "each rectangle drawn as it is added, waiting for every reply or not; all added in batches, then drawn; or inverters defined \
             once and called, then drawn",
            &MODES,
        ),
    ],
    responses: &[RATE, BYTES, ROUND_TRIPS],
    plan_cell: |point| {
        let mode = point.text("mode").unwrap_or("batch");
        cell("array", mode, path(point.text("path").unwrap_or("direct")))
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Pipelining, batching and structure",
        figures: Some(|data| by_level::figures(&data.cells, &PLOT)),
        sentences: |data| against(&data.cells, &PLOT, "incremental", "rate", "rate"),
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

const MODES: [&str; 4] = ["incremental", "pipelined-incremental", "batch", "structured"];

const PLOT: LevelPlot = LevelPlot {
    factor: "mode",
    order: &MODES,
    panel_factors: &["path"],
    pictures: &[
        ("Rectangles a second", &["rate"], true),
        ("Bytes of a drawing", &["bytes"], true),
        ("Dependent round trips of a drawing", &["round-trips"], true),
    ],
};

/// One mode beside another.
type ModePair = (&'static [(&'static str, &'static str)], &'static [(&'static str, &'static str)]);

const PIPELINING: ModePair = (&[("mode", "pipelined-incremental")], &[("mode", "incremental")]);
const BATCHING: ModePair = (&[("mode", "batch")], &[("mode", "pipelined-incremental")]);
const STRUCTURE: ModePair = (&[("mode", "structured")], &[("mode", "batch")]);
const DISTANCE: ModePair = (&[("path", "lan")], &[("path", "wan")]);

const RESPONSE: (&str, &str) = ("display.rect", "rate");
const COMMAND: &str = "plumb run display.rect";

/// A number of Table 5-1, and where today's is found.
const fn entry(label: &'static str, value: f64, find: FigureFinder) -> PublishedFigure {
    table_entry(label, value, "Table 5-1", find)
}

fn rate_of(evidence: &ClaimEvidence<'_>, path: &str, mode: &str) -> Option<f64> {
    rate_at(evidence, RESPONSE.0, &[("path", path), ("mode", mode)])
}

/// "It is faster on the first path than on the second", for each pair of slow processors' paths, in a mode.
fn paths_in_order(
    evidence: &ClaimEvidence<'_>,
    pairs: &[[&'static str; 2]],
    mode: &'static str,
) -> ClaimJudgment {
    let cases = pairs.iter().flat_map(|[fast, slow]| {
        let (fast, slow) = (&[("path", *fast)][..], &[("path", *slow)][..]);
        order_cases(evidence, RESPONSE, (fast, slow), |cell| cell.is("mode", mode)).cases
    });
    judge_all(cases.collect(), COMMAND)
}

fn is_local(cell: &MeasuredCell<'_>) -> bool {
    ["direct", "unix", "tcp", "slow-local"].iter().any(|path| cell.is("path", *path))
}

/// Paths of slow processors, each farther than the one before.
const FARTHER: [[&str; 2]; 2] = [["slow-local", "slow-lan"], ["slow-lan", "slow-arpanet"]];

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "distributed.rect.stop-and-wait",
        claim: "A stop-and-wait protocol is slow, above all over networks with a long delay.",
        figures: &[
            entry("local", 41.0, |it| rate_of(it, "slow-local", "incremental")),
            entry("E-IP", 5.0, |it| rate_of(it, "slow-lan", "incremental")),
            entry("A-IP", 2.0, |it| rate_of(it, "slow-arpanet", "incremental")),
        ],
        judge: |evidence| {
            let slow = order_cases(evidence, RESPONSE, PIPELINING, |_| true);
            let far =
                order_cases(evidence, RESPONSE, DISTANCE, |cell| cell.is("mode", "incremental"));
            let cases = slow.cases.into_iter().chain(far.cases);
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.pipelined",
        claim: "Without return values incremental display reaches 61 rectangles a second locally, 66 over Ethernet and 36 over the ARPANET.",
        figures: &[
            entry("local", 61.0, |it| rate_of(it, "slow-local", "pipelined-incremental")),
            entry("E-IP", 66.0, |it| rate_of(it, "slow-lan", "pipelined-incremental")),
            entry("A-IP", 36.0, |it| rate_of(it, "slow-arpanet", "pipelined-incremental")),
        ],
        judge: |evidence| {
            let order = [["slow-lan", "slow-local"], ["slow-local", "slow-arpanet"]];
            paths_in_order(evidence, &order, "pipelined-incremental")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.batch",
        claim: "Batched without structure the picture is drawn at 310, 180 and 81 rectangles a second.",
        figures: &[
            entry("local", 310.0, |it| rate_of(it, "slow-local", "batch")),
            entry("E-IP", 180.0, |it| rate_of(it, "slow-lan", "batch")),
            entry("A-IP", 81.0, |it| rate_of(it, "slow-arpanet", "batch")),
        ],
        judge: |evidence| paths_in_order(evidence, &FARTHER, "batch"),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.structured",
        claim: "Batched with structure it is drawn at 1070, 670 and 370 rectangles a second.",
        figures: &[
            entry("local", 1_070.0, |it| rate_of(it, "slow-local", "structured")),
            entry("E-IP", 670.0, |it| rate_of(it, "slow-lan", "structured")),
            entry("A-IP", 370.0, |it| rate_of(it, "slow-arpanet", "structured")),
        ],
        judge: |evidence| paths_in_order(evidence, &FARTHER, "structured"),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.each-step-helps",
        claim: "Pipelining, batching and structure each add to the rate, locally and remotely.",
        historical: Some(
            "41, 61, 310 and 1070 a second locally, 5, 66, 180 and 670 over Ethernet, Table 5-1",
        ),
        judge: |evidence| {
            let steps = [PIPELINING, BATCHING, STRUCTURE];
            let cases = steps
                .into_iter()
                .flat_map(|pair| order_cases(evidence, RESPONSE, pair, |_| true).cases);
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.pipelining-gain",
        claim: "Pipelining gains 50 % locally and 1000 to 1500 % remotely.",
        historical: Some("×1.5 locally, ×11 to ×16 remotely, §5.1"),
        figures: &[PublishedFigure::ratio("pipelined to waiting, remote", 13.5, "§5.1 (11 to 16)")],
        judge: |evidence| {
            let within = |bounds, chosen: fn(&MeasuredCell<'_>) -> bool| {
                pairs_within(evidence, RESPONSE, PIPELINING, bounds, chosen)
            };
            // Half as much and twice as much are about it.
            let local = within((1.25, 2.0), is_local);
            let remote = within((5.5, 32.0), |cell| !is_local(cell));
            judge_all(local.into_iter().chain(remote).collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.batching-gain",
        claim: "Batching gains up to 500 % over pipelining.",
        historical: Some("up to ×6, §5.2"),
        figures: &[PublishedFigure::ratio("batch to pipelined, most", 6.0, "§5.2")],
        judge: |evidence| stack_ratio(evidence, RESPONSE, BATCHING, (1.0, 12.0), |_| true),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.structure-gain",
        claim: "Structure gains another factor of 3 to 4, locally and remotely.",
        historical: Some("×3 to ×4, §5.3"),
        figures: &[PublishedFigure::ratio("structured to flat", 3.5, "§5.3 (3 to 4)")],
        judge: |evidence| stack_ratio(evidence, RESPONSE, STRUCTURE, (1.5, 8.0), |_| true),
        ..PublishedClaim::of(LANTZ)
    },
];
