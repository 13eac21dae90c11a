//! `display.link`: rates by the rate and delay of the link, in virtual time.
//!
//! After Lantz, Nowicki & Theimer (1985, §8, Tables 8-1 and 8-2): point-to-point lines from 1200 b/s on, the ARPANET, and Ethernets of 3 and
//! 10 Mb/s; and links of today.

use plumb_harness::spec::DisplayPath;
use plumb_report::figure::by_level::{self, LevelPlot};

use crate::claims::{
    LANTZ, gains_in_order, medians_within, order_cases, pairs_within, stack_ratio,
};
use crate::factor::display::{
    BYTES, RATE, RESPONSES, ROUND_TRIPS, SLOW_PERCENT, cell, cell_at, link, rate_at, table_entry,
};
use crate::pages::against;
use crate::prelude::*;

/// A link, a mode and processors a cell.
pub static EXPERIMENT: Experiment = Experiment {
    id: "display.link",
    study: "distributed",
    question: "How much does a remote display gain from a faster link?",
    hypothesis: "With slow processors hardly anything beyond 56 kb/s, and with structure little even below. With processors of today a batch is as \
                 fast as the link up to hundreds of Mb/s, and where every message is waited for the delay decides.",
    factors: &[
        Factor::of_words(
            "processors",
            "as slow as those of 1985, 10,000 times slower than this one, or as they are",
            &["slow", "today"],
        )
        .labelled(&[("slow", "slow processors"), ("today", "processors of today")]),
        Factor::of_words(
            "link",
            "a line of so many bits a second, the ARPANET (56 kb/s, 100 ms each way), or an Ethernet of 1 ms each way; and 56 kb/s with as \
             little delay",
            &LINKS,
        ),
        Factor::of_words(
            "mode",
            "780 rectangles added in batches; the same drawn; structured and drawn; or drawn one by one, waiting for every reply or not",
            &["construction", "batch", "structured", "incremental", "pipelined-incremental"],
        ),
    ],
    responses: &[RATE, BYTES, ROUND_TRIPS],
    plan_cell,
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "The link of a remote display",
        figures: Some(|data| by_level::figures(&data.cells, &PLOT)),
        sentences: |data| against(&data.cells, &PLOT, "10mbit", "rate", "rate"),
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

const LINKS: [&str; 10] = [
    "1200bit", "2400bit", "4800bit", "9600bit", "arpanet", "56kbit", "3mbit", "10mbit", "100mbit",
    "1gbit",
];

const PLOT: LevelPlot = LevelPlot {
    factor: "link",
    order: &LINKS,
    panel_factors: &["processors", "mode"],
    pictures: &[("Rectangles a second", &["rate"], true)],
};

fn plan_cell(point: &DesignPoint<'_>) -> CellDecision {
    let level = |name| point.text(name).unwrap_or_default();
    cell("array", level("mode"), Some(path(level("link"), level("processors"))))
}

/// The path of these levels.
pub(crate) fn path(line: &str, processors: &str) -> DisplayPath {
    let percent = if processors == "slow" { SLOW_PERCENT } else { 100 };
    let link = match line {
        "arpanet" => link("56kbit", "100ms"),
        line if line.ends_with("00bit") => link(line, "0"),
        ethernet => link(ethernet, "1ms"),
    };
    DisplayPath::Virtual { link, slower_percent: [percent; 2], is_shared: false, item_ns: 0 }
}

const RESPONSE: (&str, &str) = ("display.link", "rate");

fn is_slow(cell: &MeasuredCell<'_>) -> bool {
    cell.is("processors", "slow")
}

/// Rectangles of the picture.
const ITEMS: f64 = 780.0;

const COMMAND: &str = "plumb run display.link";

/// The cell of slow processors over a link, in a mode.
fn slow<'a>(evidence: &ClaimEvidence<'a>, link: &str, mode: &str) -> Option<&'a MeasuredCell<'a>> {
    cell_at(evidence, RESPONSE, &[("processors", "slow"), ("link", link), ("mode", mode)])
}

/// The same over two links.
fn slow_pair<'a>(
    evidence: &ClaimEvidence<'a>,
    links: [&str; 2],
    mode: &str,
) -> Option<[&'a MeasuredCell<'a>; 2]> {
    let [fast, late] = links.map(|link| slow(evidence, link, mode));
    Some([fast?, late?])
}

/// The rate of slow processors over a link, for a table.
fn rate_of(evidence: &ClaimEvidence<'_>, link: &str, mode: &str) -> Option<f64> {
    rate_at(evidence, RESPONSE.0, &[("processors", "slow"), ("link", link), ("mode", mode)])
}

/// How much faster slow processors are over the first link than over the second, within bounds.
fn slow_within(
    evidence: &ClaimEvidence<'_>,
    [fast, late]: [&'static str; 2],
    mode: &'static str,
    bounds: (f64, f64),
) -> Vec<ClaimCase> {
    let levels = (&[("link", fast)][..], &[("link", late)][..]);
    pairs_within(evidence, RESPONSE, levels, bounds, |cell| is_slow(cell) && cell.is("mode", mode))
}

/// Table 8-1: two Ethernets alike, and faster than the ARPANET.
fn ethernets_alike(evidence: &ClaimEvidence<'_>, mode: &'static str) -> ClaimJudgment {
    let alike = slow_within(evidence, ["10mbit", "3mbit"], mode, (0.9, 1.1));
    let far = (&[("link", "3mbit")][..], &[("link", "arpanet")][..]);
    let far =
        order_cases(evidence, RESPONSE, far, |cell| is_slow(cell) && cell.is("mode", mode)).cases;
    judge_all(alike.into_iter().chain(far).collect(), COMMAND)
}

/// Table 8-2: twice the rate of a line gives about twice as much, and a thousand times that of the fastest less than a tenth of it.
fn lines_count(evidence: &ClaimEvidence<'_>, mode: &'static str) -> ClaimJudgment {
    let twice = [["2400bit", "1200bit"], ["4800bit", "2400bit"], ["9600bit", "4800bit"]];
    let twice = twice.into_iter().flat_map(|links| slow_within(evidence, links, mode, (1.6, 2.1)));
    let beyond = slow_within(evidence, ["10mbit", "9600bit"], mode, (1.0, 104.0));
    judge_all(twice.chain(beyond).collect(), COMMAND)
}

/// What part of the time that the ARPANET adds to an item remains without its delay, as a case of less than half.
fn delay_share(evidence: &ClaimEvidence<'_>) -> Option<ClaimCase> {
    let [far, near, fast] =
        ["arpanet", "56kbit", "3mbit"].map(|link| slow(evidence, link, "batch"));
    let time = |cell: &MeasuredCell<'_>| {
        cell.ends().map(|[low, high]| [1.0 / high, 1.0 / cell.median(), 1.0 / low])
    };
    let ([far_low, far, far_high], near, fast) = (time(far?)?, time(near?)?, time(fast?)?);
    let of = |far: f64, near: f64, fast: f64| (far - near) / (far - fast);
    let ends = [of(far_low, near[2], fast[0]), of(far_high, near[0], fast[2])];
    let label = "delay's share of what the ARPANET adds".to_owned();
    let (share, bounds) = (of(far, near[1], fast[1]), (0.5, f64::INFINITY));
    Some(ClaimCase::quantity("", label, share, Some(ends), bounds, Unit::Share))
}

/// The time that drawing adds to an item over a link: that of a batch without that of construction.
fn overhead(evidence: &ClaimEvidence<'_>, link: &str) -> Option<[f64; 3]> {
    let (batch, built) = (slow(evidence, link, "batch")?, slow(evidence, link, "construction")?);
    let ([low, high], [built_low, built_high]) = (batch.ends()?, built.ends()?);
    let of = |batch: f64, built: f64| 1.0 / batch - 1.0 / built;
    Some([of(high, built_low), of(batch.median(), built.median()), of(low, built_high)])
}

/// The load that construction offers to an Ethernet of 10 Mb/s, by item and as a share of its rate.
fn offered_load(evidence: &ClaimEvidence<'_>) -> ClaimCases {
    let levels = [("processors", "slow"), ("link", "10mbit"), ("mode", "construction")];
    let bytes = cell_at(evidence, (RESPONSE.0, BYTES.name), &levels).map(MeasuredCell::median);
    let (Some(bytes), Some(rate)) = (bytes, slow(evidence, "10mbit", "construction")) else {
        return ClaimCases::default();
    };
    let item = bytes / ITEMS;
    let share = |rate: f64| rate * item * 8.0 / 10e6;
    let (label, ends) = ("load/10 Mb/s".to_owned(), rate.ends().map(|ends| ends.map(share)));
    // Half as much and twice as much are about it.
    let of_item = ClaimCase::quantity(
        "",
        "an item".to_owned(),
        item,
        Some([item; 2]),
        (10.0, 40.0),
        Unit::Bytes,
    );
    let load =
        ClaimCase::quantity("", label, share(rate.median()), ends, (0.002, 0.008), Unit::Share);
    [of_item, load].into_iter().collect()
}

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "distributed.link.table-8-1-construction",
        claim: "Construction differs little between 3 and 10 Mb/s Ethernet and is slower over the ARPANET.",
        figures: &[
            table_entry("3 Mb/s", 220.0, "Table 8-1", |it| rate_of(it, "3mbit", "construction")),
            table_entry("10 Mb/s", 230.0, "Table 8-1", |it| rate_of(it, "10mbit", "construction")),
            table_entry("ARPANET", 130.0, "Table 8-1", |it| rate_of(it, "arpanet", "construction")),
        ],
        judge: |evidence| ethernets_alike(evidence, "construction"),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.link.table-8-1-batch",
        claim: "Batch display differs little between 3 and 10 Mb/s Ethernet and is slower over the ARPANET.",
        figures: &[
            table_entry("3 Mb/s", 210.0, "Table 8-1", |it| rate_of(it, "3mbit", "batch")),
            table_entry("10 Mb/s", 220.0, "Table 8-1", |it| rate_of(it, "10mbit", "batch")),
            table_entry("ARPANET", 120.0, "Table 8-1", |it| rate_of(it, "arpanet", "batch")),
        ],
        judge: |evidence| ethernets_alike(evidence, "batch"),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.link.table-8-2-construction",
        claim: "Construction on slow links grows almost with their rate, and far less from 9600 b/s to 10 Mb/s.",
        figures: &[
            table_entry("1200 b/s", 7.4, "Table 8-2", |it| rate_of(it, "1200bit", "construction")),
            table_entry("9600 b/s", 54.0, "Table 8-2", |it| rate_of(it, "9600bit", "construction")),
            table_entry("10 Mb/s", 166.0, "Table 8-2", |it| rate_of(it, "10mbit", "construction")),
        ],
        judge: |evidence| lines_count(evidence, "construction"),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.link.table-8-2-batch",
        claim: "Batch display on slow links grows almost with their rate, and far less from 9600 b/s to 10 Mb/s.",
        figures: &[
            table_entry("1200 b/s", 6.2, "Table 8-2", |it| rate_of(it, "1200bit", "batch")),
            table_entry("9600 b/s", 46.0, "Table 8-2", |it| rate_of(it, "9600bit", "batch")),
            table_entry("10 Mb/s", 131.0, "Table 8-2", |it| rate_of(it, "10mbit", "batch")),
        ],
        judge: |evidence| lines_count(evidence, "batch"),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.link.table-8-2-structure",
        claim: "With structure display depends little on the link's rate (judged by at most twice the published 4.5 times from 1200 b/s to \
                10 Mb/s).",
        figures: &[
            table_entry("1200 b/s", 84.0, "Table 8-2", |it| rate_of(it, "1200bit", "structured")),
            table_entry("9600 b/s", 320.0, "Table 8-2", |it| rate_of(it, "9600bit", "structured")),
            table_entry("10 Mb/s", 380.0, "Table 8-2", |it| rate_of(it, "10mbit", "structured")),
        ],
        judge: |evidence| {
            let cases = slow_within(evidence, ["10mbit", "1200bit"], "structured", (1.0, 9.0));
            judge_all(cases.into_iter().collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.link.slightly-less-than-linear",
        claim: "Construction grows slightly less than linearly with a slow link's rate: even there the CPU is a factor (judged from 1200 to \
                9600 b/s, by 6.4 to 8 times).",
        figures: &[PublishedFigure::ratio("9600 to 1200 b/s", 7.3, "Table 8-2")],
        judge: |evidence| {
            let cases = slow_within(evidence, ["9600bit", "1200bit"], "construction", (6.4, 8.0));
            judge_all(cases.into_iter().collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.link.structure-at-1200-beats-local",
        claim: "With structure at 1200 b/s the rate is twice that of a local program with incremental drawing.",
        figures: &[PublishedFigure::ratio("at 1200 b/s to local", 2.0, "§8")],
        judge: |evidence| {
            let local = [("path", "slow-local"), ("mode", "incremental")];
            let local = cell_at(evidence, ("display.rect", RATE.name), &local);
            let pair = slow(evidence, "1200bit", "structured").zip(local);
            // Half as much and twice as much are about it.
            let case = pair.map(|pair| {
                ClaimCase::ratio_within("", "1200 b/s/local".to_owned(), pair, (1.0, 4.0))
            });
            judge_all(case.into_iter().collect(), "plumb study distributed")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.link.structure-at-1200-beats-arpanet-batch",
        claim: "With structure at 1200 b/s, without significant delay, the rate exceeds the ARPANET's batch rate.",
        historical: Some("84 against 81 a second, §8"),
        judge: |evidence| {
            let pair =
                slow(evidence, "1200bit", "structured").zip(slow(evidence, "arpanet", "batch"));
            let label = "ARPANET batch/structure at 1200 b/s".to_owned();
            let case = pair.map(|(line, far)| ClaimCase::order("", label, line, far));
            judge_all(case.into_iter().collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.link.delay-not-bandwidth",
        claim: "Most of the difference in batch rate is due to the delay of ARPANET and gateways and not to bandwidth.",
        judge: |evidence| judge_all(delay_share(evidence).into_iter().collect(), COMMAND),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.level.reduces-degradation",
        claim: "Batching, pipelining and structure in high-level protocols reduce what is lost on slower networks (judged by what each loses \
                from Ethernet to the ARPANET, and waiting for every reply).",
        judge: |evidence| {
            let loss = |mode| slow_pair(evidence, ["10mbit", "arpanet"], mode);
            let cases =
                ["pipelined-incremental", "batch", "structured"].into_iter().filter_map(|mode| {
                    gains_in_order(&format!("incremental/{mode}"), loss("incremental"), loss(mode))
                });
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.link.bandwidth-insignificant",
        claim: "With batching, pipelining and structure, and since processors are the usual bottleneck, network bandwidth hardly matters \
                (judged by at most twice as much with structure over 10 Mb/s as over 9600 b/s, whatever the processors).",
        judge: |evidence| {
            let (fast, slow) = (&[("link", "10mbit")][..], &[("link", "9600bit")][..]);
            let is_structured = |cell: &MeasuredCell<'_>| cell.is("mode", "structured");
            stack_ratio(evidence, RESPONSE, (fast, slow), (1.0, 2.0), is_structured)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.link.sensitivity-follows-requirements",
        claim: "Sensitivity to bandwidth follows from how often and how much is communicated (judged by construction and batch gaining more \
                from 1200 to 9600 b/s than the structured picture).",
        judge: |evidence| {
            let gain = |mode| slow_pair(evidence, ["9600bit", "1200bit"], mode);
            let cases = ["construction", "batch"].into_iter().filter_map(|mode| {
                gains_in_order(&format!("{mode}/structured"), gain(mode), gain("structured"))
            });
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.display.overhead-independent-of-network",
        claim: "The display overhead in the batch rate is fairly independent of the network (judged by half to twice that over 10 Mb/s).",
        judge: |evidence| {
            let usual = overhead(evidence, "10mbit");
            let cases = ["3mbit", "arpanet"].into_iter().filter_map(|link| {
                let ([low, middle, high], usual) = (overhead(evidence, link)?, usual?);
                let (label, value) = (format!("{link}/10mbit"), middle / usual[1]);
                let ends = Some([low / usual[2], high / usual[0]]);
                Some(ClaimCase::quantity("", label, value, ends, (0.5, 2.0), Unit::Count))
            });
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.link.offered-load",
        claim: "At 20 bytes an item 230 items a second are 4600 bytes a second, 0.4 % of Ethernet's bandwidth.",
        figures: &[PublishedFigure::alone("share of 10 Mb/s", 0.004, Unit::Share, "§8")],
        judge: |evidence| judge_all(offered_load(evidence), COMMAND),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.link.telephone-line",
        claim: "Graphics works over a telephone line: at 1200 b/s 7.4 items a second are measured.",
        historical: Some("7.4 items a second at 1200 b/s, §8"),
        figures: &[PublishedFigure::comparable(
            "construction at 1200 b/s, items a second",
            7.4,
            Unit::Count,
            "§8, Table 8-2",
        )],
        judge: |evidence| {
            let cases = medians_within(evidence, RESPONSE, (3.7, 7.5), |cell| {
                is_slow(cell) && cell.is("link", "1200bit") && cell.is("mode", "construction")
            });
            judge_all(cases, "plumb run display.link")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.link.sixty-times-the-bandwidth",
        claim: "A network with 60 times the bandwidth (3 Mb/s against 56 kb/s) gives less than 50 %.",
        historical: Some("220 to 130 and 210 to 120 vectors a second, Table 8-1"),
        figures: &[PublishedFigure::ratio("3 Mb/s to 56 kb/s, most", 1.5, "§8")],
        judge: |evidence| {
            let (fast, slow) = (&[("link", "3mbit")][..], &[("link", "arpanet")][..]);
            stack_ratio(evidence, RESPONSE, (fast, slow), (1.0, 1.5), |cell| {
                is_slow(cell) && (cell.is("mode", "construction") || cell.is("mode", "batch"))
            })
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.link.three-or-ten-megabits",
        claim: "Between 3 and 10 Mb/s Ethernet there is very little measurable difference.",
        historical: Some("220 to 230 and 210 to 220 vectors a second, Table 8-1"),
        figures: &[PublishedFigure::ratio("10 Mb/s to 3 Mb/s", 1.05, "Table 8-1")],
        judge: |evidence| {
            let (fast, slow) = (&[("link", "10mbit")][..], &[("link", "3mbit")][..]);
            stack_ratio(evidence, RESPONSE, (fast, slow), (0.9, 1.1), is_slow)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.link.structure-at-9600-near-ethernet",
        claim: "With structure 9600 b/s are only about 15 % slower than Ethernet, whose bandwidth is a thousand times greater.",
        historical: Some("320 to 380 items a second, Table 8-2"),
        figures: &[PublishedFigure::ratio("10 Mb/s to 9600 b/s", 1.19, "Table 8-2")],
        judge: |evidence| {
            let (fast, slow) = (&[("link", "10mbit")][..], &[("link", "9600bit")][..]);
            // Twice as much is about it.
            stack_ratio(evidence, RESPONSE, (fast, slow), (1.0, 1.38), |cell| {
                is_slow(cell) && cell.is("mode", "structured")
            })
        },
        ..PublishedClaim::of(LANTZ)
    },
];
