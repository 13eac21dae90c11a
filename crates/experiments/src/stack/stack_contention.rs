//! `stack.contention`: a mirror while the kernel decodes the same frames, or drops them.

use plumb_harness::spec::{MirrorDevice, MirrorSpec};

use crate::claims::stack::levels;
use crate::definition::{CellDecision, Experiment};
use crate::factor::{Factor, FactorDomain, always, keep_levels, words};
use crate::factors::channel::PLACEMENT;
use crate::factors::mirror::{DEVICE, FRAME, ROUND_TRIP, STACK, WAKE, round_trip, spec};
use plumb_analysis::registry::ExperimentAnalysis;

/// The same while the kernel decodes every frame too, as it did in 1997.
pub static EXPERIMENT: Experiment = Experiment {
    id: "stack.contention",
    study: "stack",
    question: "What does it cost a user-level stack that the kernel decodes the same frames?",
    hypothesis: "The two stacks fight for one processor: a mirror is slower when the kernel decodes \
                 every frame down to its address than when it drops them at its first look.",
    factors: &[CONTENDED, STACK, DEVICE, PLACEMENT, WAKE, FRAME],
    responses: &[ROUND_TRIP],
    plan_cell: |setting| {
        let contended = setting.factors.text("kernel") == Some("decodes");
        match spec(setting) {
            Ok((mirror, placement)) if mirror.device == MirrorDevice::Packet => {
                round_trip(setting, MirrorSpec { contended, ..mirror }, placement)
            }
            Ok(_) => {
                CellDecision::impossible("only a packet socket shares its frames with the kernel")
            }
            Err(form) => *form,
        }
    },
    analysis: ExperimentAnalysis {
        claims: claims::CLAIMS,
        ratios: &[levels("rtt", &[("kernel", "decodes")], &[("kernel", "drops")])],
        ..ExperimentAnalysis::PLAIN
    },
    page: page::PAGE,
};

const CONTENDED: Factor = Factor {
    name: "kernel",
    meaning: "what the kernel does with the frames that a packet socket sees",
    domain: FactorDomain::Words(&["drops", "decodes"]),
    levels: |_| words(&["drops", "decodes"]),
    applies: always,
    fit: keep_levels,
    labels: &[("drops", "kernel drops"), ("decodes", "kernel decodes too")],
};

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::stack::*;
    use plumb_analysis::claim::{PublishedClaim, judge_all};

    pub(super) const CLAIMS: &[PublishedClaim] = &[PublishedClaim {
        id: "stack.contention.two-stacks-fight",
        claim: "A user-level stack is slower while the kernel's stack decodes the same packets.",
        source: KJELLERSTEDT,
        historical: Some("'fighting for the time to process the packets', §4.2; no figure"),
        figures: &[],
        judge: |evidence| {
            let cells = ResponseCells { experiment: "stack.contention", response: "rtt" };
            let (drops, decodes) = ([("kernel", "drops")], [("kernel", "decodes")]);
            judge_all(
                cells.order(evidence, &drops, &decodes, |_| true),
                "plumb run stack.contention",
            )
        },
    }];
}

mod page {
    //! Figures and sentences.

    use crate::pages::stack::*;

    use plumb_report::registry::{ExperimentPage, PageData};

    use plumb_report::name;

    pub(super) const PAGE: ExperimentPage = ExperimentPage {
        title: "Two stacks and the same frames",
        figures: Some(|data| dots::figures(&data.cells)),
        sentences: contention,
        ..ExperimentPage::PLAIN
    };

    fn contention(data: &PageData<'_>) -> Vec<String> {
        let found = data.document.ratios.iter().filter(|ratio| ratio.experiment == data.id);
        let told: Vec<String> = found
            .map(|ratio| {
                let shared = ratio.of.keys().filter(|name| *name != "kernel").cloned().collect();
                format!("{} ({})", times(ratio), name::cell(&ratio.of, &shared))
            })
            .collect();
        if told.is_empty() {
            return Vec::new();
        }
        vec![format!(
            "The round trip while the kernel decodes the same frames, as a multiple of that while it \
         drops them: {}.",
            told.join(", ")
        )]
    }
}
