//! `stack.chunk`: how much more TCP carries in application writes of 4 KiB than of 1 KiB.
//!
//! After the server of Lantz, Nowicki & Theimer (1985), which sent each block of 4 Kbytes as four packets.

use plumb_analysis::claim::{PublishedClaim, PublishedFigure};
use plumb_analysis::registry::ExperimentAnalysis;
use plumb_base::units::Unit;
use plumb_harness::spec::{BlockTask, Mechanism};
use plumb_report::registry::ExperimentPage;

use crate::claims::gigabit::gain;
use crate::definition::{CellDecision, Experiment};
use crate::factor::{Factor, FactorDomain, always, keep_levels, numbers, words};
use crate::factors::channel::{self, CONGESTION, MECHANISM, PLACEMENT, SIZE, THROUGHPUT};
use crate::factors::remote::BLOCKING_WAKE;

/// Two sizes of an application's writes.
pub static EXPERIMENT: Experiment = Experiment {
    id: "stack.chunk",
    study: "stack",
    question: "How much more does TCP carry in writes of 4 KiB than of 1 KiB?",
    hypothesis: "Each write costs one entry into the stack: a quarter as many of them carry clearly \
                 more, whatever the placement.",
    factors: &[
        Factor {
            domain: FactorDomain::Mechanisms(|mechanism| {
                matches!(mechanism, Mechanism::Tcp4 | Mechanism::Tcp6)
            }),
            levels: |_| words(&["tcp4"]),
            ..MECHANISM
        },
        PLACEMENT,
        BLOCKING_WAKE,
        Factor {
            levels: |_| numbers(&[1 << 10, 4 << 10]),
            applies: always,
            fit: keep_levels,
            ..SIZE
        },
        CONGESTION,
    ],
    responses: &[THROUGHPUT],
    plan_cell: |point| {
        let size = channel::size_of(point.factors);
        CellDecision::measure(channel::group(point), BlockTask::Throughput { size })
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage { title: "The size of writes", ..ExperimentPage::PLAIN },
};

/// "About 15–20 %": between half of the lower and twice the upper figure.
const ABOUT: (f64, f64) = (1.075, 1.40);

const CLAIMS: &[PublishedClaim] = &[PublishedClaim {
    id: "distributed.chunk.four-kilobytes-carry-more",
    claim: "Blocks of 4 Kbytes instead of 1 Kbyte give about 15 to 20 % more.",
    source: "Lantz, Nowicki & Theimer, An Empirical Study of Distributed Application Performance, \
             STAN-CS-86-1117, 1985",
    historical: Some("about 15–20 %, §9.1"),
    figures: &[PublishedFigure::comparable(
        "4 KB to 1 KB",
        1.175,
        Unit::Count,
        "§9.1 (15 to 20 %)",
    )],
    judge: |evidence| {
        gain(
            evidence,
            ("stack.chunk", "size"),
            |factors| factors.int("size") == Some(4 << 10),
            |factors| factors.int("size") == Some(1 << 10),
            ABOUT,
        )
    },
}];
