//! `scaling.lan`: what a second of CPU carries over local networks of several rates.
//!
//! Bytes for each second of the sender's CPU, because networks are filled by any processor and would hide it.

use crate::definition::Experiment;
use crate::factor::{Factor, words};
use crate::factors::link::{LINK, VETH};
use crate::factors::remote::ONE_HOST_PLACEMENT;
use crate::factors::streams::{self, CONGESTION_CONTROL};
use plumb_analysis::registry::ExperimentAnalysis;

/// A stream over local networks.
pub static EXPERIMENT: Experiment = Experiment {
    id: "scaling.lan",
    study: "scaling",
    question: "How much does a second of CPU carry over a local network?",
    hypothesis: "A slow network is filled whatever the processor; each byte costs its sender more CPU \
                 on a slower network, which wakes it for fewer bytes at a time.",
    factors: &[
        Factor {
            levels: |_| words(&["ethernet-10m", "lan-100m", "lan-1g", "lan-10g", VETH]),
            ..LINK
        },
        Factor { levels: |_| words(&["same-cpu"]), ..ONE_HOST_PLACEMENT },
        CONGESTION_CONTROL,
    ],
    responses: &streams::RESPONSES,
    plan_cell: |setting| streams::over_link(setting, |_| {}),
    analysis: ExperimentAnalysis {
        claims: claims::CLAIMS,
        expectations: claims::EXPECTATIONS,
        ..ExperimentAnalysis::PLAIN
    },
    page: page::PAGE,
};

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::scaling::*;
    use plumb_analysis::claim::{
        ClaimCase, ClaimCases, ClaimEvidence, ClaimJudgment, Expectation, PublishedClaim,
        PublishedFigure, judge_all,
    };

    use plumb_base::units::Unit;

    pub(super) const EXPECTATIONS: &[Expectation] = &[Expectation {
        id: "scaling.lan.networks-are-filled",
        statement: "Computers easily saturate networks of 10 and 100 Mb/s.",
        basis: "the reason for measuring bytes a CPU-second instead of bytes a second",
        judge: networks_are_filled,
    }];

    pub(super) const CLAIMS: &[PublishedClaim] = &[
        PublishedClaim {
            id: "scaling.lan.100m-follows-processors",
            claim: "Over a LAN of 100 Mb/s, megabytes for each second of the sender's CPU follow processor \
                speed with a slope of 0.8.",
            source: MARKATOS,
            historical: Some("slope 0.8 (Figure 3)"),
            figures: &[PublishedFigure::alone("slope", 0.8, Unit::Count, "Figure 3")],
            judge: |evidence| {
                single_machine_judgment(evidence, (LAN, SENDER_CPU), |cell| {
                    link(cell) == "lan-100m"
                })
            },
        },
        PublishedClaim {
            id: "scaling.lan.10m-lags-processors",
            claim: "Over a LAN of 10 Mb/s, megabytes for each second of the sender's CPU follow processor \
                speed with a slope of 0.62.",
            source: MARKATOS,
            historical: Some("slope 0.62; processors ×25, TCP ×17 (Figure 4)"),
            figures: &[PublishedFigure::alone("slope", 0.62, Unit::Count, "Figure 4")],
            judge: |evidence| {
                single_machine_judgment(evidence, (LAN, SENDER_CPU), |cell| {
                    link(cell) == "ethernet-10m"
                })
            },
        },
    ];

    const LAN: &str = "scaling.lan";

    /// What the slower networks carry, as a share of what their rate leaves for payload.
    fn networks_are_filled(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let mut pairs = ClaimCases::default();
        for (name, rate) in [("ethernet-10m", 1.25e6), ("lan-100m", 1.25e7)] {
            let capacity = rate * PAYLOAD_SHARE;
            let found = evidence
                .cells(LAN, "throughput")
                .filter(|cell| link(cell) == name && is_link_on_time(cell));
            let before = pairs.cases.len();
            pairs.cases.extend(found.map(|cell| {
                let ends = cell.interval();
                let ends = ends.map(|interval| [interval.lo / capacity, interval.hi / capacity]);
                let placement = cell.cell.factors.text("placement").unwrap_or("unknown");
                let share = cell.median() / capacity;
                ClaimCase::quantity(placement, name.to_owned(), share, ends, FILLED, Unit::Share)
            }));
            if pairs.cases.len() == before {
                pairs.missing.push(format!("{name} from a link that keeps its time"));
            }
        }
        judge_all(pairs, "plumb run scaling.lan --set link=ethernet-10m,lan-100m")
    }

    /// Of 1,538 bytes that a full frame takes of such a network (IEEE 802.3: preamble, sum and gap), what is
    /// payload: 1,500 − 20 (RFC 791) − 20 (RFC 9293) − 12 (RFC 7323).
    const PAYLOAD_SHARE: f64 = 1_448.0 / 1_538.0;

    /// A network that carries less is not filled; one cannot carry more, but an interval's edge may.
    const FILLED: (f64, f64) = (0.95, 1.05);
}

mod page {
    //! Figures and sentences.

    use crate::pages::scaling::*;

    use plumb_report::figure::by_level::{self};

    use plumb_report::registry::ExperimentPage;

    pub(super) const PAGE: ExperimentPage = ExperimentPage {
        title: "What a second of CPU carries over a local network",
        figures: Some(|data| by_level::figures(&data.cells, &LINKS)),
        sentences: |data| bytes_per_cpu_sentences(&data.cells),
        tiles: |data| {
            best_tile(data, "sender-cpu", "carried by a second of the sender's CPU", false)
        },
        tile_rank: 8,
        responses: RESPONSES,

        ..ExperimentPage::PLAIN
    };
}
