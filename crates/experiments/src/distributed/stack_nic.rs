//! `stack.nic`: a receive window larger than the buffer of the receiver's card.
//!
//! Simulated: two workstations on an Ethernet of 10 Mb/s, in packets of 1,024 bytes of data. A packet takes a host of 10 MHz 2 ms, and one of
//! 8 MHz a quarter more; a card of 4 KB holds three packets.

use plumb_harness::report::LaunchFault;
use plumb_report::figure::against_factor::{self, FactorPlot, FactorScale};

use crate::claims::{LANTZ, medians_within};
use crate::prelude::*;
use crate::simulation::{self, ResponseValues, SimulatedCell};

/// Retransmissions and throughput by the window.
pub static EXPERIMENT: Experiment = Experiment {
    id: "stack.nic",
    study: "distributed",
    question: "What window may a host offer whose card holds only so many packets?",
    hypothesis: "The sender is faster than the receiver, so that what is in flight piles up in the card: windows beyond what it holds, and \
                 what is processed and on the way meanwhile, lose packets.",
    factors: &[
        Factor::new(
            "window",
            "bytes that the receiver offers",
            FactorDomain::Sizes,
            Numbers(&WINDOWS),
        )
        .at_quick(Numbers(&[3_072, 4_096, 8_192, 16_384])),
        Factor::of_words("card", "bytes that the receiver's card holds", &["4Ki", "32Ki"]),
        Factor::of_words(
            "receiver",
            "clock of the receiver; the sender's is 10 MHz",
            &["8mhz", "10mhz"],
        )
        .labelled(&[("8mhz", "8 MHz"), ("10mhz", "10 MHz")]),
    ],
    responses: &[
        ResponseVariable::share(
            "retransmitted",
            Better::Lower,
            "share of the sender's segments that it had sent before",
        ),
        ResponseVariable::rate("throughput", "bytes a second that arrive in sequence"),
    ],
    plan_cell: |point| Ok(simulation::cell(EXPERIMENT.id, point)),
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Windows and the card's memory",
        figures: Some(|data| against_factor::figures(&data.cells, &WINDOW)),
        responses: &[
            ("retransmitted", "share of segments sent again"),
            ("throughput", "throughput"),
        ],
        ..ExperimentPage::PLAIN
    },
};

const WINDOWS: [u64; 6] = [2_048, 3_072, 4_096, 5_120, 8_192, 16_384];

const WINDOW: FactorPlot = FactorPlot {
    factor: "window",
    label: "window (B)",
    unit: "B",
    scale: FactorScale::Log2,
    panel_factors: &["card"],
    pictures: &[
        ("Share of segments sent again", &["retransmitted"]),
        ("Throughput", &["throughput"]),
    ],
    power_law_responses: &[],
};

/// Bytes of a packet with 1,024 of data.
const PACKET: u64 = 1_064;
/// Microseconds that a packet takes a host of 10 MHz.
const PACKET_US: u64 = 2_000;

/// Simulates one setting; the sender puts as much in flight as the window allows.
pub(crate) fn simulate(cell: &SimulatedCell<'_>) -> Result<ResponseValues, LaunchFault> {
    let ring = if cell.level("card") == "4Ki" { (4 << 10) / PACKET } else { (32 << 10) / PACKET };
    let receiver = if cell.level("receiver") == "8mhz" { PACKET_US * 10 / 8 } else { PACKET_US };
    let window = cell.level("window");
    let text = format!(
        "duration = \"60s\"\nwarmup = \"5s\"\n{}\
         [[flow]]\nfrom = \"left\"\nto = \"right\"\nmss = 1024\ntimestamps = false\ncongestion = \"fixed:{window}\"\nreceive_buffer = \"{window}\"\n\
         [[processor]]\nhosts = \"left\"\nper_packet = \"{PACKET_US}us\"\nring = 256\n\
         [[processor]]\nhosts = \"right\"\nper_packet = \"{receiver}us\"\nring = {ring}\n",
        simulation::chain("rate=10mbit,delay=10us", "rate=10mbit,delay=50us,limit=64packets"),
    );
    let report = cell.simulate(&text)?;
    Ok(vec![
        ("retransmitted", report.flows[0].retransmission_share()),
        ("throughput", report.goodput() / 8.0),
    ])
}

const CLAIMS: &[PublishedClaim] = &[PublishedClaim {
    id: "distributed.nic.small-receive-buffer",
    claim: "With a card of 4 KB, a workstation of 10 MHz that sends to one of 8 MHz retransmits much once the window exceeds about 5,000 bytes \
            (judged by simulations: one in a hundred segments or more at windows of 8 KiB and more, fewer at 4 KiB and less).",
    historical: Some("windows over about 5000 B, §9.4"),
    figures: &[PublishedFigure::alone("window", 5_000.0, Unit::Bytes, "§9.4")],
    judge: |evidence| {
        let of = |windows: std::ops::RangeInclusive<i64>, bounds| {
            medians_within(evidence, (EXPERIMENT.id, "retransmitted"), bounds, move |cell| {
                cell.is("card", "4Ki")
                    && cell.is("receiver", "8mhz")
                    && cell.int("window").is_some_and(|window| windows.contains(&window))
            })
        };
        let mut found = of(8_192..=i64::MAX, (0.01, 1.0));
        found.cases.extend(of(0..=4_096, (0.0, 0.01)).cases);
        judge_all(found, "plumb run stack.nic")
    },
    ..PublishedClaim::of(LANTZ)
}];
