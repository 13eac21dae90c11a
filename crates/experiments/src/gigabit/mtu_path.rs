//! `mtu.path`: what happens to jumbo packets on a path with a smaller hop, and to a small urgent packet
//! behind them.
//!
//! Over UDP, whose datagrams nobody cuts but IP, and over TCP, which cuts its own once it has learnt what
//! the path takes. In simulations the urgent packet comes to a switch that other connections use at four fifths of its rate, in packets of
//! each size, and in cells of 53 bytes; and the switch may put it first.

use std::collections::{BTreeMap, BTreeSet};

use plumb_harness::report::LaunchFault;
use plumb_harness::spec::{PathKind, PathSpec, SocketOptions};
use plumb_report::figure::against_factor::{self, FactorPlot, FactorScale};
use plumb_report::figure::by_level::{self, LevelPlot};
use plumb_report::figure::highest_median;

use crate::claims::WEIGLE;
use crate::factor::channel::level_number;
use crate::factor::link;
use crate::factor::numbers;
use crate::factor::remote::{self, SAME_CPU};
use crate::pages::{levels, of, range, sentence};
use crate::prelude::*;
use crate::simulation::{self, ResponseValues, SimulatedCell};

/// Delivery and blocking against packet size and what the path takes.
pub static EXPERIMENT: Experiment = Experiment {
    id: "mtu.path",
    study: "gigabit",
    question: "What do jumbo packets cost on a path that they do not fit, and what those behind them?",
    hypothesis: "Jumbo packets arrive only where every hop takes them or may cut them, and then in \
                 pieces; TCP sends smaller ones where a hop tells it to, and hangs where none does; \
                 a small packet behind jumbos waits for as long as the slowest hop needs for their \
                 bytes.",
    factors: &[
        Factor::of_words(
            "path",
            "what the second hop takes: jumbo packets, 1500 bytes and tells, the same with Linux's routers, or 1500 \
             and is silent; or a simulated switch that others use",
            &PATHS,
        )
        .labelled(&[
            (SWITCH, "simulated switch"),
            ("jumbo", "jumbo path"),
            ("narrow", "narrow hop"),
            (LINUX, "narrow hop of Linux's"),
            ("black-hole", "black hole"),
        ]),
        Factor {
            applies: is_no_switch,
            ..Factor::of_words(
                "fragments",
                "whether routers may cut a packet: don't-fragment set or clear",
                &["forbidden", "allowed"],
            )
        }
        .labelled(&[("forbidden", "must stay whole"), ("allowed", "may be cut")]),
        Factor {
            applies: |first| !is_no_switch(first),
            ..Factor::of_words(
                "queue",
                "whether the switch sends in the order of arrival, or what is urgent first",
                &["fifo", "priority"],
            )
        },
        Factor { fit: |first, levels| if is_no_switch(first) { levels } else { numbers(&[CELL, 1_500, JUMBO]) }, ..Factor::new(
            "packet",
            "bytes of a packet, IP's header included",
            FactorDomain::Sizes,
            Numbers(&[576, 1_500, 4_352, JUMBO]),
        ) }
        .at_quick(Numbers(&[1_500, JUMBO])),
        Factor {
            meaning: "rate of both hops, which Linux's have not",
            applies: |first| first.text("path") != Some(LINUX),
            ..link::RATE
        }
            .at(Words(&["10mbit", "1gbit"]))
            .at_quick(Words(&["10mbit"])),
        Factor { applies: is_no_switch, ..Factor::new(
            "ahead",
            "packets sent right before the urgent one",
            // More would not fit the sender's buffer.
            FactorDomain::Between(0, 16, "a number"),
            Numbers(&[0, 1, 8]),
        ) }
        .at_quick(Numbers(&[0, 8])),
        Factor { applies: is_no_switch, ..SAME_CPU },
    ],
    responses: &[
        ResponseVariable::share(
            "delivered",
            Better::Higher,
            "share of packets of this size that are answered in kind",
        ),
        ResponseVariable::new(
            "pieces",
            Unit::Count,
            Better::Lower,
            "packets in which a datagram of this size arrives",
        ),
        ResponseVariable::share(
            CONNECTED,
            Better::Higher,
            "share of TCP connections that carry a segment of this size and its answer",
        ),
        ResponseVariable::rate(
            GOODPUT,
            "bytes a second of datagrams that arrive whole through Linux's routers, which may cut them",
        ),
        ResponseVariable::time(
            "urgent",
            "round trip of a small packet sent right behind those ahead; of a simulated switch the time on the way that nine of ten \
             small packets stay below",
        ),
    ],
    plan_cell,
    analysis: ExperimentAnalysis {
        claims: CLAIMS,
        expectations: EXPECTATIONS,
        ..ExperimentAnalysis::PLAIN
    },
    page: ExperimentPage {
        title: "Long packets on a path that they do not fit",
        figures: Some(figures),
        sentences,
        tiles,
        ..ExperimentPage::PLAIN
    },
};

/// The kinds of path, the widest first.
const PATHS: [&str; 5] = ["jumbo", "narrow", LINUX, "black-hole", SWITCH];

/// A switch that others use, simulated.
const SWITCH: &str = "switch";

/// Bytes of a cell of ATM.
const CELL: u64 = 53;

/// For [`Factor::applies`].
fn is_no_switch(first: &Factors) -> bool {
    first.text("path") != Some(SWITCH)
}

/// Simulates a switch: others send at four fifths of its rate, small urgent packets come at a hundredth.
pub(crate) fn simulate(cell: &SimulatedCell<'_>) -> Result<ResponseValues, LaunchFault> {
    let (rate, packet) = (cell.rate("rate")?, cell.level("packet"));
    let queue = match cell.level("queue") {
        "priority" => "queue=priority,limit=10000packets",
        _ => "limit=10000packets",
    };
    // As many urgent packets at any rate.
    let seconds = 2_000.0 * URGENT as f64 * 8.0 / (rate / 100.0);
    let links = simulation::chain(
        &format!("rate={:.0}bit,delay=10us", rate * 100.0),
        &format!("rate={rate:.0}bit,delay=10us,{queue}"),
    );
    let source = |rate: f64, size: &str, dscp: u8| {
        format!(
            "[[source]]\npattern = \"poisson\"\nfrom = \"left\"\nto = \"right\"\nrate = \"{rate:.0}bit\"\nsize = {size}\ndscp = {dscp}\n"
        )
    };
    let others = source(rate * 0.8, packet, 0);
    // The code point of the least delay of old (RFC 1349), which queues put first.
    let urgent = source(rate / 100.0, &URGENT.to_string(), 4);
    let text = format!("duration = \"{:.0}ms\"\n{links}{others}{urgent}", seconds * 1e3);
    let report = cell.simulate(&text)?;
    Ok(vec![("urgent", report.sources[1].delays.quantile(0.9) as f64)])
}

/// A path over Linux's own routers: what they do is not plumb's doing.
const LINUX: &str = "linux-narrow";

/// The response of datagrams that are cut and put together again, or fit.
const GOODPUT: &str = "goodput";

/// The response of TCP's connections.
const CONNECTED: &str = "connected";

/// The usual MTU of jumbo frames.
const JUMBO: u64 = 9_000;
/// Bytes of the headers of IPv4 and UDP.
const HEADERS: u64 = 28;
/// Bytes of the headers of IPv4 and TCP, with the option of timestamps.
const HEADERS_TCP: u64 = 52;
/// Bytes of the urgent message.
const URGENT: u64 = 64;

fn plan_cell(point: &DesignPoint<'_>) -> CellDecision {
    if !is_no_switch(point.factors) {
        let is_jumbo = level_number::<u64>(point.factors, "packet") == JUMBO;
        return match point.response {
            // Only what is long keeps what is urgent waiting.
            "urgent" if is_jumbo || point.text("queue") == Some("fifo") => {
                Ok(simulation::cell(EXPERIMENT.id, point))
            }
            _ => Err(Exclusion::NotApplicable),
        };
    }
    let path = point.text("path").unwrap_or_default();
    let rate = point.text("rate").unwrap_or_default();
    let packet: u64 = level_number(point.factors, "packet");
    let ahead: u64 = level_number(point.factors, "ahead");
    let over_tcp = point.response == CONNECTED;
    let headers = if over_tcp { HEADERS_TCP } else { HEADERS };
    let Some(size) = packet.checked_sub(headers).filter(|_| packet <= JUMBO) else {
        let why = format!("a packet has from {headers} to {JUMBO} bytes here");
        return Err(Exclusion::impossible(why));
    };
    let is_cut = point.text("fragments") == Some("allowed");
    let task = match point.response {
        // Cutting and losing would mix two causes.
        "urgent" if path != "jumbo" || !is_cut => return Err(Exclusion::NotApplicable),
        "urgent" => {
            let count = u32::try_from(ahead).unwrap_or(u32::MAX);
            BlockTask::RoundTripBehindLoad { size: URGENT, ahead: size, count }
        }
        _ if ahead > 0 => return Err(Exclusion::NotApplicable),
        // Nobody cuts where nothing is too long.
        "pieces" | "delivered" if is_cut && path == "jumbo" => {
            return Err(Exclusion::NotApplicable);
        }
        // And nothing arrives in a black hole either way.
        CONNECTED if is_cut && !matches!(path, "narrow" | LINUX) => {
            return Err(Exclusion::NotApplicable);
        }
        CONNECTED => BlockTask::ConnectedShare { size },
        // Where only processors limit it.
        GOODPUT if path != LINUX || !is_cut => return Err(Exclusion::NotApplicable),
        GOODPUT => BlockTask::Throughput { size },
        // A packet that does not arrive has no pieces.
        "pieces" if path == "black-hole" || !is_cut => return Err(Exclusion::NotApplicable),
        "pieces" => BlockTask::ReplyPackets { size },
        _ => BlockTask::AnsweredShare { size },
    };
    let mtu = u32::try_from(JUMBO).unwrap_or(u32::MAX);
    let link = if path == LINUX {
        let narrow = PathKind::NarrowRouters(link::MTU);
        PathSpec { mtu, ..link::path("a narrow wire between Linux's routers", narrow) }
    } else {
        let narrow = match path {
            "narrow" => "1500",
            "black-hole" => "1500/silent",
            _ => "9000",
        };
        let hop = |mtu: &str| format!("rate={rate},delay=100us,limit=256packets,mtu={mtu}");
        let text = format!("{};{}", hop("9000"), hop(narrow));
        link::path_over_link(&format!("{path} {rate}"), &text, mtu)?
    };
    let mechanism = if over_tcp { Mechanism::Tcp4 } else { Mechanism::Udp4 };
    let set = |options: &mut SocketOptions| options.fragments = Some(is_cut);
    Ok((remote::launch_group_over(point, mechanism, link, set)?, task))
}

const EXPECTATIONS: &[Expectation] = &[
    Expectation {
        id: "gigabit.mtu.pieces-are-as-few-as-can-be",
        statement: "A jumbo packet that is cut arrives in as few packets as 1480 bytes in each allow: 7 for \
            one of 9000 bytes.",
        basis: "RFC 791 §3.2: as much in each fragment as the next hop takes",
        judge: fragment_counts,
    },
    Expectation {
        id: "gigabit.mtu.tcp-sends-smaller-segments-when-told",
        statement: "Where the hop says that it takes only 1500 bytes, TCP gets its jumbo segments across in \
            smaller ones, though nobody may cut them.",
        basis: "RFC 1191",
        judge: |evidence| delivered_share(evidence, &WITH_ICMP, "forbidden", ALL),
    },
    Expectation {
        id: "gigabit.mtu.tcp-hangs-in-a-black-hole",
        statement: "Where the hop drops what is too long and says nothing, connections are made and TCP's \
            jumbo segments never arrive.",
        basis: "RFC 2923 §2.1",
        judge: |evidence| delivered_share(evidence, &BLACK_HOLE, "forbidden", NONE),
    },
];

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "gigabit.mtu.jumbo-dropped-with-df",
        claim: "Where a hop takes only 1500 bytes, jumbo packets are dropped entirely if the don't \
            fragment bit is set (judged by Linux's routers).",
        historical: Some("'fragment them to 1500 bytes or drop them entirely'; no figure"),
        judge: |evidence| delivered_share(evidence, &DATAGRAMS, "forbidden", NONE),
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.mtu.jumbo-only-in-lans",
        claim: "Jumbo packets help only in a LAN, since wide-area networks fragment or drop them (judged by a path with a hop of 1500 bytes: \
            none arrives that must stay whole, and those that may be cut arrive in several packets).",
        judge: |evidence| {
            let whole = jumbos(evidence, &DATAGRAMS, "forbidden");
            let cut =
                jumbos(evidence, &JumboCondition { response: "pieces", ..DATAGRAMS }, "allowed");
            let cases = whole.map(|cell| median_within(cell, NONE));
            let pieces = cut.map(|cell| median_within(cell, (2.0, f64::INFINITY)));
            judge_all(cases.chain(pieces).collect(), DATAGRAMS.command)
        },
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.mtu.jumbo-fragmented-without-df",
        claim: "Where a hop takes only 1500 bytes and routers may cut packets, jumbo packets arrive in \
            fragments (judged by Linux's routers).",
        historical: Some("'fragment them to 1500 bytes or drop them entirely'; no figure"),
        judge: |evidence| delivered_share(evidence, &DATAGRAMS, "allowed", ALL),
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.mtu.fragmentation-costs",
        claim: "Fragmentation and reassembly cost enough that high-performance systems avoid them (judged by bytes a second through Linux's \
            routers, where sender, router and receiver share a processor: jumbo datagrams that are cut carry fewer than datagrams of 1500 \
            bytes).",
        judge: |evidence| {
            let twins = evidence.twins(
                EXPERIMENT.id,
                GOODPUT,
                "packet",
                |cell| packet(cell) > ETHERNET,
                |cell| packet(cell) == ETHERNET,
            );
            let label = |cut: &MeasuredCell<'_>| format!("{ETHERNET}/{} cut", packet(cut));
            let case = |cut: &MeasuredCell<'_>, whole: &MeasuredCell<'_>| {
                ClaimCase::order(cut.level("placement"), label(cut), whole, cut)
            };
            judge_all(ClaimCases::of_twins(twins, case, label), NARROW)
        },
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.mtu.jumbos-block-urgent-packets",
        claim: "A small high-priority packet behind several jumbo packets has to wait longer than \
            behind as many of 1500 bytes; and in simulations longer where as many bytes of others come in jumbos.",
        judge: urgent_packet_delayed,
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.mtu.small-cells-or-priorities-do-not-block",
        claim: "Switched networks with a small MTU (ATM, 53 bytes) or out-of-band data do not suffer that blocking (judged by simulations of \
            equal load: nine of ten urgent packets stay below half of the time that they need behind jumbos in the order of arrival, or less).",
        figures: &[PublishedFigure::alone("ATM cell", 53.0, Unit::Bytes, "ATM at 53 bytes")],
        judge: |evidence| {
            let jumbos = is_switched("fifo", JUMBO);
            let mut found = ClaimCases::default();
            for (other, (queue, packet)) in
                [("packet", ("fifo", CELL)), ("queue", ("priority", JUMBO))]
            {
                let twins = evidence.twins(
                    EXPERIMENT.id,
                    "urgent",
                    other,
                    is_switched(queue, packet),
                    &jumbos,
                );
                let cases = ClaimCases::of_twins(
                    twins,
                    |better, jumbo| {
                        let label = format!(
                            "jumbos in order/{queue}, {packet} at {}",
                            better.level("rate")
                        );
                        ClaimCase::ratio_within("", label, (better, jumbo), (2.0, f64::INFINITY))
                    },
                    |better| format!("jumbos in order at {}", better.level("rate")),
                );
                found.cases.extend(cases.cases);
            }
            judge_all(found, "plumb run mtu.path --set path=switch")
        },
        ..PublishedClaim::of(WEIGLE)
    },
];

/// Bytes of a packet that Ethernet does not take.
const ETHERNET: i64 = 1_500;

/// Bytes of IPv4's header, and what a packet of Ethernet's size has beside it in whole eights.
const HEADER: i64 = 20;

const FRAGMENT: u64 = 1_480;

/// A packet size that is not delivered: fewer than this share arrive.
const UNDELIVERED: f64 = 0.05;

/// Bytes of a packet.
fn packet(cell: &MeasuredCell<'_>) -> i64 {
    cell.int("packet").unwrap_or(0)
}

/// Bounds of a share that is none, and of one that is all.
const NONE: (f64, f64) = (0.0, UNDELIVERED);

const ALL: (f64, f64) = (1.0 - UNDELIVERED, 1.0);

/// Jumbo packets of a kind over a kind of path.
struct JumboCondition {
    response: &'static str,
    path: &'static str,
    command: &'static str,
}

const DATAGRAMS: JumboCondition =
    JumboCondition { response: "delivered", path: LINUX, command: NARROW };

const WITH_ICMP: JumboCondition =
    JumboCondition { response: "connected", path: LINUX, command: NARROW };

const BLACK_HOLE: JumboCondition = JumboCondition {
    response: "connected",
    path: "black-hole",
    command: "plumb run mtu.path --set path=black-hole --set ahead=0",
};

const NARROW: &str = "plumb run mtu.path --set path=linux-narrow --set ahead=0";

/// The cells of jumbo packets of a kind.
fn jumbos<'a>(
    evidence: &ClaimEvidence<'a>,
    kind: &JumboCondition,
    fragments: &str,
) -> impl Iterator<Item = &'a MeasuredCell<'a>> {
    evidence.cells(EXPERIMENT.id, kind.response).filter(move |cell| {
        cell.is("path", kind.path) && cell.is("fragments", fragments) && packet(cell) > ETHERNET
    })
}

fn median_within(cell: &MeasuredCell<'_>, bounds: (f64, f64)) -> ClaimCase {
    let rate = cell.text("rate").map_or_else(String::new, |rate| format!(" at {rate}"));
    let label = format!("packets of {}{rate}", packet(cell));
    ClaimCase::median_within(cell.level("placement"), label, cell, bounds)
}

/// The share of jumbo packets that gets across.
fn delivered_share(
    evidence: &ClaimEvidence<'_>,
    kind: &JumboCondition,
    fragments: &str,
    bounds: (f64, f64),
) -> ClaimJudgment {
    let cases = jumbos(evidence, kind, fragments).map(|cell| median_within(cell, bounds));
    judge_all(cases.collect(), kind.command)
}

/// The number of packets that jumbo packets arrive in.
fn fragment_counts(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let kind = JumboCondition { response: "pieces", ..DATAGRAMS };
    let cases = jumbos(evidence, &kind, "allowed").map(|cell| {
        let payload = packet(cell) - HEADER;
        let fewest = payload.unsigned_abs().div_ceil(FRAGMENT) as f64;
        // Half a packet more or less is none.
        median_within(cell, (fewest - 0.5, fewest + 0.5))
    });
    judge_all(cases.collect(), kind.command)
}

/// Cells of the simulated switch.
fn is_switched(queue: &'static str, bytes: u64) -> impl Fn(&MeasuredCell<'_>) -> bool {
    move |cell| cell.is("path", SWITCH) && cell.is("queue", queue) && cell.is("packet", bytes)
}

/// Behind jumbos against behind as many packets of Ethernet's size.
fn urgent_packet_delayed(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let ahead = |cell: &MeasuredCell<'_>| cell.int("ahead").unwrap_or(0);
    let label = |jumbo: &MeasuredCell<'_>| {
        let (ahead, packet, rate) = (ahead(jumbo), packet(jumbo), jumbo.level("rate"));
        format!("behind {ahead} of {packet}/{ETHERNET} at {rate}")
    };
    let mut found = ClaimCases::of_twins(
        evidence.twins(
            EXPERIMENT.id,
            "urgent",
            "packet",
            |cell| ahead(cell) > 1 && packet(cell) > ETHERNET,
            |cell| packet(cell) == ETHERNET,
        ),
        |jumbo, usual| ClaimCase::order(jumbo.level("placement"), label(jumbo), usual, jumbo),
        label,
    );
    let twins = evidence.twins(
        EXPERIMENT.id,
        "urgent",
        "packet",
        is_switched("fifo", JUMBO),
        is_switched("fifo", 1_500),
    );
    let label =
        |jumbo: &MeasuredCell<'_>| format!("switch at {}, in jumbos/1500", jumbo.level("rate"));
    let simulated = ClaimCases::of_twins(
        twins,
        |jumbo, usual| ClaimCase::order("", label(jumbo), usual, jumbo),
        label,
    );
    found.cases.extend(simulated.cases);
    judge_all(found, "plumb run mtu.path --set path=jumbo --set packet=1500,9000 --set ahead=8")
}

fn sentences(data: &PageData<'_>) -> Vec<String> {
    let cells = &data.cells;
    [
        delivered(&of(cells, "delivered"), "Packets of", " that arrive"),
        pieces(&of(cells, "pieces")),
        delivered(&of(cells, CONNECTED), "TCP connections that carry as much as a packet of", ""),
        urgent(&of(cells, "urgent")),
    ]
    .concat()
}

/// Where a kind of path stands among the others.
fn path_order(cell: &CellResult) -> Option<usize> {
    PATHS.iter().position(|path| *path == cell.level("path"))
}

/// The cells of the longest packets, and how long these are.
fn longest<'a>(cells: &[&'a CellResult]) -> Option<(u64, Vec<&'a CellResult>)> {
    let longest = cells.iter().filter_map(|cell| cell.number("packet")).max()?;
    let is_longest = |cell: &&&CellResult| cell.number("packet") == Some(longest);
    Some((longest, cells.iter().filter(is_longest).copied().collect()))
}

/// In how many packets the longest datagrams arrive, a path each.
fn pieces(cells: &[&CellResult]) -> Vec<String> {
    let Some((longest, cells)) = longest(cells) else { return Vec::new() };
    let mut paths: BTreeMap<Option<usize>, Vec<&CellResult>> = BTreeMap::new();
    for cell in cells {
        paths.entry(path_order(cell)).or_default().push(cell);
    }
    let path = |found: Vec<&CellResult>| {
        let counts = found.iter().filter_map(|cell| cell.summary.median);
        let words: BTreeSet<String> = counts.map(format_count).collect();
        let words: Vec<String> = words.into_iter().collect();
        format!("{} over {}", words.join(" or "), levels(found[0], &["path"]))
    };
    let told: Vec<String> = paths.into_values().map(path).collect();
    sentence(&told, "; ", |told| format!("Packets in which one of {longest} B arrives: {told}."))
}

/// What happens to the longest packets on each kind of path.
fn delivered(cells: &[&CellResult], what: &str, arrive: &str) -> Vec<String> {
    let Some((longest, cells)) = longest(cells) else { return Vec::new() };
    let mut paths: BTreeMap<(Option<usize>, String), Vec<&CellResult>> = BTreeMap::new();
    for cell in cells {
        let path = (path_order(cell), levels(cell, &["path", "fragments"]));
        paths.entry(path).or_default().push(cell);
    }
    let path = |((_, path), found): ((Option<usize>, String), Vec<&CellResult>)| {
        let shares: Vec<f64> = found.iter().filter_map(|cell| cell.summary.median).collect();
        let same = shares.iter().all(|share| share.total_cmp(&shares[0]).is_eq());
        let share = range(if same { &shares[..1] } else { &shares }).unwrap_or_default();
        let undelivered = found.iter().find(|cell| cell.summary.median < Some(1.0));
        let outcome =
            undelivered.map(|cell| undelivered_outcome(cell)).filter(|outcome| !outcome.is_empty());
        format!(
            "{path}: {share}{}",
            outcome.map_or_else(String::new, |outcome| format!(", {outcome}"))
        )
    };
    let told: Vec<String> = paths.into_iter().map(path).collect();
    sentence(&told, "; ", |told| format!("{what} {longest} B{arrive}: {told}."))
}

/// How much longer the small packet takes behind the most of the longest than behind as many of the
/// shortest.
fn urgent(cells: &[&CellResult]) -> Vec<String> {
    let most = cells.iter().filter_map(|cell| cell.number("ahead")).max().unwrap_or(0);
    let mut rates: BTreeMap<(usize, &str), BTreeMap<u64, &CellResult>> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| most > 0 && cell.number("ahead") == Some(most)) {
        let Some(packet) = cell.number("packet") else { continue };
        let rate = (name::placement_order(cell), cell.level("rate"));
        rates.entry(rate).or_default().insert(packet, cell);
    }
    let rate = |((_, rate), packets): ((usize, &str), BTreeMap<u64, &CellResult>)| {
        let behind = |(packet, cell): (u64, &CellResult)| {
            format!("{} behind {packet} B each", value::median(cell))
        };
        let packets: Vec<String> = packets.into_iter().map(behind).collect();
        format!("at {rate} {}", packets.join(", "))
    };
    let told: Vec<String> = rates.into_iter().map(rate).collect();
    sentence(&told, "; ", |told| {
        format!("A small packet's round trip behind {most} others: {told}.")
    })
}

fn tiles(data: &PageData<'_>) -> Vec<HeadlineTile> {
    let mut urgent = of(&data.cells, "urgent");
    urgent.retain(|cell| cell.summary.ci95.is_some() && cell.level("path") != SWITCH);
    urgent.sort_by_key(|cell| (cell.number("ahead"), cell.number("packet")));
    let tile = |cell: &&CellResult| HeadlineTile {
        conditions: levels(cell, &["packet", "ahead", "rate", "placement"]),
        ..cell_tile("urgent packet, there and back", cell)
    };
    urgent.iter().rev().take(2).map(tile).collect()
}

fn figures(data: &PageData<'_>) -> Vec<Figure> {
    let cells = &data.cells;
    let mut figures = Vec::new();
    for cells in by_rate(&[of(cells, "delivered"), of(cells, CONNECTED)].concat()) {
        for path in PATHS {
            let on_path = cells.iter().filter(|cell| cell.level("path") == path);
            let on_path: Vec<&CellResult> = on_path.copied().collect();
            if !on_path.is_empty() {
                figures.push(delivered_figure(on_path));
            }
        }
    }
    figures.extend(by_rate(&of(cells, "pieces")).into_iter().map(pieces_figure));
    let (switched, real): (Vec<_>, Vec<_>) =
        of(cells, "urgent").into_iter().partition(|cell| cell.level("path") == SWITCH);
    figures.extend(by_rate(&real).iter().map(|cells| urgent_figure(cells)));
    figures.extend(by_level::figures(&switched, &SWITCHED));
    figures.extend(against_factor::figures(&of(cells, GOODPUT), &CUT));
    figures.retain(|figure| !figure.is_empty());
    figures
}

/// What datagrams carry that are cut or fit.
const CUT: FactorPlot = FactorPlot {
    factor: "packet",
    label: "bytes of a packet, of which routers take 1500",
    unit: "B",
    scale: FactorScale::Linear,
    panel_factors: &[],
    pictures: &[("Datagrams through Linux's routers", &[GOODPUT])],
    power_law_responses: &[],
};

/// What an urgent packet takes through a simulated switch.
const SWITCHED: LevelPlot = LevelPlot {
    factor: "queue",
    order: &["fifo", "priority"],
    panel_factors: &["rate"],
    pictures: &[("Urgent packet through a simulated switch", &["urgent"], true)],
};

/// What happened to the packets of a cell that did not arrive; empty where all arrived.
fn undelivered_outcome(cell: &CellResult) -> &'static str {
    let count = |counter: &str| cell.counters.get(counter).copied().unwrap_or(0);
    // The first is lost and its refusal comes before the next is sent.
    match (count("lost"), count("told_too_long")) {
        (0, _) => "",
        _ if cell.response == CONNECTED => "hung",
        (_, 0) => "vanished",
        _ => "refused",
    }
}

/// A number of packets, with a decimal where it is not a whole one.
fn format_count(count: f64) -> String {
    let digits = usize::from((count - count.round()).abs() >= 0.05);
    format!("{count:.digits$}")
}

fn by_rate<'a>(cells: &[&'a CellResult]) -> Vec<Vec<&'a CellResult>> {
    let mut rates: BTreeMap<(usize, &str), Vec<&CellResult>> = BTreeMap::new();
    for cell in cells {
        let key = (name::placement_order(cell), cell.level("rate"));
        rates.entry(key).or_default().push(cell);
    }
    rates.into_values().collect()
}

/// A bar for each kind of packet on a path, as long as the share that arrived.
fn delivered_figure(mut cells: Vec<&CellResult>) -> Figure {
    let over_tcp = |cell: &CellResult| cell.response == CONNECTED;
    cells.sort_by_key(|cell| (over_tcp(cell), cell.level("fragments"), cell.number("packet")));
    let has_both = cells.iter().any(|cell| over_tcp(cell));
    let title = format!("Delivered, {}", levels(cells[0], &["path", "rate", "placement"]));
    let mut table = TextTable::with_heads(&["packets", "#arrived [95 %]", "the others?"]);
    let mut bars = Vec::new();
    for cell in cells {
        let share = cell.summary.median.unwrap_or(0.0);
        let transport = match (has_both, over_tcp(cell)) {
            (false, _) => "",
            (true, false) => "UDP, ",
            (true, true) => "TCP, ",
        };
        let label = format!("{transport}{}", levels(cell, &["fragments", "packet"]));
        let told = value::estimate(Unit::Share, share, None);
        let outcome = if share < 1.0 { undelivered_outcome(cell) } else { "" };
        let comma = if outcome.is_empty() { "" } else { ", " };
        bars.push((format!("{label}: {told}{comma}{outcome}"), share));
        table.push([label, value::median(cell), outcome.to_owned()]);
    }
    table.drop_empty_columns();
    let note = "Median share of the packets that is answered in kind. The others were refused by a router, \
                which said so by ICMP, or vanished without a word; a connection of TCP that cannot get \
                over hung.";
    let axis = Axis::with_scale("share delivered", Unit::Share.name(), AxisScale::Linear);
    bar_figure(title, note, axis, bars, table)
}

/// A bar for each path and size of packets that may be cut, as long as there are pieces.
fn pieces_figure(mut cells: Vec<&CellResult>) -> Figure {
    cells.sort_by_key(|cell| (path_order(cell), cell.number("packet")));
    let title = format!("Pieces, {}", levels(cells[0], &["rate", "placement"]));
    let mut table = TextTable::with_heads(&["packets that may be cut", "#arrive in [95 %]"]);
    let mut bars = Vec::new();
    for cell in cells {
        let count = cell.summary.median.unwrap_or(0.0);
        let label = levels(cell, &["path", "packet"]);
        bars.push((format!("{label}: {}", format_count(count)), count));
        table.push([label, value::median(cell)]);
    }
    let note = "Median number of packets that a datagram arrives in, where it does.";
    let axis = Axis::with_scale("packets", Unit::Count.name(), AxisScale::Linear);
    bar_figure(title, note, axis, bars, table)
}

/// A bar for each name, from 0 to at least 1.
fn bar_figure(
    title: String,
    note: &str,
    axis: Axis,
    bars: Vec<(String, f64)>,
    table: TextTable,
) -> Figure {
    let (names, ends): (Vec<String>, Vec<f64>) = bars.into_iter().unzip();
    let segments = (0u32..).zip(ends).map(|(row, end)| [f64::from(row), 0.0, end]).collect();
    Figure {
        id: slug(&[EXPERIMENT.id, &title]),
        alt: format!("{title}: {}.", names.join("; ")),
        title,
        note: note.to_owned(),
        x: Axis { include: Some([0.0, 1.0]), ..axis },
        y: Axis::names("", names),
        series: vec![Series::stack(String::new(), 0, segments, false)],
        table,
    }
}

/// The round trip of the small packet against how many stood before it, a line a size of those.
fn urgent_figure(cells: &[&CellResult]) -> Figure {
    let title = format!("Urgent packet, {}", levels(cells[0], &["rate", "placement"]));
    let sizes: BTreeSet<u64> = cells.iter().filter_map(|cell| cell.number("packet")).collect();
    let mut table = TextTable::with_heads(&["ahead of it", "#round trip [95 %]"]);
    let mut series = Vec::new();
    for (size, slot) in sizes.into_iter().zip(0u8..) {
        let mut cells = cells.to_vec();
        cells.retain(|cell| cell.number("packet") == Some(size));
        cells.sort_by_key(|cell| cell.number("ahead"));
        let ahead = |cell: &CellResult| cell.number("ahead").unwrap_or(0) as f64;
        let at = cells.iter().filter_map(|cell| FigurePoint::of_median(ahead(cell), cell));
        series.push(Series::points(levels(cells[0], &["packet"]), slot, true, at));
        for cell in cells {
            table.push([levels(cell, &["packet", "ahead"]), value::median(cell)]);
        }
    }
    let unit = Unit::Nanoseconds.name();
    Figure {
        id: slug(&[EXPERIMENT.id, &title]),
        alt: format!("{title}: {}.", table.in_words()),
        title,
        note: "Medians of the whole round trip with 95 % intervals over launches, on an axis from zero."
            .to_owned(),
        x: Axis::from_zero("packets ahead", "count", 1.0),
        y: Axis::from_zero("round trip", unit, highest_median(cells)),
        series,
        table,
    }
}
