//! The trials: a scenario and a measure for each question.

use super::{BetterDirection, CongestionTrial};
use crate::report::{FlowReport, SimulationReport};

use BetterDirection::{Higher, Lower};

/// All of them, by section.
pub(super) const TRIALS: &[CongestionTrial] = &[
    CongestionTrial {
        section: "5.1.1",
        topic: "congestion collapse",
        measure: "loss with 50 connections at 2 Mb/s",
        unit: "%",
        better: Lower,
        scenario: || dumbbell(50, "rate=2mbit,delay=18ms,limit=30packets", 60, 20, SUBJECTS),
        value: bottleneck_loss,
    },
    CongestionTrial {
        section: "5.1.1",
        topic: "congestion collapse",
        measure: "packets sent in an outage of 20 s",
        unit: "",
        better: Lower,
        // The warm-up ends 1 s after the outage begins.
        scenario: || dumbbell(1, "rate=20mbit,delay=18ms,blackout=30s/20s", 49, 31, SUBJECTS),
        value: |report| report.flows.iter().map(|flow| flow.counts.sent.segments as f64).sum(),
    },
    CongestionTrial {
        section: "5.1.2",
        topic: "bufferbloat",
        measure: "mean wait in a buffer of 10 products of rate and delay",
        unit: "ms",
        better: Lower,
        scenario: || dumbbell(1, "rate=20mbit,delay=18ms,limit=10bdp", 90, 30, SUBJECTS),
        value: bottleneck_wait,
    },
    CongestionTrial {
        section: "5.1.3",
        topic: "high packet loss",
        measure: "used share at 5 % random loss",
        unit: "%",
        better: Higher,
        scenario: || {
            dumbbell(1, "rate=20mbit,delay=18ms,loss=5%|rate=20mbit,delay=18ms", 60, 10, SUBJECTS)
        },
        value: used_share,
    },
    CongestionTrial {
        section: "5.1.4",
        topic: "fairness within the algorithm",
        measure: "Jain's index of 4 connections that start 10 s apart",
        unit: "",
        better: Higher,
        scenario: || {
            let flows = "[[flow]]\nname = \"subject\"\nfrom = \"left*\"\nto = \"right*\"\nstagger = \"10s\"\n";
            dumbbell(4, "rate=20mbit,delay=18ms,limit=1bdp", 150, 60, flows)
        },
        value: |report| report.fairness().unwrap_or(1.0),
    },
    CongestionTrial {
        section: "5.1.5",
        topic: "short flows",
        measure: "time of 100 kB on an idle path of 40 ms",
        unit: "ms",
        better: Lower,
        scenario: || {
            let flow = "[[flow]]\nname = \"subject\"\nfrom = \"left1\"\nto = \"right1\"\nbytes = \"100kB\"\n";
            dumbbell(1, "rate=20mbit,delay=18ms,limit=1bdp", 30, 0, flow)
        },
        value: |report| completion(&report.flows[0]),
    },
    CongestionTrial {
        section: "5.2.1",
        topic: "beside CUBIC",
        measure: "what CUBIC gets of its fair share",
        unit: "%",
        better: Higher,
        scenario: || beside("cubic"),
        value: share_of_other,
    },
    CongestionTrial {
        section: "5.2.1",
        topic: "beside NewReno",
        measure: "what NewReno gets of its fair share",
        unit: "%",
        better: Higher,
        scenario: || beside("newreno"),
        value: share_of_other,
    },
    CongestionTrial {
        section: "5.2.2",
        topic: "real-time traffic",
        measure: "99 % of delays of a call, 20 ms alone",
        unit: "ms",
        better: Lower,
        scenario: || {
            let call = "[[source]]\npattern = \"constant\"\nfrom = \"left2\"\nto = \"right2\"\nrate = \"80kbit\"\nsize = 200\n";
            dumbbell(2, "rate=20mbit,delay=18ms,limit=2bdp", 90, 30, &format!("{SUBJECT}{call}"))
        },
        value: |report| report.sources[0].delays.quantile(0.99) as f64 / 1e6,
    },
    CongestionTrial {
        section: "5.2.3",
        topic: "short beside long flows",
        measure: "mean time of 100 kB of CUBIC beside a long flow",
        unit: "ms",
        better: Lower,
        scenario: || {
            let short = "[[flow]]\nname = \"short\"\nfrom = \"left2\"\nto = \"right2\"\nbytes = \"100kB\"\ncount = 40\nstart = \"20s\"\nstagger = \"2s\"\n";
            dumbbell(2, "rate=20mbit,delay=18ms,limit=1bdp", 110, 20, &format!("{SUBJECT}{short}"))
        },
        value: |report| {
            let short: Vec<f64> =
                report.flows.iter().filter(|flow| flow.group == "short").map(completion).collect();
            short.iter().sum::<f64>() / short.len() as f64
        },
    },
    CongestionTrial {
        section: "6.1",
        topic: "tail-drop queues",
        measure: "used share, buffer of 1 product",
        unit: "%",
        better: Higher,
        scenario: || dumbbell(1, "rate=20mbit,delay=18ms,limit=1bdp", 120, 30, SUBJECTS),
        value: used_share,
    },
    CongestionTrial {
        section: "6.1",
        topic: "tail-drop queues",
        measure: "loss of 4 connections, buffer of ½ product",
        unit: "%",
        better: Lower,
        scenario: || dumbbell(4, "rate=20mbit,delay=18ms,limit=0.5bdp", 120, 30, SUBJECTS),
        value: bottleneck_loss,
    },
    CongestionTrial {
        section: "6.3",
        topic: "wired paths",
        measure: "used share of 200 Mb/s over 40 ms",
        unit: "%",
        better: Higher,
        scenario: || dumbbell(1, "rate=200mbit,delay=18ms,limit=1bdp", 60, 20, SUBJECTS),
        value: used_share,
    },
    CongestionTrial {
        section: "6.4",
        topic: "wireless paths",
        measure: "used share, 1 % loss in bursts, jitter",
        unit: "%",
        better: Higher,
        scenario: || {
            let link = "rate=20mbit,delay=15ms..25ms,gilbert-elliott=0.2%/20%|rate=20mbit,delay=15ms..25ms";
            dumbbell(1, link, 60, 10, SUBJECTS)
        },
        value: used_share,
    },
    CongestionTrial {
        section: "7.1",
        topic: "active queue management",
        measure: "used share with CoDel",
        unit: "%",
        better: Higher,
        scenario: || dumbbell(1, "rate=20mbit,delay=18ms,queue=codel", 90, 30, SUBJECTS),
        value: used_share,
    },
    CongestionTrial {
        section: "7.1",
        topic: "active queue management",
        measure: "mean wait with PIE",
        unit: "ms",
        better: Lower,
        scenario: || dumbbell(4, "rate=20mbit,delay=18ms,queue=pie", 90, 30, SUBJECTS),
        value: bottleneck_wait,
    },
    CongestionTrial {
        section: "7.1",
        topic: "active queue management",
        measure: "used share with FQ-CoDel that marks",
        unit: "%",
        better: Higher,
        scenario: || {
            let flow =
                "[[flow]]\nname = \"subject\"\nfrom = \"left*\"\nto = \"right*\"\necn = true\n";
            dumbbell(4, "rate=20mbit,delay=18ms,queue=fq-codel,ecn=yes", 90, 30, flow)
        },
        value: used_share,
    },
    CongestionTrial {
        section: "7.3",
        topic: "varying delay",
        measure: "used share, delay of 10 to 60 ms",
        unit: "%",
        better: Higher,
        scenario: || dumbbell(1, "rate=20mbit,delay=10ms..60ms,limit=100packets", 60, 20, SUBJECTS),
        value: used_share,
    },
    CongestionTrial {
        section: "7.4",
        topic: "constrained nodes",
        measure: "used share of 50 kb/s with a buffer of 4 packets",
        unit: "%",
        better: Higher,
        scenario: || {
            let flow =
                "[[flow]]\nname = \"subject\"\nfrom = \"left1\"\nto = \"right1\"\nmss = 536\n";
            dumbbell(1, "rate=50kbit,delay=100ms,limit=4packets", 300, 60, flow)
        },
        value: used_share,
    },
    CongestionTrial {
        section: "7.5",
        topic: "high delay",
        measure: "used share of 20 Mb/s over 600 ms",
        unit: "%",
        better: Higher,
        scenario: || dumbbell(1, "rate=20mbit,delay=298ms,limit=1bdp", 240, 60, SUBJECTS),
        value: used_share,
    },
    CongestionTrial {
        section: "7.7",
        topic: "extreme reordering",
        measure: "used share, 5 % of packets 10 ms late",
        unit: "%",
        better: Higher,
        scenario: || dumbbell(1, "rate=20mbit,delay=18ms,reorder=5%/10ms", 60, 20, SUBJECTS),
        value: used_share,
    },
    CongestionTrial {
        section: "7.8",
        topic: "transient events",
        measure: "used share in 10 s after a burst of 10 s",
        unit: "%",
        better: Higher,
        scenario: || {
            let burst = "[[source]]\npattern = \"constant\"\nfrom = \"left2\"\nto = \"right2\"\nrate = \"18mbit\"\nstart = \"20s\"\nstop = \"30s\"\n";
            dumbbell(2, "rate=20mbit,delay=18ms,limit=1bdp", 40, 30, &format!("{SUBJECT}{burst}"))
        },
        value: used_share,
    },
    CongestionTrial {
        section: "7.11",
        topic: "data centers",
        measure: "last of 60 transfers of 64 KiB to one host of a fat tree",
        unit: "ms",
        better: Lower,
        scenario: || {
            "duration = \"5s\"\n[topology]\nkind = \"fat-tree\"\nk = 4\nlink = \"rate=10gbit,delay=2us,limit=100packets\"\n\
             [[flow]]\nname = \"subject\"\nfrom = \"host*\"\nto = \"host1\"\ncount = 4\nbytes = \"64KiB\"\n"
                .to_owned()
        },
        value: |report| report.flows.iter().map(completion).fold(0.0, f64::max),
    },
];

/// One connection of the subject.
const SUBJECT: &str = "[[flow]]\nname = \"subject\"\nfrom = \"left1\"\nto = \"right1\"\n";
/// One from each host; those of many begin at different times.
const SUBJECTS: &str =
    "[[flow]]\nname = \"subject\"\nfrom = \"left*\"\nto = \"right*\"\nstart = \"0s..1s\"\n";

/// A dumbbell of so many pairs, for so many seconds of which the first are warm-up, with this traffic.
fn dumbbell(pairs: u32, bottleneck: &str, seconds: u32, warmup: u32, traffic: &str) -> String {
    format!(
        "duration = \"{seconds}s\"\nwarmup = \"{warmup}s\"\n[topology]\nkind = \"dumbbell\"\npairs = {pairs}\n\
         access = \"rate=1gbit,delay=1ms\"\nbottleneck = \"{bottleneck}\"\n{traffic}"
    )
}

/// A connection of the subject beside another.
fn beside(other: &str) -> String {
    let other = format!(
        "[[flow]]\nname = \"other\"\nfrom = \"left2\"\nto = \"right2\"\nstart = \"5s\"\ncongestion = \"{other}\"\n"
    );
    dumbbell(2, "rate=20mbit,delay=18ms,limit=1bdp", 300, 60, &format!("{SUBJECT}{other}"))
}

/// Of every dumbbell.
const BOTTLENECK: &str = "router1 > router2";

fn used_share(report: &SimulationReport) -> f64 {
    // Goodput, so that what is sent twice does not count; with the headers that each segment has.
    let link = report.link(BOTTLENECK).expect("a dumbbell");
    let rate = link.whole.offered_bits / link.whole.elapsed.as_secs_f64();
    report.goodput() * 1_500.0 / 1_448.0 / rate * 100.0
}

fn bottleneck_loss(report: &SimulationReport) -> f64 {
    report.link(BOTTLENECK).expect("a dumbbell").loss() * 100.0
}

/// By Little's law.
fn bottleneck_wait(report: &SimulationReport) -> f64 {
    let link = report.link(BOTTLENECK).expect("a dumbbell");
    let seconds = report.elapsed.saturating_sub(report.warmup).as_secs_f64();
    link.queue_mean * seconds / link.left.max(1) as f64 * 1e3
}

/// Milliseconds from its start to its end, or to the end of the simulation.
fn completion(flow: &FlowReport) -> f64 {
    let end = flow.ended.unwrap_or(flow.start + flow.active);
    end.saturating_sub(flow.start).as_secs_f64() * 1e3
}

fn share_of_other(report: &SimulationReport) -> f64 {
    let other = report.flows.iter().find(|flow| flow.group == "other").expect("another connection");
    other.goodput() / (report.goodput() / 2.0) * 100.0
}
