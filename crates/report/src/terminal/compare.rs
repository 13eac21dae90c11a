//! A comparison in a terminal: the verdict first, then one row a cell.

use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::document::compare::{CompareDocument, ComparedCell, MedianEstimate};
use plumb_base::units::significant;

use super::{TerminalPage, TerminalStyle, TextRole};
use crate::table::TextTable;
use crate::{name, value};

/// Verdict, tally, warnings, table, and what only one side has.
pub fn render(document: &CompareDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    let ink = match document.verdict.as_str() {
        "slower" => TextRole::Bad,
        "inconclusive" => TextRole::Warn,
        _ => TextRole::Good,
    };
    page.put(0, ink, &headline(document));
    // The headline says all where nothing was compared.
    let warnings = document.warnings.iter().filter(|_| !document.rows.is_empty());
    for warning in warnings {
        page.put(0, TextRole::Warn, &format!("Warning: {warning}"));
    }
    page.out.push('\n');
    if !document.rows.is_empty() {
        let inks: Vec<TextRole> =
            rows(document).iter().map(|row| verdict_role(&row.verdict)).collect();
        page.out += &table(document).render_with_roles(style, |row, column| {
            if column == 1 { inks[row] } else { TextRole::Plain }
        });
        page.out.push('\n');
        page.put(0, TextRole::Dim, METHOD);
    }
    for (side, cells) in [(&document.a, &document.only_in_a), (&document.b, &document.only_in_b)] {
        if !cells.is_empty() {
            let plural = if cells.len() == 1 { "" } else { "s" };
            let cells = format!("{} cell{plural} measured in {} only.", cells.len(), side.label);
            page.put(0, TextRole::Dim, &cells);
        }
    }
    for difference in &document.differences {
        let said = |value: &Option<String>| value.clone().unwrap_or_else(|| "not recorded".into());
        let (a, b) = (said(&difference.a), said(&difference.b));
        page.put(0, TextRole::Dim, &format!("{} differs: {a} → {b}", difference.key));
    }
    page.out
}

/// The method in a line; JSON and Markdown have it in full.
const METHOD: &str = "Costs of B over A: above 1 costs more, of rates too. How a verdict is reached: plumb help method.";

/// `B against A: slower. Of 46 cells 1 is slower, the worst 1.82× (pipe), 2 are faster, …`
pub fn headline(document: &CompareDocument) -> String {
    let tally = document.tally;
    let names = cell_names(document);
    let rows = document.rows.iter().zip(&names);
    let worst = rows
        .filter(|(row, _)| row.verdict == "slower")
        .max_by(|(a, _), (b, _)| a.ratio.unwrap_or(0.0).total_cmp(&b.ratio.unwrap_or(0.0)));
    let worst = worst.and_then(|(row, name)| Some((row.ratio?, name)));
    let worst = worst.map_or_else(String::new, |(ratio, name)| {
        format!(", the worst by {} ({name})", value::times(ratio))
    });
    let mean = document.geometric_mean.map_or_else(String::new, |mean| {
        format!(" Geometric mean of the cost ratios: {}.", value::times(mean))
    });
    let be = |count: u64| if count == 1 { "is" } else { "are" };
    if document.rows.is_empty() {
        let (b, a) = (&document.b.label, &document.a.label);
        return format!(
            "{b} against {a}: nothing compared, as they have no measured cell in common."
        );
    }
    if let ([row], [name]) = (document.rows.as_slice(), names.as_slice()) {
        let ratio = row
            .ratio
            .map_or_else(String::new, |ratio| format!(", {} the cost", value::times(ratio)));
        let (b, a, pairing) = (&document.b.label, &document.a.label, &document.pairing);
        return format!(
            "{b} against {a}: {}. {name}: {}{ratio}; {pairing}.",
            document.verdict, row.verdict
        );
    }
    format!(
        "{} against {}: {}. Of {} cells {} {} slower{worst}, {} {} faster, {} equivalent within ±{}%, {} \
         inconclusive; {}.{mean}",
        document.b.label,
        document.a.label,
        document.verdict,
        document.rows.len(),
        tally.slower,
        be(tally.slower),
        tally.faster,
        be(tally.faster),
        tally.equivalent,
        significant(document.margin * 100.0, 2),
        tally.inconclusive,
        document.pairing,
    )
}

/// The rows, those that are called slower first, then faster ones, then those that are not decided.
fn rows(document: &CompareDocument) -> Vec<&ComparedCell> {
    let rank = |row: &ComparedCell| match row.verdict.as_str() {
        "slower" => 0,
        "faster" => 1,
        "inconclusive" => 2,
        _ => 3,
    };
    let mut rows: Vec<&ComparedCell> = document.rows.iter().collect();
    rows.sort_by_key(|row| rank(row));
    rows
}

/// The name of each row: what differs between them.
fn cell_names(document: &CompareDocument) -> Vec<String> {
    let rows = &document.rows;
    let several =
        |of: fn(&ComparedCell) -> &str| rows.iter().map(of).collect::<BTreeSet<_>>().len() > 1;
    let (experiments, responses) =
        (several(|row| row.experiment.as_str()), several(|row| row.response.as_str()));
    let mut seen: BTreeMap<&str, &serde_json::Value> = BTreeMap::new();
    let mut varying = BTreeSet::new();
    for (factor, level) in rows.iter().flat_map(|row| &row.factors) {
        if *seen.entry(factor).or_insert(level) != level {
            varying.insert(factor.clone());
        }
    }
    let name = |row: &ComparedCell| {
        let known = row.factors.keys().any(|factor| varying.contains(factor));
        let levels = known.then(|| name::cell(&row.factors, &varying));
        let what = match (experiments, responses) {
            (true, _) => Some(format!("{} {}", row.experiment, row.response)),
            (false, true) => Some(row.response.clone()),
            (false, false) => None,
        };
        let parts: Vec<String> = what.into_iter().chain(levels).collect();
        if parts.is_empty() { row.response.clone() } else { parts.join(": ") }
    };
    rows.iter().map(name).collect()
}

/// One row a cell: verdict, ratio with interval, both medians.
pub fn table(document: &CompareDocument) -> TextTable {
    let median = |row: &ComparedCell, side: &MedianEstimate| {
        let unit = value::printed_unit(&row.unit, &row.factors);
        match (side.median, side.ci95) {
            (Some(median), Some(ci95)) if value::is_too_noisy(unit, median, Some(ci95)) => {
                value::range(unit, ci95)
            }
            (median, ci95) => value::optional_estimate(unit, median, ci95),
        }
    };
    let digits = |ratio: f64| significant(ratio, 3);
    let ratio = |row: &ComparedCell| match (row.ratio, row.ci95) {
        (Some(ratio), Some([low, high])) => {
            format!("{} [{}, {}]", digits(ratio), digits(low), digits(high))
        }
        (Some(ratio), None) => digits(ratio),
        _ => "–".to_owned(),
    };
    let verdict = |row: &ComparedCell| match (row.more_launches, row.more_runs) {
        (Some(1), _) => format!("{} (+1 launch)", row.verdict),
        (Some(more), _) => format!("{} (+{more} launches)", row.verdict),
        (None, Some(1)) => format!("{} (+1 run)", row.verdict),
        (None, Some(more)) => format!("{} (+{more} runs)", row.verdict),
        (None, None) => row.verdict.clone(),
    };
    let names = cell_names(document);
    let name = |row: &ComparedCell| {
        let place = document.rows.iter().position(|other| std::ptr::eq(other, row));
        place.map_or_else(String::new, |place| names[place].clone())
    };
    TextTable::of_rows(
        rows(document),
        &[
            ("cell", &name),
            ("verdict", &verdict),
            ("#cost B/A [95 %]", &ratio),
            ("#A?", &|row| median(row, &row.a)),
            ("#B?", &|row| median(row, &row.b)),
            ("#launches???", &|row| format!("{}+{}", row.a.launches, row.b.launches)),
            ("why????", &|row| row.why.clone()),
        ],
    )
}

fn verdict_role(verdict: &str) -> TextRole {
    match verdict {
        "slower" => TextRole::Bad,
        "faster" => TextRole::Good,
        "equivalent" => TextRole::Plain,
        _ => TextRole::Warn,
    }
}
