//! `tcp.options`: what the options of a TCP socket do to latency and throughput over loopback.

use plumb_harness::spec::BlockTask;
use plumb_store::record::FactorLevel;

use crate::definition::{CellDecision, Experiment};
use crate::factor::{Factor, FactorDomain, always, keep_levels, numbers, words};
use crate::factors::channel::LATENCY;
use crate::factors::channel::THROUGHPUT;
use crate::factors::channel::{self, CONGESTION, MECHANISM, PLACEMENT, SIZE, WAKE};
use crate::preset::RunPreset;
use plumb_analysis::registry::ExperimentAnalysis;
use plumb_report::registry::ExperimentPage;

/// TCP_NODELAY, quick acknowledgements, buffers and congestion control against each other.
pub static EXPERIMENT: Experiment = Experiment {
    id: "tcp.options",
    study: "ipc",
    question: "Which TCP socket option changes latency or throughput, and by how much?",
    hypothesis: "Nagle's rule delays only a request written in two parts, until the delayed \
                 acknowledgement; a strict request and reply is the same with and without \
                 TCP_NODELAY at every size; buffers smaller than a message cost throughput.",
    factors: &[
        Factor {
            domain: FactorDomain::Mechanisms(channel::is_tcp),
            levels: |_| words(&["tcp4"]),
            ..MECHANISM
        },
        Factor {
            levels: |context| match context.preset {
                RunPreset::Quick => words(&["other-cpu"]),
                _ => words(&["same-cpu", "other-cpu"]),
            },
            ..PLACEMENT
        },
        Factor { levels: |_| words(&["block"]), ..WAKE },
        Factor { levels: |_| numbers(&[64, 16 << 10]), ..SIZE },
        switch("nodelay", "TCP_NODELAY: small segments are sent at once"),
        switch("quickack", "TCP_QUICKACK: acknowledgements are not delayed"),
        Factor {
            name: "buffer",
            meaning: "SO_SNDBUF and SO_RCVBUF",
            domain: FactorDomain::Buffers,
            levels: |context| match context.preset {
                RunPreset::Quick => words(&["default"]),
                _ => {
                    vec![
                        "default".into(),
                        FactorLevel::from(16u64 << 10),
                        FactorLevel::from(256u64 << 10),
                    ]
                }
            },
            applies: always,
            fit: keep_levels,
            labels: &[],
        },
        Factor {
            levels: |context| match context.preset {
                RunPreset::Paper => words(&["cubic", "reno", "bbr"]),
                _ => words(&["cubic"]),
            },
            ..CONGESTION
        },
        Factor {
            name: "pattern",
            meaning: "one write a request, or two before the reply is read",
            domain: FactorDomain::Words(&["request", "write-write-read"]),
            levels: |_| words(&["request", "write-write-read"]),
            applies: always,
            fit: keep_levels,
            labels: &[],
        },
    ],
    responses: &[LATENCY, THROUGHPUT],
    plan_cell: |setting| {
        let size = channel::size_of(setting.factors);
        let in_two = setting.factors.text("pattern") == Some("write-write-read");
        let task = match (setting.response, in_two) {
            ("latency", false) => BlockTask::Latency { size },
            ("latency", true) if size < 2 => {
                return CellDecision::impossible("1 byte cannot be written in two parts");
            }
            ("latency", true) => BlockTask::WriteWriteRead { size },
            (_, false) => BlockTask::Throughput { size },
            // A transfer in one direction has no reply to wait for.
            (_, true) => return CellDecision::NotApplicable,
        };
        CellDecision::measure(channel::group(setting), task)
    },
    analysis: ExperimentAnalysis { claims: claims::CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage { title: "TCP options", ..ExperimentPage::PLAIN },
};

/// A factor that is on or off.
const fn switch(name: &'static str, meaning: &'static str) -> Factor {
    Factor {
        name,
        meaning,
        domain: FactorDomain::Words(&["on", "off"]),
        levels: |_| words(&["on", "off"]),
        applies: always,
        fit: keep_levels,
        labels: &[],
    }
}

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::ipc::*;
    use plumb_analysis::claim::{
        CaseOutcome, ClaimCase, ClaimCases, ClaimEvidence, ClaimJudgment, PublishedClaim,
        judge_all, judge_any,
    };
    use plumb_analysis::cost_ratio::{self, CostRatio};
    use plumb_analysis::summary::MeasuredCell;
    use plumb_store::record::{FactorLevel, Factors};

    pub(super) const CLAIMS: &[PublishedClaim] = &[
        PublishedClaim {
            id: "ipc.tcp.nagle-delays",
            claim: "Nagle's rule can cause unexpected delays on stream sockets, and TCP_NODELAY \
                removes them.",
            source: MILLER,
            historical: None,
            figures: &[],
            judge: nagle_delays,
        },
        PublishedClaim {
            id: "ipc.tcp.nodelay-helps-larger-messages",
            claim: "TCP_NODELAY helps larger message sizes.",
            source: ZHAO,
            historical: Some("Figure 3, remote TCP latency; sizes from 4 KiB are taken as larger"),
            figures: &[],
            judge: nodelay_helps,
        },
        PublishedClaim {
            id: "ipc.tcp.buffers-matter",
            claim: "Transmission times are affected by the read and write buffer sizes.",
            source: MILLER,
            historical: Some("typically 128 KB in 2014"),
            figures: &[],
            judge: buffers_matter,
        },
    ];

    const EXPERIMENT: &str = "tcp.options";

    /// "Larger message sizes", from 4 KiB: the paper's Figure 3 names none.
    const LARGER: i64 = 4 << 10;

    /// A setting of the buffers matters from this share on.
    const MATTERS: f64 = 0.05;

    /// Sets every cell with one level of a factor against its twin with another.
    fn compare_levels(
        evidence: &ClaimEvidence<'_>,
        response: &'static str,
        factor: &str,
        (from, to): (&FactorLevel, &FactorLevel),
        wanted: impl Fn(&Factors) -> bool,
        case: impl Fn(&str, String, Option<CostRatio>) -> ClaimCase,
    ) -> ClaimCases {
        let mut pairs = ClaimCases::default();
        let chosen = |measured: &&MeasuredCell<'_>, level: &FactorLevel| {
            measured.cell.factors.level(factor) == Some(level) && wanted(&measured.cell.factors)
        };
        for found in evidence.cells(EXPERIMENT, response).filter(|found| chosen(found, from)) {
            let factors = &found.cell.factors;
            let rest = factors.clone().without(factor);
            let twin = evidence
                .cells(EXPERIMENT, response)
                .filter(|twin| chosen(twin, to))
                .find(|twin| twin.cell.factors.clone().without(factor) == rest);
            let Some(twin) = twin else { continue };
            let placement = factors.text("placement").unwrap_or("unknown");
            let size = factors.int("size").map_or_else(String::new, bytes);
            let told: Vec<String> = ["quickack", "nodelay", "buffer", "congestion"]
                .into_iter()
                .filter(|name| *name != factor)
                .filter_map(|name| factors.level(name).map(|level| format!("{name}={level}")))
                .collect();
            let label = format!("{to}/{from} {size} {}", told.join(" "));
            pairs.cases.push(case(placement, label, cost_ratio::within_run(found, twin)));
        }
        pairs
    }

    fn nagle_delays(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let needs = "plumb run tcp.options --set pattern=write-write-read --set nodelay=on,off";
        let levels = (&FactorLevel::from("on"), &FactorLevel::from("off"));
        let split = |factors: &Factors| factors.text("pattern") == Some("write-write-read");
        // It *can* delay: one setting at which it does shows it.
        judge_any(
            compare_levels(evidence, "latency", "nodelay", levels, split, ClaimCase::order),
            needs,
        )
    }

    fn nodelay_helps(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let needs = "plumb run tcp.options --set nodelay=on,off --set size=4Ki,64Ki,512Ki";
        let levels = (&FactorLevel::from("on"), &FactorLevel::from("off"));
        let larger = |factors: &Factors| {
            factors.text("pattern").is_none_or(|pattern| pattern == "request")
                && factors.int("size").is_some_and(|size| size >= LARGER)
        };
        judge_all(
            compare_levels(evidence, "latency", "nodelay", levels, larger, ClaimCase::order),
            needs,
        )
    }

    fn buffers_matter(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let needs = "plumb run tcp.options --set buffer=default,16Ki,256Ki";
        let default = FactorLevel::from("default");
        let mut pairs = ClaimCases::default();
        let mut sizes: Vec<i64> = evidence
            .cells(EXPERIMENT, "throughput")
            .filter_map(|found| found.cell.factors.int("buffer"))
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        for size in sizes {
            let levels = (&default, &FactorLevel::Int(size));
            let found =
                compare_levels(evidence, "throughput", "buffer", levels, |_| true, differs_case);
            pairs.cases.extend(found.cases);
        }
        judge_any(pairs, needs)
    }

    /// A case of "it makes a difference": at least 5 % either way.
    fn differs_case(placement: &str, label: String, contrast: Option<CostRatio>) -> ClaimCase {
        let equal = (1.0 / (1.0 + MATTERS), 1.0 + MATTERS);
        let mut case = ClaimCase::ratio_within(placement, label, contrast, equal);
        case.outcome = match case.outcome {
            CaseOutcome::Supports => CaseOutcome::Contradicts(0.0),
            CaseOutcome::Contradicts(_) => CaseOutcome::Supports,
            open @ CaseOutcome::Undecided(_) => open,
        };
        case.strength = case.strength.abs();
        case
    }
}
