//! A figure as characters: for terminals, and for `--ascii`.
//!
//! Left out: bands, which only shade what the points already say.

use super::scale::{self, AxisExtent};
use super::{AxisScale, Figure, SeriesMarks};
use crate::terminal::{TerminalStyle, TextRole};

/// The figure with its title, axes and key in at most `style.width` columns.
pub fn render(figure: &Figure, style: TerminalStyle) -> String {
    let (x, y) = scale::extents(figure);
    let labels = margin(&y, &figure.y.scale, style);
    // Names that do not fit beside their bars stand above them.
    let above = matches!(figure.series.first().map(|s| &s.marks), Some(SeriesMarks::Stack { .. }))
        && y.ticks.iter().any(|(_, name)| name.chars().count() > labels);
    let labels = if above { 0 } else { labels };
    let width = usize::from(style.width).saturating_sub(labels + 2).clamp(12, 100);
    let height = match &figure.y.scale {
        AxisScale::Names(names) => names.len(),
        _ => 16,
    };
    let mut canvas =
        TextCanvas { cells: vec![vec![(' ', TextRole::Plain); width]; height], width, height };
    let places = TextPlotArea { figure, x: &x, y: &y, width, height };
    for series in &figure.series {
        places.draw(&mut canvas, &series.marks, series.slot, style);
    }
    let mut lines = style.wrap(&figure.title, 0);
    for line in &mut lines {
        *line = style.paint(TextRole::Bold, line);
    }
    lines.extend(canvas.lines(&places, labels, style));
    lines.push(axis_line(&places, labels, style));
    lines.push(tick_line(&places, labels, style));
    lines.extend(key(figure, style));
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

struct TextCanvas {
    cells: Vec<Vec<(char, TextRole)>>,
    width: usize,
    height: usize,
}

struct TextPlotArea<'a> {
    figure: &'a Figure,
    x: &'a AxisExtent,
    y: &'a AxisExtent,
    width: usize,
    height: usize,
}

impl TextPlotArea<'_> {
    fn column(&self, value: f64) -> Option<usize> {
        let position = scale::position(&self.figure.x.scale, value)?;
        share(position, self.x.low, self.x.high).map(|share| cell(share, self.width))
    }

    fn row(&self, value: f64) -> Option<usize> {
        let position = scale::position(&self.figure.y.scale, value)?;
        if matches!(self.figure.y.scale, AxisScale::Names(_)) {
            return share(position, 0.0, (self.height - 1).max(1) as f64)
                .map(|share| cell(share, self.height));
        }
        share(position, self.y.low, self.y.high).map(|share| cell(1.0 - share, self.height))
    }

    /// Every other column of a straight line, which is straight between positions, not values.
    fn dotted(
        &self,
        canvas: &mut TextCanvas,
        from: [f64; 2],
        to: [f64; 2],
        dot: char,
        ink: TextRole,
    ) {
        let ends = [from, to].map(|[x, y]| {
            let x = scale::position(&self.figure.x.scale, x)?;
            let y = scale::position(&self.figure.y.scale, y)?;
            Some((share(x, self.x.low, self.x.high)?, share(y, self.y.low, self.y.high)?))
        });
        let [Some((x1, y1)), Some((x2, y2))] = ends else { return };
        let (first, last) = (cell(x1.min(x2), self.width), cell(x1.max(x2), self.width));
        for column in (first..=last).step_by(2) {
            let along = (column - first) as f64 / (last - first).max(1) as f64;
            let (low, high) = if x1 <= x2 { (y1, y2) } else { (y2, y1) };
            let row = cell(1.0 - (low + (high - low) * along), self.height);
            canvas.put(Some(row), Some(column), dot, ink);
        }
    }

    fn draw(&self, canvas: &mut TextCanvas, marks: &SeriesMarks, slot: u8, style: TerminalStyle) {
        let mark = style.mark(slot);
        let ink = TextRole::Slot(slot);
        let (across, along) = if style.unicode { ('─', '│') } else { ('-', '|') };
        match marks {
            SeriesMarks::Points { at, .. } => {
                for point in at {
                    let (row, column) = (self.row(point.y), self.column(point.x));
                    if let Some(ends) = point.x_interval {
                        canvas.fill([row; 2], ends.map(|end| self.column(end)), across, ink);
                    }
                    if let Some(ends) = point.y_interval {
                        canvas.fill(ends.map(|end| self.row(end)), [column; 2], along, ink);
                    }
                }
                for point in at {
                    canvas.put(self.row(point.y), self.column(point.x), mark, ink);
                }
            }
            SeriesMarks::Band(_) => {}
            SeriesMarks::Steps(at) => {
                for pair in at.windows(2) {
                    let columns = [pair[0][0], pair[1][0]].map(|x| self.column(x));
                    let rows = [pair[0][1], pair[1][1]].map(|y| self.row(y));
                    if rows.iter().chain(&columns).all(Option::is_some) {
                        canvas.fill([rows[0]; 2], columns, across, ink);
                        canvas.fill(rows, [columns[1]; 2], along, ink);
                    }
                }
                for [x, y] in at {
                    canvas.put(self.row(*y), self.column(*x), mark, ink);
                }
            }
            SeriesMarks::Line(at) => {
                let dot = if style.unicode { '·' } else { '.' };
                for pair in at.windows(2) {
                    self.dotted(canvas, pair[0], pair[1], dot, ink);
                }
            }
            SeriesMarks::Stack { segments, hatched } => {
                let mark = if *hatched { hatch(style) } else { mark };
                let ink = if *hatched { TextRole::Dim } else { ink };
                for [row, from, to] in segments {
                    let (Some(from), Some(to)) = (self.column(*from), self.column(*to)) else {
                        continue;
                    };
                    // A column belongs to the segment that begins in it; the last one ends before.
                    let last = to.saturating_sub(1);
                    if from < to {
                        let row = self.row(*row).or(Some(0));
                        canvas.fill([row; 2], [Some(from), Some(last)], mark, ink);
                    }
                }
            }
            SeriesMarks::Boxes(at) => {
                let block = if style.unicode { '━' } else { '=' };
                for spread in at {
                    let row = self.row(spread.at);
                    let columns = |ends: [f64; 2]| ends.map(|end| self.column(end));
                    canvas.fill([row; 2], columns(spread.whiskers), across, ink);
                    canvas.fill([row; 2], columns(spread.quartiles), block, ink);
                    canvas.put(row, self.column(spread.median), mark, ink);
                }
            }
        }
    }
}

impl TextCanvas {
    fn put(&mut self, row: Option<usize>, column: Option<usize>, mark: char, ink: TextRole) {
        if let (Some(row), Some(column)) = (row, column) {
            self.cells[row.min(self.height - 1)][column.min(self.width - 1)] = (mark, ink);
        }
    }

    /// Fills the cells from the first to the last of these rows and columns; none where an end is missing.
    fn fill(
        &mut self,
        rows: [Option<usize>; 2],
        columns: [Option<usize>; 2],
        mark: char,
        ink: TextRole,
    ) {
        let ([Some(top), Some(bottom)], [Some(left), Some(right)]) = (rows, columns) else {
            return;
        };
        for row in top.min(bottom)..=top.max(bottom) {
            for column in left.min(right)..=left.max(right) {
                self.put(Some(row), Some(column), mark, ink);
            }
        }
    }

    fn lines(&self, places: &TextPlotArea<'_>, labels: usize, style: TerminalStyle) -> Vec<String> {
        let edge = if style.unicode { "│" } else { "|" };
        let mut heads = vec![String::new(); self.height];
        for (tick, label) in &places.y.ticks {
            if let Some(row) = places.row(*tick).filter(|row| *row < self.height) {
                heads[row].clone_from(label);
            }
        }
        self.cells
            .iter()
            .zip(heads)
            .flat_map(|(cells, head)| {
                let bar = painted(cells, style);
                if labels == 0 {
                    let mut lines = style.wrap(&head, 0);
                    lines.push(format!(" {}{bar}", style.paint(TextRole::Dim, edge)));
                    return lines;
                }
                let head: String = style.to_charset(&head).chars().take(labels).collect();
                vec![format!("{head:>labels$} {}{bar}", style.paint(TextRole::Dim, edge))]
            })
            .collect()
    }
}

/// Runs of one ink share one escape sequence.
pub(crate) fn painted(cells: &[(char, TextRole)], style: TerminalStyle) -> String {
    cells
        .chunk_by(|a, b| a.1 == b.1)
        .map(|run| style.paint(run[0].1, &run.iter().map(|(c, _)| *c).collect::<String>()))
        .collect()
}

/// Columns of the labels; names may take two fifths of a wide terminal.
fn margin(y: &AxisExtent, scale: &AxisScale, style: TerminalStyle) -> usize {
    let most = match scale {
        AxisScale::Names(_) => (usize::from(style.width) * 2 / 5).max(22),
        _ => 22,
    };
    y.ticks.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0).min(most)
}

/// What fills a hatched bar.
const fn hatch(style: TerminalStyle) -> char {
    if style.unicode { '░' } else { ':' }
}

fn axis_line(places: &TextPlotArea<'_>, labels: usize, style: TerminalStyle) -> String {
    let (corner, line, tick) = if style.unicode { ('└', '─', '┴') } else { ('+', '-', '+') };
    let mut axis: Vec<char> = vec![line; places.width];
    for (value, _) in &places.x.ticks {
        if let Some(column) = places.column(*value) {
            axis[column] = tick;
        }
    }
    let axis: String = axis.into_iter().collect();
    format!("{} {}", " ".repeat(labels), style.paint(TextRole::Dim, &format!("{corner}{axis}")))
}

fn tick_line(places: &TextPlotArea<'_>, labels: usize, style: TerminalStyle) -> String {
    let ticks: Vec<(usize, String)> = places
        .x
        .ticks
        .iter()
        .filter_map(|(value, label)| Some((places.column(*value)?, style.to_charset(label))))
        .collect();
    let line = spaced(&ticks, places.width);
    let unit = style.to_charset(&places.figure.x.label);
    let room = places.width.saturating_sub(line.chars().count());
    let unit = if room > unit.chars().count() + 2 { format!("  {unit}") } else { String::new() };
    format!("{} {}", " ".repeat(labels + 1), style.paint(TextRole::Dim, &format!("{line}{unit}")))
}

/// Labels centred under their columns, or nearly so; one that would touch its left neighbour is
/// left out.
pub(crate) fn spaced(ticks: &[(usize, String)], width: usize) -> String {
    let mut line: Vec<char> = Vec::new();
    for (column, label) in ticks {
        let length = label.chars().count();
        let start = column.saturating_sub(length / 2).min(width.saturating_sub(length));
        let free = line.len() + usize::from(!line.is_empty());
        if start + 2 < free || free.max(start) + length > width {
            continue;
        }
        line.resize(free.max(start), ' ');
        line.extend(label.chars());
    }
    line.into_iter().collect()
}

fn key(figure: &Figure, style: TerminalStyle) -> Vec<String> {
    let named = figure.series.iter().filter(|series| !series.name.is_empty());
    let entries = named.map(|series| {
        let name = style.to_charset(&series.name);
        let hatched = matches!(series.marks, SeriesMarks::Stack { hatched: true, .. });
        let mark = if hatched { hatch(style) } else { style.mark(series.slot) };
        let ink = if hatched { TextRole::Dim } else { TextRole::Slot(series.slot) };
        let mark = style.paint(ink, &mark.to_string());
        (name.chars().count() + 2, format!("{mark} {name}"))
    });
    key_lines(entries, style)
}

/// Entries of a key, each with its length in characters, in as few lines as hold them.
pub(crate) fn key_lines(
    entries: impl Iterator<Item = (usize, String)>,
    style: TerminalStyle,
) -> Vec<String> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    for (length, entry) in entries {
        match lines.last_mut() {
            Some((used, line)) if *used + 3 + length <= usize::from(style.width) => {
                *used += 3 + length;
                *line += &format!("   {entry}");
            }
            _ => lines.push((length, entry)),
        }
    }
    lines.into_iter().map(|(_, line)| line).collect()
}

fn share(position: f64, low: f64, high: f64) -> Option<f64> {
    let share = (position - low) / (high - low);
    share.is_finite().then(|| share.clamp(0.0, 1.0))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share between 0 and 1 of a few hundred cells"
)]
fn cell(share: f64, cells: usize) -> usize {
    (share * (cells.saturating_sub(1)) as f64).round() as usize
}
