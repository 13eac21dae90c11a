//! What holds for every study on its page and in a terminal: figures with their data, and widths.
//!
//! Left out: what the pictures show.

use plumb_analysis::document::RunDocument;
use plumb_report::figure::text;
use plumb_report::terminal::{TerminalStyle, summary};
use plumb_report::{html, registry, section};

/// Columns of the widest line.
pub fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

/// The page of a document, on which each experiment has so many figures with data, each id once. It is
/// written beside the others, to be looked at.
pub fn page(document: &RunDocument, name: &str, counts: &[(&str, usize)]) -> String {
    let page = html::report(document);
    std::fs::write(format!("{}/{name}.html", env!("CARGO_TARGET_TMPDIR")), &page).unwrap();
    for (experiment, figures) in counts {
        let found = registry::figures(document, experiment);
        assert_eq!(found.len(), *figures, "{experiment}");
        for figure in found {
            assert!(page.contains(&format!("<figure id=\"{}\"", figure.id)), "{}", figure.id);
            assert!(!figure.table.rows.is_empty() && !figure.alt.is_empty());
        }
    }
    let ids: Vec<&str> =
        page.split("<figure id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let mut unique = ids.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(ids.len(), unique.len(), "{ids:?}");
    page
}

/// What is said about these experiments, a line a sentence.
pub fn sentences(document: &RunDocument, experiments: &[&str]) -> String {
    let text: Vec<String> =
        experiments.iter().flat_map(|id| registry::sentences(document, id)).collect();
    text.join("\n")
}

/// Figures of experiments by their number, as a terminal of 80 columns has them.
pub fn figures(document: &RunDocument, which: &[(&str, usize)]) -> String {
    let drawn = |(id, index): &(&str, usize)| {
        text::render(&registry::figures(document, id)[*index], TerminalStyle::plain(80))
    };
    which.iter().map(drawn).collect::<Vec<_>>().join("\n")
}

/// Whether summary and figures fit forty columns, and are ASCII where that is asked for.
pub fn assert_narrow(document: &RunDocument) {
    for unicode in [true, false] {
        let style = TerminalStyle { unicode, ..TerminalStyle::plain(40) };
        let mut texts = vec![summary::render(document, style)];
        for section in section::sections(&document.results) {
            let figures = registry::figures(document, section.experiment);
            texts.extend(figures.iter().map(|figure| text::render(figure, style)));
        }
        for text in texts {
            assert!(widest(&text) <= 40, "{}\n{text}", widest(&text));
            assert!(unicode || text.is_ascii(), "{text}");
        }
    }
}
