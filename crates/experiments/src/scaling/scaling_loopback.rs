//! `scaling.loopback`: what a second of CPU carries within a machine.

use plumb_report::figure::by_level;

use crate::claims::{MARKATOS, single_machine_judgment};
use crate::factor::channel::PLACEMENT;
use crate::factor::link::{LINK, LOOPBACK};
use crate::factor::streams::{self, CONGESTION_CONTROL};
use crate::pages::{LINKS, RESPONSES, best_tile, bytes_per_cpu_sentences};
use crate::prelude::*;

/// A stream within one machine.
pub static EXPERIMENT: Experiment = Experiment {
    id: "scaling.loopback",
    study: "scaling",
    question: "How much does TCP carry between two processes of one machine?",
    hypothesis: "It carries more the faster the processor is, but not as much more.",
    factors: &[
        Factor { domain: FactorDomain::Words(&[LOOPBACK]), ..LINK }.at(Words(&[LOOPBACK])),
        PLACEMENT.at(Words(&["same-cpu", "other-cpu"])),
        CONGESTION_CONTROL,
    ],
    responses: &streams::RESPONSES,
    plan_cell: |point| streams::over_link(point, |_| {}),
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "TCP within one machine",
        figures: Some(|data| by_level::figures(&data.cells, &LINKS)),
        sentences: |data| bytes_per_cpu_sentences(&data.cells),
        tiles: |data| best_tile(data, "throughput", "TCP over loopback", false),
        tile_rank: 7,
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

const CLAIMS: &[PublishedClaim] = &[PublishedClaim {
    id: "scaling.loopback.lags-processors",
    claim: "TCP between processes of one computer improves far less than processors, in messages of \
            64 Kbytes.",
    historical: Some(
        "processors ×35, TCP ×5 (Alpha) and ×12 (Pentium); SPARC almost linear (Figure 2)",
    ),
    figures: &[
        PublishedFigure::alone("Alpha, processors ×35", 5.0, Unit::Count, "Figure 2"),
        PublishedFigure::alone("Pentium, processors ×35", 12.0, Unit::Count, "Figure 2"),
    ],
    judge: |evidence| single_machine_judgment(evidence, (EXPERIMENT.id, "throughput"), |_| true),
    ..PublishedClaim::of(MARKATOS)
}];
