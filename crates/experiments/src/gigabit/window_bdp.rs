//! `window.bdp`: what a window lets through a long fat pipe.
//!
//! The kernel's TCP over an emulated link, its receiver's window bounded and nothing else: buffers at
//! both sides never bound it first. And plumb's in simulations, at rates and round trips that no machine emulates.

use std::collections::{BTreeMap, BTreeSet};

use plumb_base::time::Span;
use plumb_base::units::quantity::{format_span, parse_rate, parse_span};
use plumb_harness::report::LaunchFault;

use crate::claims::{WEIGLE, is_link_on_time};
use crate::factor::channel::{CONGESTION, THROUGHPUT};
use crate::factor::link::{self, MTU};
use crate::factor::numbers;
use crate::factor::remote::{self, INTERVAL_MIN, MESSAGE, SAME_CPU};
use crate::pages::{levels, range};
use crate::prelude::*;
use crate::simulation::{self, ResponseValues, SimulatedCell};

/// Throughput against window, round trip and rate.
pub static EXPERIMENT: Experiment = Experiment {
    id: "window.bdp",
    study: "gigabit",
    question: "How much of a link does a TCP window of this size fill?",
    hypothesis: "A steady transfer gets the smaller of the link's rate and one window a round \
                 trip: 64 KiB fill a short pipe and leave a long one almost empty.",
    factors: &[
        simulation::HOSTS,
        Factor {
            fit: |first, levels| {
                if simulation::are_simulated(first) {
                    numbers(&[8 << 10, 64 << 10, 512 << 10, 4 << 20])
                } else {
                    levels
                }
            },
            ..Factor::new(
                "window",
                "the most that the receiver offers; default leaves it to the kernel",
                FactorDomain::Buffers,
                Numbers(&[8 << 10, 64 << 10, 512 << 10, 4 << 20]),
            )
        }
        .at_quick(Numbers(&[64 << 10]))
        .at_paper(Numbers(&[
            8 << 10,
            16 << 10,
            64 << 10,
            256 << 10,
            1 << 20,
            4 << 20,
            16 << 20,
            64 << 20,
        ])),
        Factor {
            fit: |first, levels| {
                if simulation::are_simulated(first) {
                    words(&["1ms", "20ms", "100ms"])
                } else {
                    levels
                }
            },
            ..ROUND_TRIP
        },
        Factor {
            meaning: "rate of the link, Ethernet's header counted",
            fit: |first, levels| {
                if simulation::are_simulated(first) { words(&["100mbit", "1gbit"]) } else { levels }
            },
            ..link::RATE
        }
        .at(Words(&["10mbit", "100mbit"]))
        .at_quick(Words(&["100mbit"]))
        .at_paper(Words(&["10mbit", "100mbit", "1gbit"])),
        Factor::of_words(
            "queue",
            "room of the link's queue, in products of its rate and its round trip",
            &["0.25bdp", "0.5bdp", "1bdp", "2bdp"],
        )
        .at(Words(&["1bdp"])),
        Factor { applies: always, ..CONGESTION }
            .at(Words(&["reno", "cubic", "bbr"]))
            .at_quick(Words(&["cubic"])),
        simulation::of_real(SAME_CPU),
    ],
    responses: &[THROUGHPUT],
    plan_cell,
    analysis: ExperimentAnalysis {
        claims: CLAIMS,
        expectations: EXPECTATIONS,
        ..ExperimentAnalysis::PLAIN
    },
    page: ExperimentPage {
        title: "Windows and long fat pipes",
        figures: Some(figures),
        sentences,
        tiles,
        ..ExperimentPage::PLAIN
    },
};

/// Delay of an emulated link.
pub(crate) const ROUND_TRIP: Factor = Factor::new(
    "rtt",
    "delay of the link there and back",
    FactorDomain::Parsed(&LevelParser {
        parse: |text| match parse_span(text) {
            Ok(span) if span > Span::ZERO => Ok(format_span(span).as_str().into()),
            Ok(_) => Err("a round trip takes some time: write it like 20ms".to_owned()),
            Err(error) => Err(error.to_string()),
        },
        describe: || "a length of time such as 20ms".to_owned(),
    }),
    Words(&["1ms", "20ms", "100ms"]),
)
.at_quick(Words(&["1ms", "20ms"]))
.at_paper(Words(&["100us", "1ms", "10ms", "20ms", "50ms", "100ms", "300ms"]));

/// An interval holds many bursts: a window's bytes come once a round trip.
const INTERVAL_ROUND_TRIPS: u64 = 10;

fn plan_cell(point: &DesignPoint<'_>) -> CellDecision {
    if simulation::are_simulated(point.factors) {
        return Ok(simulation::cell(EXPERIMENT.id, point));
    }
    let rtt = point.text("rtt").and_then(|text| parse_span(text).ok());
    let (Some(rtt), Some(rate)) = (rtt, point.text("rate")) else {
        return Err(Exclusion::impossible("no round trip or no rate is given"));
    };
    let queue = point.text("queue").unwrap_or("1bdp");
    let text = format!("rate={rate},delay={},limit={queue}", format_span(rtt / 2));
    let path = link::path_over_link(&format!("{rate} {}", format_span(rtt)), &text, MTU)?;
    let window = point.factors.int("window").and_then(|bytes| u64::try_from(bytes).ok());
    let interval = (rtt * INTERVAL_ROUND_TRIPS).max(INTERVAL_MIN);
    let task = BlockTask::SteadyRate { size: MESSAGE, interval_ns: interval.as_ns() };
    let group = remote::launch_group_over(point, Mechanism::Tcp4, path, |options| {
        options.window = window;
    })?;
    Ok((group, task))
}

/// Simulates one setting.
pub(crate) fn simulate(cell: &SimulatedCell<'_>) -> Result<ResponseValues, LaunchFault> {
    let (rtt, rate) = (cell.span("rtt")?, cell.rate("rate")?);
    let us = rtt.as_ns() / 1_000;
    let window = match cell.level("window") {
        "default" => String::new(),
        bytes => format!("receive_buffer = \"{bytes}\"\n"),
    };
    // Slow start is over within 20 round trips.
    let (warmup, duration) = (us * 20 + 100_000, us * 50 + 300_000);
    let links = simulation::chain(
        &format!("rate={:.0}bit,delay={}us", rate * 10.0, us / 8),
        &format!(
            "rate={rate:.0}bit,overhead=14,delay={}us,limit={}",
            us * 3 / 8,
            cell.level("queue")
        ),
    );
    let text = format!(
        "duration = \"{duration}us\"\nwarmup = \"{warmup}us\"\n{links}\
         [[flow]]\nfrom = \"left\"\nto = \"right\"\ncongestion = \"{}\"\n{window}",
        cell.level("congestion"),
    );
    Ok(vec![("throughput", cell.simulate(&text)?.goodput() / 8.0)])
}

const EXPECTATIONS: &[Expectation] = &[Expectation {
    id: "gigabit.window.one-a-round-trip",
    statement: "A window smaller than the product of bandwidth and delay gives one window a round \
            trip.",
    basis: "arithmetic: one window in flight for each round trip",
    judge: one_a_round_trip,
}];

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "gigabit.window.64k-leaves-long-fat-pipes-empty",
        claim: "With TCP's default flow-control window of 64 KB, connections with a larger product \
            of bandwidth and delay cannot keep the network pipe full.",
        historical: Some("16 bits, so 64 KB; 1 Gb/s × 100 ms = 12.5 MB across the United States"),
        figures: &[PublishedFigure::alone("window", 65536.0, Unit::Bytes, "16 bits")],
        judge: classic_window,
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.window.long-paths-lose-against-lan",
        claim: "With the default window of 64 KB a connection over a long fat path carries significantly less than over a LAN (judged at the \
            longest round trip and the fastest rate that were measured or simulated).",
        figures: &[PublishedFigure::alone("window", 65536.0, Unit::Bytes, "16 bits")],
        judge: long_paths_lose,
        ..PublishedClaim::of(WEIGLE)
    },
];

/// A window of 64 KiB over each path longer than its product against the LAN of 1 ms.
fn long_paths_lose(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let is_classic =
        |cell: &MeasuredCell<'_>| pipe_of(cell).is_some_and(|pipe| pipe.window == Some(CLASSIC));
    let is_long = |cell: &MeasuredCell<'_>| pipe_of(cell).is_some_and(|pipe| pipe.bdp > CLASSIC);
    let twins = evidence.twins(
        EXPERIMENT.id,
        "throughput",
        "rtt",
        |cell| is_classic(cell) && is_long(cell) && !cell.is("rtt", "1ms"),
        |cell| cell.is("rtt", "1ms"),
    );
    let label = |long: &MeasuredCell<'_>| {
        format!(
            "{} against 1ms at {}, {}",
            long.level("rtt"),
            long.level("rate"),
            long.level("hosts")
        )
    };
    let found = ClaimCases::of_twins(
        twins,
        |long, lan| ClaimCase::order(long.level("congestion"), label(long), lan, long),
        label,
    );
    judge_all(found, "plumb run window.bdp --set window=64Ki")
}

/// The window of TCP without scaling (RFC 9293 §3.1; "64 KB" in the paper).
const CLASSIC: f64 = 65_536.0;

/// Near enough to what is predicted: sending and delayed acknowledgements add to a short round trip.
const NEAR: (f64, f64) = (0.95, 1.03);

/// A link that is used less than this is not filled.
const FILLED: f64 = 0.95;

/// A cell's setting as numbers.
fn pipe_of(cell: &MeasuredCell<'_>) -> Option<WindowedLink> {
    let window = cell.int("window").map(|bytes| bytes as f64);
    WindowedLink::parse(cell.text("rate")?, cell.text("rtt")?, window)
}

/// The measured throughput as a share of what is expected, against bounds.
fn share(cell: &MeasuredCell<'_>, expected: f64, bounds: (f64, f64)) -> ClaimCase {
    let window = cell.int("window").and_then(|bytes| u64::try_from(bytes).ok());
    let window = window.map_or_else(|| "default".to_owned(), format_bytes);
    let [rtt, rate, queue] = ["rtt", "rate", "queue"].map(|factor| cell.level(factor));
    let hosts =
        cell.text(simulation::HOSTS.name).map_or_else(String::new, |hosts| format!(", {hosts}"));
    let label = format!("{window}, {rtt}, {rate}, {queue}{hosts}");
    let ends = cell.ends().map(|ends| ends.map(|end| end / expected));
    let value = cell.median() / expected;
    ClaimCase::quantity(cell.level("congestion"), label, value, ends, bounds, Unit::Share)
}

/// The throughput at each link and window as a share of what is expected there, where anything is.
fn shares(
    evidence: &ClaimEvidence<'_>,
    bounds: (f64, f64),
    needs: &str,
    expected: impl Fn(&MeasuredCell<'_>, &WindowedLink) -> Option<f64>,
) -> ClaimJudgment {
    let mut found = ClaimCases::default();
    for cell in evidence.cells(EXPERIMENT.id, "throughput") {
        let expected = pipe_of(cell).and_then(|pipe| expected(cell, &pipe));
        let Some(case) = expected.map(|expected| share(cell, expected, bounds)) else { continue };
        if is_link_on_time(cell) {
            found.cases.push(case);
        } else {
            // It is the link that is not filled.
            found.missing.push(format!("{} from a link that keeps its time", case.label));
        }
    }
    judge_all(found, needs)
}

/// At every link whose product is more than 64 KiB: how much of it a window of 64 KiB fills.
fn classic_window(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let needs = "plumb run window.bdp --set window=64Ki --set rtt=40ms --set rate=100mbit";
    shares(evidence, (0.0, FILLED), needs, |_, pipe| {
        (pipe.window == Some(CLASSIC) && pipe.bdp > CLASSIC).then_some(pipe.capacity)
    })
}

/// Where the window is smaller than the product: the throughput against window ÷ round trip.
fn one_a_round_trip(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let needs = "plumb run window.bdp --set window=8Ki,64Ki --set rtt=100ms --set rate=100mbit";
    shares(evidence, NEAR, needs, |_, pipe| pipe.window_rate().filter(|_| pipe.is_window_limited()))
}

/// Of an Ethernet frame of 1,514 bytes, what is payload: 1,500 − 20 (RFC 791) − 20 (RFC 9293) − 12
/// (time stamps, RFC 7323).
const PAYLOAD_SHARE: f64 = 1_448.0 / 1_514.0;

/// A link and a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WindowedLink {
    /// Bytes a second of payload that the link can carry.
    pub(super) capacity: f64,
    /// Seconds there and back.
    rtt: f64,
    /// Bytes; none where the kernel chooses.
    window: Option<f64>,
    /// Bytes of frames in one round trip at the link's rate.
    pub(super) bdp: f64,
}

impl WindowedLink {
    /// The pipe of these levels: a rate such as `10mbit`, a round trip such as `20ms`; none where they
    /// cannot be read.
    pub(super) fn parse(rate: &str, rtt: &str, window: Option<f64>) -> Option<Self> {
        let rate = parse_rate(rate).ok()?.bytes_per_second();
        let rtt = parse_span(rtt).ok()?.as_secs_f64();
        Some(Self { capacity: rate * PAYLOAD_SHARE, rtt, window, bdp: rate * rtt })
    }

    /// Bytes a second that one window a round trip is; none where the kernel chooses the window.
    fn window_rate(&self) -> Option<f64> {
        self.window.map(|window| window / self.rtt)
    }

    /// Whether the window is what bounds a stream, and not the link.
    fn is_window_limited(&self) -> bool {
        self.window.is_some_and(|window| window < self.bdp)
    }

    /// Bytes a second that a stream should get: the smaller of both.
    fn expected_rate(&self) -> f64 {
        self.window_rate().map_or(self.capacity, |rate| rate.min(self.capacity))
    }
}

/// A cell of `window.bdp` with the pipe that it filled, or not.
#[derive(Clone, Copy, Debug)]
struct WindowCell<'a> {
    cell: &'a CellResult,
    link: WindowedLink,
    /// The median of its throughput, in bytes a second.
    throughput: f64,
}

impl<'a> WindowCell<'a> {
    /// The pipe of a cell; none where it has no number, or levels that cannot be read.
    fn of(cell: &'a CellResult) -> Option<Self> {
        let window = cell.number("window").map(|bytes| bytes as f64);
        let link = WindowedLink::parse(cell.text("rate")?, cell.text("rtt")?, window)?;
        Some(Self { cell, link, throughput: cell.summary.median? })
    }

    /// Every cell that has one.
    fn all(data: &PageData<'a>) -> impl Iterator<Item = Self> {
        data.cells.iter().filter_map(|cell| Self::of(cell))
    }

    /// The throughput as a share of one window a round trip; none where the kernel chose the window.
    fn share_of_window_rate(&self) -> Option<f64> {
        self.link.window_rate().map(|rate| self.throughput / rate)
    }

    /// The throughput as a share of what the link can carry.
    fn share_of_link(&self) -> f64 {
        self.throughput / self.link.capacity
    }

    /// A link and a window in words.
    fn label(&self) -> String {
        levels(self.cell, &["window", "rtt", "rate", "congestion"])
    }
}

/// How near throughput comes to one window a round trip, and to the link, by congestion control.
fn sentences(data: &PageData<'_>) -> Vec<String> {
    let mut controls: BTreeMap<&str, Vec<WindowCell<'_>>> = BTreeMap::new();
    for filled in WindowCell::all(data) {
        controls.entry(filled.cell.level("congestion")).or_default().push(filled);
    }
    let mut sentences = Vec::new();
    for (control, cells) in controls {
        let (bounded, free): (Vec<_>, Vec<_>) =
            cells.iter().partition(|cell| cell.link.is_window_limited());
        let bounded: Vec<f64> =
            bounded.into_iter().filter_map(WindowCell::share_of_window_rate).collect();
        let free: Vec<f64> = free.into_iter().map(WindowCell::share_of_link).collect();
        let bounded = range(&bounded).map(|range| {
            format!(
                "where the window is smaller than the product of rate and round trip, throughput is \
                 {range} of one window a round trip"
            )
        });
        let free = range(&free)
            .map(|range| format!("where it is not, {range} of what the link can carry"));
        let parts: Vec<String> = bounded.into_iter().chain(free).collect();
        if !parts.is_empty() {
            sentences.push(format!("{}: {}.", name::capitalize(control), parts.join("; ")));
        }
    }
    let emptiest =
        WindowCell::all(data).min_by(|a, b| a.share_of_link().total_cmp(&b.share_of_link()));
    sentences.extend(emptiest.map(|filled| {
        let share = value::estimate(Unit::Share, filled.share_of_link(), None);
        format!("Emptiest: {share} of the link, at {}.", filled.label())
    }));
    sentences
}

fn tiles(data: &PageData<'_>) -> Vec<HeadlineTile> {
    let mut filled: Vec<WindowCell<'_>> = WindowCell::all(data).collect();
    filled.sort_by(|a, b| a.share_of_link().total_cmp(&b.share_of_link()));
    let ends = [("emptiest link", filled.first()), ("fullest link", filled.last())];
    let tile = |(what, filled): (&str, Option<&WindowCell<'_>>)| {
        let filled = filled?;
        let ends = filled.cell.summary.ci95?.map(|end| end / filled.link.capacity);
        Some(HeadlineTile {
            label: what.to_owned(),
            value: value::estimate(Unit::Share, filled.share_of_link(), Some(ends)),
            interval: value::interval(Unit::Share, filled.share_of_link(), ends),
            conditions: filled.label(),
        })
    };
    ends.into_iter().filter_map(tile).collect()
}

fn figures(data: &PageData<'_>) -> Vec<Figure> {
    let mut wanted: BTreeSet<String> = name::varying(data.cells.iter().copied());
    wanted.retain(|factor| !matches!(factor.as_str(), "window" | "rtt"));
    wanted.extend(["hosts", "rate", "congestion"].map(str::to_owned));
    let mut panels: BTreeMap<(u64, String), Vec<WindowCell<'_>>> = BTreeMap::new();
    for cell in WindowCell::all(data) {
        let title = name::capitalize(&name::cell(&cell.cell.factors, &wanted));
        panels.entry((cell.link.capacity.to_bits(), title)).or_default().push(cell);
    }
    let mut ranges: BTreeMap<u64, [f64; 2]> = BTreeMap::new();
    for ((rate, _), cells) in &panels {
        let range = ranges.entry(*rate).or_insert([f64::INFINITY, 0.0]);
        for cell in cells.iter().filter(|cell| cell.throughput > 0.0) {
            *range = [range[0].min(cell.throughput), range[1].max(cell.throughput)];
        }
    }
    let figure = |((rate, title), cells): (&(u64, String), &Vec<WindowCell<'_>>)| {
        let mut figure = figure(title, cells);
        figure.y.include = ranges.get(rate).copied().filter(|[low, high]| low <= high);
        figure
    };
    panels.iter().map(figure).filter(|figure| !figure.is_empty()).collect()
}

fn figure(title: &str, cells: &[WindowCell<'_>]) -> Figure {
    let mut by_rtt: BTreeMap<u64, Vec<&WindowCell<'_>>> = BTreeMap::new();
    for cell in cells {
        by_rtt.entry(cell.link.rtt.to_bits()).or_default().push(cell);
    }
    let (mut series, mut measured) = (Vec::new(), Vec::new());
    let mut table = TextTable::with_heads(&[
        "round trip and window",
        "#throughput [95 %]",
        "#expected",
        "#of a window a round trip?",
        "#of the link",
    ]);
    for (cells, slot) in by_rtt.values_mut().zip(0u8..) {
        let order = |cell: &WindowCell<'_>| cell.link.window.unwrap_or(f64::INFINITY);
        cells.sort_by(|a, b| order(a).total_cmp(&order(b)));
        let at =
            cells.iter().filter_map(|cell| FigurePoint::of_median(cell.link.window?, cell.cell));
        series.push(Series::line(slot, expected_curve(cells)));
        measured.push(Series::points(levels(cells[0].cell, &["rtt"]), slot, false, at));
        table.rows.extend(cells.iter().map(|cell| row(cell)));
    }
    let told: Vec<String> = table.rows.iter().map(|row| format!("{} {}", row[0], row[1])).collect();
    series.extend(measured);
    Figure {
        id: slug(&[EXPERIMENT.id, title]),
        alt: format!("Throughput by window, {title}: {}.", told.join("; ")),
        title: title.to_owned(),
        note: "Medians with 95 % intervals over launches; both axes are logarithmic. The dashed line is \
               the smaller of one window a round trip and what the link can carry."
            .to_owned(),
        x: Axis::with_scale("window (B)", "B", AxisScale::Log2),
        y: Axis::measured("throughput", Unit::NetworkRate.name()),
        series,
        table,
    }
}

/// What is expected from the least window to the largest, with the corner between them.
fn expected_curve(cells: &[&WindowCell<'_>]) -> Vec<[f64; 2]> {
    let windows: Vec<f64> = cells.iter().filter_map(|cell| cell.link.window).collect();
    let (Some(least), Some(most), Some(first)) = (windows.first(), windows.last(), cells.first())
    else {
        return Vec::new();
    };
    let corner = first.link.capacity * first.link.rtt;
    let mut at = vec![*least];
    if corner > *least && corner < *most {
        at.push(corner);
    }
    at.push(*most);
    at.into_iter()
        .map(|window| [window, WindowedLink { window: Some(window), ..first.link }.expected_rate()])
        .collect()
}

fn row(cell: &WindowCell<'_>) -> Vec<String> {
    let share = |share: f64| value::estimate(Unit::Share, share, None);
    vec![
        levels(cell.cell, &["rtt", "window"]),
        value::median(cell.cell),
        value::plain(Unit::NetworkRate, cell.link.expected_rate()),
        cell.share_of_window_rate().map_or_else(|| "–".to_owned(), share),
        share(cell.share_of_link()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_bounds_a_long_pipe_and_the_rate_a_short_one() {
        let expected =
            |rtt| WindowedLink::parse("100mbit", rtt, Some(65_536.0)).unwrap().expected_rate();
        assert!((expected("100ms") - 655_360.0).abs() < 1e-6);
        assert!((expected("1ms") - 12.5e6 * 1_448.0 / 1_514.0).abs() < 1e-6);
        let free = WindowedLink::parse("100mbit", "100ms", None).unwrap();
        assert!((free.expected_rate() - free.capacity).abs() < 1e-6);
        assert!((free.bdp - 1.25e6).abs() < 1e-6);
        assert_eq!(WindowedLink::parse("fast", "1ms", None), None);
    }
}
