//! `scaling.lan`: what a second of CPU carries over local networks of several rates.
//!
//! Bytes for each second of the sender's CPU, because networks are filled by any processor and would hide it.

use plumb_report::figure::by_level;

use crate::claims::{MARKATOS, is_link_on_time, single_machine_judgment};
use crate::factor::link::{LINK, VETH};
use crate::factor::remote::SAME_CPU;
use crate::factor::streams::{self, CONGESTION_CONTROL, SENDER_CPU};
use crate::pages::{LINKS, RESPONSES, best_tile, bytes_per_cpu_sentences};
use crate::prelude::*;

/// A stream over local networks.
pub static EXPERIMENT: Experiment = Experiment {
    id: "scaling.lan",
    study: "scaling",
    question: "How much does a second of CPU carry over a local network?",
    hypothesis: "A slow network is filled whatever the processor; each byte costs its sender more CPU \
                 on a slower network, which wakes it for fewer bytes at a time.",
    factors: &[
        LINK.at(Words(&["ethernet-10m", "lan-100m", "lan-1g", "lan-10g", VETH])),
        SAME_CPU,
        CONGESTION_CONTROL,
    ],
    responses: &streams::RESPONSES,
    plan_cell: |point| streams::over_link(point, |_| {}),
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "What a second of CPU carries over a local network",
        figures: Some(|data| by_level::figures(&data.cells, &LINKS)),
        sentences: |data| bytes_per_cpu_sentences(&data.cells),
        tiles: |data| {
            best_tile(data, "sender-cpu", "carried by a second of the sender's CPU", false)
        },
        tile_rank: 8,
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "scaling.lan.networks-are-filled",
        claim: "Computers easily saturate networks of 10 and 100 Mb/s.",
        historical: Some("footnote 3, the reason for measuring bytes a CPU-second"),
        judge: |evidence| {
            link_shares(evidence, &[("ethernet-10m", 1.25e6), ("lan-100m", 1.25e7)], FILLED)
        },
        ..PublishedClaim::of(MARKATOS)
    },
    PublishedClaim {
        id: "scaling.trend.network-is-not-the-bottleneck",
        claim: "Network bandwidth is not the scarcest resource of a distributed system (judged by a connection that does not fill 10 Gb/s \
                between two processes on one CPU).",
        judge: |evidence| link_shares(evidence, &[("lan-10g", 1.25e9)], (0.0, FILLED.0)),
        ..PublishedClaim::of(MARKATOS)
    },
    PublishedClaim {
        id: "scaling.lan.100m-follows-processors",
        claim: "Over a LAN of 100 Mb/s, megabytes for each second of the sender's CPU follow processor \
                speed with a slope of 0.8.",
        historical: Some("slope 0.8 (Figure 3)"),
        figures: &[PublishedFigure::alone("slope", 0.8, Unit::Count, "Figure 3")],
        judge: |evidence| over(evidence, "lan-100m"),
        ..PublishedClaim::of(MARKATOS)
    },
    PublishedClaim {
        id: "scaling.lan.10m-lags-processors",
        claim: "Over a LAN of 10 Mb/s, megabytes for each second of the sender's CPU follow processor \
                speed with a slope of 0.62.",
        historical: Some("slope 0.62; processors ×25, TCP ×17 (Figure 4)"),
        figures: &[PublishedFigure::alone("slope", 0.62, Unit::Count, "Figure 4")],
        judge: |evidence| over(evidence, "ethernet-10m"),
        ..PublishedClaim::of(MARKATOS)
    },
];

fn over(evidence: &ClaimEvidence<'_>, link: &'static str) -> ClaimJudgment {
    let response = (EXPERIMENT.id, SENDER_CPU.name);
    single_machine_judgment(evidence, response, |cell| cell.is("link", link))
}

/// What networks carry, as a share of what their rates (bytes a second) leave for payload, within bounds.
fn link_shares(
    evidence: &ClaimEvidence<'_>,
    links: &[(&'static str, f64)],
    bounds: (f64, f64),
) -> ClaimJudgment {
    let mut found = ClaimCases::default();
    for &(name, rate) in links {
        let capacity = rate * PAYLOAD_SHARE;
        let before = found.cases.len();
        let cells = evidence.cells(EXPERIMENT.id, "throughput");
        let cells = cells.filter(|cell| cell.is("link", name) && is_link_on_time(cell));
        found.cases.extend(cells.map(|cell| {
            let ends = cell.ends().map(|ends| ends.map(|end| end / capacity));
            let (place, share) = (cell.level("placement"), cell.median() / capacity);
            ClaimCase::quantity(place, name.to_owned(), share, ends, bounds, Unit::Share)
        }));
        if found.cases.len() == before {
            found.missing.push(format!("{name} from a link that keeps its time"));
        }
    }
    let links: Vec<&str> = links.iter().map(|(name, _)| *name).collect();
    judge_all(found, &format!("plumb run scaling.lan --set link={}", links.join(",")))
}

/// Of 1,538 bytes that a full frame takes of such a network (IEEE 802.3: preamble, sum and gap), what is
/// payload: 1,500 − 20 (RFC 791) − 20 (RFC 9293) − 12 (RFC 7323).
const PAYLOAD_SHARE: f64 = 1_448.0 / 1_538.0;

/// A network that carries less is not filled; one cannot carry more, but an interval's edge may.
const FILLED: (f64, f64) = (0.95, 1.05);
