//! `host.buffers`: what larger socket buffers give.
//!
//! Both buffers of both sockets; left to the kernel, it makes them as large as it finds the connection needs.

use plumb_report::figure::against_factor::{self, FactorPlot, FactorScale, factor_series};

use crate::claims::{FIVE, WEIGLE, gain};
use crate::factor::link::VETH;
use crate::factor::streams::{
    self, CONGESTION_CONTROL, OTHER_CPU_PLACEMENT, PLAIN_LINK, RECEIVER_CPU, SENDER_CPU, STREAMED,
};
use crate::pages::{RESPONSES, SHARE, SIDES, best_tile, levels, median, of};
use crate::prelude::*;

/// Throughput against socket buffers.
pub static EXPERIMENT: Experiment = Experiment {
    id: "host.buffers",
    study: "gigabit",
    question: "How much more does TCP carry with larger socket buffers?",
    hypothesis: "Too small a buffer makes both sides wait for each other; beyond what the connection \
                 needs a larger one gives nothing, and costs cache.",
    factors: &[
        PLAIN_LINK.at(Words(&[VETH])),
        Factor::new(
            "buffer",
            "send and receive buffer of both sockets; default is the kernel's own choice",
            FactorDomain::Buffers,
            Found(|context| {
                let kib: &[u64] = match context.preset {
                    RunPreset::Quick => &[16, 64, 512, 4096],
                    RunPreset::Default => &[16, 64, 256, 512, 2048, 16_384],
                    RunPreset::Paper => {
                        &[16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384]
                    }
                };
                kib.iter().map(|kib| (kib << 10).into()).chain(["default".into()]).collect()
            }),
        ),
        OTHER_CPU_PLACEMENT,
        CONGESTION_CONTROL,
    ],
    responses: &[STREAMED, SENDER_CPU, RECEIVER_CPU],
    plan_cell: |point| {
        let bytes = point.factors.int("buffer").and_then(|bytes| u64::try_from(bytes).ok());
        if bytes.is_some_and(|bytes| !(BUFFER_MIN..=BUFFER_MAX).contains(&bytes)) {
            let why = "a socket buffer has from 4 KiB to 64 MiB here";
            return Err(Exclusion::impossible(why));
        }
        streams::over_link(point, |spec| {
            spec.options.send_buffer = bytes;
            spec.options.receive_buffer = bytes;
        })
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Socket buffers",
        figures: Some(|data| against_factor::figures(&data.cells, &BUFFER)),
        sentences,
        tiles: |data| best_tile(data, "throughput", "highest throughput", false),
        tile_rank: 2,
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

/// Linux gives no less (SOCK_MIN_SNDBUF is half of it).
const BUFFER_MIN: u64 = 4 << 10;
/// More than any connection needs here.
const BUFFER_MAX: u64 = 64 << 20;

const CLAIMS: &[PublishedClaim] = &[PublishedClaim {
    id: "gigabit.buffers.five-percent",
    claim: "Socket buffers of 512 KB instead of 64 KB give about 5 % more.",
    historical: Some("about 5 %"),
    figures: &[PublishedFigure::ratio("512 KB to 64 KB", 1.05, "about 5 %")],
    judge: |evidence| gain(evidence, (EXPERIMENT.id, "buffer"), (512u64 << 10, 64u64 << 10), FIVE),
    ..PublishedClaim::of(WEIGLE)
}];

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
fn sentences(data: &PageData<'_>) -> Vec<String> {
    let rates = of(&data.cells, "throughput");
    let told =
        factor_series(&rates, "buffer", &["link", "placement"]).into_iter().filter_map(|run| {
            let (_, least) = run.cells.first()?;
            let (_, best) =
                run.cells.iter().max_by(|(_, a), (_, b)| median(a).total_cmp(&median(b)))?;
            let with = |cell: &CellResult| {
                format!("{} with {}", value::median(cell), levels(cell, &["buffer"]))
            };
            let own = run.word_cells.first().map_or_else(String::new, |own| {
                format!(", {} with the kernel's own choice", value::median(own))
            });
            Some(format!("Over {}: {}, {}{own}.", run.label, with(least), with(best)))
        });
    told.collect()
}
