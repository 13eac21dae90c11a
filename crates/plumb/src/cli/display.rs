//! `plumb display`: a structured display, and what its protocol costs.

use clap::{Args, Subcommand};

use super::output::{CliOutput, CommandResult};

mod agent;
mod bench;
mod listening;
mod serve;

/// Run a structured display, or measure how fast one is drawn on
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
A structured display keeps drawings as symbols of lines, rectangles, text, polygons and bitmaps, and of calls
to other symbols. Clients build and edit them over a protocol, item by item, pipelined, in batches or structured.

Examples:
  plumb display bench
  plumb display serve unix:/tmp/display
  plumb display bench --connect unix:/tmp/display --png array.png
  plumb display agent --to 192.0.2.7 unix:/tmp/near")]
pub struct DisplayCommand {
    #[command(subcommand)]
    action: DisplaySubcommand,
}

#[derive(Clone, Debug, Subcommand)]
enum DisplaySubcommand {
    Serve(serve::DisplayServeCommand),
    Bench(bench::DisplayBenchCommand),
    Agent(agent::DisplayAgentCommand),
}

impl DisplayCommand {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// As each subcommand.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        match self.action {
            DisplaySubcommand::Serve(command) => command.perform(output),
            DisplaySubcommand::Bench(command) => command.perform(output),
            DisplaySubcommand::Agent(command) => command.perform(output),
        }
    }
}
