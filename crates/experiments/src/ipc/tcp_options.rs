//! `tcp.options`: what the options of a TCP socket do to latency and throughput over loopback.

use crate::claims::{MILLER, ZHAO, bytes};
use crate::factor::channel::{
    self, BLOCK, CONGESTION, LATENCY, MECHANISM, ONE_OR_TWO_CPUS, SIZE, THROUGHPUT,
};
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
        ONE_OR_TWO_CPUS,
        BLOCK,
        SIZE.at(Numbers(&[64, 16 << 10])),
        switch("nodelay", "TCP_NODELAY: small segments are sent at once"),
        switch("quickack", "TCP_QUICKACK: acknowledgements are not delayed"),
        Factor::new(
            "buffer",
            "SO_SNDBUF and SO_RCVBUF",
            FactorDomain::Buffers,
            Found(|_| vec!["default".into(), (16u64 << 10).into(), (256u64 << 10).into()]),
        )
        .at_quick(Words(&["default"])),
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
        Ok((channel::group(point)?, task))
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage { title: "TCP options", ..ExperimentPage::PLAIN },
};

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
        claim: "TCP_NODELAY helps larger message sizes.",
        historical: Some("Figure 3, remote TCP latency; sizes from 4 KiB are taken as larger"),
        judge: |evidence| {
            let larger = |cell: &MeasuredCell<'_>| {
                cell.text("pattern").is_none_or(|pattern| pattern == "request")
                    && cell.int("size").is_some_and(|size| size >= LARGER)
            };
            let found = compare_levels(evidence, &NODELAY, &"on".into(), &"off".into(), larger);
            let needs = "plumb run tcp.options --set nodelay=on,off --set size=4Ki,64Ki,512Ki";
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
        let others = ["quickack", "nodelay", "buffer", "congestion"].into_iter();
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
    let mut sizes: Vec<i64> = cells.filter_map(|cell| cell.int("buffer")).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let default = FactorLevel::from("default");
    let cases = sizes.into_iter().flat_map(|size| {
        compare_levels(evidence, &BUFFER, &default, &FactorLevel::Int(size), |_| true)
    });
    judge_any(cases.collect(), "plumb run tcp.options --set buffer=default,16Ki,256Ki")
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
