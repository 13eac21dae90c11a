//! `nic.memory`: how much memory a card needs that holds the buffers of connections.
//!
//! Simulated, over a link of 1 Gb/s with a queue of its product of rate and round trip: what many connections of 64 KiB each have in flight, on a LAN and across a continent, and what one
//! connection carries whose buffer is the memory of a card. A sender must keep what is in flight until it is acknowledged.

use plumb_base::time::Span;
use plumb_base::units::parse_bytes;
use plumb_harness::report::LaunchFault;
use plumb_report::figure::against_factor::{self, FactorPlot, FactorScale};
use plumb_report::figure::by_level::{self, LevelPlot};

use super::window_bdp::ROUND_TRIP;
use crate::claims::{WEIGLE, medians_within};
use crate::prelude::*;
use crate::simulation::{self, ResponseValues, SimulatedCell};

/// Bytes in flight, and throughput by the memory for them.
pub static EXPERIMENT: Experiment = Experiment {
    id: "nic.memory",
    study: "gigabit",
    question: "How much memory does a card need that keeps the buffers of its connections?",
    hypothesis: "In flight is never more than the product of rate and round trip and what waits on the way, however many connections there \
                 are: megabytes on a LAN, tens of them across a continent. Windows set aside for each connection are far more.",
    factors: &[
        Factor::of_words(
            "load",
            "simulated: connections with windows of 64 KiB, or one whose buffer is the card's memory",
            &["windows", "product"],
        )
        .labelled(&[("windows", "many connections"), ("product", "one connection")]),
        Factor {
            applies: |first| first.text("load") == Some("windows"),
            ..Factor::new("connections", "how many", FactorDomain::Between(1, 10_000, "a number"), Numbers(&[100, 1_000, 2_000]))
        },
        Factor {
            applies: |first| first.text("load") == Some("product"),
            ..Factor::of_words("memory", "of the card, in bytes", &["4Mi", "8Mi", "16Mi", "32Mi"])
        }
        .at_quick(Words(&["4Mi", "8Mi", "16Mi"])),
        Factor {
            fit: |first, levels| match first.text("load") {
                Some("product") => words(&["100ms"]),
                _ => levels,
            },
            ..ROUND_TRIP
        }
        .at(Words(&["1ms", "20ms", "100ms"]))
        .at_quick(Words(&["1ms", "100ms"])),
    ],
    responses: &[
        ResponseVariable::new("flight", Unit::Bytes, Better::Lower, "bytes sent and not yet acknowledged, of all connections, on average"),
        ResponseVariable::new("windows", Unit::Bytes, Better::Lower, "bytes of the buffers that are set aside for them"),
        ResponseVariable::share("used", Better::Higher, "share of the link that is used"),
    ],
    plan_cell: |point| Ok(simulation::cell(EXPERIMENT.id, point)),
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Buffers on the network card",
        figures: Some(|data| {
            [against_factor::figures(&data.cells, &CONNECTIONS), by_level::figures(&data.cells, &MEMORY)].concat()
        }),
        responses: &[("flight", "bytes in flight"), ("windows", "bytes set aside"), ("used", "share of the link")],
        ..ExperimentPage::PLAIN
    },
};

const CONNECTIONS: FactorPlot = FactorPlot {
    factor: "connections",
    label: "connections",
    unit: "count",
    scale: FactorScale::Log2,
    panel_factors: &["rtt"],
    pictures: &[("Memory for many connections", &["flight", "windows"])],
    power_law_responses: &[],
};

const MEMORY: LevelPlot = LevelPlot {
    factor: "memory",
    order: &["4Mi", "8Mi", "16Mi", "32Mi"],
    panel_factors: &["load"],
    pictures: &[("Share of a link of 1 Gb/s over 100 ms", &["used"], false)],
};

/// The average buffer of a connection, in bytes.
const WINDOW: u64 = 64 << 10;

/// Simulates one setting. Many connections have congestion control; one fills its buffer, and nothing is lost of it.
pub(crate) fn simulate(cell: &SimulatedCell<'_>) -> Result<ResponseValues, LaunchFault> {
    let rtt = cell.span("rtt")?;
    let (count, window, limits) = match cell.level("load") {
        "product" => {
            let window = parse_bytes(cell.level("memory")).unwrap_or(WINDOW);
            (
                1,
                window,
                format!(
                    "congestion = \"fixed:{window}\"\nsend_buffer = \"64MiB\"\nreceive_buffer = \"64MiB\""
                ),
            )
        }
        _ => (cell.number::<u64>("connections")?, WINDOW, format!("receive_buffer = \"{WINDOW}\"")),
    };
    let us = rtt.as_ns() / 1_000;
    // Windows have grown after six round trips.
    let (warmup, duration) = (us * 6 + 50_000, us * 9 + 250_000);
    let links = simulation::chain(
        &format!("rate=10gbit,delay={}us", us / 4),
        &format!("rate=1gbit,delay={}us,limit=1bdp", us / 4),
    );
    let text = format!(
        "duration = \"{duration}us\"\nwarmup = \"{warmup}us\"\n{links}\
         [[flow]]\nfrom = \"left\"\nto = \"right\"\ncount = {count}\n{limits}\nstart = \"0us..{us}us\"\n",
    );
    let report = cell.simulate(&text)?;
    // Little's law: what is in flight is what is acknowledged a second, times how long that takes.
    let flight: f64 = report
        .flows
        .iter()
        .map(|flow| flow.goodput() / 8.0 * flow.rtt_mean.map_or(0.0, Span::as_secs_f64))
        .sum();
    let link = report.link("router > right").and_then(|link| link.utilization);
    Ok(vec![
        ("flight", flight),
        ("windows", (window * count) as f64),
        ("used", link.unwrap_or(0.0)),
    ])
}

/// The larger memory of a high-speed card, in bytes.
const CARD: f64 = 8_388_608.0;

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "gigabit.nic.thousands-of-windows-do-not-fit",
        claim: "Thousands of connections at the average 64 KB TCP buffer need much more memory than the 4 or 8 MB of a high-speed card \
                (judged by simulations: what a thousand and more have in flight, which is what must be kept).",
        historical: Some("4 or 8 MB; 64 KB each"),
        figures: &[PublishedFigure::alone("buffer", 65_536.0, Unit::Bytes, "64KB TCP buffer")],
        judge: |evidence| {
            let cases = medians_within(
                evidence,
                (EXPERIMENT.id, "flight"),
                (CARD, f64::INFINITY),
                |cell| cell.is("load", "windows") && !cell.is("connections", 100_u64),
            );
            judge_all(cases, "plumb run nic.memory --set load=windows")
        },
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.nic.one-product-does-not-fit",
        claim: "A single connection of 1 Gb/s with 100 ms does not fit on a card of 8 MB (judged by simulations: with buffers of 4 and 8 MiB \
                it leaves a tenth of the link idle, or more).",
        historical: Some("12.5 MB on an 8 MB card"),
        figures: &[PublishedFigure::alone(
            "product of bandwidth and delay",
            12.5e6,
            Unit::Bytes,
            "1 Gb/s × 100 ms",
        )],
        judge: |evidence| {
            let cases = medians_within(evidence, (EXPERIMENT.id, "used"), (0.0, 0.9), |cell| {
                cell.is("memory", "4Mi") || cell.is("memory", "8Mi")
            });
            judge_all(cases, "plumb run nic.memory --set load=product")
        },
        ..PublishedClaim::of(WEIGLE)
    },
];
