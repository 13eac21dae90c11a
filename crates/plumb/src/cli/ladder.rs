//! `plumb ladder`, and `plumb` alone: the main job.

use clap::Args;

use super::Global;
use super::output::{Failure, Output};
use super::run::{Options, OtherHostOptions, measure, plan_of};
use crate::problem::Exit;

/// Climb the ladder: what it costs to cross each boundary of this machine, in under 20 seconds
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "Examples:
  plumb ladder
  plumb ladder --set size=4Ki --set mechanism=pipe,unix-stream,tcp4
  plumb ladder --remote
  plumb ladder --host user@host          its last rungs over the network to that host
  plumb ladder --paper")]
pub struct Ladder {
    /// Climb on: a LAN, a metropolitan and a wide-area network, emulated, in under a minute
    #[arg(long)]
    remote: bool,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    other: OtherHostOptions,
}

impl Ladder {
    /// Measures and draws the ladder.
    ///
    /// # Errors
    /// Trouble while measuring.
    pub fn perform(self, global: &Global, output: &Output) -> Result<Exit, Failure> {
        self.other.ask()?;
        let climbs_on = self.remote || self.other.is_named();
        let mut plan = plan_of(if climbs_on { "ladder.remote" } else { "ladder" }, &self.options)?;
        // A ladder all the same: its title is what shows it as one.
        "ladder".clone_into(&mut plan.title);
        measure(plan, &self.options, global, output)
    }
}
