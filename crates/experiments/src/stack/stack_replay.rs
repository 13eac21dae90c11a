//! `stack.replay`: frames from memory through a stack and back, without network and kernel: the better
//! method that Kjellerstedt (1997) proposed.

use std::collections::BTreeMap;

use plumb_analysis::document::MeasuredRatio;
use plumb_harness::spec::{
    MirrorDevice, MirrorSpec, MirrorStack, MirrorTransport, TurnaroundPoint,
};

use crate::claims::{KJELLERSTEDT, SMOLTCP, is_long, levels, stack_order, stacks};
use crate::factor::LevelParser;
use crate::factor::channel::level_number;
use crate::factor::mirror::STACK;
use crate::mirror::replay::payloads_of_capture;
use crate::pages::{self, bars, bytes, is, of, sentence};
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
                "frame size in bytes, Ethernet header included, or the packets of capture:FILE",
                FactorDomain::Parsed(&LevelParser { parse: parse_frame, describe: describe_frame }),
                Numbers(&[60, 1514, LONGEST]),
            )
        },
    ],
    responses: &[
        ResponseVariable::time("packet", "time of one packet, from a batch of them"),
        ResponseVariable::new(
            "packets",
            Unit::Count,
            Better::Higher,
            "packets a second on one CPU",
        ),
    ],
    plan_cell: |point| {
        let stack = point.text("stack").and_then(MirrorStack::from_name);
        let Some(stack @ (MirrorStack::Plumb | MirrorStack::Smoltcp)) = stack else {
            return Err(Exclusion::NotApplicable);
        };
        let mirror = MirrorSpec {
            stack,
            device: MirrorDevice::Memory,
            ipv6: false,
            transport: MirrorTransport::Udp,
            wake: WakeMode::Spin,
            turnaround: turn(point.text("turn").unwrap_or("udp")),
            offloads: false,
            contended: false,
            batch: 64,
            capture: point.text("frame").and_then(capture_of).map(str::to_owned),
        };
        let cold = point.text("cache") == Some("cold");
        // Cold packets are copies of one, whose headers are written anew.
        if mirror.capture.is_some() && (cold || stack != MirrorStack::Plumb) {
            return Err(Exclusion::NotApplicable);
        }
        let frame: u64 = level_number(point.factors, "frame");
        if mirror.capture.is_none() && !(60..=LONGEST).contains(&frame) {
            let why = format!("a frame has 60 to {LONGEST} bytes, not {frame}");
            return Err(Exclusion::impossible(why));
        }
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

/// The file of a level that names one.
fn capture_of(level: &str) -> Option<&str> {
    level.strip_prefix("capture:")
}

fn parse_frame(text: &str) -> Result<FactorLevel, String> {
    let Some(path) = capture_of(text) else {
        return FactorDomain::Sizes.parse("frame", text).map_err(|_| describe_frame());
    };
    payloads_of_capture(path)?;
    // The process that replays may be started elsewhere.
    let path = std::fs::canonicalize(path).map_err(|error| format!("'{path}': {error}"))?;
    Ok(format!("capture:{}", path.display()).as_str().into())
}

fn describe_frame() -> String {
    format!("a size from 60 to {LONGEST} bytes, or capture:FILE with a pcap or pcapng file")
}

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
            && cell.response == "packet"
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
        task_sentences(&data.cells),
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

/// Tasks within plumb's stack, each by a turn that leaves it out, frame by frame; what copying and summing in two
/// passes takes besides is unexplained.
fn task_sentences(cells: &[&CellResult]) -> Vec<String> {
    let mut frames: BTreeMap<(u64, String), BTreeMap<&str, f64>> = BTreeMap::new();
    for cell in of(cells, "packet") {
        let (Some(frame), Some(turn)) = (bytes(&cell.factors), cell.text("turn")) else { continue };
        let at = (frame, pages::levels(cell, &["frame", "cache"]));
        frames.entry(at).or_default().insert(turn, pages::median(cell));
    }
    let tell = |((_, at), turns): ((u64, String), BTreeMap<&str, f64>)| {
        let [swap, unsummed, udp, copied, separate] =
            ["swap", "udp-unsummed", "udp", "copied-unsummed", "separate"]
                .map(|turn| turns.get(turn).copied());
        let (unsummed, udp, copied) = (unsummed?, udp?, copied?);
        let tasks = [
            ("headers", swap?),
            ("lookup and socket", unsummed - swap?),
            ("checksum", udp - unsummed),
            ("copy", copied - unsummed),
        ];
        let rest = separate? - tasks.iter().map(|(_, ns)| ns).sum::<f64>();
        let told = tasks.into_iter().chain([("unexplained", rest)]);
        let told: Vec<String> = told
            .map(|(task, ns)| format!("{task} {}", value::plain(Unit::Nanoseconds, ns)))
            .collect();
        Some(format!("{at}: {}", told.join(", ")))
    };
    let told: Vec<String> = frames.into_iter().filter_map(tell).collect();
    sentence(&told, "; ", |told| {
        format!("Tasks within plumb's stack, in and out, by leaving each out: {told}.")
    })
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
