//! `scaling.loopback`: what a second of CPU carries within a machine.

use crate::definition::Experiment;
use crate::factor::{Factor, FactorDomain, words};
use crate::factors::link::{LINK, LOOPBACK};
use crate::factors::remote::ONE_HOST_PLACEMENT;
use crate::factors::streams::{self, CONGESTION_CONTROL};
use plumb_analysis::registry::ExperimentAnalysis;

/// A stream within one machine.
pub static EXPERIMENT: Experiment = Experiment {
    id: "scaling.loopback",
    study: "scaling",
    question: "How much does TCP carry between two processes of one machine?",
    hypothesis: "It carries more the faster the processor is, but not as much more.",
    factors: &[
        Factor { domain: FactorDomain::Words(&[LOOPBACK]), levels: |_| words(&[LOOPBACK]), ..LINK },
        Factor { levels: |_| words(&["same-cpu", "other-cpu"]), ..ONE_HOST_PLACEMENT },
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
    use plumb_analysis::claim::PublishedClaim;

    pub(super) const CLAIMS: &[PublishedClaim] = &[PublishedClaim {
        id: "scaling.loopback.lags-processors",
        claim: "TCP between processes of one computer improves far less than processors, in messages of \
                64 Kbytes.",
        source: MARKATOS,
        historical: Some(
            "processors ×35, TCP ×5 (Alpha) and ×12 (Pentium); SPARC almost linear (Figure 2)",
        ),
        figures: &[],
        judge: |evidence| single_machine_judgment(evidence, (LOOPBACK, "throughput"), |_| true),
    }];

    const LOOPBACK: &str = "scaling.loopback";
}

mod page {
    //! Figures and sentences.

    use crate::pages::scaling::*;

    use plumb_report::figure::by_level::{self};

    use plumb_report::registry::ExperimentPage;

    pub(super) const PAGE: ExperimentPage = ExperimentPage {
        title: "TCP within one machine",
        figures: Some(|data| by_level::figures(&data.cells, &LINKS)),
        sentences: |data| bytes_per_cpu_sentences(&data.cells),
        tiles: |data| best_tile(data, "throughput", "TCP over loopback", false),
        tile_rank: 7,
        responses: RESPONSES,

        ..ExperimentPage::PLAIN
    };
}
