//! A page of the guide in a terminal: paragraphs and lists wrapped to its width, tables in columns, code as it is.

use super::{TerminalPage, TerminalStyle, TextRole};
use crate::table::{TableColumn, TextTable};

/// The page, of the Markdown that this project's own pages use: headings, paragraphs, lists of one level, tables, fenced
/// code. Comments and pictures are left out.
pub fn render(markdown: &str, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    let mut lines = markdown.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            for code in lines.by_ref().take_while(|line| !line.starts_with("```")) {
                page.out += format!("    {}", style.to_charset(code)).trim_end();
                page.out.push('\n');
            }
        } else if line.starts_with('|') {
            let mut rows = vec![line];
            while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
                rows.push(row);
            }
            page.out += &table(&rows).render(style);
        } else if let Some(heading) = line.strip_prefix('#') {
            page.put(0, TextRole::Bold, heading.trim_start_matches('#'));
        } else if line.is_empty() {
            if !page.out.is_empty() && !page.out.ends_with("\n\n") {
                page.out.push('\n');
            }
        } else if !line.starts_with("<!--") && !line.starts_with("![") {
            let mut text = line.to_owned();
            while let Some(more) = lines.next_if(|line| continues(line)) {
                text = format!("{text} {}", more.trim_start());
            }
            let marker = marker(&text).to_owned();
            page.put_behind(
                &marker,
                marker.len(),
                TextRole::Plain,
                &without_targets(&text[marker.len()..]),
            );
        }
    }
    page.out
}

/// Whether a line belongs to the paragraph or item before it.
fn continues(line: &str) -> bool {
    !line.is_empty() && !line.starts_with(['#', '|', '<', '!', '`']) && marker(line).is_empty()
}

/// The `- ` or `12. ` of an item; empty where the line is none.
fn marker(line: &str) -> &str {
    let digits = line.find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
    let is_numbered = digits > 0 && line[digits..].starts_with(". ");
    match is_numbered {
        true => &line[..digits + 2],
        false if line.starts_with("- ") => &line[..2],
        false => "",
    }
}

/// `[text](page.md)` as `text (page)`, and other links as their text.
fn without_targets(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        let parts =
            link.split_once("](").and_then(|(name, rest)| Some((name, rest.split_once(')')?)));
        let Some((name, (target, behind))) = parts.filter(|(name, _)| !name.contains('[')) else {
            out += before;
            out.push('[');
            rest = link;
            continue;
        };
        out += before;
        out += name;
        if let Some(page) = target.strip_suffix(".md").filter(|page| !page.contains('/')) {
            out += &format!(" ({page})");
        }
        rest = behind;
    }
    out + rest
}

/// A table whose second line says which columns are numbers.
fn table(lines: &[&str]) -> TextTable {
    let cells = |line: &str| -> Vec<String> {
        let inner = line.trim().trim_start_matches('|').trim_end_matches('|').replace("\\|", "\0");
        inner.split('|').map(|cell| cell.trim().replace('\0', "|")).collect()
    };
    let kinds = lines.get(1).map(|line| cells(line)).unwrap_or_default();
    let heads = cells(lines[0]).into_iter().enumerate();
    let columns = heads.map(|(index, head)| TableColumn {
        head,
        numeric: kinds.get(index).is_some_and(|kind| kind.ends_with(':')),
        optional: 0,
    });
    let mut table = TextTable { columns: columns.collect(), rows: Vec::new() };
    for line in lines.iter().skip(2) {
        table.push(cells(line));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_wrapped_and_shows_neither_comments_nor_targets() {
        let text = "# Title\n\n<!-- run: plumb -->\nSome words of a [page](first.md) and a [site](https://x.org/a.md), \
                    long\nenough to wrap.\n\n- one item that is also too long\n- two\n\n```console\n$ plumb   run\n```\n\n\
                    | a | n |\n|---|---:|\n| x \\| y | 1 |\n";
        let shown = render(text, TerminalStyle::plain(24));
        assert_eq!(
            shown,
            "Title\n\nSome words of a page\n(first) and a site, long\nenough to wrap.\n\n- one item that is also\n  too long\n\
             - two\n\n    $ plumb   run\n\na      n\n────────\nx | y  1\n"
        );
    }

    #[test]
    fn brackets_that_are_no_link_stay() {
        assert_eq!(without_targets("[5, 6] and [a [b](c) d"), "[5, 6] and [a b d");
    }
}
