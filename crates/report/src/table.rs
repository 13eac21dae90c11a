//! A table of finished text: what every figure carries, in Markdown and in a terminal.
//!
//! A cell is already rounded to what its interval supports. In a terminal, columns that do not fit are left out, least
//! needed first; where even those that must stay do not fit, each row takes several lines, so that no name is cut.

use crate::printable;
use crate::terminal::{TerminalPage, TerminalStyle, TextRole};

/// Named columns and rows of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextTable {
    /// Heads, in order.
    pub columns: Vec<TableColumn>,
    /// Rows, each with one text for each column.
    pub rows: Vec<Vec<String>>,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableColumn {
    /// Its head.
    pub head: String,
    /// Whether it holds numbers, which line up on the right.
    pub numeric: bool,
    /// What to leave out first where there is little room: 0 stays, higher goes earlier.
    pub optional: u8,
}

/// The head of a column, and what gives its text for a row.
pub type ColumnText<'a, T> = (&'a str, &'a dyn Fn(&T) -> String);

impl TextTable {
    /// An empty table with these heads: `#head` is numeric, a trailing `?` makes it optional,
    /// `??` more so.
    pub fn with_heads(heads: &[&str]) -> Self {
        Self {
            columns: heads.iter().map(|head| TableColumn::parse(head)).collect(),
            rows: Vec::new(),
        }
    }

    /// A table with a row for each of these, whose columns have a head, as [`Self::with_heads`] has it, and a function
    /// that gives the text.
    pub fn of_rows<'a, T: 'a + ?Sized>(
        rows: impl IntoIterator<Item = &'a T>,
        columns: &[ColumnText<'_, T>],
    ) -> Self {
        let heads: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
        let mut table = Self::with_heads(&heads);
        for row in rows {
            table.push(columns.iter().map(|(_, text)| text(row)));
        }
        table
    }

    /// An empty table of a column of names and a column of numbers for each of these.
    pub fn across(first: &str, others: impl IntoIterator<Item = String>) -> Self {
        let number = |head: String| {
            let head = printable::line(&head).into_owned();
            TableColumn { head, numeric: true, optional: 0 }
        };
        let first = TableColumn { head: first.to_owned(), numeric: false, optional: 0 };
        let columns = [first].into_iter().chain(others.into_iter().map(number)).collect();
        Self { columns, rows: Vec::new() }
    }

    /// Lets every column of numbers be left out where there is little room.
    pub fn set_numbers_optional(&mut self) {
        for column in self.columns.iter_mut().filter(|column| column.numeric) {
            column.optional = 1;
        }
    }

    /// Its rows as one line of text.
    pub fn in_words(&self) -> String {
        let rows: Vec<String> = self.rows.iter().map(|row| row.join(" ")).collect();
        rows.join("; ")
    }

    /// Adds a row; missing cells are empty, surplus ones are dropped.
    pub fn push(&mut self, row: impl IntoIterator<Item = String>) {
        let row = row.into_iter().take(self.columns.len());
        let mut row: Vec<String> = row.map(|cell| printable::line(&cell).into_owned()).collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// Only these columns, none of them optional.
    fn with_columns(&self, kept: &[usize]) -> Self {
        let column = |index: &usize| TableColumn { optional: 0, ..self.columns[*index].clone() };
        Self {
            columns: kept.iter().map(column).collect(),
            rows: self
                .rows
                .iter()
                .map(|row| kept.iter().map(|index| row[*index].clone()).collect())
                .collect(),
        }
    }

    /// Drops optional columns in which every cell is empty or a dash.
    pub fn drop_empty_columns(&mut self) {
        for index in (0..self.columns.len()).rev() {
            let empty = self.rows.iter().all(|row| matches!(row[index].as_str(), "" | "–"));
            if empty && self.columns[index].optional > 0 {
                self.columns.remove(index);
                for row in &mut self.rows {
                    row.remove(index);
                }
            }
        }
    }

    /// As a GitHub-flavoured Markdown table.
    pub fn to_markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut text = line(self.columns.iter().map(|c| escape_markdown(&c.head)).collect());
        text += &line(
            self.columns
                .iter()
                .map(|column| if column.numeric { "---:" } else { "---" }.to_owned())
                .collect(),
        );
        for row in &self.rows {
            text += &line(row.iter().map(|cell| escape_markdown(cell)).collect());
        }
        text
    }
}

/// In a terminal.
impl TextTable {
    /// The table in at most `style.width` columns, with a rule under its heads.
    pub fn render(&self, style: TerminalStyle) -> String {
        self.render_with_roles(style, |_, _| TextRole::Plain)
    }

    /// The same, with a role for the cell of each (row, column).
    pub fn render_with_roles(
        &self,
        style: TerminalStyle,
        role: impl Fn(usize, usize) -> TextRole,
    ) -> String {
        let shown = self.fit(style);
        if total_width(&shown) > usize::from(style.width) {
            return self.stacked(style, role);
        }
        let line = |cells: Vec<(&String, TextRole)>| {
            let cells = shown.iter().map(|(column, width)| {
                let (text, role) = cells[*column];
                let text = style.to_charset(text);
                let pad = " ".repeat(width.saturating_sub(text.chars().count()));
                let text = style.paint(role, &text);
                if self.columns[*column].numeric { pad + &text } else { text + &pad }
            });
            cells.collect::<Vec<_>>().join(GAP)
        };
        let heads = self.columns.iter().map(|column| (&column.head, TextRole::Plain));
        let rule = if style.unicode { "─" } else { "-" };
        let mut lines = vec![
            style.paint(TextRole::Bold, &line(heads.collect())),
            style.paint(TextRole::Dim, &rule.repeat(total_width(&shown))),
        ];
        for (index, row) in self.rows.iter().enumerate() {
            let cells = row.iter().enumerate();
            lines.push(line(cells.map(|(column, text)| (text, role(index, column))).collect()));
        }
        lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// The first of each row, and below it the head and text of each other column that must stay.
    fn stacked(&self, style: TerminalStyle, role: impl Fn(usize, usize) -> TextRole) -> String {
        let mut page = TerminalPage::new(style);
        for (index, row) in self.rows.iter().enumerate() {
            page.put(0, TextRole::Bold, &row[0]);
            for (column, TableColumn { head, .. }) in self.columns.iter().enumerate().skip(1) {
                if self.columns[column].optional == 0 && !row[column].is_empty() {
                    page.put(GAP.len(), role(index, column), &format!("{head}: {}", row[column]));
                }
            }
        }
        page.out
    }

    /// The table in as many parts as its columns need, each beginning with the first column: for
    /// tables of which no column may be left out.
    pub fn render_folded(&self, style: TerminalStyle) -> String {
        let widths = self.widths(style);
        let Some(first) = widths.first().copied() else { return String::new() };
        let mut parts = vec![vec![0]];
        let mut used = first;
        for (column, width) in widths.iter().enumerate().skip(1) {
            if used + GAP.len() + width > usize::from(style.width) && used > first {
                parts.push(vec![0]);
                used = first;
            }
            used += GAP.len() + width;
            if let Some(part) = parts.last_mut() {
                part.push(column);
            }
        }
        parts.iter().map(|columns| self.with_columns(columns).render(style)).collect()
    }

    /// How wide each column is in the characters there are: `→` takes two of ASCII.
    fn widths(&self, style: TerminalStyle) -> Vec<usize> {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| &row[column]);
            let texts = cells.chain([&self.columns[column].head]);
            texts.map(|text| style.to_charset(text).chars().count()).max().unwrap_or(0)
        };
        (0..self.columns.len()).map(width).collect()
    }

    /// The columns that are shown, and how wide each is.
    fn fit(&self, style: TerminalStyle) -> Vec<(usize, usize)> {
        let room = usize::from(style.width);
        let mut shown: Vec<(usize, usize)> = self.widths(style).into_iter().enumerate().collect();
        while total_width(&shown) > room {
            let optional = |place: &usize| self.columns[shown[*place].0].optional;
            let dispensable = (0..shown.len()).filter(|place| optional(place) > 0);
            let Some(place) = dispensable.max_by_key(|place| (optional(place), *place)) else {
                break;
            };
            shown.remove(place);
        }
        shown
    }
}

fn total_width(shown: &[(usize, usize)]) -> usize {
    let widths: usize = shown.iter().map(|(_, width)| width).sum();
    widths + GAP.len() * shown.len().saturating_sub(1)
}

const GAP: &str = "  ";

impl TableColumn {
    fn parse(head: &str) -> Self {
        let name = head.trim_end_matches('?');
        let optional = u8::try_from(head.len() - name.len()).unwrap_or(u8::MAX);
        let (numeric, name) = name.strip_prefix('#').map_or((false, name), |rest| (true, rest));
        Self { head: name.to_owned(), numeric, optional }
    }
}

/// Text that cannot break out of its cell: bars, line ends and HTML are disarmed.
fn escape_markdown(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_in_a_cell_does_not_make_a_new_column() {
        let mut table = TextTable::with_heads(&["name", "#value"]);
        table.push(["a|b\n<c".to_owned(), "1".to_owned()]);
        assert_eq!(
            table.to_markdown(),
            "| name | value |\n| --- | ---: |\n| a\\|b\u{fffd}&lt;c | 1 |\n"
        );
    }

    #[test]
    fn a_row_always_has_one_text_for_each_column() {
        let mut table = TextTable::with_heads(&["a", "b"]);
        table.push(["1".to_owned()]);
        table.push(["1".to_owned(), "2".to_owned(), "3".to_owned()]);
        assert!(table.rows.iter().all(|row| row.len() == 2));
    }

    fn table() -> TextTable {
        let mut table = TextTable::with_heads(&["mechanism", "#median", "#p99?", "#n??"]);
        table.push(["unix-stream-abstract", "5.20 µs", "9.13 µs", "120000"].map(str::to_owned));
        table.push(["pipe", "4.10 µs", "8.00 µs", "98000"].map(str::to_owned));
        table
    }

    #[test]
    fn the_least_needed_column_goes_first_and_nothing_exceeds_the_width() {
        for width in [20, 30, 40, 60, 80] {
            let text = table().render(TerminalStyle::plain(width));
            assert!(text.lines().all(|line| line.chars().count() <= usize::from(width)), "{text}");
            assert!(text.contains("median"), "{text}");
        }
        assert!(!table().render(TerminalStyle::plain(40)).contains("120000"));
        assert!(table().render(TerminalStyle::plain(80)).contains("120000"));
    }

    #[test]
    fn a_table_of_short_words_that_just_fits_is_not_widened() {
        let mut table = TextTable::with_heads(&["cell", "#median"]);
        table.push(["eventfd", "2.00 µs"].map(str::to_owned));
        let text = table.render(TerminalStyle::plain(16));
        assert!(text.lines().all(|line| line.chars().count() <= 16), "{text}");
    }

    #[test]
    fn a_cell_that_fits_is_not_cut_in_ascii() {
        let mut table = TextTable::with_heads(&["load", "#p99 idle→load"]);
        table.push(["up", "42.7 µs→1.20 ms"].map(str::to_owned));
        let ascii = TerminalStyle { color: false, unicode: false, width: 40 };
        assert!(table.render(ascii).contains("42.7 us->1.20 ms"), "{}", table.render(ascii));
    }

    #[test]
    fn a_folded_table_loses_no_column() {
        let text = table().render_folded(TerminalStyle::plain(34));
        assert!(text.lines().all(|line| line.chars().count() <= 34), "{text}");
        for head in ["median", "p99", "n"] {
            assert!(text.contains(head), "{text}");
        }
        assert!(text.contains("120000"), "{text}");
        assert_eq!(text.matches("unix-stream-abstract").count(), 3, "{text}");
    }

    #[test]
    fn numbers_line_up_on_the_right() {
        insta::assert_snapshot!(table().render(TerminalStyle::plain(80)));
    }
}
