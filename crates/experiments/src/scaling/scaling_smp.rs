//! `scaling.smp`: what more CPUs and more streams carry.
//!
//! Both processes may use the first so many CPUs, and the scheduler divides those between their threads.

use plumb_analysis::cost_ratio;
use plumb_report::figure::against_factor::{self, FactorPlot, FactorScale};

use crate::claims::{is_local, machines, undecided};
use crate::factor::channel::level_number;
use crate::factor::streams::{
    self, CONGESTION_CONTROL, PLAIN_LINK, RECEIVER_CPU, SENDER_CPU, STREAMED,
};
use crate::pages::{RESPONSES, best_tile, levels, multiple, of, sentence};
use crate::prelude::*;

/// Streams against CPUs.
pub static EXPERIMENT: Experiment = Experiment {
    id: "scaling.smp",
    study: "scaling",
    question: "How much more do more CPUs carry, and in how many streams?",
    hypothesis: "One stream uses two CPUs at most, one at each end; further CPUs carry more only in \
                 further streams, and each byte then costs more CPU than on one.",
    factors: &[
        PLAIN_LINK,
        Factor::new(
            "cpus",
            "CPUs that both processes share, the first that plumb may use",
            // CPUs of the largest machines that Linux runs on.
            FactorDomain::Between(1, 1_024, "a number"),
            Numbers(&[1, 2, 4]),
        )
        .at_quick(Numbers(&[1, 2]))
        .at_paper(Numbers(&[1, 2, 4, 8, 16])),
        Factor::new(
            "streams",
            "TCP connections at once, with a thread each at both ends",
            // More threads than that only wait for each other.
            FactorDomain::Between(1, 64, "a number"),
            Numbers(&[1, 2, 4]),
        )
        .at_quick(Numbers(&[1, 4]))
        .at_paper(Numbers(&[1, 2, 4, 8, 16])),
        CONGESTION_CONTROL,
    ],
    responses: &[STREAMED, SENDER_CPU, RECEIVER_CPU],
    plan_cell: |point| {
        let cpus: u16 = level_number(point.factors, "cpus");
        let allowed = point.topology.allowed().len();
        if usize::from(cpus) > allowed {
            let why = format!("plumb may use {allowed} CPUs here, not {cpus}");
            return Err(Exclusion::unavailable(why));
        }
        streams::streams_cell(point, CpuPlacement::Scheduler, |spec| {
            spec.cpus = Some(cpus);
            spec.streams = level_number(point.factors, "streams");
        })
    },
    analysis: ExperimentAnalysis { expectations: EXPECTATIONS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "More CPUs and more streams",
        figures: Some(|data| against_factor::figures(&data.cells, &SMP)),
        sentences,
        tiles: |data| best_tile(data, "throughput", "highest throughput", false),
        tile_rank: 5,
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

const EXPECTATIONS: &[Expectation] = &[Expectation {
    id: "scaling.smp.scales-as-one",
    statement: "Between processes of a multiprocessor TCP improves with processors as it does on one \
                processor.",
    basis: "the paper draws SPARC uniprocessors and multiprocessors apart (Figure 2) and compares neither",
    judge: multiprocessor,
}];

/// The most CPUs against one, at the most streams over loopback.
fn multiprocessor(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let number = |cell: &MeasuredCell<'_>, name: &str| cell.int(name).unwrap_or(0);
    let cells: Vec<_> =
        evidence.cells(EXPERIMENT.id, "throughput").filter(|cell| is_local(cell)).collect();
    let streams = cells.iter().map(|cell| number(cell, "streams")).max().unwrap_or(0);
    let most = cells.iter().map(|cell| number(cell, "cpus")).max().unwrap_or(0);
    let at = |cpus: i64| {
        let chosen = |cell: &&&MeasuredCell<'_>| {
            number(cell, "cpus") == cpus && number(cell, "streams") == streams
        };
        cells.iter().find(chosen)
    };
    let pair = at(most).filter(|_| most > 1).zip(at(1));
    let Some(ratio) = pair.and_then(|(all, one)| cost_ratio::within_run(all, one)) else {
        return ClaimJudgment::not_measured(&machines(EXPERIMENT.id));
    };
    let [lo, hi] = ratio.ends();
    let told = format!(
        "{most} CPUs carry {:.2}× ({lo:.2}–{hi:.2}) as much as one in {streams} streams",
        ratio.ratio
    );
    undecided(&told, ratio.ratio, Some([lo, hi]), EXPERIMENT.id)
}

const SMP: FactorPlot = FactorPlot {
    factor: "streams",
    label: "streams",
    panel_factors: &["link"],
    pictures: &[
        ("Throughput", &["throughput"]),
        ("Bytes for each second of the sender's CPU", &["sender-cpu"]),
        ("Bytes for each second of the receiver's CPU", &["receiver-cpu"]),
    ],
    power_law_responses: &[],
    scale: FactorScale::Linear,
    unit: "count",
};

/// What the most CPUs carry beside one.
fn sentences(data: &PageData<'_>) -> Vec<String> {
    let cells = of(&data.cells, "throughput");
    let most = cells.iter().filter_map(|cell| cell.number("cpus")).max().unwrap_or(1);
    let gain = |all: &&CellResult| {
        let one = cells.iter().find(|cell| {
            cell.number("cpus") == Some(1)
                && cell.number("streams") == all.number("streams")
                && cell.level("link") == all.level("link")
        })?;
        Some(format!("{} ({})", multiple(all, one)?, levels(all, &["link", "streams"])))
    };
    let with_most = cells.iter().filter(|cell| most > 1 && cell.number("cpus") == Some(most));
    let told: Vec<String> = with_most.filter_map(gain).collect();
    sentence(&told, "; ", |told| format!("{most} CPUs carry, as a multiple of one: {told}."))
}
