//! `udp.large`: messages larger than one datagram, with and without loss.

use plumb_harness::spec::PathSpec;

use super::latency_remote;
use crate::claims::{ZHAO, bytes, place_label, size};
use crate::factor::channel::{self, LATENCY, MECHANISM, SIZE};
use crate::factor::link::{self, LINK, MTU, VETH};
use crate::factor::remote::{self, BLOCKING_WAKE, ONE_HOST_PLACEMENT};
use crate::prelude::*;

/// Fragmentation by the application or left to IP, over a path that loses packets.
///
/// Never over loopback, whose MTU of 65,536 holds every datagram.
pub static EXPERIMENT: Experiment = Experiment {
    id: "udp.large",
    study: "ipc",
    question: "What becomes of a UDP message that does not fit into one datagram?",
    hypothesis: "A message survives only if every packet of it does, so that the delivered share \
                 falls with size and loss, whether the application cuts it or IP does.",
    factors: &[
        Factor { domain: FactorDomain::Mechanisms(Mechanism::is_lossy), ..MECHANISM }
            .at(Words(&["udp4"]))
            .at_paper(Words(&["udp4", "udp6"])),
        LINK.at(Words(&[VETH])),
        ONE_HOST_PLACEMENT,
        BLOCKING_WAKE,
        SIZE.at(Numbers(&[16 << 10, DATAGRAM_MAX, 128 << 10, 256 << 10, 512 << 10]))
            .at_quick(Numbers(&[DATAGRAM_MAX, 128 << 10, 512 << 10])),
        Factor::of_words(
            "fragmentation",
            "parts cut by the application for one Ethernet frame, or datagrams as large as IP takes, which it cuts",
            &["application", "ip"],
        ),
        Factor::new(
            "loss",
            "share of the packets that the path loses, in percent; each fragment is one",
            FactorDomain::Percent,
            Numbers(&[0, 1, 10]),
        ),
    ],
    responses: &[
        ResponseVariable::share(
            "delivered",
            Better::Higher,
            "share of messages whose echo came back whole",
        ),
        ResponseVariable::rate("goodput", "verified bytes of whole messages a second"),
        LATENCY,
    ],
    plan_cell,
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage { title: "UDP beyond the datagram limit", ..ExperimentPage::PLAIN },
};

fn plan_cell(point: &DesignPoint<'_>) -> CellDecision {
    let size = channel::size_of(point.factors);
    let loss: u8 = channel::level_number(point.factors, "loss");
    let task = match point.response {
        // A lost message has no latency without a rule to repeat it, which UDP does not have.
        "latency" if loss > 0 => return Err(Exclusion::NotApplicable),
        "latency" => BlockTask::Latency { size },
        "goodput" => BlockTask::Throughput { size },
        _ => BlockTask::AnsweredShare { size },
    };
    let mechanism = channel::mechanism_of(point.factors)
        .ok_or_else(|| Exclusion::impossible("no mechanism is given"))?;
    let is_cut_by_ip = point.text("fragmentation") == Some("ip");
    let group = remote::launch_group_over(point, mechanism, lossy_path(point, loss)?, |options| {
        options.datagram_max = (!is_cut_by_ip).then_some(ETHERNET_PAYLOAD);
    })?;
    Ok((group, task))
}

/// The path of a setting, which loses so many percent of its packets in each direction.
fn lossy_path(point: &DesignPoint<'_>, loss: u8) -> Result<PathSpec, Exclusion> {
    match point.text(LINK.name) {
        _ if loss == 0 => link::path_of(point)?.ok_or_else(|| {
            Exclusion::impossible("over loopback no datagram is cut: choose link=veth")
        }),
        Some(VETH) => {
            link::path_over_link(&format!("{loss} % loss"), &format!("loss={loss}%"), MTU)
        }
        _ => Err(Exclusion::impossible(
            "packets are lost on purpose over veth alone: give the link a loss of its own, as \
             link=rate=1gbit,loss=1%",
        )),
    }
}

/// UDP payload of one Ethernet frame over IPv6, which has the longer header: 1500 − 40 − 8 bytes (RFC 894, 8200, 768).
const ETHERNET_PAYLOAD: u64 = 1_452;

/// Largest UDP payload over IPv4, which is where large begins: 65,535 − 20 − 8 bytes (RFC 791, RFC 768).
const DATAGRAM_MAX: u64 = 65_507;

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "ipc.udp.large-is-faulty",
        claim: "Large UDP messages tend to be faulty.",
        historical: Some("Figure 5, remote UDP; more than 1 in 1,000 lost is taken as faulty"),
        judge: |evidence| judge_all(losses(evidence), "plumb run udp.large"),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.udp.tcp-wins-because-of-loss",
        claim: "TCP is faster for large messages because UDP has to try several times.",
        historical: Some("§V and §VI"),
        judge: tcp_wins,
        ..PublishedClaim::of(ZHAO)
    },
];

/// A message is faulty when more than one in a thousand does not arrive.
const FAULTY: f64 = 0.999;

fn is_large(size: i64) -> bool {
    size >= DATAGRAM_MAX.cast_signed()
}

/// The delivered share of large messages without injected loss.
fn losses(evidence: &ClaimEvidence<'_>) -> ClaimCases {
    let cells = evidence.cells(EXPERIMENT.id, "delivered");
    let chosen = cells.filter(|cell| cell.int("loss").unwrap_or(0) == 0 && is_large(size(cell)));
    let case = |cell: &MeasuredCell<'_>| {
        let cut = cell.text("fragmentation");
        let cut = cut.map_or_else(String::new, |by| format!(", cut by {by}"));
        let label = format!("delivered at {}{cut}", bytes(size(cell)));
        ClaimCase::median_within(&place_label(cell), label, cell, (0.0, FAULTY))
    };
    chosen.map(case).collect()
}

/// TCP must win, and UDP must lose messages where it does: a win without any loss has another
/// cause.
fn tcp_wins(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let needs = "plumb run ipc --quick: udp.large, and latency.remote for udp4 and tcp4 from 64Ki";
    let losses = losses(evidence).cases;
    let of = |mechanism: &'static str| {
        let cells = evidence.cells(latency_remote::EXPERIMENT.id, LATENCY.name);
        cells.filter(move |cell| cell.is("mechanism", mechanism) && is_large(size(cell)))
    };
    let mut found = ClaimCases::default();
    for udp in of("udp4") {
        let place = place_label(udp);
        let here: Vec<&ClaimCase> = losses.iter().filter(|case| case.placement == place).collect();
        let tcp = of("tcp4").find(|tcp| size(tcp) == size(udp) && place_label(tcp) == place);
        let Some(tcp) = tcp.filter(|_| !here.is_empty()) else { continue };
        let none_lost = here.iter().all(|case| matches!(case.outcome, CaseOutcome::Contradicts(_)));
        let some_lost = here.iter().any(|case| matches!(case.outcome, CaseOutcome::Supports(_)));
        let cause = if none_lost { "nothing lost" } else { "with loss" };
        let label = format!("udp4/tcp4 {}, {cause}", bytes(size(udp)));
        let case = ClaimCase::order(&place, label, tcp, udp);
        let outcome = match case.outcome {
            CaseOutcome::Supports(p) if none_lost => CaseOutcome::Contradicts(p),
            CaseOutcome::Supports(_) if !some_lost => CaseOutcome::Undecided(None),
            standing => standing,
        };
        found.cases.push(ClaimCase { outcome, ..case });
    }
    judge_all(found, needs)
}
