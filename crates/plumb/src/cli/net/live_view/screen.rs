//! The screen of the live view, as lines of text for any width and height.

use plumb_base::units::Unit;
use plumb_net::measure::progress::RttHistogram;
use plumb_report::printable;
use plumb_report::terminal::format_bit_rate;
use plumb_report::terminal::{TerminalStyle, TextRole};
use plumb_result::net::SenderLimits;

use super::history::{LiveHistory, LiveInterval};

/// What does not change between drawings.
#[derive(Clone, Debug)]
pub struct LiveScreenContext {
    /// Title: the other host.
    pub title: String,
    /// Which CPU draws, and whether it also measures.
    pub drawing_cpu: String,
    /// Characters and colours.
    pub style: TerminalStyle,
}

/// Widths of a name before a graph and of a figure after it.
const NAME: usize = 15;
const FIGURE: usize = 15;
/// Most rows of graphs.
const RATE_ROWS_MAX: usize = 4;
const TRIPS_ROWS_MAX: usize = 10;

/// The whole screen of so many columns and rows: a painted line for each row.
pub fn lines(
    history: &LiveHistory,
    view: &LiveScreenContext,
    (width, height): (usize, usize),
    is_stopping: bool,
) -> Vec<String> {
    let mut lines = LiveScreen { view, width }.lines(history, height, is_stopping);
    lines.truncate(height);
    lines
}

/// Text with its role.
type StyledText = (String, TextRole);

struct LiveScreen<'a> {
    view: &'a LiveScreenContext,
    width: usize,
}

impl LiveScreen<'_> {
    fn lines(&self, history: &LiveHistory, height: usize, is_stopping: bool) -> Vec<String> {
        let foot = self.foot(is_stopping);
        // Always shown: two rows of head, two of rates, one of latency, and the limits of both sides.
        let is_short = height < 22;
        let waits = if is_short { 6 } else { 10 };
        let spare = height.saturating_sub(2 + 2 + 1 + waits + foot.len());
        let trips_rows = spare.saturating_sub(1).min((spare / 2).max(2)).min(TRIPS_ROWS_MAX);
        let spare = spare - if trips_rows > 0 { trips_rows + 1 } else { 0 };
        let rate_rows = (1 + spare / 2).min(RATE_ROWS_MAX);
        let spare = spare - 2 * (rate_rows - 1);
        let gaps = spare.min(3);
        let mut lines = self.head(history);
        let gap = |lines: &mut Vec<String>, at: usize| {
            if gaps > at {
                lines.push(String::new());
            }
        };
        gap(&mut lines, 0);
        for (name, value, slot) in RATES {
            // A direction that is over keeps its answer.
            let now = history.latest().map(value).filter(|rate| *rate > 0.0);
            let figure = match (now, history.mean(value)) {
                (Some(now), _) => format_bit_rate(now),
                (None, Some(mean)) => format!("mean {}", format_bit_rate(mean)),
                (None, None) => String::new(),
            };
            let value = |point: &LiveInterval| Some(value(point));
            let figures = GraphFigures { latest: figure, top: None, scale: format_bit_rate };
            lines.extend(self.graph(history, name, (rate_rows, slot), value, &figures));
        }
        gap(&mut lines, 1);
        lines.extend(self.latency(history, trips_rows));
        gap(&mut lines, 2);
        lines.extend(self.waits(history, "here", |point| point.here));
        if is_short {
            lines.push(self.waits_in_short(history));
        } else {
            lines.extend(self.waits(history, "there", |point| point.there));
        }
        lines.truncate(height.saturating_sub(foot.len()));
        while lines.len() + foot.len() < height {
            lines.push(String::new());
        }
        lines.extend(foot);
        lines
    }

    /// Pieces beside each other, as far as they fit.
    fn line(&self, pieces: Vec<StyledText>) -> String {
        let style = self.view.style;
        let mut room = self.width;
        let painted = pieces.into_iter().map(|(text, ink)| {
            let text = style.to_charset(&printable::line(&text));
            let shown: String = text.chars().take(room).collect();
            room -= shown.chars().count();
            style.paint(ink, &shown)
        });
        painted.collect()
    }

    fn one(&self, text: impl Into<String>, ink: TextRole) -> String {
        let text: String = text.into();
        self.line(vec![(shortened(&text, self.width), ink)])
    }

    fn head(&self, history: &LiveHistory) -> Vec<String> {
        let now = history.phase().map_or_else(
            || "starting".to_owned(),
            |(name, at, of, left)| format!("{name}: {at:.1} of {of:.1} s, {left:.0} s to the end"),
        );
        vec![self.one(&self.view.title, TextRole::Bold), self.one(now, TextRole::Plain)]
    }

    /// A value over time, with what a full bar is beside its top where there are several rows.
    fn graph(
        &self,
        history: &LiveHistory,
        name: &str,
        (rows, slot): (usize, u8),
        value: impl Fn(&LiveInterval) -> Option<f64>,
        figures: &GraphFigures,
    ) -> Vec<String> {
        let room = self.width.saturating_sub(NAME + FIGURE).max(1);
        let columns = history.columns(room, value);
        let greatest = columns.iter().flatten().copied().fold(0.0, f64::max);
        let top = figures.top.unwrap_or(greatest);
        let drawn = self.bars(&columns, rows, top);
        let last = rows.saturating_sub(1);
        let scale = if top > 0.0 { (figures.scale)(top) } else { String::new() };
        let scale = format!("{scale:>width$} ", width = NAME - 1);
        drawn
            .into_iter()
            .enumerate()
            .map(|(row, bars)| {
                let (name, figure) = match row {
                    row if row == last => (name, figures.latest.as_str()),
                    0 => (scale.as_str(), ""),
                    _ => ("", ""),
                };
                self.line(vec![
                    (format!("{name:<NAME$}"), TextRole::Plain),
                    (bars, TextRole::Slot(slot)),
                    (format!("{figure:>FIGURE$}"), TextRole::Plain),
                ])
            })
            .collect()
    }

    /// Bars of several rows, the top row first.
    fn bars(&self, values: &[Option<f64>], rows: usize, top: f64) -> Vec<String> {
        let steps: &[char] = if self.view.style.unicode { &EIGHTHS } else { &EIGHTHS_ASCII };
        let full = steps.len() - 1;
        let row = |row: usize| -> String {
            let below = (rows - 1 - row) * full;
            let cell = |value: &Option<f64>| {
                let Some(value) = value.filter(|value| *value > 0.0 && top > 0.0) else {
                    return ' ';
                };
                // Any positive value is visible.
                let share = value / top * (rows * full) as f64;
                let height = (1..=rows * full).rev().find(|step| share + 0.5 >= *step as f64);
                steps[height.unwrap_or(1).saturating_sub(below).min(full)]
            };
            values.iter().map(cell).collect()
        };
        (0..rows).map(row).collect()
    }

    fn latency(&self, history: &LiveHistory, rows: usize) -> Vec<String> {
        let Some(phase) = history.phases().last() else {
            return vec![self.one("latency", TextRole::Plain)];
        };
        let idle = history.phases().iter().find(|phase| phase.name == "idle");
        let idle = idle.filter(|_| phase.name != "idle");
        let beside = idle.and_then(|idle| idle.trips.quantile_ns(0.5));
        let beside = beside.map_or_else(String::new, |p50| format!(" (idle p50 {})", time(p50)));
        let text = match quantiles(&phase.trips) {
            Some(text) => format!("latency {}: {text}{beside}", phase.name),
            None => format!("latency {}: no probe answered yet", phase.name),
        };
        let tallest = phase.trips.steps().iter().map(|(_, count)| *count).max();
        let tallest = tallest.filter(|_| rows > 0);
        let scale =
            tallest.map_or_else(String::new, |count| format!("; full column: {count} probes"));
        let mut lines = vec![self.one(text + &scale, TextRole::Plain)];
        let steps = phase.trips.steps();
        if rows == 0 {
            return lines;
        }
        let Some((&(least, _), &(most, _))) = steps.first().zip(steps.last()) else {
            lines.extend((0..=rows).map(|_| String::new()));
            return lines;
        };
        // Steps as wide as possible.
        let each = (self.width / steps.len()).clamp(1, 4);
        let shown = steps.iter().flat_map(|step| std::iter::repeat_n(step.1, each));
        let shown: Vec<Option<f64>> = shown.map(|count| Some(f64::from(count))).collect();
        let greatest = shown.iter().flatten().copied().fold(0.0, f64::max);
        for bars in self.bars(&shown, rows, greatest) {
            lines.push(self.line(vec![(shortened(&bars, self.width), TextRole::Slot(2))]));
        }
        let (least, most) = (time(least as f64), time(most as f64));
        let gap = (each * steps.len()).saturating_sub(least.chars().count() + most.chars().count());
        let axis = format!("{least}{}{most}", " ".repeat(gap.max(1)));
        lines.push(self.one(axis, TextRole::Dim));
        lines
    }

    fn waits(
        &self,
        history: &LiveHistory,
        side: &str,
        of: impl Fn(&LiveInterval) -> Option<SenderLimits>,
    ) -> Vec<String> {
        let latest = history.latest().and_then(&of);
        let note = match (side, latest) {
            (_, Some(_)) => " (full bar: 100 %)",
            ("here", None) => " (not sending)",
            _ => " (known at the end of each phase)",
        };
        let mut lines = vec![self.one(format!("sending {side} waits for{note}"), TextRole::Plain)];
        for (name, part, slot) in PARTS {
            let figure = latest.map_or_else(String::new, |shares| share(part(&shares)));
            let value = |point: &LiveInterval| of(point).map(|shares| part(&shares));
            let figures = GraphFigures { latest: figure, top: Some(1.0), scale: share };
            lines.extend(self.graph(history, name, (1, slot), value, &figures));
        }
        lines
    }

    /// Mean limits of the other side, on one line.
    fn waits_in_short(&self, history: &LiveHistory) -> String {
        if history.columns(64, |point| point.there.map(|_| 1.0)).iter().all(Option::is_none) {
            return self.one("sending there: known at the end of each phase", TextRole::Plain);
        }
        let mean = |part: fn(&SenderLimits) -> f64| {
            let known = history.columns(64, |point| point.there.map(|shares| part(&shares)));
            let known: Vec<f64> = known.into_iter().flatten().collect();
            known.iter().sum::<f64>() / known.len().max(1) as f64
        };
        let mut parts = PARTS.map(|(name, part, _)| (mean(part), name));
        parts.sort_by(|a, b| b.0.total_cmp(&a.0));
        let parts = parts.iter().filter(|(part, _)| *part >= 0.01);
        let texts: Vec<String> =
            parts.map(|(part, name)| format!("{name} {}", share(*part))).collect();
        self.one(format!("sending there: {}", texts.join(", ")), TextRole::Plain)
    }

    fn foot(&self, is_stopping: bool) -> Vec<String> {
        let keys = if is_stopping {
            "ending: the results so far will be printed"
        } else {
            "q or Ctrl-C: end, and print the results so far"
        };
        let style = TerminalStyle {
            width: u16::try_from(self.width).unwrap_or(u16::MAX),
            ..self.view.style
        };
        let mut lines: Vec<String> = style
            .wrap(&self.view.drawing_cpu, 0)
            .into_iter()
            .map(|line| self.one(line, TextRole::Dim))
            .collect();
        lines.push(self.one(keys, TextRole::Dim));
        lines
    }
}

/// The numbers beside a graph.
struct GraphFigures {
    /// The latest value, in words.
    latest: String,
    /// The value of a full bar; none for the greatest.
    top: Option<f64>,
    /// A value in words.
    scale: fn(f64) -> String,
}

/// A graph over time: name, value, and color slot.
type GraphRow<T> = (&'static str, fn(&T) -> f64, u8);

/// Graphs of the rates.
const RATES: [GraphRow<LiveInterval>; 2] =
    [("down", LiveInterval::down, 0), ("up", LiveInterval::up, 1)];

/// Graphs of what limits a sender.
const PARTS: [GraphRow<SenderLimits>; 4] = [
    ("network", |shares| shares.network, 2),
    ("receive window", |shares| shares.receive_window, 1),
    ("send buffer", |shares| shares.send_buffer, 4),
    ("application", |shares| shares.application, 3),
];

const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const EIGHTHS_ASCII: [char; 5] = [' ', '.', ':', '|', '#'];

/// Truncated to a width, with an ellipsis.
fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept + "…"
}

fn quantiles(trips: &RttHistogram) -> Option<String> {
    let [p50, p99, most] = [0.5, 0.99, 1.0].map(|share| trips.quantile_ns(share));
    Some(format!("p50 {}, p99 {}, max {}", time(p50?), time(p99?), time(most?)))
}

/// Two digits: the histogram's steps are 9 %.
fn time(ns: f64) -> String {
    Unit::Nanoseconds.format(ns, 2).to_string()
}

fn share(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use plumb_base::time::Span as Time;
    use plumb_net::measure::progress::TestProgress;
    use plumb_net::measure::progress::{AtomicRttHistogram, SenderLimitedTime};

    use super::*;

    fn history() -> LiveHistory {
        let mut history = LiveHistory::default();
        let tally = AtomicRttHistogram::default();
        for (phase, left) in [("idle", 6), ("up", 0)] {
            for at in 0..=15_u64 {
                (0..40).for_each(|probe| tally.record(80_000 + 2_000 * probe * (at + 1)));
                let us = at * 200_000;
                let waits = SenderLimitedTime {
                    senders: u32::from(phase == "up"),
                    busy_us: us,
                    receive_window_us: us / 4,
                    ..SenderLimitedTime::default()
                };
                let progress = TestProgress {
                    at_ns: us * 1_000,
                    planned_ns: 6_000_000_000,
                    up_bytes: if phase == "up" { at * at * 2_000_000 } else { 0 },
                    waits,
                    round_trips: tally.snapshot(),
                    ..TestProgress::default()
                };
                history.add_progress(phase, &progress, Time::from_secs(left));
            }
        }
        history
    }

    fn drawn(history: &LiveHistory, size: (usize, usize), style: TerminalStyle) -> Vec<String> {
        let view = LiveScreenContext {
            title: "netns:blue at 10.0.0.2".to_owned(),
            drawing_cpu: "drawn on CPU 1; measured on the others".to_owned(),
            style,
        };
        lines(history, &view, size, false)
    }

    const SIZES: [(usize, usize); 4] = [(40, 15), (80, 24), (200, 50), (20, 5)];

    #[test]
    fn every_size_shows_rate_waits_drawing_cpu_and_keys() {
        for size in &SIZES[..3] {
            let text = drawn(&history(), *size, TerminalStyle::plain(80)).join("\n");
            for part in ["2.32 Gb/s", "25 %", "CPU 1", "Ctrl-C", "█"] {
                assert!(text.contains(part), "{size:?}: no '{part}' in\n{text}");
            }
        }
    }

    #[test]
    fn a_direction_that_is_over_keeps_its_rate_and_graphs_have_scales() {
        let mut history = history();
        let progress = |at_ms: u64| TestProgress {
            at_ns: at_ms * 1_000_000,
            planned_ns: 6_000_000_000,
            ..TestProgress::default()
        };
        for at_ms in [0, 200, 400] {
            history.add_progress("idle", &progress(at_ms), Time::ZERO);
        }
        let screen = drawn(&history, (80, 24), TerminalStyle::plain(80));
        let text = screen.join("\n");
        assert!(text.contains("mean 1.20 Gb/s") && !text.contains("0 b/s"), "{text}");
        assert!(text.contains("2.29 Gb/s "), "the value of a full bar: {text}");
    }

    #[test]
    fn every_size_is_filled_and_never_exceeded() {
        let ascii = TerminalStyle { color: false, unicode: false, width: 80 };
        for (width, height) in SIZES {
            for history in [LiveHistory::default(), history()] {
                let screen = drawn(&history, (width, height), ascii);
                assert_eq!(screen.len(), height, "{screen:?}");
                let fits = |row: &String| row.is_ascii() && row.len() <= width;
                assert!(screen.iter().all(fits), "{width}: {screen:?}");
            }
        }
    }

    #[test]
    fn colors_follow_the_style() {
        for color in [false, true] {
            let style = TerminalStyle { color, ..TerminalStyle::plain(80) };
            let text = drawn(&history(), (80, 24), style).concat();
            assert_eq!(text.contains("\x1b[38;5;"), color);
        }
    }
}
