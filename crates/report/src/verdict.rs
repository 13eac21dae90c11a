//! Claims and ranks as words and tables, for every renderer.
//!
//! Left out: how a verdict is reached, which analysis decides.

use plumb_analysis::document::ClaimVerdict;
use plumb_analysis::rank::RankTable;
use plumb_base::units::format_bytes;

use crate::table::Table;
use crate::{name, value};

/// One row a claim: verdict, claim, effect, published figure and its source.
pub fn claims(claims: &[ClaimVerdict]) -> Table {
    let mut table = Table::with_heads(&["verdict", "claim", "found here", "published"]);
    for claim in claims {
        table.push([
            claim.verdict.clone(),
            claim.claim.clone(),
            [claim.effect.as_str(), &needs(claim)].join(" ").trim().to_owned(),
            published(claim),
        ]);
    }
    table
}

/// `2 of 5 published claims hold here, 1 does not, 2 are not decided.`
pub fn tally(claims: &[ClaimVerdict]) -> String {
    let count = |verdict: &str| claims.iter().filter(|claim| claim.verdict == verdict).count();
    let (holds, fails) = (count("holds"), count("does not hold"));
    format!(
        "Of {} published claims, {holds} hold here, {fails} {} not, {} {} not decided.",
        claims.len(),
        if fails == 1 { "does" } else { "do" },
        claims.len() - holds - fails,
        if claims.len() - holds - fails == 1 { "is" } else { "are" },
    )
}

/// What it would take to decide, as a sentence; empty when decided.
pub fn needs(claim: &ClaimVerdict) -> String {
    if claim.needs.is_empty() { String::new() } else { format!("To decide: {}", claim.needs) }
}

/// The historical figure with its source.
pub fn published(claim: &ClaimVerdict) -> String {
    match &claim.historical {
        Some(figure) => format!("{figure} ({})", claim.source),
        None => claim.source.clone(),
    }
}

/// `latency, half a round trip, at 64 B, same CPU, blocking`.
pub fn rank_title(ranks: &RankTable) -> String {
    let size = u64::try_from(ranks.size).map_or_else(|_| ranks.size.to_string(), format_bytes);
    format!(
        "{} at {size} B, {}, {}",
        name::response(&ranks.response),
        name::placement(&ranks.placement),
        name::wake(&ranks.wake)
    )
}

/// Rank, mechanism, median, cost relative to the best, and the published rank beside today's.
pub fn ranks(ranks: &RankTable) -> Table {
    let mut heads = vec!["#rank", "mechanism", "#median [95 %]", "#× best?"];
    if ranks.published.is_some() {
        heads.extend(["#published??", "#same ones today??"]);
    }
    let mut table = Table::with_heads(&heads);
    let unit = value::unit(&ranks.unit);
    let place = |rank: Option<u32>| rank.map_or_else(String::new, |rank| rank.to_string());
    for row in &ranks.rows {
        table.push([
            format!("{}{}", if row.tied { "=" } else { "" }, row.rank),
            row.mechanism.clone(),
            value::with_interval(unit, row.median, row.ci95),
            value::times(row.ratio_to_best),
            place(row.published_rank),
            place(row.rank_among_published),
        ]);
    }
    table
}

/// One sentence a published relation: `udp4 before tcp4: holds (1.21× [1.15, 1.30])`.
pub fn relations(ranks: &RankTable) -> Vec<(String, String)> {
    let relations = ranks.published.iter().flat_map(|published| &published.relations);
    relations
        .map(|relation| {
            let ratio = match (relation.ratio, relation.ci95) {
                (Some(ratio), Some([low, high])) => {
                    let digits = |bound| plumb_base::units::significant(bound, 3);
                    format!(" ({} [{}, {}])", value::times(ratio), digits(low), digits(high))
                }
                (Some(ratio), None) => format!(" ({})", value::times(ratio)),
                _ => String::new(),
            };
            let text = format!("{} before {}{ratio}", relation.faster, relation.slower);
            (relation.verdict.clone(), text)
        })
        .collect()
}
