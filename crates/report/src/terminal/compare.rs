//! A comparison in a terminal: the verdict first, then one row a cell.
//!
//! Left out: how verdicts are reached, and the Markdown table, which is `crate::markdown`'s.

use plumb_analysis::document::compare::{CompareDocument, MedianEstimate};
use plumb_base::units::significant;

use super::summary::push_wrapped;
use super::{TerminalStyle, TextRole};
use crate::table::{self, TextTable};
use crate::{name, value};

/// Verdict, tally, warnings, table, and what only one side has.
pub fn render(document: &CompareDocument, style: TerminalStyle) -> String {
    let mut out = String::new();
    let ink = match document.verdict.as_str() {
        "slower" => TextRole::Bad,
        "inconclusive" => TextRole::Warn,
        _ => TextRole::Good,
    };
    push_wrapped(&mut out, &headline(document), ink, 0, style);
    for warning in &document.warnings {
        push_wrapped(&mut out, &format!("Warning: {warning}"), TextRole::Warn, 0, style);
    }
    out.push('\n');
    let inks: Vec<TextRole> = document.rows.iter().map(|row| verdict_role(&row.verdict)).collect();
    out += &table::text::render_with_roles(&table(document), style, |row, column| {
        if column == 1 { inks[row] } else { TextRole::Plain }
    });
    out.push('\n');
    push_wrapped(&mut out, &document.method, TextRole::Dim, 0, style);
    for (side, cells) in [(&document.a, &document.only_in_a), (&document.b, &document.only_in_b)] {
        if !cells.is_empty() {
            let plural = if cells.len() == 1 { "" } else { "s" };
            let cells = format!("{} cell{plural} measured in {} only.", cells.len(), side.label);
            push_wrapped(&mut out, &cells, TextRole::Dim, 0, style);
        }
    }
    for difference in &document.differences {
        let said = |value: &Option<String>| value.clone().unwrap_or_else(|| "not recorded".into());
        let (a, b) = (said(&difference.a), said(&difference.b));
        push_wrapped(
            &mut out,
            &format!("{} differs: {a} → {b}", difference.key),
            TextRole::Dim,
            0,
            style,
        );
    }
    out
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
    let mut table = TextTable::with_heads(&[
        "cell",
        "verdict",
        "#cost B/A [95 %]",
        "#A?",
        "#B?",
        "#launches???",
        "why????",
    ]);
    for row in &document.rows {
        let unit = value::unit(&row.unit);
        let median = |side: &MedianEstimate| {
            side.median.map_or_else(|| "–".to_owned(), |m| value::estimate(unit, m, side.ci95))
        };
        let digits = |ratio: f64| significant(ratio, 3);
        let ratio = match (row.ratio, row.ci95) {
            (Some(ratio), Some([low, high])) => {
                format!("{} [{}, {}]", digits(ratio), digits(low), digits(high))
            }
            (Some(ratio), None) => digits(ratio),
            _ => "–".to_owned(),
        };
        let verdict = match row.more_launches {
            Some(more) => format!("{} (+{more} launches)", row.verdict),
            None => row.verdict.clone(),
        };
        let all = row.factors.keys().cloned().collect();
        table.push([
            format!("{}: {}", row.response, name::cell(&row.factors, &all)),
            verdict,
            ratio,
            median(&row.a),
            median(&row.b),
            format!("{}+{}", row.a.launches, row.b.launches),
            row.why.clone(),
        ]);
    }
    table
}

fn verdict_role(verdict: &str) -> TextRole {
    match verdict {
        "slower" => TextRole::Bad,
        "faster" => TextRole::Good,
        "equivalent" => TextRole::Plain,
        _ => TextRole::Warn,
    }
}
