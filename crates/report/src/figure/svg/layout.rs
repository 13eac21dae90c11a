//! A figure laid out by the plotting crate: from marks to a scene of primitives in pixels.
//!
//! The only file that knows the crate's plots and axes. Positions are made linear here, because
//! the crate has no binary-logarithm, tail or name axes; its own logarithmic axis serves the
//! decimal ones. Left out: how primitives are written (`super::emit`).

use std::sync::Arc;

use kuva::plot::line::LineStyle;
use kuva::plot::scatter::MarkerShape;
use kuva::plot::{BandPlot, LinePlot, ScatterPlot};
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;
use kuva::render::render::{Scene, render_multiple};
use kuva::render::theme::Theme;

use crate::figure::scale::{self, AxisExtent};
use crate::figure::{Axis, AxisScale, BoxPlot, Figure, FigurePoint, Series, SeriesMarks};
use crate::value;

/// The scene of a figure, without title and key, which are text of the page.
pub(super) fn scene(figure: &Figure) -> Scene {
    let axes = PlotAxes { x: AxisTransform::of(&figure.x), y: AxisTransform::of(&figure.y) };
    let mut plots: Vec<Plot> = figure.series.iter().flat_map(|series| axes.plots(series)).collect();
    if plots.is_empty() {
        plots.push(Plot::Scatter(ScatterPlot::new()));
    }
    let (mut x, y) = scale::extents(figure);
    thin(&mut x, room(figure));
    // Labels this long reach into the axis' own, and bear its unit anyway.
    let crowded = !matches!(figure.y.scale, AxisScale::Names(_))
        && y.ticks.iter().any(|(_, label)| label.chars().count() > 7);
    let y_label = if crowded { String::new() } else { figure.y.label.clone() };
    let (x, y) = (AxisEnds::of(&figure.x, &x), AxisEnds::of(&figure.y, &y));
    // Ends are given, not found by the crate: on a logarithmic axis without data it overflows.
    let layout = Layout::new((x.low, x.high), (y.low, y.high))
        .with_width(WIDTH)
        .with_height(height(figure))
        .with_theme(theme())
        .with_x_label(figure.x.label.clone())
        .with_y_label(y_label)
        .with_label_size(13)
        .with_tick_size(13);
    render_multiple(plots, horizontal(vertical(layout, &y), &x))
}

/// How values of one axis become numbers for the crate.
struct AxisTransform<'a> {
    scale: &'a AxisScale,
    names: f64,
}

struct PlotAxes<'a> {
    x: AxisTransform<'a>,
    y: AxisTransform<'a>,
}

impl<'a> AxisTransform<'a> {
    fn of(axis: &'a Axis) -> Self {
        let names =
            if let AxisScale::Names(names) = &axis.scale { names.len() as f64 } else { 0.0 };
        Self { scale: &axis.scale, names }
    }

    fn apply(&self, value: f64) -> Option<f64> {
        let position = scale::position(self.scale, value)?;
        Some(match self.scale {
            AxisScale::Log10 => value,
            _ => position,
        })
    }

    /// The vertical axis of names reads from the top.
    fn apply_vertical(&self, value: f64) -> Option<f64> {
        let position = self.apply(value)?;
        Some(match self.scale {
            AxisScale::Names(_) => self.names - 1.0 - position,
            _ => position,
        })
    }
}

impl PlotAxes<'_> {
    fn plots(&self, series: &Series) -> Vec<Plot> {
        let colour = format!("var(--c{})", series.slot % 8);
        match &series.marks {
            SeriesMarks::Points { at, joined } => self.points(at, *joined, series.slot, &colour),
            SeriesMarks::Band(at) => vec![self.band(at, &colour)],
            SeriesMarks::Steps(at) => {
                let line = self.line(at, &colour, 1.8).with_step();
                vec![Plot::Line(line.with_line_style(dash(series.slot)))]
            }
            SeriesMarks::Line(at) => {
                let line = self.line(at, &colour, WHISKER);
                vec![Plot::Line(line.with_line_style(LineStyle::Dashed))]
            }
            SeriesMarks::Boxes(at) => {
                at.iter().flat_map(|spread| self.boxed(spread, &colour)).collect()
            }
            SeriesMarks::Stack { segments, hatched } => self.stack(segments, *hatched, &colour),
        }
    }

    fn place(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        self.x.apply(x).zip(self.y.apply_vertical(y))
    }

    fn line(&self, points: &[[f64; 2]], colour: &str, width: f64) -> LinePlot {
        let at: Vec<(f64, f64)> = points.iter().filter_map(|[x, y]| self.place(*x, *y)).collect();
        LinePlot::new().with_data(at).with_color(colour).with_stroke_width(width)
    }

    fn points(&self, at: &[FigurePoint], joined: bool, slot: u8, colour: &str) -> Vec<Plot> {
        let mut plots = Vec::new();
        for point in at {
            let across = point.x_interval.map(|[low, high]| [[low, point.y], [high, point.y]]);
            let along = point.y_interval.map(|[low, high]| [[point.x, low], [point.x, high]]);
            for ends in [across, along].into_iter().flatten() {
                plots.push(Plot::Line(self.line(&ends, colour, WHISKER)));
            }
        }
        if joined {
            let line: Vec<[f64; 2]> = at.iter().map(|point| [point.x, point.y]).collect();
            plots.push(Plot::Line(self.line(&line, colour, 1.5)));
        }
        let placed: Vec<(f64, f64)> =
            at.iter().filter_map(|point| self.place(point.x, point.y)).collect();
        let markers = ScatterPlot::new()
            .with_data(placed)
            .with_color(colour)
            .with_size(4.0)
            .with_marker(SHAPES[usize::from(slot) % SHAPES.len()]);
        plots.push(Plot::Scatter(markers));
        plots
    }

    fn band(&self, at: &[[f64; 3]], colour: &str) -> Plot {
        let (mut xs, mut lows, mut highs) = (Vec::new(), Vec::new(), Vec::new());
        for [x, low, high] in at {
            if let (Some((x, low)), Some((_, high))) = (self.place(*x, *low), self.place(*x, *high))
            {
                xs.push(x);
                lows.push(low);
                highs.push(high);
            }
        }
        Plot::Band(BandPlot::new(xs, lows, highs).with_color(colour).with_opacity(0.18))
    }

    /// Thick lines, each ending in a gap, so that neighbours are told apart without their colours.
    fn stack(&self, segments: &[[f64; 3]], hatched: bool, colour: &str) -> Vec<Plot> {
        let (colour, style) = if hatched {
            ("var(--edge)", LineStyle::Custom("2 2".to_owned()))
        } else {
            (colour, LineStyle::Solid)
        };
        let mut plots = Vec::new();
        for [row, from, to] in segments {
            let bar = self.line(&[[*from, *row], [*to, *row]], colour, STACKED);
            plots.push(Plot::Line(bar.with_line_style(style.clone())));
            let edge = [[*to, row - STACKED_HALF], [*to, row + STACKED_HALF]];
            plots.push(Plot::Line(self.line(&edge, "var(--page)", 1.0)));
        }
        plots
    }

    /// A thick line from quartile to quartile on a thin one, with the median cut out: the crate's
    /// own boxes want raw samples and choose their own whiskers.
    fn boxed(&self, spread: &BoxPlot, colour: &str) -> Vec<Plot> {
        let BoxPlot { at: y, whiskers: [low, high], quartiles: [q1, q3], median } = *spread;
        vec![
            Plot::Line(self.line(&[[low, y], [high, y]], colour, WHISKER)),
            Plot::Line(self.line(&[[q1, y], [q3, y]], colour, BOX)),
            Plot::Line(self.line(&[[median, y - 0.3], [median, y + 0.3]], "var(--ink)", 2.5)),
        ]
    }
}

fn horizontal(layout: Layout, ends: &AxisEnds) -> Layout {
    let layout = layout
        .with_x_axis_min(ends.low)
        .with_x_axis_max(ends.high)
        .with_x_tick_format(ends.format.clone());
    match ends.step {
        Some(step) => layout.with_x_tick_step(step),
        None => layout.with_log_x(),
    }
}

fn vertical(layout: Layout, ends: &AxisEnds) -> Layout {
    let layout = layout
        .with_y_axis_min(ends.low)
        .with_y_axis_max(ends.high)
        .with_y_tick_format(ends.format.clone());
    match ends.step {
        Some(step) => layout.with_y_tick_step(step),
        None => layout.with_log_y(),
    }
}

/// The ends of an axis, its tick step (none for the crate's logarithmic axis) and its labels.
struct AxisEnds {
    low: f64,
    high: f64,
    step: Option<f64>,
    format: TickFormat,
}

impl AxisEnds {
    fn of(axis: &Axis, extent: &AxisExtent) -> Self {
        let AxisExtent { low, high, ticks } = extent.clone();
        match &axis.scale {
            AxisScale::Log10 => {
                let unit = value::unit(&axis.unit);
                let format = move |tick: f64| unit.format(tick, 1).to_string();
                let (low, high) = (10f64.powf(low), 10f64.powf(high));
                Self { low, high, step: None, format: custom(format) }
            }
            AxisScale::Names(names) => {
                let positions: Vec<(f64, String)> = names
                    .iter()
                    .rev()
                    .zip(0..)
                    .map(|(name, at)| (f64::from(at), name.clone()))
                    .collect();
                let format = move |tick: f64| nearest_label(&positions, tick, 1.0);
                Self {
                    low: -1.0,
                    high: names.len() as f64,
                    step: Some(1.0),
                    format: custom(format),
                }
            }
            AxisScale::Linear | AxisScale::Log2 | AxisScale::Tail => {
                let positions: Vec<(f64, String)> = ticks
                    .into_iter()
                    .filter_map(|(tick, label)| Some((scale::position(&axis.scale, tick)?, label)))
                    .collect();
                let step = match (&axis.scale, positions.as_slice()) {
                    (AxisScale::Tail, _) => 1.0,
                    (_, [first, second, ..]) => second.0 - first.0,
                    _ => 1.0,
                };
                let format = move |tick: f64| nearest_label(&positions, tick, step);
                Self { low, high, step: Some(step), format: custom(format) }
            }
        }
    }
}

fn custom(format: impl Fn(f64) -> String + Send + Sync + 'static) -> TickFormat {
    TickFormat::Custom(Arc::new(format))
}

fn nearest_label(ticks: &[(f64, String)], tick: f64, step: f64) -> String {
    ticks
        .iter()
        .find(|(position, _)| (position - tick).abs() < step.abs() * 0.01)
        .map_or_else(String::new, |(_, label)| label.clone())
}

fn theme() -> Theme {
    let ink = || "var(--ink)".to_owned();
    Theme {
        background: "none".to_owned(),
        axis_color: "var(--edge)".to_owned(),
        grid_color: "var(--grid)".to_owned(),
        tick_color: "var(--edge)".to_owned(),
        text_color: ink(),
        legend_bg: "none".to_owned(),
        legend_border: "none".to_owned(),
        pie_leader: ink(),
        box_median: ink(),
        violin_border: ink(),
        colorbar_border: ink(),
        font_family: None,
        show_grid: true,
    }
}

fn height(figure: &Figure) -> f64 {
    match &figure.y.scale {
        AxisScale::Names(names) => 22.0f64.mul_add(names.len() as f64 + 1.0, 60.0),
        _ => 310.0,
    }
}

/// Pixels along the horizontal axis: names on the other one take theirs from it.
fn room(figure: &Figure) -> f64 {
    let names = match &figure.y.scale {
        AxisScale::Names(names) => names.iter().map(|name| name.chars().count()).max().unwrap_or(0),
        _ => 8,
    };
    WIDTH - 60.0 - names as f64 * CHARACTER
}

/// Leaves out labels until no two touch.
fn thin(extent: &mut AxisExtent, room: f64) {
    let wide = |label: &String| label.chars().count() as f64 * CHARACTER + 10.0;
    for keep in 1..=extent.ticks.len() {
        let kept = || extent.ticks.iter().step_by(keep).map(|(_, label)| wide(label));
        if kept().sum::<f64>() <= room || kept().count() <= 2 {
            for (index, (_, label)) in extent.ticks.iter_mut().enumerate() {
                if index % keep != 0 {
                    label.clear();
                }
            }
            return;
        }
    }
}

const WIDTH: f64 = 560.0;
/// Pixels of a character of a tick's label, on average.
const CHARACTER: f64 = 7.0;
const WHISKER: f64 = 1.2;
const BOX: f64 = 10.0;
const STACKED: f64 = 13.0;
/// Half of it in rows, which are 22 pixels high.
const STACKED_HALF: f64 = 0.3;

/// Dashes by palette slot, for lines without markers: neighbours in colour differ in dash.
pub(super) fn dash(slot: u8) -> LineStyle {
    match slot % 4 {
        0 => LineStyle::Solid,
        1 => LineStyle::Dashed,
        2 => LineStyle::DashDot,
        _ => LineStyle::Dotted,
    }
}

/// Markers by palette slot, in the order of the terminal's.
pub(super) const SHAPES: [MarkerShape; 8] = [
    MarkerShape::Circle,
    MarkerShape::Diamond,
    MarkerShape::Square,
    MarkerShape::Triangle,
    MarkerShape::TriangleDown,
    MarkerShape::Plus,
    MarkerShape::Hexagon,
    MarkerShape::Cross,
];
