//! Verdicts on published claims, and rank tables beside the published order, in a terminal.
//!
//! Left out: their words, which `crate::verdict` shares with the other renderers.

use plumb_analysis::document::ClaimVerdict;
use plumb_analysis::rank::RankTable;

use super::summary::put;
use super::{Ink, Style};
use crate::{name, table, verdict};

/// One paragraph a claim: verdict, claim, effect, historical figure.
pub fn claims(claims: &[ClaimVerdict], style: Style) -> String {
    let mut out = String::new();
    for claim in claims {
        let verdict = style.paint(verdict_ink(&claim.verdict), &claim.verdict.to_uppercase());
        out += &format!("{verdict}\n");
        let published = format!("Published: {}", verdict::published(claim));
        for text in [&claim.claim, &claim.effect, &published, &verdict::needs(claim)] {
            put(&mut out, text, Ink::Plain, 2, style);
        }
    }
    if !claims.is_empty() {
        put(&mut out, &verdict::tally(claims), Ink::Bold, 0, style);
    }
    out
}

/// Every rank table of a run: the published relations, then ranks at every size together.
pub fn all(tables: &[RankTable], style: Style) -> String {
    let mut out = String::new();
    for ranks in tables.iter().filter(|ranks| ranks.published.is_some()) {
        put(&mut out, &name::capital(&verdict::rank_title(ranks)), Ink::Bold, 0, style);
        relations(&mut out, ranks, style);
    }
    for group in tables.chunk_by(|a, b| verdict::matrix_title(a) == verdict::matrix_title(b)) {
        let title = format!("Ranks: {}", verdict::matrix_title(&group[0]));
        put(&mut out, &title, Ink::Bold, 0, style);
        let matrix = verdict::rank_matrix(&group.iter().collect::<Vec<_>>());
        out += &table::text::folded(&matrix, style);
    }
    out
}

/// One table: mechanisms by rank, and whether each published relation holds.
pub fn ranks(ranks: &RankTable, style: Style) -> String {
    let mut out = String::new();
    put(&mut out, &verdict::rank_title(ranks), Ink::Bold, 0, style);
    out += &table::text::render(&verdict::ranks(ranks), style);
    relations(&mut out, ranks, style);
    out
}

fn relations(out: &mut String, ranks: &RankTable, style: Style) {
    for (verdict, relation) in verdict::relations(ranks) {
        put(out, &format!("{verdict}: {relation}"), verdict_ink(&verdict), 2, style);
    }
}

fn verdict_ink(verdict: &str) -> Ink {
    match verdict {
        "holds" => Ink::Good,
        "does not hold" => Ink::Bad,
        _ => Ink::Warn,
    }
}
