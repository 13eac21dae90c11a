//! `plumb display`: a structured display, and what its protocol costs; and what its commands share that clients connect to.

use std::os::fd::AsFd as _;
use std::time::Duration;

use clap::{Args, Subcommand};
use plumb_experiments::display::connection::{DisplayAddress, DisplayListener, DisplayStream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::output::{CliOutput, CommandResult};
use crate::problem::Problem;

mod agent;
mod bench;
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

/// Between two looks at whether it is to end.
const LOOK: Duration = Duration::from_millis(200);

/// Listens at every address.
pub fn listen(addresses: &[DisplayAddress]) -> Result<Vec<DisplayListener>, Problem> {
    let bind = |address: &DisplayAddress| {
        DisplayListener::bind(address).map_err(|error| {
            Problem::failure(format!("cannot listen at {address}"))
                .because(error)
                .fix("name another address, or end what listens there")
        })
    };
    addresses.iter().map(bind).collect()
}

/// Says where what listens.
pub fn announce(
    what: &str,
    listeners: &[DisplayListener],
    output: &CliOutput,
) -> Result<(), Problem> {
    for listener in listeners {
        let address = listener.address().map_err(Problem::failed)?;
        output.note(&format!("{what} at {address}; Ctrl-C ends it"));
    }
    Ok(())
}

/// Hands each client to `serve` until it is over.
pub fn accept_clients(
    listeners: &[DisplayListener],
    is_over: impl Fn() -> bool,
    mut serve: impl FnMut(DisplayStream) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let wait = Timespec::try_from(LOOK).expect("a fraction of a second");
    while !is_over() {
        let mut fds: Vec<PollFd<'_>> = listeners
            .iter()
            .map(|listener| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN))
            .collect();
        match poll(&mut fds, Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Problem::failure("cannot wait for clients").because(error)),
        }
        for listener in listeners {
            // Out of descriptors, or gone again: those that are served go on.
            if let Ok(Some(stream)) = listener.accept() {
                serve(stream)?;
            }
        }
    }
    Ok(())
}
