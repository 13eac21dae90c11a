//! `stack.buffers`: how a receiving host keeps packets until they are read, and the result of it.
//!
//! After Lantz, Nowicki & Theimer (1985, §7.1). In virtual time a fast host sends lines to a slow one with eight buffers, and in real time
//! both are in memory; over a TAP packets are in buffers of the kernel's before they reach any of plumb's.

use plumb_harness::spec::{
    PacketBufferPolicy, StackEntry, TransferLoad, TransferPath, TransferTcp,
};
use plumb_report::figure::by_level::{self, LevelPlot};

use plumb_analysis::claim::FigureToday;

use crate::claims::{LANTZ, medians_within, order_cases, pairs_within, stack_ratio};
use crate::factor::display::cell_at;
use crate::factor::transfer::{self, LINE, RESPONSES, RETRANSMITTED, TCP, THROUGHPUT, cell};
use crate::pages::against;
use crate::prelude::*;
use crate::transfer::{BUFFER_LEN, BUFFERS};

/// A policy a cell.
pub static EXPERIMENT: Experiment = Experiment {
    id: "stack.buffers",
    study: "distributed",
    question: "What does it cost to keep received packets in buffers, and what becomes of small ones?",
    hypothesis: "A window of bytes over buffers of packets loses small packets and slows an early TCP several times; a ring of bytes \
                 and a window that fits the packets lose none. Memory from a free list is a little cheaper than from malloc.",
    factors: &[
        Factor::of_words(
            "path",
            "in virtual time lines of 80 bytes over 10 Mb/s and 1 ms to a host that reads 4,300 bytes a second; or in real time a \
             file in memory",
            &["slow-reader", "memory"],
        )
        .labelled(&[("slow-reader", "lines to a slow host"), ("memory", "a file in memory")]),
        Factor {
            fit: |first, levels| {
                let is_real = first.text("path") == Some("memory");
                let suits = |level: &FactorLevel| {
                    ["ring", "sized"].contains(&level.to_string().as_str()) || is_real == OF_MEMORY.contains(&level.to_string().as_str())
                };
                levels.into_iter().filter(suits).collect()
            },
            ..Factor::of_words("buffers", "how packets are kept until they are read", &POLICIES)
        }
        .labelled(&[
            ("ring", "a ring of bytes"),
            ("fixed", "buffers of 1 KiB"),
            ("hinted", "the same, window for lines"),
            ("compacted", "the same, copied together"),
            ("sized", "buffers of three sizes"),
            ("preallocated", "buffers of one pool"),
            ("chunks", "free list, by chunks"),
            (SMALL, "free list, by small chunks"),
            (LARGE, "free list, by large chunks"),
            ("malloc", "malloc a packet"),
        ]),
        Factor { applies: |first| first.text("path") != Some("memory"), ..TCP },
    ],
    responses: &[THROUGHPUT, RETRANSMITTED],
    plan_cell,
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Packet buffers",
        figures: Some(|data| by_level::figures(&data.cells, &BUFFER)),
        sentences: |data| against(&data.cells, &BUFFER, "ring", "throughput", "throughput"),
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

/// Chunks of a quarter of the buffers that a connection needs, and of four times as many.
const SMALL: &str = "small-chunks";
const LARGE: &str = "large-chunks";

const POLICIES: [&str; 10] = [
    "ring",
    "fixed",
    "hinted",
    "compacted",
    "sized",
    "preallocated",
    "chunks",
    SMALL,
    LARGE,
    "malloc",
];

/// Those that differ in their work.
const OF_MEMORY: [&str; 5] = ["preallocated", "chunks", SMALL, LARGE, "malloc"];

const BUFFER: LevelPlot = LevelPlot {
    factor: "buffers",
    order: &POLICIES,
    panel_factors: &["path", "tcp"],
    pictures: &[
        ("Throughput", &["throughput"], false),
        ("Share of segments sent again", &["retransmitted"], false),
    ],
};

/// The display of 1985 took 4,300 characters a second (§7.3): a line each.
const READ_INTERVAL_NS: u64 = 80 * 1_000_000_000 / 4_300;

fn plan_cell(point: &DesignPoint<'_>) -> CellDecision {
    let level = |name| point.text(name).unwrap_or_default();
    let policy = match level("buffers") {
        "preallocated" => PacketBufferPolicy::Fixed,
        other => PacketBufferPolicy::from_name(other).unwrap_or_default(),
    };
    if level("path") == "memory" {
        if point.response != "throughput" {
            return Err(Exclusion::NotApplicable);
        }
        let load = TransferLoad::Bulk { bytes: 0, write: 16 << 10, entry: StackEntry::Call };
        let tcp = TransferTcp { packet_buffers: policy, ..TransferTcp::default() };
        return Ok(cell(TransferPath::Memory, load, tcp));
    }
    let window = match policy {
        PacketBufferPolicy::Hinted => BUFFERS * LINE as usize,
        _ => BUFFERS * BUFFER_LEN,
    };
    let tcp = TransferTcp {
        is_early: level("tcp") == "early",
        receive_buffer: u32::try_from(window).ok(),
        packet_buffers: policy,
        ..TransferTcp::default()
    };
    let load = TransferLoad::SlowReader {
        count: 200,
        line: LINE,
        read: LINE,
        interval_ns: READ_INTERVAL_NS,
    };
    let link = transfer::link_of("lan", "").expect("a path of that name");
    Ok(cell(TransferPath::Virtual(link), load, tcp))
}

/// "An almost complete halt": a tenth or less.
const NEAR_HALT: (f64, f64) = (10.0, f64::INFINITY);
/// "About 3 %": between half and twice as much.
const THREE_PERCENT: (f64, f64) = (1.015, 1.06);

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "distributed.buffers.small-packets-inundate",
        claim: "A fast sender of small packets within the window exhausts a slow receiver's buffers, so that packets are lost and \
                the connection nearly halts.",
        historical: Some("an almost complete halt, §7.1"),
        judge: |evidence| {
            let mut found = ClaimCases::default();
            for policy in ["fixed", "compacted"] {
                let levels = (&[("buffers", "ring")][..], &[("buffers", policy)][..]);
                let response = (EXPERIMENT.id, "throughput");
                found.cases.extend(pairs_within(evidence, response, levels, NEAR_HALT, |_| true));
            }
            judge_any(found, "plumb run stack.buffers")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.buffers.telnet-inundates",
        claim: "Such inundation happens regularly with TELNET, whose output comes a line at a time (judged by lines of 80 bytes to a slow host: one \
                segment in ten or more is sent again).",
        judge: |evidence| {
            let found =
                medians_within(evidence, (EXPERIMENT.id, "retransmitted"), TENTH_AGAIN, |cell| {
                    ["fixed", "compacted"].iter().any(|policy| cell.is("buffers", *policy))
                });
            judge_all(found, "plumb run stack.buffers")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.buffers.many-sizes-cost",
        claim: "Several buffer sizes match byte windows to packets better but cost overhead on some machines (judged by fewer segments sent again \
                than with one size, and by carrying less than it in memory).",
        judge: |evidence| {
            let (sized, one) = (&[("buffers", "sized")][..], &[("buffers", "fixed")][..]);
            let fewer =
                order_cases(evidence, (EXPERIMENT.id, "retransmitted"), (sized, one), |_| true);
            let pool = &[("buffers", "preallocated")][..];
            let cost =
                order_cases(evidence, (EXPERIMENT.id, "throughput"), (pool, sized), |_| true);
            judge_all(
                fewer.cases.into_iter().chain(cost.cases).collect(),
                "plumb run stack.buffers",
            )
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.tcp.best-throughput",
        claim: "TCP between two workstations reaches 450 kb/s (judged by as much or more through memory, by each way to keep packets).",
        figures: &[PublishedFigure {
            today: FigureToday::Found(|evidence| {
                cell_at(
                    evidence,
                    (EXPERIMENT.id, "throughput"),
                    &[("path", "memory"), ("buffers", "ring")],
                )
                .map(MeasuredCell::median)
            }),
            ..PublishedFigure::alone("throughput", 56_250.0, Unit::BytesPerSecond, "§7.3")
        }],
        judge: |evidence| {
            let found = medians_within(
                evidence,
                (EXPERIMENT.id, "throughput"),
                (56_250.0, f64::INFINITY),
                |cell| cell.is("path", "memory"),
            );
            judge_all(found, "plumb run stack.buffers")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.buffers.traffic-hints",
        claim: "Hints about the traffic to expect allow receive windows that match the buffers.",
        judge: |evidence| {
            let mut found = ClaimCases::default();
            for cell in evidence.cells(EXPERIMENT.id, "retransmitted") {
                if cell.is("buffers", "hinted") {
                    let label = format!("sent again, {}", cell.level("tcp"));
                    found.cases.push(ClaimCase::median_within("", label, cell, NONE_AGAIN));
                }
            }
            judge_all(found, "plumb run stack.buffers")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.buffers.chunked-free-lists",
        claim: "Buffers allocated in chunks and kept on a free list give about 3 % over general memory management.",
        historical: Some("about 3 %, §7.1"),
        figures: &[PublishedFigure::ratio("malloc to chunks", 1.03, "§7.1")],
        judge: |evidence| {
            let levels = (&[("buffers", "chunks")][..], &[("buffers", "malloc")][..]);
            stack_ratio(evidence, (EXPERIMENT.id, "throughput"), levels, THREE_PERCENT, |_| true)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.buffers.chunk-a-connection",
        claim: "Chunks are best so large that a connection needs one on average (judged by chunks of a quarter of what it needs, which are slower, \
                and of four times as much, which are less than 2 % faster).",
        judge: |evidence| {
            let response = (EXPERIMENT.id, "throughput");
            let [one, small, large] = ["chunks", SMALL, LARGE].map(|level| [("buffers", level)]);
            let faster = order_cases(evidence, response, (&one, &small), |_| true);
            let alike = pairs_within(evidence, response, (&one, &large), AS_FAST, |_| true);
            judge_all(faster.cases.into_iter().chain(alike).collect(), "plumb run stack.buffers")
        },
        ..PublishedClaim::of(LANTZ)
    },
];

/// No slower, and no faster by more than a fiftieth.
const AS_FAST: (f64, f64) = (0.98, 1.02);
/// A segment in ten, or more.
const TENTH_AGAIN: (f64, f64) = (0.1, 1.0);
/// No more than one segment in a hundred.
const NONE_AGAIN: (f64, f64) = (0.0, 0.01);
