//! The command line: one file a subcommand, beside this one.
//!
//! Results go to standard output, messages to standard error.
//! With `--json` standard output is exactly one JSON document.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use plumb_base::seed::Seed;
use plumb_harness::stop_signals;

use crate::VERSION;
use crate::net::web;
use crate::problem::{ExitReason, Problem};
use output::{CliOutput, CommandError, CommandResult};
use plumb_experiments::{display as display_task, mirror, simulation, transfer};
use plumb_harness::child_process::HiddenCommand;
use plumb_harness::launch_network::emulator_process;
use plumb_harness::mirror::mirror_process;
use plumb_harness::program_task::ProgramTasks;

pub mod advise;
pub mod agent;
pub mod cc_report;
pub mod chatty;
pub mod claims;
pub mod compare;
pub mod display;
pub mod doctor;
pub mod explain;
pub mod export;
mod foreign_options;
pub mod import;
pub mod index;
pub mod iperf3;
pub mod link;
pub mod list;
pub mod net;
pub mod output;
pub mod predict;
mod progress;
pub mod reference;
pub mod run;
pub mod scale;
pub mod sensitivity;
pub mod sim;
pub mod stack;
pub mod stamp;
pub mod store;
pub mod stored_runs;
pub mod subprocess;
pub mod sweep;

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
  plumb net user@host                    the network between this host and another
  plumb compare last~1 last              is today slower than yesterday?
  plumb report last -o ladder.html       one self-contained page
  plumb help method                      why the numbers can be trusted

Exit codes: 0 success, 1 slower, or a check failed, 2 usage or bad input, 3 inconclusive,
4 a measurement or the store failed, 130 interrupted."
)]
pub struct Cli {
    #[command(flatten)]
    global: GlobalOptions,
    #[command(subcommand)]
    command: Option<CliCommand>,
}

/// Options of every subcommand.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the command line"
)]
#[derive(Clone, Debug, Default, Args)]
pub struct GlobalOptions {
    /// The store: one file with every run in it [default: $PLUMB_STORE, or the XDG data directory]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub store: Option<PathBuf>,
    /// Print exactly one JSON document on standard output
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub json: bool,
    /// When to color the output
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    #[arg(help_heading = "Everywhere")]
    pub color: ColorChoice,
    /// Draw with ASCII characters only
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub ascii: bool,
    /// Print only errors on standard error
    #[arg(long, short, global = true, help_heading = "Everywhere")]
    pub quiet: bool,
    /// No progress bar
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub no_progress: bool,
}

/// When to color.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// If standard output is a terminal and NO_COLOR is not set
    #[default]
    Auto,
    /// Also into a pipe
    Always,
    /// Never
    Never,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    Ladder(run::LadderCommand),
    Doctor(doctor::DoctorCommand),
    List(list::ListCommand),
    Run(run::RunCommand),
    Rerun(run::RerunCommand),
    Runs(stored_runs::RunsCommand),
    Study(run::StudyCommand),
    Selftest(doctor::SelftestCommand),
    Show(stored_runs::ShowCommand),
    Sim(sim::SimCommand),
    Sweep(sweep::SweepCommand),
    CcReport(cc_report::CcReportCommand),
    Stack(stack::StackCommand),
    Link(Box<link::LinkCommand>),
    Display(display::DisplayCommand),
    Chatty(chatty::ChattyCommand),
    Advise(advise::AdviseCommand),
    Net(Box<net::NetCommand>),
    Agent(agent::AgentCommand),
    Explain(explain::ExplainCommand),
    Claims(claims::ClaimsCommand),
    Index(index::IndexCommand),
    Scale(scale::ScaleCommand),
    Model(predict::ModelCommand),
    Predict(predict::PredictCommand),
    Sensitivity(sensitivity::SensitivityCommand),
    Compare(compare::CompareCommand),
    Ab(compare::AbCommand),
    Report(stored_runs::ReportCommand),
    Export(export::ExportCommand),
    Import(import::ImportCommand),
    Store(store::StoreCommand),
    Help(reference::HelpCommand),
    Completions(reference::CompletionsCommand),
    Man(reference::ManCommand),
    #[command(hide = true, name = "net-iperf3")]
    NetIperf3(Box<iperf3::client::Iperf3ClientCommand>),
    #[command(hide = true, name = "agent-iperf3")]
    AgentIperf3(iperf3::server::Iperf3ServerCommand),
}

impl CliCommand {
    /// Whether it has no JSON document.
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
    if let Some(command) = HiddenCommand::parse(arguments.get(1..).unwrap_or_default()) {
        return ExitCode::from(run_hidden(command));
    }
    report_panics();
    plumb_experiments::list::install_pages();
    std::panic::catch_unwind(|| run_arguments(arguments))
        .unwrap_or_else(|_| ExitCode::from(ExitReason::Failure.code()))
}

/// What plumb starts itself for; its exit code.
fn run_hidden(command: HiddenCommand) -> u8 {
    match command {
        HiddenCommand::Worker => plumb_harness::worker::main(&ProgramTasks {
            fetch: web::fetch,
            transfers: transfer::run,
            simulate: simulation::simulate,
            draw: display_task::run,
        }),
        HiddenCommand::PageServer { address, client } => {
            plumb_harness::page_load::main(address, client, web::serve)
        }
        HiddenCommand::Peer(control) => plumb_harness::peer::main(control),
        HiddenCommand::Mirror(control) => mirror_process::main(control, mirror::open),
        HiddenCommand::StreamsSender(control) => plumb_harness::streams::sender::main(control),
        HiddenCommand::CpuLoad(control) => plumb_harness::streams::cpu_load::main(control),
        HiddenCommand::Emulator(control) => emulator_process::main(control),
        HiddenCommand::GatewayHelper(control) => link::run_gateway_helper(control),
    }
}

fn run_arguments(arguments: Vec<OsString>) -> ExitCode {
    let arguments = iperf3::select_subcommand(arguments);
    let cli = match parse(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let known = renamed_option(&error, &arguments);
            if let Some(problem) = known.or_else(|| foreign_options::problem(&error, &arguments)) {
                let global = GlobalOptions::default();
                CliOutput::from_environment(&global).print_problem(&problem);
                return ExitCode::from(problem.exit.code());
            }
            // Help and version are errors of clap; a closed standard output is not a failure.
            error.print().ok();
            let is_help = !error.use_stderr();
            return ExitCode::from(
                if is_help { ExitReason::Success } else { ExitReason::Usage }.code(),
            );
        }
    };
    let output = CliOutput::from_environment(&cli.global);
    let exit = match dispatch(cli, &output) {
        Ok(exit) => exit,
        Err(CommandError::StdoutClosed) => ExitReason::Success,
        Err(CommandError::Problem(problem)) => {
            output.print_problem(&problem);
            problem.exit
        }
    };
    ExitCode::from(exit.code())
}

/// The command line that these words are.
fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let matches = foreign_options::command().try_get_matches_from(arguments)?;
    Cli::from_arg_matches(&matches)
}

/// Renamed options: command, old name, new name.
const RENAMED_OPTIONS: [(&str, &str, &str); 21] = [
    ("net", "--seat", "--cpu-placement"),
    ("net", "--block", "--length"),
    ("net", "--drain", "--drain-timeout"),
    ("net", "--exchange", "--request-response"),
    ("net", "--connect-each", "--connect-per-request"),
    ("net", "--per-second", "--request-rate"),
    ("net", "--http-ways", "--http-modes"),
    ("net", "--pin", "--cert-fingerprint"),
    ("net", "--spacing", "--interval"),
    ("net", "--lasting", "--time"),
    ("net-iperf3", "--blocks", "--blockcount"),
    ("agent", "--rate-max", "--max-bitrate"),
    ("agent", "--duration-max", "--max-time"),
    ("agent", "--streams-max", "--max-streams"),
    ("agent", "--peers", "--max-clients"),
    ("agent", "--tests", "--max-tests"),
    ("agent", "--answers-max", "--max-rate-per-client"),
    ("agent", "--answers-total", "--max-rate"),
    ("agent-iperf3", "--tests", "--max-tests"),
    ("stack send", "--give-up", "--max-consecutive-losses"),
    ("stack lab", "--neighbours", "--neighbors"),
];

/// The error for an option that was renamed.
fn renamed_option(error: &clap::Error, arguments: &[OsString]) -> Option<Problem> {
    let (ErrorKind::UnknownArgument, ContextValue::String(given)) =
        (error.kind(), error.get(ContextKind::InvalidArg)?)
    else {
        return None;
    };
    let given = given.split('=').next().unwrap_or(given);
    let is_of =
        |command: &str| command.split(' ').all(|word| arguments.iter().any(|it| it == word));
    let (_, old, new) =
        RENAMED_OPTIONS.iter().find(|(command, old, _)| given == *old && is_of(command))?;
    Some(
        Problem::usage(format!("there is no option '{old}' any more"))
            .because("it was renamed")
            .fix(format!("write {new}")),
    )
}

fn dispatch(cli: Cli, output: &CliOutput) -> CommandResult {
    let global = &cli.global;
    let command = cli.command.unwrap_or_else(|| CliCommand::Ladder(run::LadderCommand::default()));
    if output.json && command.is_text_only() {
        return Err(Problem::usage("this command has no document to print")
            .because("it prints text")
            .fix("leave --json out")
            .into());
    }
    match command {
        CliCommand::Ladder(command) => command.perform(global, output),
        CliCommand::Doctor(command) => command.perform(global, output),
        CliCommand::List(command) => command.perform(output),
        CliCommand::Run(command) => command.perform(global, output),
        CliCommand::Rerun(command) => command.perform(global, output),
        CliCommand::Runs(command) => command.perform(global, output),
        CliCommand::Study(command) => command.perform(global, output),
        CliCommand::Selftest(command) => command.perform(output),
        CliCommand::Show(command) => command.perform(global, output),
        CliCommand::Sim(command) => command.perform(global, output),
        CliCommand::Sweep(command) => command.perform(global, output),
        CliCommand::CcReport(command) => command.perform(output),
        CliCommand::Stack(command) => command.perform(global, output),
        CliCommand::Link(command) => command.perform(output),
        CliCommand::Display(command) => command.perform(output),
        CliCommand::Chatty(command) => command.perform(output),
        CliCommand::Advise(command) => command.perform(global, output),
        CliCommand::Net(command) => command.perform(global, output),
        CliCommand::Agent(command) => command.perform(output),
        CliCommand::Explain(command) => command.perform(global, output),
        CliCommand::Claims(command) => command.perform(global, output),
        CliCommand::Index(command) => command.perform(global, output),
        CliCommand::Scale(command) => command.perform(global, output),
        CliCommand::Model(command) => command.perform(global, output),
        CliCommand::Predict(command) => command.perform(global, output),
        CliCommand::Sensitivity(command) => command.perform(global, output),
        CliCommand::Compare(command) => command.perform(global, output),
        CliCommand::Ab(command) => command.perform(global, output),
        CliCommand::Report(command) => command.perform(global, output),
        CliCommand::Export(command) => command.perform(global, output),
        CliCommand::Import(command) => command.perform(global, output),
        CliCommand::Store(command) => command.perform(global, output),
        CliCommand::Help(command) => command.perform(output),
        CliCommand::Completions(command) => command.perform(output),
        CliCommand::Man(command) => command.perform(output),
        CliCommand::NetIperf3(command) => command.perform(output),
        CliCommand::AgentIperf3(command) => command.perform(output),
    }
}

/// Reports panics as bugs of plumb, with their location.
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or_else(String::new, |at| format!(" at {at}"));
        let what = panic.payload_as_str().unwrap_or("no message");
        output::stderr_line(
            &Problem::failure(format!("plumb has a bug: {what}{place}"))
                .because("an internal assertion failed")
                .fix(format!("report it with the command you typed and 'plumb {VERSION}'"))
                .to_string(),
        );
    }));
}

/// The seed given, or a random one.
///
/// # Errors
/// /dev/urandom cannot be read.
pub fn seed_or_random(seed: Option<u64>) -> Result<Seed, Problem> {
    let random = || {
        plumb_clock::entropy().map_err(|error| {
            Problem::failure("cannot read random bits from /dev/urandom").because(error)
        })
    };
    seed.map_or_else(random, Ok).map(Seed)
}

/// From now on Ctrl-C, SIGTERM and SIGHUP make [`is_stopped`] true instead of ending the process.
///
/// # Errors
/// The kernel refuses the signal handlers.
pub fn handle_stop_signals() -> Result<(), Problem> {
    stop_signals::count_stop_requests()
        .map_err(|error| Problem::failure("cannot listen for Ctrl-C").because(error))
}

/// Whether the user asked to stop.
pub fn is_stopped() -> bool {
    stop_signals::stop_requests() > 0
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_valid() {
        foreign_options::command().debug_assert();
    }

    #[test]
    fn a_renamed_option_names_its_new_name() {
        for (command, old, new) in RENAMED_OPTIONS {
            let cli = Cli::command();
            let mut found = &cli;
            let words = ["plumb"].into_iter().chain(command.split(' '));
            let words: Vec<OsString> = words.chain([old]).map(OsString::from).collect();
            for word in command.split(' ') {
                found = found.find_subcommand(word).unwrap_or_else(|| panic!("{command}"));
            }
            let is_known = |name: &str| {
                found.get_arguments().any(|it| it.get_long() == name.strip_prefix("--"))
            };
            assert!(is_known(new) && !is_known(old), "{command} {old} {new}");
            let error = Cli::try_parse_from(&words).unwrap_err();
            let problem = renamed_option(&error, &words).map(|problem| problem.to_string());
            assert!(problem.is_some_and(|text| text.contains(new)), "{command} {old}: {error}");
        }
    }
}
