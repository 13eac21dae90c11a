//! `throughput.remote`: both definitions of throughput between two network namespaces or two hosts.

use crate::claims::remote::{LocalAndRemote, THROUGHPUTS, in_laboratory, laboratory};
use crate::claims::{LARGE, ZHAO, least, most, slower_than_local, versus};
use crate::factor::channel::{self, ACKED, CONGESTION, THROUGHPUT};
use crate::factor::link::LINK;
use crate::factor::remote::{
    BLOCKING_WAKE, ONE_HOST_PLACEMENT, REMOTE_MECHANISM, REMOTE_SIZE, bounded_cell,
};
use crate::pages::by_link;
use crate::prelude::*;

/// Both definitions of throughput between two hosts.
pub static EXPERIMENT: Experiment = Experiment {
    id: "throughput.remote",
    study: "ipc",
    question: "How many bytes a second can one host give another?",
    hypothesis: "A long transfer fills the slowest link; acknowledged message by message it gets \
                 one message a round trip, so that delay bounds it and rate does not.",
    factors: &[REMOTE_MECHANISM, LINK, ONE_HOST_PLACEMENT, BLOCKING_WAKE, REMOTE_SIZE, CONGESTION],
    responses: &[THROUGHPUT, ACKED],
    plan_cell: |point| bounded_cell(point, channel::transfer(point), 0),
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Throughput between hosts",
        sentences: |data| {
            let long = by_link(&data.cells, THROUGHPUT.name, "A long transfer");
            let acked = "Acknowledged one by one, a message";
            [long, by_link(&data.cells, ACKED.name, acked)].concat()
        },
        ..ExperimentPage::PLAIN
    },
};

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "ipc.remote.throughput-slower-than-local",
        claim: "Local communication is faster than remote communication in terms of throughput.",
        historical: Some("Table 1: both remote rows are last at 16 B, 1 KiB and 64 KiB"),
        judge: |evidence| slower_than_local(evidence, EXPERIMENT.id, ACKED.name),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.remote.pipe-throughput-beats-remote",
        claim: "A pipe has more throughput than remote TCP and UDP.",
        historical: Some("Table 1: the pipe before both remote columns"),
        judge: |evidence| SIDES.pipe_before_remote(evidence),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.throughput.rank-16",
        claim: "Throughput at 16 B ranks local UDP, local TCP, pipe, remote UDP, remote TCP.",
        historical: Some("Table 1, all five columns"),
        judge: |evidence| SIDES.table_row(evidence, 16),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.throughput.rank-1Ki",
        claim: "Throughput at 1 KiB ranks local UDP, local TCP, pipe, remote UDP, remote TCP.",
        historical: Some("Table 1, all five columns"),
        judge: |evidence| SIDES.table_row(evidence, 1 << 10),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.throughput.rank-64Ki",
        claim: "Throughput at 64 KiB ranks local TCP, pipe, local UDP, remote TCP, remote UDP.",
        historical: Some("Table 1, all five columns"),
        judge: |evidence| SIDES.table_row(evidence, LARGE),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.remote.tcp-throughput-range",
        claim: "Remote TCP throughput lies between 25 kB/s and 130 MB/s.",
        historical: Some("Figure 4, two i5-4570 in one laboratory"),
        figures: &PublishedFigure::range(
            TCP_RANGE,
            Unit::BytesPerSecond,
            "Figure 4",
            [
                |found| least(laboratory(found, MEASURED, "tcp4")),
                |found| most(laboratory(found, MEASURED, "tcp4")),
            ],
        ),
        judge: |evidence| in_laboratory(evidence, MEASURED, "tcp4", TCP_RANGE),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.remote.udp-throughput-range",
        claim: "Remote UDP throughput lies between 100 kB/s and 100 MB/s.",
        historical: Some("Figure 6, two i5-4570 in one laboratory"),
        figures: &PublishedFigure::range(
            UDP_RANGE,
            Unit::BytesPerSecond,
            "Figure 6",
            [
                |found| least(laboratory(found, MEASURED, "udp4")),
                |found| most(laboratory(found, MEASURED, "udp4")),
            ],
        ),
        judge: |evidence| in_laboratory(evidence, MEASURED, "udp4", UDP_RANGE),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.remote.udp-throughput-beats-tcp-below-64Ki",
        claim: "Except for large messages, remote UDP carries more than remote TCP.",
        historical: Some("Table 1, throughput: remote UDP before remote TCP at 16 B and 1 KiB"),
        figures: &[
            PublishedFigure::alone("least, UDP", 1e5, Unit::BytesPerSecond, "Figure 6"),
            PublishedFigure::alone("least, TCP", 2.5e4, Unit::BytesPerSecond, "Figure 4"),
        ],
        judge: |evidence| {
            let order = ("udp4", "tcp4");
            versus(evidence, EXPERIMENT.id, ACKED.name, order, |size| size < LARGE)
        },
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.remote.tcp-throughput-beats-udp-at-64Ki",
        claim: "For large messages remote TCP carries more than remote UDP.",
        historical: Some("Table 1, throughput: remote TCP before remote UDP at 64 KiB"),
        figures: &[
            PublishedFigure::alone("most, TCP", 1.3e8, Unit::BytesPerSecond, "Figure 4"),
            PublishedFigure::alone("most, UDP", 1e8, Unit::BytesPerSecond, "Figure 6"),
        ],
        judge: |evidence| {
            let order = ("tcp4", "udp4");
            versus(evidence, EXPERIMENT.id, ACKED.name, order, |size| size == LARGE)
        },
        ..PublishedClaim::of(ZHAO)
    },
];

const SIDES: LocalAndRemote = THROUGHPUTS;

const MEASURED: (&str, &str) = (SIDES.remote, SIDES.response);

/// Remote TCP's throughput in Figure 4, in bytes a second.
const TCP_RANGE: (f64, f64) = (2.5e4, 1.3e8);

/// Remote UDP's in Figure 6.
const UDP_RANGE: (f64, f64) = (1e5, 1e8);
