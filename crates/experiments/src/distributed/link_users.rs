//! `link.users`: users who share a host and its network, each at a workstation of 1985.
//!
//! After Lantz, Nowicki & Theimer (1985, §10). Simulated: a packet of 1,000 bytes and half an acknowledgement take a workstation the report's 18 ms,
//! and the host an eighth of that.

use plumb_harness::report::LaunchFault;
use plumb_report::figure::by_level::{self, LevelPlot};

use super::stack_remote::{BYTE_NS, PACKET_US};
use crate::claims::{LANTZ, medians_within, pairs_within};
use crate::pages::against;
use crate::prelude::*;
use crate::simulation::{self, ResponseValues, SimulatedCell};

/// Users, a network and a host a cell.
pub static EXPERIMENT: Experiment = Experiment {
    id: "link.users",
    study: "distributed",
    question: "Do a faster network and a faster host make a user faster, or more users as fast as one?",
    hypothesis: "One user is bound by the workstation, whatever lies behind it. Where many share a link or a host that is full, each gets more of a \
                 faster one.",
    factors: &[
        Factor::new(
            "users",
            "workstations that get something at the same time",
            FactorDomain::Between(1, 64, "users"),
            Numbers(&[1, 4, 16]),
        )
        .at_quick(Numbers(&[1, 16])),
        Factor::of_words("host", "speed of the host that serves them", &["1x", "4x"]),
        Factor::of_words(
            "link",
            "rate of the network that all users share",
            &["3mbit", "10mbit", "100mbit"],
        ),
    ],
    responses: &[
        ResponseVariable::rate("throughput", "bytes a second that a user gets"),
        ResponseVariable::share(
            "busy",
            Better::Lower,
            "share of time that a workstation's processor is busy",
        ),
    ],
    plan_cell: |point| Ok(simulation::cell(EXPERIMENT.id, point)),
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Users who share a network and a host",
        figures: Some(|data| by_level::figures(&data.cells, &PLOT)),
        sentences: |data| against(&data.cells, &PLOT, "10mbit", "throughput", "throughput"),
        responses: &[("throughput", "throughput of a user"), ("busy", "workstation busy")],
        ..ExperimentPage::PLAIN
    },
};

const PLOT: LevelPlot = LevelPlot {
    factor: "link",
    order: &["3mbit", "10mbit", "100mbit"],
    panel_factors: &["users", "host"],
    pictures: &[("Throughput of a user", &["throughput"], false)],
};

/// How many times as fast as a workstation the slower host is.
const HOST: f64 = 8.0;

/// Simulates one setting: files from the host, all at once.
pub(crate) fn simulate(cell: &SimulatedCell<'_>) -> Result<ResponseValues, LaunchFault> {
    let users: u64 = cell.number("users")?;
    let host = if cell.level("host") == "4x" { 4.0 * HOST } else { HOST };
    let shared = format!("rate={},delay=10us,limit=100packets", cell.level("link"));
    let mut text = "duration = \"70s\"\nwarmup = \"10s\"\n".to_owned();
    text += &simulation::link("host", "ethernet", &shared);
    for number in 1..=users {
        let workstation = format!("workstation{number}");
        text +=
            &simulation::link(&workstation, "ethernet", "rate=100mbit,delay=10us,limit=100packets");
    }
    for (hosts, speed) in [("host", host), ("workstation*", 1.0)] {
        text += &simulation::processor(hosts, PACKET_US / speed, BYTE_NS / speed);
    }
    let options = "start = \"1s..2s\"\nreceive_buffer = \"4Ki\"\nmss = 1000\ntimestamps = false\n";
    text += &simulation::flow("host", "workstation*", "fixed:4096", options);
    let report = cell.simulate(&text)?;
    let workstation = report.processors.iter().find(|it| it.host == "workstation1");
    let busy = workstation.map_or(0.0, |processor| processor.busy_share);
    Ok(vec![("throughput", report.goodput() / 8.0 / users as f64), ("busy", busy)])
}

/// No user is faster by it, and more are as fast: half as much again, or more.
const NONE: (f64, f64) = (0.95, 1.05);
const MORE: (f64, f64) = (1.5, f64::INFINITY);

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "distributed.link.more-users-not-faster-ones",
        claim: "Offloading and more bandwidth let more users share a resource but make none of them faster (judged by a network of 10 Mb/s instead of 3, \
            and a host of four times the speed: at most a twentieth for one user, half as much again or more for each of sixteen).",
        judge: |evidence| {
            let changes = [
                (("host", "4x"), &[("link", "10mbit")][..], &[("link", "3mbit")][..]),
                (("link", "100mbit"), &[("host", "4x")][..], &[("host", "1x")][..]),
            ];
            let cases = changes.into_iter().flat_map(|((other, level), more, less)| {
                [(1_u64, NONE), (16, MORE)].into_iter().flat_map(move |(users, bounds)| {
                    pairs_within(
                        evidence,
                        (EXPERIMENT.id, "throughput"),
                        (more, less),
                        bounds,
                        |cell| cell.is(other, level) && cell.is("users", users),
                    )
                })
            });
            judge_all(cases.collect(), "plumb run link.users")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.nic.bandwidth-exceeds-interface",
        claim: "Network bandwidth far exceeds what interfaces carry, so that many network operations are bound by the CPU (judged by one user on \
                10 Mb/s: a fifth of it at most, with a processor that is busy nine tenths of the time or more).",
        judge: |evidence| {
            let is_one =
                |cell: &MeasuredCell<'_>| cell.is("users", 1_u64) && cell.is("link", "10mbit");
            let used = medians_within(evidence, (EXPERIMENT.id, "throughput"), A_FIFTH, is_one);
            let busy = medians_within(evidence, (EXPERIMENT.id, "busy"), (0.9, 1.0), is_one);
            judge_all(used.cases.into_iter().chain(busy.cases).collect(), "plumb run link.users")
        },
        ..PublishedClaim::of(LANTZ)
    },
];

/// A fifth of 10 Mb/s, in bytes a second, at most.
const A_FIFTH: (f64, f64) = (0.0, 10e6 / 8.0 / 5.0);
