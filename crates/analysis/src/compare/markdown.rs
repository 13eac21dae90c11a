//! A comparison as a Markdown table, for issues and pull requests.
//!
//! Left out: colours and widths, which the terminal's table has.

use plumb_base::units::{Unit, format_bytes, significant};

use crate::document::compare::{CellName, CompareDocument, ComparedCell, MedianEstimate};

/// The comparison as GitHub-flavoured Markdown: verdict first, then the table.
pub fn markdown(document: &CompareDocument) -> String {
    let tally = &document.tally;
    let mut lines = vec![
        format!("### {} against {}: {}", document.b.label, document.a.label, document.verdict),
        String::new(),
        format!(
            "{} faster, {} slower, {} equivalent, {} inconclusive; {}, margin ±{}%{}.",
            tally.faster,
            tally.slower,
            tally.equivalent,
            tally.inconclusive,
            document.pairing,
            significant(document.margin * 100.0, 2),
            document.geometric_mean.map_or_else(String::new, |mean| format!(
                ", geometric mean of the cost ratios {}",
                significant(mean, 3)
            )),
        ),
        String::new(),
    ];
    lines.extend(document.warnings.iter().map(|warning| format!("> {}", escape(warning))));
    if !document.warnings.is_empty() {
        lines.push(String::new());
    }
    lines.push("| cell | A | B | cost B/A | 95% interval | verdict |".to_owned());
    lines.push("|---|--:|--:|--:|--:|---|".to_owned());
    lines.extend(document.rows.iter().map(row));
    for (side, cells) in [("A", &document.only_in_a), ("B", &document.only_in_b)] {
        if !cells.is_empty() {
            lines.push(String::new());
            lines.push(format!("Only in {side}:"));
            lines.push(String::new());
            lines.extend(cells.iter().map(only));
        }
    }
    if !document.differences.is_empty() {
        lines.push(String::new());
        lines.push("| setting | A | B |".to_owned());
        lines.push("|---|---|---|".to_owned());
        lines.extend(document.differences.iter().map(|difference| {
            let text = |value: &Option<String>| escape(value.as_deref().unwrap_or("not recorded"));
            format!("| {} | {} | {} |", difference.key, text(&difference.a), text(&difference.b))
        }));
    }
    lines.push(String::new());
    lines.push(document.method.clone());
    lines.push(String::new());
    lines.join("\n")
}

fn row(row: &ComparedCell) -> String {
    let unit = Unit::from_name(&row.unit).unwrap_or(Unit::Count);
    let figure = |estimate: &MedianEstimate| {
        estimate.median.map_or_else(|| "–".to_owned(), |median| unit.format(median, 3).to_string())
    };
    let ratio = row.ratio.map_or_else(|| "–".to_owned(), |ratio| significant(ratio, 3));
    let interval = row.ci95.map_or_else(
        || "–".to_owned(),
        |[lo, hi]| format!("{}–{}", significant(lo, 3), significant(hi, 3)),
    );
    let verdict = match (row.verdict.as_str(), row.more_launches, row.more_runs) {
        ("inconclusive", Some(more), _) => format!("inconclusive; about {more} more launches"),
        ("inconclusive", None, Some(more)) => format!("inconclusive; about {more} more runs"),
        ("faster" | "slower", ..) => format!("**{}**", row.verdict),
        (verdict, ..) => verdict.to_owned(),
    };
    format!(
        "| {} | {} | {} | {ratio} | {interval} | {verdict} |",
        escape(&cell_name(&row.experiment, &row.factors, &row.response)),
        figure(&row.a),
        figure(&row.b),
    )
}

fn only(cell: &CellName) -> String {
    let name = cell_name(&cell.experiment, &cell.factors, &cell.response);
    format!("- {}: {}", escape(&name), escape(&cell.reason))
}

/// `latency.local tcp4 same-cpu 64 block`: the experiment and the levels that tell cells apart.
fn cell_name(
    experiment: &str,
    factors: &std::collections::BTreeMap<String, serde_json::Value>,
    response: &str,
) -> String {
    let mut words = vec![experiment.to_owned()];
    for (factor, level) in factors {
        words.push(match (factor.as_str(), level) {
            ("size", serde_json::Value::Number(n)) => {
                format!("size={}", n.as_u64().map_or_else(|| n.to_string(), format_bytes))
            }
            (_, serde_json::Value::String(text)) => format!("{factor}={text}"),
            (_, other) => format!("{factor}={other}"),
        });
    }
    words.push(format!("[{response}]"));
    words.join(" ")
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
