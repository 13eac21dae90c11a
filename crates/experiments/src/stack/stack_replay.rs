//! `stack.replay`: frames from memory through a stack and back, without network and kernel: the better
//! method that Kjellerstedt (1997) proposed.

use plumb_base::units::Unit;
use plumb_harness::spec::WakeMode;
use plumb_harness::spec::{
    BlockTask, LaunchSubject, MirrorDevice, MirrorSpec, MirrorStack, TurnaroundPoint,
};
use plumb_harness::topology::CpuPlacement;
use plumb_store::record::Better;

use crate::claims::stack::{SMOLTCP, levels, stacks};
use crate::definition::{CellDecision, Experiment, LaunchGroup, ResponseVariable};
use crate::factor::{Factor, FactorDomain, always, keep_levels, numbers, words};
use crate::factors::mirror::STACK;
use plumb_analysis::registry::ExperimentAnalysis;

/// Nanoseconds a packet, by where it turns round and what is summed.
pub static EXPERIMENT: Experiment = Experiment {
    id: "stack.replay",
    study: "stack",
    question: "How long does a stack need for a packet when nothing else is in its way?",
    hypothesis: "plumb's stack mirrors a short frame in under 100 ns, twice as fast as smoltcp's; \
                 leaving the checksum out shortens the time significantly for long frames, and one \
                 pass for copy and sum beats two.",
    factors: &[
        STACK,
        Factor {
            name: "turn",
            meaning: "where a packet turns round, and what is summed",
            domain: FactorDomain::Words(&TURNS),
            levels: |_| words(&TURNS),
            applies: |first| first.text("stack") == Some("plumb"),
            fit: keep_levels,
            labels: &[
                ("udp", "UDP"),
                ("udp-unsummed", "UDP, no checksum"),
                ("fused", "application, one pass"),
                ("separate", "application, two passes"),
                ("copied-unsummed", "application, no checksum"),
                ("swap", "addresses swapped only"),
            ],
        },
        Factor {
            name: "cache",
            meaning: "whether a packet's payload is in the caches when it comes",
            domain: FactorDomain::Words(&["warm", "cold"]),
            levels: |_| words(&["warm", "cold"]),
            applies: |first| first.text("stack") == Some("plumb"),
            fit: keep_levels,
            labels: &[("warm", "warm cache"), ("cold", "cold cache")],
        },
        Factor {
            name: "frame",
            meaning: "frame size in bytes, Ethernet header included",
            domain: FactorDomain::Sizes,
            levels: |_| numbers(&[60, 1514, LONGEST]),
            applies: always,
            fit: |first, levels| match first.text("stack") {
                // smoltcp's shape here has Ethernet's MTU.
                Some("smoltcp") => levels.into_iter().filter(|l| *l != LONGEST.into()).collect(),
                _ => levels,
            },
            labels: &[],
        },
    ],
    responses: &[ResponseVariable {
        name: "packet",
        unit: Unit::Nanoseconds,
        better: Better::Lower,
        meaning: "time of one packet, from a batch of them",
    }],
    plan_cell: |setting| {
        let factors = setting.factors;
        let stack = factors.text("stack").and_then(MirrorStack::from_name);
        let Some(stack @ (MirrorStack::Plumb | MirrorStack::Smoltcp)) = stack else {
            return CellDecision::NotApplicable;
        };
        let mirror = MirrorSpec {
            stack,
            device: MirrorDevice::Memory,
            ipv6: false,
            wake: WakeMode::Spin,
            turnaround: turn(factors.text("turn").unwrap_or("udp")),
            offloads: false,
            contended: false,
            batch: 64,
        };
        let frame = factors.int("frame").and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        if !(60..=LONGEST).contains(&frame) {
            return CellDecision::impossible(format!(
                "a frame has 60 to {LONGEST} bytes, not {frame}"
            ));
        }
        let cold = factors.text("cache") == Some("cold");
        let placement = CpuPlacement::SameCpu;
        let group = LaunchGroup { subject: LaunchSubject::Mirror(mirror), placement, cpu: None };
        CellDecision::Measure { group, task: BlockTask::Replay { frame, cold } }
    },
    analysis: ExperimentAnalysis {
        claims: claims::CLAIMS,
        ratios: &[
            stacks("packet", SMOLTCP, &[("stack", "plumb"), ("turn", "udp"), ("cache", "warm")]),
            levels("packet", &[("turn", "udp-unsummed")], &[("turn", "udp")]),
            levels("packet", &[("turn", "separate")], &[("turn", "fused")]),
        ],
        ..ExperimentAnalysis::PLAIN
    },
    page: page::PAGE,
};

/// The longest IPv4 datagram in an Ethernet frame without limit.
const LONGEST: u64 = 14 + 65_535;

const TURNS: [&str; 6] = ["udp", "udp-unsummed", "fused", "separate", "copied-unsummed", "swap"];

fn turn(name: &str) -> TurnaroundPoint {
    match name {
        "udp-unsummed" => TurnaroundPoint::UdpUnsummed,
        "fused" => TurnaroundPoint::Fused,
        "separate" => TurnaroundPoint::Separate,
        "copied-unsummed" => TurnaroundPoint::CopiedUnsummed,
        "swap" => TurnaroundPoint::Swap,
        _ => TurnaroundPoint::Udp,
    }
}

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::stack::*;
    use plumb_analysis::claim::{PublishedClaim, judge_all};

    pub(super) const CLAIMS: &[PublishedClaim] = &[
        PublishedClaim {
            id: "stack.checksum.removing-it-shortens-long-frames",
            claim: "Leaving the UDP checksum out significantly cuts the time that a packet takes.",
            source: KJELLERSTEDT,
            historical: Some("the time for long frames fell to Linux's, table 17"),
            figures: &[],
            judge: |evidence| {
                let cells = ResponseCells { experiment: "stack.replay", response: "packet" };
                let (without, with) = ([("turn", "udp-unsummed")], [("turn", "udp")]);
                judge_all(cells.order(evidence, &without, &with, is_long), "plumb run stack.replay")
            },
        },
        PublishedClaim {
            id: "stack.replay.one-pass-beats-two",
            claim: "A stack that copies and sums in one pass takes less time for a long frame than one \
                that does so in two.",
            source: KJELLERSTEDT,
            historical: Some("the reason given for Linux's lead on long frames, §4.1.2"),
            figures: &[],
            judge: |evidence| {
                let cells = ResponseCells { experiment: "stack.replay", response: "packet" };
                let (fused, separate) = ([("turn", "fused")], [("turn", "separate")]);
                judge_all(
                    cells.order(evidence, &fused, &separate, is_long),
                    "plumb run stack.replay",
                )
            },
        },
    ];
}

mod page {
    //! Figures and sentences.

    use crate::pages::stack::*;
    use plumb_analysis::document::CellResult;
    use plumb_analysis::ratio::MeasuredRatio;

    use plumb_report::headline::HeadlineTile;
    use plumb_report::registry::{ExperimentPage, PageData};

    use plumb_report::{name, value};
    use serde_json::Value;
    use std::collections::BTreeMap;

    pub(super) const PAGE: ExperimentPage = ExperimentPage {
        title: "Replay from memory: a stack by itself",
        figures: Some(|data| bars::replay(&data.cells)),
        sentences: replay,
        tiles,
        ..ExperimentPage::PLAIN
    };

    /// A 60-byte packet from warm memory, mirrored at the UDP level by plumb's stack.
    fn is_short_replay(cell: &CellResult) -> bool {
        is(&cell.factors, "turn", "udp")
            && is(&cell.factors, "cache", "warm")
            && bytes(&cell.factors) == Some(60)
    }

    /// The checksum's share of the stack, smoltcp, and packets a second.
    fn replay(data: &PageData<'_>) -> Vec<String> {
        let ratios = || data.document.ratios.iter().filter(|ratio| ratio.experiment == data.id);
        let at = |factors: &BTreeMap<String, Value>| {
            let wanted = ["frame", "cache"].map(str::to_owned).into();
            name::cell(factors, &wanted)
        };
        let mut sentences = Vec::new();
        for cell in data.cells.iter().filter(|cell| is_short_replay(cell)) {
            let Some(median) = cell.summary.median else { continue };
            sentences.push(format!(
                "plumb's stack mirrors {} packets/s of 60 B at the UDP level on one CPU, {} each.",
                bars::rate(median),
                value::with_interval(value::unit(&cell.unit), median, cell.summary.ci95),
            ));
        }
        let smoltcp: Vec<String> = ratios()
            .filter(|ratio| is(&ratio.of, "stack", "smoltcp"))
            .map(|ratio| format!("{} for {} B", times(ratio), bytes(&ratio.of).unwrap_or(0)))
            .collect();
        if !smoltcp.is_empty() {
            sentences.push(format!("smoltcp takes {} as long.", smoltcp.join(" and ")));
        }
        let shares: Vec<String> = ratios()
            .filter(|ratio| is(&ratio.of, "turn", "udp-unsummed"))
            .map(|ratio| format!("{} ({})", share_left_out(ratio), at(&ratio.of)))
            .collect();
        if !shares.is_empty() {
            sentences.push(format!(
                "The checksum's share of the time in the stack, by leaving it out: {}.",
                shares.join(", ")
            ));
        }
        let passes: Vec<String> = ratios()
            .filter(|ratio| is(&ratio.of, "turn", "separate"))
            .map(|ratio| format!("{} ({})", times(ratio), at(&ratio.of)))
            .collect();
        if !passes.is_empty() {
            let passes = passes.join(", ");
            sentences.push(format!("Two passes for copy and sum as a multiple of one: {passes}."));
        }
        sentences
    }

    /// What the share of a part is when a thing without it costs this ratio: `12% [10%, 14%]`.
    fn share_left_out(ratio: &MeasuredRatio) -> String {
        let percent = |ratio: f64| format!("{:.0}%", (1.0 - ratio) * 100.0);
        let [low, high] = ratio.ci95;
        format!("{} [{}, {}]", percent(ratio.ratio), percent(high), percent(low))
    }

    fn tiles(data: &PageData<'_>) -> Vec<HeadlineTile> {
        let replayed = data.cells.iter().find(|cell| is_short_replay(cell));
        let tile = |cell: &&CellResult| {
            let median = cell.summary.median?;
            let interval = cell.summary.ci95;
            Some(HeadlineTile {
                label: "UDP packets mirrored on one CPU".to_owned(),
                value: format!("{}/s", bars::rate(median)),
                interval: interval.map_or_else(String::new, |[low, high]| {
                    format!("[{}, {}]", bars::rate(high), bars::rate(low))
                }),
                conditions: "60 B, from memory".to_owned(),
            })
        };
        replayed.and_then(tile).into_iter().collect()
    }
}
