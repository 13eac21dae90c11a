//! Verdicts on published claims, and rank tables beside the published order, in a terminal.
//!
//! Left out: their words, which `crate::verdict` shares with the other renderers.

use plumb_analysis::document::{ClaimVerdict, ExpectationVerdict, RankTable};

use super::summary::push_wrapped;
use super::{TerminalStyle, TextRole};
use crate::{name, table, verdict};

/// One paragraph a claim: verdict, claim, effect, historical figure.
pub fn claims(claims: &[ClaimVerdict], style: TerminalStyle) -> String {
    let mut out = String::new();
    for claim in claims {
        let verdict = style.paint(verdict_role(&claim.verdict), &claim.verdict.to_uppercase());
        out += &format!("{verdict}\n");
        let published = format!("Published: {}", verdict::published(claim));
        for text in [&claim.claim, &claim.effect, &published, &verdict::needs(claim)] {
            push_wrapped(&mut out, text, TextRole::Plain, 2, style);
        }
    }
    if !claims.is_empty() {
        push_wrapped(&mut out, &verdict::tally(claims), TextRole::Bold, 0, style);
    }
    out
}

/// One paragraph an expectation: verdict, statement, effect, and what it rests on.
pub fn expectations(expectations: &[ExpectationVerdict], style: TerminalStyle) -> String {
    let mut out = String::new();
    if !expectations.is_empty() {
        push_wrapped(&mut out, "Our expectations", TextRole::Bold, 0, style);
    }
    for expectation in expectations {
        let verdict =
            style.paint(verdict_role(&expectation.verdict), &expectation.verdict.to_uppercase());
        out += &format!("{verdict}\n");
        let basis = format!("Basis: {}", expectation.basis);
        for text in [&expectation.statement, &expectation.effect, &basis] {
            push_wrapped(&mut out, text, TextRole::Plain, 2, style);
        }
    }
    out
}

/// Every rank table of a run: the published relations, then ranks at every size together.
pub fn all(tables: &[RankTable], style: TerminalStyle) -> String {
    let mut out = String::new();
    for ranks in tables.iter().filter(|ranks| ranks.published.is_some()) {
        push_wrapped(
            &mut out,
            &name::capitalize(&verdict::rank_title(ranks)),
            TextRole::Bold,
            0,
            style,
        );
        relations(&mut out, ranks, style);
    }
    for group in tables.chunk_by(|a, b| verdict::matrix_title(a) == verdict::matrix_title(b)) {
        let title = format!("Ranks: {}", verdict::matrix_title(&group[0]));
        push_wrapped(&mut out, &title, TextRole::Bold, 0, style);
        let matrix = verdict::rank_matrix(&group.iter().collect::<Vec<_>>());
        out += &table::text::render_folded(&matrix, style);
    }
    out
}

/// One table: mechanisms by rank, and whether each published relation holds.
pub fn ranks(ranks: &RankTable, style: TerminalStyle) -> String {
    let mut out = String::new();
    push_wrapped(&mut out, &verdict::rank_title(ranks), TextRole::Bold, 0, style);
    out += &table::text::render(&verdict::ranks(ranks), style);
    relations(&mut out, ranks, style);
    out
}

fn relations(out: &mut String, ranks: &RankTable, style: TerminalStyle) {
    for (verdict, relation) in verdict::relations(ranks) {
        push_wrapped(out, &format!("{verdict}: {relation}"), verdict_role(&verdict), 2, style);
    }
}

fn verdict_role(verdict: &str) -> TextRole {
    match verdict {
        "holds" => TextRole::Good,
        "does not hold" => TextRole::Bad,
        _ => TextRole::Warn,
    }
}
