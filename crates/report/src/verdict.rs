//! Claims and ranks as words and tables, for every renderer.
//!
//! Left out: how a verdict is reached, which analysis decides.

use std::collections::BTreeMap;

use plumb_analysis::document::{
    ClaimVerdict, DocumentStatements, ExpectationVerdict, PublishedNumber, RankTable, RunDocument,
};
use plumb_base::units::{Unit, format_bytes, format_size};

use crate::table::TextTable;
use crate::{name, value};

fn bytes(size: i64) -> String {
    u64::try_from(size).map_or_else(|_| size.to_string(), format_bytes)
}

/// One row a claim: verdict, claim, effect, published figure and its source.
pub fn claims(claims: &[ClaimVerdict]) -> TextTable {
    let mut table = TextTable::with_heads(&["verdict", "claim", "found here", "published"]);
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

/// `5 published claims (2 hold, 1 does not, 2 not decided)`.
pub fn claims_in_short(claims: &[ClaimVerdict]) -> String {
    let count = |verdict: &str| claims.iter().filter(|claim| claim.verdict == verdict).count();
    let (holds, fails) = (count("holds"), count("does not hold"));
    let verb = |count: usize, one: &'static str, many: &'static str| match count {
        1 => one,
        _ => many,
    };
    format!(
        "{} published claim{} ({holds} {}, {fails} {} not, {} not decided)",
        claims.len(),
        verb(claims.len(), "", "s"),
        verb(holds, "holds", "hold"),
        verb(fails, "does", "do"),
        claims.len() - holds - fails
    )
}

/// `Of 5 published claims, 2 hold here, 1 does not, 2 are not decided.`, and how many statements of their
/// documents are judged at all.
pub fn tally(document: &RunDocument) -> String {
    let claims = &document.claims;
    let count = |verdict: &str| claims.iter().filter(|claim| claim.verdict == verdict).count();
    let (holds, fails) = (count("holds"), count("does not hold"));
    let open = claims.len() - holds - fails;
    let word =
        |count: usize, one: &'static str, many: &'static str| if count == 1 { one } else { many };
    let mut text = format!(
        "Of {} published claims, {holds} {} here, {fails} {} not, {open} {} not decided.",
        claims.len(),
        word(holds, "holds", "hold"),
        word(fails, "does", "do"),
        word(open, "is", "are"),
    );
    for statements in &document.statements {
        let DocumentStatements { document, testable, encoded, judged, .. } = statements;
        let (elsewhere, nowhere) =
            (encoded.saturating_sub(*judged), testable.saturating_sub(*encoded));
        let elsewhere = match elsewhere {
            0 => String::new(),
            count => format!(", {count} by other experiments"),
        };
        text += &format!(
            " Of the {testable} testable statements of {document}, {judged} {} judged here{elsewhere}, \
             {nowhere} by no experiment yet.",
            if *judged == 1 { "is" } else { "are" },
        );
    }
    text
}

/// The experiments that are to decide what no experiment judges yet, a sentence a document.
pub fn undecided_statements(document: &RunDocument) -> Vec<String> {
    let of = |statements: &DocumentStatements| {
        let mut open: Vec<(usize, &str)> =
            statements.open.iter().map(|(name, ids)| (ids.len(), name.as_str())).collect();
        open.sort_by(|(a, first), (b, second)| b.cmp(a).then(first.cmp(second)));
        let told = open.iter().map(|(count, name)| match *name {
            "none" => format!("none planned ({count})"),
            name => format!("{name} ({count})"),
        });
        let told: Vec<String> = told.collect();
        let about = &statements.document;
        format!("Experiments to decide the other statements of {about}: {}.", told.join(", "))
    };
    document.statements.iter().filter(|found| !found.open.is_empty()).map(of).collect()
}

/// What it would take to decide, as a sentence; empty when decided.
pub fn needs(claim: &ClaimVerdict) -> String {
    if claim.needs.is_empty() { String::new() } else { format!("To decide: {}", claim.needs) }
}

/// `getpid(): then 25.0 ns, now 61.2 ns, 2.45 times slower`, where both are the same quantity.
fn then_and_now(then: &PublishedNumber) -> Option<String> {
    let (now, ratio) = (then.now?, then.ratio?);
    let unit = value::unit(&then.unit);
    Some(format!(
        "{}: then {}, now {}, {}",
        then.label,
        value::plain(unit, then.value),
        value::plain(unit, now),
        value::change(unit, ratio)
    ))
}

/// One row an expectation: verdict, statement, effect and what it rests on.
pub fn expectations(expectations: &[ExpectationVerdict]) -> TextTable {
    let mut table = TextTable::with_heads(&["verdict", "expectation", "found here", "basis"]);
    for expectation in expectations {
        table.push([
            expectation.verdict.clone(),
            expectation.statement.clone(),
            [expectation.effect.as_str(), &expectation.needs].join(" ").trim().to_owned(),
            expectation.basis.clone(),
        ]);
    }
    table
}

/// The historical figure with its source.
pub fn published(claim: &ClaimVerdict) -> String {
    let text = match &claim.historical {
        Some(figure) => format!("{figure} ({})", claim.source),
        None => claim.source.clone(),
    };
    let numbers: Vec<String> = claim.published.iter().filter_map(then_and_now).collect();
    if numbers.is_empty() { text } else { format!("{text}. {}", numbers.join("; ")) }
}

/// `latency, half a round trip, at 64 B, same CPU, blocking`.
pub fn rank_title(ranks: &RankTable) -> String {
    format!(
        "{} at {}, {}, {}",
        name::response(&ranks.response),
        u64::try_from(ranks.size).map_or_else(|_| ranks.size.to_string(), format_size),
        name::placement(&ranks.placement),
        name::wake(&ranks.wake)
    )
}

/// `latency, half a round trip, same CPU, blocking`: what the tables of one matrix share.
pub fn matrix_title(ranks: &RankTable) -> String {
    format!(
        "{}, {}, {}",
        name::response(&ranks.response),
        name::placement(&ranks.placement),
        name::wake(&ranks.wake)
    )
}

/// Rank, mechanism, median, cost relative to the best, and the published rank beside today's.
pub fn ranks(ranks: &RankTable) -> TextTable {
    let mut heads = vec!["#rank", "mechanism", "#median [95 %]", "#× best?"];
    if ranks.published.is_some() {
        heads.extend(["#published??", "#same ones today??"]);
    }
    let mut table = TextTable::with_heads(&heads);
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

/// Rank tables that differ only in size, as one: mechanisms down, sizes across.
pub fn rank_matrix(tables: &[&RankTable]) -> TextTable {
    let mut places: BTreeMap<&str, BTreeMap<i64, String>> = BTreeMap::new();
    let mut sums: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for ranks in tables {
        for row in &ranks.rows {
            let place = format!("{}{}", if row.tied { "=" } else { "" }, row.rank);
            places.entry(&row.mechanism).or_default().insert(ranks.size, place);
            let sum = sums.entry(&row.mechanism).or_default();
            *sum = (sum.0 + row.rank, sum.1 + 1);
        }
    }
    let mut sizes: Vec<i64> = tables.iter().map(|ranks| ranks.size).collect();
    sizes.sort_unstable();
    let mut table =
        TextTable::across("mechanism at size (B)", sizes.iter().map(|size| bytes(*size)));
    table.set_numbers_optional();
    let mut order: Vec<&str> = places.keys().copied().collect();
    let mean = |name: &str| sums.get(name).map_or(0.0, |(sum, n)| f64::from(*sum) / f64::from(*n));
    order.sort_by(|a, b| mean(a).total_cmp(&mean(b)));
    for mechanism in order {
        let cells =
            sizes.iter().map(|size| places[mechanism].get(size).cloned().unwrap_or_default());
        table.push([mechanism.to_owned()].into_iter().chain(cells));
    }
    table
}

/// The published mechanisms in the order they take here, `=` between those that share a place.
pub fn order_today(ranks: &RankTable) -> String {
    let mut text = String::new();
    let mut last = None;
    for row in ranks.rows.iter().filter(|row| row.published_rank.is_some()) {
        let tied = row.rank_among_published.is_some() && row.rank_among_published == last;
        let gap = match (text.is_empty(), tied) {
            (true, _) => "",
            (false, true) => " = ",
            (false, false) => ", ",
        };
        text += &format!("{gap}{}", row.mechanism);
        last = row.rank_among_published;
    }
    if text.is_empty() { "not measured".to_owned() } else { text }
}

/// Verdict and words of each published relation: `udp4 before tcp4, ratio 1.21 [1.15, 1.30]`.
pub fn relations(ranks: &RankTable) -> Vec<(String, String)> {
    let relations = ranks.published.iter().flat_map(|published| &published.relations);
    relations
        .map(|relation| {
            let ratio = relation.ratio.map_or_else(String::new, |ratio| {
                format!(", ratio {}", value::with_interval(Unit::Count, ratio, relation.ci95))
            });
            let text = format!("{} before {}{ratio}", relation.faster, relation.slower);
            (relation.verdict.clone(), text)
        })
        .collect()
}
