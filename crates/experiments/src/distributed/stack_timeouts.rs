//! `stack.timeouts`: fixed retransmission timeouts against measured ones, by path and error rate; and prompt acknowledgements.
//!
//! After Lantz, Nowicki & Theimer (1985, §7.2). In virtual time; over a TAP and in memory in real time.

use plumb_harness::spec::{StackEntry, TransferLoad, TransferPath, TransferTcp};
use plumb_report::figure::by_level::{self, LevelPlot};

use crate::claims::{LANTZ, order_cases, pairs_within, stack_ratio};
use crate::factor::transfer::{
    self, DELAY, RESPONSES, RETRANSMITTED, TCP, TERMINAL, THROUGHPUT, cell,
};
use crate::pages::against;
use crate::prelude::*;

/// A timeout a cell.
pub static EXPERIMENT: Experiment = Experiment {
    id: "stack.timeouts",
    study: "distributed",
    question: "What do fixed retransmission timeouts cost beside measured ones?",
    hypothesis: "A fixed timeout shorter than the peer's answer halves the throughput or worse, a long one costs its length for \
                 every loss; none suits every path and error rate, and where loss is noticed without timeouts they matter little.",
    factors: &[
        Factor::of_words(
            "load",
            "a file, or lines of a terminal, one every 100 ms",
            &["file", "terminal"],
        ),
        Factor {
            fit: |first, levels| match first.text("load") {
                Some("terminal") => words(&["lan", "slow-host", "internet"]),
                _ => levels,
            },
            ..Factor::of_words(
                "path",
                "in virtual time 10 Mb/s and 1 ms each way, the same to a host that takes 0.3 s to answer, or 1 Mb/s with a \
                 delay between 0.05 and 0.55 s; in real time a TAP to Linux, or memory",
                &["lan", "slow-host", "internet", "tap-send", "memory"],
            )
            .labelled(&[
                ("lan", "10 Mb/s, 2 ms"),
                ("slow-host", "10 Mb/s, answers after 0.3 s"),
                ("internet", "1 Mb/s, 0.1 to 0.6 s"),
                ("tap-send", "TAP"),
                ("memory", "memory"),
            ])
        },
        Factor::of_words(
            "errors",
            "frames lost each way: none, one in a thousand, or 30 % for a hundred frames at a time, every 5,000th time",
            &["none", "rare", "varying"],
        )
        .labelled(&[("none", "no errors"), ("rare", "0.1 % lost"), ("varying", "periods of errors")]),
        TCP,
        Factor::new(
            "timeout",
            "the retransmission timeout: measured, or always this long",
            FactorDomain::Words(&TIMEOUTS),
            Words(&TIMEOUTS),
        )
        .labelled(&[("dynamic", "measured")]),
        Factor::of_words(
            "acks",
            "acknowledgements delayed up to 200 ms and for every second segment, or for every segment at once",
            &["delayed", "prompt"],
        ),
    ],
    responses: &[THROUGHPUT, DELAY, RETRANSMITTED],
    plan_cell,
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Retransmission timeouts",
        figures: Some(|data| by_level::figures(&data.cells, &TIMEOUT)),
        sentences: |data| {
            let early = |cell: &&&CellResult| cell.level("tcp") == "early";
            let cells: Vec<&CellResult> = data.cells.iter().filter(early).copied().collect();
            against(&cells, &TIMEOUT, "dynamic", "throughput", "throughput of a TCP before 1988")
        },
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

const TIMEOUTS: [&str; 5] = ["dynamic", "100ms", "250ms", "1s", "4s"];

const TIMEOUT: LevelPlot = LevelPlot {
    factor: "timeout",
    order: &TIMEOUTS,
    panel_factors: &["load", "path", "tcp"],
    pictures: &[
        ("Throughput", &["throughput"], true),
        ("Delay of a line", &["delay"], true),
        ("Share of segments sent again", &["retransmitted"], false),
    ],
};

/// A file that meets a loss or two on a TAP.
const TAP_FILE: TransferLoad =
    TransferLoad::Bulk { bytes: 2 << 20, write: 4_096, entry: StackEntry::Call };
/// Frames that are lost there where errors are rare, in parts per million.
const TAP_LOSS_PPM: u32 = 1_000;

fn plan_cell(point: &DesignPoint<'_>) -> CellDecision {
    let level = |name| point.text(name).unwrap_or_default();
    let (load, path, timeout) = (level("load"), level("path"), level("timeout"));
    let is_real = matches!(path, "memory" | "tap-send");
    if load == "terminal" && is_real {
        return Err(Exclusion::impossible(
            "a terminal's lines are in virtual time: choose path lan, slow-host or internet",
        ));
    }
    let is_measured = match point.response {
        "throughput" => load == "file",
        "delay" => load == "terminal",
        _ => load == "file" && path != "memory",
    };
    let is_plain = level("errors") == "none" && level("tcp") == "today";
    let makes_sense = match path {
        // In memory an acknowledgement takes only CPU time.
        "memory" => {
            is_plain && (timeout == "dynamic" || (timeout == "1s" && level("acks") != "prompt"))
        }
        // Where only the timer notices a loss; the longest one is longer than a transfer may take.
        "tap-send" => level("tcp") == "early" && level("errors") == "rare" && timeout != "4s",
        _ => true,
    };
    if !is_measured || !makes_sense || (level("acks") == "prompt" && path != "memory") {
        return Err(Exclusion::NotApplicable);
    }
    let tcp = TransferTcp {
        is_early: level("tcp") == "early",
        fixed_rto_ns: transfer::span_ns(timeout),
        prompt_acks: level("acks") == "prompt",
        ..TransferTcp::default()
    };
    let load = match load {
        "terminal" => TERMINAL,
        _ if is_real => TAP_FILE,
        _ => transfer::file(path, 4_096, StackEntry::Call),
    };
    Ok(match path {
        "memory" => cell(TransferPath::Memory, load, tcp),
        "tap-send" => cell(TransferPath::Tap { sends: true, loss_ppm: TAP_LOSS_PPM }, load, tcp),
        _ => {
            let faults = match level("errors") {
                "rare" => "loss=0.1%",
                "varying" => "gilbert-elliott=0.02%/1%/0%/30%",
                _ => "",
            };
            cell(transfer::virtual_path(point, faults)?, load, tcp)
        }
    })
}

/// Slower by a factor of two or more.
const HALVED: (f64, f64) = (2.0, f64::INFINITY);
/// "10 %": between half and twice as much.
const TEN_PERCENT: (f64, f64) = (1.05, 1.2);
/// "About 1 %": a loss of less than twice as much.
const ONE_PERCENT: (f64, f64) = (1.0, 1.02);
/// A tenth less at most.
const SUITS: (f64, f64) = (0.0, 1.1);
/// A loss that is noticed.
const NOTICED: (f64, f64) = (1.1, f64::INFINITY);

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "distributed.timeouts.mismatch-halves-throughput",
        claim: "A fixed timeout too short for the peer retransmits packets in vain and slows file transfer by a factor of two or \
                more.",
        historical: Some("×2 or more, §7.2"),
        figures: &[PublishedFigure::ratio("loss of throughput, least", 2.0, "§7.2")],
        judge: |evidence| {
            let (dynamic, short) = (&[("timeout", "dynamic")][..], &[("timeout", "100ms")][..]);
            stack_ratio(evidence, (EXPERIMENT.id, "throughput"), (dynamic, short), HALVED, |cell| {
                cell.is("path", "slow-host") && cell.is("tcp", "early")
            })
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.timeouts.mismatch-delays-telnet",
        claim: "Mismatched timeouts noticeably delay terminals.",
        judge: |evidence| worst_of_fixed(evidence, "delay", |_| true, judge_any),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.timeouts.four-seconds-lose-ten-percent",
        claim: "Between two workstations a timeout of 4 s costs 10 % against one of a quarter of a second.",
        historical: Some("10 %, §7.2"),
        figures: &[PublishedFigure::ratio("1/4 s to 4 s", 1.1, "§7.2")],
        judge: |evidence| {
            let (short, long) = (&[("timeout", "250ms")][..], &[("timeout", "4s")][..]);
            stack_ratio(
                evidence,
                (EXPERIMENT.id, "throughput"),
                (short, long),
                TEN_PERCENT,
                |cell| {
                    cell.is("path", "lan") && cell.is("errors", "rare") && cell.is("tcp", "early")
                },
            )
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.timeouts.early-acks-lose-one-percent",
        claim: "Acknowledging twice as often as necessary costs about 1 %.",
        historical: Some("about 1 %, §7.2"),
        figures: &[PublishedFigure::ratio("delayed to prompt", 1.01, "§7.2")],
        judge: |evidence| {
            let (delayed, prompt) = (&[("acks", "delayed")][..], &[("acks", "prompt")][..]);
            stack_ratio(
                evidence,
                (EXPERIMENT.id, "throughput"),
                (delayed, prompt),
                ONE_PERCENT,
                |_| true,
            )
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.timeouts.internets-need-dynamic",
        claim: "Over an internet, whose transit times vary, efficient transfer needs dynamic timeouts.",
        judge: |evidence| {
            worst_of_fixed(
                evidence,
                "throughput",
                |cell| cell.is("path", "internet") && cell.is("tcp", "early"),
                judge_all,
            )
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.timeouts.lans-need-dynamic",
        claim: "A byte stream needs dynamic timeouts even where it is mainly used within a local network.",
        judge: |evidence| {
            worst_of_fixed(
                evidence,
                "throughput",
                |cell| {
                    (cell.is("path", "lan") || cell.is("path", "slow-host"))
                        && cell.is("tcp", "early")
                },
                judge_all,
            )
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.timeouts.error-rate",
        claim: "Error rates change with time, so that no constant timeout suits a connection.",
        judge: |evidence| {
            worst_of_fixed(
                evidence,
                "throughput",
                |cell| cell.is("errors", "varying") && cell.is("tcp", "early"),
                judge_all,
            )
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.timeouts.dynamic-ones-cost",
        claim: "Dynamic timeouts cost a reading of the clock for each packet, typically a kernel call (judged in memory, where a fixed timeout \
                carries more).",
        judge: |evidence| {
            let (fixed, dynamic) = (&[("timeout", "1s")][..], &[("timeout", "dynamic")][..]);
            let in_memory = |cell: &MeasuredCell<'_>| cell.is("path", "memory");
            let cases =
                order_cases(evidence, (EXPERIMENT.id, "throughput"), (fixed, dynamic), in_memory);
            judge_all(cases, "plumb run stack.timeouts")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.timeouts.local-variation-is-small",
        claim: "One would expect transit times to vary so little within a local network that fixed timeouts do; it is not so (judged by a timeout \
                of 100 ms, which loses a tenth at most between like hosts, and half or more to one that answers after 0.3 s).",
        judge: |evidence| short_timeout(evidence, ["none", "none"]),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.timeouts.no-fixed-value-suits-all",
        claim: "Different higher protocols and pairs of hosts have different best timeouts (judged by lines of a terminal over a LAN with errors, \
                which arrive sooner with 100 ms than with 1 s, and a file to a slow host, which is faster with 1 s).",
        judge: |evidence| {
            let (short, long) = (&[("timeout", "100ms")][..], &[("timeout", "1s")][..]);
            let is = |cell: &MeasuredCell<'_>, load: &str, path: &str, errors: &str| {
                cell.is("load", load)
                    && cell.is("path", path)
                    && cell.is("errors", errors)
                    && cell.is("tcp", "early")
            };
            let terminal = order_cases(evidence, (EXPERIMENT.id, "delay"), (short, long), |cell| {
                is(cell, "terminal", "lan", "rare")
            });
            let file =
                order_cases(evidence, (EXPERIMENT.id, "throughput"), (long, short), |cell| {
                    is(cell, "file", "slow-host", "none")
                });
            let cases = terminal.cases.into_iter().chain(file.cases);
            judge_all(cases.collect(), "plumb run stack.timeouts")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.tcp.simplified-design-fails",
        claim: "A TCP simplified for a local network fails where other hosts use other designs (judged by a fixed timeout of 100 ms, which suits \
                hosts like itself, errors included, and loses half or more beside one that answers after 0.3 s).",
        judge: |evidence| short_timeout(evidence, ["rare", "rare"]),
        ..PublishedClaim::of(LANTZ)
    },
];

/// A timeout of 100 ms does between like hosts, with these errors, and halves what a slow host gets.
fn short_timeout(evidence: &ClaimEvidence<'_>, [near, far]: [&str; 2]) -> ClaimJudgment {
    let levels = (&[("timeout", "dynamic")][..], &[("timeout", "100ms")][..]);
    let cases = |path: &'static str, errors: &str, bounds| {
        pairs_within(evidence, (EXPERIMENT.id, "throughput"), levels, bounds, |cell| {
            cell.is("path", path) && cell.is("errors", errors) && cell.is("tcp", "early")
        })
    };
    let cases = cases("lan", near, SUITS).into_iter().chain(cases("slow-host", far, HALVED));
    judge_all(cases.collect(), "plumb run stack.timeouts")
}

/// How a claim is judged by its cases.
type CaseJudge = fn(ClaimCases, &str) -> ClaimJudgment;

/// Of each fixed timeout the setting among the chosen at which it loses most beside a measured one: that loss is noticed.
fn worst_of_fixed(
    evidence: &ClaimEvidence<'_>,
    response: &'static str,
    chosen: fn(&MeasuredCell<'_>) -> bool,
    judge: CaseJudge,
) -> ClaimJudgment {
    let mut found = ClaimCases::default();
    for timeout in &TIMEOUTS[1..] {
        let levels = (&[("timeout", "dynamic")][..], &[("timeout", *timeout)][..]);
        let cases = pairs_within(evidence, (EXPERIMENT.id, response), levels, NOTICED, chosen);
        found.cases.extend(cases.into_iter().max_by(|a, b| a.strength.total_cmp(&b.strength)));
    }
    judge(found, "plumb run stack.timeouts")
}
