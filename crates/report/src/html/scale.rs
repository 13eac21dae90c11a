//! The page of many machines.

use plumb_analysis::document::scale::ScaleDocument;

use super::claims::article;
use super::element::{self, details, escape, table};
use super::{PageSection, part, whole};
use crate::{figure, scaling};

/// Slopes, a figure for each quantity, models, growth, claims, and every machine.
pub fn scale(document: &ScaleDocument, code: &str) -> String {
    let title = "Does communication keep up with processors?";
    let mut head = format!("<header><p class=\"brand\">plumb<h1>{title}</h1><ul class=\"answer\">");
    for sentence in scaling::sentences(document) {
        head += &format!("<li>{}", escape(&sentence));
    }
    head += "</ul></header>";
    let mut body = vec![slopes(document), models(document)];
    body.extend(claims(document));
    body.push(machines(document));
    whole(code, title, &head, &body, &format!("Made by plumb {}.", escape(code)))
}

fn slopes(document: &ScaleDocument) -> PageSection {
    let of_all = document.lines.iter().filter(|line| line.class.is_empty());
    let mut body = table(&scaling::lines(of_all), "Improvement against speed, all machines");
    body += "<div class=\"figures\">";
    for figure in figure::machines::figures(document) {
        body += &element::figure(&figure);
    }
    body += "</div>";
    let by_class: Vec<_> = document.lines.iter().filter(|line| !line.class.is_empty()).collect();
    if !by_class.is_empty() {
        let inner = table(&scaling::lines(by_class), "Improvement against speed by class");
        body += &details("By class of machine", &inner);
    }
    part("slopes", "Improvement against speed", body)
}

fn models(document: &ScaleDocument) -> PageSection {
    let mut body = String::new();
    if !document.models.is_empty() {
        body += "<p>Each machine is left out in turn and predicted by the others: by its processor alone, and by \
                 processor and memory. An error of ×÷2 is typically off by a factor of two.";
        body += &table(&scaling::models(&document.models), "Processor and memory as explanations");
    }
    body += &table(&scaling::growth(&document.growth), "Growth over the years");
    part("models", "What limits it, and how it grows", body)
}

fn claims(document: &ScaleDocument) -> Option<PageSection> {
    if document.claims.is_empty() {
        return None;
    }
    let articles: String = document.claims.iter().map(article).collect();
    let body = format!("<div class=\"claims\">{articles}</div>");
    Some(part("claims", "Published claims that machines decide", body))
}

fn machines(document: &ScaleDocument) -> PageSection {
    let mut body = table(&scaling::machines(document), "Machines");
    if !document.notes.is_empty() {
        body += "<ul>";
        for note in &document.notes {
            body += &format!("<li>{}", escape(note));
        }
        body += "</ul>";
    }
    part("machines", "Machines", body)
}
