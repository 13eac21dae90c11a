//! `plumb stack`: plumb's own network stack in a user process, and a test bed for it.

use clap::{Args, Subcommand};

use super::GlobalOptions;
use super::output::{CliOutput, CommandResult};

mod applications;
mod conform;
mod device;
mod host;
mod lab;
mod replay;
mod serve;
mod stream;

/// Run plumb's own network stack, or create a test bed for it
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb stack lab
  plumb stack lab -- ping -c 3 10.77.0.2
  plumb stack serve --device tap:plumb0 --addr 10.77.0.2/24
  plumb stack ping 10.0.0.2 --device memory
  plumb stack send 10.77.0.2:1997
  plumb stack get http://10.0.0.2/README.md --device memory
  plumb stack transfer 10.0.0.2:9 --device memory --congestion bbr
  plumb stack replay trace.pcapng
  plumb stack conform handshake.pkt")]
pub struct StackCommand {
    #[command(subcommand)]
    action: StackSubcommand,
}

#[derive(Clone, Debug, Subcommand)]
enum StackSubcommand {
    Lab(lab::StackLabCommand),
    Mirror(serve::StackMirrorCommand),
    Serve(serve::StackServeCommand),
    Ping(applications::StackPingCommand),
    Send(applications::StackSendCommand),
    Get(stream::StackGetCommand),
    Transfer(Box<stream::StackTransferCommand>),
    Replay(replay::StackReplayCommand),
    Conform(conform::StackConformCommand),
}

impl StackCommand {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// As each subcommand.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        match self.action {
            StackSubcommand::Lab(command) => command.perform(global, output),
            StackSubcommand::Mirror(command) => command.perform(output),
            StackSubcommand::Serve(command) => command.perform(output),
            StackSubcommand::Ping(command) => command.perform(output),
            StackSubcommand::Send(command) => command.perform(output),
            StackSubcommand::Get(command) => command.perform(output),
            StackSubcommand::Transfer(command) => command.perform(output),
            StackSubcommand::Replay(command) => command.perform(output),
            StackSubcommand::Conform(command) => command.perform(output),
        }
    }
}
