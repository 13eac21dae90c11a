//! `throughput.local`: how many bytes a second one process can give another on one machine.

use plumb_analysis::registry::PublishedRanking;
use plumb_harness::spec::MessageShape;

use crate::claims::remote::same_magnitude;
use crate::claims::{
    LARGE, MARKATOS, TABLE_1, ZHAO, blocking_pipes, bytes, least, most, published_pairs,
    quantities, size, udp_before_tcp,
};
use crate::factor::channel::{
    self, ACKED, CONGESTION, LOCAL_PLACEMENT, LOCAL_SIZE, MECHANISM, THROUGHPUT, WAKE,
};
use crate::pages::{median, of};
use crate::prelude::*;

/// Both definitions of throughput, for every local mechanism that carries data.
pub static EXPERIMENT: Experiment = Experiment {
    id: "throughput.local",
    study: "ipc",
    question: "How many bytes a second can one process give another on this machine?",
    hypothesis: "Throughput grows with message size until copying bounds it; a transfer \
                 acknowledged once is faster than one acknowledged message by message; dividing \
                 size by latency gives neither.",
    factors: &[MECHANISM, LOCAL_PLACEMENT, WAKE, LOCAL_SIZE, CONGESTION],
    responses: &[THROUGHPUT, ACKED],
    plan_cell: |point| {
        let mechanism = channel::mechanism_of(point.factors);
        if let Some(MessageShape::Fixed(bytes)) = mechanism.map(Mechanism::message_shape) {
            return Err(Exclusion::impossible(format!(
                "{} carries a token of {bytes} bytes, not data",
                mechanism.map_or("it", Mechanism::name)
            )));
        }
        Ok((channel::group(point)?, channel::transfer(point)))
    },
    analysis: ExperimentAnalysis {
        claims: CLAIMS,
        ranking: Some(PublishedRanking { source: ZHAO, orders: &TABLE_1 }),
        ..ExperimentAnalysis::PLAIN
    },
    page: ExperimentPage {
        title: "Throughput between local processes",
        headline: |data| fastest(data).map(throughput_sentence).into_iter().collect(),
        tiles: |data| {
            fastest(data).map(|cell| cell_tile("highest throughput", cell)).into_iter().collect()
        },
        ..ExperimentPage::PLAIN
    },
};

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "ipc.throughput.ranks",
        claim: "Throughput ranks local UDP first, then local TCP, then the pipe at 16 B and \
                1 KiB, and TCP, pipe, UDP at 64 KiB.",
        historical: Some("Table 1, throughput rows, i5-4570 at 3.2 GHz"),
        judge: |evidence| in_order(evidence, &published_pairs(ACKED.name)),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.throughput.udp-beats-tcp-below-64Ki",
        claim: "Except for large messages, UDP has more throughput than TCP.",
        historical: Some("Table 1: UDP before TCP at 16 B and 1 KiB"),
        judge: |evidence| judge_all(udp_before_tcp(evidence, EXPERIMENT.id, ACKED.name), NEEDS),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.throughput.pipe-beats-udp-at-64Ki",
        claim: "At 64 KiB a pipe has more throughput than UDP.",
        historical: Some("Table 1: the pipe second and local UDP third at 64 KiB"),
        judge: |evidence| in_order(evidence, &[(LARGE, "pipe", "udp4")]),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.throughput.tcp-beats-udp-at-64Ki",
        claim: "For large messages TCP has more throughput than UDP.",
        historical: Some("Table 1: TCP first and local UDP third at 64 KiB"),
        judge: |evidence| in_order(evidence, &[(LARGE, "tcp4", "udp4")]),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.throughput.pipe-slower-than-sockets",
        claim: "Pipes have less throughput than local sockets.",
        historical: Some("Abstract; Table 1 has the pipe before UDP at 64 KiB"),
        judge: |evidence| {
            let sizes = evidence.sizes(EXPERIMENT.id, ACKED.name, &["pipe", "tcp4", "udp4"]);
            let pairs = sizes
                .into_iter()
                .flat_map(|size| ["tcp4", "udp4"].map(|socket| (size, socket, "pipe")));
            in_order(evidence, &pairs.collect::<Vec<_>>())
        },
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.throughput.pipe-same-magnitude",
        claim: "Pipes are of the same magnitude of throughput as local sockets.",
        judge: |evidence| same_magnitude(evidence, EXPERIMENT.id, ACKED.name, NEEDS),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.throughput.size-over-latency-is-wrong",
        claim: "Dividing the message length by the latency is a wrong throughput.",
        judge: size_over_latency,
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.throughput.pipe-range",
        claim: "Pipe throughput lies between 0.2 MB/s and 3.4 GB/s for messages of 4 B to \
                512 KiB.",
        historical: Some("200,000 B/s to 3,400,000,000 B/s (Figure 8), i5-4570 at 3.2 GHz"),
        figures: &PublishedFigure::range(
            PIPE_RANGE,
            Unit::BytesPerSecond,
            "Figure 8",
            [|evidence| least(pipes(evidence)), |evidence| most(pipes(evidence))],
        ),
        judge: |evidence| {
            let found = quantities(evidence, EXPERIMENT.id, ACKED.name, "pipe", PIPE_RANGE);
            judge_all(found, "plumb run throughput.local --set mechanism=pipe")
        },
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "scaling.loopback.large-writes-amortise",
        claim: "Writes of 64 KB keep the fixed cost per transfer small (judged by TCP carrying at most a quarter more in longer ones).",
        judge: longer_writes,
        ..PublishedClaim::of(MARKATOS)
    },
];

/// TCP in longer messages than 64 KiB against those.
fn longer_writes(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let is_tcp = |cell: &MeasuredCell<'_>| cell.is("mechanism", "tcp4");
    let found = ClaimCases::of_twins(
        evidence.twins(
            EXPERIMENT.id,
            THROUGHPUT.name,
            "size",
            |cell| is_tcp(cell) && size(cell) > LARGE,
            |cell| is_tcp(cell) && size(cell) == LARGE,
        ),
        |longer, large| {
            let label = format!("{}/64 KiB", bytes(size(longer)));
            ClaimCase::ratio_within(longer.level("placement"), label, (longer, large), (0.0, 1.25))
        },
        |longer| format!("64 KiB beside {}", bytes(size(longer))),
    );
    judge_all(found, "plumb run throughput.local --set mechanism=tcp4 --set size=64Ki,256Ki,1Mi")
}

const NEEDS: &str =
    "plumb run throughput.local --set mechanism=pipe,tcp4,udp4 --set size=16,1Ki,64Ki";

/// The throughput of a pipe in Figure 8, in bytes a second.
const PIPE_RANGE: (f64, f64) = (2e5, 3.4e9);

fn pipes<'a>(evidence: &ClaimEvidence<'a>) -> impl Iterator<Item = &'a MeasuredCell<'a>> {
    blocking_pipes(evidence, EXPERIMENT.id, ACKED.name)
}

/// A throughput this far from another is a wrong one.
const WRONG_BY: f64 = 0.10;

/// Chance of a verdict on most cells that is accepted.
const SIGNIFICANCE: f64 = 0.05;

fn in_order(evidence: &ClaimEvidence<'_>, pairs: &[(i64, &str, &str)]) -> ClaimJudgment {
    judge_all(evidence.order_cases(EXPERIMENT.id, ACKED.name, pairs), NEEDS)
}

/// Sets every acknowledged throughput, which is the paper's, against the size over the latency of the same cell.
///
/// Judged placement by placement: it is a wrong method where it misses by more than 10 % in most
/// cells, for a method is right only when it can be relied on.
fn size_over_latency(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let mut cases = Vec::new();
    for setting in evidence.settings(EXPERIMENT.id, ACKED.name) {
        let quotient = |cell: &MeasuredCell<'_>| {
            let (mechanism, size) = (cell.text("mechanism")?, cell.int("size")?);
            let same = cell.text("placement") == Some(&setting.placement)
                && cell.text("wake").unwrap_or("block") == setting.wake;
            let latency =
                evidence.cell_at("latency.local", "latency", mechanism, &setting, size)?;
            same.then(|| quotient_case(cell, latency, format!("{mechanism} {}", bytes(size))))?
        };
        let cells = evidence.cells(EXPERIMENT.id, ACKED.name);
        cases.extend(case_of_most(
            &setting.placement,
            &cells.filter_map(quotient).collect::<Vec<_>>(),
        ));
    }
    judge_all(
        cases.into_iter().collect(),
        "plumb run ipc --quick: latency.local and throughput.local in one run",
    )
}

/// A true throughput over the size divided by the latency, which is right within 10 %: intervals of both cells combined
/// at their worst, wider than 95 % and never narrower.
fn quotient_case(
    throughput: &MeasuredCell<'_>,
    latency: &MeasuredCell<'_>,
    label: String,
) -> Option<ClaimCase> {
    let (rate, time) = (throughput.interval()?, latency.interval()?);
    let scale = 1e9 * size(throughput) as f64;
    let value = throughput.median() * latency.median() / scale;
    let ends = Some([rate.lo * time.lo / scale, rate.hi * time.hi / scale]);
    let right = (1.0 / (1.0 + WRONG_BY), 1.0 + WRONG_BY);
    Some(ClaimCase::quantity("", label, value, ends, right, Unit::Share))
}

/// Whether most of these quotients are wrong, or most right, told by the one farthest off.
fn case_of_most(placement: &str, quotients: &[ClaimCase]) -> Option<ClaimCase> {
    let farthest = quotients.iter().min_by(|a, b| a.strength.total_cmp(&b.strength))?;
    let chances = |p: fn(CaseOutcome) -> Option<f64>| {
        quotients.iter().filter_map(|case| p(case.outcome)).collect::<Vec<f64>>()
    };
    let wrong = chances(|outcome| match outcome {
        CaseOutcome::Contradicts(p) => Some(p),
        _ => None,
    });
    let right = chances(|outcome| match outcome {
        CaseOutcome::Supports(p) => Some(p),
        _ => None,
    });
    let total = quotients.len();
    let outcome = match (p_of_most(&wrong, total), p_of_most(&right, total)) {
        (p, _) if p <= SIGNIFICANCE => CaseOutcome::Supports(p),
        (_, p) if p <= SIGNIFICANCE => CaseOutcome::Contradicts(p),
        _ => CaseOutcome::Undecided(None),
    };
    let (off, far) = (wrong.len(), &farthest.label);
    Some(ClaimCase {
        placement: placement.to_owned(),
        label: format!("off by more than 10% in {off} of {total} cells, farthest {far}"),
        outcome,
        strength: off as f64 / total as f64,
        ..farthest.clone()
    })
}

/// The probability of seeing by chance that more than half of so many cells are of a kind, from those of the ones that
/// seem to be: the partial conjunction by Bonferroni (Benjamini & Heller, Biometrics 64, 2008).
fn p_of_most(chances: &[f64], total: usize) -> f64 {
    let most = total / 2 + 1;
    let mut sorted = chances.to_vec();
    sorted.sort_by(f64::total_cmp);
    let tried = total - most + 1;
    sorted.get(most - 1).map_or(1.0, |p| (p * tried as f64).min(1.0))
}

fn throughput_sentence(cell: &CellResult) -> String {
    let size = cell.number("size");
    format!(
        "Highest throughput: {} through {} in messages of {} ({}).",
        value::median(cell),
        cell.level("mechanism"),
        size.map_or_else(|| "unknown size".to_owned(), format_size),
        name::placement(cell.level("placement")),
    )
}

fn fastest<'a>(data: &PageData<'a>) -> Option<&'a CellResult> {
    of(&data.cells, THROUGHPUT.name).into_iter().max_by(|a, b| median(a).total_cmp(&median(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_cells_are_of_a_kind_by_the_chance_of_the_least_certain() {
        assert!((p_of_most(&[0.001, 0.01, 0.002], 4) - 0.02).abs() < 1e-12);
        assert!((p_of_most(&[0.001, 0.002], 4) - 1.0).abs() < 1e-12);
        assert!((p_of_most(&[0.03], 1) - 0.03).abs() < 1e-12);
    }
}
