//! `stack.chunk`: what packets of 1 KB carry beside small ones, and writes of 4 KB beside those of 1 KB.
//!
//! After Lantz, Nowicki & Theimer (1985, §6.2 and §9.1), whose clients exchanged a message with a stack in a process of its own for every
//! block. In real time, in memory and over a TAP.

use plumb_harness::spec::{StackEntry, TransferLoad, TransferPath, TransferTcp};
use plumb_report::figure::by_level::{self, LevelPlot};

use crate::claims::{LANTZ, gains_in_order, order_cases};
use crate::factor::transfer::{RESPONSES, THROUGHPUT, cell};
use crate::pages::against;
use crate::prelude::*;

/// Packets and writes of two sizes.
pub static EXPERIMENT: Experiment = Experiment {
    id: "stack.chunk",
    study: "distributed",
    question: "How much more do packets of 1 KB carry than small ones, and writes of 4 KB than of 1 KB?",
    hypothesis: "What a packet costs hardly depends on its length: eight times the bytes carry several times as much. A quarter as many \
                 messages to a stack in a thread of its own carry clearly more, a quarter as many calls little.",
    factors: &[
        Factor::of_words(
            "path",
            "in real time, in memory or over a TAP to Linux",
            &["memory", "tap-send"],
        )
        .labelled(&[("tap-send", "TAP")]),
        Factor::new(
            "packet",
            "bytes of an IP packet at most",
            FactorDomain::Between(88, 1_500, "bytes of an IP packet"),
            Numbers(&[128, 200, 1_024]),
        ),
        Factor::new("write", "bytes of a write", FactorDomain::Sizes, Numbers(&[1 << 10, 4 << 10])),
        Factor {
            applies: |first| first.text("path") == Some("memory"),
            ..Factor::of_words(
                "entry",
                "whether the stack is called, or gets a message for each write and replies",
                &["call", "message"],
            )
        },
    ],
    responses: &[THROUGHPUT],
    plan_cell,
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "The size of packets and of writes",
        figures: Some(|data| by_level::figures(&data.cells, &PACKETS)),
        sentences: |data| against(&data.cells, &PACKETS, "1024", "throughput", "throughput"),
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

const PACKETS: LevelPlot = LevelPlot {
    factor: "packet",
    order: &["128", "200", "1024"],
    panel_factors: &["path"],
    pictures: &[("Throughput", &["throughput"], false)],
};

fn plan_cell(point: &DesignPoint<'_>) -> CellDecision {
    let number = |name| point.factors.int(name).and_then(|level| u32::try_from(level).ok());
    let entry = match point.text("entry") {
        Some("message") => StackEntry::Message,
        _ => StackEntry::Call,
    };
    let packet = number("packet").and_then(|bytes| u16::try_from(bytes).ok());
    let Some(packet) = packet else {
        return Err(Exclusion::impossible("no size of packets is given"));
    };
    let tcp = TransferTcp { packet: Some(packet), ..TransferTcp::default() };
    let load =
        TransferLoad::Bulk { bytes: 1 << 20, write: number("write").unwrap_or(1_024), entry };
    let path = match point.text("path") {
        Some("tap-send") => TransferPath::Tap { sends: true, loss_ppm: 0 },
        _ => TransferPath::Memory,
    };
    Ok(cell(path, load, tcp))
}

/// "About 15–20 %": between half of the lower and twice the upper figure.
const ABOUT: (f64, f64) = (1.075, 1.40);

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "distributed.chunk.four-kilobytes-carry-more",
        claim: "Blocks of 4 Kbytes instead of 1 Kbyte give about 15 to 20 % more.",
        historical: Some("about 15–20 %, §9.1"),
        figures: &[PublishedFigure::ratio("4 KB to 1 KB", 1.175, "§9.1 (15 to 20 %)")],
        judge: |evidence| {
            // A message a block and packets of 1 KB, as theirs.
            let is = |bytes: u64| {
                move |cell: &MeasuredCell<'_>| {
                    cell.is("write", bytes)
                        && cell.is("entry", "message")
                        && cell.is("packet", 1_024_u64)
                }
            };
            let twins =
                evidence.twins(EXPERIMENT.id, "throughput", "write", is(4 << 10), is(1 << 10));
            let found = ClaimCases::of_twins(
                twins,
                |more, less| ClaimCase::ratio_within("", "gain".to_owned(), (more, less), ABOUT),
                |_| "write to compare with".to_owned(),
            );
            judge_all(found, "plumb run stack.chunk")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.chunk.fewer-messages-and-bursts",
        claim: "The gain comes from one message exchange less a packet and from packets that leave in bursts of four (judged by writes of four \
                packets, which gain more by messages than by calls, whose packets leave alike).",
        judge: |evidence| {
            let of = |entry| {
                let at = |bytes: u64| {
                    evidence.cells(EXPERIMENT.id, "throughput").find(|cell| {
                        cell.is("path", "memory")
                            && cell.is("entry", entry)
                            && cell.is("packet", 1_024_u64)
                            && cell.is("write", bytes)
                    })
                };
                Some([at(4 << 10)?, at(1 << 10)?])
            };
            let case = gains_in_order("messages/calls", of("message"), of("call"));
            judge_all(case.into_iter().collect(), "plumb run stack.chunk")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.transport.flexible-server-costs-speed",
        claim: "An internet server structured for easy addition of protocols costs some speed (judged by a stack that gets a message for each \
                write, against one that is called).",
        judge: |evidence| {
            let levels = (&[("entry", "call")][..], &[("entry", "message")][..]);
            let cases = order_cases(evidence, (EXPERIMENT.id, "throughput"), levels, |_| true);
            judge_all(cases, "plumb run stack.chunk")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.transport.larger-packets",
        claim: "A transport gains from packets of 1024 bytes where others use 100 or 200.",
        historical: Some("1024 bytes against 100 or 200, §6.2"),
        judge: |evidence| {
            let mut found = ClaimCases::default();
            for bytes in [128_u64, 200] {
                let is = |bytes: u64| move |cell: &MeasuredCell<'_>| cell.is("packet", bytes);
                let twins =
                    evidence.twins(EXPERIMENT.id, "throughput", "packet", is(1_024), is(bytes));
                let of_size = ClaimCases::of_twins(
                    twins,
                    |large, small| {
                        let label = format!(
                            "{bytes} B/1024 B, writes of {}",
                            small.int("write").unwrap_or(0)
                        );
                        ClaimCase::order(small.level("path"), label, large, small)
                    },
                    |_| format!("packet of {bytes}"),
                );
                found.cases.extend(of_size.cases);
                found.missing.extend(of_size.missing);
            }
            judge_all(found, "plumb run stack.chunk")
        },
        ..PublishedClaim::of(LANTZ)
    },
];
