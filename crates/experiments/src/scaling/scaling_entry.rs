//! `scaling.entry`: what it costs to enter the kernel and leave it, as a machine's measure of its kernel.
//!
//! The empty call of lmbench is a write of one byte to /dev/null, or getppid; here it is getppid, which no
//! library answers by itself.

use crate::claims::{MARKATOS, single_machine_judgment};
use crate::ipc::call_kernel::CALL;
use crate::pages::of;
use crate::prelude::*;

/// The empty call.
pub static EXPERIMENT: Experiment = Experiment {
    id: "scaling.entry",
    study: "scaling",
    question: "What does it cost to enter the kernel and leave it?",
    hypothesis: "Faster processors make it cheaper, but by less than they are faster.",
    factors: &[Factor::of_words("call", "an empty call", &["getppid", "read-zero", "invalid"])
        .at(Words(&["getppid"]))],
    responses: &[CALL],
    plan_cell: |point| {
        let call = point.text("call").unwrap_or_default().to_owned();
        Ok((LaunchGroup::alone(), BlockTask::Call { call, via: "syscall".to_owned() }))
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage { title: "Entering the kernel", sentences, ..ExperimentPage::PLAIN },
};

const CLAIMS: &[PublishedClaim] = &[PublishedClaim {
    id: "scaling.entry.lags-processors",
    claim: "Entering and leaving the kernel improves only by 12 to 28 % of what processors do.",
    historical: Some("Pentium ×50 and the call ×15 at best; SPARC ×25 and less than ×3 (Figure 1)"),
    figures: &[
        PublishedFigure::alone("least of processors", 0.12, Unit::Share, "§3.2"),
        PublishedFigure::alone("most of processors", 0.28, Unit::Share, "§3.2"),
        PublishedFigure::alone("Pentium, processors ×50", 15.0, Unit::Count, "Figure 1"),
        PublishedFigure::alone("SPARC, processors ×25", 3.0, Unit::Count, "Figure 1"),
    ],
    judge: |evidence| single_machine_judgment(evidence, (EXPERIMENT.id, CALL.name), |_| true),
    ..PublishedClaim::of(MARKATOS)
}];

fn sentences(data: &PageData<'_>) -> Vec<String> {
    let told = of(&data.cells, CALL.name).into_iter().map(|cell| {
        let (call, time) = (cell.level("call"), value::median(cell));
        format!("An empty kernel call ({call}) takes {time}.")
    });
    told.collect()
}
