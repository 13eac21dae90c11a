//! `host.tweaks`: what a host gains when its processes are disturbed less.
//!
//! Each by itself and all together, against processes that the scheduler places. Left out: single-user mode,
//! which is the host's and not a process'.

use plumb_harness::spec::ProcessTweaks;
use plumb_harness::topology::CpuPlacement;

use crate::definition::{Exclusion, Experiment};
use crate::factor::{Factor, FactorDomain, always, keep_levels, words};
use crate::factors::link;
use crate::factors::streams::{
    self, CONGESTION_CONTROL, PLAIN_LINK, RECEIVER_CPU, SENDER_CPU, STREAMED,
};
use crate::preset::RunPreset;
use plumb_analysis::registry::ExperimentAnalysis;

/// Throughput against what is asked of the kernel.
pub static EXPERIMENT: Experiment = Experiment {
    id: "host.tweaks",
    study: "gigabit",
    question: "How much more does TCP carry when its processes are disturbed less?",
    hypothesis: "On a machine that does nothing else a process' place matters, and little more: memory \
                 is not paged out, and nobody else wants the CPU.",
    factors: &[
        Factor {
            levels: |context| match context.preset {
                RunPreset::Quick => words(&[link::LOOPBACK]),
                _ => words(&[link::LOOPBACK, link::VETH]),
            },
            ..PLAIN_LINK
        },
        TWEAK,
        CONGESTION_CONTROL,
    ],
    responses: &[STREAMED, SENDER_CPU, RECEIVER_CPU],
    plan_cell: |setting| {
        let tweak = setting.factors.text(TWEAK.name).unwrap_or("none");
        let has = |name: &str| tweak == name || tweak == "all";
        let placement = if has("pinned") {
            let two = if link::is_host(setting.factors) {
                CpuPlacement::OwnHost
            } else {
                CpuPlacement::OtherCpu
            };
            let place = setting.topology.resolve(two);
            place.map_err(|lack| Exclusion::Unavailable(lack.to_string()))
        } else {
            Ok(CpuPlacement::Scheduler)
        };
        let spec = link::path_of(setting).map(|path| {
            let mut spec = streams::one_stream(setting, path);
            spec.tweaks = ProcessTweaks {
                locked: has("locked"),
                real_time: has("real-time"),
                huge_pages: has("huge-pages"),
            };
            spec
        });
        streams::streams_cell(placement, spec)
    },
    analysis: ExperimentAnalysis { claims: claims::CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: page::PAGE,
};

const TWEAK: Factor = Factor {
    name: "tweak",
    meaning: "nothing, each process bound to a CPU, its memory locked, real-time priority, its messages \
              in huge pages, or all of these",
    domain: FactorDomain::Words(&LEVELS),
    levels: |_| words(&LEVELS),
    applies: always,
    fit: keep_levels,
    labels: &[
        ("none", "nothing"),
        ("pinned", "bound to CPUs"),
        ("locked", "locked memory"),
        ("real-time", "real-time priority"),
        ("huge-pages", "huge pages"),
        ("all", "all together"),
    ],
};

const LEVELS: [&str; 6] = ["none", "pinned", "locked", "real-time", "huge-pages", "all"];

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::gigabit::*;
    use plumb_analysis::claim::{PublishedClaim, PublishedFigure};
    use plumb_base::units::Unit;

    use plumb_store::record::Factors;

    pub(super) const CLAIMS: &[PublishedClaim] = &[PublishedClaim {
        id: "gigabit.tweaks.five-percent",
        claim: "Single-user mode, no virtual memory and a real-time process give about 5 % more.",
        source: WEIGLE,
        historical: Some("5 %"),
        figures: &[PublishedFigure::comparable("tweaked to plain", 1.05, Unit::Count, "5 %")],
        judge: |evidence| {
            let is = |factors: &Factors, level: &str| factors.text("tweak") == Some(level);
            gain(
                evidence,
                (TWEAKS, "tweak"),
                |factors| is(factors, "all"),
                |factors| is(factors, "none"),
                FIVE,
            )
        },
    }];

    const TWEAKS: &str = "host.tweaks";
}

mod page {
    //! Figures and sentences.

    use crate::pages::gigabit::*;

    use plumb_report::figure::by_level::{self, LevelPlot};

    use plumb_report::registry::ExperimentPage;

    pub(super) const PAGE: ExperimentPage = ExperimentPage {
        title: "Processes that are disturbed less",
        figures: Some(|data| by_level::figures(&data.cells, &TWEAK)),
        sentences: |data| against(&data.cells, &TWEAK, "none", "throughput", "throughput"),
        tiles: |data| best_tile(data, "throughput", "highest throughput", false),
        tile_rank: 4,
        responses: RESPONSES,

        ..ExperimentPage::PLAIN
    };

    const TWEAK: LevelPlot = LevelPlot {
        factor: "tweak",
        order: &["none", "pinned", "locked", "real-time", "huge-pages", "all"],
        panel_factors: &["link"],
        pictures: LEVEL_PICTURES,
    };
}
