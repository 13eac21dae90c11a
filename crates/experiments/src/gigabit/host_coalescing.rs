//! `host.coalescing`: what receiving in batches gives, and what it costs the single message.
//!
//! Over a virtual Ethernet whose devices take no more than a packet at a time, so that there is something to
//! join. Its devices take no interrupt; what a card's coalescing does, waiting for further packets before the host is
//! told about the first, their poll timer does (napi_defer_hard_irqs and gro_flush_timeout). A simulated host of 733 MHz has interrupts of
//! 2,000 cycles, as the document counts them, and a card with a timer.

use std::collections::BTreeMap;

use plumb_harness::report::LaunchFault;
use plumb_harness::spec::{DeviceOptions, PathKind, PathSpec, SocketOptions};
use plumb_report::figure::by_level::{self, LevelPlot};
use plumb_report::figure::spread;

use crate::claims::{WEIGLE, gain, order_cases, place_label};
use crate::factor::channel::LATENCY;
use crate::factor::link::{self, VETH};
use crate::factor::remote;
use crate::factor::streams::{
    self, CONGESTION_CONTROL, OTHER_CPU_PLACEMENT, RECEIVER_CPU, SENDER_CPU, STREAMED,
};
use crate::pages::{LEVEL_PICTURES, RESPONSES, against, best_tile};
use crate::prelude::*;
use crate::simulation::{self, ResponseValues, SimulatedCell};

/// Throughput and latency against batching at the receiver.
pub static EXPERIMENT: Experiment = Experiment {
    id: "host.coalescing",
    study: "gigabit",
    question: "What does it give, and what does it cost, to receive in batches?",
    hypothesis: "Joined packets and fewer wake-ups carry more for the same CPU; a single message is \
                 the later by the time that it waits for others.",
    factors: &[
        Factor::of_words(
            "receive",
            "how packets come in: each by itself, joined (GRO, in batches), the same and they wait up to \
             100 µs for others, the same without and its receiver asks for 50 µs before it sleeps, or each \
             and the receiver is woken for 32 KiB; or simulated, with an interrupt for each, or one after a time",
            &LEVELS,
        )
        .labelled(&[
            ("each", "each by itself"),
            ("joined", "joined"),
            ("delayed", "joined after up to 100 µs"),
            ("busy-poll", "joined, busy poll"),
            ("low-water", "each, low water 32 KiB"),
            ("sim-each", "simulated, an interrupt each"),
            ("sim-20us", "simulated, after 20 µs"),
            ("sim-100us", "simulated, after 100 µs"),
            ("sim-500us", "simulated, after 500 µs"),
        ]),
        Factor { applies: is_real, ..OTHER_CPU_PLACEMENT },
        Factor { applies: is_real, ..CONGESTION_CONTROL },
    ],
    responses: &[STREAMED, SENDER_CPU, RECEIVER_CPU, LATENCY],
    plan_cell,
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Receiving in batches",
        figures: Some(figures),
        sentences: |data| {
            let of = |response, what| against(&data.cells, &RECEIVE, "each", response, what);
            [of("throughput", "throughput"), of("latency", "latency of a small message")].concat()
        },
        tiles: |data| best_tile(data, "throughput", "highest throughput", false),
        tile_rank: 3,
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

const LEVELS: [&str; 9] = [
    "each",
    "joined",
    "delayed",
    "busy-poll",
    "low-water",
    "sim-each",
    "sim-20us",
    "sim-100us",
    "sim-500us",
];

/// For [`Factor::applies`].
fn is_real(first: &Factors) -> bool {
    !first.text("receive").is_some_and(|receive| receive.starts_with("sim-"))
}

/// Nanoseconds of an interrupt of 2,000 cycles at 733 MHz, and of the rest of a packet at the published 420 Mb/s.
const INTERRUPT_NS: u64 = 2_729;
const PACKET_NS: u64 = 28_571 - INTERRUPT_NS;

/// Simulates one setting: a transfer that the receiver's processor bounds, and single small packets to an idle receiver.
pub(crate) fn simulate(cell: &SimulatedCell<'_>) -> Result<ResponseValues, LaunchFault> {
    // As Linux 2.2 does, which is interrupted for each packet however busy it is.
    let costs = match cell.level("receive").trim_start_matches("sim-") {
        "each" => format!("per_packet = \"{}ns\"", PACKET_NS + INTERRUPT_NS),
        after => format!(
            "per_packet = \"{PACKET_NS}ns\"\nper_interrupt = \"{INTERRUPT_NS}ns\"\ncoalesce = \"{after}\""
        ),
    };
    let links =
        simulation::chain("rate=1gbit,delay=20us", "rate=1gbit,delay=20us,limit=1000packets");
    let host = format!("{links}[[processor]]\nhosts = \"right\"\n{costs}\nring = 512\n");
    let transfer = format!(
        "duration = \"300ms\"\nwarmup = \"100ms\"\n{host}[[flow]]\nfrom = \"left\"\nto = \"right\"\ncongestion = \"fixed:262144\"\n"
    );
    let single = format!(
        "duration = \"2s\"\n{host}[[source]]\npattern = \"poisson\"\nfrom = \"left\"\nto = \"right\"\nrate = \"500kbit\"\nsize = {SMALL}\n"
    );
    let latency = cell.simulate(&single)?.sources[0].delays.quantile(0.5);
    Ok(vec![
        (STREAMED.name, cell.simulate(&transfer)?.goodput() / 8.0),
        (LATENCY.name, latency as f64),
    ])
}

/// Bytes of the message whose latency is measured.
const SMALL: u64 = 64;
/// Microseconds that a receiver asks before it sleeps: the value that net.core.busy_read is advised to have
/// (Documentation/admin-guide/sysctl/net.rst).
const BUSY_POLL_US: u32 = 50;
/// What drivers of gigabit cards wait for about (ethtool -c, rx-usecs).
const INTERRUPT_DELAY_NS: u32 = 100_000;
/// Bytes that must wait before a receiver is woken: half a message.
const LOW_WATER: u32 = 32 << 10;

fn plan_cell(point: &DesignPoint<'_>) -> CellDecision {
    if !is_real(point.factors) {
        return match point.response {
            response if response == STREAMED.name || response == LATENCY.name => {
                Ok(simulation::cell(EXPERIMENT.id, point))
            }
            _ => Err(Exclusion::NotApplicable),
        };
    }
    link::require_own_devices(point.surroundings, "switch it with 'ethtool -K DEVICE gro on|off'")?;
    let receive = point.text("receive").unwrap_or("each");
    let busy_poll_us = (receive == "busy-poll").then_some(BUSY_POLL_US);
    let path = veth(receive);
    let set = |options: &mut SocketOptions| options.busy_poll_us = busy_poll_us;
    if point.response == LATENCY.name {
        if receive == "low-water" {
            return Err(Exclusion::impossible(
                "a message shorter than the low-water mark waits until others have filled it",
            ));
        }
        let group = remote::launch_group_over(point, Mechanism::Tcp4, path, set)?;
        return Ok((group, BlockTask::Latency { size: SMALL }));
    }
    streams::over_path(point, path, |spec| {
        set(&mut spec.options);
        spec.low_water = (receive == "low-water").then_some(LOW_WATER);
    })
}

/// A virtual Ethernet that carries packets and nothing longer.
fn veth(receive: &str) -> PathSpec {
    let joins = matches!(receive, "joined" | "delayed" | "busy-poll");
    let delay = (receive == "delayed").then_some(INTERRUPT_DELAY_NS);
    let receive = match (joins, delay) {
        (_, Some(_)) => "delayed",
        (true, None) => "joined",
        (false, None) => "each",
    };
    let device = DeviceOptions {
        segmentation: Some(false),
        coalescing: Some(joins),
        interrupt_delay_ns: delay,
    };
    PathSpec { device, ..link::path(&format!("{VETH}, {receive}"), PathKind::Veth) }
}

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "gigabit.coalescing.ten-percent",
        claim: "Interrupt coalescing gives another 10 % (judged by the poll timer of a virtual Ethernet).",
        historical: Some("10 %"),
        figures: &[PublishedFigure::ratio("coalescing to none", 1.1, "10 %")],
        judge: |evidence| gain(evidence, (EXPERIMENT.id, "receive"), ("delayed", "joined"), TEN),
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.coalescing.latency-pays",
        claim: "Interrupt coalescing increases the latency of each individual packet (judged by the poll timer of a \
                virtual Ethernet).",
        historical: Some("a trade-off; no figure"),
        judge: coalescing_adds_latency,
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.coalescing.trade-off",
        claim: "Interrupt coalescing forces a trade-off: the longer packets wait for others, the more is carried and the later each comes \
                (judged by simulations of a host of 733 MHz with interrupts of 2,000 cycles, from each wait to the next).",
        historical: Some("a trade-off; no figure"),
        judge: |evidence| {
            let mut found = ClaimCases::default();
            for pair in LEVELS[5..].windows(2) {
                let (short, long) = (&[("receive", pair[0])][..], &[("receive", pair[1])][..]);
                let more =
                    order_cases(evidence, (EXPERIMENT.id, STREAMED.name), (long, short), |_| true);
                let later =
                    order_cases(evidence, (EXPERIMENT.id, LATENCY.name), (short, long), |_| true);
                found.cases.extend(more.cases.into_iter().chain(later.cases));
            }
            judge_all(
                found,
                "plumb run host.coalescing --set receive=sim-each,sim-20us,sim-100us,sim-500us",
            )
        },
        ..PublishedClaim::of(WEIGLE)
    },
];

/// "10 %": half as much and twice as much are about it.
const TEN: (f64, f64) = (1.05, 1.20);

/// A small message whose device waits for others against one whose device does not; nothing else differs.
fn coalescing_adds_latency(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let is = |level| move |cell: &MeasuredCell<'_>| cell.is("receive", level);
    let found = ClaimCases::of_twins(
        evidence.twins(EXPERIMENT.id, "latency", "receive", is("delayed"), is("joined")),
        |delayed, joined| {
            ClaimCase::order(&place_label(joined), "delayed/joined".to_owned(), joined, delayed)
        },
        |delayed| format!("joined without delay, {}", place_label(delayed)),
    );
    judge_all(found, "plumb run host.coalescing --set receive=joined,delayed")
}

const RECEIVE: LevelPlot = LevelPlot {
    factor: "receive",
    order: &LEVELS,
    panel_factors: &["placement"],
    pictures: LEVEL_PICTURES,
};

fn figures(data: &PageData<'_>) -> Vec<Figure> {
    let mut figures = by_level::figures(&data.cells, &RECEIVE);
    let mut places: BTreeMap<usize, Vec<&CellResult>> = BTreeMap::new();
    for cell in data.cells.iter().filter(|cell| cell.response == "latency") {
        places.entry(name::placement_order(cell)).or_default().push(cell);
    }
    figures.extend(places.values().filter_map(|cells| {
        let place = name::placement(cells.first()?.level("placement"));
        spread::quantiles(&format!("Latency of a small message: distribution, {place}"), cells)
    }));
    figures
}
