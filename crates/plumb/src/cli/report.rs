//! `plumb report`: a run as one page that needs nothing else.

use std::path::PathBuf;

use clap::Args;
use plumb_analysis::document::build;
use plumb_report::html;
use plumb_store::sqlite::Mode;

use super::export::write_file;
use super::output::{Failure, Output};
use super::{Global, stored};
use crate::problem::Exit;

/// Make one self-contained HTML page of a run
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb report last -o ladder.html
  plumb report last > ladder.html")]
pub struct Report {
    /// A run: its id, the beginning of it, last or last~N
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    /// Where to write the page [default: standard output]
    #[arg(long, short, value_name = "FILE.html")]
    output: Option<PathBuf>,
}

impl Report {
    /// Writes the page.
    ///
    /// # Errors
    /// No such run, or a file that cannot be written.
    pub fn perform(self, global: &Global, output: &Output) -> Result<Exit, Failure> {
        let store = stored::open(global, Mode::Read)?;
        let document = build(&stored::load(&store, &self.run)?);
        if let Some(path) = &self.output {
            let page = html::report(&document);
            write_file(path, page.as_bytes())?;
            output.remark(&format!("{}: {} kB", path.display(), page.len().div_ceil(1_000)));
        }
        match (output.json, &self.output) {
            (true, _) => output.document(&document)?,
            (false, None) => output.page(&html::report(&document))?,
            (false, Some(_)) => {}
        }
        Ok(Exit::Fine)
    }
}
