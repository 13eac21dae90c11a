//! `scaling.smp`: what more CPUs and more streams carry.
//!
//! Both processes may use the first so many CPUs, and the scheduler divides those between their threads.
//! Left out: CPUs of different speeds.

use plumb_harness::topology::CpuPlacement;

use crate::definition::{Exclusion, Experiment};
use crate::factor::{Factor, FactorDomain, LevelParser, always, keep_levels, numbers};
use crate::factors::link;
use crate::factors::streams::{
    self, CONGESTION_CONTROL, PLAIN_LINK, RECEIVER_CPU, SENDER_CPU, STREAMED, STREAMS,
};
use crate::preset::RunPreset;
use plumb_analysis::registry::ExperimentAnalysis;

/// Streams against CPUs.
pub static EXPERIMENT: Experiment = Experiment {
    id: "scaling.smp",
    study: "scaling",
    question: "How much more do more CPUs carry, and in how many streams?",
    hypothesis: "One stream uses two CPUs at most, one at each end; further CPUs carry more only in \
                 further streams, and each byte then costs more CPU than on one.",
    factors: &[
        PLAIN_LINK,
        CPUS,
        Factor {
            levels: |context| match context.preset {
                RunPreset::Quick => numbers(&[1, 4]),
                RunPreset::Default => numbers(&[1, 2, 4]),
                RunPreset::Paper => numbers(&[1, 2, 4, 8, 16]),
            },
            ..STREAMS
        },
        CONGESTION_CONTROL,
    ],
    responses: &[STREAMED, SENDER_CPU, RECEIVER_CPU],
    plan_cell: |setting| {
        let cpus: u16 = streams::level_number(setting.factors, CPUS.name);
        let allowed = setting.topology.allowed().len();
        let placement = if usize::from(cpus) <= allowed {
            Ok(CpuPlacement::Scheduler)
        } else {
            Err(Exclusion::Unavailable(format!("plumb may use {allowed} CPUs here, not {cpus}")))
        };
        let spec = link::path_of(setting).map(|path| {
            let mut spec = streams::one_stream(setting, path);
            spec.cpus = Some(cpus);
            spec.streams = streams::level_number(setting.factors, STREAMS.name);
            spec
        });
        streams::streams_cell(placement, spec)
    },
    analysis: ExperimentAnalysis { claims: claims::CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: page::PAGE,
};

/// CPUs of the largest machines that Linux runs on.
const CPUS_MAX: u64 = 1_024;

const CPUS: Factor = Factor {
    name: "cpus",
    meaning: "CPUs that both processes share, the first that plumb may use",
    domain: FactorDomain::Parsed(&LevelParser {
        parse: |text| streams::parse_whole_number(text, 1, CPUS_MAX).map(Into::into),
        describe: || format!("a number from 1 to {CPUS_MAX}"),
    }),
    levels: |context| match context.preset {
        RunPreset::Quick => numbers(&[1, 2]),
        RunPreset::Default => numbers(&[1, 2, 4]),
        RunPreset::Paper => numbers(&[1, 2, 4, 8, 16]),
    },
    applies: always,
    fit: keep_levels,
    labels: &[],
};

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::scaling::*;
    use plumb_analysis::claim::{ClaimEvidence, ClaimJudgment, PublishedClaim};
    use plumb_analysis::cost_ratio::{self};
    use plumb_analysis::summary::MeasuredCell;

    pub(super) const CLAIMS: &[PublishedClaim] = &[PublishedClaim {
        id: "scaling.smp.scales-as-one",
        claim: "Between processes of a multiprocessor TCP improves with processors as it does on one \
                processor.",
        source: MARKATOS,
        historical: Some("two panels of Figure 2: SPARC uniprocessors and multiprocessors"),
        figures: &[],
        judge: multiprocessor,
    }];

    const SMP: &str = "scaling.smp";

    /// The most CPUs against one, at the most streams over loopback.
    fn multiprocessor(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let number = |cell: &MeasuredCell<'_>, name: &str| cell.cell.factors.int(name).unwrap_or(0);
        let cells: Vec<_> =
            evidence.cells(SMP, "throughput").filter(|cell| link(cell) == "loopback").collect();
        let streams = cells.iter().map(|cell| number(cell, "streams")).max();
        let at = |cpus: i64| {
            let chosen = |cell: &&&MeasuredCell<'_>| {
                number(cell, "cpus") == cpus && Some(number(cell, "streams")) == streams
            };
            cells.iter().find(chosen)
        };
        let most = cells.iter().map(|cell| number(cell, "cpus")).max().unwrap_or(0);
        let (Some(one), Some(all)) = (at(1), at(most).filter(|_| most > 1)) else {
            return ClaimJudgment::not_measured(&machines(SMP));
        };
        let Some(ratio) = cost_ratio::within_run(all, one) else {
            return ClaimJudgment::not_measured(&machines(SMP));
        };
        let [lo, hi] = ratio.ends();
        let told = format!(
            "{most} CPUs carry {:.2}× ({lo:.2}–{hi:.2}) as much as one in {} streams",
            ratio.ratio,
            streams.unwrap_or(0)
        );
        undecided(&told, Some(ratio.ratio), Some([lo, hi]), SMP)
    }
}

mod page {
    //! Figures and sentences.

    use crate::pages::scaling::*;
    use plumb_analysis::document::CellResult;

    use plumb_report::figure::against_factor::{self, FactorPlot, FactorScale};

    use plumb_report::registry::ExperimentPage;

    pub(super) const PAGE: ExperimentPage = ExperimentPage {
        title: "More CPUs and more streams",
        figures: Some(|data| against_factor::figures(&data.cells, &SMP)),
        sentences: |data| cpu_scaling_sentences(&data.cells),
        tiles: |data| best_tile(data, "throughput", "highest throughput", false),
        tile_rank: 5,
        responses: RESPONSES,

        ..ExperimentPage::PLAIN
    };

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
    fn cpu_scaling_sentences(cells: &[&CellResult]) -> Vec<String> {
        let cells = of(cells, "throughput");
        let most = cells.iter().filter_map(|cell| number(cell, "cpus")).max().unwrap_or(1);
        let mut told = Vec::new();
        for all in cells.iter().filter(|cell| most > 1 && number(cell, "cpus") == Some(most)) {
            let streams = number(all, "streams");
            let one = cells.iter().find(|cell| {
                number(cell, "cpus") == Some(1)
                    && number(cell, "streams") == streams
                    && text(cell, "link") == text(all, "link")
            });
            let Some(ratio) = one.and_then(|one| ratio(all, one)) else { continue };
            told.push(format!("{ratio} ({})", levels(all, &["link", "streams"])));
        }
        if told.is_empty() {
            return Vec::new();
        }
        vec![format!("{most} CPUs carry, as a multiple of one: {}.", told.join("; "))]
    }
}
