//! `host.mtu`: what longer packets spare a host, with and without devices that cut segments.
//!
//! Over a virtual Ethernet, whose packets are handled as a card's are but for the interrupt.

use plumb_harness::spec::{DeviceOptions, PathKind, PathSpec};
use plumb_report::figure::against_factor::{self, FactorPlot, FactorScale, factor_series};

use crate::claims::{WEIGLE, place_label};
use crate::factor::channel::level_number;
use crate::factor::link;
use crate::factor::streams::{
    self, CONGESTION_CONTROL, OTHER_CPU_PLACEMENT, RECEIVER_CPU, SENDER_CPU, STREAMED,
};
use crate::pages::{RESPONSES, SHARE, SIDES, best_tile, levels, multiple, of, sentence};
use crate::prelude::*;

/// Throughput and the cost of a packet against its size.
pub static EXPERIMENT: Experiment = Experiment {
    id: "host.mtu",
    study: "gigabit",
    question: "What does a packet cost a host, and what do longer ones spare it?",
    hypothesis: "A packet costs almost the same whatever its length, so that longer ones carry more \
                 until copying bounds them; where devices cut segments themselves the size of a packet \
                 matters little.",
    factors: &[
        Factor::new(
            "mtu",
            "longest packet, in bytes",
            FactorDomain::Between(MTU_MIN, MTU_MAX, "a number of bytes"),
            Numbers(&[576, 1_500, 4_352, 9_000, 16_000, 65_535]),
        )
        .at_quick(Numbers(&[576, 1_500, 9_000, 65_535]))
        .at_paper(Numbers(&[
            576, 1_006, 1_500, 2_048, 4_352, 6_000, 9_000, 16_000, 32_000, 65_535,
        ])),
        Factor::of_words(
            "segmentation",
            "whether the devices take segments of many packets at once (TSO and GSO)",
            &["off", "on"],
        )
        .labelled(&[("off", "no packet cut by devices"), ("on", "devices cut packets")]),
        OTHER_CPU_PLACEMENT,
        CONGESTION_CONTROL,
    ],
    responses: &[
        STREAMED,
        ResponseVariable::new(
            "packets",
            Unit::Count,
            Better::Higher,
            "packets a second that the receiver's device counts",
        ),
        ResponseVariable::time("packet-cpu", "CPU time of both hosts for each of these packets"),
        SENDER_CPU,
        RECEIVER_CPU,
    ],
    plan_cell: |point| {
        link::require_own_devices(
            point.surroundings,
            "set the MTU with 'ip link set DEVICE mtu N'",
        )?;
        let mtu = level_number(point.factors, "mtu");
        let cuts = point.text("segmentation") == Some("on");
        let name = format!("veth of {mtu}{}", if cuts { ", cutting" } else { "" });
        let device = DeviceOptions {
            segmentation: Some(cuts),
            coalescing: Some(false),
            ..DeviceOptions::default()
        };
        let path = PathSpec { mtu, device, ..link::path(&name, PathKind::Veth) };
        streams::over_path(point, path, |_| {})
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "The size of packets and the CPU",
        figures: Some(|data| against_factor::figures(&data.cells, &MTU)),
        sentences,
        tiles: |data| best_tile(data, "packet-cpu", "CPU time a packet", true),
        tile_rank: 1,
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

/// The least that every host must take whole (RFC 791).
const MTU_MIN: u64 = 576;
/// The most that a packet's length can say (RFC 791).
const MTU_MAX: u64 = 65_535;

const CLAIMS: &[PublishedClaim] = &[PublishedClaim {
    id: "gigabit.mtu.jumbo-carries-more",
    claim: "Jumbo packets increase the bandwidth.",
    historical: Some("listed among the ways; no figure"),
    judge: jumbo_carries_more,
    ..PublishedClaim::of(WEIGLE)
}];

/// Packets of 9,000 bytes against packets of 1,500, by devices that cut nothing.
fn jumbo_carries_more(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let is = |mtu: u64| {
        move |cell: &MeasuredCell<'_>| cell.is("mtu", mtu) && cell.is("segmentation", "off")
    };
    let found = ClaimCases::of_twins(
        evidence.twins(EXPERIMENT.id, "throughput", "mtu", is(9_000), is(1_500)),
        |jumbo, usual| ClaimCase::order(&place_label(jumbo), "9000/1500".to_owned(), jumbo, usual),
        |jumbo| format!("packets of 1500 bytes, {}", place_label(jumbo)),
    );
    judge_all(found, "plumb run host.mtu --set mtu=1500,9000 --set segmentation=off")
}

const MTU: FactorPlot = FactorPlot {
    factor: "mtu",
    label: "longest packet (B)",
    unit: "B",
    scale: FactorScale::Log2,
    pictures: &[
        ("Throughput", &["throughput"]),
        ("Packets a second", &["packets"]),
        ("CPU time a packet, both hosts", &["packet-cpu"]),
        ("Bytes for each second of CPU", &SIDES),
    ],
    power_law_responses: &[],
    ..SHARE
};

/// Cycles of a packet of Ethernet's size, and the processor that a full 10 Gb/s of them would need.
fn sentences(data: &PageData<'_>) -> Vec<String> {
    let ticks = data.document.notes.get("clock.ticks_per_ns");
    let ticks = ticks.and_then(|note| note.parse::<f64>().ok());
    let mut costs = of(&data.cells, "packet-cpu");
    costs.retain(|cell| cell.level("segmentation") == "off");
    costs.sort_by_key(|cell| (name::placement_order(cell), cell.number("mtu")));
    let cost = |cell: &&CellResult| {
        let bytes = cell.number("mtu")? as f64;
        let cost = format!("{} in packets of {bytes:.0} B", value::median(cell));
        let Some(ticks) = ticks else { return Some(cost) };
        let cycles = cell.summary.median? * ticks;
        let need = significant(cycles * TEN_GIGABIT / bytes / 1e9, 3);
        Some(format!("{cost} ({} cycles; {need} GHz at 10 Gb/s)", Unit::Count.format(cycles, 3)))
    };
    let costs: Vec<String> = costs.iter().filter_map(cost).collect();
    let rates = of(&data.cells, "throughput");
    let series = factor_series(&rates, "mtu", &["segmentation"]).into_iter();
    let gains: Vec<String> = series
        .filter_map(|run| {
            let ((_, first), (_, last)) = (run.cells.first()?, run.cells.last()?);
            let [of_last, of_first] = [last, first].map(|cell| levels(cell, &["mtu"]));
            let ratio = multiple(last, first)?;
            Some(format!("{ratio} in packets of {of_last} as of {of_first} ({})", run.label))
        })
        .collect();
    [
        sentence(&costs, "; ", |told| {
            format!(
                "CPU time of both hosts for each packet that the device does not cut itself: {told}."
            )
        }),
        sentence(&gains, "; ", |told| format!("A stream carries {told}.")),
    ]
    .concat()
}

/// Bytes a second of 10 Gb/s.
const TEN_GIGABIT: f64 = 1.25e9;
