//! The page of every statement of the documents.

use plumb_analysis::document::claims::{ClaimRow, ClaimsDocument};

use super::element::{self, escape, table};
use super::{PageSection, part, whole};
use crate::statement;

/// Every statement with its verdict, a section a document.
pub fn claims(document: &ClaimsDocument, code: &str) -> String {
    let title = "Published claims, and what holds of them here";
    let tally = table(&statement::tally(&document.tallies), "Statements by verdict");
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

pub(super) fn article(row: &ClaimRow) -> String {
    let mut html = format!(
        "<article id=\"{0}\">{1}<h3>{2}</h3><p class=\"dim\">{0} ({3}, {4})",
        escape(&row.id),
        element::verdict(&row.verdict),
        escape(&row.statement),
        escape(&row.author),
        escape(&row.place),
    );
    let figures = statement::figures(row);
    if !figures.is_empty() {
        html += "<ul>";
        for figure in figures {
            html += &format!("<li>{}", escape(&figure));
        }
        html += "</ul>";
    }
    for sentence in statement::sentences(row) {
        html += &format!("<p>{}", escape(&sentence));
    }
    html + "</article>"
}
