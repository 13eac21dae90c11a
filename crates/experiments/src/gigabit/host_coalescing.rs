//! `host.coalescing`: what receiving in batches gives, and what it costs the single message.
//!
//! Over a virtual Ethernet whose devices take no more than a packet at a time, so that there is something to
//! join. Left out: a device's interrupt timer, which a virtual Ethernet has not; the packets that a user-level
//! stack takes at a time, which `stack.replay` and the mirrors have as they are.

use plumb_harness::spec::{BlockTask, DeviceOptions, PathKind, PathSpec, SocketOptions};
use plumb_harness::spec::{Mechanism, WakeMode};

use crate::definition::{CellDecision, Experiment};
use crate::factor::{Factor, FactorDomain, always, keep_levels, words};
use crate::factors::channel;
use crate::factors::channel::LATENCY;
use crate::factors::link;
use crate::factors::link::VETH;
use crate::factors::remote;
use crate::factors::streams::{
    self, CONGESTION_CONTROL, OTHER_CPU_PLACEMENT, RECEIVER_CPU, SENDER_CPU, STREAMED,
};
use plumb_analysis::registry::ExperimentAnalysis;

/// Throughput and latency against batching at the receiver.
pub static EXPERIMENT: Experiment = Experiment {
    id: "host.coalescing",
    study: "gigabit",
    question: "What does it give, and what does it cost, to receive in batches?",
    hypothesis: "Joined packets and fewer wake-ups carry more for the same CPU; a single message is \
                 the later for them, except where its receiver asks instead of sleeping.",
    factors: &[RECEIVE, OTHER_CPU_PLACEMENT, CONGESTION_CONTROL],
    responses: &[STREAMED, SENDER_CPU, RECEIVER_CPU, LATENCY],
    plan_cell: |setting| {
        if let Err(exclusion) = link::require_own_devices(
            setting.surroundings,
            "switch it with 'ethtool -K DEVICE gro on|off'",
        ) {
            return CellDecision::Excluded(exclusion);
        }
        let receive = setting.factors.text(RECEIVE.name).unwrap_or("each");
        let busy_poll_us = (receive == "busy-poll").then_some(BUSY_POLL_US);
        let path = veth(matches!(receive, "joined" | "busy-poll"));
        let set = |options: &mut SocketOptions| options.busy_poll_us = busy_poll_us;
        if setting.response == LATENCY.name {
            if receive == "low-water" {
                return CellDecision::impossible(
                    "a message shorter than the low-water mark waits until others have filled it",
                );
            }
            let group = remote::launch_group_over(setting, Mechanism::Tcp4, path, set);
            return CellDecision::measure(group, BlockTask::Latency { size: SMALL });
        }
        let mut spec = streams::one_stream(setting, Some(path));
        set(&mut spec.options);
        spec.low_water = (receive == "low-water").then_some(LOW_WATER);
        streams::streams_cell(channel::placement_of(setting, WakeMode::Block), Ok(spec))
    },
    analysis: ExperimentAnalysis { claims: claims::CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: page::PAGE,
};

/// Bytes of the message whose latency is measured.
const SMALL: u64 = 64;
/// Microseconds that a receiver asks before it sleeps: the value that net.core.busy_read is advised to have
/// (Documentation/admin-guide/sysctl/net.rst).
const BUSY_POLL_US: u32 = 50;
/// Bytes that must wait before a receiver is woken: half a message.
const LOW_WATER: u32 = 32 << 10;

/// A virtual Ethernet that carries packets and nothing longer.
fn veth(coalescing: bool) -> PathSpec {
    PathSpec {
        name: format!("{VETH}, {}", if coalescing { "joined" } else { "each" }),
        kind: PathKind::Veth,
        mtu: 1500,
        round_trip_ns: 0,
        rate: None,
        device: DeviceOptions { segmentation: Some(false), coalescing: Some(coalescing) },
    }
}

const RECEIVE: Factor = Factor {
    name: "receive",
    meaning: "how packets come in: each by itself, joined (GRO, in batches), the same and its receiver \
              asks for 50 µs before it sleeps, or each and the receiver is woken for 32 KiB",
    domain: FactorDomain::Words(&LEVELS),
    levels: |_| words(&LEVELS),
    applies: always,
    fit: keep_levels,
    labels: &[
        ("each", "each by itself"),
        ("joined", "joined"),
        ("busy-poll", "joined, busy poll"),
        ("low-water", "each, low water 32 KiB"),
    ],
};

const LEVELS: [&str; 4] = ["each", "joined", "busy-poll", "low-water"];

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::gigabit::*;
    use plumb_analysis::claim::{
        ClaimCase, ClaimCases, ClaimEvidence, ClaimJudgment, PublishedClaim, PublishedFigure,
        judge_all,
    };
    use plumb_analysis::cost_ratio::{self};
    use plumb_analysis::summary::MeasuredCell;
    use plumb_base::units::Unit;

    use plumb_store::record::Factors;

    pub(super) const CLAIMS: &[PublishedClaim] = &[
        PublishedClaim {
            id: "gigabit.coalescing.ten-percent",
            claim: "Receiving in batches, by interrupt coalescing, gives another 10 %.",
            source: WEIGLE,
            historical: Some("10 %"),
            figures: &[PublishedFigure::comparable(
                "batches to single packets",
                1.1,
                Unit::Count,
                "10 %",
            )],
            judge: |evidence| gain(evidence, (COALESCING, "receive"), is_joined, is_each, TEN),
        },
        PublishedClaim {
            id: "gigabit.coalescing.latency-pays",
            claim: "Interrupt coalescing increases the latency of each individual packet.",
            source: WEIGLE,
            historical: Some("a trade-off; no figure"),
            figures: &[],
            judge: coalescing_adds_latency,
        },
    ];

    const COALESCING: &str = "host.coalescing";

    const TEN: (f64, f64) = (1.05, 1.20);

    fn is_joined(factors: &Factors) -> bool {
        factors.text("receive") == Some("joined")
    }

    fn is_each(factors: &Factors) -> bool {
        factors.text("receive") == Some("each")
    }

    /// A small message that is received by itself against one that is received in a batch.
    fn coalescing_adds_latency(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let mut pairs = ClaimCases::default();
        let cells = || evidence.cells(COALESCING, "latency");
        let rest = |cell: &MeasuredCell<'_>| cell.cell.factors.clone().without("receive");
        for joined in cells().filter(|cell| is_joined(&cell.cell.factors)) {
            let each =
                cells().find(|cell| is_each(&cell.cell.factors) && rest(cell) == rest(joined));
            match each {
                Some(each) => {
                    let contrast = cost_ratio::within_run(each, joined);
                    pairs.cases.push(ClaimCase::order(
                        &place_label(joined),
                        "joined/each".to_owned(),
                        contrast,
                    ));
                }
                None => pairs.missing.push(format!("each by itself, {}", place_label(joined))),
            }
        }
        judge_all(pairs, "plumb run host.coalescing --set receive=each,joined")
    }
}

mod page {
    //! Figures and sentences.

    use crate::pages::gigabit::*;
    use plumb_analysis::document::CellResult;

    use plumb_report::figure::by_level::{self, LevelPlot};
    use plumb_report::figure::{Figure, quantiles};

    use plumb_report::registry::{ExperimentPage, PageData};

    use plumb_report::name;

    use std::collections::BTreeMap;

    pub(super) const PAGE: ExperimentPage = ExperimentPage {
        title: "Receiving in batches",
        figures: Some(figures),
        sentences,
        tiles: |data| best_tile(data, "throughput", "highest throughput", false),
        tile_rank: 3,
        responses: RESPONSES,

        ..ExperimentPage::PLAIN
    };

    const RECEIVE: LevelPlot = LevelPlot {
        factor: "receive",
        order: &["each", "joined", "busy-poll", "low-water"],
        panel_factors: &["placement"],
        pictures: LEVEL_PICTURES,
    };

    fn figures(data: &PageData<'_>) -> Vec<Figure> {
        let mut figures = by_level::figures(&data.cells, &RECEIVE);
        let mut places: BTreeMap<usize, Vec<&CellResult>> = BTreeMap::new();
        for cell in data.cells.iter().filter(|cell| cell.response == "latency") {
            places.entry(name::placement_order(cell)).or_default().push(cell);
        }
        figures.extend(places.values().filter_map(|cells| {
            let title = format!("Latency of a small message: distribution, {}", place(cells));
            quantiles::figure(&title, cells)
        }));
        figures
    }

    fn place(cells: &[&CellResult]) -> String {
        let place = cells.first().map_or("", |cell| text(cell, "placement"));
        name::placement(place).to_owned()
    }

    fn sentences(data: &PageData<'_>) -> Vec<String> {
        let mut found = against(&data.cells, &RECEIVE, "each", "throughput", "throughput");
        found.extend(against(
            &data.cells,
            &RECEIVE,
            "each",
            "latency",
            "latency of a small message",
        ));
        found
    }
}
