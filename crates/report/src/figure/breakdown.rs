//! Where a round trip goes: one bar a mechanism, its parts end to end in the order of the path.
//!
//! Parts of one kind share a colour; what no probe accounts for is hatched and comes last. Left out:
//! the single parts, which the figure's table has.

use std::collections::BTreeMap;

use plumb_analysis::document::{BreakdownSummary, MeanEstimate};
use plumb_base::units::Unit;
use serde_json::Value;

use super::{Axis, AxisScale, Figure, Series, slug};
use crate::table::TextTable;
use crate::{name, value};

/// One figure a placement, nearest first.
pub fn figures(breakdowns: &[&BreakdownSummary]) -> Vec<Figure> {
    let mut panels: BTreeMap<(usize, &str), Vec<&BreakdownSummary>> = BTreeMap::new();
    for breakdown in breakdowns {
        let placement = placement(breakdown);
        let key = (name::placement_rank(placement), placement);
        panels.entry(key).or_default().push(breakdown);
    }
    panels.iter().map(|((_, placement), panel)| figure(name::placement(placement), panel)).collect()
}

fn figure(placement: &str, breakdowns: &[&BreakdownSummary]) -> Figure {
    let names: Vec<String> = breakdowns
        .iter()
        .map(|entry| format!("{}: {}", label(entry), value::plain(NS, entry.sum)))
        .collect();
    let mut series: BTreeMap<PartCategory, Vec<[f64; 3]>> = BTreeMap::new();
    for (row, entry) in breakdowns.iter().enumerate() {
        let mut at = 0.0;
        let parts = entry.parts.iter().map(|part| (PartCategory::of(&part.part), part.mean));
        for (kind, mean) in parts.chain([(PartCategory::Unexplained, entry.unexplained.mean)]) {
            if mean > 0.0 {
                series.entry(kind).or_default().push([row as f64, at, at + mean]);
                at += mean;
            }
        }
    }
    let series = series.into_iter().map(|(kind, segments)| {
        let (slot, legend) = kind.slot_and_legend();
        Series::stack(legend.to_owned(), slot, segments, kind == PartCategory::Unexplained)
    });
    let sentences: Vec<String> = breakdowns.iter().map(|entry| sentence(entry)).collect();
    let title = match placement {
        "" => "Where a round trip goes".to_owned(),
        placement => format!("Where a round trip goes: {placement}"),
    };
    Figure {
        id: slug(&["breakdown", &title]),
        title,
        note:
            "Means of the parts, both ways together, in the order of the message's path; they sum \
               to the round trip beside the name. Without the slowest fiftieth of the round trips, \
               and corrected for the cost of the probes. Hatched: what no probe accounts for."
                .to_owned(),
        alt: sentences.join(" "),
        x: Axis::with_scale("round trip", NS.name(), AxisScale::Linear),
        y: Axis::names("", names),
        series: series.collect(),
        table: table(breakdowns),
    }
}

/// Where both sides ran; empty where that is not known.
pub fn placement(entry: &BreakdownSummary) -> &str {
    entry.factors.get("placement").and_then(Value::as_str).unwrap_or("")
}

/// The same, nearest placement first.
pub fn ordered<'a>(
    breakdowns: impl Iterator<Item = &'a BreakdownSummary>,
) -> Vec<&'a BreakdownSummary> {
    let mut ordered: Vec<&BreakdownSummary> = breakdowns.collect();
    ordered.sort_by_key(|entry| name::placement_rank(placement(entry)));
    ordered
}

/// The largest part, what is unexplained and what the probes cost, in one sentence.
pub fn sentence(entry: &BreakdownSummary) -> String {
    let place = placement(entry);
    let round_trip = value::plain(NS, entry.sum);
    let mut text = format!("{} ({}): of {round_trip}", label(entry), name::placement(place));
    let mut parts: Vec<_> = entry.parts.iter().collect();
    parts.sort_by(|a, b| b.mean.total_cmp(&a.mean));
    let told: Vec<String> = parts
        .iter()
        .take(3)
        .map(|part| format!("{} {:.0}%", name::part(&part.part), part.share * 100.0))
        .collect();
    text += &format!(", {}", told.join(", "));
    text += &format!(", unexplained {}", percent(&entry.unexplained_share));
    match &entry.probe_cost {
        Some(cost) => format!("{text}; the probes cost {}.", percent(cost)),
        None => format!("{text}."),
    }
}

/// A share with its interval: `4.1% [3.8%, 4.4%]`.
fn percent(share: &MeanEstimate) -> String {
    let one = |share: f64| format!("{:.1}%", share * 100.0);
    match share.ci95 {
        Some([low, high]) => format!("{} [{}, {}]", one(share.mean), one(low), one(high)),
        None => one(share.mean),
    }
}

/// Parts down, round trips across; sums, wholes and the cost of probing below.
pub fn table(breakdowns: &[&BreakdownSummary]) -> TextTable {
    let mut table = TextTable::across("part", breakdowns.iter().map(|entry| label(entry)));
    let mut row = |head: &str, cell: &dyn Fn(&BreakdownSummary) -> String| {
        let cells = breakdowns.iter().map(|entry| cell(entry));
        table.push([head.to_owned()].into_iter().chain(cells));
    };
    let (mut small, mut large): (Vec<String>, Vec<String>) =
        order(breakdowns).into_iter().partition(|slug| is_small(breakdowns, slug));
    if small.len() == 1 {
        large.append(&mut small);
    }
    for slug in large {
        row(&name::part(&slug), &|entry| {
            let part = entry.parts.iter().find(|part| part.part == slug);
            part.map_or_else(String::new, |part| value::with_interval(NS, part.mean, part.ci95))
        });
    }
    if !small.is_empty() {
        row(&format!("{} smaller parts", small.len()), &|entry| {
            let parts = entry.parts.iter().filter(|part| small.contains(&part.part));
            value::plain(NS, parts.map(|part| part.mean).sum())
        });
    }
    row("unexplained", &|entry| mean_text(Some(&entry.unexplained)));
    row("sum", &|entry| value::plain(NS, entry.sum));
    row("round trip, probes off", &|entry| mean_text(entry.whole.as_ref()));
    row("round trip, probes on", &|entry| mean_text(entry.probed.as_ref()));
    row("unexplained share", &|entry| percent(&entry.unexplained_share));
    row("cost of the probes", &|entry| {
        entry.probe_cost.as_ref().map_or_else(|| "–".to_owned(), percent)
    });
    table
}

/// Whether a part is nowhere a hundredth of the round trip.
fn is_small(breakdowns: &[&BreakdownSummary], slug: &str) -> bool {
    let parts = breakdowns.iter().flat_map(|entry| &entry.parts);
    parts.filter(|part| part.part == slug).all(|part| part.share < 0.01)
}

/// Every part of any round trip, in the order of the path: each after what precedes it somewhere.
fn order(breakdowns: &[&BreakdownSummary]) -> Vec<String> {
    let mut order: Vec<String> = Vec::new();
    for entry in breakdowns {
        let mut place = 0;
        for part in &entry.parts {
            let known = order.iter().position(|known| *known == part.part);
            let at = known.unwrap_or(place);
            if known.is_none() {
                order.insert(at, part.part.clone());
            }
            place = at + 1;
        }
    }
    order
}

fn mean_text(mean: Option<&MeanEstimate>) -> String {
    mean.map_or_else(|| "–".to_owned(), |mean| value::with_interval(NS, mean.mean, mean.ci95))
}

/// What crosses, and how much at a time.
pub fn label(entry: &BreakdownSummary) -> String {
    name::levels(&entry.factors, &["mechanism", "stack", "device", "size", "frame"])
}

const NS: Unit = Unit::Nanoseconds;

/// Parts that share a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PartCategory {
    Calls,
    Send,
    Device,
    Receive,
    Wake,
    Switch,
    Copy,
    User,
    Unexplained,
}

impl PartCategory {
    /// The kind of a part; parts that are not known here are somebody's time in user space.
    fn of(part: &str) -> Self {
        match part {
            "call-entry" | "call-exit" | "send-returns" | "receive-call" => Self::Calls,
            "send-path" => Self::Send,
            "device" => Self::Device,
            "receive-path" => Self::Receive,
            part if part.contains("wake") => Self::Wake,
            "context-switch" | "idle" => Self::Switch,
            part if part.contains("sleep") => Self::Switch,
            "copy-and-return" => Self::Copy,
            part if part.contains("calls") && part.starts_with("peer") => Self::Calls,
            _ => Self::User,
        }
    }

    /// Palette slot, and name in the key.
    const fn slot_and_legend(self) -> (u8, &'static str) {
        match self {
            Self::Calls => (0, "entering and leaving calls"),
            Self::Send => (1, "send path"),
            Self::Device => (7, "device"),
            Self::Receive => (2, "receive path"),
            Self::Wake => (3, "wake-up"),
            Self::Switch => (4, "going to sleep, idling, switching"),
            Self::Copy => (5, "copy and return"),
            Self::User => (6, "user space and other tasks"),
            Self::Unexplained => (6, "unexplained"),
        }
    }
}
