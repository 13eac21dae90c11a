//! `throughput.local`: how many bytes a second one process can give another on one machine.

use plumb_harness::spec::BlockTask;
use plumb_harness::spec::{Mechanism, MessageShape};

use crate::claims::ipc::{TABLE_1, ZHAO};
use crate::definition::{CellDecision, Experiment};
use crate::factors::channel::{
    self, ACKED, CONGESTION, MECHANISM, PLACEMENT, SIZE, THROUGHPUT, WAKE,
};
use plumb_analysis::registry::ExperimentAnalysis;
use plumb_analysis::registry::PublishedRanking;

/// Both definitions of throughput, for every local mechanism that carries data.
pub static EXPERIMENT: Experiment = Experiment {
    id: "throughput.local",
    study: "ipc",
    question: "How many bytes a second can one process give another on this machine?",
    hypothesis: "Throughput grows with message size until copying bounds it; a transfer \
                 acknowledged once is faster than one acknowledged message by message; dividing \
                 size by latency gives neither.",
    factors: &[MECHANISM, PLACEMENT, WAKE, SIZE, CONGESTION],
    responses: &[THROUGHPUT, ACKED],
    plan_cell: |setting| {
        let size = channel::size_of(setting.factors);
        let mechanism = channel::mechanism_of(setting.factors);
        if let Some(MessageShape::Fixed(bytes)) = mechanism.map(Mechanism::message_shape) {
            return CellDecision::impossible(format!(
                "{} carries a token of {bytes} bytes, not data",
                mechanism.map_or("it", Mechanism::name)
            ));
        }
        let acked = setting.response == ACKED.name;
        let task = if acked {
            BlockTask::ThroughputAcked { size }
        } else {
            BlockTask::Throughput { size }
        };
        CellDecision::measure(channel::group(setting), task)
    },
    analysis: ExperimentAnalysis {
        claims: claims::CLAIMS,
        ranking: Some(PublishedRanking { source: ZHAO, orders: &TABLE_1 }),
        ..ExperimentAnalysis::PLAIN
    },
    page: page::PAGE,
};

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::ipc::*;
    use plumb_analysis::claim::{
        CaseOutcome, ClaimCase, ClaimCases, ClaimEvidence, ClaimJudgment, PublishedClaim, judge_all,
    };

    use plumb_analysis::summary::MeasuredCell;

    pub(super) const CLAIMS: &[PublishedClaim] = &[
        PublishedClaim {
            id: "ipc.throughput.ranks",
            claim: "Throughput ranks local UDP first, then local TCP, then the pipe at 16 B and \
                1 KiB, and TCP, pipe, UDP at 64 KiB.",
            source: ZHAO,
            historical: Some("Table 1, throughput rows, i5-4570 at 3.2 GHz"),
            figures: &[],
            judge: |evidence| {
                judge_all(evidence.order_cases(EXPERIMENT, ACKED, &published_pairs(ACKED)), NEEDS)
            },
        },
        PublishedClaim {
            id: "ipc.throughput.udp-beats-tcp-below-64Ki",
            claim: "Except for large messages, UDP has more throughput than TCP.",
            source: ZHAO,
            historical: Some("Table 1: UDP before TCP at 16 B and 1 KiB"),
            figures: &[],
            judge: udp_beats_tcp,
        },
        PublishedClaim {
            id: "ipc.throughput.pipe-beats-udp-at-64Ki",
            claim: "At 64 KiB a pipe has more throughput than UDP.",
            source: ZHAO,
            historical: Some("Table 1: the pipe second and local UDP third at 64 KiB"),
            figures: &[],
            judge: |evidence| {
                judge_all(
                    evidence.order_cases(EXPERIMENT, ACKED, &[(LARGE, "pipe", "udp4")]),
                    NEEDS,
                )
            },
        },
        PublishedClaim {
            id: "ipc.throughput.size-over-latency-is-wrong",
            claim: "Dividing the message length by the latency is a wrong throughput.",
            source: ZHAO,
            historical: None,
            figures: &[],
            judge: size_over_latency,
        },
        PublishedClaim {
            id: "ipc.throughput.pipe-range",
            claim: "Pipe throughput lies between 0.2 MB/s and 3.4 GB/s for messages of 4 B to \
                512 KiB.",
            source: ZHAO,
            historical: Some("200,000 B/s to 3,400,000,000 B/s (Figure 8), i5-4570 at 3.2 GHz"),
            figures: &[],
            judge: |evidence| {
                let needs = "plumb run throughput.local --set mechanism=pipe";
                judge_all(quantities(evidence, EXPERIMENT, ACKED, "pipe", (2e5, 3.4e9)), needs)
            },
        },
    ];

    const EXPERIMENT: &str = "throughput.local";

    const ACKED: &str = "throughput.acked";

    const NEEDS: &str =
        "plumb run throughput.local --set mechanism=pipe,tcp4,udp4 --set size=16,1Ki,64Ki";

    const LARGE: i64 = 64 << 10;

    /// A throughput this far from another is a wrong one.
    const WRONG_BY: f64 = 0.10;

    fn udp_beats_tcp(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let pairs: Vec<_> = evidence
            .sizes(EXPERIMENT, ACKED, &["udp4", "tcp4"])
            .into_iter()
            .filter(|size| *size < LARGE)
            .map(|size| (size, "udp4", "tcp4"))
            .collect();
        judge_all(evidence.order_cases(EXPERIMENT, ACKED, &pairs), NEEDS)
    }

    /// Sets every long transfer against the size over the latency of the same cell.
    ///
    /// Judged placement by placement: it is a wrong method where it misses by more than 10 % in most
    /// cells, for a method is right only when it can be relied on.
    fn size_over_latency(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let needs = "plumb run ipc --quick: latency.local and throughput.local in one run";
        let mut pairs = ClaimCases::default();
        for setting in evidence.settings(EXPERIMENT, "throughput") {
            let mut missed = Vec::new();
            for cell in evidence.cells(EXPERIMENT, "throughput") {
                let factors = &cell.cell.factors;
                let (Some(mechanism), Some(size)) =
                    (factors.text("mechanism"), factors.int("size"))
                else {
                    continue;
                };
                let same = factors.text("placement") == Some(&setting.placement)
                    && factors.text("wake").unwrap_or("block") == setting.wake;
                let latency =
                    evidence.cell_at("latency.local", "latency", mechanism, &setting, size);
                if let Some(latency) = latency.filter(|_| same) {
                    missed.extend(quotient(cell, latency, size).map(|q| (mechanism, size, q)));
                }
            }
            pairs.cases.extend(case_of(&setting.placement, &missed));
        }
        judge_all(pairs, needs)
    }

    /// A true throughput over the size divided by the latency.
    #[derive(Clone, Copy, Debug)]
    struct ThroughputQuotient {
        value: f64,
        lo: f64,
        hi: f64,
    }

    /// Intervals of both cells combined at their worst: wider than 95 %, never narrower.
    fn quotient(
        throughput: &MeasuredCell<'_>,
        latency: &MeasuredCell<'_>,
        size: i64,
    ) -> Option<ThroughputQuotient> {
        let rate = throughput.interval()?;
        let time = latency.interval()?;
        let scale = 1e9 * size as f64;
        (latency.median() > 0.0).then(|| ThroughputQuotient {
            value: throughput.median() * latency.median() / scale,
            lo: rate.lo * time.lo / scale,
            hi: rate.hi * time.hi / scale,
        })
    }

    fn case_of(placement: &str, missed: &[(&str, i64, ThroughputQuotient)]) -> Option<ClaimCase> {
        let farthest =
            missed.iter().max_by(|a, b| a.2.value.ln().abs().total_cmp(&b.2.value.ln().abs()))?;
        let wrong = |q: &ThroughputQuotient| q.lo > 1.0 + WRONG_BY || q.hi < 1.0 / (1.0 + WRONG_BY);
        let right =
            |q: &ThroughputQuotient| q.hi <= 1.0 + WRONG_BY && q.lo >= 1.0 / (1.0 + WRONG_BY);
        let total = missed.len();
        let off = missed.iter().filter(|(_, _, q)| wrong(q)).count();
        let near = missed.iter().filter(|(_, _, q)| right(q)).count();
        let standing = if off * 2 > total {
            CaseOutcome::Supports
        } else if near * 2 > total {
            CaseOutcome::Contradicts(0.0)
        } else {
            CaseOutcome::Undecided(None)
        };
        let (mechanism, size, q) = farthest;
        let digits = |value| plumb_base::units::significant(value, 3);
        Some(ClaimCase {
            placement: placement.to_owned(),
            label: format!(
                "off by more than 10% in {off} of {total} cells, farthest {mechanism} {}",
                bytes(*size)
            ),
            value: Some(q.value),
            ci95: Some([q.lo, q.hi]),
            text: format!("{}× ({}–{})", digits(q.value), digits(q.lo), digits(q.hi)),
            outcome: standing,
            strength: off as f64 / total as f64,
        })
    }
}

mod page {
    //! Figures and sentences.

    use crate::pages::ipc::*;
    use plumb_analysis::document::CellResult;

    use plumb_base::units::format_bytes;

    use plumb_report::headline::cell_tile;
    use plumb_report::registry::ExperimentPage;

    use plumb_report::{name, value};
    use serde_json::Value;

    pub(super) const PAGE: ExperimentPage = ExperimentPage {
        title: "Throughput between local processes",
        headline: |data| throughput_sentence(&data.cells).into_iter().collect(),
        tiles: |data| {
            fastest(&data.cells)
                .map(|cell| cell_tile("highest throughput", cell))
                .into_iter()
                .collect()
        },
        ..ExperimentPage::PLAIN
    };

    fn throughput_sentence(results: &[&CellResult]) -> Option<String> {
        let cell = fastest(results)?;
        let median = cell.summary.median?;
        Some(format!(
            "Highest throughput: {} through {} in messages of {} B ({}).",
            value::with_interval(value::unit(&cell.unit), median, cell.summary.ci95),
            text(cell, "mechanism"),
            size(cell).map_or_else(|| "unknown size".to_owned(), format_bytes),
            name::placement(text(cell, "placement")),
        ))
    }

    fn fastest<'a>(results: &[&'a CellResult]) -> Option<&'a CellResult> {
        results
            .iter()
            .copied()
            .filter(|cell| cell.response == "throughput")
            .filter(|cell| cell.summary.median.is_some())
            .max_by(|a, b| {
                let median = |cell: &CellResult| cell.summary.median.unwrap_or(0.0);
                median(a).total_cmp(&median(b))
            })
    }

    fn size(cell: &CellResult) -> Option<u64> {
        cell.factors.get("size").and_then(Value::as_u64)
    }
}
