//! `scaling.wan`: what a second of CPU carries over longer networks.

use crate::definition::Experiment;
use crate::factor::{Factor, words};
use crate::factors::link::LINK;
use crate::factors::remote::ONE_HOST_PLACEMENT;
use crate::factors::streams::{self, CONGESTION_CONTROL};
use crate::preset::RunPreset;
use plumb_analysis::ladder::METROPOLITAN;
use plumb_analysis::registry::ExperimentAnalysis;

/// A stream over longer networks.
pub static EXPERIMENT: Experiment = Experiment {
    id: "scaling.wan",
    study: "scaling",
    question: "How much does a second of CPU carry over a metropolitan and a wide-area network?",
    hypothesis: "Delay costs no CPU: each byte costs as much as on a local network of the same rate.",
    factors: &[
        Factor {
            levels: |context| match context.preset {
                RunPreset::Quick => words(&["lan-1g", METROPOLITAN, "transatlantic"]),
                _ => words(&["ethernet-10m", "lan-1g", METROPOLITAN, "transatlantic"]),
            },
            ..LINK
        },
        Factor { levels: |_| words(&["same-cpu"]), ..ONE_HOST_PLACEMENT },
        CONGESTION_CONTROL,
    ],
    responses: &streams::RESPONSES,
    plan_cell: |setting| streams::over_link(setting, |_| {}),
    analysis: ExperimentAnalysis { claims: claims::CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: page::PAGE,
};

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::scaling::*;
    use plumb_analysis::claim::{PublishedClaim, PublishedFigure};
    use plumb_base::units::Unit;

    pub(super) const CLAIMS: &[PublishedClaim] = &[PublishedClaim {
        id: "scaling.wan.lags-processors",
        claim: "Over metropolitan and wide-area networks TCP follows processors as over a LAN of 10 Mb/s, \
                with about 60 %.",
        source: MARKATOS,
        historical: Some("about 60 %, without a figure"),
        figures: &[PublishedFigure::alone("slope", 0.6, Unit::Count, "about 60 %")],
        judge: |evidence| {
            single_machine_judgment(evidence, (WAN, SENDER_CPU), |cell| {
                !link(cell).starts_with("lan-")
            })
        },
    }];

    const WAN: &str = "scaling.wan";
}

mod page {
    //! Figures and sentences.

    use crate::pages::scaling::*;

    use plumb_report::figure::by_level::{self};

    use plumb_report::registry::ExperimentPage;

    pub(super) const PAGE: ExperimentPage = ExperimentPage {
        title: "What a second of CPU carries over longer networks",
        figures: Some(|data| by_level::figures(&data.cells, &LINKS)),
        sentences: |data| bytes_per_cpu_sentences(&data.cells),
        tiles: |data| {
            best_tile(data, "sender-cpu", "carried by a second of the sender's CPU", false)
        },
        tile_rank: 9,
        responses: RESPONSES,

        ..ExperimentPage::PLAIN
    };
}
