//! `stack.contention`: a mirror while the kernel decodes the same frames, or drops them.

use plumb_harness::spec::{MirrorDevice, MirrorSpec};

use crate::claims::{KJELLERSTEDT, levels, stack_order};
use crate::factor::channel::PLACEMENT;
use crate::factor::mirror::{self, DEVICE, FRAME, ROUND_TRIP, STACK, WAKE};
use crate::pages::{bars, sentence};
use crate::prelude::*;

/// The same while the kernel decodes every frame too, as it did in 1997.
pub static EXPERIMENT: Experiment = Experiment {
    id: "stack.contention",
    study: "stack",
    question: "What does it cost a user-level stack that the kernel decodes the same frames?",
    hypothesis: "The two stacks fight for one processor: a mirror is slower when the kernel decodes \
                 every frame down to its address than when it drops them at its first look.",
    factors: &[
        Factor::of_words(
            "kernel",
            "what the kernel does with the frames that a packet socket sees",
            &["drops", "decodes"],
        )
        .labelled(&[("drops", "kernel drops"), ("decodes", "kernel decodes too")]),
        STACK,
        DEVICE,
        PLACEMENT,
        WAKE,
        FRAME,
    ],
    responses: &[ROUND_TRIP],
    plan_cell: |point| {
        let contended = point.text("kernel") == Some("decodes");
        let (mirror, placement) = mirror::spec(point)?;
        if mirror.device != MirrorDevice::Packet {
            let why = "only a packet socket shares its frames with the kernel";
            return Err(Exclusion::impossible(why));
        }
        mirror::round_trip(point, MirrorSpec { contended, ..mirror }, placement)
    },
    analysis: ExperimentAnalysis {
        claims: CLAIMS,
        ratios: &[levels("rtt", &[("kernel", "decodes")], &[("kernel", "drops")])],
        ..ExperimentAnalysis::PLAIN
    },
    page: ExperimentPage {
        title: "Two stacks and the same frames",
        figures: Some(|data| bars::round_trips(&data.cells)),
        sentences,
        ..ExperimentPage::PLAIN
    },
};

const CLAIMS: &[PublishedClaim] = &[PublishedClaim {
    id: "stack.contention.two-stacks-fight",
    claim: "A user-level stack is slower while the kernel's stack decodes the same packets.",
    historical: Some("'fighting for the time to process the packets', §4.2; no figure"),
    judge: |evidence| {
        let (drops, decodes) = ([("kernel", "drops")], [("kernel", "decodes")]);
        stack_order(evidence, (EXPERIMENT.id, ROUND_TRIP.name), (&drops, &decodes), |_| true)
    },
    ..PublishedClaim::of(KJELLERSTEDT)
}];

fn sentences(data: &PageData<'_>) -> Vec<String> {
    let found = data.document.ratios.iter().filter(|ratio| ratio.experiment == data.id);
    let told = found.map(|ratio| {
        let shared = ratio.of.keys().filter(|name| *name != "kernel").cloned().collect();
        format!("{} ({})", value::ratio(ratio), name::cell(&ratio.of, &shared))
    });
    sentence(&told.collect::<Vec<_>>(), ", ", |told| {
        format!(
            "The round trip while the kernel decodes the same frames, as a multiple of that while it \
             drops them: {told}."
        )
    })
}
