//! A simulation over time: goodput, windows and round trips of its connections, and the queue of the link used most.

use plumb_analysis::document::sim::{SimFlow, SimFlowSample, SimLink, SimRun};

use plumb_base::units::Unit;

use super::{Axis, AxisScale, Figure, FigurePoint, Series};
use crate::table::TextTable;

/// Connections that a figure shows: as many as there are markers.
const FLOWS_MAX: usize = 8;
/// Samples below which a picture says nothing.
const PLOT_FROM: usize = 5;
/// Rows of a figure's table.
const ROWS_MAX: usize = 50;
/// Points of a line: samples in between are averaged.
const POINTS_MAX: usize = 100;

/// The figures of a simulation; those without data are left out.
pub fn figures(run: &SimRun) -> Vec<Figure> {
    let shown: Vec<&SimFlow> =
        run.flows.iter().filter(|flow| flow.series.len() >= PLOT_FROM).take(FLOWS_MAX).collect();
    let mut figures = Vec::new();
    if !shown.is_empty() {
        figures.push(goodput(run));
        let float = |value: u64| Some(value as f64);
        figures.push(of_samples(
            &shown,
            ("window", "Congestion windows", "What may be in flight."),
            ("bytes", "B"),
            &|sample| float(sample.cwnd),
        ));
        figures.push(of_samples(
            &shown,
            ("rtt", "Round trips", "Smoothed (RFC 6298)."),
            ("round trip", "ns"),
            &|sample| sample.rtt_ms.map(|ms| ms * 1e6),
        ));
    }
    figures.extend(queue(run));
    figures
}

/// What each connection received over time.
pub fn goodput(run: &SimRun) -> Figure {
    let flows: Vec<&SimFlow> =
        run.flows.iter().filter(|flow| flow.series.len() >= PLOT_FROM).take(FLOWS_MAX).collect();
    let rates = |flow: &SimFlow| {
        let step = flow.series.len().div_ceil(POINTS_MAX).max(1);
        let samples: Vec<&SimFlowSample> = flow.series.iter().step_by(step).collect();
        let rate = |pair: &[&SimFlowSample]| {
            let [a, b] = [pair[0], pair[1]];
            let bytes = b.received_bytes.saturating_sub(a.received_bytes) as f64;
            (b.at, bytes / (b.at - a.at).max(1e-12))
        };
        samples.windows(2).map(rate).collect::<Vec<_>>()
    };
    let lines: Vec<(String, Vec<(f64, f64)>)> =
        flows.iter().map(|flow| (name_of(flow), rates(flow))).collect();
    let note = "Received in sequence, averaged from each point to the next.";
    draw(("goodput", "Goodput", note), ("goodput", Unit::NetworkRate.name()), &lines)
}

fn of_samples(
    flows: &[&SimFlow],
    about: (&str, &str, &str),
    axis: (&str, &str),
    value: &dyn Fn(&SimFlowSample) -> Option<f64>,
) -> Figure {
    let line = |flow: &&SimFlow| {
        let points = flow.series.iter().filter_map(|sample| Some((sample.at, value(sample)?)));
        (name_of(flow), points.collect())
    };
    let lines: Vec<_> = flows.iter().map(line).collect();
    draw(about, axis, &lines)
}

/// The queue of the link that is used most, where it was sampled.
fn queue(run: &SimRun) -> Option<Figure> {
    let used = |link: &&SimLink| link.utilisation.unwrap_or(0.0);
    let sampled = run.links.iter().filter(|link| link.queue.len() >= PLOT_FROM);
    let link = sampled.max_by(|a, b| used(a).total_cmp(&used(b)))?;
    let points = link.queue.iter().map(|(at, packets)| (*at, *packets as f64)).collect();
    let note = format!("Packets that wait for {}, the link used most.", link.name);
    let lines = [(String::new(), points)];
    Some(draw(("queue", "Queue", &note), ("packets", "count"), &lines))
}

fn name_of(flow: &SimFlow) -> String {
    format!("{} {} > {}", flow.name, flow.from, flow.to)
}

fn draw(
    (id, title, note): (&str, &str, &str),
    (label, unit): (&str, &str),
    lines: &[(String, Vec<(f64, f64)>)],
) -> Figure {
    let series = (0_u8..).zip(lines).map(|(slot, (name, points))| {
        let points: Vec<FigurePoint> =
            points.iter().map(|(x, y)| FigurePoint::at(x * 1e9, *y)).collect();
        Series::points(name.clone(), slot, true, points)
    });
    let highest = lines.iter().flat_map(|(_, points)| points).map(|(_, y)| *y).fold(1.0, f64::max);
    Figure {
        id: id.to_owned(),
        title: title.to_owned(),
        note: note.to_owned(),
        alt: format!("{title} over time."),
        x: Axis::with_scale("virtual time", "ns", AxisScale::Linear),
        y: Axis::from_zero(label, unit, highest),
        series: series.collect(),
        table: table(lines),
    }
}

fn table(lines: &[(String, Vec<(f64, f64)>)]) -> TextTable {
    let name = |(name, _): &(String, Vec<_>)| {
        if name.is_empty() { "value".to_owned() } else { name.clone() }
    };
    let mut table = TextTable::across("seconds", lines.iter().map(name));
    let longest = lines.iter().map(|(_, points)| points).max_by_key(|points| points.len());
    let Some(longest) = longest else { return table };
    for (index, (at, _)) in
        longest.iter().enumerate().step_by(longest.len().div_ceil(ROWS_MAX).max(1))
    {
        let values = lines.iter().map(|(_, points)| {
            points.get(index).map_or_else(String::new, |(_, value)| format!("{value:.0}"))
        });
        table.push(std::iter::once(format!("{at:.3}")).chain(values));
    }
    table
}
