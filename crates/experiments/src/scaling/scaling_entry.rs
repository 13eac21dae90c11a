//! `scaling.entry`: what it costs to enter the kernel and leave it, as a machine's measure of its kernel.
//!
//! The empty call of lmbench is a write of one byte to /dev/null, or getppid; here it is getppid, which no
//! library answers by itself. Left out: every other call (`super::call`).

use plumb_base::units::Unit;
use plumb_harness::spec::{BlockTask, LaunchSubject};
use plumb_harness::topology::CpuPlacement;
use plumb_store::record::Better;

use crate::definition::{CellDecision, Experiment, LaunchGroup, ResponseVariable};
use crate::factor::{Factor, FactorDomain, always, keep_levels, words};
use plumb_analysis::registry::ExperimentAnalysis;

/// The empty call.
pub static EXPERIMENT: Experiment = Experiment {
    id: "scaling.entry",
    study: "scaling",
    question: "What does it cost to enter the kernel and leave it?",
    hypothesis: "Faster processors make it cheaper, but by less than they are faster.",
    factors: &[Factor {
        name: "call",
        meaning: "an empty call",
        domain: FactorDomain::Words(&["getppid", "read-zero", "invalid"]),
        levels: |_| words(&["getppid"]),
        applies: always,
        fit: keep_levels,
        labels: &[],
    }],
    responses: &[ResponseVariable {
        name: "call",
        unit: Unit::Nanoseconds,
        better: Better::Lower,
        meaning: "time of one call, from a batch of them",
    }],
    plan_cell: |setting| {
        let call = setting.factors.text("call").unwrap_or_default().to_owned();
        let group = LaunchGroup {
            subject: LaunchSubject::Alone,
            placement: CpuPlacement::SameCpu,
            cpu: None,
        };
        CellDecision::Measure { group, task: BlockTask::Call { call, via: "syscall".to_owned() } }
    },
    analysis: ExperimentAnalysis { claims: claims::CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: page::PAGE,
};

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::scaling::*;
    use plumb_analysis::claim::PublishedClaim;

    pub(super) const CLAIMS: &[PublishedClaim] = &[PublishedClaim {
        id: "scaling.entry.lags-processors",
        claim: "Entering and leaving the kernel improves only by 12 to 28 % of what processors do.",
        source: MARKATOS,
        historical: Some(
            "Pentium ×50 and the call ×15 at best; SPARC ×25 and less than ×3 (Figure 1)",
        ),
        figures: &[],
        judge: |evidence| single_machine_judgment(evidence, (ENTRY, "call"), |_| true),
    }];

    const ENTRY: &str = "scaling.entry";
}

mod page {
    //! Figures and sentences.

    use crate::pages::scaling::*;

    use plumb_report::registry::{ExperimentPage, PageData};

    pub(super) const PAGE: ExperimentPage =
        ExperimentPage { title: "Entering the kernel", sentences, ..ExperimentPage::PLAIN };

    fn sentences(data: &PageData<'_>) -> Vec<String> {
        let told = of(&data.cells, "call").into_iter().map(|cell| {
            format!("An empty kernel call ({}) takes {}.", text(cell, "call"), median_text(cell))
        });
        told.collect()
    }
}
