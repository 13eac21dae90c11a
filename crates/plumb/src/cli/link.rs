//! `plumb link`: any program behind any network, and what that network really was.

use std::ffi::OsString;
use std::os::fd::RawFd;

use clap::{Args, Subcommand};
use plumb_netdev::gateway;
use plumb_netdev::lab;

use super::output::{CliOutput, CommandError};
use crate::problem::{ExitReason, Problem};

pub mod check;
pub mod control;
pub mod kept_labs;
pub mod options;
pub mod run;

/// Run a command behind an emulated link, and print what the link really did
#[derive(Clone, Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
The command runs in a network of its own: device plumb0 with 10.77.0.1 and fd77::1, and the link
behind it. Its TCP and UDP reach the network outside through a gateway at the far end (10.77.0.2 and
fd77::2, which are this machine's own loopback); ping reaches the far end alone. No root is needed
where the kernel gives user namespaces and /dev/net/tun, no kernel module, and nothing is left: what
the command leaves running when it ends, daemons too, is ended with it, and told.
'plumb help links' has all that a TEXT may say, the presets, and what the command can read of its link.

Examples:
  plumb link --rate 10mbit --delay 25ms --loss 0.1% --queue fq-codel -- curl https://example.org
  plumb link --preset geo-satellite                a shell behind a satellite
  plumb link --preset dsl --up rate=512kbit -- ./my-test
  plumb link --delay 5ms --hop rate=100mbit,delay=20ms -- traceroute 10.77.0.2
  plumb link --rate 1mbit --stats --pcap seen.pcapng -- wget http://10.77.0.2:8000/file
  plumb link set 4711 --rate 56kbit                change one that runs, by the name it has told
  plumb link up lab --hosts a,b,c --delay 2ms      a lab that stays
  plumb link exec lab a -- ping -c 3 b
  plumb link down lab"
)]
pub struct LinkCommand {
    #[command(subcommand)]
    action: Option<LinkSubcommand>,
    #[command(flatten)]
    behind: run::LinkRunOptions,
}

#[derive(Clone, Debug, Subcommand)]
enum LinkSubcommand {
    Check(check::LinkCheckCommand),
    Up(kept_labs::LinkUpCommand),
    Exec(kept_labs::LinkExecCommand),
    Set(control::LinkSetCommand),
    Show(control::LinkShowCommand),
    List(control::LinkListCommand),
    Down(control::LinkDownCommand),
    Clean(control::LinkCleanCommand),
}

impl LinkCommand {
    /// Does it.
    ///
    /// # Errors
    /// As each subcommand says.
    pub fn perform(self, output: &CliOutput) -> Result<ExitReason, CommandError> {
        match self.action {
            None => self.behind.perform(output),
            Some(LinkSubcommand::Check(command)) => command.perform(output),
            Some(LinkSubcommand::Up(command)) => command.perform(output),
            Some(LinkSubcommand::Exec(command)) => command.perform(),
            Some(LinkSubcommand::Set(command)) => command.perform(output),
            Some(LinkSubcommand::Show(command)) => command.perform(output),
            Some(LinkSubcommand::List(command)) => command.perform(output),
            Some(LinkSubcommand::Down(command)) => command.perform(output),
            Some(LinkSubcommand::Clean(command)) => command.perform(output),
        }
    }
}

/// The words of this process again, and what the process inside needs before the command.
fn inner_arguments(more: Vec<OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.splice(end..end, more);
    words
}

impl From<lab::RegistryError> for Problem {
    fn from(error: lab::RegistryError) -> Self {
        Self::from_message(&error.to_string(), ExitReason::Usage)
    }
}

/// The helper of a gateway, as which this program was started.
pub fn run_gateway_helper(control: RawFd) -> u8 {
    let served = lab::adopt_fd(control).is_ok_and(|socket| gateway::serve_outside(&socket).is_ok());
    if served { ExitReason::Success } else { ExitReason::Failure }.code()
}
