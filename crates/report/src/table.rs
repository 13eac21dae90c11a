//! A table of finished text: what every figure carries, and what every renderer can print.
//!
//! Left out: numbers. A cell is already rounded to what its interval supports.

use serde::{Deserialize, Serialize};

pub mod text;

/// Named columns and rows of text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextTable {
    /// Heads, in order.
    pub columns: Vec<TableColumn>,
    /// Rows, each with one text for each column.
    pub rows: Vec<Vec<String>>,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableColumn {
    /// Its head.
    pub head: String,
    /// Whether it holds numbers, which line up on the right.
    pub numeric: bool,
    /// What to leave out first where there is little room: 0 stays, higher goes earlier.
    pub optional: u8,
}

impl TextTable {
    /// An empty table with these heads: `#head` is numeric, a trailing `?` makes it optional,
    /// `??` more so.
    pub fn with_heads(heads: &[&str]) -> Self {
        Self {
            columns: heads.iter().map(|head| TableColumn::parse(head)).collect(),
            rows: Vec::new(),
        }
    }

    /// An empty table of a column of names and a column of numbers for each of these.
    pub fn across(first: &str, others: impl IntoIterator<Item = String>) -> Self {
        let number = |head| TableColumn { head, numeric: true, optional: 0 };
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
        let mut row: Vec<String> = row.into_iter().take(self.columns.len()).collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// Only these columns, none of them optional.
    #[must_use]
    pub fn with_columns(&self, kept: &[usize]) -> Self {
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
    text.replace('|', "\\|").replace(['\n', '\r'], " ").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_in_a_cell_does_not_make_a_new_column() {
        let mut table = TextTable::with_heads(&["name", "#value"]);
        table.push(["a|b\nc".to_owned(), "1".to_owned()]);
        assert_eq!(table.to_markdown(), "| name | value |\n| --- | ---: |\n| a\\|b c | 1 |\n");
    }

    #[test]
    fn a_row_always_has_one_text_for_each_column() {
        let mut table = TextTable::with_heads(&["a", "b"]);
        table.push(["1".to_owned()]);
        table.push(["1".to_owned(), "2".to_owned(), "3".to_owned()]);
        assert!(table.rows.iter().all(|row| row.len() == 2));
    }
}
