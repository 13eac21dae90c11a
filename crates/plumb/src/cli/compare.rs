//! `plumb compare`: is B slower than A?

use clap::Args;
use plumb_analysis::compare::{self, MARGIN_DEFAULT};
use plumb_analysis::document::compare::CompareDocument;
use plumb_report::{markdown, terminal};
use plumb_store::sqlite::Mode;

use super::output::{Failure, Output};
use super::{Global, stored};
use crate::problem::Exit;

/// Compare two runs cell by cell: faster, slower, equivalent or inconclusive
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb compare last~1 last
  plumb compare before after --margin 5% --markdown >> \"$GITHUB_STEP_SUMMARY\"

Exit codes: 0 no cell of B is slower, 1 some cell is, 3 inconclusive.")]
pub struct Compare {
    /// What stands before: a run's id, the beginning of it, last or last~N
    a: String,
    /// What stands after
    b: String,
    #[command(flatten)]
    options: CompareOptions,
}

/// How to compare and to print it.
#[derive(Clone, Debug, Args)]
pub struct CompareOptions {
    /// Differences within this share are called equivalent
    #[arg(long, value_name = "PERCENT", default_value = "2%", value_parser = parse_margin)]
    pub margin: f64,
    /// Print GitHub-flavoured Markdown
    #[arg(long)]
    pub markdown: bool,
}

impl Default for CompareOptions {
    fn default() -> Self {
        Self { margin: MARGIN_DEFAULT, markdown: false }
    }
}

/// Reads `2%` or `0.02`.
fn parse_margin(text: &str) -> Result<f64, String> {
    let share = match text.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => text.trim().parse::<f64>(),
    };
    match share {
        Ok(share) if share > 0.0 && share < 1.0 => Ok(share),
        Ok(_) => Err("a margin lies between 0 and 100 %: write 2% or 0.02".to_owned()),
        Err(_) => Err(format!("'{text}' is not a margin: write 2% or 0.02")),
    }
}

impl Compare {
    /// Compares and says so by the exit code too.
    ///
    /// # Errors
    /// No such run, or a store that cannot be read.
    pub fn perform(self, global: &Global, output: &Output) -> Result<Exit, Failure> {
        let store = stored::open(global, Mode::Read)?;
        let a = stored::load(&store, &self.a)?;
        let b = stored::load(&store, &self.b)?;
        print(&compare::runs(&a, &b, self.options.margin), &self.options, output)
    }
}

/// Prints a comparison and gives its exit code.
///
/// # Errors
/// Standard output cannot be written.
pub fn print(
    document: &CompareDocument,
    options: &CompareOptions,
    output: &Output,
) -> Result<Exit, Failure> {
    if output.json {
        output.document(document)?;
    } else if options.markdown {
        output.page(&markdown::compare(document))?;
    } else {
        output.page(&terminal::compare::render(document, output.style))?;
    }
    Ok(match document.exit_code {
        0 => Exit::Fine,
        1 => Exit::Slower,
        _ => Exit::Inconclusive,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margins_are_read_as_shares_or_percentages() {
        assert_eq!(parse_margin("2%"), Ok(0.02));
        assert_eq!(parse_margin("0.05"), Ok(0.05));
        for text in ["0", "200%", "-1%", "two", "nan", ""] {
            assert!(parse_margin(text).is_err(), "{text}");
        }
    }
}
