//! A comparison in a terminal: the verdict first, then one row a cell.
//!
//! Left out: how verdicts are reached, and the Markdown table, which is `crate::markdown`'s.

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
    for warning in &document.warnings {
        page.put(0, TextRole::Warn, &format!("Warning: {warning}"));
    }
    page.out.push('\n');
    let inks: Vec<TextRole> = document.rows.iter().map(|row| verdict_role(&row.verdict)).collect();
    page.out += &table(document).render_with_roles(style, |row, column| {
        if column == 1 { inks[row] } else { TextRole::Plain }
    });
    page.out.push('\n');
    page.put(0, TextRole::Dim, &document.method);
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

/// `B against A: slower. 1 slower, 2 faster, 40 equivalent within ±2%, 3 inconclusive; unpaired.`
pub fn headline(document: &CompareDocument) -> String {
    let tally = document.tally;
    let mean = document.geometric_mean.map_or_else(String::new, |mean| {
        format!(" Geometric mean of the cost ratios: {}.", value::times(mean))
    });
    format!(
        "{} against {}: {}. {} slower, {} faster, {} equivalent within ±{}%, {} inconclusive; \
         {}.{mean}",
        document.b.label,
        document.a.label,
        document.verdict,
        tally.slower,
        tally.faster,
        tally.equivalent,
        significant(document.margin * 100.0, 2),
        tally.inconclusive,
        document.pairing,
    )
}

/// One row a cell: verdict, ratio with interval, both medians.
pub fn table(document: &CompareDocument) -> TextTable {
    let median = |unit: &str, side: &MedianEstimate| {
        value::optional_estimate(value::unit(unit), side.median, side.ci95)
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
        (Some(more), _) => format!("{} (+{more} launches)", row.verdict),
        (None, Some(1)) => format!("{} (+1 run)", row.verdict),
        (None, Some(more)) => format!("{} (+{more} runs)", row.verdict),
        (None, None) => row.verdict.clone(),
    };
    TextTable::of_rows(
        &document.rows,
        &[
            ("cell", &|row| {
                let all = row.factors.keys().cloned().collect();
                format!("{}: {}", row.response, name::cell(&row.factors, &all))
            }),
            ("verdict", &verdict),
            ("#cost B/A [95 %]", &ratio),
            ("#A?", &|row| median(&row.unit, &row.a)),
            ("#B?", &|row| median(&row.unit, &row.b)),
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
