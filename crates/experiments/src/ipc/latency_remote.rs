//! `latency.remote`: a message between two network namespaces or two hosts.

use plumb_harness::spec::BlockTask;

use crate::definition::Experiment;
use crate::factors::channel::{self, CONGESTION, LATENCY};
use crate::factors::link::LINK;
use crate::factors::remote::{
    BLOCKING_WAKE, ONE_HOST_PLACEMENT, REMOTE_MECHANISM, REMOTE_SIZE, bounded_cell,
};
use plumb_analysis::document::CellResult;
use plumb_analysis::ladder::METROPOLITAN;
use plumb_analysis::registry::ExperimentAnalysis;
use plumb_analysis::registry::RungLabel;

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
    plan_cell: |setting| {
        let size = channel::size_of(setting.factors);
        bounded_cell(setting, BlockTask::Latency { size }, size)
    },
    analysis: ExperimentAnalysis {
        claims: claims::CLAIMS,
        rung: Some(rung),
        ..ExperimentAnalysis::PLAIN
    },
    page: page::PAGE,
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

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::ipc::*;
    use plumb_analysis::claim::{
        ClaimCase, ClaimCases, ClaimEvidence, ClaimJudgment, PublishedClaim, judge_all,
    };

    use plumb_analysis::summary::MeasuredCell;

    use plumb_base::units::Unit;

    pub(super) const CLAIMS: &[PublishedClaim] = &[
        PublishedClaim {
            id: "ipc.remote.latency-slower-than-local",
            claim: "Local communication is faster than remote communication in terms of latency.",
            source: ZHAO,
            historical: Some("Table 1: both remote rows are last at 16 B, 1 KiB and 64 KiB"),
            figures: &[],
            judge: |evidence| slower_than_local(evidence, LATENCY, "latency"),
        },
        PublishedClaim {
            id: "ipc.remote.udp-latency-beats-tcp",
            claim: "Remote UDP is faster than remote TCP.",
            source: ZHAO,
            historical: Some("Table 1, latency: remote UDP before remote TCP at all three sizes"),
            figures: &[],
            judge: |evidence| versus(evidence, LATENCY, "latency", ("udp4", "tcp4"), |_| true),
        },
        PublishedClaim {
            id: "ipc.remote.tcp-latency-range",
            claim: "Remote TCP latency lies between 80 µs and 1.1 ms for messages of 4 B to 512 KiB.",
            source: ZHAO,
            historical: Some("80,000 ns to 1,100,000 ns (Figure 3), two i5-4570 in one laboratory"),
            figures: &[],
            judge: |evidence| range(evidence, "tcp4", (80_000.0, 1_100_000.0)),
        },
        PublishedClaim {
            id: "ipc.remote.udp-latency-range",
            claim: "Remote UDP latency lies between 20 µs and 700 µs for messages of 4 B to 512 KiB.",
            source: ZHAO,
            historical: Some("20,000 ns to 700,000 ns (Figure 5), two i5-4570 in one laboratory"),
            figures: &[],
            judge: |evidence| range(evidence, "udp4", (20_000.0, 700_000.0)),
        },
    ];

    const LATENCY: &str = "latency.remote";

    /// The link that Zhao's hosts had between them: a switched gigabit network of a laboratory.
    const LABORATORY: &str = "lan-1g";

    /// The medians of a mechanism over the link that the paper had.
    fn range(evidence: &ClaimEvidence<'_>, mechanism: &str, bounds: (f64, f64)) -> ClaimJudgment {
        let mut pairs = ClaimCases::default();
        let chosen = |cell: &&MeasuredCell<'_>| {
            link(cell) == LABORATORY && cell.cell.factors.text("mechanism") == Some(mechanism)
        };
        for cell in evidence.cells(LATENCY, "latency").filter(chosen) {
            let ends = cell.interval().map(|interval| [interval.lo, interval.hi]);
            let label = bytes(size(cell));
            let unit: Unit = cell.cell.unit_type();
            let median = cell.median();
            pairs.cases.push(ClaimCase::quantity(
                &place_label(cell),
                label,
                median,
                ends,
                bounds,
                unit,
            ));
        }
        judge_all(pairs, &needs(LATENCY, "link=lan-1g"))
    }
}

mod page {
    //! Figures and sentences.

    use crate::pages::ipc::*;

    use plumb_report::registry::ExperimentPage;

    pub(super) const PAGE: ExperimentPage = ExperimentPage {
        title: "Latency between hosts",
        sentences: |data| by_link(&data.cells, "latency", "A message"),
        ..ExperimentPage::PLAIN
    };
}
