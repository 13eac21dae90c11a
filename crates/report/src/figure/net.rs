//! A measurement between two hosts over time: rates, round trips, losses and retransmits on one axis, and what the senders
//! waited for.
//!
//! The phases stand one after the other, without what was between them.

use plumb_result::net::{
    Direction, NetBulkFlow, NetDocument, NetInterval, NetPhase, PhaseName, SenderLimits,
};

use super::{Axis, AxisScale, Figure, FigurePoint, Series, SeriesMarks};
use crate::table::TextTable;
use crate::value;
use plumb_base::units::Unit;

/// Rows of a figure's table.
const ROWS_MAX: usize = 60;

/// The figures of a document that are not empty.
pub fn figures(document: &NetDocument) -> Vec<Figure> {
    let timeline = Timeline::of(document);
    let drawn = [rates(&timeline), round_trips(&timeline)].into_iter();
    drawn
        .chain(losses(&timeline))
        .chain(limits(document))
        .filter(|figure| !figure.is_empty())
        .collect()
}

/// The phases with the time at which each begins.
struct Timeline<'a> {
    phases: Vec<(f64, &'a NetPhase)>,
    end: f64,
}

impl<'a> Timeline<'a> {
    fn of(document: &'a NetDocument) -> Self {
        let mut end = 0.0;
        let mut phases = Vec::new();
        for phase in &document.phases {
            phases.push((end, phase));
            end += phase.warm_up_seconds + phase.seconds;
        }
        Self { phases, end }
    }

    fn axis(&self) -> Axis {
        let axis = Axis::with_scale("time, phase after phase", "ns", AxisScale::Linear);
        Axis { include: Some([0.0, self.end * 1e9]), ..axis }
    }
}

/// What an interval has: where its middle is, and a value.
type TimePoint = (f64, f64);

/// A quantity of every phase: its name in the key, its colour, and its points phase by phase.
struct TimeSeries {
    name: &'static str,
    slot: u8,
    phases: Vec<Vec<TimePoint>>,
}

impl TimeSeries {
    /// A series of the phases, which of them that have it.
    fn new(
        timeline: &Timeline<'_>,
        (name, slot): (&'static str, u8),
        points: impl Fn(&NetPhase) -> Vec<TimePoint>,
    ) -> Self {
        let shifted = |(began, phase): &(f64, &NetPhase)| {
            // Points after a phase's end would be drawn in the next one.
            let end = phase.warm_up_seconds + phase.seconds;
            let points = points(phase).into_iter().filter(|(at, _)| *at <= end);
            points.map(|(at, value)| ((began + at) * 1e9, value)).collect::<Vec<_>>()
        };
        let phases = timeline.phases.iter().map(shifted).filter(|points| !points.is_empty());
        Self { name, slot, phases: phases.collect() }
    }

    /// One line for each phase, of which the first is in the key.
    fn lines(&self) -> impl Iterator<Item = Series> {
        self.phases.iter().enumerate().map(|(index, points)| {
            let name = if index == 0 { self.name.to_owned() } else { String::new() };
            let points = points.iter().map(|(x, y)| FigurePoint::at(*x, *y));
            Series::points(name, self.slot, true, points)
        })
    }

    fn points(&self) -> impl Iterator<Item = &TimePoint> {
        self.phases.iter().flatten()
    }
}

/// The colour of a load.
const fn slot(name: PhaseName) -> u8 {
    match name {
        PhaseName::Down | PhaseName::UdpDown => 0,
        PhaseName::Up | PhaseName::UdpUp => 1,
        PhaseName::Idle => 6,
        _ => 3,
    }
}

fn middle(interval: &NetInterval) -> f64 {
    f64::midpoint(interval.from_seconds, interval.to_seconds)
}

fn rates(timeline: &Timeline<'_>) -> Figure {
    let of = |direction: Direction| {
        move |phase: &NetPhase| {
            let flows = phase.flows.iter().map(|flow| (flow.direction, &flow.intervals));
            let streams = phase.datagrams.iter().map(|it| (it.direction, &it.intervals));
            let found = flows.chain(streams).filter(|(way, _)| *way == direction);
            let intervals = found.flat_map(|(_, intervals)| intervals);
            intervals
                .map(|interval| (middle(interval), interval.bytes_per_second))
                .collect::<Vec<TimePoint>>()
        }
    };
    let series = [
        TimeSeries::new(timeline, ("down", 0), of(Direction::Down)),
        TimeSeries::new(timeline, ("up", 1), of(Direction::Up)),
    ];
    let highest = series.iter().flat_map(TimeSeries::points).map(|(_, y)| *y).fold(0.0, f64::max);
    Figure {
        id: "net-rate".to_owned(),
        title: "Rate".to_owned(),
        note: "What arrived in each interval, with the warm-up of each phase.".to_owned(),
        alt: format!("Rate over time, {} at most.", value::plain(Unit::NetworkRate, highest)),
        x: timeline.axis(),
        y: Axis::from_zero("rate", Unit::NetworkRate.name(), highest),
        table: table(&series, |rate| value::plain(Unit::NetworkRate, rate)),
        series: series.iter().flat_map(TimeSeries::lines).collect(),
    }
}

fn round_trips(timeline: &Timeline<'_>) -> Figure {
    let loads = [
        (PhaseName::Idle, "idle"),
        (PhaseName::Down, "under load down"),
        (PhaseName::Up, "under load up"),
        (PhaseName::Both, "under load both ways"),
        (PhaseName::UdpDown, "under datagrams down"),
        (PhaseName::UdpUp, "under datagrams up"),
        (PhaseName::UdpBoth, "under datagrams both ways"),
    ];
    let mut series = Vec::new();
    let mut bands = Vec::new();
    for (load, name) in loads {
        let of = |value: fn(f64, f64) -> f64| {
            move |phase: &NetPhase| {
                let probes = phase.probes.iter().filter(|_| phase.name == load);
                let intervals = probes.flat_map(|probes| &probes.intervals);
                let trips = intervals.filter_map(|interval| {
                    let at = f64::midpoint(interval.from_seconds, interval.to_seconds);
                    Some((at, value(interval.p50_ns?, interval.max_ns?)))
                });
                trips.collect::<Vec<_>>()
            }
        };
        let medians = TimeSeries::new(timeline, (name, slot(load)), of(|p50, _| p50));
        let longest = TimeSeries::new(timeline, (name, slot(load)), of(|_, max| max));
        for (medians, longest) in medians.phases.iter().zip(&longest.phases) {
            let both = medians.iter().zip(longest);
            let band = both.map(|((x, low), (_, high))| [*x, *low, *high]).collect();
            bands.push(Series {
                name: String::new(),
                slot: slot(load),
                marks: SeriesMarks::Band(band),
            });
        }
        series.push(medians);
    }
    series.retain(|series| !series.phases.is_empty());
    let told: Vec<String> = series.iter().map(|series| series.name.to_owned()).collect();
    Figure {
        id: "net-round-trips".to_owned(),
        title: "Round trips".to_owned(),
        note: "Lines are medians of each interval; the shade above them reaches to the longest."
            .to_owned(),
        alt: format!("Round trips over time: {}.", told.join(", ")),
        x: timeline.axis(),
        y: Axis::measured("round trip", Unit::Nanoseconds.name()),
        table: table(&series, |ns| value::plain(Unit::Nanoseconds, ns)),
        series: bands.into_iter().chain(series.iter().flat_map(TimeSeries::lines)).collect(),
    }
}

fn losses(timeline: &Timeline<'_>) -> Option<Figure> {
    let lost = |phase: &NetPhase| {
        let intervals = phase.probes.iter().flat_map(|probes| &probes.intervals);
        let lost = intervals.map(|interval| {
            let at = f64::midpoint(interval.from_seconds, interval.to_seconds);
            (at, interval.due.saturating_sub(interval.answered) as f64)
        });
        lost.collect::<Vec<_>>()
    };
    let of = |direction: Direction| {
        move |phase: &NetPhase| {
            let flow = phase.flows.iter().find(|flow| flow.direction == direction);
            flow.map_or_else(Vec::new, |flow| retransmits(phase, flow))
        }
    };
    let series = [
        TimeSeries::new(timeline, ("probes lost", 4), lost),
        TimeSeries::new(timeline, ("retransmits down", 0), of(Direction::Down)),
        TimeSeries::new(timeline, ("retransmits up", 1), of(Direction::Up)),
    ];
    let highest = series.iter().flat_map(TimeSeries::points).map(|(_, y)| *y).fold(0.0, f64::max);
    // Nothing was lost: there is nothing to draw, and the table above says so.
    (highest > 0.0).then(|| Figure {
        id: "net-losses".to_owned(),
        title: "Losses and retransmits".to_owned(),
        note: "Probes that were not answered, and retransmits, in each interval.".to_owned(),
        alt: format!("Losses and retransmits over time, {highest:.0} in an interval at most."),
        x: timeline.axis(),
        y: Axis::from_zero("in an interval", Unit::Count.name(), highest),
        table: table(&series, |count| format!("{count:.0}")),
        series: series.iter().flat_map(TimeSeries::lines).collect(),
    })
}

/// Segments sent again between every two readings of the sending side.
fn retransmits(phase: &NetPhase, flow: &NetBulkFlow) -> Vec<TimePoint> {
    let [sender, _] = flow.direction.sides();
    let readings = phase.evidence.iter().filter(|reading| reading.side == sender);
    let mut sums: Vec<(f64, f64)> = Vec::new();
    for reading in readings {
        let count = reading.tcp.get("retransmitted_segments").copied().unwrap_or(0.0);
        match sums.iter_mut().find(|(at, _)| (at - reading.at_seconds).abs() < 1e-9) {
            Some((_, sum)) => *sum += count,
            None => sums.push((reading.at_seconds, count)),
        }
    }
    sums.sort_by(|a, b| a.0.total_cmp(&b.0));
    let grown = sums
        .windows(2)
        .map(|pair| (f64::midpoint(pair[0].0, pair[1].0), (pair[1].1 - pair[0].1).max(0.0)));
    grown.collect()
}

/// A part of a sender's time by its name.
type LimitPart = (&'static str, fn(&SenderLimits) -> f64);

fn limits(document: &NetDocument) -> Option<Figure> {
    const PARTS: [LimitPart; 4] = [
        ("network", |waits| waits.network),
        ("receive window", |waits| waits.receive_window),
        ("send buffer", |waits| waits.send_buffer),
        ("sending program", |waits| waits.application),
    ];
    let mut rows: Vec<(String, Vec<SenderLimits>)> = Vec::new();
    for phase in &document.phases {
        for flow in &phase.flows {
            let Some(waits) = flow.waits else { continue };
            let name = match phase.name {
                PhaseName::Both => format!("both: {}", flow.direction),
                _ => flow.direction.to_string(),
            };
            match rows.iter_mut().find(|(known, _)| *known == name) {
                Some((_, all)) => all.push(waits),
                None => rows.push((name, vec![waits])),
            }
        }
    }
    if rows.is_empty() {
        return None;
    }
    let mean = |waits: &[SenderLimits], part: fn(&SenderLimits) -> f64| {
        waits.iter().map(part).sum::<f64>() / waits.len() as f64
    };
    let mut ends = vec![0.0; rows.len()];
    let mut series = Vec::new();
    for (slot, (name, part)) in (0_u8..).zip(PARTS) {
        let segments = rows.iter().enumerate().map(|(row, (_, waits))| {
            let from = ends[row];
            ends[row] += mean(waits, part);
            [row as f64, from, ends[row]]
        });
        let segments: Vec<[f64; 3]> = segments.collect();
        series.push(Series::stack(name.to_owned(), slot, segments, false));
    }
    let mut shares = TextTable::across("direction", PARTS.map(|(name, _)| name.to_owned()));
    for (name, waits) in &rows {
        let parts =
            PARTS.iter().map(|(_, part)| Unit::Share.format(mean(waits, *part), 2).to_string());
        shares.push([name.clone()].into_iter().chain(parts));
    }
    Some(Figure {
        id: "net-limits".to_owned(),
        title: "What the senders waited for".to_owned(),
        note: "Shares of the time that counts, as the senders' kernel tells them (TCP_INFO)."
            .to_owned(),
        alt: format!("What the senders waited for: {}.", shares.in_words()),
        x: Axis::from_zero("share of the time", Unit::Share.name(), 1.0),
        y: Axis::names("", rows.into_iter().map(|(name, _)| name).collect()),
        series,
        table: shares,
    })
}

/// Times down, series across.
fn table(series: &[TimeSeries], print: impl Fn(f64) -> String) -> TextTable {
    let mut table = TextTable::across("time", series.iter().map(|series| series.name.to_owned()));
    let mut times: Vec<f64> = series.iter().flat_map(TimeSeries::points).map(|(x, _)| *x).collect();
    times.sort_by(f64::total_cmp);
    times.dedup();
    for time in times.iter().step_by(times.len().div_ceil(ROWS_MAX).max(1)) {
        let cells = series.iter().map(|series| {
            let found = series.points().find(|(x, _)| x.total_cmp(time).is_eq());
            found.map_or_else(String::new, |(_, y)| print(*y))
        });
        table.push([format!("{:.2} s", time / 1e9)].into_iter().chain(cells));
    }
    table
}
