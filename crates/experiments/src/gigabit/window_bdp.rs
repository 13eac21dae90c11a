//! `window.bdp`: what a window lets through a long fat pipe.
//!
//! The kernel's TCP over an emulated link, its receiver's window bounded and nothing else: buffers at
//! both sides never bound it first. Left out: what congestion controls do to each other.

use plumb_base::time::Span;
use plumb_base::units::quantity::{format_span, parse_span};
use plumb_harness::spec::BlockTask;
use plumb_harness::spec::Mechanism;
use plumb_store::record::Factors;

use crate::definition::{CellDecision, Experiment};
use crate::factor::{Factor, FactorDomain, LevelParser, always, keep_levels, numbers, words};
use crate::factors::channel::CONGESTION;
use crate::factors::channel::THROUGHPUT;
use crate::factors::link;
use crate::factors::remote::{self, INTERVAL_MIN, MESSAGE, ONE_HOST_PLACEMENT};
use crate::preset::RunPreset;
use plumb_analysis::registry::ExperimentAnalysis;

/// Throughput against window, round trip and rate.
pub static EXPERIMENT: Experiment = Experiment {
    id: "window.bdp",
    study: "gigabit",
    question: "How much of a link does a TCP window of this size fill?",
    hypothesis: "A steady transfer gets the smaller of the link's rate and one window a round \
                 trip: 64 KiB fill a short pipe and leave a long one almost empty.",
    factors: &[
        WINDOW,
        RTT,
        RATE,
        QUEUE,
        Factor {
            applies: always,
            levels: |context| match context.preset {
                RunPreset::Quick => words(&["cubic"]),
                _ => words(&["reno", "cubic", "bbr"]),
            },
            ..CONGESTION
        },
        Factor { levels: |_| words(&["same-cpu"]), ..ONE_HOST_PLACEMENT },
    ],
    responses: &[THROUGHPUT],
    plan_cell: |setting| {
        let factors = setting.factors;
        let (Some(rtt), Some(rate)) = (rtt_of(factors), factors.text(RATE.name)) else {
            return CellDecision::impossible("no round trip or no rate is given");
        };
        let queue = factors.text(QUEUE.name).unwrap_or("1bdp");
        let text = format!("rate={rate},delay={},limit={queue}", format_span(rtt / 2));
        let name = format!("{rate} {}", format_span(rtt));
        let path = match link::path_over_link(&name, &text, 1500) {
            Ok(path) => path,
            Err(exclusion) => return CellDecision::Excluded(exclusion),
        };
        let window = factors.int(WINDOW.name).and_then(|bytes| u64::try_from(bytes).ok());
        let interval = (rtt * INTERVAL_ROUND_TRIPS).max(INTERVAL_MIN);
        let task = BlockTask::SteadyRate { size: MESSAGE, interval_ns: interval.as_ns() };
        let group = remote::launch_group_over(setting, Mechanism::Tcp4, path, |options| {
            options.window = window;
        });
        CellDecision::measure(group, task)
    },
    analysis: ExperimentAnalysis {
        claims: claims::CLAIMS,
        expectations: claims::EXPECTATIONS,
        ..ExperimentAnalysis::PLAIN
    },
    page: page::PAGE,
};

/// An interval holds many bursts: a window's bytes come once a round trip.
const INTERVAL_ROUND_TRIPS: u64 = 10;

const WINDOW: Factor = Factor {
    name: "window",
    meaning: "the most that the receiver offers; default leaves it to the kernel",
    domain: FactorDomain::Buffers,
    levels: |context| match context.preset {
        RunPreset::Quick => numbers(&[64 << 10, 4 << 20]),
        RunPreset::Default => numbers(&[8 << 10, 64 << 10, 512 << 10, 4 << 20]),
        RunPreset::Paper => {
            numbers(&[8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20])
        }
    },
    applies: always,
    fit: keep_levels,
    labels: &[],
};

const RTT: Factor = Factor {
    name: "rtt",
    meaning: "delay of the link there and back",
    domain: FactorDomain::Parsed(&LevelParser {
        parse: |text| match parse_span(text) {
            Ok(span) if span > Span::ZERO => Ok(format_span(span).as_str().into()),
            Ok(_) => Err("a round trip takes some time: write it like 20ms".to_owned()),
            Err(error) => Err(error.to_string()),
        },
        describe: || "a length of time such as 20ms".to_owned(),
    }),
    levels: |context| match context.preset {
        RunPreset::Quick => words(&["1ms", "20ms"]),
        RunPreset::Default => words(&["1ms", "20ms", "100ms"]),
        RunPreset::Paper => words(&["100us", "1ms", "10ms", "20ms", "50ms", "100ms", "300ms"]),
    },
    applies: always,
    fit: keep_levels,
    labels: &[],
};

const RATE: Factor = Factor {
    meaning: "rate of the link, Ethernet's header counted",
    levels: |context| match context.preset {
        RunPreset::Quick => words(&["100mbit"]),
        RunPreset::Default => words(&["10mbit", "100mbit"]),
        RunPreset::Paper => words(&["10mbit", "100mbit", "1gbit"]),
    },
    ..link::RATE
};

const QUEUE: Factor = Factor {
    name: "queue",
    meaning: "room of the link's queue, in products of its rate and its round trip",
    domain: FactorDomain::Words(&["0.25bdp", "0.5bdp", "1bdp", "2bdp"]),
    levels: |_| words(&["1bdp"]),
    applies: always,
    fit: keep_levels,
    labels: &[],
};

fn rtt_of(factors: &Factors) -> Option<Span> {
    factors.text(RTT.name).and_then(|text| parse_span(text).ok())
}

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::gigabit::*;
    use plumb_analysis::claim::{
        ClaimCase, ClaimCases, ClaimEvidence, ClaimJudgment, Expectation, PublishedClaim,
        PublishedFigure, judge_all,
    };

    use plumb_analysis::summary::MeasuredCell;
    use plumb_analysis::windowed_link::WindowedLink;
    use plumb_base::units::{Unit, format_bytes};

    pub(super) const EXPECTATIONS: &[Expectation] = &[Expectation {
        id: "gigabit.window.one-a-round-trip",
        statement: "A window smaller than the product of bandwidth and delay gives one window a round \
                trip.",
        basis: "arithmetic: one window in flight for each round trip",
        judge: one_a_round_trip,
    }];

    pub(super) const CLAIMS: &[PublishedClaim] = &[
        PublishedClaim {
            id: "gigabit.window.64k-leaves-long-fat-pipes-empty",
            claim: "With TCP's default flow-control window of 64 KB, connections with a larger product \
                of bandwidth and delay cannot keep the network pipe full.",
            source: WEIGLE,
            historical: Some(
                "16 bits, so 64 KB; 1 Gb/s × 100 ms = 12.5 MB across the United States",
            ),
            figures: &[PublishedFigure::alone("window", 65536.0, Unit::Bytes, "16 bits")],
            judge: classic_window,
        },
        PublishedClaim {
            id: "gigabit.reno.three-quarters",
            claim: "TCP Reno never uses more than 75 % of the available bandwidth on average.",
            source: WEIGLE,
            historical: Some("75 %: under 750 Mb/s on gigabit Ethernet"),
            figures: &[PublishedFigure::comparable(
                "share of the link",
                0.75,
                Unit::Share,
                "under 750 Mb/s of a gigabit",
            )],
            judge: reno_three_quarters,
        },
    ];

    const EXPERIMENT: &str = "window.bdp";

    /// The window of TCP without scaling (RFC 9293 §3.1; "64 KB" in the paper).
    const CLASSIC: f64 = 65_536.0;

    /// Near enough to what is predicted.
    const NEAR: (f64, f64) = (0.97, 1.03);

    /// A link that is used less than this is not filled.
    const FILLED: f64 = 0.95;

    /// A cell's setting as numbers.
    fn pipe_of(cell: &MeasuredCell<'_>) -> Option<WindowedLink> {
        let factors = &cell.cell.factors;
        let window = factors.int("window").map(|bytes| bytes as f64);
        WindowedLink::parse(factors.text("rate")?, factors.text("rtt")?, window)
    }

    /// The measured throughput as a share of what is expected, against bounds.
    fn share(cell: &MeasuredCell<'_>, expected: f64, bounds: (f64, f64)) -> ClaimCase {
        let factors = &cell.cell.factors;
        let text = |name: &str| factors.text(name).unwrap_or("unknown").to_owned();
        let window = factors.int("window").and_then(|bytes| u64::try_from(bytes).ok());
        let window = window.map_or_else(|| "default".to_owned(), format_bytes);
        let label = format!("{window}, {}, {}, {}", text("rtt"), text("rate"), text("queue"));
        let ends = cell.interval().map(|interval| [interval.lo / expected, interval.hi / expected]);
        let value = cell.median() / expected;
        ClaimCase::quantity(&text("congestion"), label, value, ends, bounds, Unit::Share)
    }

    /// At every link whose product is more than 64 KiB: how much of it a window of 64 KiB fills.
    fn classic_window(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let mut pairs = ClaimCases::default();
        for cell in evidence.cells(EXPERIMENT, "throughput") {
            let Some(pipe) = pipe_of(cell) else { continue };
            if pipe.window == Some(CLASSIC) && pipe.bdp > CLASSIC {
                pairs.cases.push(share(cell, pipe.capacity, (0.0, FILLED)));
            }
        }
        judge_all(pairs, "plumb run window.bdp --set window=64Ki --set rtt=40ms --set rate=100mbit")
    }

    /// Where the window is smaller than the product: the throughput against window ÷ round trip.
    fn one_a_round_trip(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let mut pairs = ClaimCases::default();
        for cell in evidence.cells(EXPERIMENT, "throughput") {
            let Some(pipe) = pipe_of(cell) else { continue };
            if let Some(window) = pipe.window.filter(|window| *window < pipe.bdp) {
                pairs.cases.push(share(cell, window / pipe.rtt, NEAR));
            }
        }
        judge_all(
            pairs,
            "plumb run window.bdp --set window=8Ki,64Ki --set rtt=100ms --set rate=100mbit",
        )
    }

    /// Reno with a window that does not bound it: the share of the link that it uses.
    fn reno_three_quarters(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let mut pairs = ClaimCases::default();
        for cell in evidence.cells(EXPERIMENT, "throughput") {
            let Some(pipe) = pipe_of(cell) else { continue };
            let is_reno = cell.cell.factors.text("congestion") == Some("reno");
            // Up to one product on the way and one in the queue.
            let is_free = pipe.window.is_none_or(|window| window > 2.5 * pipe.bdp);
            if is_reno && is_free {
                pairs.cases.push(share(cell, pipe.capacity, (0.0, 0.75)));
            }
        }
        judge_all(
            pairs,
            "plumb run window.bdp --set congestion=reno --set window=4Mi --set rtt=20ms",
        )
    }
}

mod page {
    //! Figures and sentences.

    use crate::pages::gigabit::*;
    use plumb_analysis::document::CellResult;

    use plumb_analysis::windowed_link::WindowedLink;
    use plumb_base::units::Unit;

    use plumb_report::figure::{Axis, AxisScale, Figure, FigurePoint, Series, SeriesMarks, slug};
    use plumb_report::headline::HeadlineTile;
    use plumb_report::registry::{ExperimentPage, PageData};
    use plumb_report::table::TextTable;
    use plumb_report::{name, value};
    use serde_json::Value;
    use std::collections::{BTreeMap, BTreeSet};

    pub(super) const PAGE: ExperimentPage = ExperimentPage {
        title: "Windows and long fat pipes",
        figures: Some(|data| figures(&data.cells)),
        sentences: |data| windows(&data.cells),
        tiles,
        ..ExperimentPage::PLAIN
    };

    /// How near throughput comes to one window a round trip, and to the link, by congestion control.
    fn windows(cells: &[&CellResult]) -> Vec<String> {
        let mut controls: BTreeMap<&str, Vec<WindowCell<'_>>> = BTreeMap::new();
        for filled in cells.iter().filter_map(|cell| WindowCell::of(cell)) {
            controls.entry(text(filled.cell, "congestion")).or_default().push(filled);
        }
        let mut sentences = Vec::new();
        for (control, filled) in controls {
            let bounded = filled.iter().filter(|cell| cell.is_window_limited());
            let bounded: Vec<f64> = bounded.filter_map(WindowCell::share_of_window_rate).collect();
            let free = filled.iter().filter(|cell| !cell.is_window_limited());
            let free: Vec<f64> = free.map(WindowCell::share_of_link).collect();
            let mut parts = Vec::new();
            if let Some(range) = range(&bounded) {
                parts.push(format!(
                "where the window is smaller than the product of rate and round trip, throughput is \
                 {range} of one window a round trip"
            ));
            }
            if let Some(range) = range(&free) {
                parts.push(format!("where it is not, {range} of what the link can carry"));
            }
            if !parts.is_empty() {
                sentences.push(format!("{}: {}.", name::capitalize(control), parts.join("; ")));
            }
        }
        let emptiest = cells
            .iter()
            .filter_map(|cell| WindowCell::of(cell))
            .min_by(|a, b| a.share_of_link().total_cmp(&b.share_of_link()));
        sentences.extend(emptiest.map(|filled| {
            format!(
                "Emptiest: {} of the link, at {}.",
                value::estimate(Unit::Share, filled.share_of_link(), None),
                window_label(filled.cell)
            )
        }));
        sentences
    }

    /// A link and a window in words.
    fn window_label(cell: &CellResult) -> String {
        let factors = BTreeSet::from(["window", "rtt", "rate", "congestion"].map(str::to_owned));
        name::cell(&cell.factors, &factors)
    }

    fn tiles(data: &PageData<'_>) -> Vec<HeadlineTile> {
        let mut filled: Vec<WindowCell<'_>> =
            of(&data.cells, "throughput").into_iter().filter_map(WindowCell::of).collect();
        filled.sort_by(|a, b| a.share_of_link().total_cmp(&b.share_of_link()));
        let ends = [("emptiest link", filled.first()), ("fullest link", filled.last())];
        let tile = |(what, filled): (&str, Option<&WindowCell<'_>>)| {
            let filled = filled?;
            let ends = filled.cell.summary.ci95?.map(|end| end / filled.link.capacity);
            Some(HeadlineTile {
                label: what.to_owned(),
                value: value::estimate(Unit::Share, filled.share_of_link(), Some(ends)),
                interval: value::interval(Unit::Share, filled.share_of_link(), ends),
                conditions: window_label(filled.cell),
            })
        };
        ends.into_iter().filter_map(tile).collect()
    }

    /// A cell of `window.bdp` with the pipe that it filled, or not.
    #[derive(Clone, Copy, Debug)]
    struct WindowCell<'a> {
        /// The cell.
        pub cell: &'a CellResult,
        /// Its link and window.
        pub link: WindowedLink,
        /// The median of its throughput, in bytes a second.
        pub throughput: f64,
    }

    impl<'a> WindowCell<'a> {
        /// The pipe of a cell; none where it has no number, or levels that cannot be read.
        pub fn of(cell: &'a CellResult) -> Option<Self> {
            let text = |factor: &str| cell.factors.get(factor).and_then(Value::as_str);
            let window = cell.factors.get("window").and_then(Value::as_f64);
            let pipe = WindowedLink::parse(text("rate")?, text("rtt")?, window)?;
            Some(Self { cell, link: pipe, throughput: cell.summary.median? })
        }

        /// The throughput as a share of one window a round trip; none where the kernel chose the window.
        pub fn share_of_window_rate(&self) -> Option<f64> {
            self.link.window_rate().map(|rate| self.throughput / rate)
        }

        /// The throughput as a share of what the link can carry.
        pub fn share_of_link(&self) -> f64 {
            self.throughput / self.link.capacity
        }

        /// Whether the window is what bounds it, and not the link.
        pub fn is_window_limited(&self) -> bool {
            self.link.window.is_some_and(|window| window < self.link.bdp)
        }
    }

    /// The figures of `window.bdp`; `cells` are all of that experiment.
    fn figures(cells: &[&CellResult]) -> Vec<Figure> {
        let varying = name::varying(cells.iter().copied());
        let wanted: BTreeSet<String> = varying
            .into_iter()
            .filter(|factor| !matches!(factor.as_str(), "window" | "rtt"))
            .chain(["rate", "congestion"].map(str::to_owned))
            .collect();
        let mut panels: BTreeMap<(u64, String), Vec<WindowCell<'_>>> = BTreeMap::new();
        for cell in cells.iter().filter_map(|cell| WindowCell::of(cell)) {
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
        let (mut expected, mut measured) = (Vec::new(), Vec::new());
        let mut table = TextTable::with_heads(&[
            "round trip and window",
            "#throughput [95 %]",
            "#expected",
            "#of a window a round trip?",
            "#of the link",
        ]);
        for (cells, slot) in by_rtt.values_mut().zip(0u8..) {
            cells.sort_by(|a, b| order(a).total_cmp(&order(b)));
            let known = || cells.iter().filter_map(|cell| Some((cell.link.window?, *cell)));
            let line: Vec<[f64; 2]> = expected_curve(cells).into_iter().collect();
            let at = known().map(|(window, cell)| FigurePoint {
                x: window,
                y: cell.throughput,
                x_interval: None,
                y_interval: cell.cell.summary.ci95,
            });
            let marks = SeriesMarks::Points { at: at.collect(), joined: false };
            let rtt = name::cell(&cells[0].cell.factors, &["rtt".to_owned()].into());
            expected.push(Series { name: String::new(), slot, marks: SeriesMarks::Line(line) });
            measured.push(Series { name: rtt, slot, marks });
            table.rows.extend(cells.iter().map(|cell| row(cell)));
        }
        let told: Vec<String> =
            table.rows.iter().map(|row| format!("{} {}", row[0], row[1])).collect();
        expected.extend(measured);
        Figure {
        id: slug(&[&cells[0].cell.experiment, title]),
        alt: format!("Throughput by window, {title}: {}.", told.join("; ")),
        title: title.to_owned(),
        note: "Medians with 95 % intervals over launches; both axes are logarithmic. The dashed line is \
               the smaller of one window a round trip and what the link can carry."
            .to_owned(),
        x: Axis::with_scale("window (B)", "B", AxisScale::Log2),
        y: Axis::measured("throughput", Unit::BytesPerSecond.name()),
        series: expected,
        table,
    }
    }

    fn order(cell: &WindowCell<'_>) -> f64 {
        cell.link.window.unwrap_or(f64::INFINITY)
    }

    /// What is expected from the least window to the largest, with the corner between them.
    fn expected_curve(cells: &[&WindowCell<'_>]) -> Vec<[f64; 2]> {
        let windows: Vec<f64> = cells.iter().filter_map(|cell| cell.link.window).collect();
        let (Some(least), Some(most), Some(first)) =
            (windows.first(), windows.last(), cells.first())
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
            .map(|window| {
                [window, WindowedLink { window: Some(window), ..first.link }.expected_rate()]
            })
            .collect()
    }

    fn row(cell: &WindowCell<'_>) -> Vec<String> {
        let unit = Unit::BytesPerSecond;
        let share = |share: f64| value::estimate(Unit::Share, share, None);
        let wanted = ["rtt", "window"].map(str::to_owned).into();
        vec![
            name::cell(&cell.cell.factors, &wanted),
            value::with_interval(unit, cell.throughput, cell.cell.summary.ci95),
            value::plain(unit, cell.link.expected_rate()),
            cell.share_of_window_rate().map_or_else(|| "–".to_owned(), share),
            share(cell.share_of_link()),
        ]
    }
}
