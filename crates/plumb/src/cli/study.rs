//! `plumb study`: a whole study in one command, and its report on disk.
//!
//! Left out: single experiments and plans, which are `plumb run`'s.

use std::path::PathBuf;

use clap::Args;
use plumb_analysis::document::build;
use plumb_report::html;

use super::Global;
use super::export::{check_writable, write_file};
use super::output::{Failure, Output};
use super::run::{Options, OtherHostOptions, execute, measured_any, plan_of, report};
use crate::experiment::Study as Known;
use crate::plan::Preset;
use crate::problem::{Exit, Problem};

/// Run a whole study and write its report
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb study stack --quick              how long a packet is in the stack; writes stack.html
  plumb study ipc --quick -o today.html
  plumb study scaling --quick --host user@host      what crosses a network, between this host and that one

A study stands for a published document: its experiments are measured anew, each of its claims gets
a verdict, and the report is one self-contained page.")]
pub struct Study {
    /// Which study: plumb list studies
    #[arg(value_name = "NAME")]
    name: String,
    /// Where to write the report [default: NAME.html]
    #[arg(long, short, value_name = "FILE.html")]
    output: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    other: OtherHostOptions,
}

impl Study {
    /// Measures the study, prints it, and writes its page.
    ///
    /// # Errors
    /// No such study, trouble while measuring, or a file that cannot be written.
    pub fn perform(self, global: &Global, output: &Output) -> Result<Exit, Failure> {
        self.other.ask()?;
        let Some(study) = Known::from_id(&self.name) else {
            return Err(Problem::usage(format!("there is no study '{}'", self.name))
                .because("a study is a whole document re-tested; one experiment is plumb run's")
                .suggest(&self.name, Known::ALL.iter().map(|study| study.id))
                .into());
        };
        let mut plan = plan_of(study.id, &self.options)?;
        if self.options.plan {
            output.page(&plan.to_toml())?;
            return Ok(Exit::Fine);
        }
        if self.options.preset().is_none() {
            plan.limits = study.limits(Some(Preset::Default));
            plan = self.options.limit(plan);
        }
        let path = self.output.unwrap_or_else(|| PathBuf::from(format!("{}.html", study.id)));
        check_writable(&path)?;
        let (data, exit) = execute(plan, None, global, output)?;
        report(&data, output)?;
        let page = html::report(&build(&data));
        write_file(&path, page.as_bytes())?;
        output.remark(&format!("report: {}, {} kB", path.display(), page.len().div_ceil(1_000)));
        Ok(measured_any(&data, exit, output))
    }
}
