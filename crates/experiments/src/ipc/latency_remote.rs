//! `latency.remote`: a message between two network namespaces or two hosts.

use plumb_analysis::ladder::METROPOLITAN;

use crate::claims::remote::{LATENCIES, LocalAndRemote, in_laboratory, laboratory};
use crate::claims::{LARGE, ZHAO, least, most, slower_than_local, versus};
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
        id: "ipc.remote.pipe-latency-beats-remote",
        claim: "A pipe has lower latency than remote TCP and UDP.",
        historical: Some("Table 1: the pipe before both remote columns"),
        judge: |evidence| SIDES.pipe_before_remote(evidence),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.latency.rank-16",
        claim: "Latency at 16 B ranks local UDP, local TCP, pipe, remote UDP, remote TCP.",
        historical: Some("Table 1, all five columns"),
        judge: |evidence| SIDES.table_row(evidence, 16),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.latency.rank-1Ki",
        claim: "Latency at 1 KiB ranks local UDP, local TCP, pipe, remote UDP, remote TCP.",
        historical: Some("Table 1, all five columns"),
        judge: |evidence| SIDES.table_row(evidence, 1 << 10),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.latency.rank-64Ki",
        claim: "Latency at 64 KiB ranks local TCP, local UDP, pipe, remote UDP, remote TCP.",
        historical: Some("Table 1, all five columns"),
        judge: |evidence| SIDES.table_row(evidence, LARGE),
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
        judge: |evidence| {
            // Of larger messages the text says the opposite.
            let order = ("udp4", "tcp4");
            versus(evidence, EXPERIMENT.id, "latency", order, |size| size <= LARGE)
        },
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.remote.tcp-latency-range",
        claim: "Remote TCP latency lies between 80 µs and 1.1 ms.",
        historical: Some("80,000 ns to 1,100,000 ns (Figure 3), two i5-4570 in one laboratory"),
        figures: &PublishedFigure::range(
            TCP_RANGE,
            Unit::Nanoseconds,
            "Figure 3",
            [
                |found| least(laboratory(found, MEASURED, "tcp4")),
                |found| most(laboratory(found, MEASURED, "tcp4")),
            ],
        ),
        judge: |evidence| in_laboratory(evidence, MEASURED, "tcp4", TCP_RANGE),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.remote.udp-latency-range",
        claim: "Remote UDP latency lies between 20 µs and 700 µs.",
        historical: Some("20,000 ns to 700,000 ns (Figure 5), two i5-4570 in one laboratory"),
        figures: &PublishedFigure::range(
            UDP_RANGE,
            Unit::Nanoseconds,
            "Figure 5",
            [
                |found| least(laboratory(found, MEASURED, "udp4")),
                |found| most(laboratory(found, MEASURED, "udp4")),
            ],
        ),
        judge: |evidence| in_laboratory(evidence, MEASURED, "udp4", UDP_RANGE),
        ..PublishedClaim::of(ZHAO)
    },
];

const SIDES: LocalAndRemote = LATENCIES;

const MEASURED: (&str, &str) = (SIDES.remote, SIDES.response);

/// Remote TCP's latency in Figure 3, in nanoseconds.
const TCP_RANGE: (f64, f64) = (80_000.0, 1_100_000.0);

/// Remote UDP's in Figure 5.
const UDP_RANGE: (f64, f64) = (20_000.0, 700_000.0);
