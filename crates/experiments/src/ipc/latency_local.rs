//! `latency.local`: how long a message takes between two processes of one machine.

use plumb_harness::spec::BlockTask;

use crate::claims::ipc::{TABLE_1, ZHAO};
use crate::definition::{CellDecision, Experiment};
use crate::factors::channel::{self, CONGESTION, LATENCY, MECHANISM, PLACEMENT, SIZE, WAKE};
use plumb_analysis::registry::ExperimentAnalysis;
use plumb_analysis::registry::{PublishedRanking, RungLabel};

/// Half the time of a message and its echo, for every local mechanism.
pub static EXPERIMENT: Experiment = Experiment {
    id: "latency.local",
    study: "ipc",
    question: "How long does a message take from one process to another on this machine?",
    hypothesis: "Latency grows with size once copying outweighs waking; at each placement the \
                 mechanisms keep one order, pipes slower than sockets, UDP faster than TCP.",
    factors: &[MECHANISM, PLACEMENT, WAKE, SIZE, CONGESTION],
    responses: &[LATENCY],
    plan_cell: |setting| {
        let size = channel::size_of(setting.factors);
        CellDecision::measure(channel::group(setting), BlockTask::Latency { size })
    },
    analysis: ExperimentAnalysis {
        claims: claims::CLAIMS,
        ranking: Some(PublishedRanking { source: ZHAO, orders: &TABLE_1 }),
        rung: Some(|result| {
            (result.response == "latency")
                .then(|| result.text("mechanism"))
                .flatten()
                .map(|name| RungLabel::local(name.to_owned()))
        }),
        ..ExperimentAnalysis::PLAIN
    },
    page: page::PAGE,
};

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::ipc::*;
    use plumb_analysis::claim::{
        ClaimCase, ClaimCases, ClaimEvidence, ClaimJudgment, PublishedClaim, judge_all,
    };
    use plumb_analysis::cost_ratio::{self};

    pub(super) const CLAIMS: &[PublishedClaim] = &[
        PublishedClaim {
            id: "ipc.latency.ranks",
            claim: "Latency ranks local UDP first, then local TCP, then the pipe at 16 B and 1 KiB, \
                and TCP, UDP, pipe at 64 KiB.",
            source: ZHAO,
            historical: Some("Table 1, latency rows, i5-4570 at 3.2 GHz"),
            figures: &[],
            judge: ranks,
        },
        PublishedClaim {
            id: "ipc.latency.pipe-slower-than-sockets",
            claim: "Pipes are slower than local sockets.",
            source: ZHAO,
            historical: Some("Table 1: the pipe is last of the local three at every size"),
            figures: &[],
            judge: pipe_slower,
        },
        PublishedClaim {
            id: "ipc.latency.udp-beats-tcp-below-64Ki",
            claim: "Except for large messages, UDP is faster than TCP.",
            source: ZHAO,
            historical: Some("Table 1: UDP before TCP at 16 B and 1 KiB"),
            figures: &[],
            judge: udp_beats_tcp,
        },
        PublishedClaim {
            id: "ipc.latency.tcp-beats-udp-at-64Ki",
            claim: "TCP is faster than UDP for large messages.",
            source: ZHAO,
            historical: Some("Table 1: TCP before UDP at 64 KiB"),
            figures: &[],
            judge: tcp_beats_udp,
        },
        PublishedClaim {
            id: "ipc.latency.pipe-same-magnitude",
            claim: "Pipes are of the same magnitude of latency as local sockets.",
            source: ZHAO,
            historical: None,
            figures: &[],
            judge: same_magnitude,
        },
        PublishedClaim {
            id: "ipc.latency.pipe-range",
            claim: "Pipe latency lies between 8 µs and 300 µs for messages of 4 B to 512 KiB.",
            source: ZHAO,
            historical: Some("8,000 ns to 300,000 ns (Figure 7), i5-4570 at 3.2 GHz"),
            figures: &[],
            judge: pipe_range,
        },
    ];

    const EXPERIMENT: &str = "latency.local";

    const RESPONSE: &str = "latency";

    const NEEDS: &str =
        "plumb run latency.local --set mechanism=pipe,tcp4,udp4 --set size=16,1Ki,64Ki";

    const LARGE: i64 = 64 << 10;

    fn ranks(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        judge_all(evidence.order_cases(EXPERIMENT, RESPONSE, &published_pairs(RESPONSE)), NEEDS)
    }

    fn pipe_slower(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let pairs: Vec<_> = published_pairs(RESPONSE)
            .into_iter()
            .filter(|(_, _, worse)| *worse == "pipe")
            .collect();
        judge_all(evidence.order_cases(EXPERIMENT, RESPONSE, &pairs), NEEDS)
    }

    fn udp_beats_tcp(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let sizes = evidence.sizes(EXPERIMENT, RESPONSE, &["udp4", "tcp4"]);
        let pairs: Vec<_> = sizes
            .into_iter()
            .filter(|size| *size < LARGE)
            .map(|size| (size, "udp4", "tcp4"))
            .collect();
        judge_all(evidence.order_cases(EXPERIMENT, RESPONSE, &pairs), NEEDS)
    }

    fn tcp_beats_udp(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        judge_all(evidence.order_cases(EXPERIMENT, RESPONSE, &[(LARGE, "tcp4", "udp4")]), NEEDS)
    }

    /// The same magnitude: within a factor of ten either way.
    fn same_magnitude(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let mut pairs = ClaimCases::default();
        for setting in evidence.settings(EXPERIMENT, RESPONSE) {
            for size in evidence.sizes(EXPERIMENT, RESPONSE, &["pipe"]) {
                let at =
                    |mechanism| evidence.cell_at(EXPERIMENT, RESPONSE, mechanism, &setting, size);
                for socket in ["tcp4", "udp4"] {
                    let (Some(socket_cell), Some(pipe)) = (at(socket), at("pipe")) else {
                        continue;
                    };
                    let label = format!("pipe/{socket} {}", bytes(size));
                    let contrast = cost_ratio::within_run(socket_cell, pipe);
                    let bounds = (0.1, 10.0);
                    pairs.cases.push(ClaimCase::ratio_within(
                        &setting.placement,
                        label,
                        contrast,
                        bounds,
                    ));
                }
            }
        }
        // Told by the case that comes nearest to a factor of ten.
        for case in &mut pairs.cases {
            case.strength = -case.strength.abs();
        }
        judge_all(pairs, NEEDS)
    }

    fn pipe_range(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let needs = "plumb run latency.local --set mechanism=pipe";
        let bounds = (8_000.0, 300_000.0);
        judge_all(quantities(evidence, EXPERIMENT, RESPONSE, "pipe", bounds), needs)
    }
}

mod page {
    //! Figures and sentences.

    use crate::pages::ipc::*;
    use plumb_analysis::document::CellResult;

    use plumb_base::units::format_bytes;

    use plumb_report::headline::HeadlineTile;
    use plumb_report::headline::cell_tile;
    use plumb_report::registry::{ExperimentPage, PageData};

    use plumb_report::{name, value};
    use serde_json::Value;

    pub(super) const PAGE: ExperimentPage = ExperimentPage {
        title: "Latency between local processes",
        headline,
        tiles,
        is_ladder_rung: true,
        ..ExperimentPage::PLAIN
    };

    /// What is nearest comes first, in figures as in sentences.
    fn tiles(data: &PageData<'_>) -> Vec<HeadlineTile> {
        let mut tiles = Vec::new();
        for placement in placements(&data.cells) {
            let cells = latencies(&data.cells, &placement);
            tiles.extend(cells.first().map(|cell| cell_tile("lowest latency", cell)));
        }
        tiles
    }

    fn headline(data: &PageData<'_>) -> Vec<String> {
        let mut sentences = Vec::new();
        for placement in placements(&data.cells) {
            sentences.extend(latency_sentence(&latencies(&data.cells, &placement)));
        }
        sentences
    }

    fn latency_sentence(cells: &[&CellResult]) -> Option<String> {
        let (first, last) = (cells.first()?, cells.last()?);
        let told = |cell: &CellResult| {
            let median = cell.summary.median.unwrap_or(0.0);
            let unit = value::unit(&cell.unit);
            let cost = value::with_interval(unit, median, cell.summary.ci95);
            format!("{cost} through {}", text(cell, "mechanism"))
        };
        let size =
            size(first).map_or_else(String::new, |size| format!(" of {} B", format_bytes(size)));
        let place = text(first, "placement");
        let place = name::placement(place);
        let ratio = last.summary.median? / first.summary.median?;
        let mut text = format!("A message{size} ({place}) takes {}", told(first));
        if cells.len() > 1 {
            text =
                format!("{text} at best, {} at worst, {} as long", told(last), value::times(ratio));
        }
        Some(format!("{text}."))
    }

    /// The latencies at one placement and at the size nearest to 64 bytes, lowest first.
    fn latencies<'a>(results: &[&'a CellResult], placement: &str) -> Vec<&'a CellResult> {
        let candidates = || {
            results.iter().copied().filter(|cell| {
                cell.response == "latency"
                    && cell.summary.median.is_some()
                    && text(cell, "placement") == placement
            })
        };
        let reference =
            candidates().filter_map(size).min_by_key(|size| size.abs_diff(REFERENCE_SIZE));
        let mut cells: Vec<&CellResult> =
            candidates().filter(|cell| size(cell) == reference).collect();
        cells.sort_by(|a, b| {
            let median = |cell: &CellResult| cell.summary.median.unwrap_or(f64::INFINITY);
            median(a).total_cmp(&median(b))
        });
        cells
    }

    fn placements(results: &[&CellResult]) -> Vec<String> {
        let mut placements: Vec<(usize, String)> = results
            .iter()
            .map(|cell| (name::placement_order(cell), text(cell, "placement").to_owned()))
            .collect();
        placements.sort();
        placements.dedup();
        placements.into_iter().map(|(_, placement)| placement).collect()
    }

    fn size(cell: &CellResult) -> Option<u64> {
        cell.factors.get("size").and_then(Value::as_u64)
    }

    /// The message size, in bytes, at which mechanisms are compared in one sentence.
    const REFERENCE_SIZE: u64 = 64;
}
