//! `stack.replay`: frames from memory through a stack and back, without network and kernel: the better
//! method that Kjellerstedt (1997) proposed.

use plumb_analysis::document::MeasuredRatio;
use plumb_harness::spec::{MirrorDevice, MirrorSpec, MirrorStack, TurnaroundPoint};

use crate::claims::{KJELLERSTEDT, SMOLTCP, is_long, levels, stack_order, stacks};
use crate::factor::channel::level_number;
use crate::factor::mirror::STACK;
use crate::pages::{bars, bytes, is, sentence};
use crate::prelude::*;

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
            applies: is_plumb,
            ..Factor::of_words("turn", "where a packet turns round, and what is summed", &TURNS)
        }
        .labelled(&[
            ("udp", "UDP"),
            ("udp-unsummed", "UDP, no checksum"),
            ("fused", "application, one pass"),
            ("separate", "application, two passes"),
            ("copied-unsummed", "application, no checksum"),
            ("swap", "addresses swapped only"),
        ]),
        Factor {
            applies: is_plumb,
            ..Factor::of_words(
                "cache",
                "whether a packet's payload is in the caches when it comes",
                &["warm", "cold"],
            )
        }
        .labelled(&[("warm", "warm cache"), ("cold", "cold cache")]),
        Factor {
            fit: |first, levels| match first.text("stack") {
                // smoltcp's shape here has Ethernet's MTU.
                Some("smoltcp") => levels.into_iter().filter(|l| *l != LONGEST.into()).collect(),
                _ => levels,
            },
            ..Factor::new(
                "frame",
                "frame size in bytes, Ethernet header included",
                FactorDomain::Sizes,
                Numbers(&[60, 1514, LONGEST]),
            )
        },
    ],
    responses: &[ResponseVariable::time("packet", "time of one packet, from a batch of them")],
    plan_cell: |point| {
        let stack = point.text("stack").and_then(MirrorStack::from_name);
        let Some(stack @ (MirrorStack::Plumb | MirrorStack::Smoltcp)) = stack else {
            return Err(Exclusion::NotApplicable);
        };
        let mirror = MirrorSpec {
            stack,
            device: MirrorDevice::Memory,
            ipv6: false,
            wake: WakeMode::Spin,
            turnaround: turn(point.text("turn").unwrap_or("udp")),
            offloads: false,
            contended: false,
            batch: 64,
        };
        let frame: u64 = level_number(point.factors, "frame");
        if !(60..=LONGEST).contains(&frame) {
            let why = format!("a frame has 60 to {LONGEST} bytes, not {frame}");
            return Err(Exclusion::impossible(why));
        }
        let cold = point.text("cache") == Some("cold");
        let group = LaunchGroup::new(LaunchSubject::Mirror(mirror), CpuPlacement::SameCpu);
        Ok((group, BlockTask::Replay { frame, cold }))
    },
    analysis: ExperimentAnalysis {
        claims: CLAIMS,
        ratios: &[
            stacks("packet", SMOLTCP, &[("stack", "plumb"), ("turn", "udp"), ("cache", "warm")]),
            levels("packet", &[("turn", "udp-unsummed")], &[("turn", "udp")]),
            levels("packet", &[("turn", "separate")], &[("turn", "fused")]),
        ],
        ..ExperimentAnalysis::PLAIN
    },
    page: ExperimentPage {
        title: "Replay from memory: a stack by itself",
        figures: Some(|data| bars::replay(&data.cells)),
        sentences,
        tiles,
        ..ExperimentPage::PLAIN
    },
};

/// The longest IPv4 datagram in an Ethernet frame without limit.
const LONGEST: u64 = 14 + 65_535;

const TURNS: [&str; 6] = ["udp", "udp-unsummed", "fused", "separate", "copied-unsummed", "swap"];

fn is_plumb(first: &Factors) -> bool {
    first.text("stack") == Some("plumb")
}

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

const CLAIMS: &[PublishedClaim] = &[PublishedClaim {
    id: "stack.replay.one-pass-beats-two",
    claim: "A stack that copies and sums in one pass takes less time for a long frame than one \
            that does so in two.",
    historical: Some("the reason given for Linux's lead on long frames, §4.1.2"),
    judge: |evidence| {
        let levels = (&[("turn", "fused")][..], &[("turn", "separate")][..]);
        stack_order(evidence, (EXPERIMENT.id, "packet"), levels, is_long)
    },
    ..PublishedClaim::of(KJELLERSTEDT)
}];

/// A 60-byte packet from warm memory, mirrored at the UDP level by plumb's stack.
fn short_replay<'a>(data: &PageData<'a>) -> Option<(&'a CellResult, f64)> {
    let is_short = |cell: &&&CellResult| {
        cell.level("turn") == "udp"
            && cell.level("cache") == "warm"
            && bytes(&cell.factors) == Some(60)
    };
    let cell = data.cells.iter().find(is_short)?;
    Some((cell, cell.summary.median?))
}

/// The checksum's share of the stack, smoltcp, and packets a second.
fn sentences(data: &PageData<'_>) -> Vec<String> {
    let told = |factor: &str, level: &str, tell: &dyn Fn(&MeasuredRatio) -> String| {
        let ratios = data.document.ratios.iter();
        let chosen =
            |ratio: &&MeasuredRatio| ratio.experiment == data.id && is(&ratio.of, factor, level);
        ratios.filter(chosen).map(tell).collect::<Vec<String>>()
    };
    let at = |ratio: &MeasuredRatio| name::levels(&ratio.of, &["frame", "cache"]);
    let replayed = short_replay(data).map(|(cell, median)| {
        format!(
            "plumb's stack mirrors {} packets/s of 60 B at the UDP level on one CPU, {} each.",
            bars::rate(median),
            value::median(cell)
        )
    });
    let smoltcp = told("stack", "smoltcp", &|ratio| {
        format!("{} for {} B", value::ratio(ratio), bytes(&ratio.of).unwrap_or(0))
    });
    let shares =
        told("turn", "udp-unsummed", &|ratio| format!("{} ({})", share_left_out(ratio), at(ratio)));
    let passes =
        told("turn", "separate", &|ratio| format!("{} ({})", value::ratio(ratio), at(ratio)));
    let further = [
        sentence(&smoltcp, " and ", |told| format!("smoltcp takes {told} as long.")),
        sentence(&shares, ", ", |told| {
            format!("The checksum's share of the time in the stack, by leaving it out: {told}.")
        }),
        sentence(&passes, ", ", |told| {
            format!("Two passes for copy and sum as a multiple of one: {told}.")
        }),
    ];
    replayed.into_iter().chain(further.concat()).collect()
}

/// What the share of a part is when a thing without it costs this ratio: `12% [10%, 14%]`.
fn share_left_out(ratio: &MeasuredRatio) -> String {
    let percent = |ratio: f64| format!("{:.0}%", (1.0 - ratio) * 100.0);
    let [low, high] = ratio.ci95;
    format!("{} [{}, {}]", percent(ratio.ratio), percent(high), percent(low))
}

fn tiles(data: &PageData<'_>) -> Vec<HeadlineTile> {
    let tile = |(cell, median): (&CellResult, f64)| HeadlineTile {
        label: "UDP packets mirrored on one CPU".to_owned(),
        value: format!("{}/s", bars::rate(median)),
        interval: cell.summary.ci95.map_or_else(String::new, |[low, high]| {
            format!("[{}, {}]", bars::rate(high), bars::rate(low))
        }),
        conditions: "60 B, from memory".to_owned(),
    };
    short_replay(data).map(tile).into_iter().collect()
}
