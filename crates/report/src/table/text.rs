//! A table in a terminal: columns that do not fit are left out, least needed first.
//!
//! Left out: wrapping inside a cell; the widest text column is shortened with an ellipsis.

use super::TextTable;
use crate::terminal::{TerminalStyle, TextRole};

/// The table in at most `style.width` columns, with a rule under its heads.
pub fn render(table: &TextTable, style: TerminalStyle) -> String {
    render_with_roles(table, style, |_, _| TextRole::Plain)
}

/// The same, with an ink for the cell of each (row, column).
pub fn render_with_roles(
    table: &TextTable,
    style: TerminalStyle,
    ink: impl Fn(usize, usize) -> TextRole,
) -> String {
    let mut layout = ColumnLayout::fit(table, usize::from(style.width));
    layout.shorten(usize::from(style.width));
    let mut lines = Vec::new();
    let heads: Vec<String> = table.columns.iter().map(|column| column.head.clone()).collect();
    lines.push(style.paint(TextRole::Bold, &layout.line(table, &heads, style, |text, _| text)));
    let rule = if style.unicode { "─" } else { "-" };
    lines.push(style.paint(TextRole::Dim, &rule.repeat(layout.width())));
    for (index, row) in table.rows.iter().enumerate() {
        lines.push(
            layout.line(table, row, style, |text, column| style.paint(ink(index, column), &text)),
        );
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The table in as many parts as its columns need, each beginning with the first column: for
/// tables of which no column may be left out.
pub fn render_folded(table: &TextTable, style: TerminalStyle) -> String {
    let widths = widths(table);
    let (Some(first), room) = (widths.first().copied(), usize::from(style.width)) else {
        return String::new();
    };
    let mut parts: Vec<Vec<usize>> = vec![Vec::new()];
    let mut used = first;
    for (column, width) in widths.iter().enumerate().skip(1) {
        if used + GAP.len() + width > room && parts.last().is_some_and(|part| !part.is_empty()) {
            parts.push(Vec::new());
            used = first;
        }
        used += GAP.len() + width;
        if let Some(part) = parts.last_mut() {
            part.push(column);
        }
    }
    let part = |columns: &Vec<usize>| {
        let kept: Vec<usize> = [0].into_iter().chain(columns.iter().copied()).collect();
        render(&table.with_columns(&kept), style)
    };
    parts.iter().map(part).collect()
}

fn widths(table: &TextTable) -> Vec<usize> {
    (0..table.columns.len())
        .map(|column| {
            let cells = table.rows.iter().map(|row| row[column].chars().count());
            cells.chain([table.columns[column].head.chars().count()]).max().unwrap_or(0)
        })
        .collect()
}

/// Which columns are shown and how wide each is.
struct ColumnLayout {
    shown: Vec<(usize, usize)>,
}

impl ColumnLayout {
    fn fit(table: &TextTable, width: usize) -> Self {
        let mut shown: Vec<(usize, usize)> = widths(table).into_iter().enumerate().collect();
        while sum(&shown) > width {
            let Some((place, _)) = shown
                .iter()
                .enumerate()
                .filter(|(_, (column, _))| table.columns[*column].optional > 0)
                .max_by_key(|(place, (column, _))| (table.columns[*column].optional, *place))
            else {
                break;
            };
            shown.remove(place);
        }
        Self { shown }
    }

    fn shorten(&mut self, width: usize) {
        let excess = self.width().saturating_sub(width);
        if let Some((_, widest)) = self.shown.iter_mut().max_by_key(|(_, width)| *width) {
            // Never below eight characters, and never wider than it is.
            *widest = widest.saturating_sub(excess).max(8.min(*widest));
        }
    }

    fn width(&self) -> usize {
        sum(&self.shown)
    }

    fn line(
        &self,
        table: &TextTable,
        cells: &[String],
        style: TerminalStyle,
        paint: impl Fn(String, usize) -> String,
    ) -> String {
        let parts: Vec<String> = self
            .shown
            .iter()
            .map(|(column, width)| {
                let text = shortened(&style.to_charset(&cells[*column]), *width, style);
                let pad = " ".repeat(width.saturating_sub(text.chars().count()));
                let text = paint(text, *column);
                if table.columns[*column].numeric { pad + &text } else { text + &pad }
            })
            .collect();
        parts.join(GAP)
    }
}

fn sum(shown: &[(usize, usize)]) -> usize {
    let widths: usize = shown.iter().map(|(_, width)| width).sum();
    widths + GAP.len() * shown.len().saturating_sub(1)
}

fn shortened(text: &str, width: usize, style: TerminalStyle) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let ellipsis = if style.unicode { "…" } else { "~" };
    text.chars().take(width.saturating_sub(1)).collect::<String>() + ellipsis
}

const GAP: &str = "  ";

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TextTable {
        let mut table = TextTable::with_heads(&["mechanism", "#median", "#p99?", "#n??"]);
        table.push(["unix-stream-abstract", "5.20 µs", "9.13 µs", "120000"].map(str::to_owned));
        table.push(["pipe", "4.10 µs", "8.00 µs", "98000"].map(str::to_owned));
        table
    }

    #[test]
    fn the_least_needed_column_goes_first_and_nothing_exceeds_the_width() {
        for width in [20, 30, 40, 60, 80] {
            let text = render(&table(), TerminalStyle::plain(width));
            assert!(text.lines().all(|line| line.chars().count() <= usize::from(width)), "{text}");
            assert!(text.contains("median"), "{text}");
        }
        assert!(!render(&table(), TerminalStyle::plain(40)).contains("120000"));
        assert!(render(&table(), TerminalStyle::plain(80)).contains("120000"));
    }

    #[test]
    fn a_table_of_short_words_that_just_fits_is_not_widened() {
        let mut table = TextTable::with_heads(&["cell", "#median"]);
        table.push(["eventfd", "2.00 µs"].map(str::to_owned));
        let text = render(&table, TerminalStyle::plain(16));
        assert!(text.lines().all(|line| line.chars().count() <= 16), "{text}");
    }

    #[test]
    fn a_folded_table_loses_no_column() {
        let text = render_folded(&table(), TerminalStyle::plain(34));
        assert!(text.lines().all(|line| line.chars().count() <= 34), "{text}");
        for head in ["median", "p99", "n"] {
            assert!(text.contains(head), "{text}");
        }
        assert!(text.contains("120000"), "{text}");
        assert_eq!(text.matches("unix-stream-abstract").count(), 3, "{text}");
    }

    #[test]
    fn numbers_line_up_on_the_right() {
        insta::assert_snapshot!(render(&table(), TerminalStyle::plain(80)));
    }
}
