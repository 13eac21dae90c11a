//! `plumb store`: the store's file itself.

use clap::{Args, Subcommand};
use plumb_analysis::document::check::{CheckDocument, SCHEMA};
use plumb_base::stats::histogram::Histogram;
use plumb_store::sqlite::{Mode, Store};

use super::output::{Failure, Output};
use super::{Global, stored};
use crate::problem::{Exit, Problem};

/// Check the store's file, say where it is, or delete a run
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb store check
  plumb store delete latency-local-20261121-7f3a")]
pub struct StoreCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// Check that every record is whole: the file, its references and every histogram
    Check,
    /// Print where the store is
    Path,
    /// Delete a run with everything in it
    Delete {
        /// Its whole id
        run: String,
    },
}

impl StoreCommand {
    /// Whether `--json` has no meaning for it.
    pub const fn is_text_only(&self) -> bool {
        matches!(self.action, Action::Path | Action::Delete { .. })
    }

    /// Does it.
    ///
    /// # Errors
    /// The store cannot be used.
    pub fn perform(self, global: &Global, output: &Output) -> Result<Exit, Failure> {
        match self.action {
            Action::Check => check(&stored::open(global, Mode::Read)?, output),
            Action::Path => {
                output.page(&format!("{}\n", stored::path(global)?.display()))?;
                Ok(Exit::Fine)
            }
            Action::Delete { run } => {
                let mut store = stored::open(global, Mode::Write)?;
                let found = store.find(&run).map_err(Problem::from)?;
                if found != run {
                    return Err(Problem::usage(format!("'{run}' is not the whole id of a run"))
                        .because("deleting cannot be undone, so nothing is guessed")
                        .fix(format!("if you mean it: plumb store delete {found}"))
                        .into());
                }
                store.delete_run(&run).map_err(Problem::from)?;
                output.remark(&format!("deleted {run}"));
                Ok(Exit::Fine)
            }
        }
    }
}

fn check(store: &Store, output: &Output) -> Result<Exit, Failure> {
    let mut blocks = 0;
    let faults = store.check(|data| {
        blocks += data.blocks.len() as u64;
        let held = data.blocks.iter().filter(|block| !block.histogram.is_empty());
        held.filter_map(|block| {
            let error = Histogram::decode(&block.histogram).err()?;
            Some(format!(
                "cell {}, launch {}: its histogram cannot be read: {error}",
                block.cell, block.launch
            ))
        })
        .collect()
    });
    let faults = faults.map_err(Problem::from)?;
    let runs = store.runs().map_err(Problem::from)?.len() as u64;
    let sound = faults.is_empty();
    let document = CheckDocument {
        schema: SCHEMA.to_owned(),
        store: store.path().display().to_string(),
        runs,
        blocks,
        sound,
        faults,
    };
    if output.json {
        output.document(&document)?;
    } else {
        let verdict = if sound { "is sound" } else { "is damaged" };
        let mut page = format!(
            "{} {verdict}: {} runs, {} blocks\n",
            document.store, document.runs, document.blocks
        );
        for fault in &document.faults {
            page.push_str("  ");
            page.push_str(fault);
            page.push('\n');
        }
        output.page(&page)?;
    }
    Ok(if sound { Exit::Fine } else { Exit::Trouble })
}
