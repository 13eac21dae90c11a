//! `stack.chunk`: how much more TCP carries in application writes of 4 KiB than of 1 KiB.
//!
//! After the server of Lantz, Nowicki & Theimer (1985), which sent each block of 4 Kbytes as four packets.

use crate::claims::gain;
use crate::factor::channel::{self, CONGESTION, MECHANISM, PLACEMENT, SIZE, THROUGHPUT};
use crate::factor::remote::BLOCKING_WAKE;
use crate::prelude::*;

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
            ..MECHANISM
        }
        .at(Words(&["tcp4"])),
        PLACEMENT,
        BLOCKING_WAKE,
        Factor { fit: keep_levels, ..SIZE }.at(Numbers(&[1 << 10, 4 << 10])),
        CONGESTION,
    ],
    responses: &[THROUGHPUT],
    plan_cell: |point| Ok((channel::group(point)?, channel::transfer(point))),
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
    figures: &[PublishedFigure::ratio("4 KB to 1 KB", 1.175, "§9.1 (15 to 20 %)")],
    judge: |evidence| gain(evidence, (EXPERIMENT.id, "size"), (4u64 << 10, 1u64 << 10), ABOUT),
}];
