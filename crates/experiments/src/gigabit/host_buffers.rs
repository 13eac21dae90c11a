//! `host.buffers`: what larger socket buffers give.
//!
//! Both buffers of both sockets; left to the kernel, it makes them as large as it finds the connection needs.
//! Left out: windows, which are bounded by themselves (`super::window_bdp`).

use crate::definition::{CellDecision, Experiment};
use crate::factor::{Factor, FactorDomain, always, keep_levels, numbers, words};
use crate::factors::link::VETH;
use crate::factors::streams::{
    self, CONGESTION_CONTROL, OTHER_CPU_PLACEMENT, PLAIN_LINK, RECEIVER_CPU, SENDER_CPU, STREAMED,
};
use crate::preset::RunPreset;
use plumb_analysis::registry::ExperimentAnalysis;

/// Throughput against socket buffers.
pub static EXPERIMENT: Experiment = Experiment {
    id: "host.buffers",
    study: "gigabit",
    question: "How much more does TCP carry with larger socket buffers?",
    hypothesis: "Too small a buffer makes both sides wait for each other; beyond what the connection \
                 needs a larger one gives nothing, and costs cache.",
    factors: &[
        Factor { levels: |_| words(&[VETH]), ..PLAIN_LINK },
        BUFFER,
        OTHER_CPU_PLACEMENT,
        CONGESTION_CONTROL,
    ],
    responses: &[STREAMED, SENDER_CPU, RECEIVER_CPU],
    plan_cell: |setting| {
        let bytes = setting.factors.int(BUFFER.name).and_then(|bytes| u64::try_from(bytes).ok());
        if bytes.is_some_and(|bytes| !(BUFFER_MIN..=BUFFER_MAX).contains(&bytes)) {
            return CellDecision::impossible("a socket buffer has from 4 KiB to 64 MiB here");
        }
        streams::over_link(setting, |spec| spec.options.buffer = bytes)
    },
    analysis: ExperimentAnalysis { claims: claims::CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: page::PAGE,
};

/// Linux gives no less (SOCK_MIN_SNDBUF is half of it).
const BUFFER_MIN: u64 = 4 << 10;
/// More than any connection needs here.
const BUFFER_MAX: u64 = 64 << 20;

const BUFFER: Factor = Factor {
    name: "buffer",
    meaning: "send and receive buffer of both sockets; default is the kernel's own choice",
    domain: FactorDomain::Buffers,
    levels: |context| {
        let mut levels = match context.preset {
            RunPreset::Quick => numbers(&[16 << 10, 64 << 10, 512 << 10, 4 << 20]),
            RunPreset::Default => {
                numbers(&[16 << 10, 64 << 10, 256 << 10, 512 << 10, 2 << 20, 16 << 20])
            }
            RunPreset::Paper => numbers(&[
                16 << 10,
                32 << 10,
                64 << 10,
                128 << 10,
                256 << 10,
                512 << 10,
                1 << 20,
                2 << 20,
                4 << 20,
                8 << 20,
                16 << 20,
            ]),
        };
        levels.push("default".into());
        levels
    },
    applies: always,
    fit: keep_levels,
    labels: &[],
};

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::gigabit::*;
    use plumb_analysis::claim::{PublishedClaim, PublishedFigure};
    use plumb_base::units::Unit;

    use plumb_store::record::Factors;

    pub(super) const CLAIMS: &[PublishedClaim] = &[PublishedClaim {
        id: "gigabit.buffers.five-percent",
        claim: "Socket buffers of 512 KB instead of 64 KB give about 5 % more.",
        source: WEIGLE,
        historical: Some("about 5 %"),
        figures: &[PublishedFigure::comparable("512 KB to 64 KB", 1.05, Unit::Count, "about 5 %")],
        judge: |evidence| {
            let at = |factors: &Factors, bytes: i64| factors.int("buffer") == Some(bytes);
            gain(
                evidence,
                (BUFFERS, "buffer"),
                |factors| at(factors, 512 << 10),
                |factors| at(factors, 64 << 10),
                FIVE,
            )
        },
    }];

    const BUFFERS: &str = "host.buffers";
}

mod page {
    //! Figures and sentences.

    use std::fmt::Write as _;

    use crate::pages::gigabit::*;
    use plumb_analysis::document::CellResult;

    use plumb_report::figure::against_factor::{self, FactorPlot, FactorScale, factor_series};

    use plumb_report::registry::ExperimentPage;

    pub(super) const PAGE: ExperimentPage = ExperimentPage {
        title: "Socket buffers",
        figures: Some(|data| against_factor::figures(&data.cells, &BUFFER)),
        sentences: |data| buffers(&data.cells),
        tiles: |data| best_tile(data, "throughput", "highest throughput", false),
        tile_rank: 2,
        responses: RESPONSES,

        ..ExperimentPage::PLAIN
    };

    const BUFFER: FactorPlot = FactorPlot {
        factor: "buffer",
        label: "socket buffers (B)",
        unit: "B",
        scale: FactorScale::Log2,
        pictures: &[("Throughput", &["throughput"]), ("Bytes for each second of CPU", &SIDES)],
        power_law_responses: &[],
        ..SHARE
    };

    /// What the kernel's own choice gives, and the best of the buffers that were set.
    fn buffers(cells: &[&CellResult]) -> Vec<String> {
        let mut sentences = Vec::new();
        for run in factor_series(&of(cells, "throughput"), "buffer", &["link", "placement"]) {
            let Some((_, least)) = run.cells.first() else { continue };
            let best = run.cells.iter().max_by(|(_, a), (_, b)| {
                let median = |cell: &CellResult| cell.summary.median.unwrap_or(0.0);
                median(a).total_cmp(&median(b))
            });
            let Some((_, best)) = best else { continue };
            let buffer = |cell: &CellResult| levels(cell, &["buffer"]);
            let mut sentence = format!(
                "Over {}: {} with {}, {} with {}",
                run.label,
                median_text(least),
                buffer(least),
                median_text(best),
                buffer(best)
            );
            if let Some(own) = run.word_cells.first() {
                let _ = write!(sentence, ", {} with the kernel's own choice", median_text(own));
            }
            sentences.push(sentence + ".");
        }
        sentences
    }
}
