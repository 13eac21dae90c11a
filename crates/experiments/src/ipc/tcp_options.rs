//! `tcp.options`: what the options of a TCP socket do to latency and throughput.

use std::collections::BTreeMap;

use plumb_harness::spec::{PathKind, PathSpec, RemoteSpec};

use crate::claims::{MILLER, ZHAO, bytes};
use crate::factor::LevelParser;
use crate::factor::channel::{
    self, BLOCK, CONGESTION, LATENCY, MECHANISM, PLACEMENT, RECEIVE, SEND, SIZE, THROUGHPUT,
};
use crate::factor::link::{self, VETH};
use crate::prelude::*;

/// TCP_NODELAY, quick acknowledgements, buffers and congestion control against each other.
pub static EXPERIMENT: Experiment = Experiment {
    id: "tcp.options",
    study: "ipc",
    question: "Which TCP socket option changes latency or throughput, and by how much?",
    hypothesis: "Nagle's rule delays only a request written in two parts, until the delayed \
                 acknowledgement; a strict request and reply is the same with and without \
                 TCP_NODELAY at every size; buffers smaller than a message cost throughput.",
    factors: &[
        Factor { domain: FactorDomain::Mechanisms(channel::is_tcp), ..MECHANISM }
            .at(Words(&["tcp4"])),
        PLACEMENT.at(Words(&["other-cpu"])).at_paper(Words(&["same-cpu", "other-cpu"])),
        BLOCK,
        // A small message, and one longer than the buffers.
        SIZE.at(Numbers(&[64, 256 << 10])).at_paper(Numbers(&[64, 16 << 10, 256 << 10])),
        switch("nodelay", "TCP_NODELAY: small segments are sent at once"),
        switch("quickack", "TCP_QUICKACK: acknowledgements are not delayed")
            .at_quick(Words(&["off"])),
        Factor::new(
            "buffer",
            "SO_SNDBUF and SO_RCVBUF: both, or one of them",
            FactorDomain::Parsed(&LevelParser { parse: parse_buffer, describe: describe_buffer }),
            Words(&["default", "send:16Ki", "receive:16Ki"]),
        )
        .at_quick(Words(&["default", "receive:16Ki"]))
        .at_paper(Found(|_| {
            let both = [16u64 << 10, 128 << 10].map(FactorLevel::from);
            [words(&["default", "send:16Ki", "receive:16Ki"]), both.to_vec()].concat()
        })),
        Factor::of_words(
            "mtu",
            "longest packet: loopback's, or that of a virtual Ethernet, in bytes",
            &["loopback", "1500", "9000"],
        )
        .at(Words(&["loopback", "1500"]))
        .at_paper(Words(&["loopback", "1500", "9000"])),
        CONGESTION.at_paper(Words(&["cubic", "reno", "bbr"])),
        Factor::of_words(
            "pattern",
            "one write a request, or two before the reply is read",
            &["request", "write-write-read"],
        ),
    ],
    responses: &[LATENCY, THROUGHPUT],
    plan_cell: |point| {
        let size = channel::size_of(point.factors);
        let in_two = point.text("pattern") == Some("write-write-read");
        let task = match (point.response, in_two) {
            ("latency", false) => BlockTask::Latency { size },
            ("latency", true) if size < 2 => {
                return Err(Exclusion::impossible("1 byte cannot be written in two parts"));
            }
            ("latency", true) => BlockTask::WriteWriteRead { size },
            (_, false) => BlockTask::Throughput { size },
            // A transfer in one direction has no reply to wait for.
            (_, true) => return Err(Exclusion::NotApplicable),
        };
        Ok((over_mtu(point, channel::group(point)?), task))
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage { title: "TCP options", ..ExperimentPage::PLAIN },
};

/// The same launch over a virtual Ethernet, where the setting has its MTU.
fn over_mtu(point: &DesignPoint<'_>, group: LaunchGroup) -> LaunchGroup {
    let mtu = point.text("mtu").and_then(|mtu| mtu.parse().ok());
    let (Some(mtu), LaunchSubject::Channel(channel)) = (mtu, &group.subject) else { return group };
    let path = PathSpec { mtu, ..link::path(&format!("{VETH} of {mtu}"), PathKind::Veth) };
    let remote = RemoteSpec { channel: channel.clone(), path };
    LaunchGroup { subject: LaunchSubject::Remote(Box::new(remote)), ..group }
}

fn parse_buffer(text: &str) -> Result<FactorLevel, String> {
    let side = [SEND, RECEIVE].into_iter().find(|side| text.starts_with(side)).unwrap_or("");
    let level = FactorDomain::Buffers.parse("buffer", &text[side.len()..]);
    match level.map_err(|_| describe_buffer())? {
        FactorLevel::Int(size) if !side.is_empty() => {
            Ok(format!("{side}{}", bytes(size)).as_str().into())
        }
        FactorLevel::Text(_) if !side.is_empty() => Err(describe_buffer()),
        level => Ok(level),
    }
}

fn describe_buffer() -> String {
    "it takes default, a size in bytes, or one for one buffer such as send:16Ki or receive:16Ki"
        .to_owned()
}

/// A factor that is on or off.
const fn switch(name: &'static str, meaning: &'static str) -> Factor {
    Factor::of_words(name, meaning, &["on", "off"])
}

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "ipc.tcp.nagle-delays",
        claim: "Nagle's rule can cause unexpected delays on stream sockets, and TCP_NODELAY \
                removes them.",
        judge: |evidence| {
            let split = |cell: &MeasuredCell<'_>| cell.is("pattern", "write-write-read");
            let found = compare_levels(evidence, &NODELAY, &"on".into(), &"off".into(), split);
            // It *can* delay: one setting at which it does shows it.
            let needs = "plumb run tcp.options --set pattern=write-write-read --set nodelay=on,off";
            judge_any(found.into_iter().collect(), needs)
        },
        ..PublishedClaim::of(MILLER)
    },
    PublishedClaim {
        id: "ipc.tcp.nodelay-helps-larger-messages",
        claim: "TCP_NODELAY helps larger message sizes over a network.",
        historical: Some("Figure 3, remote TCP latency; sizes from 4 KiB are taken as larger"),
        judge: |evidence| {
            let larger = |cell: &MeasuredCell<'_>| {
                cell.text("pattern").is_none_or(|pattern| pattern == "request")
                    && cell.int("size").is_some_and(|size| size >= LARGER)
                    // The paper's figure is of two hosts.
                    && cell.text("mtu").is_some_and(|mtu| mtu != "loopback")
            };
            let found = compare_levels(evidence, &NODELAY, &"on".into(), &"off".into(), larger);
            let needs =
                "plumb run tcp.options --set mtu=1500 --set nodelay=on,off --set size=4Ki,512Ki";
            judge_all(found.into_iter().collect(), needs)
        },
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.tcp.buffers-matter",
        claim: "Transmission times are affected by the read and write buffer sizes.",
        historical: Some("typically 128 KB in 2014"),
        figures: &[PublishedFigure::alone("buffer, typically", 131_072.0, Unit::Bytes, "3a, NB 2")],
        judge: buffers_matter,
        ..PublishedClaim::of(MILLER)
    },
];

/// "Larger message sizes", from 4 KiB: the paper's Figure 3 names none.
const LARGER: i64 = 4 << 10;

/// A setting of the buffers matters from this share on.
const MATTERS: f64 = 0.05;

/// A factor whose levels are compared: in what, and how each pair is judged.
struct ComparedFactor {
    name: &'static str,
    response: &'static str,
    case: fn(&str, String, &MeasuredCell<'_>, &MeasuredCell<'_>) -> ClaimCase,
}

const NODELAY: ComparedFactor =
    ComparedFactor { name: "nodelay", response: "latency", case: ClaimCase::order };

const BUFFER: ComparedFactor =
    ComparedFactor { name: "buffer", response: "throughput", case: differs_case };

/// Sets every cell with one level of a factor against its twin with another.
fn compare_levels(
    evidence: &ClaimEvidence<'_>,
    factor: &ComparedFactor,
    from: &FactorLevel,
    to: &FactorLevel,
    wanted: impl Fn(&MeasuredCell<'_>) -> bool,
) -> Vec<ClaimCase> {
    let ComparedFactor { name, response, case: judge } = *factor;
    let is = |cell: &MeasuredCell<'_>, level| cell.cell.factors.level(name) == Some(level);
    let twins = evidence.twins(
        EXPERIMENT.id,
        response,
        name,
        |cell| is(cell, from) && wanted(cell),
        |cell| is(cell, to) && wanted(cell),
    );
    let levels = format!("{to}/{from}");
    let case = |(cell, twin): (&MeasuredCell<'_>, Option<&MeasuredCell<'_>>)| {
        let others = ["quickack", "nodelay", "buffer", "congestion", "mtu"].into_iter();
        let level = |name| cell.cell.factors.level(name).map(|level| format!("{name}={level}"));
        let told: Vec<String> = others.filter(|other| *other != name).filter_map(level).collect();
        let size = cell.int("size").map_or_else(String::new, bytes);
        let label = format!("{levels} {size} {}", told.join(" "));
        Some(judge(cell.level("placement"), label, cell, twin?))
    };
    twins.into_iter().filter_map(case).collect()
}

fn buffers_matter(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let cells = evidence.cells(EXPERIMENT.id, "throughput");
    let levels: BTreeMap<String, &FactorLevel> = cells
        .filter_map(|cell| cell.cell.factors.level("buffer"))
        .map(|level| (level.to_string(), level))
        .collect();
    let default = FactorLevel::from("default");
    let set = levels.into_values().filter(|level| **level != default);
    let cases = set.flat_map(|level| compare_levels(evidence, &BUFFER, &default, level, |_| true));
    judge_any(cases.collect(), "plumb run tcp.options --set buffer=default,send:16Ki,receive:16Ki")
}

/// A case of "it makes a difference": at least 5 % either way.
fn differs_case(
    placement: &str,
    label: String,
    first: &MeasuredCell<'_>,
    second: &MeasuredCell<'_>,
) -> ClaimCase {
    let equal = (1.0 / (1.0 + MATTERS), 1.0 + MATTERS);
    let case = ClaimCase::ratio_within(placement, label, (first, second), equal);
    ClaimCase { outcome: case.outcome.opposite(), strength: case.strength.abs(), ..case }
}
