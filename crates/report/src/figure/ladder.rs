//! The ladder as a figure: one rung a boundary, medians with quartiles on a logarithmic scale.
//!
//! Placements share a rung and differ by mark. Left out: the sentence of each rung, which is text
//! beside the figure.

use plumb_analysis::ladder::Rung;
use plumb_base::units::Unit;

use super::{Axis, Figure, Marks, Point, Series};
use crate::table::Table;
use crate::{name, value};

/// The figure of a ladder; none when there are no rungs.
pub fn figure(rungs: &[Rung]) -> Option<Figure> {
    let names = labels(rungs);
    let mut series: Vec<Series> = Vec::new();
    for kind in kinds(rungs) {
        let at: Vec<Point> = rungs
            .iter()
            .filter(|rung| self::kind(rung) == kind)
            .filter_map(|rung| {
                let row = names.iter().position(|name| *name == rung.label)?;
                let quartiles = rung.q1.zip(rung.q3).map(|(q1, q3)| [q1, q3]);
                let y = row as f64;
                Some(Point { x: rung.median, y, x_interval: quartiles, y_interval: None })
            })
            .collect();
        let marks = Marks::Points { at, joined: false };
        series.push(Series { name: kind.words(), slot: kind.slot(), marks });
    }
    let figure = Figure {
        id: "ladder".to_owned(),
        title: "What it costs to cross each boundary".to_owned(),
        note: "Marks are medians; lines run from the first to the third quartile. Latency is half \
               a round trip."
            .to_owned(),
        alt: alt(rungs),
        x: Axis::measured("time", Unit::Nanoseconds.name()),
        y: Axis::names("", names),
        series,
        table: table(rungs),
    };
    (!figure.is_empty()).then_some(figure)
}

/// What a mark stands for: where both sides run, and whether the receiver spins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A clock or a kernel call: one process.
    Alone,
    /// Both processes on one CPU.
    SameCpu,
    /// On two CPUs, the receiver asleep until woken.
    OtherCpu,
    /// On two CPUs, the receiver spinning.
    Spinning,
    /// Placed by the scheduler.
    Scheduler,
}

impl Kind {
    /// Palette slot, and with it the mark.
    pub const fn slot(self) -> u8 {
        match self {
            Self::Alone => 6,
            Self::SameCpu => 0,
            Self::OtherCpu => 1,
            Self::Spinning => 2,
            Self::Scheduler => 3,
        }
    }

    /// Name in the key.
    pub fn words(self) -> String {
        match self {
            Self::Alone => "one process",
            Self::SameCpu => "same CPU",
            Self::OtherCpu => "other CPU",
            Self::Spinning => "other CPU, spinning",
            Self::Scheduler => "left to the scheduler",
        }
        .to_owned()
    }
}

/// What the mark of a rung stands for.
pub fn kind(rung: &Rung) -> Kind {
    match (rung.placement.as_deref(), rung.wake.as_deref()) {
        (None, _) => Kind::Alone,
        (Some("same-cpu"), _) => Kind::SameCpu,
        (Some("scheduler"), _) => Kind::Scheduler,
        (Some(_), Some("spin")) => Kind::Spinning,
        (Some(_), _) => Kind::OtherCpu,
    }
}

/// The kinds that occur, in order.
pub fn kinds(rungs: &[Rung]) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = rungs.iter().map(kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// The boundaries in the order of their first rung.
pub fn labels(rungs: &[Rung]) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for rung in rungs {
        if !labels.contains(&rung.label) {
            labels.push(rung.label.clone());
        }
    }
    labels
}

fn alt(rungs: &[Rung]) -> String {
    let parts: Vec<String> = rungs
        .iter()
        .map(|rung| {
            let median = value::estimate(Unit::Nanoseconds, rung.median, rung.ci95);
            format!("{} ({}) {median}", rung.label, kind(rung).words())
        })
        .collect();
    format!("Ladder of costs from cheapest to dearest boundary: {}.", parts.join(", "))
}

fn table(rungs: &[Rung]) -> Table {
    let mut table = Table::with_heads(&[
        "boundary",
        "placement",
        "#size",
        "#median [95 %]",
        "#q1",
        "#q3",
        "#CPU here",
        "#CPU peer",
        "#softirq",
    ]);
    let ns = Unit::Nanoseconds;
    for rung in rungs {
        let placement = rung.placement.as_deref().map_or("", name::placement);
        let wake = rung.wake.as_deref().filter(|wake| *wake != "block").map(name::wake);
        table.push([
            rung.label.clone(),
            [Some(placement), wake].into_iter().flatten().collect::<Vec<_>>().join(", "),
            rung.size.map_or_else(String::new, |size| format!("{size} B")),
            value::with_interval(ns, rung.median, rung.ci95),
            value::optional(ns, rung.q1),
            value::optional(ns, rung.q3),
            value::optional(ns, rung.cpu_local),
            value::optional(ns, rung.cpu_peer),
            value::optional(ns, rung.cpu_softirq),
        ]);
    }
    table
}
