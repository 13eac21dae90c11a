//! The ladder as a figure: one rung a boundary, medians with quartiles on a logarithmic scale.
//!
//! Placements share a rung and differ by mark. Left out: the sentence of each rung, which is text
//! beside the figure.

use plumb_analysis::document::LadderRung;
use plumb_base::units::Unit;

use super::{Axis, Figure, FigurePoint, Series};
use crate::table::TextTable;
use crate::{name, value};

/// The figure of a ladder; none when there are no rungs.
pub fn figure(rungs: &[LadderRung]) -> Option<Figure> {
    let names = labels(rungs);
    let mut series: Vec<Series> = Vec::new();
    for kind in kinds(rungs) {
        let of_kind = rungs.iter().filter(|rung| self::kind(rung) == kind);
        let at = of_kind.filter_map(|rung| {
            let y = names.iter().position(|name| *name == rung.label)? as f64;
            let x_interval = rung.q1.zip(rung.q3).map(|(q1, q3)| [q1, q3]);
            Some(FigurePoint { x: rung.median, y, x_interval, y_interval: None })
        });
        series.push(Series::points(kind.legend(), kind.slot(), false, at));
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
pub enum RungKind {
    /// A clock or a kernel call: one process.
    SingleProcess,
    /// Both processes on one CPU.
    SameCpu,
    /// On two CPUs, the receiver asleep until woken.
    OtherCpu,
    /// On two CPUs, the receiver spinning.
    Spinning,
    /// Placed by the scheduler.
    Scheduler,
}

impl RungKind {
    /// Palette slot, and with it the mark; and the name in the key.
    const fn slot_and_legend(self) -> (u8, &'static str) {
        match self {
            Self::SingleProcess => (6, "one process"),
            Self::SameCpu => (0, "same CPU"),
            Self::OtherCpu => (1, "other CPU"),
            Self::Spinning => (2, "other CPU, spinning"),
            Self::Scheduler => (3, "left to the scheduler"),
        }
    }

    /// Palette slot, and with it the mark.
    pub const fn slot(self) -> u8 {
        self.slot_and_legend().0
    }

    /// Name in the key.
    pub fn legend(self) -> String {
        self.slot_and_legend().1.to_owned()
    }
}

/// What the mark of a rung stands for.
pub fn kind(rung: &LadderRung) -> RungKind {
    match (rung.placement.as_deref(), rung.wake.as_deref()) {
        (None, _) => RungKind::SingleProcess,
        (Some("same-cpu"), _) => RungKind::SameCpu,
        (Some("scheduler"), _) => RungKind::Scheduler,
        (Some(_), Some("spin")) => RungKind::Spinning,
        (Some(_), _) => RungKind::OtherCpu,
    }
}

/// The kinds that occur, in order.
pub fn kinds(rungs: &[LadderRung]) -> Vec<RungKind> {
    let mut kinds: Vec<RungKind> = rungs.iter().map(kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// The boundaries in the order of their first rung.
pub fn labels(rungs: &[LadderRung]) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for rung in rungs {
        if !labels.contains(&rung.label) {
            labels.push(rung.label.clone());
        }
    }
    labels
}

fn alt(rungs: &[LadderRung]) -> String {
    let parts: Vec<String> = rungs
        .iter()
        .map(|rung| {
            let median = value::estimate(Unit::Nanoseconds, rung.median, rung.ci95);
            format!("{} ({}) {median}", rung.label, kind(rung).legend())
        })
        .collect();
    format!("Ladder of costs from cheapest to dearest boundary: {}.", parts.join(", "))
}

fn table(rungs: &[LadderRung]) -> TextTable {
    let ns = |cost| value::optional(Unit::Nanoseconds, cost);
    let placement = |rung: &LadderRung| {
        let placement = rung.placement.as_deref().map_or("", name::placement);
        let wake = rung.wake.as_deref().filter(|wake| *wake != "block").map(name::wake);
        [Some(placement), wake].into_iter().flatten().collect::<Vec<_>>().join(", ")
    };
    TextTable::of_rows(
        rungs,
        &[
            ("boundary", &|rung| rung.label.clone()),
            ("placement", &placement),
            ("#size", &|rung| rung.size.map_or_else(String::new, |size| format!("{size} B"))),
            ("#median [95 %]", &|rung| {
                value::with_interval(Unit::Nanoseconds, rung.median, rung.ci95)
            }),
            ("#q1", &|rung| ns(rung.q1)),
            ("#q3", &|rung| ns(rung.q3)),
            ("#CPU here", &|rung| ns(rung.cpu_local)),
            ("#CPU peer", &|rung| ns(rung.cpu_peer)),
            ("#softirq", &|rung| ns(rung.cpu_softirq)),
        ],
    )
}
