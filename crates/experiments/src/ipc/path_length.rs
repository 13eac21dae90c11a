//! `path.length`: what each router on the way costs.
//!
//! Hops of one kind in a row, with a router between one and the next: plumb's, on links of a rate and a
//! delay, in real time and in simulations, or Linux's, on virtual Ethernets that have neither.

use std::collections::BTreeMap;

use plumb_analysis::sensitivity::slope;
use plumb_analysis::summary::CONFIDENCE;
use plumb_base::stats::regression::{FittedLine, theil_sen};
use plumb_harness::report::LaunchFault;
use plumb_harness::spec::PathKind;
use plumb_report::figure::against_factor::{FactorSeries, factor_series};

use crate::claims::{bytes, needs, size};
use crate::factor::channel::{self, CONGESTION, LATENCY, MECHANISM, SIZE, THROUGHPUT};
use crate::factor::link::{self, MTU};
use crate::factor::remote::{self, BLOCKING_WAKE, INTERVAL_MIN, MESSAGE, SAME_CPU};
use crate::pages::{of, sentence};
use crate::prelude::*;
use crate::simulation::{self, ResponseValues, SimulatedCell};

/// Latency and throughput against the number of routers.
pub static EXPERIMENT: Experiment = Experiment {
    id: "path.length",
    study: "ipc",
    question: "What does each router between two hosts cost?",
    hypothesis: "Each router adds the time to receive and to send the message once more, so latency \
                 grows linearly with their number; a long transfer fills the same rate over any \
                 number.",
    factors: &[
        Factor { domain: FactorDomain::Mechanisms(remote::is_remote), ..MECHANISM }
            .at(Words(&["udp4", "tcp4"])),
        Factor::of_words(
            "forwarder",
            "whose routers: plumb's, with links of 1 Gb/s and 20 µs, or Linux's, a namespace each; or simulated, \
             with the same links",
            &["plumb", LINUX, SIMULATED],
        )
        .labelled(&[("plumb", "plumb's routers"), ("linux", "Linux's routers"), (SIMULATED, "simulated routers")]),
        Factor::new(
            "routers",
            "routers between the two hosts",
            FactorDomain::Between(0, 8, "a number"),
            Numbers(&[0, 1, 2, 4, 8]),
        )
        .at_quick(Numbers(&[0, 2, 8]))
        .at_paper(Numbers(&[0, 1, 2, 3, 4, 5, 6, 7, 8])),
        SAME_CPU,
        BLOCKING_WAKE,
        Factor { fit: keep_levels, ..SIZE }
            .at(Numbers(&[64, 1 << 10, 16 << 10]))
            .at_quick(Numbers(&[64])),
        CONGESTION,
    ],
    responses: &[LATENCY, THROUGHPUT],
    plan_cell,
    analysis: ExperimentAnalysis { expectations: EXPECTATIONS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Routers on the way",
        figures: Some(figures),
        sentences,
        tiles,
        ..ExperimentPage::PLAIN
    },
};

/// One hop: a switched network of today's desk, as the preset lan-1g.
const HOP: &str = "rate=1gbit,overhead=24,delay=20us,limit=256packets";

/// The level of Linux's own routers.
const LINUX: &str = "linux";

/// The level of simulated hosts, routers and links.
const SIMULATED: &str = "simulated";

/// Simulates one setting; a message of UDP is answered in kind, so that its latency is that of one way.
pub(crate) fn simulate(cell: &SimulatedCell<'_>) -> Result<ResponseValues, LaunchFault> {
    let routers: u32 = cell.number("routers")?;
    let mut links = String::new();
    for hop in 0..=routers {
        let node = |number: u32| match number {
            0 => "left".to_owned(),
            number if number > routers => "right".to_owned(),
            number => format!("router{number}"),
        };
        links += &simulation::link(&node(hop), &node(hop + 1), HOP);
    }
    if cell.level("mechanism") == "tcp4" {
        let flow = simulation::flow("left", "right", cell.level("congestion"), "");
        let text = format!("duration = \"200ms\"\nwarmup = \"100ms\"\n{links}{flow}");
        return Ok(vec![("throughput", cell.simulate(&text)?.goodput() / 8.0)]);
    }
    let size: u64 = cell.number("size")?;
    let source = simulation::source(("left", "right"), "poisson", 1e6, size + HEADERS, "");
    let text = format!("duration = \"2s\"\n{links}{source}");
    Ok(vec![("latency", cell.simulate(&text)?.sources[0].delays.quantile(0.5) as f64)])
}

/// Bytes of the headers of IPv4 and UDP.
const HEADERS: u64 = 28;

fn plan_cell(point: &DesignPoint<'_>) -> CellDecision {
    let mechanism = channel::mechanism_of(point.factors)
        .ok_or_else(|| Exclusion::impossible("no mechanism is given"))?;
    let size = channel::size_of(point.factors);
    let task = match point.response {
        "latency" => BlockTask::Latency { size },
        // A stream has no messages; what a datagram socket sends unasked is a flood.
        _ if mechanism.is_lossy() || size > 64 => return Err(Exclusion::NotApplicable),
        _ => BlockTask::SteadyRate { size: MESSAGE, interval_ns: INTERVAL_MIN.as_ns() },
    };
    let routers: u8 = channel::level_number(point.factors, "routers");
    if point.text("forwarder") == Some(SIMULATED) {
        // A message longer than a packet is fragmented, which simulated hosts do not do to others' datagrams.
        return match (point.response, mechanism.is_lossy()) {
            ("latency", true) if size <= 1_024 => Ok(simulation::cell(EXPERIMENT.id, point)),
            ("throughput", false) => Ok(simulation::cell(EXPERIMENT.id, point)),
            _ => Err(Exclusion::NotApplicable),
        };
    }
    let path = if point.text("forwarder") == Some(LINUX) {
        link::path(&format!("{routers} of Linux's routers"), PathKind::Routers(routers))
    } else {
        let text = vec![HOP; usize::from(routers) + 1].join(";");
        link::path_over_link(&format!("{routers} routers"), &text, MTU)?
    };
    Ok((remote::launch_group_over(point, mechanism, path, |_| {})?, task))
}

const EXPECTATIONS: &[Expectation] = &[
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

/// Cells that differ in their routers only, each with their number, fewest first.
type CellsByRouters<'a> = Vec<(f64, &'a MeasuredCell<'a>)>;

fn by_router_count<'a>(
    evidence: &ClaimEvidence<'a>,
    response: &'static str,
) -> Vec<CellsByRouters<'a>> {
    let mut kinds: BTreeMap<String, CellsByRouters<'a>> = BTreeMap::new();
    for cell in evidence.cells(EXPERIMENT.id, response) {
        let line = kinds.entry(cell.cell.factors.clone().without("routers").to_string());
        line.or_default().extend(cell.int("routers").map(|routers| (routers as f64, cell)));
    }
    let sorted = |mut line: CellsByRouters<'a>| {
        line.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        line
    };
    kinds.into_values().map(sorted).collect()
}

/// Whether the routers are Linux's own, on virtual Ethernets that have no rate.
fn is_linux(cell: &MeasuredCell<'_>) -> bool {
    cell.is("forwarder", LINUX)
}

/// The label of a case about a whole line.
fn line_label(first: &MeasuredCell<'_>) -> String {
    let whose = match first.level("forwarder") {
        LINUX => ", Linux's",
        SIMULATED => ", simulated",
        _ => "",
    };
    format!("{} {}{whose}", first.level("mechanism"), bytes(size(first)))
}

/// The slope of latency against the number of routers, robustly: above nothing.
fn routers_delay(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let mut found = ClaimCases::default();
    for line in by_router_count(evidence, "latency") {
        let Some((_, first)) = line.first() else { continue };
        let label = line_label(first);
        let fitted = slope(&line, |value| value);
        let ends = fitted.as_ref().and_then(|slope| slope.interval(CONFIDENCE));
        let (Some(fitted), Some(ends)) = (fitted, ends) else {
            found.missing.push(format!("{label} at three numbers of routers, six launches each"));
            continue;
        };
        let (value, lo, hi) = (fitted.estimate(), ends.lo, ends.hi);
        let outcome = if lo > 0.0 {
            CaseOutcome::Supports(2.0 * fitted.p_above(0.0))
        } else if hi < 0.0 {
            CaseOutcome::Contradicts(2.0 * fitted.p_below(0.0))
        } else {
            CaseOutcome::Undecided(None)
        };
        let time = |ns| Unit::Nanoseconds.format(ns, 3);
        found.cases.push(ClaimCase {
            placement: first.level("placement").to_owned(),
            label,
            value: Some(value),
            ci95: Some([lo, hi]),
            text: format!("{} a router ({}–{})", time(value), time(lo), time(hi)),
            outcome,
            strength: value,
        });
    }
    judge_all(found, &needs(EXPERIMENT.id, "routers=0,1,2,4,8"))
}

/// Throughput over the most routers against that over none, where hops have a rate: the same within a
/// twentieth.
fn routers_keep_throughput(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let mut found = ClaimCases::default();
    for line in by_router_count(evidence, "throughput") {
        let (Some((least, none)), Some((most, all))) = (line.first(), line.last()) else {
            continue;
        };
        if is_linux(none) {
            continue;
        }
        let routers = |number: &f64| significant(*number, 2);
        let label =
            format!("{} over {} and {} routers", line_label(none), routers(most), routers(least));
        if most <= least {
            found.missing.push(label);
            continue;
        }
        let case = ClaimCase::ratio_within(none.level("placement"), label, (none, all), SAME);
        found.cases.push(ClaimCase { strength: -case.strength.abs(), ..case });
    }
    judge_all(found, &needs(EXPERIMENT.id, "routers=0,8"))
}

/// Throughputs within a twentieth of each other are the same.
const SAME: (f64, f64) = (0.95, 1.05);

/// What each router adds, and what a long transfer keeps.
fn sentences(data: &PageData<'_>) -> Vec<String> {
    let slope = |path: FactorSeries<'_>| {
        let line = fitted_line(&path)?;
        let interval = [line.slope_interval.lo, line.slope_interval.hi];
        let slope = value::with_interval(Unit::Nanoseconds, line.slope, Some(interval));
        Some(format!("{slope} ({})", path.label))
    };
    let kept = |path: FactorSeries<'_>| {
        let ((least, first), (most, last)) = (path.cells.first()?, path.cells.last()?);
        let times = value::times(last.summary.median? / first.summary.median?);
        (most > least)
            .then(|| format!("{times} over {most:.0} routers as over {least:.0} ({})", path.label))
    };
    let latencies = factor_series(&of(&data.cells, "latency"), "routers", &["mechanism", "size"]);
    let slopes: Vec<String> = latencies.into_iter().filter_map(slope).collect();
    let rates = factor_series(&of(&data.cells, "throughput"), "routers", &["mechanism"]);
    let kept: Vec<String> = rates.into_iter().filter_map(kept).collect();
    [
        sentence(&slopes, "; ", |told| format!("Each router adds to half a round trip: {told}.")),
        sentence(&kept, "; ", |told| format!("A long transfer carries {told}.")),
    ]
    .concat()
}

fn tiles(data: &PageData<'_>) -> Vec<HeadlineTile> {
    let tile = |path: FactorSeries<'_>| {
        let line = fitted_line(&path)?;
        let interval = [line.slope_interval.lo, line.slope_interval.hi];
        Some(HeadlineTile {
            label: "each router adds".to_owned(),
            value: value::estimate(Unit::Nanoseconds, line.slope, Some(interval)),
            interval: value::interval(Unit::Nanoseconds, line.slope, interval),
            conditions: path.label,
        })
    };
    let paths = factor_series(&of(&data.cells, "latency"), "routers", &["mechanism", "size"]);
    paths.into_iter().filter_map(tile).collect()
}

/// The robust line through the medians of a path; none for fewer than three numbers of routers.
fn fitted_line(path: &FactorSeries<'_>) -> Option<FittedLine> {
    let x: Vec<f64> = path.cells.iter().map(|(routers, _)| *routers).collect();
    let y: Vec<f64> = path.cells.iter().filter_map(|(_, cell)| cell.summary.median).collect();
    theil_sen(&x, &y, CONFIDENCE)
}

fn figures(data: &PageData<'_>) -> Vec<Figure> {
    let mut panels: BTreeMap<(&str, &str, u64, usize), Vec<&CellResult>> = BTreeMap::new();
    for cell in &data.cells {
        let size = name::bytes(cell).unwrap_or(0);
        let place = name::placement_order(cell);
        let key = (cell.response.as_str(), cell.level("forwarder"), size, place);
        panels.entry(key).or_default().push(cell);
    }
    let figures = panels.into_values().map(|panel| figure(&panel));
    figures.filter(|figure| !figure.is_empty()).collect()
}

fn figure(cells: &[&CellResult]) -> Figure {
    let first = cells[0];
    let paths = factor_series(cells, "routers", &["mechanism"]);
    let is_latency = first.response == "latency";
    let mut series = Vec::new();
    for (path, slot) in paths.iter().zip(0u8..) {
        // A latency has its line; between two throughputs nothing is said.
        if let Some(line) = fitted_line(path).filter(|_| is_latency) {
            let ends = [line.x_min, line.x_max].map(|x| [x, line.at(x)]);
            series.push(Series::line(slot, ends.to_vec()));
        }
        let at = path.cells.iter().filter_map(|(x, cell)| FigurePoint::of_median(*x, cell));
        series.push(Series::points(path.label.clone(), slot, false, at));
    }
    let quantity = name::quantity(&first.response);
    let place = name::levels(&first.factors, &["forwarder", "size", "placement"]);
    let title = name::capitalize(&format!("{quantity}, {place}"));
    let table = table(&paths);
    let note = if is_latency {
        "Medians with 95 % intervals over launches, and the robust line through the medians: its slope \
         is what a router adds."
    } else {
        "Medians with 95 % intervals over launches, on an axis from zero."
    };
    let highest = plumb_report::figure::highest_median(cells);
    Figure {
        id: slug(&[&first.experiment, &first.response, &title]),
        alt: format!("{title}, by routers: {}.", table.in_words()),
        title,
        note: note.to_owned(),
        x: Axis::from_zero("routers", "count", 1.0),
        y: Axis::from_zero(quantity, &first.unit, highest),
        series,
        table,
    }
}

/// Routers down, paths across.
fn table(paths: &[FactorSeries<'_>]) -> TextTable {
    let mut table = TextTable::across("routers", paths.iter().map(|path| path.label.clone()));
    let mut numbers: Vec<f64> =
        paths.iter().flat_map(|path| path.cells.iter().map(|(routers, _)| *routers)).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    for wanted in numbers {
        let told = paths.iter().map(|path| {
            let found = path.cells.iter().find(|(routers, _)| routers.total_cmp(&wanted).is_eq());
            found.map_or_else(String::new, |(_, cell)| value::median(cell))
        });
        table.push([format!("{wanted:.0}")].into_iter().chain(told));
    }
    table
}
