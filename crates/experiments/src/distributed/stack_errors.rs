//! `stack.errors`: what defects of TCP's retransmission and window handling cost, each by itself.
//!
//! After Lantz, Nowicki & Theimer (1985, §7.3). In virtual time both ends are plumb's; over a TAP the other end is Linux's.

use plumb_harness::spec::{StackEntry, TransferDefect, TransferLoad, TransferPath, TransferTcp};
use plumb_report::figure::by_level::{self, LevelPlot};

use crate::claims::{LANTZ, pairs_within, stack_order};
use crate::factor::transfer::{
    self, DELAY, LINE, PAYLOAD, RESPONSES, RETRANSMITTED, TERMINAL, THROUGHPUT, cell,
};
use crate::pages::against;
use crate::prelude::*;

/// A defect a cell.
pub static EXPERIMENT: Experiment = Experiment {
    id: "stack.errors",
    study: "distributed",
    question: "What does each defect of TCP's retransmission and window handling cost?",
    hypothesis: "Where packets are lost, noticing it by timeouts only, a timeout that is never measured, and discarding what \
                 came out of order cost several times the throughput and the delay; silly windows make segments small.",
    factors: &[
        Factor::of_words(
            "load",
            "a file; lines of a terminal, one every 100 ms; or a file that is read 40 bytes at a time, every 5 ms",
            &["file", "terminal", "slow-reader"],
        ),
        Factor {
            fit: |first, levels| match first.text("load") {
                Some("file") => levels,
                Some("terminal") => words(&["lan", "arpanet"]),
                _ => words(&["lan"]),
            },
            ..Factor::of_words(
                "path",
                "in virtual time 10 Mb/s and 1 ms, or 56 kb/s and 50 ms, each way; or a TAP to Linux; 1 % of the frames are \
                 lost each way",
                &["lan", "arpanet", "tap-send", "tap-receive"],
            )
            .labelled(PATHS)
        },
        Factor::of_words("defect", "what is wrong with plumb's TCP", &DEFECTS).labelled(&[
            ("none", "no defect"),
            ("timeout-1s", "timeout always 1 s"),
            ("go-back-n", "timeout resends everything"),
            ("discards-out-of-order", "discards what is out of order"),
            ("measures-retransmissions", "measures retransmissions"),
            ("silly-window", "silly windows"),
            ("timeouts-only", "no recovery but by timeouts"),
            ("duplicate-acks", "acknowledges twice"),
        ]),
    ],
    responses: &[THROUGHPUT, DELAY, PAYLOAD, RETRANSMITTED],
    plan_cell,
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Defects of TCP",
        figures: Some(|data| by_level::figures(&data.cells, &DEFECT)),
        sentences: |data| {
            let of = |response, what| against(&data.cells, &DEFECT, "none", response, what);
            [of("throughput", "throughput"), of("delay", "the delay of a line")].concat()
        },
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

/// Words for paths.
const PATHS: &[(&str, &str)] = &[
    ("lan", "10 Mb/s, 2 ms"),
    ("arpanet", "56 kb/s, 100 ms"),
    ("tap-send", "TAP, plumb sends"),
    ("tap-receive", "TAP, plumb receives"),
];

const DEFECTS: [&str; 8] = [
    "none",
    "timeout-1s",
    "go-back-n",
    "discards-out-of-order",
    "measures-retransmissions",
    "silly-window",
    "timeouts-only",
    "duplicate-acks",
];

/// Defects that only show at the end that receives.
const OF_RECEIVER: [&str; 2] = ["discards-out-of-order", "duplicate-acks"];

const DEFECT: LevelPlot = LevelPlot {
    factor: "defect",
    order: &DEFECTS,
    panel_factors: &["load", "path"],
    pictures: &[
        ("Throughput", &["throughput"], true),
        ("Delay of a line", &["delay"], true),
        ("Mean payload of a segment", &["payload"], false),
        ("Share of segments sent again", &["retransmitted"], false),
    ],
};

/// Frames that are lost each way, in parts per million.
const LOSS_PPM: u32 = 10_000;
/// Bytes of the window of a slow reader.
const SMALL_WINDOW: u32 = 4 << 10;
const TAP_FILE: TransferLoad =
    TransferLoad::Bulk { bytes: 256 << 10, write: 4_096, entry: StackEntry::Call };

fn plan_cell(point: &DesignPoint<'_>) -> CellDecision {
    let level = |name| point.text(name).unwrap_or_default();
    let (load, path, defect) = (level("load"), level("path"), level("defect"));
    let is_measured = match point.response {
        "throughput" => load != "terminal",
        "delay" => load == "terminal",
        "payload" => load == "slow-reader",
        _ => load == "file" && path != "tap-receive",
    };
    let shows = match path {
        "tap-send" => !OF_RECEIVER.contains(&defect),
        "tap-receive" => defect == "none" || OF_RECEIVER.contains(&defect),
        _ => true,
    };
    if !is_measured || !shows {
        return Err(Exclusion::NotApplicable);
    }
    let mut tcp = TransferTcp {
        defects: TransferDefect::from_name(defect).into_iter().collect(),
        fixed_rto_ns: defect.strip_prefix("timeout-").and_then(transfer::span_ns),
        ..TransferTcp::default()
    };
    let load = match load {
        "terminal" => TERMINAL,
        "slow-reader" => {
            tcp.receive_buffer = Some(SMALL_WINDOW);
            TransferLoad::SlowReader {
                count: 400,
                line: LINE,
                read: LINE / 2,
                interval_ns: 5_000_000,
            }
        }
        _ if path.starts_with("tap") => TAP_FILE,
        _ => transfer::file(path, 4_096, StackEntry::Call),
    };
    Ok(match path {
        "tap-send" => cell(TransferPath::Tap { sends: true, loss_ppm: LOSS_PPM }, load, tcp),
        "tap-receive" => cell(TransferPath::Tap { sends: false, loss_ppm: LOSS_PPM }, load, tcp),
        _ => cell(transfer::virtual_path(point, "loss=1%")?, load, tcp),
    })
}

/// An order of magnitude: nearer to ten times, on a scale of ratios, than to once.
const TENFOLD: (f64, f64) = (3.162, f64::INFINITY);

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "distributed.tcp.errors-cost-tenfold",
        claim: "Errors in retransmission or window management change throughput and delay by up to an order of magnitude.",
        historical: Some("up to ×10, §7.3"),
        figures: &[PublishedFigure::ratio("change, up to", 10.0, "§7.3")],
        judge: |evidence| {
            let mut found = ClaimCases::default();
            for response in ["throughput", "delay"] {
                for defect in &DEFECTS[1..] {
                    let levels = (&[("defect", "none")][..], &[("defect", *defect)][..]);
                    let response = (EXPERIMENT.id, response);
                    found.cases.extend(pairs_within(evidence, response, levels, TENFOLD, |_| true));
                }
            }
            judge_any(found, "plumb run stack.errors")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.tcp.silly-windows",
        claim: "A TCP that ignores Clark's suggestions suffers from silly windows: its segments become small.",
        judge: |evidence| {
            let levels = (&[("defect", "none")][..], &[("defect", "silly-window")][..]);
            stack_order(evidence, (EXPERIMENT.id, "payload"), levels, |_| true)
        },
        ..PublishedClaim::of(LANTZ)
    },
];
