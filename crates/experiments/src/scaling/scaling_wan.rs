//! `scaling.wan`: what a second of CPU carries over longer networks.

use plumb_analysis::ladder::METROPOLITAN;
use plumb_report::figure::by_level;

use crate::claims::{MARKATOS, single_machine_judgment};
use crate::factor::link::LINK;
use crate::factor::remote::SAME_CPU;
use crate::factor::streams::{self, CONGESTION_CONTROL, SENDER_CPU};
use crate::pages::{LINKS, RESPONSES, best_tile, bytes_per_cpu_sentences};
use crate::prelude::*;

/// A stream over longer networks.
pub static EXPERIMENT: Experiment = Experiment {
    id: "scaling.wan",
    study: "scaling",
    question: "How much does a second of CPU carry over a metropolitan and a wide-area network?",
    hypothesis: "Delay costs no CPU: each byte costs as much as on a local network of the same rate.",
    factors: &[
        LINK.at(Words(&["ethernet-10m", "lan-1g", METROPOLITAN, "transatlantic"]))
            .at_quick(Words(&["lan-1g", METROPOLITAN, "transatlantic"])),
        SAME_CPU,
        CONGESTION_CONTROL,
    ],
    responses: &streams::RESPONSES,
    plan_cell: |point| streams::over_link(point, |_| {}),
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "What a second of CPU carries over longer networks",
        figures: Some(|data| by_level::figures(&data.cells, &LINKS)),
        sentences: |data| bytes_per_cpu_sentences(&data.cells),
        tiles: |data| {
            best_tile(data, "sender-cpu", "carried by a second of the sender's CPU", false)
        },
        tile_rank: 9,
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

const CLAIMS: &[PublishedClaim] = &[PublishedClaim {
    id: "scaling.wan.lags-processors",
    claim: "Over metropolitan and wide-area networks TCP follows processors as over a LAN of 10 Mb/s, \
            with about 60 %.",
    historical: Some("about 60 %, without a figure"),
    figures: &[PublishedFigure::alone("slope", 0.6, Unit::Count, "about 60 %")],
    judge: |evidence| {
        let response = (EXPERIMENT.id, SENDER_CPU.name);
        single_machine_judgment(evidence, response, |cell| !cell.level("link").starts_with("lan-"))
    },
    ..PublishedClaim::of(MARKATOS)
}];
