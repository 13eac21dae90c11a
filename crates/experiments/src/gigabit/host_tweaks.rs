//! `host.tweaks`: what a host gains when its processes are disturbed less.
//!
//! Each by itself and all together, against processes that the scheduler places. Single-user mode is not among
//! them: it is the host's and not a process'.

use plumb_harness::spec::ProcessTweaks;
use plumb_report::figure::by_level::{self, LevelPlot};

use crate::claims::{FIVE, WEIGLE, gain};
use crate::factor::link::{self, LOOPBACK};
use crate::factor::streams::{
    self, CONGESTION_CONTROL, PLAIN_LINK, RECEIVER_CPU, SENDER_CPU, STREAMED,
};
use crate::pages::{LEVEL_PICTURES, RESPONSES, against, best_tile};
use crate::prelude::*;

/// Throughput against what is asked of the kernel.
pub static EXPERIMENT: Experiment = Experiment {
    id: "host.tweaks",
    study: "gigabit",
    question: "How much more does TCP carry when its processes are disturbed less?",
    hypothesis: "On a machine that does nothing else a process' place matters, and little more: memory \
                 is not paged out, and nobody else wants the CPU.",
    factors: &[
        PLAIN_LINK.at_quick(Words(&[LOOPBACK])),
        Factor::of_words(
            "tweak",
            "nothing, each process bound to a CPU, its memory locked, real-time priority, the last two \
             together as published, its messages in huge pages, or all of these",
            &LEVELS,
        )
        .labelled(&[
            ("none", "nothing"),
            ("pinned", "bound to CPUs"),
            ("locked", "locked memory"),
            ("real-time", "real-time priority"),
            ("published", "locked memory and real-time priority"),
            ("huge-pages", "huge pages"),
            ("all", "all together"),
        ]),
        CONGESTION_CONTROL,
    ],
    responses: &[STREAMED, SENDER_CPU, RECEIVER_CPU],
    plan_cell: |point| {
        let tweak = point.text("tweak").unwrap_or("none");
        let is_published = |name: &str| matches!(name, "locked" | "real-time");
        let has = |name: &str| {
            tweak == name || tweak == "all" || (tweak == "published" && is_published(name))
        };
        let placement = match (has("pinned"), link::is_host(point.factors)) {
            (false, _) => CpuPlacement::Scheduler,
            (true, true) => resolve(point, CpuPlacement::OwnHost)?,
            (true, false) => resolve(point, CpuPlacement::OtherCpu)?,
        };
        streams::streams_cell(point, placement, |spec| {
            spec.tweaks = ProcessTweaks {
                locked: has("locked"),
                real_time: has("real-time"),
                huge_pages: has("huge-pages"),
            };
        })
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Processes that are disturbed less",
        figures: Some(|data| by_level::figures(&data.cells, &TWEAK)),
        sentences: |data| against(&data.cells, &TWEAK, "none", "throughput", "throughput"),
        tiles: |data| best_tile(data, "throughput", "highest throughput", false),
        tile_rank: 4,
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

const LEVELS: [&str; 7] =
    ["none", "pinned", "locked", "real-time", "published", "huge-pages", "all"];

fn resolve(point: &DesignPoint<'_>, placement: CpuPlacement) -> Result<CpuPlacement, Exclusion> {
    let found = point.topology.resolve(placement);
    found.map_err(|lack| Exclusion::unavailable(lack.to_string()))
}

const CLAIMS: &[PublishedClaim] = &[FIVE_PERCENT, SLIGHTLY_MORE];

const FIVE_PERCENT: PublishedClaim = PublishedClaim {
    id: "gigabit.tweaks.five-percent",
    claim: "Single-user mode, no virtual memory and a real-time process give about 5 % more.",
    historical: Some("5 %; here the host is as it is, its user decides who else runs on it"),
    figures: &[PublishedFigure::ratio("tweaked to plain", 1.05, "5 %")],
    judge: |evidence| gain(evidence, (EXPERIMENT.id, "tweak"), ("published", "none"), FIVE),
    ..PublishedClaim::of(WEIGLE)
};

const SLIGHTLY_MORE: PublishedClaim = PublishedClaim {
    id: "gigabit.tweaks.slightly-more",
    claim: "Further enhancements of the system set-up improve throughput slightly (judged by all of them together giving more than nothing \
            and no more than 10 %).",
    judge: |evidence| gain(evidence, (EXPERIMENT.id, "tweak"), ("all", "none"), (1.0, 1.10)),
    ..PublishedClaim::of(WEIGLE)
};

const TWEAK: LevelPlot = LevelPlot {
    factor: "tweak",
    order: &LEVELS,
    panel_factors: &["link"],
    pictures: LEVEL_PICTURES,
};
