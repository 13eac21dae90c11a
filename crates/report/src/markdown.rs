//! A run or a comparison as GitHub-flavoured Markdown, for pull requests and notebooks.
//!
//! Left out: figures.

use plumb_analysis::document::RunDocument;
use plumb_analysis::document::compare::CompareDocument;

use crate::terminal::{compare, summary};
use crate::{headline, printable, section, verdict};

/// Headline, trust, one table an experiment and response, claims, and how to repeat it.
pub fn run(document: &RunDocument) -> String {
    let mut text = format!("## {}\n\n", prose(&headline::title(document)));
    for sentence in
        section::network_conditions(document).into_iter().chain(headline::sentences(document))
    {
        text += &format!("{}\n\n", prose(&sentence));
    }
    text += &format!("{}\n\n", prose(&section::trust(&document.trust)));
    for section in section::sections(&document.results) {
        text += &format!("### {}\n\n", prose(&section.title()));
        let shared = section.shared_factors();
        if !shared.is_empty() {
            text += &format!("Common to all: {}.\n\n", prose(&shared));
        }
        text += &summary::results(&section).to_markdown();
        text.push('\n');
    }
    if !document.unavailable.is_empty() {
        text += "### Not measured\n\n";
        for (reason, groups) in section::missing_by_reason(&document.unavailable) {
            let groups: Vec<String> = groups.iter().map(section::MissingCells::label).collect();
            text += &format!("- {}: {}\n", prose(&groups.join("; ")), prose(&reason));
        }
        text.push('\n');
    }
    if !document.claims.is_empty() {
        text += "### Published claims\n\n";
        text += &format!("{}\n\n", verdict::tally(document));
        text += &verdict::claims(&document.claims).to_markdown();
        text.push('\n');
    }
    if let Some(command) = document.repeat_command() {
        text += &format!("Repeat it with `{}`.\n", printable::line(&command).replace('`', "'"));
    }
    text
}

/// The verdict and one row a cell.
pub fn compare(document: &CompareDocument) -> String {
    let mut text = format!("**{}**\n\n", prose(&compare::headline(document)));
    for warning in &document.warnings {
        text += &format!("> {}\n\n", prose(warning));
    }
    text += &compare::table(document).to_markdown();
    text + &format!("\n{}\n", prose(&document.method))
}

/// A text of one line that opens no HTML element.
fn prose(text: &str) -> String {
    printable::line(text).replace('<', "&lt;")
}
