//! The command line: one file a subcommand, beside this one.
//!
//! Results go to standard output, everything said to people while working goes to standard error.
//! With `--json` standard output is exactly one JSON document. Left out: measuring
//! (`crate::run`) and drawing (`plumb-report`).

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use plumb_host::harness;
use plumb_net::agent::addresses;

use crate::mirror;
use crate::net::web;
use crate::problem::{Exit, Problem};
use output::{Failure, Output};

pub mod agent;
pub mod compare;
pub mod completions;
pub mod doctor;
pub mod explain;
pub mod export;
pub mod help;
pub mod import;
pub mod iperf3;
pub mod keys;
pub mod ladder;
pub mod link;
pub mod list;
pub mod man;
pub mod net;
pub mod output;
pub mod progress;
pub mod report;
pub mod rerun;
pub mod run;
pub mod runs;
pub mod selftest;
pub mod show;
pub mod stack;
pub mod store;
pub mod stored;
pub mod study;
pub mod variants;

/// Measures what it costs one program to talk to another, on this machine or on another.
#[derive(Debug, Parser)]
#[command(
    name = "plumb",
    version = VERSION,
    disable_help_subcommand = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  plumb                                  the ladder: every boundary of this machine, in 20 s
  plumb run latency.local --quick        one experiment
  plumb net user@host                    what is between this host and another
  plumb compare last~1 last              is today slower than yesterday?
  plumb report last -o ladder.html       one page to show around
  plumb help method                      why the numbers can be trusted

Exit codes: 0 fine, 1 slower or a failed check, 2 usage or bad input, 3 inconclusive,
4 trouble while measuring or with the store, 130 interrupted."
)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Option<Command>,
}

/// Version and commit of this program.
pub const VERSION: &str = env!("PLUMB_CODE_VERSION");

/// What every subcommand takes.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the command line"
)]
#[derive(Clone, Debug, Default, Args)]
pub struct Global {
    /// The store: one file with every run in it [default: $PLUMB_STORE, or the XDG data directory]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub store: Option<PathBuf>,
    /// Print exactly one JSON document on standard output
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub json: bool,
    /// Whether to colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    #[arg(help_heading = "Everywhere")]
    pub color: ColorChoice,
    /// Draw with ASCII characters only
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub ascii: bool,
    /// Say nothing on standard error but errors
    #[arg(long, short, global = true, help_heading = "Everywhere")]
    pub quiet: bool,
    /// Draw no progress bar
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub no_progress: bool,
}

/// Whether to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// Where standard output is a terminal and NO_COLOR is not set.
    #[default]
    Auto,
    /// Even into a pipe.
    Always,
    /// Not at all.
    Never,
}

#[derive(Debug, Subcommand)]
enum Command {
    Ladder(ladder::Ladder),
    Doctor(doctor::Doctor),
    List(list::List),
    Run(run::Run),
    Rerun(rerun::Rerun),
    Runs(runs::Runs),
    Study(study::Study),
    Selftest(selftest::Selftest),
    Show(show::Show),
    Stack(stack::Stack),
    Link(Box<link::Link>),
    Net(Box<net::Net>),
    Agent(agent::Agent),
    Explain(explain::Explain),
    Compare(compare::Compare),
    Ab(variants::Ab),
    Report(report::Report),
    Export(export::Export),
    Import(import::Import),
    Store(store::StoreCommand),
    Help(help::Help),
    Completions(completions::Completions),
    Man(man::Man),
    #[command(hide = true, name = "net-iperf3")]
    NetIperf3(Box<iperf3::client::Client>),
    #[command(hide = true, name = "agent-iperf3")]
    AgentIperf3(iperf3::server::Agent),
}

impl Command {
    /// Whether `--json` has no meaning for it.
    const fn is_text_only(&self) -> bool {
        match self {
            Self::Help(_) | Self::Completions(_) | Self::Man(_) => true,
            Self::Store(store) => store.is_text_only(),
            _ => false,
        }
    }
}

/// Runs the program on the arguments of this process.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // The two sides of a launch: started by plumb itself, spoken to through pipes.
    match arguments.get(1).and_then(|word| word.to_str()) {
        Some("__worker") => return ExitCode::from(harness::worker::main(web::fetch)),
        Some("__peer") => return ExitCode::from(harness::peer::main()),
        Some("__mirror") => return ExitCode::from(harness::mirror::peer::main(mirror::open)),
        Some("__outside") => return link::outside(arguments.get(2)),
        Some("__source") => return ExitCode::from(harness::streams::source::main()),
        Some(harness::visits::WORD) => return ExitCode::from(harness::visits::main(web::serve)),
        Some(harness::steward::WORD) => {
            return ExitCode::from(harness::steward::main(VERSION, addresses::of_this_host));
        }
        Some("__share") => return ExitCode::from(harness::streams::share::main()),
        Some("__link") => return ExitCode::from(harness::remote::emulator::main()),
        _ => {}
    }
    report_panics();
    std::panic::catch_unwind(|| run_words(arguments))
        .unwrap_or_else(|_| ExitCode::from(Exit::Trouble.code()))
}

fn run_words(arguments: Vec<OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(iperf3::choose(arguments)) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too; a reader that has gone away is no failure.
            error.print().ok();
            let is_help = !error.use_stderr();
            return ExitCode::from(if is_help { Exit::Fine } else { Exit::Usage }.code());
        }
    };
    let output = Output::of_process(&cli.global);
    let exit = match dispatch(cli, &output) {
        Ok(exit) => exit,
        Err(Failure::Closed) => Exit::Fine,
        Err(Failure::Problem(problem)) => {
            output.complain(&problem);
            problem.exit
        }
    };
    ExitCode::from(exit.code())
}

fn dispatch(cli: Cli, output: &Output) -> Result<Exit, Failure> {
    let global = &cli.global;
    let command = cli.command.unwrap_or_else(|| Command::Ladder(ladder::Ladder::default()));
    if output.json && command.is_text_only() {
        return Err(Problem::usage("this command has no document to print")
            .because("what it prints is text for people or for a shell")
            .fix("leave --json out")
            .into());
    }
    match command {
        Command::Ladder(command) => command.perform(global, output),
        Command::Doctor(command) => command.perform(global, output),
        Command::List(command) => command.perform(output),
        Command::Run(command) => command.perform(global, output),
        Command::Rerun(command) => command.perform(global, output),
        Command::Runs(command) => command.perform(global, output),
        Command::Study(command) => command.perform(global, output),
        Command::Selftest(command) => command.perform(output),
        Command::Show(command) => command.perform(global, output),
        Command::Stack(command) => command.perform(global, output),
        Command::Link(command) => command.perform(output),
        Command::Net(command) => command.perform(global, output),
        Command::Agent(command) => command.perform(output),
        Command::Explain(command) => command.perform(global, output),
        Command::Compare(command) => command.perform(global, output),
        Command::Ab(command) => command.perform(global, output),
        Command::Report(command) => command.perform(global, output),
        Command::Export(command) => command.perform(global, output),
        Command::Import(command) => command.perform(global, output),
        Command::Store(command) => command.perform(global, output),
        Command::Help(command) => command.perform(output),
        Command::Completions(command) => command.perform(output),
        Command::Man(command) => command.perform(output),
        Command::NetIperf3(command) => command.perform(output),
        Command::AgentIperf3(command) => command.perform(output),
    }
}

/// Makes a panic say that it is plumb's fault, where, and what to do about it.
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or_else(String::new, |at| format!(" at {at}"));
        let what = panic.payload_as_str().unwrap_or("no message");
        output::stderr_line(
            &Problem::trouble(format!("plumb has a bug: {what}{place}"))
                .because("something happened that its authors held to be impossible")
                .fix(format!("report it with the command you typed and 'plumb {VERSION}'"))
                .to_string(),
        );
    }));
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
