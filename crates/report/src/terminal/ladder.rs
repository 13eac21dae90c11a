//! The ladder in a terminal: one rung a boundary, cheapest first, on a logarithmic scale.
//!
//! Every placement of a boundary shares its row and differs by mark; whiskers run from quartile to quartile. What is
//! below the floor is no rung; the results list it with its reason.

use std::collections::BTreeMap;

use plumb_analysis::document::{LadderRung, RunDocument};
use plumb_base::units::{Unit, format_size};

use super::{TerminalPage, TerminalStyle, TextRole, summary};
use crate::figure::ladder::{RungKind, kind, kinds, labels};
use crate::figure::text::{key_lines, painted, spaced};
use crate::{headline, section, value};

/// The ladder on one screen: what to distrust, machine and conditions, a row a boundary, what follows, where to look
/// further; an empty string when there are no rungs.
pub fn render(document: &RunDocument, style: TerminalStyle) -> String {
    let rungs = &document.ladder;
    if rungs.is_empty() {
        return String::new();
    }
    let mut page = TerminalPage::new(style);
    page.out += &summary::preface(document, style);
    page.put(0, TextRole::Dim, &conditions(document));
    page.out += &chart(&rows(rungs), rungs, style);
    for line in [noisy(rungs), headline::ladder_in_short(rungs)].into_iter().flatten() {
        page.put(0, TextRole::Plain, &TerminalStyle::keep_units_together(&line));
    }
    let absent = section::missing_by_reason(&document.unavailable);
    let absent: usize = absent.values().flatten().map(|group| group.cells.len()).sum();
    let absent = match absent {
        0 => String::new(),
        1 => "; 1 cell is not measured, and why".to_owned(),
        absent => format!("; {absent} cells are not measured, and why"),
    };
    let more = format!("More: plumb show {} --details{absent}", document.run.id);
    page.put(0, TextRole::Dim, &more);
    page.out
}

/// The ladder with every boundary by itself, quartiles, CPU time of both sides, where the time goes, and conditions.
pub fn details(document: &RunDocument, style: TerminalStyle) -> String {
    let rungs = &document.ladder;
    let mut page = TerminalPage::new(style);
    page.out += &summary::preface(document, style);
    page.put(0, TextRole::Dim, &conditions(document));
    for line in key(rungs, style) {
        page.out += &format!("{}\n", line.trim_end());
    }
    let each: Vec<LadderRow<'_>> = labels(rungs)
        .into_iter()
        .map(|label| {
            let rungs = rungs.iter().filter(|rung| rung.label == label).collect();
            LadderRow { label, rungs }
        })
        .collect();
    page.out += &chart(&each, rungs, style);
    page.out.push('\n');
    page.put(0, TextRole::Bold, "Where the time goes");
    for row in &each {
        for rung in &row.rungs {
            for line in explanation(&row.label, rung, row.rungs.len() > 1, style) {
                page.out += &format!("{}\n", line.trim_end());
            }
        }
    }
    if rungs.iter().any(|rung| rung.calls.is_some()) {
        let what = "A system call here is the cheapest that does nothing in the kernel.";
        page.put(2, TextRole::Dim, what);
    }
    page.out += &summary::unavailable(&document.unavailable, style);
    page.out += &summary::trust(&document.trust, style);
    page.out
}

/// What is drawn on one line.
struct LadderRow<'a> {
    label: String,
    rungs: Vec<&'a LadderRung>,
}

/// A row a boundary; calls and clocks of one kind share theirs.
fn rows(rungs: &[LadderRung]) -> Vec<LadderRow<'_>> {
    let mut rows: Vec<LadderRow<'_>> = Vec::new();
    for rung in rungs {
        if let Some(row) = rows.iter_mut().find(|row| row.rungs[0].label == rung.label) {
            row.rungs.push(rung);
            continue;
        }
        let is_alone = kind(rung) == RungKind::SingleProcess;
        let joined = rows.iter_mut().filter(|_| is_alone).find_map(|row| {
            let shared = shared_name(row.rungs[0], rung)?;
            let is_close = (1.0 / CLOSE..=CLOSE).contains(&(rung.median / row.rungs[0].median));
            let is_same = is_close && (row.rungs.len() == 1 || row.label.starts_with(shared));
            is_same.then_some((row, shared))
        });
        match joined {
            Some((row, shared)) => {
                row.rungs.push(rung);
                row.label = format!("{shared}, {} kinds", row.rungs.len());
            }
            None => rows.push(LadderRow { label: rung.label.clone(), rungs: vec![rung] }),
        }
    }
    rows
}

/// What the names of two rungs of one process have in common: `clock read` or `system call`.
fn shared_name<'a>(one: &LadderRung, other: &'a LadderRung) -> Option<&'a str> {
    let (what, how) = one.label.split_once(", ")?;
    let (other_what, other_how) = other.label.split_once(", ")?;
    if one.experiment != other.experiment || kind(one) != RungKind::SingleProcess {
        return None;
    }
    [(how, other_how), (what, other_what)].into_iter().find(|(a, b)| a == b).map(|(_, b)| b)
}

/// Machine, message sizes, and what the numbers are.
fn conditions(document: &RunDocument) -> String {
    let mut sizes: BTreeMap<i64, Vec<&str>> = BTreeMap::new();
    for rung in &document.ladder {
        let Some(size) = rung.size else { continue };
        let labels = sizes.entry(size).or_default();
        if !labels.contains(&rung.label.as_str()) {
            labels.push(&rung.label);
        }
    }
    let bytes = |size: i64| format_size(u64::try_from(size).unwrap_or(0));
    let usual = sizes.iter().max_by_key(|(_, labels)| labels.len()).map(|(size, _)| *size);
    let size = usual.map(|usual| {
        let others = sizes.iter().filter(|(size, _)| **size != usual);
        let others: Vec<String> = others
            .map(|(size, labels)| format!("{} {}", labels.join(", "), bytes(*size)))
            .collect();
        let others =
            if others.is_empty() { String::new() } else { format!(" ({})", others.join("; ")) };
        format!("{}{others}", bytes(usual))
    });
    let what = "one way, median".to_owned();
    let parts: Vec<String> =
        section::machine(document).into_iter().chain(size).chain([what]).collect();
    TerminalStyle::keep_units_together(&parts.join(" · "))
}

/// The cells that are too noisy to print, with their ranges.
fn noisy(rungs: &[LadderRung]) -> Option<String> {
    let noisy = rungs.iter().filter(|rung| is_noisy(rung));
    let told = noisy.map(|rung| {
        let range = value::range(Unit::Nanoseconds, rung.ci95.unwrap_or_default());
        format!("{} {}, {range}", rung.label, kind(rung).legend())
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| format!("Too noisy: {}.", told.join("; ")))
}

/// The picture with its values.
fn chart(rows: &[LadderRow<'_>], rungs: &[LadderRung], style: TerminalStyle) -> String {
    let shape = LadderLayout::of(rows, rungs, style);
    let mut lines = if shape.stacked { key(rungs, style) } else { Vec::new() };
    lines.extend(shape.heads(rungs, style));
    for row in rows {
        lines.extend(shape.row(&row.label, &row.rungs, style));
    }
    if shape.stacked {
        lines.push(style.paint(TextRole::Dim, &shape.axis(style)));
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
    fn of(rows: &[LadderRow<'_>], rungs: &[LadderRung], style: TerminalStyle) -> Self {
        let width = usize::from(style.width).max(28);
        let longest = rows.iter().map(|row| row.label.chars().count()).max().unwrap_or(0);
        let columns = columns(rungs);
        let label = longest.min(width.saturating_sub(2 + columns.len() * VALUE + PLOT)).max(12);
        let beside = width.saturating_sub(label + 2 + columns.len() * VALUE);
        let stacked = beside < PLOT;
        let plot = if stacked { width - 2 } else { beside.min(90) };
        let (low, high) = scale(rungs);
        Self { label, plot, columns, low, high, stacked }
    }

    /// Ticks above the picture, what the marks of each column of values mean above that.
    fn heads(&self, rungs: &[LadderRung], style: TerminalStyle) -> Vec<String> {
        if self.stacked {
            return Vec::new();
        }
        let kinds = kinds(rungs);
        let ticks = self.axis(style);
        let is_spinning = kinds.contains(&RungKind::Spinning);
        let corner = if is_spinning { RungKind::Spinning.key(style) } else { String::new() };
        let corner: String = corner.chars().take(self.label).collect();
        let after = ticks.chars().skip(corner.chars().count()).collect::<String>();
        let missing = (self.label + 2 + self.plot).saturating_sub(ticks.chars().count());
        let mut line = corner + &after + &" ".repeat(missing);
        for column in &self.columns {
            let kind =
                kinds.iter().rfind(|kind| column_of(**kind) == *column && !kind.is_spinning());
            let head = kind.map_or_else(String::new, |kind| kind.key(style));
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
                let found = group.iter().filter(|rung| column_of(kind(rung)) == *column);
                let found: Vec<&LadderRung> = found.copied().collect();
                line += &format!("{:>VALUE$}", values_text(&found, style));
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
            if let (Some(q1), Some(q3), false) = (rung.q1, rung.q3, is_noisy(rung)) {
                let (low, high) = (self.column(q1.min(q3)), self.column(q1.max(q3)));
                cells[low..=high].fill((whisker, TextRole::Slot(kind(rung).slot())));
            }
        }
        for rung in group {
            let slot = kind(rung).slot();
            if is_noisy(rung) {
                continue;
            }
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

impl RungKind {
    fn key(self, style: TerminalStyle) -> String {
        let words = if self.is_spinning() { "spinning".to_owned() } else { self.legend() };
        format!("{} {words}", style.mark(self.slot()))
    }

    fn is_spinning(self) -> bool {
        self == Self::Spinning
    }
}

/// Ends of the scale: from the decade below the cheapest to just beyond the dearest.
fn scale(rungs: &[LadderRung]) -> (f64, f64) {
    let values = rungs.iter().filter(|rung| !is_noisy(rung)).flat_map(|rung| {
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

fn is_noisy(rung: &LadderRung) -> bool {
    value::is_too_noisy(Unit::Nanoseconds, rung.median, rung.ci95)
}

fn value_text(rung: &LadderRung, style: TerminalStyle) -> String {
    if is_noisy(rung) {
        return value::TOO_NOISY.to_owned();
    }
    let median = value::estimate(Unit::Nanoseconds, rung.median, rung.ci95);
    let text = format!("{median} {}", value::precision(rung.median, rung.ci95));
    style.to_charset(text.trim_end())
}

/// One value in full, or the least and the most of several: `18.6–20.7 ns`.
fn values_text(rungs: &[&LadderRung], style: TerminalStyle) -> String {
    let medians = rungs.iter().map(|rung| rung.median);
    let ends = medians.clone().reduce(f64::min).zip(medians.reduce(f64::max));
    match (rungs, ends) {
        ([one], _) => value_text(one, style),
        (_, Some((least, most))) => {
            style.to_charset(&value::range(Unit::Nanoseconds, [least, most]))
        }
        _ => String::new(),
    }
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

/// Calls and clocks whose costs are within this factor share a row.
const CLOSE: f64 = 3.0;

/// Columns below which the picture says too little.
const PLOT: usize = 20;

/// Columns a value takes: `21.4 µs ±1.2%` and a gap.
const VALUE: usize = 15;
