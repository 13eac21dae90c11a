//! `mtu.path`: what becomes of jumbo packets on a path with a smaller hop, and of a small urgent packet
//! behind them.
//!
//! Over UDP, whose datagrams nobody cuts but IP, and over TCP, which cuts its own once it has learnt what
//! the path takes. Left out: what a host does that looks for it by itself (RFC 4821).

use plumb_base::units::Unit;
use plumb_harness::spec::BlockTask;
use plumb_harness::spec::Mechanism;
use plumb_store::record::Better;

use crate::definition::{CellDecision, Experiment, ResponseVariable};
use crate::factor::{Factor, FactorDomain, always, keep_levels, numbers, words};
use crate::factors::link;
use crate::factors::remote::{self, ONE_HOST_PLACEMENT};
use crate::preset::RunPreset;
use plumb_analysis::registry::ExperimentAnalysis;

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
        PATH,
        Factor {
            name: "fragments",
            meaning: "whether routers may cut a packet: don't-fragment set or clear",
            domain: FactorDomain::Words(&["forbidden", "allowed"]),
            levels: |_| words(&["forbidden", "allowed"]),
            applies: always,
            fit: keep_levels,
            labels: &[("forbidden", "must stay whole"), ("allowed", "may be cut")],
        },
        PACKET,
        RATE,
        AHEAD,
        Factor { levels: |_| words(&["same-cpu"]), ..ONE_HOST_PLACEMENT },
    ],
    responses: &[
        ResponseVariable {
            name: "delivered",
            unit: Unit::Share,
            better: Better::Higher,
            meaning: "share of packets of this size that are answered in kind",
        },
        ResponseVariable {
            name: "pieces",
            unit: Unit::Count,
            better: Better::Lower,
            meaning: "packets in which a datagram of this size arrives",
        },
        ResponseVariable {
            name: "connected",
            unit: Unit::Share,
            better: Better::Higher,
            meaning: "share of TCP connections that carry a segment of this size and its answer",
        },
        ResponseVariable {
            name: "urgent",
            unit: Unit::Nanoseconds,
            better: Better::Lower,
            meaning: "round trip of a small packet sent right behind those ahead",
        },
    ],
    plan_cell: |setting| {
        let factors = setting.factors;
        let text = |name: &str| factors.text(name).unwrap_or_default();
        let number = |name: &str| {
            factors.int(name).and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
        };
        let (packet, ahead) = (number(PACKET.name), number(AHEAD.name));
        let over_tcp = setting.response == "connected";
        let headers = if over_tcp { HEADERS_TCP } else { HEADERS };
        let Some(payload) = packet.checked_sub(headers).filter(|_| packet <= JUMBO) else {
            return CellDecision::impossible(format!(
                "a packet has from {headers} to {JUMBO} bytes here"
            ));
        };
        let is_cut = text("fragments") == "allowed";
        let task = match setting.response {
            "urgent" => {
                // Cutting and losing would mix two causes.
                if text(PATH.name) != "jumbo" || !is_cut {
                    return CellDecision::NotApplicable;
                }
                let count = u32::try_from(ahead).unwrap_or(u32::MAX);
                BlockTask::RoundTripBehindLoad { size: URGENT, ahead: payload, count }
            }
            _ if ahead > 0 => return CellDecision::NotApplicable,
            // Nobody cuts where nothing is too long, and nothing arrives in a black hole either way.
            "connected" if is_cut && text(PATH.name) != "narrow" => {
                return CellDecision::NotApplicable;
            }
            "connected" => BlockTask::ConnectedShare { size: payload },
            // What does not arrive has no pieces.
            "pieces" if text(PATH.name) == "black-hole" || !is_cut => {
                return CellDecision::NotApplicable;
            }
            "pieces" => BlockTask::ReplyPackets { size: payload },
            _ => BlockTask::AnsweredShare { size: payload },
        };
        let narrow = match text(PATH.name) {
            "narrow" => "1500",
            "black-hole" => "1500/silent",
            _ => "9000",
        };
        let rate = text(RATE.name);
        let hop = |mtu: &str| format!("rate={rate},delay=100us,limit=256packets,mtu={mtu}");
        let link = format!("{};{}", hop("9000"), hop(narrow));
        let mtu = u32::try_from(JUMBO).unwrap_or(u32::MAX);
        let name = format!("{} {rate}", text(PATH.name));
        let mechanism = if over_tcp { Mechanism::Tcp4 } else { Mechanism::Udp4 };
        match link::path_over_link(&name, &link, mtu) {
            Ok(path) => {
                let group = remote::launch_group_over(setting, mechanism, path, |options| {
                    options.fragments = Some(is_cut);
                });
                CellDecision::measure(group, task)
            }
            Err(exclusion) => CellDecision::Excluded(exclusion),
        }
    },
    analysis: ExperimentAnalysis {
        claims: claims::CLAIMS,
        expectations: claims::EXPECTATIONS,
        ..ExperimentAnalysis::PLAIN
    },
    page: page::PAGE,
};

/// The usual MTU of jumbo frames.
const JUMBO: u64 = 9_000;
/// Bytes of the headers of IPv4 and UDP.
const HEADERS: u64 = 28;
/// Bytes of the headers of IPv4 and TCP, with the option of timestamps.
const HEADERS_TCP: u64 = 52;
/// Bytes of the urgent message.
const URGENT: u64 = 64;

const PATH: Factor = Factor {
    name: "path",
    meaning: "what the second hop takes: jumbo packets, 1500 bytes and tells, or 1500 and is silent",
    domain: FactorDomain::Words(&["jumbo", "narrow", "black-hole"]),
    levels: |_| words(&["jumbo", "narrow", "black-hole"]),
    applies: always,
    fit: keep_levels,
    labels: &[("jumbo", "jumbo path"), ("narrow", "narrow hop"), ("black-hole", "black hole")],
};

const PACKET: Factor = Factor {
    name: "packet",
    meaning: "bytes of a packet, IP's header included",
    domain: FactorDomain::Sizes,
    levels: |context| match context.preset {
        RunPreset::Quick => numbers(&[1_500, JUMBO]),
        _ => numbers(&[576, 1_500, 4_352, JUMBO]),
    },
    applies: always,
    fit: keep_levels,
    labels: &[],
};

const RATE: Factor =
    Factor { meaning: "rate of both hops", levels: |_| words(&["10mbit", "1gbit"]), ..link::RATE };

const AHEAD: Factor = Factor {
    name: "ahead",
    meaning: "packets sent right before the urgent one",
    domain: FactorDomain::UpTo(AHEAD_MAX),
    levels: |context| match context.preset {
        RunPreset::Quick => numbers(&[0, 8]),
        _ => numbers(&[0, 1, 8]),
    },
    applies: always,
    fit: keep_levels,
    labels: &[],
};

/// More would not fit the sender's buffer.
const AHEAD_MAX: u64 = 16;

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::gigabit::*;
    use plumb_analysis::claim::{
        ClaimCase, ClaimCases, ClaimEvidence, ClaimJudgment, Expectation, PublishedClaim, judge_all,
    };
    use plumb_analysis::cost_ratio::{self};
    use plumb_analysis::summary::MeasuredCell;
    use plumb_base::units::Unit;

    pub(super) const EXPECTATIONS: &[Expectation] = &[
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

    pub(super) const CLAIMS: &[PublishedClaim] = &[
        PublishedClaim {
            id: "gigabit.mtu.jumbo-dropped-with-df",
            claim: "Where a hop takes only 1500 bytes, jumbo packets are dropped entirely if the don't \
                fragment bit is set.",
            source: WEIGLE,
            historical: Some("'fragment them to 1500 bytes or drop them entirely'; no figure"),
            figures: &[],
            judge: |evidence| delivered_share(evidence, &DATAGRAMS, "forbidden", NONE),
        },
        PublishedClaim {
            id: "gigabit.mtu.jumbo-fragmented-without-df",
            claim: "Where a hop takes only 1500 bytes and routers may cut packets, jumbo packets arrive in \
                fragments.",
            source: WEIGLE,
            historical: Some("'fragment them to 1500 bytes or drop them entirely'; no figure"),
            figures: &[],
            judge: |evidence| delivered_share(evidence, &DATAGRAMS, "allowed", ALL),
        },
        PublishedClaim {
            id: "gigabit.mtu.jumbos-block-urgent-packets",
            claim: "A small high-priority packet behind several jumbo packets has to wait longer than \
                behind as many of 1500 bytes.",
            source: WEIGLE,
            historical: None,
            figures: &[],
            judge: urgent_packet_delayed,
        },
    ];

    const EXPERIMENT: &str = "mtu.path";

    /// Bytes of a packet that Ethernet does not take.
    const ETHERNET: i64 = 1_500;

    /// Bytes of IPv4's header, and what a packet of Ethernet's size has beside it in whole eights.
    const HEADER: i64 = 20;

    const FRAGMENT: u64 = 1_480;

    /// A packet size that is not delivered: fewer than this share arrive.
    const UNDELIVERED: f64 = 0.05;

    fn text<'a>(cell: &'a MeasuredCell<'_>, factor: &str) -> &'a str {
        cell.cell.factors.text(factor).unwrap_or("unknown")
    }

    fn int(cell: &MeasuredCell<'_>, factor: &str) -> i64 {
        cell.cell.factors.int(factor).unwrap_or(0)
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
        JumboCondition { response: "delivered", path: "narrow", command: NARROW };

    const WITH_ICMP: JumboCondition =
        JumboCondition { response: "connected", path: "narrow", command: NARROW };

    const BLACK_HOLE: JumboCondition = JumboCondition {
        response: "connected",
        path: "black-hole",
        command: "plumb run mtu.path --set path=black-hole --set ahead=0",
    };

    const NARROW: &str = "plumb run mtu.path --set path=narrow --set ahead=0";

    /// The cells of jumbo packets of a kind.
    fn jumbos<'a>(
        evidence: &ClaimEvidence<'a>,
        kind: &JumboCondition,
        fragments: &str,
    ) -> impl Iterator<Item = &'a MeasuredCell<'a>> {
        evidence.cells(EXPERIMENT, kind.response).filter(move |cell| {
            text(cell, "path") == kind.path
                && text(cell, "fragments") == fragments
                && int(cell, "packet") > ETHERNET
        })
    }

    fn quantity(cell: &MeasuredCell<'_>, bounds: (f64, f64), unit: Unit) -> ClaimCase {
        let ends = cell.interval().map(|interval| [interval.lo, interval.hi]);
        let label = format!("packets of {} at {}", int(cell, "packet"), text(cell, "rate"));
        ClaimCase::quantity(text(cell, "placement"), label, cell.median(), ends, bounds, unit)
    }

    /// The share of jumbo packets that gets across.
    fn delivered_share(
        evidence: &ClaimEvidence<'_>,
        kind: &JumboCondition,
        fragments: &str,
        bounds: (f64, f64),
    ) -> ClaimJudgment {
        let mut pairs = ClaimCases::default();
        let cells = jumbos(evidence, kind, fragments);
        pairs.cases.extend(cells.map(|cell| quantity(cell, bounds, Unit::Share)));
        judge_all(pairs, kind.command)
    }

    /// The number of packets that jumbo packets arrive in.
    fn fragment_counts(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let mut pairs = ClaimCases::default();
        let kind = JumboCondition { response: "pieces", ..DATAGRAMS };
        for cell in jumbos(evidence, &kind, "allowed") {
            let payload = int(cell, "packet") - HEADER;
            let fewest = payload.unsigned_abs().div_ceil(FRAGMENT) as f64;
            // Half a packet more or less is none.
            pairs.cases.push(quantity(cell, (fewest - 0.5, fewest + 0.5), Unit::Count));
        }
        judge_all(pairs, kind.command)
    }

    /// Behind jumbos against behind as many packets of Ethernet's size.
    fn urgent_packet_delayed(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let mut pairs = ClaimCases::default();
        let behind = |cell: &&MeasuredCell<'_>| int(cell, "ahead") > 1;
        for jumbo in evidence.cells(EXPERIMENT, "urgent").filter(behind) {
            if int(jumbo, "packet") <= ETHERNET {
                continue;
            }
            let rest = jumbo.cell.factors.clone().without("packet");
            let usual = evidence.cells(EXPERIMENT, "urgent").find(|cell| {
                int(cell, "packet") == ETHERNET
                    && cell.cell.factors.clone().without("packet") == rest
            });
            let label = format!(
                "behind {} of {}/{ETHERNET} at {}",
                int(jumbo, "ahead"),
                int(jumbo, "packet"),
                text(jumbo, "rate")
            );
            match usual {
                Some(usual) => {
                    let contrast = cost_ratio::within_run(usual, jumbo);
                    pairs.cases.push(ClaimCase::order(text(jumbo, "placement"), label, contrast));
                }
                None => pairs.missing.push(label),
            }
        }
        judge_all(pairs, "plumb run mtu.path --set path=jumbo --set packet=1500,9000 --set ahead=8")
    }
}

mod page {
    //! Figures and sentences.

    use crate::pages::gigabit::*;
    use plumb_analysis::document::CellResult;

    use plumb_base::units::Unit;

    use plumb_report::figure::{Axis, AxisScale, Figure, FigurePoint, Series, SeriesMarks, slug};
    use plumb_report::headline::HeadlineTile;
    use plumb_report::registry::{ExperimentPage, PageData};
    use plumb_report::table::TextTable;
    use plumb_report::{name, value};
    use serde_json::Value;
    use std::collections::{BTreeMap, BTreeSet};

    pub(super) const PAGE: ExperimentPage = ExperimentPage {
        title: "Long packets on a path that they do not fit",
        figures: Some(|data| figures(&data.cells)),
        sentences,
        tiles,
        ..ExperimentPage::PLAIN
    };

    fn sentences(data: &PageData<'_>) -> Vec<String> {
        let cells = &data.cells;
        [
            delivered(cells, "delivered", "Packets of"),
            pieces(cells),
            delivered(cells, CONNECTED, "TCP connections that carry as much as a packet of"),
            urgent(cells),
        ]
        .concat()
    }

    /// Shares that arrived, each with its cell.
    type DeliveredShares<'a> = Vec<(f64, &'a CellResult)>;

    /// In how many packets the longest datagrams arrive, a path each.
    fn pieces(cells: &[&CellResult]) -> Vec<String> {
        let cells = || {
            cells.iter().filter(|cell| cell.response == "pieces" && cell.summary.median.is_some())
        };
        let longest = cells().filter_map(|cell| number(cell, "packet")).max();
        let mut paths: BTreeMap<Option<usize>, Vec<&CellResult>> = BTreeMap::new();
        for cell in cells().filter(|cell| number(cell, "packet") == longest) {
            let place = PATHS.iter().position(|path| *path == text(cell, "path"));
            paths.entry(place).or_default().push(cell);
        }
        let told: Vec<String> = paths
            .into_values()
            .map(|found| {
                let path = name::cell(&found[0].factors, &["path"].map(str::to_owned).into());
                let counts = found.iter().filter_map(|cell| cell.summary.median);
                let words: BTreeSet<String> = counts.map(format_count).collect();
                format!("{} over {path}", words.into_iter().collect::<Vec<_>>().join(" or "))
            })
            .collect();
        match (longest, told.is_empty()) {
            (Some(longest), false) => {
                vec![format!("Packets in which one of {longest} B arrives: {}.", told.join("; "))]
            }
            _ => Vec::new(),
        }
    }

    /// What becomes of the longest packets on each kind of path.
    fn delivered(cells: &[&CellResult], response: &str, what: &str) -> Vec<String> {
        let cells = || cells.iter().filter(|cell| cell.response == response);
        let Some(longest) = cells().filter_map(|cell| number(cell, "packet")).max() else {
            return Vec::new();
        };
        let mut paths: BTreeMap<(Option<usize>, String), DeliveredShares<'_>> = BTreeMap::new();
        for cell in cells().filter(|cell| number(cell, "packet") == Some(longest)) {
            let Some(share) = cell.summary.median else { continue };
            let place = PATHS.iter().position(|path| *path == text(cell, "path"));
            let path = name::cell(&cell.factors, &["path", "fragments"].map(str::to_owned).into());
            paths.entry((place, path)).or_default().push((share, cell));
        }
        let told: Vec<String> = paths
            .into_iter()
            .map(|((_, path), found)| {
                let shares: Vec<f64> = found.iter().map(|(share, _)| *share).collect();
                let same = shares.iter().all(|share| share.total_cmp(&shares[0]).is_eq());
                let share = range(if same { &shares[..1] } else { &shares }).unwrap_or_default();
                let fate = found
                    .iter()
                    .find(|(share, _)| *share < 1.0)
                    .map(|(_, cell)| undelivered_outcome(cell));
                let fate = fate.filter(|fate| !fate.is_empty());
                format!(
                    "{path}: {share}{}",
                    fate.map_or_else(String::new, |fate| format!(", {fate}"))
                )
            })
            .collect();
        let arrive = if response == CONNECTED { "" } else { " that arrive" };
        vec![format!("{what} {longest} B{arrive}: {}.", told.join("; "))]
    }

    /// How much longer the small packet takes behind the most of the longest than behind as many of the
    /// shortest.
    fn urgent(cells: &[&CellResult]) -> Vec<String> {
        let cells = || {
            cells.iter().filter(|cell| cell.response == "urgent" && cell.summary.median.is_some())
        };
        let most = cells().filter_map(|cell| number(cell, "ahead")).max().unwrap_or(0);
        let mut rates: BTreeMap<(usize, &str), BTreeMap<u64, &CellResult>> = BTreeMap::new();
        for cell in cells().filter(|cell| most > 0 && number(cell, "ahead") == Some(most)) {
            let Some(packet) = number(cell, "packet") else { continue };
            let rate = (name::placement_order(cell), text(cell, "rate"));
            rates.entry(rate).or_default().insert(packet, cell);
        }
        let told: Vec<String> = rates
            .into_iter()
            .map(|((_, rate), packets)| {
                let packets: Vec<String> = packets
                    .into_iter()
                    .map(|(packet, cell)| format!("{} behind {packet} B each", median_text(cell)))
                    .collect();
                format!("at {rate} {}", packets.join(", "))
            })
            .collect();
        if told.is_empty() {
            return Vec::new();
        }
        vec![format!("A small packet's round trip behind {most} others: {}.", told.join("; "))]
    }

    fn tiles(data: &PageData<'_>) -> Vec<HeadlineTile> {
        let mut urgent: Vec<&CellResult> =
            data.cells.iter().copied().filter(|cell| cell.response == "urgent").collect();
        urgent.sort_by_key(|cell| (number(cell, "ahead"), number(cell, "packet")));
        let tile = |cell: &&CellResult| {
            let median = cell.summary.median?;
            let interval = cell.summary.ci95?;
            let wanted = ["packet", "ahead", "rate", "placement"].map(str::to_owned).into();
            Some(HeadlineTile {
                label: "urgent packet, there and back".to_owned(),
                value: value::estimate(Unit::Nanoseconds, median, Some(interval)),
                interval: value::interval(Unit::Nanoseconds, median, interval),
                conditions: name::cell(&cell.factors, &wanted),
            })
        };
        urgent.iter().rev().take(2).filter_map(tile).collect()
    }

    /// The figures of `mtu.path`; `cells` are all of that experiment.
    fn figures(cells: &[&CellResult]) -> Vec<Figure> {
        let of = |responses: &[&str]| -> Vec<&CellResult> {
            let chosen = |cell: &&&CellResult| {
                responses.contains(&cell.response.as_str()) && cell.summary.median.is_some()
            };
            cells.iter().filter(chosen).copied().collect()
        };
        let mut figures = Vec::new();
        for cells in by_rate(&of(&["delivered", CONNECTED])) {
            let paths = PATHS.map(|path| {
                let on = |cell: &&&CellResult| word(cell, "path") == path;
                cells.iter().copied().filter(|cell| on(&cell)).collect::<Vec<_>>()
            });
            figures.extend(
                paths.iter().filter(|cells| !cells.is_empty()).map(|c| delivered_figure(c)),
            );
        }
        figures.extend(by_rate(&of(&["pieces"])).iter().map(|cells| pieces_figure(cells)));
        figures.extend(by_rate(&of(&["urgent"])).iter().map(|cells| urgent_figure(cells)));
        figures.retain(|figure| !figure.is_empty());
        figures
    }

    /// The kinds of path, the widest first.
    const PATHS: [&str; 3] = ["jumbo", "narrow", "black-hole"];

    /// The response of TCP's connections.
    const CONNECTED: &str = "connected";

    /// What became of the packets of a cell that did not arrive; empty where all arrived.
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
        let mut rates: BTreeMap<(usize, String), Vec<&CellResult>> = BTreeMap::new();
        for cell in cells {
            let key = (name::placement_order(cell), word(cell, "rate").to_owned());
            rates.entry(key).or_default().push(cell);
        }
        rates.into_values().collect()
    }

    fn word<'a>(cell: &'a CellResult, factor: &str) -> &'a str {
        cell.factors.get(factor).and_then(Value::as_str).unwrap_or("")
    }

    fn amount(cell: &CellResult, factor: &str) -> f64 {
        cell.factors.get(factor).and_then(Value::as_f64).unwrap_or(0.0)
    }

    fn size(cell: &CellResult) -> Option<u64> {
        cell.factors.get("packet").and_then(Value::as_u64)
    }

    fn words(cell: &CellResult, factors: &[&str]) -> String {
        name::cell(&cell.factors, &factors.iter().map(|factor| (*factor).to_owned()).collect())
    }

    /// A bar for each kind of packet on a path, as long as the share that arrived.
    fn delivered_figure(cells: &[&CellResult]) -> Figure {
        let mut cells = cells.to_vec();
        let over_tcp = |cell: &CellResult| cell.response == CONNECTED;
        cells.sort_by_cached_key(|cell| {
            (over_tcp(cell), word(cell, "fragments").to_owned(), size(cell))
        });
        let has_both = cells.iter().any(|cell| over_tcp(cell));
        let title = words(cells[0], &["path", "rate", "placement"]);
        let title = format!("Delivered, {title}");
        let mut table = TextTable::with_heads(&["packets", "#arrived [95 %]", "the others?"]);
        let (mut names, mut segments) = (Vec::new(), Vec::new());
        for (cell, row) in cells.iter().zip(0u32..) {
            let share = cell.summary.median.unwrap_or(0.0);
            let transport = match (has_both, over_tcp(cell)) {
                (false, _) => "",
                (true, false) => "UDP, ",
                (true, true) => "TCP, ",
            };
            let label = format!("{transport}{}", words(cell, &["fragments", "packet"]));
            let told = value::estimate(Unit::Share, share, None);
            let fate = if share < 1.0 { undelivered_outcome(cell) } else { "" };
            let comma = if fate.is_empty() { "" } else { ", " };
            names.push(format!("{label}: {told}{comma}{fate}"));
            segments.push([f64::from(row), 0.0, share]);
            let told = value::with_interval(Unit::Share, share, cell.summary.ci95);
            table.push([label, told, fate.to_owned()]);
        }
        table.drop_empty_columns();
        let note = "Median share of the packets that is answered in kind. The others were refused by a router, \
                which said so by ICMP, or vanished without a word; a connection of TCP that cannot get \
                over hung.";
        let axis = Axis::with_scale("share delivered", Unit::Share.name(), AxisScale::Linear);
        rows(title, note, axis, names, segments, table)
    }

    /// A bar for each path and size of packets that may be cut, as long as there are pieces.
    fn pieces_figure(cells: &[&CellResult]) -> Figure {
        let mut cells = cells.to_vec();
        let place = |cell: &CellResult| PATHS.iter().position(|path| *path == word(cell, "path"));
        cells.sort_by_key(|cell| (place(cell), size(cell)));
        let title = format!("Pieces, {}", words(cells[0], &["rate", "placement"]));
        let mut table = TextTable::with_heads(&["packets that may be cut", "#arrive in [95 %]"]);
        let (mut names, mut segments) = (Vec::new(), Vec::new());
        for (cell, row) in cells.iter().zip(0u32..) {
            let count = cell.summary.median.unwrap_or(0.0);
            let label = words(cell, &["path", "packet"]);
            names.push(format!("{label}: {}", format_count(count)));
            segments.push([f64::from(row), 0.0, count]);
            table.push([label, value::with_interval(Unit::Count, count, cell.summary.ci95)]);
        }
        let note = "Median number of packets that a datagram arrives in, where it does.";
        let axis = Axis::with_scale("packets", Unit::Count.name(), AxisScale::Linear);
        rows(title, note, axis, names, segments, table)
    }

    /// A bar for each name, from 0 to at least 1.
    fn rows(
        title: String,
        note: &str,
        axis: Axis,
        names: Vec<String>,
        segments: Vec<[f64; 3]>,
        table: TextTable,
    ) -> Figure {
        Figure {
            id: slug(&[super::EXPERIMENT.id, &title]),
            alt: format!("{title}: {}.", names.join("; ")),
            title,
            note: note.to_owned(),
            x: Axis { include: Some([0.0, 1.0]), ..axis },
            y: Axis::names("", names),
            series: vec![Series {
                name: String::new(),
                slot: 0,
                marks: SeriesMarks::Stack { segments, hatched: false },
            }],
            table,
        }
    }

    /// The round trip of the small packet against how many stood before it, a line a size of those.
    fn urgent_figure(cells: &[&CellResult]) -> Figure {
        let title = format!("Urgent packet, {}", words(cells[0], &["rate", "placement"]));
        let sizes: BTreeSet<u64> = cells.iter().filter_map(|cell| size(cell)).collect();
        let mut table = TextTable::with_heads(&["ahead of it", "#round trip [95 %]"]);
        let mut series = Vec::new();
        for (size, slot) in sizes.iter().zip(0u8..) {
            let mut cells: Vec<&&CellResult> =
                cells.iter().filter(|cell| self::size(cell) == Some(*size)).collect();
            cells.sort_by(|a, b| amount(a, "ahead").total_cmp(&amount(b, "ahead")));
            let at = cells.iter().filter_map(|cell| {
                let y = cell.summary.median?;
                let x = amount(cell, "ahead");
                Some(FigurePoint { x, y, x_interval: None, y_interval: cell.summary.ci95 })
            });
            let marks = SeriesMarks::Points { at: at.collect(), joined: true };
            series.push(Series { name: words(cells[0], &["packet"]), slot, marks });
            for cell in cells {
                let median = cell.summary.median.unwrap_or(0.0);
                let told = value::with_interval(Unit::Nanoseconds, median, cell.summary.ci95);
                table.push([words(cell, &["packet", "ahead"]), told]);
            }
        }
        let highest = cells.iter().filter_map(|cell| cell.summary.median).fold(0.0, f64::max);
        let told: Vec<String> = table.rows.iter().map(|row| row.join(" ")).collect();
        Figure {
        id: slug(&[super::EXPERIMENT.id, &title]),
        alt: format!("{title}: {}.", told.join("; ")),
        title,
        note: "Medians of the whole round trip with 95 % intervals over launches, on an axis from zero."
            .to_owned(),
        x: Axis {
            include: Some([0.0, 1.0]),
            ..Axis::with_scale("packets ahead", "count", AxisScale::Linear)
        },
        y: Axis {
            include: Some([0.0, highest]),
            ..Axis::with_scale("round trip", Unit::Nanoseconds.name(), AxisScale::Linear)
        },
        series,
        table,
    }
    }
}
