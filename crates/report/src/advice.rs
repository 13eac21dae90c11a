//! What `plumb advise` says: sentences, tables and the figure, in a terminal and as HTML.

use plumb_analysis::document::advise::{AdviceScore, AdviseDocument, AdvisedMode};
use plumb_base::units::Unit;

use crate::figure::{Axis, AxisScale, Figure, FigurePoint, Series};
use crate::html::element::{self, escape};
use crate::html::{part, whole};
use crate::table::TextTable;
use crate::terminal::{TerminalPage, TerminalStyle, TextRole};
use crate::value;

/// The way that others are compared with.
const WAITING: &str = "stop-and-wait";

/// Round-trip times of the table: every third of the curves', one a decade.
const EACH: usize = 3;

/// What to choose, with what numbers, and what would help most.
pub fn sentences(document: &AdviseDocument) -> Vec<String> {
    let mut said = Vec::new();
    let fastest = document.modes.iter().min_by(|a, b| a.time_ns.total_cmp(&b.time_ns));
    let waiting = document.modes.iter().find(|mode| mode.mode == WAITING);
    if let (Some(best), Some(waiting)) = (fastest, waiting) {
        let gain = time(waiting.time_ns - best.time_ns);
        said.push(format!(
            "The fastest way, {}, takes {}, {gain} less than one by one.",
            way(&best.mode),
            time(best.time_ns)
        ));
    }
    said.push(format!(
        "Batches of {} items; a window of {} messages. A message costs either end {} ({}).",
        value::plain(Unit::Count, document.batch),
        value::plain(Unit::Count, document.window),
        time(document.message_ns),
        document.costs,
    ));
    if let (Some(change), Some(best)) = (document.changes.first(), fastest) {
        let share = 1.0 - change.time_ns / best.time_ns;
        said.push(format!(
            "What would help most: {}, {} less.",
            change.change,
            value::plain(Unit::Share, share)
        ));
    }
    said
}

/// The ways, fastest first.
pub fn ways(document: &AdviseDocument) -> TextTable {
    let mut modes: Vec<&AdvisedMode> = document.modes.iter().collect();
    modes.sort_by(|a, b| a.time_ns.total_cmp(&b.time_ns));
    TextTable::of_rows(
        modes,
        &[
            ("way", &|mode: &AdvisedMode| way(&mode.mode).to_owned()),
            ("#predicted", &|mode| {
                value::with_interval(Unit::Nanoseconds, mode.time_ns, mode.interval)
            }),
            ("#twice as fast from an RTT of", &|mode| match mode.break_even_ns {
                Some(ns) if ns <= 0.0 => "any".to_owned(),
                Some(ns) => time(ns),
                None => "–".to_owned(),
            }),
        ],
    )
}

/// Each way's time by the round-trip time.
pub fn curves(document: &AdviseDocument) -> TextTable {
    let heads = document.curves.iter().map(|curve| format!("#{}", way(&curve.mode)));
    let heads: Vec<String> = ["#RTT".to_owned()].into_iter().chain(heads).collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut table = TextTable::with_heads(&heads);
    let rtts = document.curves.first().map_or(&[][..], |curve| &curve.points);
    for (at, [rtt, _]) in rtts.iter().enumerate().step_by(EACH) {
        let times = document.curves.iter().filter_map(|curve| curve.points.get(at));
        table.push([time(*rtt)].into_iter().chain(times.map(|[_, ns]| time(*ns))));
    }
    table
}

/// The same as a figure.
pub fn figure(document: &AdviseDocument) -> Figure {
    let axis = |label: &str| Axis::with_scale(label, "ns", AxisScale::Log10);
    let series = (0_u8..).zip(&document.curves).map(|(slot, curve)| {
        let points = curve.points.iter().map(|[rtt, ns]| FigurePoint::at(*rtt, *ns));
        Series::points(way(&curve.mode).to_owned(), slot, true, points)
    });
    Figure {
        id: "advice-by-round-trip".to_owned(),
        title: "Time of each way by the round-trip time".to_owned(),
        note: "Predicted, each with the window or the batch that suits the path".to_owned(),
        alt: sentences(document).first().cloned().unwrap_or_default(),
        x: axis("Round-trip time"),
        y: axis("Time until the last reply"),
        series: series.collect(),
        table: curves(document),
    }
}

/// What the predictions rest on.
pub fn scope(document: &AdviseDocument) -> &'static str {
    if document.modes.iter().any(|mode| mode.interval.is_some()) {
        "A model of round trips, link and processors; intervals hold 95 % of its errors in runs that were scored (--score)."
    } else {
        "A model of round trips, link and processors; without intervals until runs were scored (plumb advise --score RUN)."
    }
}

fn way(mode: &str) -> &str {
    if mode == WAITING { "one by one" } else { mode }
}

fn time(ns: f64) -> String {
    value::plain(Unit::Nanoseconds, ns)
}

/// The ways, fastest first, what to choose, and what would help; or the scores of the model.
pub fn in_terminal(document: &AdviseDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    if !document.scores.is_empty() {
        page.out += &scores(&document.scores).render_folded(style);
        return page.out;
    }
    for (line, role) in sentences(document)
        .iter()
        .zip([TextRole::Bold].iter().chain(std::iter::repeat(&TextRole::Plain)))
    {
        page.put(0, *role, line);
    }
    page.out += &ways(document).render_folded(style);
    page.out.push('\n');
    page.out += &curves(document).render_folded(style);
    page.put(0, TextRole::Dim, scope(document));
    page.out
}

fn scores(scores: &[AdviceScore]) -> TextTable {
    let share = |it: Option<f64>| value::optional(Unit::Share, it);
    TextTable::of_rows(
        scores,
        &[
            ("predictions", &|it: &AdviceScore| it.of.clone()),
            ("#number", &|it| it.score.predictions.to_string()),
            ("#median error", &|it| share(it.score.error_median)),
            ("#90th percentile", &|it| share(it.score.error_p90)),
        ],
    )
}

/// What to choose, the ways, and their times by the round-trip time.
pub fn page(document: &AdviseDocument, code: &str) -> String {
    let title = "How to send items over this path";
    let mut head = format!("<header><p class=\"brand\">plumb<h1>{title}</h1><ul class=\"answer\">");
    for sentence in sentences(document) {
        head += &format!("<li>{}", escape(&sentence));
    }
    head += "</ul></header>";
    let ways = element::table(&ways(document), "Ways of sending");
    let curves = format!("<div class=\"figures\">{}</div>", element::figure(&figure(document)));
    let body =
        [part("ways", "Ways of sending", ways), part("curves", "By round-trip time", curves)];
    let foot = format!("{} Made by plumb {}.", escape(scope(document)), escape(code));
    whole(code, title, &head, &body, &foot)
}
