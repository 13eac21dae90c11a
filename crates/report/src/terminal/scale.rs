//! Many machines in a terminal.

use plumb_analysis::document::scale::{ScaleDocument, ScaleLine};

use super::ranks::verdict_role;
use super::{TerminalPage, TerminalStyle, TextRole};
use crate::{scaling, statement};

/// The answer, then slopes, models, growth, claims and what was noticed.
pub fn render(document: &ScaleDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    for sentence in scaling::sentences(document) {
        page.put(0, TextRole::Plain, &sentence);
    }
    let of_all = document.lines.iter().filter(|line| line.class.is_empty());
    put_table(&mut page, "Improvement against speed", &scaling::lines(of_all).render(style));
    let has_class = |line: &&ScaleLine| !line.class.is_empty() && line.slope.is_some();
    let by_class: Vec<_> = document.lines.iter().filter(has_class).collect();
    if !by_class.is_empty() {
        put_table(&mut page, "The same by class", &scaling::lines(by_class).render(style));
    }
    if !document.models.is_empty() {
        let title = "Processor and memory; error on machines left out, with one term and with two";
        put_table(&mut page, title, &scaling::models(&document.models).render(style));
    }
    put_table(&mut page, "Growth over the years", &scaling::growth(&document.growth).render(style));
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
