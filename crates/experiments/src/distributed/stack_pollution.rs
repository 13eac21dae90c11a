//! `stack.pollution`: what packets that nobody wants do to a network, and to hosts that must take them to find that out.
//!
//! Simulated: an Ethernet of 10 Mb/s; hosts of 1985, which need 2 ms for a packet, or fast ones, which need 20 µs. Stray garbage has as its
//! address, of one byte as on 3 Mb/s Ethernet, what lay in memory: a byte of this program's file.

use plumb_harness::report::LaunchFault;
use plumb_report::figure::by_level::{self, LevelPlot};

use crate::claims::{LANTZ, medians_within, stack_ratio};
use crate::prelude::*;
use crate::simulation::{self, ResponseValues, SimulatedCell};

/// Throughput and processors by the share of garbage.
pub static EXPERIMENT: Experiment = Experiment {
    id: "stack.pollution",
    study: "distributed",
    question: "What do garbage packets do to a network and to its hosts?",
    hypothesis: "A transfer loses what garbage takes of the wire; broadcasts also take the processors of every host, long before the wire \
                 is full where hosts are slow.",
    factors: &[
        Factor::of_words(
            "garbage",
            "share of the wire's rate that garbage of 200 bytes a packet takes",
            &SHARES,
        )
        .at_quick(Words(&["0%", "25%", "100%"])),
        Factor::of_words(
            "kind",
            "whether garbage is for one host, whose card the others' do not take it from, or for all; or stray, with a byte of this \
             program as its address, where 0 or 255 is all hosts'",
            &["unicast", "broadcast", STRAY_0, STRAY_255],
        )
        .labelled(&[(STRAY_0, "stray, 0 is broadcast"), (STRAY_255, "stray, 255 is broadcast")]),
        Factor::of_words(
            "hosts",
            "time that a host needs for a packet: 2 ms, as in 1985, or 20 µs",
            &["slow", "fast"],
        )
        .labelled(&[("slow", "2 ms a packet"), ("fast", "20 µs a packet")]),
    ],
    responses: &[
        ResponseVariable::rate(
            "throughput",
            "bytes a second of a transfer between two hosts that do not want the garbage",
        ),
        ResponseVariable::share(
            "busy",
            Better::Lower,
            "share of its time that garbage takes from the processor of a host that does nothing",
        ),
        ResponseVariable::share(
            "taken",
            Better::Lower,
            "share of stray garbage that every host takes for a broadcast",
        ),
    ],
    plan_cell: |point| {
        let is_stray = matches!(point.text("kind"), Some(STRAY_0 | STRAY_255));
        // It is the same for any host and any amount.
        let is_first = point.text("hosts") == Some("slow") && point.text("garbage") == Some("25%");
        if point.response == "taken" && !(is_stray && is_first) {
            return Err(Exclusion::NotApplicable);
        }
        Ok(simulation::cell(EXPERIMENT.id, point))
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Garbage on the network",
        figures: Some(|data| by_level::figures(&data.cells, &GARBAGE)),
        responses: &[
            ("throughput", "throughput of a transfer"),
            ("busy", "a bystander's processor"),
            ("taken", "stray garbage taken for broadcasts"),
        ],
        ..ExperimentPage::PLAIN
    },
};

const STRAY_0: &str = "stray-0";
const STRAY_255: &str = "stray-255";

const SHARES: [&str; 5] = ["0%", "10%", "25%", "50%", "100%"];

const GARBAGE: LevelPlot = LevelPlot {
    factor: "garbage",
    order: &SHARES,
    panel_factors: &["hosts", "kind"],
    pictures: &[
        ("Throughput", &["throughput"], false),
        ("A bystander's processor", &["busy"], false),
    ],
};

/// The share of garbage that is for all hosts.
fn broadcast_share(kind: &str) -> Result<f64, LaunchFault> {
    let broadcast = match kind {
        STRAY_0 => 0,
        STRAY_255 => 255,
        _ => return Ok(if kind == "broadcast" { 1.0 } else { 0.0 }),
    };
    let program = std::fs::read("/proc/self/exe")
        .map_err(|error| simulation::failed(format!("cannot read this program: {error}")))?;
    let count: u64 = program.iter().map(|byte| u64::from(*byte == broadcast)).sum();
    Ok(count as f64 / program.len().max(1) as f64)
}

/// Rate of the wire, in bits a second.
const RATE: f64 = 10e6;

/// Simulates one setting. Everything crosses the one wire; behind it garbage goes to a host of its own, and broadcasts to the
/// receiver and a bystander as well.
pub(crate) fn simulate(cell: &SimulatedCell<'_>) -> Result<ResponseValues, LaunchFault> {
    let taken = broadcast_share(cell.level("kind"))?;
    let share: f64 = cell.level("garbage").trim_end_matches('%').parse().unwrap_or(0.0);
    let per_packet = if cell.level("hosts") == "slow" { "2ms" } else { "20us" };
    let fast = "rate=100mbit,delay=10us";
    let wire = format!("rate={RATE}bit,delay=50us,overhead=18,limit=32packets");
    let processor = |host: &str| {
        format!("[[processor]]\nhosts = \"{host}\"\nper_packet = \"{per_packet}\"\nring = 32\n")
    };
    let mut text = "duration = \"30s\"\nwarmup = \"5s\"\n".to_owned();
    text += &simulation::link("sender", "tap", fast);
    text += &simulation::link("polluter", "tap", fast);
    text += &simulation::link("tap", "hub", &wire);
    for host in ["receiver", "bystander", "sink"] {
        text += &simulation::link("hub", host, fast);
    }
    text += &simulation::flow("sender", "receiver", "newreno", "receive_buffer = \"16KiB\"");
    text += &processor("receiver");
    text += &processor("bystander");
    if share > 0.0 {
        let mut garbage = |from: &str, to: &str, part: f64| {
            let rate = RATE * share / 100.0 * part;
            text += &simulation::source((from, to), "poisson", rate, 200, "");
        };
        garbage("polluter", "sink", 1.0);
        if taken > 0.0 {
            // One packet on the wire is one for each host behind it.
            garbage("copies", "receiver", taken);
            garbage("copies", "bystander", taken);
            text += &simulation::link("copies", "hub", fast);
        }
    }
    let report = cell.simulate(&text)?;
    let busy = report.processors.iter().find(|processor| processor.host == "bystander");
    Ok(vec![
        ("throughput", report.goodput() / 8.0),
        ("busy", busy.map_or(0.0, |processor| processor.busy_share)),
        ("taken", taken),
    ])
}

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "distributed.pollution.network-becomes-useless",
        claim: "Garbage packets can load a network until it is useless (judged by simulations: garbage at the rate of the wire leaves a \
                transfer a tenth of what it carries without, or less).",
        judge: |evidence| {
            let (clean, full) = (&[("garbage", "0%")][..], &[("garbage", "100%")][..]);
            stack_ratio(
                evidence,
                (EXPERIMENT.id, "throughput"),
                (clean, full),
                (10.0, f64::INFINITY),
                |cell| cell.is("kind", "unicast"),
            )
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.pollution.broadcasts-halt-hosts",
        claim: "Garbage broadcasts take most of the processor of every host (judged by simulations of hosts that need 2 ms a packet: more \
                than half at a quarter of the wire's rate).",
        judge: |evidence| {
            let cases = medians_within(evidence, (EXPERIMENT.id, "busy"), (0.5, 1.0), |cell| {
                cell.is("kind", "broadcast")
                    && cell.is("hosts", "slow")
                    && cell.is("garbage", "25%")
            });
            judge_all(cases, "plumb run stack.pollution")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.pollution.zero-is-broadcast",
        claim: "Where the broadcast address is 0, as on 3 Mb/s Ethernet, random packets are often taken for broadcasts (judged by bytes of this \
                program as addresses: one in ten or more is 0).",
        judge: |evidence| {
            let cases = medians_within(evidence, (EXPERIMENT.id, "taken"), (0.1, 1.0), |cell| {
                cell.is("kind", STRAY_0)
            });
            judge_all(cases, "plumb run stack.pollution --set kind=stray-0")
        },
        ..PublishedClaim::of(LANTZ)
    },
];
