//! `path.length`: what each router on the way costs.
//!
//! Hops of one kind in a row, with a router between one and the next: plumb's, on links of a rate and a
//! delay, or Linux's, on virtual Ethernets that have neither. Left out: routers that are loaded by others.

use plumb_harness::spec::{BlockTask, DeviceOptions, PathKind, PathSpec};

use crate::definition::{CellDecision, Experiment};
use crate::factor::{Factor, FactorDomain, always, keep_levels, numbers, words};
use crate::factors::channel::LATENCY;
use crate::factors::channel::THROUGHPUT;
use crate::factors::channel::{self, CONGESTION, MECHANISM, SIZE};
use crate::factors::link;
use crate::factors::remote::{self, BLOCKING_WAKE, ONE_HOST_PLACEMENT};
use crate::factors::remote::{INTERVAL_MIN, MESSAGE};
use crate::preset::RunPreset;
use plumb_analysis::registry::ExperimentAnalysis;

/// Latency and throughput against the number of routers.
pub static EXPERIMENT: Experiment = Experiment {
    id: "path.length",
    study: "ipc",
    question: "What does each router between two hosts cost?",
    hypothesis: "Each router adds the time to receive and to send the message once more, so latency \
                 grows linearly with their number; a long transfer fills the same rate over any \
                 number.",
    factors: &[
        Factor {
            domain: FactorDomain::Mechanisms(remote::is_remote),
            levels: |_| words(&["udp4", "tcp4"]),
            ..MECHANISM
        },
        FORWARDER,
        ROUTERS,
        Factor { levels: |_| words(&["same-cpu"]), ..ONE_HOST_PLACEMENT },
        BLOCKING_WAKE,
        Factor {
            levels: |context| match context.preset {
                RunPreset::Quick => numbers(&[64]),
                _ => numbers(&[64, 1 << 10, 16 << 10]),
            },
            fit: keep_levels,
            ..SIZE
        },
        CONGESTION,
    ],
    responses: &[LATENCY, THROUGHPUT],
    plan_cell: |setting| {
        let factors = setting.factors;
        let Some(mechanism) = channel::mechanism_of(factors) else {
            return CellDecision::impossible("no mechanism is given");
        };
        let size = channel::size_of(factors);
        let task = match setting.response {
            "latency" => BlockTask::Latency { size },
            // A stream has no messages; what a datagram socket sends unasked is a flood.
            _ if mechanism.is_lossy() || size > 64 => return CellDecision::NotApplicable,
            _ => BlockTask::SteadyRate { size: MESSAGE, interval_ns: INTERVAL_MIN.as_ns() },
        };
        let routers = factors.int(ROUTERS.name).and_then(|number| u8::try_from(number).ok());
        let routers = routers.unwrap_or(0);
        let path = if factors.text(FORWARDER.name) == Some(LINUX) {
            Ok(PathSpec {
                name: format!("{routers} of Linux's routers"),
                kind: PathKind::Routers(routers),
                mtu: MTU,
                round_trip_ns: 0,
                rate: None,
                device: DeviceOptions::default(),
            })
        } else {
            let text = vec![HOP; usize::from(routers) + 1].join(";");
            link::path_over_link(&format!("{routers} routers"), &text, MTU)
        };
        match path {
            Ok(path) => CellDecision::measure(
                remote::launch_group_over(setting, mechanism, path, |_| {}),
                task,
            ),
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

/// One hop: a switched network of today's desk, as the preset lan-1g.
const HOP: &str = "rate=1gbit,overhead=24,delay=20us,limit=256packets";

/// MTU of every hop: Ethernet's (RFC 894).
const MTU: u32 = 1500;

/// The level of Linux's own routers.
const LINUX: &str = "linux";

const FORWARDER: Factor = Factor {
    name: "forwarder",
    meaning: "whose routers: plumb's, with links of 1 Gb/s and 20 µs, or Linux's, a namespace each",
    domain: FactorDomain::Words(&["plumb", LINUX]),
    levels: |_| words(&["plumb", LINUX]),
    applies: always,
    fit: keep_levels,
    labels: &[("plumb", "plumb's routers"), ("linux", "Linux's routers")],
};

/// Most routers on a path.
const ROUTERS_MAX: u64 = 8;

const ROUTERS: Factor = Factor {
    name: "routers",
    meaning: "routers between the two hosts",
    domain: FactorDomain::UpTo(ROUTERS_MAX),
    levels: |context| match context.preset {
        RunPreset::Quick => numbers(&[0, 2, 8]),
        RunPreset::Default => numbers(&[0, 1, 2, 4, 8]),
        RunPreset::Paper => numbers(&[0, 1, 2, 3, 4, 5, 6, 7, 8]),
    },
    applies: always,
    fit: keep_levels,
    labels: &[],
};

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::ipc::*;
    use plumb_analysis::claim::{
        CaseOutcome, ClaimCase, ClaimCases, ClaimEvidence, ClaimJudgment, Expectation,
        PublishedClaim, judge_all,
    };
    use plumb_analysis::cost_ratio::{self};
    use plumb_analysis::summary::{CONFIDENCE, MeasuredCell};
    use plumb_base::stats::regression::theil_sen;
    use plumb_base::units::{Unit, significant};
    use std::collections::BTreeSet;

    pub(super) const EXPECTATIONS: &[Expectation] = &[
        Expectation {
            id: "ipc.path.routers-delay",
            statement: "Remote communication is slower because it passes switches and routers: each one adds \
                delay.",
            basis: "arithmetic: each router adds its own delay",
            judge: routers_delay,
        },
        Expectation {
            id: "ipc.path.routers-keep-throughput",
            statement: "A long transfer carries as much over any number of routers of one rate.",
            basis: "arithmetic: the slowest hop bounds a transfer",
            judge: routers_keep_throughput,
        },
    ];

    pub(super) const CLAIMS: &[PublishedClaim] = &[];

    const LENGTH: &str = "path.length";

    /// The cells of `path.length` that differ in their routers only, each with their number.
    fn by_router_count<'a>(
        evidence: &ClaimEvidence<'a>,
        response: &'static str,
    ) -> Vec<(String, Vec<(f64, &'a MeasuredCell<'a>)>)> {
        let cells: Vec<&MeasuredCell<'_>> = evidence.cells(LENGTH, response).collect();
        let rest =
            |cell: &MeasuredCell<'_>| cell.cell.factors.clone().without("routers").to_string();
        let kinds: BTreeSet<String> = cells.iter().map(|cell| rest(cell)).collect();
        let of_kind = |kind: String| {
            let mut line: Vec<(f64, &MeasuredCell<'_>)> = cells
                .iter()
                .filter(|cell| rest(cell) == kind)
                .filter_map(|cell| Some((cell.cell.factors.int("routers")? as f64, *cell)))
                .collect();
            line.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            (kind, line)
        };
        kinds.into_iter().map(of_kind).collect()
    }

    /// Whether the routers are Linux's own, on virtual Ethernets that have no rate.
    fn is_linux(cell: &MeasuredCell<'_>) -> bool {
        cell.cell.factors.text("forwarder") == Some("linux")
    }

    /// What a case about a whole line is called.
    fn line_label(line: &[(f64, &MeasuredCell<'_>)]) -> String {
        let factors = line.first().map(|(_, cell)| &cell.cell.factors);
        let mechanism = factors.and_then(|factors| factors.text("mechanism")).unwrap_or("unknown");
        let size = line.first().map_or(0, |(_, cell)| size(cell));
        let linux =
            if line.first().is_some_and(|(_, cell)| is_linux(cell)) { ", Linux's" } else { "" };
        format!("{mechanism} {}{linux}", bytes(size))
    }

    /// The slope of latency against the number of routers, robustly: above nothing.
    fn routers_delay(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let mut pairs = ClaimCases::default();
        for (_, line) in by_router_count(evidence, "latency") {
            let label = line_label(&line);
            let x: Vec<f64> = line.iter().map(|(routers, _)| *routers).collect();
            let y: Vec<f64> = line.iter().map(|(_, cell)| cell.median()).collect();
            let Some(fitted) = theil_sen(&x, &y, CONFIDENCE) else {
                pairs.missing.push(format!("{label} at three numbers of routers or more"));
                continue;
            };
            let (lo, hi) = (fitted.slope_interval.lo, fitted.slope_interval.hi);
            let standing = if lo > 0.0 {
                CaseOutcome::Supports
            } else if hi < 0.0 {
                CaseOutcome::Contradicts(0.0)
            } else {
                CaseOutcome::Undecided(None)
            };
            let unit = Unit::Nanoseconds;
            let text = format!(
                "{} a router ({}–{})",
                unit.format(fitted.slope, 3),
                unit.format(lo, 3),
                unit.format(hi, 3)
            );
            let placement = line.first().and_then(|(_, cell)| cell.cell.factors.text("placement"));
            pairs.cases.push(ClaimCase {
                placement: placement.unwrap_or("unknown").to_owned(),
                label,
                value: Some(fitted.slope),
                ci95: Some([lo, hi]),
                text,
                outcome: standing,
                strength: fitted.slope,
            });
        }
        judge_all(pairs, &needs(LENGTH, "routers=0,1,2,4,8"))
    }

    /// Throughput over the most routers against that over none, where hops have a rate: the same within a
    /// twentieth.
    fn routers_keep_throughput(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let mut pairs = ClaimCases::default();
        for (_, line) in by_router_count(evidence, "throughput") {
            if line.first().is_some_and(|(_, cell)| is_linux(cell)) {
                continue;
            }
            let (Some((least, none)), Some((most, all))) = (line.first(), line.last()) else {
                continue;
            };
            let label = format!(
                "{} over {} and {} routers",
                line_label(&line),
                routers(*most),
                routers(*least)
            );
            if most <= least {
                pairs.missing.push(label);
                continue;
            }
            let placement = none.cell.factors.text("placement").unwrap_or("unknown");
            let contrast = cost_ratio::within_run(none, all);
            let mut case = ClaimCase::ratio_within(placement, label, contrast, SAME);
            case.strength = -case.strength.abs();
            pairs.cases.push(case);
        }
        judge_all(pairs, &needs(LENGTH, "routers=0,8"))
    }

    /// Throughputs within a twentieth of each other are the same.
    const SAME: (f64, f64) = (0.95, 1.05);

    fn routers(number: f64) -> String {
        significant(number, 2)
    }
}

mod page {
    //! Figures and sentences.

    use plumb_analysis::document::CellResult;

    use plumb_base::stats::regression::{FittedLine, theil_sen};
    use plumb_base::units::Unit;

    use plumb_report::figure::{Axis, AxisScale, Figure, FigurePoint, Series, SeriesMarks, slug};
    use plumb_report::headline::HeadlineTile;
    use plumb_report::registry::{ExperimentPage, PageData};
    use plumb_report::table::TextTable;
    use plumb_report::{name, value};

    use std::collections::{BTreeMap, BTreeSet};

    pub(super) const PAGE: ExperimentPage = ExperimentPage {
        title: "Routers on the way",
        figures: Some(|data| figures(&data.cells)),
        sentences: |data| routers(&data.cells),
        tiles,
        ..ExperimentPage::PLAIN
    };

    /// What each router adds, and what a long transfer keeps.
    fn routers(cells: &[&CellResult]) -> Vec<String> {
        let of = |response: &str| -> Vec<&CellResult> {
            cells.iter().filter(|cell| cell.response == response).copied().collect()
        };
        let mut slopes = Vec::new();
        for path in router_series(&of("latency"), &["mechanism", "size"]) {
            let Some(line) = path.line else { continue };
            let interval = [line.slope_interval.lo, line.slope_interval.hi];
            let slope = value::with_interval(Unit::Nanoseconds, line.slope, Some(interval));
            slopes.push(format!("{slope} ({})", path.label));
        }
        let mut sentences = Vec::new();
        if !slopes.is_empty() {
            sentences
                .push(format!("Each router adds to half a round trip: {}.", slopes.join("; ")));
        }
        let kept = |path: &RouterSeries<'_>| {
            let ((least, first), (most, last)) = (path.cells.first()?, path.cells.last()?);
            let ratio = last.summary.median? / first.summary.median?;
            (most > least).then(|| {
                let times = value::times(ratio);
                format!("{times} over {most:.0} routers as over {least:.0} ({})", path.label)
            })
        };
        let kept: Vec<String> =
            router_series(&of("throughput"), &["mechanism"]).iter().filter_map(kept).collect();
        if !kept.is_empty() {
            sentences.push(format!("A long transfer carries {}.", kept.join("; ")));
        }
        sentences
    }

    fn tiles(data: &PageData<'_>) -> Vec<HeadlineTile> {
        let cells: Vec<&CellResult> =
            data.cells.iter().copied().filter(|cell| cell.response == "latency").collect();
        let tile = |path: RouterSeries<'_>| {
            let line = path.line?;
            let interval = [line.slope_interval.lo, line.slope_interval.hi];
            Some(HeadlineTile {
                label: "each router adds".to_owned(),
                value: value::estimate(Unit::Nanoseconds, line.slope, Some(interval)),
                interval: value::interval(Unit::Nanoseconds, line.slope, interval),
                conditions: path.label,
            })
        };
        router_series(&cells, &["mechanism", "size"]).into_iter().filter_map(tile).collect()
    }

    /// The cells of a path that differ in its routers alone, nearest first, and the line through them.
    #[derive(Clone, Debug)]
    struct RouterSeries<'a> {
        /// What tells it from the others: `tcp4, 64 B`.
        pub label: String,
        /// Routers and the cell.
        pub cells: Vec<(f64, &'a CellResult)>,
        /// The robust line through the medians; none for fewer than three numbers of routers.
        pub line: Option<FittedLine>,
    }

    /// The figures of `path.length`; `cells` are all of that experiment.
    fn figures(cells: &[&CellResult]) -> Vec<Figure> {
        let mut panels: BTreeMap<(&str, String, u64, usize), Vec<&CellResult>> = BTreeMap::new();
        for cell in cells {
            let size = name::bytes(cell).unwrap_or(0);
            let forwarder = forwarder(cell);
            let key = (cell.response.as_str(), forwarder, size, name::placement_order(cell));
            panels.entry(key).or_default().push(cell);
        }
        let figures = panels.into_values().map(|panel| figure(&panel));
        figures.filter(|figure| !figure.is_empty()).collect()
    }

    /// Whose routers; empty where only one kind was known.
    fn forwarder(cell: &CellResult) -> String {
        let level = cell.factors.get("forwarder").and_then(serde_json::Value::as_str);
        level.unwrap_or("").to_owned()
    }

    /// The paths of these cells, of one response; labels have these factors whether they vary or not.
    fn router_series<'a>(cells: &[&'a CellResult], always: &[&str]) -> Vec<RouterSeries<'a>> {
        let varying = name::varying(cells.iter().copied());
        let mut wanted: BTreeSet<String> =
            varying.into_iter().filter(|factor| factor != "routers").collect();
        wanted.extend(always.iter().map(|factor| (*factor).to_owned()));
        let mut paths: BTreeMap<String, Vec<(f64, &CellResult)>> = BTreeMap::new();
        for cell in cells.iter().filter(|cell| cell.summary.median.is_some()) {
            let Some(routers) = cell.factors.get("routers").and_then(serde_json::Value::as_f64)
            else {
                continue;
            };
            paths.entry(name::cell(&cell.factors, &wanted)).or_default().push((routers, cell));
        }
        let path = |(label, mut cells): (String, Vec<(f64, &'a CellResult)>)| {
            cells.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            let x: Vec<f64> = cells.iter().map(|(routers, _)| *routers).collect();
            let y: Vec<f64> = cells.iter().filter_map(|(_, cell)| cell.summary.median).collect();
            RouterSeries { label, line: theil_sen(&x, &y, CONFIDENCE), cells }
        };
        paths.into_iter().map(path).collect()
    }

    fn figure(cells: &[&CellResult]) -> Figure {
        let first = cells[0];
        let paths = router_series(cells, &["mechanism"]);
        let is_latency = first.response == "latency";
        let mut series = Vec::new();
        for (path, slot) in paths.iter().zip(0u8..) {
            let at = path.cells.iter().filter_map(|(routers, cell)| {
                let y = cell.summary.median?;
                Some(FigurePoint {
                    x: *routers,
                    y,
                    x_interval: None,
                    y_interval: cell.summary.ci95,
                })
            });
            // A latency has its line; between two throughputs nothing is said.
            if let Some(line) = path.line.filter(|_| is_latency) {
                let ends = [line.x_min, line.x_max].map(|x| [x, line.at(x)]);
                series.push(Series {
                    name: String::new(),
                    slot,
                    marks: SeriesMarks::Line(ends.to_vec()),
                });
            }
            let marks = SeriesMarks::Points { at: at.collect(), joined: false };
            series.push(Series { name: path.label.clone(), slot, marks });
        }
        let place = ["forwarder", "size", "placement"].map(str::to_owned).into();
        let place = name::cell(&first.factors, &place);
        let title = name::capitalize(&format!("{}, {place}", name::quantity(&first.response)));
        let table = table(&paths);
        let told: Vec<String> = table.rows.iter().map(|row| row.join(" ")).collect();
        let note = if is_latency {
            "Medians with 95 % intervals over launches, and the robust line through the medians: its slope \
         is what a router adds."
        } else {
            "Medians with 95 % intervals over launches, on an axis from zero."
        };
        let highest = cells.iter().filter_map(|cell| cell.summary.median).fold(0.0, f64::max);
        Figure {
            id: slug(&[&first.experiment, &first.response, &title]),
            alt: format!("{title}, by routers: {}.", told.join("; ")),
            title,
            note: note.to_owned(),
            x: Axis {
                include: Some([0.0, 1.0]),
                ..Axis::with_scale("routers", "count", AxisScale::Linear)
            },
            y: Axis {
                include: Some([0.0, highest]),
                ..Axis::with_scale(name::quantity(&first.response), &first.unit, AxisScale::Linear)
            },
            series,
            table,
        }
    }

    /// Routers down, paths across.
    fn table(paths: &[RouterSeries<'_>]) -> TextTable {
        let heads: Vec<String> = ["routers".to_owned()]
            .into_iter()
            .chain(paths.iter().map(|path| format!("#{}", path.label)))
            .collect();
        let mut table =
            TextTable::with_heads(&heads.iter().map(String::as_str).collect::<Vec<_>>());
        let mut numbers: Vec<f64> =
            paths.iter().flat_map(|path| path.cells.iter().map(|(routers, _)| *routers)).collect();
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        for wanted in numbers {
            let told = paths.iter().map(|path| {
                let found =
                    path.cells.iter().find(|(routers, _)| routers.total_cmp(&wanted).is_eq());
                found.and_then(|(_, cell)| Some((cell, cell.summary.median?))).map_or_else(
                    String::new,
                    |(cell, median)| {
                        value::with_interval(value::unit(&cell.unit), median, cell.summary.ci95)
                    },
                )
            });
            table.push([format!("{wanted:.0}")].into_iter().chain(told));
        }
        table
    }

    /// Confidence of a slope's interval.
    const CONFIDENCE: f64 = 0.95;
}
