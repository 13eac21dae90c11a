//! Verdicts on published claims, and rank tables beside the published order, in a terminal.

use plumb_analysis::document::{ExpectationVerdict, RankTable, RunDocument};

use super::{TerminalPage, TerminalStyle, TextRole};
use crate::{name, verdict};

/// Claims, expectations and ranks in one line, with the command that tells them; empty without any.
pub fn in_short(document: &RunDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    let mut parts = Vec::new();
    if !document.claims.is_empty() {
        parts.push(verdict::claims_in_short(&document.claims));
    }
    match document.expectations.len() {
        0 => {}
        1 => parts.push("1 expectation".to_owned()),
        count => parts.push(format!("{count} expectations")),
    }
    if !document.ranks.is_empty() {
        parts.push("ranks".to_owned());
    }
    if !parts.is_empty() {
        let id = &document.run.id;
        let text = format!("{}: plumb show {id} --claims", name::capitalize(&parts.join(", ")));
        page.put(0, TextRole::Dim, &text);
    }
    page.out
}

/// One paragraph a claim: verdict, claim, effect, historical figure; then all of them counted.
pub fn claims(document: &RunDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    for claim in &document.claims {
        let verdict = style.paint(verdict_role(&claim.verdict), &claim.verdict.to_uppercase());
        page.out += &format!("{verdict}\n");
        let published = format!("Published: {}", verdict::published(claim));
        for text in [&claim.claim, &claim.effect, &published, &verdict::needs(claim)] {
            page.put(2, TextRole::Plain, text);
        }
    }
    if !document.claims.is_empty() {
        page.put(0, TextRole::Bold, &verdict::tally(document));
    }
    for open in verdict::undecided_statements(document) {
        page.put(0, TextRole::Plain, &open);
    }
    page.out
}

/// One paragraph an expectation: verdict, statement, effect, and what it rests on.
pub fn expectations(expectations: &[ExpectationVerdict], style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    if !expectations.is_empty() {
        page.put(0, TextRole::Bold, "Our expectations");
    }
    for expectation in expectations {
        let verdict =
            style.paint(verdict_role(&expectation.verdict), &expectation.verdict.to_uppercase());
        page.out += &format!("{verdict}\n");
        let basis = format!("Basis: {}", expectation.basis);
        for text in [&expectation.statement, &expectation.effect, &basis] {
            page.put(2, TextRole::Plain, text);
        }
    }
    page.out
}

/// Every rank table of a run: the published relations, then ranks at every size together.
pub fn all(tables: &[RankTable], style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    for ranks in tables.iter().filter(|ranks| ranks.published.is_some()) {
        page.put(0, TextRole::Bold, &name::capitalize(&verdict::rank_title(ranks)));
        put_relations(&mut page, ranks);
    }
    for group in tables.chunk_by(|a, b| verdict::matrix_title(a) == verdict::matrix_title(b)) {
        let title = format!("Ranks: {}", verdict::matrix_title(&group[0]));
        page.put(0, TextRole::Bold, &title);
        let matrix = verdict::rank_matrix(&group.iter().collect::<Vec<_>>());
        page.out += &matrix.render_folded(style);
    }
    page.out
}

/// One table: mechanisms by rank, and whether each published relation holds.
pub fn ranks(ranks: &RankTable, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    page.put(0, TextRole::Bold, &verdict::rank_title(ranks));
    page.out += &verdict::ranks(ranks).render(style);
    put_relations(&mut page, ranks);
    page.out
}

fn put_relations(page: &mut TerminalPage, ranks: &RankTable) {
    for (verdict, relation) in verdict::relations(ranks) {
        page.put(2, verdict_role(&verdict), &format!("{verdict}: {relation}"));
    }
}

pub(super) fn verdict_role(verdict: &str) -> TextRole {
    match verdict {
        "holds" => TextRole::Good,
        "does not hold" => TextRole::Bad,
        _ => TextRole::Warn,
    }
}
