//! `stack.remote`: the internet protocols in a server on another host of the network, instead of on each workstation.
//!
//! After Lantz, Nowicki & Theimer (1985, §9.2). Simulated: a packet of 1,000 bytes and half an acknowledgement take a workstation, or the
//! server, the report's 18 ms. The server passes on what it receives in messages of 1 KiB, each of which waits for its reply.

use plumb_harness::report::LaunchFault;
use plumb_report::figure::by_level::{self, LevelPlot};
use plumb_sim::report::SimulationReport;

use crate::claims::{LANTZ, gains_in_order, medians_within, pairs_within, stack_ratio};
use crate::factor::display::cell_at;
use crate::pages::against;
use crate::prelude::*;
use crate::simulation::{self, ResponseValues, SimulatedCell};

/// A server and a load a cell.
pub static EXPERIMENT: Experiment = Experiment {
    id: "stack.remote",
    study: "distributed",
    question: "What does a workstation lose whose internet protocols run on another host?",
    hypothesis: "Nothing while every processor has time left. The server takes each byte from one packet and sends it in another, so that near its \
                 capacity a connection gets half as much, and connections share that. A slow mainframe hides the loss.",
    factors: &[
        Factor::of_words(
            "load",
            "lines of a terminal at a share of what a local connection carries, or more than it carries; a file; or a screen of 24 lines each \
             20 s",
            &LOADS,
        )
        .labelled(&[(LINES, "lines without end"), (SCREENS, "a screen each 20 s")]),
        Factor::of_words("server", "where TCP runs: on the workstation, or on another host", &["local", REMOTE])
            .labelled(&[("local", "a local server"), (REMOTE, "a remote server")]),
        Factor::of_words(
            "mainframe",
            "speed of the host that sends, beside the workstation's",
            &["1x", "0.6x", "0.25x"],
        ),
        Factor {
            fit: |first, levels| match first.text("load") {
                Some(FILE | SCREENS) => levels,
                _ => levels.into_iter().take(1).collect(),
            },
            ..Factor::new(
                "connections",
                "mainframes with a connection to a workstation each, by one server",
                FactorDomain::Between(1, 32, "connections"),
                Numbers(&[1, 4, 8]),
            )
            .at_quick(Numbers(&[1, 4, 8]))
        },
    ],
    responses: &[
        ResponseVariable::rate("throughput", "bytes a second that a workstation gets"),
        ResponseVariable::time("delay", "from the writing of a line to its reading, the median"),
        ResponseVariable::new(
            "wire",
            Unit::Count,
            Better::Lower,
            "bytes of packets on the network for each byte that a workstation gets",
        ),
        ResponseVariable::share("busy", Better::Lower, "share of time that the processor which runs TCP for workstations is busy"),
    ],
    plan_cell: |point| {
        let is_endless = matches!(point.text("load"), Some(FILE | LINES));
        let is_shared = point.factors.int("connections") != Some(1);
        if (point.response == "delay" && is_endless)
            || (is_shared && point.text("mainframe") != Some("1x"))
        {
            return Err(Exclusion::NotApplicable);
        }
        Ok(simulation::cell(EXPERIMENT.id, point))
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "A remote protocol server",
        figures: Some(|data| by_level::figures(&plain(data), &PLOT)),
        sentences: |data| against(&plain(data), &PLOT, "local", "throughput", "throughput"),
        responses: &[
            ("throughput", "throughput of a workstation"),
            ("delay", "delay of a line"),
            ("wire", "bytes on the network, a byte"),
            ("busy", "processor busy"),
        ],
        ..ExperimentPage::PLAIN
    },
};

/// Of one connection from a mainframe as fast as the workstation.
fn plain<'a>(data: &PageData<'a>) -> Vec<&'a CellResult> {
    let is_plain = |cell: &&&CellResult| {
        cell.level("mainframe") == "1x"
            && cell.factors.get("connections").is_some_and(|count| *count == 1)
    };
    data.cells.iter().filter(is_plain).copied().collect()
}

const REMOTE: &str = "remote";
const LINES: &str = "lines";
const FILE: &str = "file";
const SCREENS: &str = "screens";
const LOADS: [&str; 7] = ["10%", "25%", "50%", "75%", LINES, FILE, SCREENS];

const PLOT: LevelPlot = LevelPlot {
    factor: "server",
    order: &["local", REMOTE],
    panel_factors: &["load"],
    pictures: &[
        ("Throughput of a workstation", &["throughput"], false),
        ("Delay of a line", &["delay"], true),
        ("Processor busy", &["busy"], false),
    ],
};

/// Bytes of a line.
const LINE: u64 = 80;
/// Bytes of a screen, and the seconds between two.
const SCREEN: u64 = 24 * LINE;
const SCREEN_EVERY: u64 = 20;
/// Microseconds that a packet takes a processor, and nanoseconds that each of its bytes does: 15 ms for one with 1,000 of data, 6 ms for
/// an acknowledgement.
pub(super) const PACKET_US: f64 = 5_640.0;
pub(super) const BYTE_NS: f64 = 9_000.0;

/// Simulates one setting; a share of the capacity is one of what lines without end get through a local server.
pub(crate) fn simulate(cell: &SimulatedCell<'_>) -> Result<ResponseValues, LaunchFault> {
    let (is_remote, load) = (cell.level("server") == REMOTE, cell.level("load"));
    let slower = match cell.level("mainframe") {
        "0.6x" => 1.0 / 0.6,
        "0.25x" => 4.0,
        _ => 1.0,
    };
    let connections: u64 = cell.number("connections")?;
    let endless = "rate = \"1mbit\"\nwrite = 80\n".to_owned();
    let writes = match load.strip_suffix('%').and_then(|share| share.parse::<f64>().ok()) {
        Some(percent) => {
            let full = cell.simulate(&scenario(false, &endless, slower, 1))?.goodput();
            format!("rate = \"{:.0}bit\"\nwrite = {LINE}\n", full * percent / 100.0)
        }
        None if load == SCREENS => {
            format!("rate = \"{}bit\"\nwrite = {SCREEN}\n", SCREEN * 8 / SCREEN_EVERY)
        }
        None if load == FILE => String::new(),
        None => endless,
    };
    let report = cell.simulate(&scenario(is_remote, &writes, slower, connections))?;
    Ok(responses(&report, connections))
}

const OPTIONS: &str = "receive_buffer = \"4Ki\"\nmss = 1000\ntimestamps = false";

/// Hosts on an Ethernet of 10 Mb/s, and their connections.
fn scenario(is_remote: bool, writes: &str, slower: f64, connections: u64) -> String {
    let mut text = "duration = \"70s\"\nwarmup = \"10s\"\n".to_owned();
    let mut attach = |host: &str, slower: f64| {
        text += &simulation::link(host, "ethernet", "rate=10mbit,delay=10us,limit=100packets");
        text += &simulation::processor(host, PACKET_US * slower, BYTE_NS * slower);
    };
    for number in 1..=connections {
        attach(&format!("mainframe{number}"), slower);
        attach(&format!("workstation{number}"), 1.0);
    }
    if is_remote {
        attach("server", 1.0);
    }
    let end = if is_remote { "server" } else { "workstation*" };
    // Each begins at another moment, so that launches differ.
    let incoming = format!("name = \"in\"\nstart = \"1s..2s\"\n{writes}{OPTIONS}");
    text += &simulation::flow("mainframe*", end, "fixed:4096", &incoming);
    if is_remote {
        // One message at a time, answered at once.
        let outgoing = format!("name = \"out\"\nrelays = \"in\"\ndelayed_ack = false\n{OPTIONS}");
        text += &simulation::flow("server", "workstation*", "fixed:1000", &outgoing);
    }
    text
}

fn responses(report: &SimulationReport, connections: u64) -> ResponseValues {
    // The last flows end at the workstations.
    let ending = &report.flows[report.flows.len() - usize::try_from(connections).unwrap_or(1)..];
    let delivered: f64 = ending.iter().map(|flow| flow.counts.received.bytes as f64).sum();
    let seconds = report.elapsed.saturating_sub(report.warmup).as_secs_f64();
    let on_network = |name: &str| name.ends_with("> ethernet");
    let sent = report.links.iter().filter(|link| on_network(&link.whole.name));
    let sent: u64 = sent.map(|link| link.left_bytes).sum();
    let is_server = |host: &str| host == "server";
    let has_server = report.processors.iter().any(|processor| is_server(&processor.host));
    let busy = report.processors.iter().filter(|processor| {
        if has_server { is_server(&processor.host) } else { processor.host == "workstation1" }
    });
    let delay = ending.first().and_then(|flow| flow.delays.as_ref());
    let mut values = vec![
        ("throughput", delivered / connections as f64 / seconds),
        ("wire", sent as f64 / delivered.max(1.0)),
        ("busy", busy.map(|processor| processor.busy_share).sum()),
    ];
    values.extend(delay.map(|delays| ("delay", delays.quantile(0.5) as f64)));
    values
}

const RESPONSE: (&str, &str) = ("stack.remote", "throughput");
const COMMAND: &str = "plumb run stack.remote";

const SERVERS: [&[(&str, &str)]; 2] = [&[("server", "local")], &[("server", REMOTE)]];

/// "About 15 %", "about 20 %", and what approaches 50 %: from half of it to twice as much, and above a third.
const ABOUT_15: (f64, f64) = (1.0 / 0.925, 1.0 / 0.7);
const ABOUT_20: (f64, f64) = (1.0 / 0.9, 1.0 / 0.6);
const NEAR_50: (f64, f64) = (1.5, 2.5);

/// What a local server carries beside a remote one, at these settings.
fn loss(
    evidence: &ClaimEvidence<'_>,
    bounds: (f64, f64),
    chosen: impl Fn(&MeasuredCell<'_>) -> bool,
) -> ClaimJudgment {
    let [local, remote] = SERVERS;
    stack_ratio(evidence, RESPONSE, (local, remote), bounds, chosen)
}

fn is_at(cell: &MeasuredCell<'_>, load: &str, mainframe: &str) -> bool {
    cell.is("load", load) && cell.is("mainframe", mainframe) && cell.is("connections", 1_u64)
}

/// One connection's cells with a server of either kind.
fn pair<'a>(
    evidence: &ClaimEvidence<'a>,
    response: &'static str,
    (first, second): (&str, &str),
    load: &str,
) -> Option<[&'a MeasuredCell<'a>; 2]> {
    let at = |server| {
        let levels = [("server", server), ("load", load), ("mainframe", "1x")];
        cell_at(evidence, (EXPERIMENT.id, response), &levels)
    };
    Some([at(first)?, at(second)?])
}

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "distributed.remote.telnet-moderate-load",
        claim: "Through a remote server TELNET loses about 15 % at output rates up to half of a connection's capacity.",
        historical: Some("about 15 %, §9.2"),
        figures: &[PublishedFigure::ratio("local to remote", 1.0 / 0.85, "§9.2 (15 %)")],
        judge: |evidence| {
            loss(evidence, ABOUT_15, |cell| {
                ["10%", "25%", "50%"].iter().any(|load| is_at(cell, load, "1x"))
            })
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.remote.telnet-near-capacity",
        claim: "At higher rates the loss rises rapidly and approaches 50 % near a connection's capacity (judged by a third to three fifths).",
        historical: Some("approaching 50 %, §9.2"),
        figures: &[PublishedFigure::ratio("local to remote", 2.0, "§9.2 (50 %)")],
        judge: |evidence| loss(evidence, NEAR_50, |cell| is_at(cell, LINES, "1x")),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.remote.traffic-doubles",
        claim: "The loss near capacity is that large because network traffic doubles when the server is on neither end's host (judged by the \
                bytes on the network, 1.8 to 2.2 times as many).",
        figures: &[PublishedFigure::ratio("remote to local", 2.0, "§9.2")],
        judge: |evidence| {
            let [local, remote] = SERVERS;
            stack_ratio(evidence, (EXPERIMENT.id, "wire"), (local, remote), (1.8, 2.2), |cell| {
                is_at(cell, LINES, "1x")
            })
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.remote.mainframe-bounds-low-rates",
        claim: "The smaller loss at low rates shows that the mainframe bounds performance there and not the server (judged by lines without end \
                from a mainframe of a quarter of the speed, which lose a tenth at most).",
        judge: |evidence| loss(evidence, (0.9, 1.1), |cell| is_at(cell, LINES, "0.25x")),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.remote.connections-share-capacity",
        claim: "A connection's largest throughput is inversely related to the number of connections that the server keeps (judged by files: the \
                fourth and the eighth part of one's, within a fifth).",
        judge: |evidence| {
            let cases = [4_u64, 8].into_iter().filter_map(|count| {
                let is = |cell: &MeasuredCell<'_>, count: u64| {
                    cell.is("server", REMOTE)
                        && cell.is("load", FILE)
                        && cell.is("mainframe", "1x")
                        && cell.is("connections", count)
                };
                let find =
                    |count| evidence.cells(EXPERIMENT.id, RESPONSE.1).find(|cell| is(cell, count));
                let bounds = (count as f64 / 1.2, count as f64 * 1.2);
                let case = |pair| {
                    ClaimCase::ratio_within("", format!("{count} connections/1"), pair, bounds)
                };
                find(1).zip(find(count)).map(case)
            });
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.remote.average-load-is-small",
        claim: "TELNET connections are bursty, so that the server's average load is a small part of what all connections could present together \
                (judged by eight with a screen each 20 s: a quarter of the server's time at most).",
        judge: |evidence| {
            let found = medians_within(evidence, (EXPERIMENT.id, "busy"), (0.0, 0.25), |cell| {
                cell.is("server", REMOTE)
                    && cell.is("load", SCREENS)
                    && cell.is("connections", 8_u64)
            });
            judge_all(found, COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.remote.delay-behaves-alike",
        claim: "The delay lost by a remote server resembles the loss of throughput in behaviour and size (judged by a delay that grows more near \
                capacity than at a quarter of it, and by 7.5 to 30 % more at low rates, as is said of throughput).",
        judge: |evidence| {
            let [local, remote] = SERVERS;
            let delays = |load| pair(evidence, "delay", (REMOTE, "local"), load);
            let grows = gains_in_order("delay at 75 %/25 %", delays("75%"), delays("25%"));
            let size = pairs_within(
                evidence,
                (EXPERIMENT.id, "delay"),
                (local, remote),
                ABOUT_15,
                |cell| ["10%", "25%", "50%"].iter().any(|load| is_at(cell, load, "1x")),
            );
            judge_all(size.into_iter().chain(grows).collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.remote.ftp",
        claim: "FTP through a remote server loses about 20 % on average, bound mainly by the VAX (judged by files from a mainframe slower than \
                the server, 10 to 40 % at one of its speeds).",
        historical: Some("about 20 %, §9.2"),
        figures: &[PublishedFigure::ratio("local to remote", 1.25, "§9.2 (20 %)")],
        judge: |evidence| {
            let [local, remote] = SERVERS;
            let cases = pairs_within(evidence, RESPONSE, (local, remote), ABOUT_20, |cell| {
                ["0.6x", "0.25x"].iter().any(|mainframe| is_at(cell, FILE, mainframe))
            });
            judge_any(cases.into_iter().collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
];
