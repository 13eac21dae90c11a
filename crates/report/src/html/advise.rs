//! The page of `plumb advise`.

use plumb_analysis::document::advise::AdviseDocument;

use super::element::{self, escape, table};
use super::{part, whole};
use crate::advice;

/// What to choose, the ways, and their times by the round-trip time.
pub fn advise(document: &AdviseDocument, code: &str) -> String {
    let title = "How to send items over this path";
    let mut head = format!("<header><p class=\"brand\">plumb<h1>{title}</h1><ul class=\"answer\">");
    for sentence in advice::sentences(document) {
        head += &format!("<li>{}", escape(&sentence));
    }
    head += "</ul></header>";
    let ways = table(&advice::ways(document), "Ways of sending");
    let curves =
        format!("<div class=\"figures\">{}</div>", element::figure(&advice::figure(document)));
    let body =
        [part("ways", "Ways of sending", ways), part("curves", "By round-trip time", curves)];
    let foot = format!("{} Made by plumb {}.", escape(advice::scope(document)), escape(code));
    whole(code, title, &head, &body, &foot)
}
