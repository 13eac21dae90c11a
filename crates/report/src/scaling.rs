//! `plumb scale`: sentences, tables and figures, in a terminal and as HTML; and the processor index of one machine.

use std::collections::BTreeMap;

use plumb_analysis::document::scale::{
    GrowthRate, IndexDocument, IndexedKernel, MemoryFigure, ScaleDocument, ScaleLine, ScaleMachine,
    TwoTermModel,
};
use plumb_base::units::{Unit, format_bytes, significant};

use crate::figure::{Axis, AxisScale, Figure, FigurePoint, SERIES_MAX, Series, slug};
use crate::html::element::{self, details, escape};
use crate::html::{PageSection, part, whole};
use crate::statement::article;
use crate::table::TextTable;
use crate::terminal::summary::verdict_role;
use crate::terminal::{TerminalPage, TerminalStyle, TextRole};
use crate::{statement, value};

/// What the page answers, in sentences.
pub fn sentences(document: &ScaleDocument) -> Vec<String> {
    let mut sentences = vec![format!(
        "{} machines; speed is the {}. A slope of 1 keeps up with processors; 0.5 means that a hundred times the speed \
         gives ten times as much.",
        document.machines.len(),
        document.speed_label
    )];
    if document.speed == "clock" {
        sentences.push(
            "A clock rate is less than speed: later processors do more in each cycle, so that slopes against it are \
             too steep. An index on each machine (plumb index) has no such bias."
                .to_owned(),
        );
    }
    let all = || document.lines.iter().filter(|line| line.class.is_empty());
    let lags = all().filter(|line| line.slope_ci95.is_some_and(|[_, hi]| hi < 1.0)).count();
    let keeps = all().filter(|line| line.slope_ci95.is_some_and(|[lo, _]| lo >= 1.0)).count();
    let fitted = all().filter(|line| line.slope.is_some()).count();
    if fitted > 0 {
        sentences.push(format!(
            "Of {fitted} quantities {lags} lag behind processors, {keeps} keep up, {} are open at 95 %.",
            fitted - lags - keeps
        ));
    }
    let better = document.models.iter().filter(|model| model.is_better).count();
    if !document.models.is_empty() {
        sentences.push(format!(
            "Memory beside the processor predicts machines that were left out better for {better} of {} quantities.",
            document.models.len()
        ));
    }
    let few = all().filter(|line| line.slope.is_none()).count();
    if few > 0 {
        sentences.push(format!(
            "{few} quantities have fewer than four machines: their points are shown, and no slope."
        ));
    }
    sentences
}

/// One row a line: quantity, machines, slope, and how far they reach.
pub fn lines<'a>(lines: impl IntoIterator<Item = &'a ScaleLine>) -> TextTable {
    let name = |line: &ScaleLine| match line.class.as_str() {
        "" => line.label.clone(),
        class => format!("{}, {class}", line.label),
    };
    TextTable::of_rows(
        lines,
        &[
            ("quantity", &name),
            ("#machines?", &|it| it.machines.to_string()),
            ("#slope", &|it| slope(it.slope, it.slope_ci95)),
            ("#Theil–Sen??", &|it| slope(it.theil_sen, it.theil_sen_ci95)),
            ("#speed?", &|it| it.speed_most.map_or_else(String::new, value::times)),
            ("#improvement?", &|it| it.improvement_most.map_or_else(String::new, value::times)),
        ],
    )
}

fn slope(slope: Option<f64>, ends: Option<[f64; 2]>) -> String {
    match (slope, ends) {
        (Some(slope), Some([lo, hi])) => format!("{slope:.2} [{lo:.2}, {hi:.2}]"),
        (Some(slope), None) => format!("{slope:.2}"),
        _ => "–".to_owned(),
    }
}

/// One row a model: exponents, and the errors on machines that were left out.
pub fn models(models: &[TwoTermModel]) -> TextTable {
    TextTable::of_rows(
        models,
        &[
            ("quantity", &|it: &TwoTermModel| it.label.clone()),
            ("#machines??", &|it| it.machines.to_string()),
            ("#processor", &|it| slope(Some(it.processor_slope), Some(it.processor_ci95))),
            ("#memory", &|it| slope(Some(it.memory_slope), Some(it.memory_ci95))),
            ("#error, one?", &|it| format!("×÷{}", significant(it.error_one, 3))),
            ("#two?", &|it| format!("×÷{}", significant(it.error_two, 3))),
            ("better", &|it| if it.is_better { "two" } else { "one" }.to_owned()),
        ],
    )
}

/// One row a rate of growth, with those that the document gives as lines.
pub fn growth(rates: &[GrowthRate]) -> TextTable {
    let mut table =
        TextTable::with_heads(&["quantity", "years?", "#doublings a year", "#months to double"]);
    for rate in rates {
        table.push([
            rate.label.clone(),
            format!("{:.0}–{:.0}", rate.from_year, rate.to_year),
            slope(Some(rate.doublings_a_year), Some(rate.doublings_ci95)),
            rate.doubling_months.map_or_else(|| "–".to_owned(), |months| significant(months, 2)),
        ]);
    }
    for (given, months) in GIVEN_RATES {
        let rate = significant(12.0 / months, 2);
        table.push([given.to_owned(), "given".to_owned(), rate, significant(months, 2)]);
    }
    table
}

/// Growth rates that are taken as given.
const GIVEN_RATES: [(&str, f64); 2] =
    [("Moore's law: processors", 18.0), ("Gilder's law: networks, slowest", 12.0)];

/// One row a machine.
pub fn machines(document: &ScaleDocument) -> TextTable {
    let year =
        |it: &ScaleMachine| it.year.map_or_else(String::new, |year| format!("{:.0}", year.floor()));
    TextTable::of_rows(
        &document.machines,
        &[
            ("machine", &|it: &ScaleMachine| it.name.clone()),
            ("class?", &|it| it.class.clone()),
            ("#year??", &year),
            ("#speed", &|it| speed(document, it)),
            ("#quantities?", &|it| it.values.len().to_string()),
            ("from???", &|it| it.basis.clone()),
        ],
    )
}

fn speed(document: &ScaleDocument, machine: &ScaleMachine) -> String {
    let Some(speed) = machine.speed.get(&document.speed) else { return "–".to_owned() };
    match document.speed.as_str() {
        "clock" => format!("{} MHz", significant(speed / 1e6, 4)),
        "integer" => format!("{} M/s", significant(speed / 1e6, 3)),
        _ => significant(*speed, 3),
    }
}

/// The answer, then slopes, models, growth, claims and what was noticed.
pub fn in_terminal(document: &ScaleDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    for sentence in sentences(document) {
        page.put(0, TextRole::Plain, &sentence);
    }
    let of_all = document.lines.iter().filter(|line| line.class.is_empty());
    put_table(&mut page, "Improvement against speed", &lines(of_all).render(style));
    let has_class = |line: &&ScaleLine| !line.class.is_empty() && line.slope.is_some();
    let by_class: Vec<_> = document.lines.iter().filter(has_class).collect();
    if !by_class.is_empty() {
        put_table(&mut page, "The same by class", &lines(by_class).render(style));
    }
    if !document.models.is_empty() {
        let title = "Processor and memory; error on machines left out, with one term and with two";
        put_table(&mut page, title, &models(&document.models).render(style));
    }
    put_table(&mut page, "Growth over the years", &growth(&document.growth).render(style));
    if !document.claims.is_empty() {
        let role = |row: usize, column: usize| match column {
            1 => verdict_role(&document.claims[row].verdict),
            _ => TextRole::Plain,
        };
        let claims = statement::table(&document.claims).render_with_roles(style, role);
        put_table(&mut page, "Published claims", &claims);
    }
    for note in &document.notes {
        page.put(0, TextRole::Dim, note);
    }
    page.out
}

fn put_table(page: &mut TerminalPage, title: &str, table: &str) {
    page.out.push('\n');
    page.put(0, TextRole::Bold, title);
    page.out += table;
}

/// Slopes, a figure for each quantity, models, growth, claims, and every machine.
pub fn page(document: &ScaleDocument, code: &str) -> String {
    let title = "Does communication keep up with processors?";
    let mut head = format!("<header><p class=\"brand\">plumb<h1>{title}</h1><ul class=\"answer\">");
    for sentence in sentences(document) {
        head += &format!("<li>{}", escape(&sentence));
    }
    head += "</ul></header>";
    let mut body = vec![slopes_section(document), models_section(document)];
    body.extend(claims_section(document));
    body.push(machines_section(document));
    whole(code, title, &head, &body, &format!("Made by plumb {}.", escape(code)))
}

fn slopes_section(document: &ScaleDocument) -> PageSection {
    let of_all = document.lines.iter().filter(|line| line.class.is_empty());
    let mut body = element::table(&lines(of_all), "Improvement against speed, all machines");
    body += "<div class=\"figures\">";
    for figure in figures(document) {
        body += &element::figure(&figure);
    }
    body += "</div>";
    let by_class: Vec<_> = document.lines.iter().filter(|line| !line.class.is_empty()).collect();
    if !by_class.is_empty() {
        let inner = element::table(&lines(by_class), "Improvement against speed by class");
        body += &details("By class of machine", &inner);
    }
    part("slopes", "Improvement against speed", body)
}

fn models_section(document: &ScaleDocument) -> PageSection {
    let mut body = String::new();
    if !document.models.is_empty() {
        body += "<p>Each machine is left out in turn and predicted by the others: by its processor alone, and by \
                 processor and memory. An error of ×÷2 is typically off by a factor of two.";
        body += &element::table(&models(&document.models), "Processor and memory as explanations");
    }
    body += &element::table(&growth(&document.growth), "Growth over the years");
    part("models", "What limits it, and how it grows", body)
}

fn claims_section(document: &ScaleDocument) -> Option<PageSection> {
    if document.claims.is_empty() {
        return None;
    }
    let articles: String = document.claims.iter().map(article).collect();
    let body = format!("<div class=\"claims\">{articles}</div>");
    Some(part("claims", "Published claims that machines decide", body))
}

fn machines_section(document: &ScaleDocument) -> PageSection {
    let mut body = element::table(&machines(document), "Machines");
    if !document.notes.is_empty() {
        body += "<ul>";
        for note in &document.notes {
            body += &format!("<li>{}", escape(note));
        }
        body += "</ul>";
    }
    part("machines", "Machines", body)
}

/// The index, its kernels, and memory.
pub fn index_in_terminal(document: &IndexDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    let index = value::with_interval(Unit::Count, document.index, document.ci95);
    page.put(0, TextRole::Bold, &format!("{}: {index}", document.version));
    let spread = format!(
        "Geometric standard deviation over kernels ×÷{}. The index of {} is 1.",
        value::plain(Unit::Count, document.geometric_sd),
        document.reference,
    );
    page.put(2, TextRole::Plain, &spread);
    let kernels = TextTable::of_rows(
        &document.kernels,
        &[
            ("kernel", &|kernel: &IndexedKernel| kernel.kernel.clone()),
            ("#one pass", &|kernel| {
                value::with_interval(Unit::Nanoseconds, kernel.time_ns, kernel.ci95)
            }),
            ("#against the reference", &|kernel| value::times(kernel.ratio)),
        ],
    );
    page.out += &kernels.render(style);
    if !document.memory.is_empty() {
        let memory = TextTable::of_rows(
            &document.memory,
            &[
                ("memory", &|figure: &MemoryFigure| figure.response.clone()),
                ("#over", &|figure| format!("{}B", format_bytes(figure.size))),
                ("#median", &|figure| {
                    value::with_interval(value::unit(&figure.unit), figure.value, figure.ci95)
                }),
            ],
        );
        page.out += &memory.render(style);
    }
    page.out
}

/// The class under which machines are drawn whose own is unknown or has few.
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
    of_all.map(|line| figure_of_line(document, line, &classes, &order)).collect()
}

fn figure_of_line(
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

    use super::*;
    use crate::figure::SeriesMarks;

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
