//! `display.rect`: an array of 780 rectangles drawn one by one, pipelined, in batches and structured, by path.
//!
//! After Lantz, Nowicki & Theimer (1985, §5 and Table 5-1). In real time on this host, and in virtual time over links, with processors as
//! they are and as slow as theirs.

use plumb_analysis::claim::FigureFinder;
use plumb_report::figure::by_level::{self, LevelPlot};

use crate::claims::{LANTZ, gains_in_order, order_cases, pairs_within, stack_ratio};
use crate::factor::display::{
    BYTES, PATH, RATE, RESPONSES, ROUND_TRIPS, cell, cell_at, path, rate_at, table_entry,
};
use crate::pages::against;
use crate::prelude::*;

/// A mode and a path a cell.
pub static EXPERIMENT: Experiment = Experiment {
    id: "display.rect",
    study: "distributed",
    question: "What do pipelining, batching and structure add to the rate at which a picture is drawn remotely?",
    hypothesis: "Each adds to the rate on every path. Pipelining adds the most where a round trip is long, batching where a message costs \
                 much, structure where bytes cost much.",
    factors: &[
        PATH,
        Factor::of_words(
            "mode",
            "each rectangle drawn as it is added, waiting for every reply or not; all added in batches, then drawn; inverters defined \
             once and called, then drawn; or the pixels, drawn by the client beforehand, sent as bitmaps of each color",
            &MODES,
        ),
    ],
    responses: &[RATE, BYTES, ROUND_TRIPS],
    plan_cell: |point| {
        let mode = point.text("mode").unwrap_or("batch");
        cell("array", mode, path(point.text("path").unwrap_or("direct")))
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Pipelining, batching and structure",
        figures: Some(|data| by_level::figures(&data.cells, &PLOT)),
        sentences: |data| against(&data.cells, &PLOT, "incremental", "rate", "rate"),
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

const MODES: [&str; 5] = ["incremental", "pipelined-incremental", "batch", "structured", BITMAP];
const BITMAP: &str = "bitmap";

const PLOT: LevelPlot = LevelPlot {
    factor: "mode",
    order: &MODES,
    panel_factors: &["path"],
    pictures: &[
        ("Rectangles a second", &["rate"], true),
        ("Bytes of a drawing", &["bytes"], true),
        ("Dependent round trips of a drawing", &["round-trips"], true),
    ],
};

/// One mode beside another.
type ModePair = (&'static [(&'static str, &'static str)], &'static [(&'static str, &'static str)]);

const PIPELINING: ModePair = (&[("mode", "pipelined-incremental")], &[("mode", "incremental")]);
const BATCHING_ALONE: ModePair = (&[("mode", "batch")], &[("mode", "incremental")]);
const BATCHING: ModePair = (&[("mode", "batch")], &[("mode", "pipelined-incremental")]);
const STRUCTURE: ModePair = (&[("mode", "structured")], &[("mode", "batch")]);
const DISTANCE: ModePair = (&[("path", "lan")], &[("path", "wan")]);

const RESPONSE: (&str, &str) = ("display.rect", "rate");
const COMMAND: &str = "plumb run display.rect";

/// A number of Table 5-1, and where today's is found.
const fn entry(label: &'static str, value: f64, find: FigureFinder) -> PublishedFigure {
    table_entry(label, value, "Table 5-1", find)
}

fn rate_of(evidence: &ClaimEvidence<'_>, path: &str, mode: &str) -> Option<f64> {
    rate_at(evidence, RESPONSE.0, &[("path", path), ("mode", mode)])
}

/// "It is faster on the first path than on the second", for each pair of slow processors' paths, in a mode.
fn paths_in_order(
    evidence: &ClaimEvidence<'_>,
    pairs: &[[&'static str; 2]],
    mode: &'static str,
) -> ClaimJudgment {
    let cases = pairs.iter().flat_map(|[fast, slow]| {
        let (fast, slow) = (&[("path", *fast)][..], &[("path", *slow)][..]);
        order_cases(evidence, RESPONSE, (fast, slow), |cell| cell.is("mode", mode)).cases
    });
    judge_all(cases.collect(), COMMAND)
}

fn is_local(cell: &MeasuredCell<'_>) -> bool {
    ["direct", "unix", "tcp", "slow-local"].iter().any(|path| cell.is("path", *path))
}

/// The rate on a path in a mode.
fn at<'a>(evidence: &ClaimEvidence<'a>, path: &str, mode: &str) -> Option<&'a MeasuredCell<'a>> {
    cell_at(evidence, RESPONSE, &[("path", path), ("mode", mode)])
}

/// What a mode gains over another on a path.
fn gain<'a>(
    evidence: &ClaimEvidence<'a>,
    path: &str,
    [better, worse]: [&str; 2],
) -> Option<[&'a MeasuredCell<'a>; 2]> {
    Some([at(evidence, path, better)?, at(evidence, path, worse)?])
}

/// "Structured on this path is faster than on one slow processor in these modes".
fn structure_beats_local(
    evidence: &ClaimEvidence<'_>,
    path: &str,
    modes: &[&str],
) -> ClaimJudgment {
    let cases = modes.iter().filter_map(|mode| {
        let pair = at(evidence, path, "structured").zip(at(evidence, "slow-local", mode))?;
        Some(ClaimCase::order("", format!("local {mode}/{path} structured"), pair.0, pair.1))
    });
    judge_all(cases.collect(), COMMAND)
}

/// Paths of slow processors, each farther than the one before.
const FARTHER: [[&str; 2]; 2] = [["slow-local", "slow-lan"], ["slow-lan", "slow-arpanet"]];

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "distributed.transport.less-but-noticeable",
        claim: "Good design and implementation of the transport give less than the protocol's level does, but noticeably (judged by a Unix \
                socket instead of TCP, at least 1.05 times as fast where each message is waited for, beside pipelining over TCP).",
        judge: |evidence| {
            let transport =
                at(evidence, "unix", "incremental").zip(at(evidence, "tcp", "incremental"));
            let label = "Unix socket/TCP".to_owned();
            let noticeable = transport.map(|(unix, tcp)| {
                ClaimCase::ratio_within("", label, (unix, tcp), (1.05, f64::INFINITY))
            });
            let level = gain(evidence, "tcp", ["pipelined-incremental", "incremental"]);
            let less =
                gains_in_order("pipelining/Unix socket", level, transport.map(<[_; 2]>::from));
            judge_all(noticeable.into_iter().chain(less).collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.stop-and-wait",
        claim: "A stop-and-wait protocol is slow, above all over networks with a long delay.",
        figures: &[
            entry("local", 41.0, |it| rate_of(it, "slow-local", "incremental")),
            entry("E-IP", 5.0, |it| rate_of(it, "slow-lan", "incremental")),
            entry("A-IP", 2.0, |it| rate_of(it, "slow-arpanet", "incremental")),
        ],
        judge: |evidence| {
            let slow = order_cases(evidence, RESPONSE, PIPELINING, |_| true);
            let far =
                order_cases(evidence, RESPONSE, DISTANCE, |cell| cell.is("mode", "incremental"));
            let cases = slow.cases.into_iter().chain(far.cases);
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.pipelined",
        claim: "Without return values incremental display reaches 61 rectangles a second locally, 66 over Ethernet and 36 over the ARPANET.",
        figures: &[
            entry("local", 61.0, |it| rate_of(it, "slow-local", "pipelined-incremental")),
            entry("E-IP", 66.0, |it| rate_of(it, "slow-lan", "pipelined-incremental")),
            entry("A-IP", 36.0, |it| rate_of(it, "slow-arpanet", "pipelined-incremental")),
        ],
        judge: |evidence| {
            let order = [["slow-lan", "slow-local"], ["slow-local", "slow-arpanet"]];
            paths_in_order(evidence, &order, "pipelined-incremental")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.batch",
        claim: "Batched without structure the picture is drawn at 310, 180 and 81 rectangles a second.",
        figures: &[
            entry("local", 310.0, |it| rate_of(it, "slow-local", "batch")),
            entry("E-IP", 180.0, |it| rate_of(it, "slow-lan", "batch")),
            entry("A-IP", 81.0, |it| rate_of(it, "slow-arpanet", "batch")),
        ],
        judge: |evidence| paths_in_order(evidence, &FARTHER, "batch"),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.structured",
        claim: "Batched with structure it is drawn at 1070, 670 and 370 rectangles a second.",
        figures: &[
            entry("local", 1_070.0, |it| rate_of(it, "slow-local", "structured")),
            entry("E-IP", 670.0, |it| rate_of(it, "slow-lan", "structured")),
            entry("A-IP", 370.0, |it| rate_of(it, "slow-arpanet", "structured")),
        ],
        judge: |evidence| paths_in_order(evidence, &FARTHER, "structured"),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.each-step-helps",
        claim: "Pipelining, batching and structure each add to the rate, locally and remotely.",
        historical: Some(
            "41, 61, 310 and 1070 a second locally, 5, 66, 180 and 670 over Ethernet, Table 5-1",
        ),
        judge: |evidence| {
            let steps = [PIPELINING, BATCHING, STRUCTURE];
            let cases = steps
                .into_iter()
                .flat_map(|pair| order_cases(evidence, RESPONSE, pair, |_| true).cases);
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.pipelining-gain",
        claim: "Pipelining gains 50 % locally and 1000 to 1500 % remotely.",
        historical: Some("×1.5 locally, ×11 to ×16 remotely, §5.1"),
        figures: &[PublishedFigure::ratio("pipelined to waiting, remote", 13.5, "§5.1 (11 to 16)")],
        judge: |evidence| {
            let within = |bounds, chosen: fn(&MeasuredCell<'_>) -> bool| {
                pairs_within(evidence, RESPONSE, PIPELINING, bounds, chosen)
            };
            // Half as much and twice as much are about it.
            let local = within((1.25, 2.0), is_local);
            let remote = within((5.5, 32.0), |cell| !is_local(cell));
            judge_all(local.into_iter().chain(remote).collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.batching-gain",
        claim: "Batching gains up to 500 % over pipelining.",
        historical: Some("up to ×6, §5.2"),
        figures: &[PublishedFigure::ratio("batch to pipelined, most", 6.0, "§5.2")],
        judge: |evidence| stack_ratio(evidence, RESPONSE, BATCHING, (1.0, 12.0), |_| true),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.structure-gain",
        claim: "Structure gains another factor of 3 to 4, locally and remotely.",
        historical: Some("×3 to ×4, §5.3"),
        figures: &[PublishedFigure::ratio("structured to flat", 3.5, "§5.3 (3 to 4)")],
        judge: |evidence| stack_ratio(evidence, RESPONSE, STRUCTURE, (1.5, 8.0), |_| true),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.batching-alone",
        claim: "Batching alone has gained up to 3000 % (judged with slow processors).",
        historical: Some("×31, §5.2"),
        figures: &[PublishedFigure::ratio("batch to waiting, most", 31.0, "§5.2")],
        judge: |evidence| {
            let is_slow = |cell: &MeasuredCell<'_>| cell.level("path").starts_with("slow");
            stack_ratio(evidence, RESPONSE, BATCHING_ALONE, (1.0, 62.0), is_slow)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.batching-cause",
        claim: "Batching gains because values are returned once per sequence, which saves network delays (judged by fewer dependent round \
                trips, and by gaining more over 100 ms than over 2 ms).",
        judge: |evidence| {
            let round_trips = (RESPONSE.0, ROUND_TRIPS.name);
            let fewer = pairs_within(evidence, round_trips, BATCHING_ALONE, FEWER, |_| true);
            let [far, near] =
                ["wan", "lan"].map(|path| gain(evidence, path, ["batch", "incremental"]));
            let more = gains_in_order("gain over 100 ms/2 ms", far, near);
            judge_all(fewer.into_iter().chain(more).collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.pipelining-cause",
        claim: "Pipelining gains by fewer messages and by more concurrency than stop-and-wait (judged by fewer dependent round trips, and by \
                gaining more on two slow processors than on one).",
        judge: |evidence| {
            let round_trips = (RESPONSE.0, ROUND_TRIPS.name);
            let fewer = pairs_within(evidence, round_trips, PIPELINING, FEWER, |_| true);
            let modes = ["pipelined-incremental", "incremental"];
            let [two, one] = ["slow-lan", "slow-local"].map(|path| gain(evidence, path, modes));
            let more = gains_in_order("gain on two processors/one", two, one);
            judge_all(fewer.into_iter().chain(more).collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.remote-incremental-beats-local",
        claim: "Pipelined incremental operation is almost always faster remotely than locally, owing to concurrency (judged over Ethernet).",
        judge: |evidence| {
            paths_in_order(evidence, &[["slow-lan", "slow-local"]], "pipelined-incremental")
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.structure-cause",
        claim: "Structure gains mainly because less data is sent, and more against bitmaps (judged by half the bytes or fewer, and by rates over \
                networks).",
        judge: |evidence| {
            let bytes = (RESPONSE.0, BYTES.name);
            let fewer = pairs_within(evidence, bytes, STRUCTURE, (2.0, f64::INFINITY), |_| true);
            let more = ["lan", "wan"].into_iter().filter_map(|path| {
                let [bitmap, items] =
                    [BITMAP, "batch"].map(|other| gain(evidence, path, ["structured", other]));
                gains_in_order(&format!("gain over bitmap/over items, {path}"), bitmap, items)
            });
            judge_all(fewer.into_iter().chain(more).collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.arpanet-structure-beats-local",
        claim: "With structure over the ARPANET the benchmark is faster than locally with incremental or unstructured display.",
        historical: Some("370 against 61 and 310 a second, Table 5-1"),
        judge: |evidence| {
            let modes = ["incremental", "pipelined-incremental", "batch"];
            structure_beats_local(evidence, "slow-arpanet", &modes)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.ethernet-structure-beats-local-batch",
        claim: "With structure over Ethernet the benchmark is faster than locally even with batching.",
        historical: Some("670 against 310 a second, Table 5-1"),
        judge: |evidence| structure_beats_local(evidence, "slow-lan", &["batch"]),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.link.network-slower-than-local",
        claim: "Network communication is in general slower than local communication, and the ARPANET substantially slower than Ethernet \
                (judged where each reply is waited for).",
        judge: |evidence| paths_in_order(evidence, &FARTHER, "incremental"),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.level.beats-transport",
        claim: "Transports differ far less than levels of communication do (judged by a unix socket beside TCP over loopback, and structure \
                beside waiting for every reply).",
        judge: |evidence| {
            let levels = gain(evidence, "tcp", ["structured", "incremental"]);
            let cases = MODES.iter().filter_map(|mode| {
                let transports = at(evidence, "unix", mode).zip(at(evidence, "tcp", mode))?;
                let label = format!("levels/transports {mode}");
                gains_in_order(&label, levels, Some([transports.0, transports.1]))
            });
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
];

/// Fewer of something than with the other mode.
const FEWER: (f64, f64) = (1.01, f64::INFINITY);
