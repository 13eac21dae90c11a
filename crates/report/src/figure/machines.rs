//! One quantity of many machines against their speed, on logarithmic axes.

use std::collections::BTreeMap;

use plumb_analysis::document::scale::{ScaleDocument, ScaleLine};

use super::{Axis, AxisScale, Figure, FigurePoint, SERIES_MAX, Series, slug};
use crate::table::TextTable;
use crate::value;

/// What machines are drawn as whose class is unknown or has few.
const OTHER: &str = "other";

/// A figure for each quantity: a point a machine, a colour a class, the line of all, and what would keep up.
pub fn figures(document: &ScaleDocument) -> Vec<Figure> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for machine in document.machines.iter().filter(|machine| !machine.class.is_empty()) {
        *counts.entry(&machine.class).or_default() += 1;
    }
    let mut common: Vec<&str> = counts.keys().copied().collect();
    common.sort_by_key(|class| std::cmp::Reverse(counts[class]));
    common.truncate(SERIES_MAX - 1);
    let classes: BTreeMap<&str, &str> = document
        .machines
        .iter()
        .filter(|machine| common.contains(&machine.class.as_str()))
        .map(|machine| (machine.name.as_str(), machine.class.as_str()))
        .collect();
    // The same colour in every figure.
    let order: Vec<&str> = common.into_iter().chain([OTHER]).collect();
    let of_all = document.lines.iter().filter(|line| line.class.is_empty());
    of_all.map(|line| figure(document, line, &classes, &order)).collect()
}

fn figure(
    document: &ScaleDocument,
    line: &ScaleLine,
    classes: &BTreeMap<&str, &str>,
    order: &[&str],
) -> Figure {
    let mut by_class: BTreeMap<&str, Vec<[f64; 2]>> = BTreeMap::new();
    for (name, point) in line.names.iter().zip(&line.points) {
        let class = classes.get(name.as_str()).copied().unwrap_or(OTHER);
        by_class.entry(class).or_default().push(*point);
    }
    let mut series = Vec::new();
    let fastest = line.speed_most.unwrap_or(1.0).max(1.0);
    for (slot, class) in (0_u8..).zip(order) {
        let Some(points) = by_class.get(class) else { continue };
        let points = points.iter().map(|[x, y]| FigurePoint::at(*x, *y));
        series.push(Series::points((*class).to_owned(), slot, false, points));
    }
    let mut note = "The dashed line from corner to corner keeps up with processors".to_owned();
    series.push(Series::line(6, vec![[1.0, 1.0], [fastest, fastest]]));
    if let (Some(slope), Some(intercept)) = (line.slope, line.intercept) {
        let at = |speed: f64| [speed, (intercept + slope * speed.ln()).exp()];
        series.push(Series::line(1, vec![at(1.0), at(fastest)]));
        note += &format!("; the other is fitted to all machines, with slope {slope:.2}");
    }
    let axis = |label: &str| Axis::with_scale(label, "count", AxisScale::Log10);
    let mut table = TextTable::with_heads(&["machine", "#speed", "#improvement"]);
    for (name, [speed, improvement]) in line.names.iter().zip(&line.points) {
        table.push([name.clone(), value::times(*speed), value::times(*improvement)]);
    }
    Figure {
        id: slug(&["machines", &line.metric]),
        title: line.label.clone(),
        note: format!("{note}. Both are multiples of {}.", line.base),
        alt: format!(
            "{} of {} machines against the {}",
            line.label, line.machines, document.speed_label
        ),
        x: axis(&format!("{}, times the slowest", document.speed_label)),
        y: axis("improvement, times"),
        series,
        table,
    }
}

#[cfg(test)]
mod tests {
    use plumb_analysis::document::scale::ScaleMachine;

    use super::super::SeriesMarks;
    use super::*;

    #[test]
    fn every_machine_is_drawn_however_many_classes_there_are() {
        let machine = |number: u32| ScaleMachine {
            name: format!("m{number}"),
            class: format!("class {}", number % 12),
            ..ScaleMachine::default()
        };
        let document = ScaleDocument {
            machines: (0..30).map(machine).collect(),
            lines: vec![ScaleLine {
                names: (0..30).map(|number| format!("m{number}")).collect(),
                points: (1..=30).map(|at| [f64::from(at); 2]).collect(),
                ..ScaleLine::default()
            }],
            ..ScaleDocument::default()
        };
        let figures = figures(&document);
        let points = figures[0].series.iter().filter_map(|series| match &series.marks {
            SeriesMarks::Points { at, .. } => Some(at.len()),
            _ => None,
        });
        let drawn: Vec<usize> = points.collect();
        assert_eq!(drawn.iter().sum::<usize>(), 30);
        assert_eq!(drawn.len(), SERIES_MAX);
    }
}
