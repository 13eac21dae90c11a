//! The ladder in a terminal: one rung a boundary, cheapest first, on a logarithmic scale.
//!
//! Every placement of a boundary shares its row and differs by mark; whiskers run from quartile to
//! quartile. Below the picture stand quartiles, the CPU time both sides paid and where the time
//! goes, a sentence a rung. Left out:
//! anything below the floor, which the results list with its reason.

use plumb_analysis::document::LadderRung;
use plumb_base::units::Unit;

use super::{TerminalStyle, TextRole};
use crate::figure::ladder::{RungKind, kind, kinds, labels};
use crate::figure::text::{key_lines, painted, spaced};
use crate::value;

/// The whole ladder; an empty string when there are no rungs.
pub fn render(rungs: &[LadderRung], style: TerminalStyle) -> String {
    if rungs.is_empty() {
        return String::new();
    }
    let shape = LadderLayout::of(rungs, style);
    let mut lines = key(rungs, style);
    lines.extend(shape.heads(style));
    let groups: Vec<(String, Vec<&LadderRung>)> = labels(rungs)
        .into_iter()
        .map(|label| {
            let group = rungs.iter().filter(|rung| rung.label == label).collect();
            (label, group)
        })
        .collect();
    for (label, group) in &groups {
        lines.extend(shape.row(label, group, style));
    }
    lines.push(style.paint(TextRole::Dim, &shape.axis(style)));
    lines.push(String::new());
    lines.push(style.paint(TextRole::Bold, "Where the time goes"));
    for (label, group) in &groups {
        lines
            .extend(group.iter().flat_map(|rung| explanation(label, rung, group.len() > 1, style)));
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Widths of the parts of a row, and the scale.
struct LadderLayout {
    label: usize,
    plot: usize,
    /// The kinds that have a value column.
    columns: Vec<RungKind>,
    low: f64,
    high: f64,
    /// Whether the values stand on lines of their own, for want of room.
    stacked: bool,
}

impl LadderLayout {
    fn of(rungs: &[LadderRung], style: TerminalStyle) -> Self {
        let width = usize::from(style.width).max(28);
        let longest = labels(rungs).iter().map(|label| label.chars().count()).max().unwrap_or(0);
        let columns = columns(rungs);
        let label = longest.min(width.saturating_sub(2 + columns.len() * VALUE + PLOT)).max(12);
        let beside = width.saturating_sub(label + 2 + columns.len() * VALUE);
        let stacked = beside < PLOT;
        let plot = if stacked { width - 2 } else { beside.min(90) };
        let (low, high) = scale(rungs);
        Self { label, plot, columns, low, high, stacked }
    }

    fn heads(&self, style: TerminalStyle) -> Vec<String> {
        if self.stacked {
            return Vec::new();
        }
        let ticks = self.axis(style);
        let missing = (self.label + 2 + self.plot).saturating_sub(ticks.chars().count());
        let mut line = ticks + &" ".repeat(missing);
        for column in &self.columns {
            let head = if *column == RungKind::OtherCpu { "two CPUs" } else { "one CPU" };
            line += &format!("{head:>VALUE$}");
        }
        vec![style.paint(TextRole::Dim, &line)]
    }

    /// The picture of one boundary, its value beside it, or below where there is no room.
    fn row(&self, label: &str, group: &[&LadderRung], style: TerminalStyle) -> Vec<String> {
        let mut lines = Vec::new();
        if self.stacked {
            lines.extend(style.wrap(label, 0).iter().map(|line| style.paint(TextRole::Bold, line)));
            lines.push(format!(" {}", self.plot_row(group, style)));
            let value = |rung: &&LadderRung| {
                let slot = kind(rung).slot();
                let mark = style.paint(TextRole::Slot(slot), &style.mark(slot).to_string());
                format!(" {mark} {}", value_text(rung, style))
            };
            lines.extend(group.iter().map(value));
        } else {
            let shown: String = style.to_charset(label).chars().take(self.label).collect();
            let head = style.paint(TextRole::Bold, &format!("{shown:<width$}", width = self.label));
            let mut line = format!("{head}  {}", self.plot_row(group, style));
            for column in &self.columns {
                let found = group.iter().find(|rung| column_of(kind(rung)) == *column);
                line += &found.map_or_else(
                    || " ".repeat(VALUE),
                    |rung| format!("{:>VALUE$}", value_text(rung, style)),
                );
            }
            lines.push(line);
        }
        lines
    }

    /// The drawn part of a row: a dotted line, whiskers, marks.
    fn plot_row(&self, group: &[&LadderRung], style: TerminalStyle) -> String {
        let (dot, whisker) = if style.unicode { ('·', '─') } else { ('.', '-') };
        let mut cells = vec![(dot, TextRole::Dim); self.plot];
        for rung in group {
            if let (Some(q1), Some(q3)) = (rung.q1, rung.q3) {
                let (low, high) = (self.column(q1.min(q3)), self.column(q1.max(q3)));
                cells[low..=high].fill((whisker, TextRole::Slot(kind(rung).slot())));
            }
        }
        for rung in group {
            let slot = kind(rung).slot();
            cells[self.column(rung.median)] = (style.mark(slot), TextRole::Slot(slot));
        }
        painted(&cells, style)
    }

    fn column(&self, ns: f64) -> usize {
        let share = (ns.max(f64::MIN_POSITIVE).log10() - self.low) / (self.high - self.low);
        let last = self.plot - 1;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to the columns of the plot"
        )]
        let column = (share.clamp(0.0, 1.0) * last as f64).round() as usize;
        column.min(last)
    }

    fn axis(&self, style: TerminalStyle) -> String {
        let mut ticks = Vec::new();
        let mut decade = self.low.ceil();
        while decade <= self.high + 1e-9 && ticks.len() < 24 {
            let ns = 10f64.powf(decade);
            let label = Unit::Nanoseconds.format(ns, 1).to_string();
            ticks.push((self.column(ns), style.to_charset(&label)));
            decade += 1.0;
        }
        let indent = if self.stacked { 1 } else { self.label + 2 };
        " ".repeat(indent) + &spaced(&ticks, self.plot)
    }
}

/// Ends of the scale: from the decade below the cheapest to just beyond the dearest.
fn scale(rungs: &[LadderRung]) -> (f64, f64) {
    let values = rungs.iter().flat_map(|rung| {
        [Some(rung.median), rung.q1, rung.q3].into_iter().flatten().filter(|ns| *ns > 0.0)
    });
    let (low, high) = values
        .map(f64::log10)
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), p| (low.min(p), high.max(p)));
    if low > high {
        return (0.0, 1.0);
    }
    let low = low.floor();
    (low, (high + 0.05).max(low + 1.0))
}

fn key(rungs: &[LadderRung], style: TerminalStyle) -> Vec<String> {
    let marks = kinds(rungs).into_iter().map(|kind| {
        let mark = style.mark(kind.slot()).to_string();
        (style.paint(TextRole::Slot(kind.slot()), &mark), 1, kind.legend())
    });
    let whisker = (if style.unicode { "──" } else { "--" }).to_owned();
    let whisker = (whisker, 2, "first to third quartile".to_owned());
    let entries = marks.chain([whisker]).map(|(mark, wide, words)| {
        let entry = format!("{mark} {}", style.paint(TextRole::Dim, &words));
        (wide + 1 + words.chars().count(), entry)
    });
    key_lines(entries, style)
}

/// Value columns: one process, one CPU and the scheduler's choice share the first.
fn columns(rungs: &[LadderRung]) -> Vec<RungKind> {
    let mut columns: Vec<RungKind> = kinds(rungs).into_iter().map(column_of).collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

fn column_of(kind: RungKind) -> RungKind {
    match kind {
        RungKind::SingleProcess | RungKind::SameCpu | RungKind::Scheduler => RungKind::SameCpu,
        RungKind::OtherCpu | RungKind::Spinning => RungKind::OtherCpu,
    }
}

fn value_text(rung: &LadderRung, style: TerminalStyle) -> String {
    let median = value::estimate(Unit::Nanoseconds, rung.median, rung.ci95);
    let text = format!("{median} {}", value::precision(rung.median, rung.ci95));
    style.to_charset(text.trim_end())
}

/// A rung in words: quartiles, CPU time of both sides, and where the time goes.
fn explanation(label: &str, rung: &LadderRung, marked: bool, style: TerminalStyle) -> Vec<String> {
    let ns = Unit::Nanoseconds;
    let quartiles = rung
        .q1
        .zip(rung.q3)
        .map(|(q1, q3)| format!("quartiles {} to {}", value::plain(ns, q1), value::plain(ns, q3)));
    let facts: Vec<String> = quartiles.into_iter().chain(cpu_text(rung)).collect();
    let slot = kind(rung).slot();
    let mark = if marked { format!(" {}", style.mark(slot)) } else { String::new() };
    let head = format!("{label}{mark}");
    let gap = if facts.is_empty() { "" } else { "; " };
    let text = format!("{head}: {}{gap}{}", facts.join("; "), rung.sentence);
    let mut lines = style.wrap(&text, 2);
    for (index, line) in lines.iter_mut().enumerate() {
        *line = match line.trim_start().strip_prefix(&style.to_charset(&head)) {
            Some(rest) if index == 0 => {
                style.paint(TextRole::Slot(slot), &style.to_charset(&head))
                    + &style.paint(TextRole::Dim, rest)
            }
            _ => style.paint(TextRole::Dim, line),
        };
    }
    lines
}

fn cpu_text(rung: &LadderRung) -> Option<String> {
    let ns = Unit::Nanoseconds;
    let mut cpu = format!("CPU {}", value::plain(ns, rung.cpu_local?));
    if let Some(peer) = rung.cpu_peer.filter(|_| rung.placement.is_some()) {
        cpu = format!("{cpu} + {}", value::plain(ns, peer));
    }
    Some(cpu)
}

/// Columns below which the picture says too little.
const PLOT: usize = 20;

/// Columns a value takes: `21.4 µs ±1.2%` and a gap.
const VALUE: usize = 15;
