//! `display.link`: rates by the rate and delay of the link, in virtual time.
//!
//! After Lantz, Nowicki & Theimer (1985, §8, Tables 8-1 and 8-2): point-to-point lines from 1200 b/s on, the ARPANET, and Ethernets of 3 and
//! 10 Mb/s; and links of today.

use plumb_harness::spec::DisplayPath;
use plumb_report::figure::by_level::{self, LevelPlot};

use crate::claims::{LANTZ, medians_within, stack_ratio};
use crate::factor::display::{BYTES, RATE, RESPONSES, ROUND_TRIPS, SLOW_PERCENT, cell, link};
use crate::pages::against;
use crate::prelude::*;

/// A link, a mode and processors a cell.
pub static EXPERIMENT: Experiment = Experiment {
    id: "display.link",
    study: "distributed",
    question: "How much does a remote display gain from a faster link?",
    hypothesis: "With slow processors hardly anything beyond 56 kb/s, and with structure little even below. With processors of today a batch is as \
                 fast as the link up to hundreds of Mb/s, and where every message is waited for the delay decides.",
    factors: &[
        Factor::of_words(
            "processors",
            "as slow as those of 1985, 10,000 times slower than this one, or as they are",
            &["slow", "today"],
        )
        .labelled(&[("slow", "slow processors"), ("today", "processors of today")]),
        Factor::of_words(
            "link",
            "a line of so many bits a second, the ARPANET (56 kb/s, 100 ms each way), or an Ethernet of 1 ms each way",
            &LINKS,
        ),
        Factor::of_words(
            "mode",
            "780 rectangles added in batches; the same drawn; structured and drawn; or drawn one by one, waiting for every reply or not",
            &["construction", "batch", "structured", "incremental", "pipelined-incremental"],
        ),
    ],
    responses: &[RATE, BYTES, ROUND_TRIPS],
    plan_cell,
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "The link of a remote display",
        figures: Some(|data| by_level::figures(&data.cells, &PLOT)),
        sentences: |data| against(&data.cells, &PLOT, "10mbit", "rate", "rate"),
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

const LINKS: [&str; 9] =
    ["1200bit", "2400bit", "4800bit", "9600bit", "arpanet", "3mbit", "10mbit", "100mbit", "1gbit"];

const PLOT: LevelPlot = LevelPlot {
    factor: "link",
    order: &LINKS,
    panel_factors: &["processors", "mode"],
    pictures: &[("Rectangles a second", &["rate"], true)],
};

fn plan_cell(point: &DesignPoint<'_>) -> CellDecision {
    let level = |name| point.text(name).unwrap_or_default();
    let percent = if level("processors") == "slow" { SLOW_PERCENT } else { 100 };
    let text = match level("link") {
        "arpanet" => link("56kbit", "100ms"),
        line if line.ends_with("00bit") => link(line, "0"),
        ethernet => link(ethernet, "1ms"),
    };
    let path = DisplayPath::Virtual { link: text, slower_percent: [percent; 2], is_shared: false };
    cell("array", level("mode"), Some(path))
}

const RESPONSE: (&str, &str) = ("display.link", "rate");

fn is_slow(cell: &MeasuredCell<'_>) -> bool {
    cell.is("processors", "slow")
}

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "distributed.link.telephone-line",
        claim: "Graphics works over a telephone line: at 1200 b/s 7.4 items a second are measured.",
        historical: Some("7.4 items a second at 1200 b/s, §8"),
        figures: &[PublishedFigure::comparable(
            "construction at 1200 b/s, items a second",
            7.4,
            Unit::Count,
            "§8, Table 8-2",
        )],
        judge: |evidence| {
            let cases = medians_within(evidence, RESPONSE, (3.7, 7.5), |cell| {
                is_slow(cell) && cell.is("link", "1200bit") && cell.is("mode", "construction")
            });
            judge_all(cases, "plumb run display.link")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.link.sixty-times-the-bandwidth",
        claim: "A network with 60 times the bandwidth (3 Mb/s against 56 kb/s) gives less than 50 %.",
        historical: Some("220 to 130 and 210 to 120 vectors a second, Table 8-1"),
        figures: &[PublishedFigure::ratio("3 Mb/s to 56 kb/s, most", 1.5, "§8")],
        judge: |evidence| {
            let (fast, slow) = (&[("link", "3mbit")][..], &[("link", "arpanet")][..]);
            stack_ratio(evidence, RESPONSE, (fast, slow), (1.0, 1.5), |cell| {
                is_slow(cell) && (cell.is("mode", "construction") || cell.is("mode", "batch"))
            })
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.link.three-or-ten-megabits",
        claim: "Between 3 and 10 Mb/s Ethernet there is very little measurable difference.",
        historical: Some("220 to 230 and 210 to 220 vectors a second, Table 8-1"),
        figures: &[PublishedFigure::ratio("10 Mb/s to 3 Mb/s", 1.05, "Table 8-1")],
        judge: |evidence| {
            let (fast, slow) = (&[("link", "10mbit")][..], &[("link", "3mbit")][..]);
            stack_ratio(evidence, RESPONSE, (fast, slow), (0.9, 1.1), is_slow)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.link.structure-at-9600-near-ethernet",
        claim: "With structure 9600 b/s are only about 15 % slower than Ethernet, whose bandwidth is a thousand times greater.",
        historical: Some("320 to 380 items a second, Table 8-2"),
        figures: &[PublishedFigure::ratio("10 Mb/s to 9600 b/s", 1.19, "Table 8-2")],
        judge: |evidence| {
            let (fast, slow) = (&[("link", "10mbit")][..], &[("link", "9600bit")][..]);
            // Twice as much is about it.
            stack_ratio(evidence, RESPONSE, (fast, slow), (1.0, 1.38), |cell| {
                is_slow(cell) && cell.is("mode", "structured")
            })
        },
        ..PublishedClaim::of(LANTZ)
    },
];
