//! `latency.local`: how long a message takes between two processes of one machine.

use plumb_analysis::registry::PublishedRanking;

use crate::claims::remote::same_magnitude;
use crate::claims::{
    LARGE, MARKATOS, TABLE_1, ZHAO, blocking_pipes, least, most, place_label, published_pairs,
    quantities, udp_before_tcp,
};
use crate::factor::channel::{
    self, CONGESTION, LATENCY, LOCAL_PLACEMENT, LOCAL_SIZE, MECHANISM, WAKE,
};
use crate::pages::median;
use crate::prelude::*;

/// Half the time of a message and its echo, for every local mechanism.
pub static EXPERIMENT: Experiment = Experiment {
    id: "latency.local",
    study: "ipc",
    question: "How long does a message take from one process to another on this machine?",
    hypothesis: "Latency grows with size once copying outweighs waking; at each placement the \
                 mechanisms keep one order, pipes slower than sockets, UDP faster than TCP.",
    factors: &[MECHANISM, LOCAL_PLACEMENT, WAKE, LOCAL_SIZE, CONGESTION],
    responses: &[LATENCY],
    plan_cell: |point| {
        let size = channel::size_of(point.factors);
        Ok((channel::group(point)?, BlockTask::Latency { size }))
    },
    analysis: ExperimentAnalysis {
        claims: CLAIMS,
        ranking: Some(PublishedRanking { source: ZHAO, orders: &TABLE_1 }),
        rung: Some(|result| {
            let mechanism = result.text("mechanism").filter(|_| result.response == "latency");
            mechanism.map(|name| RungLabel::local(name.to_owned()))
        }),
        ..ExperimentAnalysis::PLAIN
    },
    page: ExperimentPage {
        title: "Latency between local processes",
        headline: |data| at_each_placement(data, latency_sentence),
        // The nearest placement comes first, in figures as in sentences.
        tiles: |data| {
            at_each_placement(data, |cells| Some(cell_tile("lowest latency", cells.first()?)))
        },
        is_ladder_rung: true,
        ..ExperimentPage::PLAIN
    },
};

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "ipc.latency.ranks",
        claim: "Latency ranks local UDP first, then local TCP, then the pipe at 16 B and 1 KiB, \
                and TCP, UDP, pipe at 64 KiB.",
        historical: Some("Table 1, latency rows, i5-4570 at 3.2 GHz"),
        judge: |evidence| in_order(evidence, &published_pairs("latency")),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.latency.pipe-slower-than-sockets",
        claim: "Pipes are slower than local sockets.",
        historical: Some("Table 1: the pipe is last of the local three at every size"),
        judge: |evidence| {
            let mut pairs = published_pairs("latency");
            pairs.retain(|(_, _, worse)| *worse == "pipe");
            in_order(evidence, &pairs)
        },
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.latency.udp-beats-tcp-below-64Ki",
        claim: "Except for large messages, UDP is faster than TCP.",
        historical: Some("Table 1: UDP before TCP at 16 B and 1 KiB"),
        judge: |evidence| judge_all(udp_before_tcp(evidence, EXPERIMENT.id, "latency"), NEEDS),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.latency.tcp-beats-udp-at-64Ki",
        claim: "TCP is faster than UDP for large messages.",
        historical: Some("Table 1: TCP before UDP at 64 KiB"),
        judge: |evidence| in_order(evidence, &[(LARGE, "tcp4", "udp4")]),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.latency.pipe-same-magnitude",
        claim: "Pipes are of the same magnitude of latency as local sockets.",
        judge: |evidence| same_magnitude(evidence, EXPERIMENT.id, LATENCY.name, NEEDS),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.latency.pipe-range",
        claim: "Pipe latency lies between 8 µs and 300 µs for messages of 4 B to 512 KiB.",
        historical: Some("8,000 ns to 300,000 ns (Figure 7), i5-4570 at 3.2 GHz"),
        figures: &PublishedFigure::range(
            PIPE_RANGE,
            Unit::Nanoseconds,
            "Figure 7",
            [|evidence| least(pipes(evidence)), |evidence| most(pipes(evidence))],
        ),
        judge: |evidence| {
            let found = quantities(evidence, EXPERIMENT.id, "latency", "pipe", PIPE_RANGE);
            judge_all(found, "plumb run latency.local --set mechanism=pipe")
        },
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "scaling.cause.small-are-os-bound",
        claim: "Operating-system overhead dominates the cost of small messages (judged by a KiB over TCP taking at most half as long again as 16 \
                bytes).",
        judge: |evidence| {
            let tcp = |bytes: u64| {
                move |cell: &MeasuredCell<'_>| {
                    cell.is("mechanism", "tcp4") && cell.is("size", bytes)
                }
            };
            let found = ClaimCases::of_twins(
                evidence.twins(EXPERIMENT.id, LATENCY.name, "size", tcp(16), tcp(1_024)),
                |small, kib| {
                    let place = place_label(small);
                    let label = "1 KiB/16 B".to_owned();
                    ClaimCase::ratio_within(&place, label, (small, kib), (0.5, 1.5))
                },
                |small| format!("1 KiB, {}", place_label(small)),
            );
            judge_all(found, "plumb run latency.local --set mechanism=tcp4 --set size=16,1Ki")
        },
        ..PublishedClaim::of(MARKATOS)
    },
    PublishedClaim {
        id: "scaling.cause.entry-bounds-short-protocol-long",
        claim: "Kernel entry and exit matters for short transfers; protocol processing dominates long ones (judged by two empty calls taking \
                a tenth or more of 16 bytes over TCP on one CPU, and less than that of 64 KiB).",
        judge: entry_share,
        ..PublishedClaim::of(MARKATOS)
    },
];

/// What two empty calls take of a message over TCP on one CPU, where nothing is waited for.
fn entry_share(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let mut calls = evidence.cells("call.kernel", "call");
    let call = calls.find(|cell| cell.is("call", "getpid") && cell.is("via", "syscall"));
    let cases = evidence.cells(EXPERIMENT.id, LATENCY.name).filter_map(|cell| {
        let is_meant = cell.is("mechanism", "tcp4") && cell.is("placement", "same-cpu");
        let bounds = match cell.int("size") {
            Some(16) => (0.1, 1.0),
            Some(LARGE) => (0.0, 0.1),
            _ => return None,
        };
        let ([entry_low, entry_high], [low, high]) = (call?.ends()?, cell.ends()?);
        let (share, ends) = (call?.median() / cell.median(), [entry_low / high, entry_high / low]);
        let label = format!("calls/{}", format_bytes(cell.int("size")?.unsigned_abs()));
        let [value, ends @ ..] = [share, ends[0], ends[1]].map(|share| 2.0 * share);
        let unit = Unit::Share;
        is_meant.then(|| ClaimCase::quantity("", label, value, Some(ends), bounds, unit))
    });
    judge_all(cases.collect(), "plumb study ipc")
}

/// The latency of a pipe in Figure 7, in nanoseconds.
const PIPE_RANGE: (f64, f64) = (8_000.0, 300_000.0);

fn pipes<'a>(evidence: &ClaimEvidence<'a>) -> impl Iterator<Item = &'a MeasuredCell<'a>> {
    blocking_pipes(evidence, EXPERIMENT.id, LATENCY.name)
}

const NEEDS: &str = "plumb run latency.local --set mechanism=pipe,tcp4,udp4 --set size=16,1Ki,64Ki";

fn in_order(evidence: &ClaimEvidence<'_>, pairs: &[(i64, &str, &str)]) -> ClaimJudgment {
    judge_all(evidence.order_cases(EXPERIMENT.id, "latency", pairs), NEEDS)
}

/// What is to be said about the latencies at each placement at the size nearest to 64 bytes, lowest first.
fn at_each_placement<T>(data: &PageData<'_>, tell: impl Fn(&[&CellResult]) -> Option<T>) -> Vec<T> {
    let mut placements: Vec<(usize, &str)> = data
        .cells
        .iter()
        .map(|cell| (name::placement_order(cell), cell.level("placement")))
        .collect();
    placements.sort_unstable();
    placements.dedup();
    let told = |(_, placement): (usize, &str)| tell(&latencies(&data.cells, placement));
    placements.into_iter().filter_map(told).collect()
}

fn latency_sentence(cells: &[&CellResult]) -> Option<String> {
    let (first, last) = (cells.first()?, cells.last()?);
    let told =
        |cell: &CellResult| format!("{} through {}", value::median(cell), cell.level("mechanism"));
    let size = first.number("size");
    let size = size.map_or_else(String::new, |size| format!(" of {}", format_size(size)));
    let place = name::placement(first.level("placement"));
    let ratio = value::times(last.summary.median? / first.summary.median?);
    let mut text = format!("A message{size} ({place}) takes {}", told(first));
    if cells.len() > 1 {
        text = format!("{text} at best, {} at worst, {ratio} as long", told(last));
    }
    Some(text + ".")
}

fn latencies<'a>(results: &[&'a CellResult], placement: &str) -> Vec<&'a CellResult> {
    let mut cells = crate::pages::of(results, "latency");
    cells.retain(|cell| cell.level("placement") == placement);
    let sizes = cells.iter().filter_map(|cell| cell.number("size"));
    let reference = sizes.min_by_key(|size| size.abs_diff(REFERENCE_SIZE));
    cells.retain(|cell| cell.number("size") == reference);
    cells.sort_by(|a, b| median(a).total_cmp(&median(b)));
    cells
}

/// The message size, in bytes, at which mechanisms are compared in one sentence.
const REFERENCE_SIZE: u64 = 64;
