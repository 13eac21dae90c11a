//! `throughput.remote`: both definitions of throughput between two network namespaces or two hosts.

use plumb_harness::spec::BlockTask;

use crate::definition::Experiment;
use crate::factors::channel::{self, ACKED, CONGESTION, THROUGHPUT};
use crate::factors::link::LINK;
use crate::factors::remote::{
    BLOCKING_WAKE, ONE_HOST_PLACEMENT, REMOTE_MECHANISM, REMOTE_SIZE, bounded_cell,
};
use plumb_analysis::registry::ExperimentAnalysis;

/// Both definitions of throughput between two hosts.
pub static EXPERIMENT: Experiment = Experiment {
    id: "throughput.remote",
    study: "ipc",
    question: "How many bytes a second can one host give another?",
    hypothesis: "A long transfer fills the slowest link; acknowledged message by message it gets \
                 one message a round trip, so that delay bounds it and rate does not.",
    factors: &[REMOTE_MECHANISM, LINK, ONE_HOST_PLACEMENT, BLOCKING_WAKE, REMOTE_SIZE, CONGESTION],
    responses: &[THROUGHPUT, ACKED],
    plan_cell: |setting| {
        let size = channel::size_of(setting.factors);
        let acked = setting.response == ACKED.name;
        let task = if acked {
            BlockTask::ThroughputAcked { size }
        } else {
            BlockTask::Throughput { size }
        };
        bounded_cell(setting, task, 0)
    },
    analysis: ExperimentAnalysis { claims: claims::CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: page::PAGE,
};

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::ipc::*;
    use plumb_analysis::claim::PublishedClaim;

    pub(super) const CLAIMS: &[PublishedClaim] = &[
        PublishedClaim {
            id: "ipc.remote.throughput-slower-than-local",
            claim: "Local communication is faster than remote communication in terms of throughput.",
            source: ZHAO,
            historical: Some("Table 1: both remote rows are last at 16 B, 1 KiB and 64 KiB"),
            figures: &[],
            judge: |evidence| slower_than_local(evidence, THROUGHPUT, "throughput.acked"),
        },
        PublishedClaim {
            id: "ipc.remote.udp-throughput-beats-tcp-below-64Ki",
            claim: "Except for large messages, remote UDP carries more than remote TCP.",
            source: ZHAO,
            historical: Some("Table 1, throughput: remote UDP before remote TCP at 16 B and 1 KiB"),
            figures: &[],
            judge: |evidence| {
                let order = ("udp4", "tcp4");
                versus(evidence, THROUGHPUT, "throughput.acked", order, |size| size < LARGE)
            },
        },
        PublishedClaim {
            id: "ipc.remote.tcp-throughput-beats-udp-at-64Ki",
            claim: "For large messages remote TCP carries more than remote UDP.",
            source: ZHAO,
            historical: Some("Table 1, throughput: remote TCP before remote UDP at 64 KiB"),
            figures: &[],
            judge: |evidence| {
                let order = ("tcp4", "udp4");
                versus(evidence, THROUGHPUT, "throughput.acked", order, |size| size == LARGE)
            },
        },
    ];

    const THROUGHPUT: &str = "throughput.remote";

    /// "Large" in the sense of Table 1.
    const LARGE: i64 = 64 << 10;
}

mod page {
    //! Figures and sentences.

    use crate::pages::ipc::*;

    use plumb_report::registry::{ExperimentPage, PageData};

    pub(super) const PAGE: ExperimentPage =
        ExperimentPage { title: "Throughput between hosts", sentences, ..ExperimentPage::PLAIN };

    fn sentences(data: &PageData<'_>) -> Vec<String> {
        let mut found = by_link(&data.cells, "throughput", "A long transfer");
        found.extend(by_link(
            &data.cells,
            "throughput.acked",
            "Acknowledged one by one, a message",
        ));
        found
    }
}
