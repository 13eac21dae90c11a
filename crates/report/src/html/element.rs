//! The elements of the page: escaped text, tables, figures, details.
//!
//! Left out: which of them a page has.

use crate::figure::{Figure, svg};
use crate::table::TextTable;

/// Text that cannot become mark-up, in content or in a quoted attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A table that scrolls in its own box when the page is narrow.
///
/// Cells are aligned as numbers unless their column is text; the first column heads its row.
pub(crate) fn table(table: &TextTable, caption: &str) -> String {
    // Most tables end in a column of words: said once, not in every row.
    let ends_in_words = table.columns.len() > 1 && table.columns.last().is_some_and(|c| !c.numeric);
    let mut html = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table{1}>\
         <caption>{0}</caption><thead><tr>",
        escape(caption),
        if ends_in_words { " class=w" } else { "" }
    );
    let words = |index: usize| !table.columns[index].numeric;
    let is_marked = |index| words(index) && !(ends_in_words && index + 1 == table.columns.len());
    for (index, column) in table.columns.iter().enumerate() {
        let class = if is_marked(index) { " class=t" } else { "" };
        html += &format!("<th scope=col{class}>{}", escape(&column.head));
    }
    html += "<tbody>";
    for row in &table.rows {
        html += "<tr>";
        for (index, cell) in row.iter().take(table.columns.len()).enumerate() {
            html += match index {
                0 => "<th scope=row>",
                index if is_marked(index) => "<td class=t>",
                _ => "<td>",
            };
            html += &escape(cell);
        }
    }
    html + "</table></div>"
}

/// Something folded away under its title.
pub(crate) fn details(title: &str, inner: &str) -> String {
    format!("<details><summary>{}</summary>{inner}</details>", escape(title))
}

/// A figure with its title, key, note and data.
pub(crate) fn figure(figure: &Figure) -> String {
    let mut html = format!(
        "<figure id=\"{}\"><h3>{}</h3><div class=\"scroll plot\" tabindex=\"0\" role=\"region\" \
         aria-label=\"{}\">{}</div>",
        figure.id,
        escape(&figure.title),
        escape(&figure.title),
        svg::inline(figure)
    );
    let key = svg::key(figure);
    if !key.is_empty() {
        html += "<ul class=\"key\">";
        for (name, swatch) in key {
            html += &format!("<li>{swatch}{}", escape(&name));
        }
        html += "</ul>";
    }
    html += &format!("<figcaption>{}</figcaption>", escape(&figure.note));
    html += &details("Data of this figure", &table(&figure.table, &figure.title));
    html + "</figure>"
}

/// A verdict as a badge: its word says it, its colour only repeats it.
pub(crate) fn verdict(verdict: &str) -> String {
    let class = match verdict {
        "holds" => "good",
        "does not hold" => "bad",
        _ => "warn",
    };
    format!("<span class=\"badge {class}\">{}</span>", escape(verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_cannot_break_out_of_its_table() {
        let mut hostile = TextTable::with_heads(&["name", "#value"]);
        hostile.push(["</table><script>".to_owned(), "\"'&".to_owned()]);
        let html = table(&hostile, "\"><img src=x>");
        assert!(!html.contains("<script>") && !html.contains("<img"));
        assert!(html.contains("&quot;&#39;&amp;"));
    }
}
