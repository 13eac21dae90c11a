//! `flood.host`: what a server still serves while others send it as much as they can.
//!
//! Simulated. Each attacker is a PC that makes a packet in as much time as the server needs to take one; what arrives of that depends on its
//! link. The packets are noise, or SYNs from forged addresses, of which each makes the server remember a connection that never comes.
//! Honest clients send a request of 4 kB each, 20 a second, for six seconds.

use plumb_base::time::Span;
use plumb_harness::report::LaunchFault;
use plumb_report::figure::against_factor::{self, FactorPlot, FactorScale};

use crate::claims::{WEIGLE, medians_within};
use crate::prelude::*;
use crate::simulation::{self, ResponseValues, SimulatedCell};

/// Requests served, by attackers, their links, and the defence.
pub static EXPERIMENT: Experiment = Experiment {
    id: "flood.host",
    study: "gigabit",
    question: "How many attackers does it take to overwhelm a server, and what stops them?",
    hypothesis: "Where the attackers' links are faster than their processors, as few of them as the server has times their power leave it no \
                 time for others; behind modems thousands would not. Queues by flow before the server, or a rate that the network allows \
                 each, give it its time back. Forged SYNs need no rate: one modem fills the server's memory, unless it answers with \
                 cookies.",
    factors: &[
        Factor::of_words("access", "link of each attacker", &["56kbit", "1500kbit", "100mbit"])
            .labelled(&[("56kbit", "modem"), ("1500kbit", "DSL"), ("100mbit", "fast Ethernet")]),
        Factor::new("attackers", "how many", FactorDomain::Between(0, 256, "a number"), Numbers(&[0, 1, 4, 16, 64]))
            .at_quick(Numbers(&[0, 1, 4])),
        Factor::of_words("attack", "packets that mean nothing, or SYNs from forged addresses", &["packets", "syn"])
            .labelled(&[("packets", "meaningless packets"), ("syn", "forged SYNs")]),
        Factor::of_words(
            "defence",
            "nothing; before the server a queue by flow on its link, which is slower than the server then, or a policer of 500 kb/s \
             on the link of each attacker; SYN cookies",
            &["none", "fair", "policed", "cookies"],
        )
        .labelled(&[
            ("none", "no defence"),
            ("fair", "queue by flow"),
            ("policed", "policed at their links"),
            ("cookies", "SYN cookies"),
        ]),
    ],
    responses: &[
        ResponseVariable::share("served", Better::Higher, "share of honest requests that are read within 2 s"),
        ResponseVariable::share("busy", Better::Lower, "share of the server's time that it is busy"),
        ResponseVariable::time("recovery", "time after the attack until everything that was asked is read"),
    ],
    plan_cell: |point| match (point.text("attack"), point.text("defence")) {
        (Some("packets"), Some("cookies")) | (Some("syn"), Some("fair" | "policed")) => {
            Err(Exclusion::NotApplicable)
        }
        _ => Ok(simulation::cell(EXPERIMENT.id, point)),
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "A server under a flood",
        figures: Some(|data| against_factor::figures(&data.cells, &ATTACKERS)),
        responses: &[("served", "requests served"), ("busy", "server busy"), ("recovery", "recovery")],
        ..ExperimentPage::PLAIN
    },
};

const ATTACKERS: FactorPlot = FactorPlot {
    factor: "attackers",
    label: "attackers",
    unit: "count",
    scale: FactorScale::Linear,
    panel_factors: &["attack", "defence"],
    pictures: &[
        ("Requests served", &["served"]),
        ("Server busy", &["busy"]),
        ("Recovery", &["recovery"]),
    ],
    power_law_responses: &[],
};

/// Time that a PC or the server needs for a packet: 20,000 packets a second, what a machine of 733 MHz does at 2 × 18,000 cycles.
const PACKET_US: u64 = 50;
/// Bytes of a packet of an attack.
const PACKET: u64 = 128;
/// Bytes of a SYN.
const SYN: u64 = 40;
/// Bytes of an honest request.
const REQUEST: u64 = 4_000;
/// A request that takes longer is not served.
const SERVED: Span = Span::from_secs(2);
/// Honest requests, and the seconds between which they come; the attack ends with them.
const REQUESTS: u64 = 120;
const BEGIN_S: u64 = 1;
const END_S: u64 = 7;

/// Simulates one setting.
pub(crate) fn simulate(cell: &SimulatedCell<'_>) -> Result<ResponseValues, LaunchFault> {
    let attackers: u64 = cell.number("attackers")?;
    let access = cell.level("access");
    let flood = PACKET * 8 * 1_000_000 / PACKET_US;
    let police = if cell.level("defence") == "policed" { ",police=500kbit/16KiB" } else { "" };
    let queue = match cell.level("defence") {
        // A link that carries fewer packets than the server can take, so that they wait where they are told apart.
        "fair" => {
            format!("rate={}bit,delay=1ms,queue=drr,quantum=300,limit=2000packets", flood / 2)
        }
        _ => "rate=1gbit,delay=1ms,limit=1000packets".to_owned(),
    };
    let gap = (END_S - BEGIN_S) * 1_000_000 / REQUESTS;
    let is_syn = cell.level("attack") == "syn";
    let cookies = if is_syn { cell.level("defence") == "cookies" } else { true };
    let mut text = format!(
        "duration = \"12s\"\n\
         [[link]]\nbetween = [\"router\", \"server\"]\nlink = \"{queue}|rate=1gbit,delay=1ms\"\n\
         [[link]]\nbetween = [\"client\", \"router\"]\nlink = \"rate=100mbit,delay=10ms\"\n\
         [[flow]]\nname = \"requests\"\nsyn_cookies = {cookies}\nfrom = \"client\"\nto = \"server\"\nbytes = \"{REQUEST}\"\ncount = {REQUESTS}\nstart = \"{BEGIN_S}s..{BEGIN_S}.1s\"\n\
         stagger = \"{gap}us\"\n\
         [[processor]]\nhosts = \"server\"\nper_packet = \"{PACKET_US}us\"\nring = 256\n"
    );
    for number in 0..attackers {
        let from = format!("attacker{number}");
        let up =
            format!("rate={access},delay=10ms,limit=50packets{police}|rate={access},delay=10ms");
        let stop = format!("stop = \"{END_S}s\"");
        text += &simulation::link(&from, "router", &up);
        text += &if is_syn {
            let flood = SYN * 8 * 1_000_000 / PACKET_US;
            let more = format!("floods = \"requests\"\n{stop}");
            simulation::source((&from, "server"), "poisson", flood as f64, SYN, &more)
        } else {
            simulation::source((&from, "server"), "poisson", flood as f64, PACKET, &stop)
        };
    }
    let report = cell.simulate(&text)?;
    let took = report.flows.iter().map(|flow| flow.ended.map(|end| end.saturating_sub(flow.start)));
    let served = took.flatten().filter(|took| *took <= SERVED).count();
    let last = report
        .flows
        .iter()
        .map(|flow| flow.ended.unwrap_or(report.elapsed))
        .max()
        .unwrap_or_default();
    Ok(vec![
        ("served", served as f64 / REQUESTS as f64),
        ("busy", report.processors.first().map_or(0.0, |processor| processor.busy_share)),
        ("recovery", last.saturating_sub(Span::from_secs(END_S)).as_ns() as f64),
    ])
}

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "gigabit.flood.few-pcs-overwhelm-a-server",
        claim: "Where links do not bound delivery, a few PCs that send as fast as they can overwhelm a server (judged by simulations: four of \
                the server's power on fast Ethernet leave half of the honest requests unserved, or more).",
        judge: |evidence| {
            let cases = medians_within(evidence, (EXPERIMENT.id, "served"), (0.0, 0.5), |cell| {
                cell.is("access", "100mbit") && is_undefended(cell, 4)
            });
            judge_all(cases, "plumb run flood.host --set access=100mbit --set attackers=4")
        },
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.flood.the-link-is-the-throttle",
        claim: "A slow link protects a server by throttling the attackers (judged by simulations: as many behind modems leave nine of ten \
                honest requests served, or more, where those on fast Ethernet leave half or fewer).",
        judge: |evidence| {
            let of = |access: &'static str, bounds| {
                medians_within(evidence, (EXPERIMENT.id, "served"), bounds, move |cell| {
                    cell.is("access", access) && is_undefended(cell, 4)
                })
            };
            let mut found = of("56kbit", (0.9, f64::INFINITY));
            found.cases.extend(of("100mbit", (0.0, 0.5)).cases);
            judge_all(found, "plumb run flood.host --set attackers=4")
        },
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.flood.tcp-has-no-defence",
        claim: "TCP contains no effective security mechanisms (judged by simulations: forged SYNs that a modem carries leave half of the \
                honest requests unserved, or more, of a server that answers with SYN cookies).",
        judge: |evidence| {
            let cases = medians_within(evidence, (EXPERIMENT.id, "served"), (0.0, 0.5), |cell| {
                cell.is("access", "56kbit")
                    && cell.is("attackers", 1_u64)
                    && cell.is("defence", "cookies")
            });
            judge_all(cases, "plumb run flood.host --set attack=syn --set access=56kbit")
        },
        ..PublishedClaim::of(WEIGLE)
    },
];

/// So many attackers send packets, and nothing stops them.
fn is_undefended(cell: &MeasuredCell<'_>, attackers: u64) -> bool {
    cell.is("attackers", attackers) && cell.is("attack", "packets") && cell.is("defence", "none")
}
