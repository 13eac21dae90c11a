//! Verdicts on published claims, and rank tables beside the published order, in a terminal.
//!
//! Left out: their words, which `crate::verdict` shares with the other renderers.

use plumb_analysis::document::ClaimVerdict;
use plumb_analysis::rank::RankTable;

use super::summary::put;
use super::{Ink, Style};
use crate::table;
use crate::verdict;

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

/// One table: mechanisms by rank, and whether each published relation holds.
pub fn ranks(ranks: &RankTable, style: Style) -> String {
    let mut out = String::new();
    put(&mut out, &verdict::rank_title(ranks), Ink::Bold, 0, style);
    out += &table::text::render(&verdict::ranks(ranks), style);
    for (verdict, relation) in verdict::relations(ranks) {
        put(&mut out, &format!("{verdict}: {relation}"), verdict_ink(&verdict), 2, style);
    }
    out
}

fn verdict_ink(verdict: &str) -> Ink {
    match verdict {
        "holds" => Ink::Good,
        "does not hold" => Ink::Bad,
        _ => Ink::Warn,
    }
}
