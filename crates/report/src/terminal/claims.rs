//! Every statement of the documents with its verdict, as tables or as paragraphs.

use plumb_analysis::document::claims::{ClaimRow, ClaimsDocument};

use super::ranks::verdict_role;
use super::{TerminalPage, TerminalStyle, TextRole};
use crate::statement;

/// A table for each document: a row a statement; then all of them counted.
pub fn tables(document: &ClaimsDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    for rows in document.claims.chunk_by(|a, b| a.document == b.document) {
        page.put(0, TextRole::Bold, &rows[0].document);
        let verdict = |row: usize, column: usize| match column {
            1 => verdict_role(&rows[row].verdict),
            _ => TextRole::Plain,
        };
        page.out += &statement::table(rows).render_with_roles(style, verdict);
        page.out.push('\n');
    }
    page.out + &statement::tally(&document.tallies).render(style)
}

/// A paragraph for each statement.
pub fn paragraphs(document: &ClaimsDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    for row in &document.claims {
        put_row(&mut page, row);
    }
    page.out + &statement::tally(&document.tallies).render(style)
}

fn put_row(page: &mut TerminalPage, row: &ClaimRow) {
    page.put(0, TextRole::Bold, &row.id);
    page.put(2, verdict_role(&row.verdict), &row.verdict.to_uppercase());
    page.put(2, TextRole::Plain, &row.statement);
    page.put(2, TextRole::Dim, &format!("{}, {}", row.author, row.place));
    for text in statement::figures(row) {
        page.put(4, TextRole::Plain, &text);
    }
    for text in statement::sentences(row) {
        page.put(2, TextRole::Plain, &text);
    }
    page.out.push('\n');
}
