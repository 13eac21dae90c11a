//! `latency.remote`: a message between two network namespaces or two hosts.

use plumb_analysis::ladder::METROPOLITAN;

use crate::claims::{
    ZHAO, bytes, least, most, needs, remote_label, size, slower_than_local, versus,
};
use crate::factor::channel::{self, CONGESTION, LATENCY};
use crate::factor::link::LINK;
use crate::factor::remote::{
    BLOCKING_WAKE, ONE_HOST_PLACEMENT, REMOTE_MECHANISM, REMOTE_SIZE, bounded_cell,
};
use crate::pages::by_link;
use crate::prelude::*;

/// Half the time of a message and its echo between two hosts.
pub static EXPERIMENT: Experiment = Experiment {
    id: "latency.remote",
    study: "ipc",
    question: "How long does a message take from one host to another?",
    hypothesis: "Remote latency is the local one, the network's delay, and the time that the \
                 slowest link needs for the message; UDP is faster than TCP until a message no \
                 longer fits one datagram.",
    factors: &[REMOTE_MECHANISM, LINK, ONE_HOST_PLACEMENT, BLOCKING_WAKE, REMOTE_SIZE, CONGESTION],
    responses: &[LATENCY],
    plan_cell: |point| {
        let size = channel::size_of(point.factors);
        bounded_cell(point, BlockTask::Latency { size }, size)
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, rung: Some(rung), ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Latency between hosts",
        sentences: |data| by_link(&data.cells, "latency", "A message"),
        ..ExperimentPage::PLAIN
    },
};

/// A message over the kind of network that a link of the ladder stands for; another link's own name.
fn rung(result: &CellResult) -> Option<RungLabel> {
    let mechanism = result.text("mechanism").filter(|_| result.response == "latency")?;
    let network = match result.text("link")? {
        "lan-1g" => "LAN",
        METROPOLITAN => "metropolitan",
        "transatlantic" => "wide area",
        link => link,
    };
    Some(RungLabel { is_remote: true, ..RungLabel::local(format!("{mechanism}, {network}")) })
}

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "ipc.remote.latency-slower-than-local",
        claim: "Local communication is faster than remote communication in terms of latency.",
        historical: Some("Table 1: both remote rows are last at 16 B, 1 KiB and 64 KiB"),
        judge: |evidence| slower_than_local(evidence, EXPERIMENT.id, "latency"),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.remote.udp-latency-beats-tcp",
        claim: "Remote UDP is faster than remote TCP.",
        historical: Some("Table 1, latency: remote UDP before remote TCP at all three sizes"),
        figures: &[
            PublishedFigure::alone("least, UDP", 20_000.0, Unit::Nanoseconds, "Figure 5"),
            PublishedFigure::alone("least, TCP", 80_000.0, Unit::Nanoseconds, "Figure 3"),
        ],
        judge: |evidence| versus(evidence, EXPERIMENT.id, "latency", ("udp4", "tcp4"), |_| true),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.remote.tcp-latency-range",
        claim: "Remote TCP latency lies between 80 µs and 1.1 ms for messages of 4 B to 512 KiB.",
        historical: Some("80,000 ns to 1,100,000 ns (Figure 3), two i5-4570 in one laboratory"),
        figures: &PublishedFigure::range(
            TCP_RANGE,
            Unit::Nanoseconds,
            "Figure 3",
            [|found| least(laboratory(found, "tcp4")), |found| most(laboratory(found, "tcp4"))],
        ),
        judge: |evidence| in_laboratory(evidence, "tcp4", TCP_RANGE),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.remote.udp-latency-range",
        claim: "Remote UDP latency lies between 20 µs and 700 µs for messages of 4 B to 512 KiB.",
        historical: Some("20,000 ns to 700,000 ns (Figure 5), two i5-4570 in one laboratory"),
        figures: &PublishedFigure::range(
            UDP_RANGE,
            Unit::Nanoseconds,
            "Figure 5",
            [|found| least(laboratory(found, "udp4")), |found| most(laboratory(found, "udp4"))],
        ),
        judge: |evidence| in_laboratory(evidence, "udp4", UDP_RANGE),
        ..PublishedClaim::of(ZHAO)
    },
];

/// Remote TCP's latency in Figure 3, in nanoseconds.
const TCP_RANGE: (f64, f64) = (80_000.0, 1_100_000.0);

/// Remote UDP's in Figure 5.
const UDP_RANGE: (f64, f64) = (20_000.0, 700_000.0);

/// The link that Zhao's hosts had between them: a switched gigabit network of a laboratory.
const LABORATORY: &str = "lan-1g";

/// The cells of a mechanism over the link that the paper had.
fn laboratory<'a>(
    evidence: &ClaimEvidence<'a>,
    mechanism: &'static str,
) -> impl Iterator<Item = &'a MeasuredCell<'a>> {
    let cells = evidence.cells(EXPERIMENT.id, LATENCY.name);
    cells.filter(move |cell| cell.is("link", LABORATORY) && cell.is("mechanism", mechanism))
}

/// The medians of these cells.
fn in_laboratory(
    evidence: &ClaimEvidence<'_>,
    mechanism: &'static str,
    bounds: (f64, f64),
) -> ClaimJudgment {
    let cases = laboratory(evidence, mechanism)
        .map(|cell| ClaimCase::median_within(&remote_label(cell), bytes(size(cell)), cell, bounds));
    judge_all(cases.collect(), &needs(EXPERIMENT.id, "link=lan-1g"))
}
