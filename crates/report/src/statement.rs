//! Statements of the documents with their verdicts: words and tables, in a terminal and as HTML.

use plumb_analysis::document::list::{ClaimFigure, ClaimRow, ClaimTally, ClaimsDocument};
use plumb_base::units::{Unit, significant};

use crate::html::element::{self, escape};
use crate::html::{PageSection, part, whole};
use crate::table::TextTable;
use crate::terminal::summary::verdict_role;
use crate::terminal::{TerminalPage, TerminalStyle, TextRole};
use crate::value;

/// One row a statement: id without its document, verdict, the first number then and here, and their ratio.
pub fn table(rows: &[ClaimRow]) -> TextTable {
    let mut table = TextTable::with_heads(&["statement", "verdict", "#then?", "#here", "#ratio??"]);
    for row in rows {
        let figure = chosen(row);
        let here = figure.and_then(|figure| Some(number(&figure.unit, figure.here?)));
        let estimate = || row.estimate.map(|estimate| significant(estimate, 3));
        table.push([
            row.id.strip_prefix(&format!("{}.", row.document)).unwrap_or(&row.id).to_owned(),
            row.verdict.clone(),
            figure.map_or_else(String::new, |figure| number(&figure.unit, figure.value)),
            here.or_else(estimate).unwrap_or_default(),
            figure.and_then(|figure| figure.ratio).map_or_else(String::new, value::times),
        ]);
    }
    table
}

/// The number that a statement is shown with: the first that was measured here, else the first.
fn chosen(row: &ClaimRow) -> Option<&ClaimFigure> {
    row.figures.iter().find(|figure| figure.here.is_some()).or_else(|| row.figures.first())
}

/// The statements of each document, counted by verdict.
pub fn tally(tallies: &[ClaimTally]) -> TextTable {
    let heads =
        ["document", "#claims", "#hold", "#do not", "#not decided", "#not measured", "#no judge"];
    let mut table = TextTable::with_heads(&heads);
    let mut sum = ClaimTally { document: "all".to_owned(), ..ClaimTally::default() };
    let mut push = |tally: &ClaimTally| {
        let ClaimTally { claims, hold, do_not_hold, not_decided, not_measured, no_judge, .. } =
            tally;
        let counts = [claims, hold, do_not_hold, not_decided, not_measured, no_judge];
        table.push([tally.document.clone()].into_iter().chain(counts.map(u64::to_string)));
    };
    for tally in tallies {
        push(tally);
        sum.claims += tally.claims;
        sum.hold += tally.hold;
        sum.do_not_hold += tally.do_not_hold;
        sum.not_decided += tally.not_decided;
        sum.not_measured += tally.not_measured;
        sum.no_judge += tally.no_judge;
    }
    if tallies.len() > 1 {
        push(&sum);
    }
    table
}

/// Each number of a statement: `least share: then 12%, here 9%, 0.75×`.
pub fn figures(row: &ClaimRow) -> Vec<String> {
    let text = |figure: &ClaimFigure| {
        let then = number(&figure.unit, figure.value);
        let here = figure.here.map_or_else(String::new, |here| {
            let ratio =
                figure.ratio.map_or_else(String::new, |by| format!(", {}", value::times(by)));
            format!(", here {}{ratio}", number(&figure.unit, here))
        });
        format!("{}: then {then}{here}", figure.name)
    };
    row.figures.iter().map(text).collect()
}

/// What was found here and where, what would decide, and what the judge does not test.
pub fn sentences(row: &ClaimRow) -> Vec<String> {
    let mut sentences = Vec::new();
    if !row.effect.is_empty() {
        let day = row.measured.get(..10).map_or_else(String::new, |day| format!(" of {day}"));
        sentences.push(format!("Here: {} [{}{day}]", row.effect, row.basis));
    }
    if !row.to_decide.is_empty() {
        sentences.push(format!("To decide: {}", row.to_decide));
    }
    if !row.flaw.is_empty() {
        sentences.push(format!("Limits of the judge: {}", row.flaw));
    }
    sentences
}

/// A number in a stored unit or in a document's own.
fn number(unit: &str, number: f64) -> String {
    match unit {
        "ratio" => value::times(number),
        "Hz" if number >= 1e6 => format!("{} MHz", significant(number / 1e6, 4)),
        "Hz" | "cycles" => format!("{} {unit}", significant(number, 3)),
        "count" if number.fract() == 0.0 => format!("{number}"),
        "count" => significant(number, 3),
        unit => value::plain(Unit::from_name(unit).unwrap_or(Unit::Count), number),
    }
}

/// A table for each document: a row a statement; then all of them counted.
pub fn in_terminal(document: &ClaimsDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    for rows in document.claims.chunk_by(|a, b| a.document == b.document) {
        page.put(0, TextRole::Bold, &rows[0].document);
        let verdict = |row: usize, column: usize| match column {
            1 => verdict_role(&rows[row].verdict),
            _ => TextRole::Plain,
        };
        page.out += &table(rows).render_with_roles(style, verdict);
        page.out.push('\n');
    }
    page.out + &tally(&document.tallies).render(style)
}

/// A paragraph for each statement.
pub fn paragraphs(document: &ClaimsDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    for row in &document.claims {
        put_row(&mut page, row);
    }
    page.out + &tally(&document.tallies).render(style)
}

fn put_row(page: &mut TerminalPage, row: &ClaimRow) {
    page.put(0, TextRole::Bold, &row.id);
    page.put(2, verdict_role(&row.verdict), &row.verdict.to_uppercase());
    page.put(2, TextRole::Plain, &row.statement);
    page.put(2, TextRole::Dim, &format!("{}, {}", row.author, row.place));
    for text in figures(row) {
        page.put(4, TextRole::Plain, &text);
    }
    for text in sentences(row) {
        page.put(2, TextRole::Plain, &text);
    }
    page.out.push('\n');
}

/// Every statement with its verdict, a section a document.
pub fn page(document: &ClaimsDocument, code: &str) -> String {
    let title = "Published claims, and what holds of them here";
    let tally = element::table(&tally(&document.tallies), "Statements by verdict");
    let head = format!("<header><p class=\"brand\">plumb<h1>{title}</h1>{tally}</header>");
    let documents = document.claims.chunk_by(|a, b| a.document == b.document);
    let body: Vec<PageSection> = documents.map(section).collect();
    whole(code, title, &head, &body, &format!("Made by plumb {}.", escape(code)))
}

fn section(rows: &[ClaimRow]) -> PageSection {
    let name = &rows[0].document;
    let mut body = String::from("<div class=\"claims\">");
    body.extend(rows.iter().map(article));
    part(name, name, body + "</div>")
}

pub(crate) fn article(row: &ClaimRow) -> String {
    let mut html = format!(
        "<article id=\"{0}\">{1}<h3>{2}</h3><p class=\"dim\">{0} ({3}, {4})",
        escape(&row.id),
        element::verdict(&row.verdict),
        escape(&row.statement),
        escape(&row.author),
        escape(&row.place),
    );
    let figures = figures(row);
    if !figures.is_empty() {
        html += "<ul>";
        for figure in figures {
            html += &format!("<li>{}", escape(&figure));
        }
        html += "</ul>";
    }
    for sentence in sentences(row) {
        html += &format!("<p>{}", escape(&sentence));
    }
    html + "</article>"
}
