//! One quantity of many machines against their speed, on logarithmic axes.

use std::collections::BTreeMap;

use plumb_analysis::document::scale::{ScaleDocument, ScaleLine};

use super::{Axis, AxisScale, Figure, FigurePoint, SERIES_MAX, Series, slug};
use crate::table::TextTable;
use crate::value;

/// A figure for each quantity: a point a machine, a colour a class, the line of all, and what would keep up.
pub fn figures(document: &ScaleDocument) -> Vec<Figure> {
    let classes: BTreeMap<&str, &str> = document
        .machines
        .iter()
        .map(|machine| (machine.name.as_str(), machine.class.as_str()))
        .collect();
    let of_all = document.lines.iter().filter(|line| line.class.is_empty());
    of_all.map(|line| figure(document, line, &classes)).collect()
}

fn figure(document: &ScaleDocument, line: &ScaleLine, classes: &BTreeMap<&str, &str>) -> Figure {
    let mut by_class: BTreeMap<&str, Vec<[f64; 2]>> = BTreeMap::new();
    for (name, point) in line.names.iter().zip(&line.points) {
        let class = classes.get(name.as_str()).copied().filter(|class| !class.is_empty());
        by_class.entry(class.unwrap_or("unknown")).or_default().push(*point);
    }
    let mut series = Vec::new();
    let fastest = line.speed_most.unwrap_or(1.0).max(1.0);
    for (slot, (class, points)) in (0_u8..).zip(by_class).take(SERIES_MAX) {
        let points = points.iter().map(|[x, y]| FigurePoint::at(*x, *y));
        series.push(Series::points(class.to_owned(), slot, false, points));
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
