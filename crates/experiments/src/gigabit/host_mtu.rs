//! `host.mtu`: what longer packets spare a host, with and without devices that cut segments.
//!
//! Over a virtual Ethernet, whose packets are handled as a card's are but for the interrupt. Left out: what
//! becomes of long packets on a path that does not fit them (`super::mtu_path`).

use plumb_base::units::Unit;
use plumb_harness::spec::WakeMode;
use plumb_harness::spec::{DeviceOptions, PathKind, PathSpec};
use plumb_store::record::Better;

use crate::definition::{CellDecision, Experiment, ResponseVariable};
use crate::factor::{Factor, FactorDomain, LevelParser, always, keep_levels, numbers, words};
use crate::factors::channel;
use crate::factors::link;
use crate::factors::streams::{
    self, CONGESTION_CONTROL, OTHER_CPU_PLACEMENT, RECEIVER_CPU, SENDER_CPU, STREAMED,
};
use crate::preset::RunPreset;
use plumb_analysis::registry::ExperimentAnalysis;

/// Throughput and the cost of a packet against its size.
pub static EXPERIMENT: Experiment = Experiment {
    id: "host.mtu",
    study: "gigabit",
    question: "What does a packet cost a host, and what do longer ones spare it?",
    hypothesis: "A packet costs almost the same whatever its length, so that longer ones carry more \
                 until copying bounds them; where devices cut segments themselves the size of a packet \
                 matters little.",
    factors: &[
        MTU,
        Factor {
            name: "segmentation",
            meaning: "whether the devices take segments of many packets at once (TSO and GSO)",
            domain: FactorDomain::Words(&["off", "on"]),
            levels: |_| words(&["off", "on"]),
            applies: always,
            fit: keep_levels,
            labels: &[("off", "no packet cut by devices"), ("on", "devices cut packets")],
        },
        OTHER_CPU_PLACEMENT,
        CONGESTION_CONTROL,
    ],
    responses: &[
        STREAMED,
        ResponseVariable {
            name: "packets",
            unit: Unit::Count,
            better: Better::Higher,
            meaning: "packets a second that the receiver's device counts",
        },
        ResponseVariable {
            name: "packet-cpu",
            unit: Unit::Nanoseconds,
            better: Better::Lower,
            meaning: "CPU time of both hosts for each of these packets",
        },
        SENDER_CPU,
        RECEIVER_CPU,
    ],
    plan_cell: |setting| {
        if let Err(exclusion) = link::require_own_devices(
            setting.surroundings,
            "set the MTU with 'ip link set DEVICE mtu N'",
        ) {
            return CellDecision::Excluded(exclusion);
        }
        let mtu = streams::level_number(setting.factors, MTU.name);
        let cuts = setting.factors.text("segmentation") == Some("on");
        let path = PathSpec {
            name: format!("veth of {mtu}{}", if cuts { ", cutting" } else { "" }),
            kind: PathKind::Veth,
            mtu,
            round_trip_ns: 0,
            rate: None,
            device: DeviceOptions { segmentation: Some(cuts), coalescing: Some(false) },
        };
        streams::streams_cell(
            channel::placement_of(setting, WakeMode::Block),
            Ok(streams::one_stream(setting, Some(path))),
        )
    },
    analysis: ExperimentAnalysis { claims: claims::CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: page::PAGE,
};

/// The least that every host must take whole (RFC 791).
const MTU_MIN: u64 = 576;
/// The most that a packet's length can say (RFC 791).
const MTU_MAX: u64 = 65_535;

const MTU: Factor = Factor {
    name: "mtu",
    meaning: "longest packet, in bytes",
    domain: FactorDomain::Parsed(&LevelParser {
        parse: |text| streams::parse_whole_number(text, MTU_MIN, MTU_MAX).map(Into::into),
        describe: || format!("a number of bytes from {MTU_MIN} to {MTU_MAX}"),
    }),
    levels: |context| match context.preset {
        RunPreset::Quick => numbers(&[576, 1_500, 9_000, 65_535]),
        RunPreset::Default => numbers(&[576, 1_500, 4_352, 9_000, 16_000, 65_535]),
        RunPreset::Paper => {
            numbers(&[576, 1_006, 1_500, 2_048, 4_352, 6_000, 9_000, 16_000, 32_000, 65_535])
        }
    },
    applies: always,
    fit: keep_levels,
    labels: &[],
};

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::gigabit::*;
    use plumb_analysis::claim::{
        CaseOutcome, ClaimCase, ClaimCases, ClaimEvidence, ClaimJudgment, PublishedClaim,
        PublishedFigure, judge_all,
    };
    use plumb_analysis::cost_ratio::{self};
    use plumb_analysis::summary::{LAUNCHES_NEEDED, MeasuredCell};
    use plumb_base::units::Unit;

    use plumb_base::units::significant;

    pub(super) const CLAIMS: &[PublishedClaim] = &[
        PublishedClaim {
            id: "gigabit.mtu.interrupts-need-a-processor",
            claim: "10 Gb/s in packets of 1,500 bytes need a processor of 1.6 GHz for the packets alone, at \
                2,000 cycles each.",
            source: WEIGLE,
            historical: Some("830,000 packets/s × 2,000 cycles = 1.6 GHz"),
            figures: &[PublishedFigure::comparable(
                "cycles a second",
                1.6e9,
                Unit::Count,
                "830,000 packets/s × 2,000 cycles",
            )],
            judge: packets_need_a_processor,
        },
        PublishedClaim {
            id: "gigabit.mtu.jumbo-carries-more",
            claim: "Jumbo packets increase the bandwidth.",
            source: WEIGLE,
            historical: Some("listed among the ways; no figure"),
            figures: &[],
            judge: jumbo_carries_more,
        },
    ];

    const MTU: &str = "host.mtu";

    /// The rate and the packets of the published sum.
    const PACKETS_A_SECOND: f64 = 10e9 / 8.0 / 1_500.0;

    const CYCLES_A_SECOND: f64 = 1.6e9;

    /// The cycles of both hosts for a packet of 1,500 bytes, times the packets of 10 Gb/s.
    fn packets_need_a_processor(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let Some(ticks_per_ns) = evidence.note_number("clock.ticks_per_ns") else {
            return ClaimJudgment::not_measured(
                "a machine whose counter of cycles ticks at a known rate",
            );
        };
        let mut pairs = ClaimCases::default();
        for cell in evidence.cells(MTU, "packet-cpu") {
            let factors = &cell.cell.factors;
            if factors.int("mtu") != Some(1_500) || factors.text("segmentation") != Some("off") {
                continue;
            }
            let needed = |ns: f64| ns * ticks_per_ns * PACKETS_A_SECOND;
            let value = needed(cell.median());
            let ends = cell.interval().map(|interval| [needed(interval.lo), needed(interval.hi)]);
            let standing = match ends {
                Some([lo, _]) if lo >= CYCLES_A_SECOND => CaseOutcome::Supports,
                Some([_, hi]) if hi < CYCLES_A_SECOND => CaseOutcome::Contradicts(0.0),
                Some(_) => CaseOutcome::Undecided(None),
                None => CaseOutcome::Undecided(Some(LAUNCHES_NEEDED as u64)),
            };
            let giga = |cycles: f64| significant(cycles / 1e9, 3);
            let between =
                ends.map_or_else(String::new, |[lo, hi]| format!(" ({}–{})", giga(lo), giga(hi)));
            pairs.cases.push(ClaimCase {
                placement: place_label(cell),
                label: format!(
                    "{} cycles a packet need",
                    significant(cell.median() * ticks_per_ns, 3)
                ),
                value: Some(value),
                ci95: ends,
                text: format!("{} GHz{between}", giga(value)),
                outcome: standing,
                strength: (value / CYCLES_A_SECOND).ln(),
            });
        }
        judge_all(pairs, "plumb run host.mtu --set mtu=1500 --set segmentation=off")
    }

    /// Packets of 9,000 bytes against packets of 1,500, by devices that cut nothing.
    fn jumbo_carries_more(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let mut pairs = ClaimCases::default();
        let cells = || {
            let plain =
                |cell: &&MeasuredCell<'_>| cell.cell.factors.text("segmentation") == Some("off");
            evidence.cells(MTU, THROUGHPUT).filter(plain)
        };
        let is = |cell: &MeasuredCell<'_>, mtu: i64| cell.cell.factors.int("mtu") == Some(mtu);
        let rest = |cell: &MeasuredCell<'_>| cell.cell.factors.clone().without("mtu");
        for jumbo in cells().filter(|cell| is(cell, 9_000)) {
            match cells().find(|cell| is(cell, 1_500) && rest(cell) == rest(jumbo)) {
                Some(usual) => {
                    let contrast = cost_ratio::within_run(jumbo, usual);
                    pairs.cases.push(ClaimCase::order(
                        &place_label(jumbo),
                        "9000/1500".to_owned(),
                        contrast,
                    ));
                }
                None => {
                    pairs.missing.push(format!("packets of 1500 bytes, {}", place_label(jumbo)));
                }
            }
        }
        judge_all(pairs, "plumb run host.mtu --set mtu=1500,9000 --set segmentation=off")
    }
}

mod page {
    //! Figures and sentences.

    use crate::pages::gigabit::*;
    use plumb_analysis::document::{CellResult, RunDocument};

    use plumb_base::units::{Unit, significant};
    use plumb_report::figure::against_factor::{self, FactorPlot, FactorScale, factor_series};

    use plumb_report::registry::ExperimentPage;

    use plumb_report::name;

    pub(super) const PAGE: ExperimentPage = ExperimentPage {
        title: "The size of packets and the CPU",
        figures: Some(|data| against_factor::figures(&data.cells, &MTU)),
        sentences: |data| packets(data.document, &data.cells),
        tiles: |data| best_tile(data, "packet-cpu", "CPU time a packet", true),
        tile_rank: 1,
        responses: RESPONSES,

        ..ExperimentPage::PLAIN
    };

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
    fn packets(document: &RunDocument, cells: &[&CellResult]) -> Vec<String> {
        let ticks =
            document.notes.get("clock.ticks_per_ns").and_then(|note| note.parse::<f64>().ok());
        let mut costs = of(cells, "packet-cpu");
        costs.retain(|cell| text(cell, "segmentation") == "off");
        costs.sort_by_key(|cell| (name::placement_order(cell), number(cell, "mtu")));
        let mut sentences = Vec::new();
        let words = |cell: &&CellResult| {
            let bytes = number(cell, "mtu")? as f64;
            let median = cell.summary.median?;
            let cost = format!("{} in packets of {bytes:.0} B", median_text(cell));
            Some(match ticks {
                Some(ticks) => {
                    let cycles = median * ticks;
                    let need = cycles * TEN_GIGABIT / bytes / 1e9;
                    let cycles = Unit::Count.format(cycles, 3);
                    format!("{cost} ({cycles} cycles; {} GHz at 10 Gb/s)", significant(need, 3))
                }
                None => cost,
            })
        };
        let told: Vec<String> = costs.iter().filter_map(words).collect();
        if !told.is_empty() {
            sentences.push(format!(
                "CPU time of both hosts for each packet that the device does not cut itself: {}.",
                told.join("; ")
            ));
        }
        let rates = of(cells, "throughput");
        let mut told = Vec::new();
        for run in factor_series(&rates, "mtu", &["segmentation"]) {
            let (Some((_, first)), Some((_, last))) = (run.cells.first(), run.cells.last()) else {
                continue;
            };
            let Some(ratio) = ratio(last, first) else { continue };
            told.push(format!(
                "{ratio} in packets of {} as of {} ({})",
                levels(last, &["mtu"]),
                levels(first, &["mtu"]),
                run.label
            ));
        }
        if !told.is_empty() {
            sentences.push(format!("A stream carries {}.", told.join("; ")));
        }
        sentences
    }

    /// Bytes a second of 10 Gb/s.
    const TEN_GIGABIT: f64 = 1.25e9;
}
