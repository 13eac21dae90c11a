//! A figure laid out in pixels: axes, grid, labels and marks.

use super::writer::{SvgWriter, TextAnchor, line_paint};
use crate::figure::scale::{self, AxisExtent};
use crate::figure::{AxisScale, BoxPlot, Figure, FigurePoint, Series, SeriesMarks};

const WIDTH: f64 = 576.0;
/// Height of a figure whose vertical axis has values.
const HEIGHT: f64 = 310.0;
/// Height of a name's row.
const ROW: f64 = 22.0;
/// The same where the name stands above what is drawn.
const HIGH_ROW: f64 = 36.0;
/// Longest names beside a plot, in characters: longer ones would leave it too little of the width.
const NAME_MAX: usize = 32;
const TOP: f64 = 10.0;
/// Below the plot: ticks, their labels, and the label of the axis.
const BELOW: f64 = 51.0;
/// The plot's right end, beyond which is half of the last tick's label.
const RIGHT: f64 = WIDTH - 29.0;
/// Left of the ticks' labels: the vertical axis' own label.
const AXIS_LABEL: f64 = 24.0;
const TICK: f64 = 5.0;
/// A character of a label, on average.
const CHARACTER: f64 = 7.0;
/// Longest labels of vertical ticks, in characters, beside which the axis' own label has room.
const TICK_LABEL_MAX: usize = 7;
const MARKER: f64 = 4.0;
const WHISKER: f64 = 1.2;
const BOX: f64 = 10.0;
const STACKED: f64 = 13.0;
/// Half of it, in rows.
const STACKED_HALF: f64 = 0.3;

/// A figure's plot area, and where values are in it.
pub(super) struct FigurePlot<'a> {
    figure: &'a Figure,
    x: AxisExtent,
    y: AxisExtent,
    left: f64,
    height: f64,
    /// Names stand in the plot, each above what is drawn of it.
    names_above: bool,
}

impl<'a> FigurePlot<'a> {
    pub(super) fn new(figure: &'a Figure) -> Self {
        let (mut x, y) = scale::extents(figure);
        let widest = y.ticks.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0);
        let names_above = matches!(figure.y.scale, AxisScale::Names(_)) && widest > NAME_MAX;
        let left = 15.0 + if names_above { 0.0 } else { widest as f64 * CHARACTER };
        let row = if names_above { HIGH_ROW } else { ROW };
        let is_labelled = !figure.y.label.is_empty() && widest <= TICK_LABEL_MAX;
        let left = if is_labelled { left + AXIS_LABEL } else { left };
        let height = match &figure.y.scale {
            AxisScale::Names(names) => row * names.len() as f64 + TOP + BELOW,
            _ => HEIGHT,
        };
        thin(&mut x, WIDTH - left);
        Self { figure, x, y, left, height, names_above }
    }

    /// Width and height in pixels.
    pub(super) fn size(&self) -> (f64, f64) {
        (WIDTH, self.height)
    }

    fn bottom(&self) -> f64 {
        self.height - BELOW
    }

    fn pixel_x(&self, value: f64) -> Option<f64> {
        let share = share(&self.figure.x.scale, &self.x, value)?;
        Some(share.mul_add(RIGHT - self.left, self.left))
    }

    /// Names read from the top, values from the bottom.
    fn pixel_y(&self, value: f64) -> Option<f64> {
        let share = share(&self.figure.y.scale, &self.y, value)?;
        let is_named = matches!(self.figure.y.scale, AxisScale::Names(_));
        let below_top = if is_named { share } else { 1.0 - share };
        Some(below_top.mul_add(self.bottom() - TOP, TOP))
    }

    /// Points in pixels; those that an axis has no place for are left out.
    fn place(&self, points: &[[f64; 2]]) -> Vec<[f64; 2]> {
        let placed = points.iter().map(|[x, y]| Some([self.pixel_x(*x)?, self.pixel_y(*y)?]));
        placed.flatten().collect()
    }

    /// Grid, axes, ticks and labels.
    pub(super) fn draw_axes(&self, out: &mut SvgWriter) {
        let (left, right, bottom) = (self.left, RIGHT, self.bottom());
        let of_x = self.x.ticks.iter().filter_map(|(at, label)| Some((self.pixel_x(*at)?, label)));
        let of_y = self.y.ticks.iter().filter_map(|(at, label)| Some((self.pixel_y(*at)?, label)));
        let grid = line_paint("var(--grid)", 1.0, "");
        let edge = line_paint("var(--edge)", 1.0, "");
        of_x.clone().for_each(|(x, _)| out.line(&grid, &[[x, TOP], [x, bottom]]));
        of_y.clone().for_each(|(y, _)| out.line(&grid, &[[left, y], [right, y]]));
        out.line(&edge, &[[left, TOP], [left, bottom], [right, bottom]]);
        for (x, label) in of_x {
            out.line(&edge, &[[x, bottom], [x, bottom + TICK]]);
            out.text([x, bottom + 17.0], TextAnchor::Middle, label);
        }
        for (y, label) in of_y {
            out.line(&edge, &[[left - TICK, y], [left, y]]);
            if self.names_above {
                out.text([left + 4.0, y - 9.0], TextAnchor::Start, label);
            } else {
                out.text([left - 8.0, y + 4.7], TextAnchor::End, label);
            }
        }
        let middle = f64::midpoint(left, right);
        out.text([middle, self.height - 6.5], TextAnchor::Middle, &self.figure.x.label);
        if self.y.ticks.iter().all(|(_, label)| label.chars().count() <= TICK_LABEL_MAX) {
            let middle = f64::midpoint(TOP, bottom);
            out.text([16.0, middle], TextAnchor::Upright, &self.figure.y.label);
        }
    }

    pub(super) fn draw_series(&self, series: &Series, out: &mut SvgWriter) {
        let color = format!("var(--c{})", series.slot % 8);
        match &series.marks {
            SeriesMarks::Points { at, joined } => {
                self.draw_points(at, *joined, series.slot, &color, out);
            }
            SeriesMarks::Band(at) => {
                let low = at.iter().map(|[x, low, _]| [*x, *low]);
                let high = at.iter().rev().map(|[x, _, high]| [*x, *high]);
                let edge = self.place(&low.chain(high).collect::<Vec<_>>());
                // A path of its own, that one band on another is darker.
                out.close_path();
                out.area(&format!("fill=\"{color}\" opacity=\"0.18\""), &edge);
            }
            SeriesMarks::Steps(at) => {
                let corners = at.windows(2).flat_map(|pair| [pair[0], [pair[1][0], pair[0][1]]]);
                let stairs: Vec<[f64; 2]> = corners.chain(at.last().copied()).collect();
                let paint = line_paint(&color, 1.8, dash(series.slot));
                out.line(&paint, &self.place(&stairs));
            }
            SeriesMarks::Line(at) => {
                out.line(&line_paint(&color, WHISKER, dash(1)), &self.place(at));
            }
            SeriesMarks::Boxes(at) => {
                for spread in at {
                    self.draw_box(spread, &color, out);
                }
            }
            SeriesMarks::Stack { segments, hatched } => {
                let paint = stack_paint(series.slot, STACKED, *hatched);
                // Each ends in a gap, so that neighbors are told apart without their colors.
                let gap = line_paint("var(--page)", 1.0, "");
                for [row, from, to] in segments {
                    out.line(&paint, &self.place(&[[*from, *row], [*to, *row]]));
                    let ends = [[*to, row - STACKED_HALF], [*to, row + STACKED_HALF]];
                    out.line(&gap, &self.place(&ends));
                }
            }
        }
    }

    /// Intervals, the line that joins the points, and markers above both.
    fn draw_points(
        &self,
        at: &[FigurePoint],
        joined: bool,
        slot: u8,
        color: &str,
        out: &mut SvgWriter,
    ) {
        let whisker = line_paint(color, WHISKER, "");
        for point in at {
            let across = point.x_interval.map(|[low, high]| [[low, point.y], [high, point.y]]);
            let along = point.y_interval.map(|[low, high]| [[point.x, low], [point.x, high]]);
            for ends in [across, along].into_iter().flatten() {
                out.line(&whisker, &self.place(&ends));
            }
        }
        let placed = self.place(&at.iter().map(|point| [point.x, point.y]).collect::<Vec<_>>());
        if joined {
            out.line(&line_paint(color, 1.5, ""), &placed);
        }
        for center in placed {
            out.marker(slot, color, center, MARKER);
        }
    }

    /// A thick line from quartile to quartile on a thin one, and the median across.
    fn draw_box(&self, spread: &BoxPlot, color: &str, out: &mut SvgWriter) {
        let BoxPlot { at: y, whiskers: [low, high], quartiles: [q1, q3], median } = *spread;
        out.line(&line_paint(color, WHISKER, ""), &self.place(&[[low, y], [high, y]]));
        out.line(&line_paint(color, BOX, ""), &self.place(&[[q1, y], [q3, y]]));
        let across = [[median, y - STACKED_HALF], [median, y + STACKED_HALF]];
        out.line(&line_paint("var(--ink)", 2.5, ""), &self.place(&across));
    }
}

/// The part of an axis that lies before a value.
fn share(scale: &AxisScale, extent: &AxisExtent, value: f64) -> Option<f64> {
    Some((scale::position(scale, value)? - extent.low) / (extent.high - extent.low))
}

/// Leaves out labels until no two touch in so many pixels.
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

/// Dashes by palette slot, for lines without markers: neighbors in color differ in dash.
pub(super) fn dash(slot: u8) -> &'static str {
    ["", "8 4", "8 4 2 4", "2 4"][usize::from(slot % 4)]
}

/// The paint of a piece of a bar.
pub(super) fn stack_paint(slot: u8, width: f64, hatched: bool) -> String {
    if hatched {
        return line_paint("var(--edge)", width, "2 2");
    }
    line_paint(&format!("var(--c{})", slot % 8), width, "")
}
