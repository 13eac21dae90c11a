//! `plumb link`: commands behind an emulated link, and links and labs that run.

use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

use clap::{Args, Subcommand};
use plumb_analysis::document::link::{LINKS_SCHEMA, LinkDocument, LinksDocument};
use plumb_harness::launch_network::{self, OUTER_CONTROL_ENV};
use plumb_netdev::emulator::control_socket::{
    LinkChanges, LinkControlReply, LinkControlRequest, ask, wait_for_end,
};
use plumb_netdev::emulator::running_link::LinkRevision;
use plumb_netdev::gateway;
use plumb_netdev::lab::{self, LinkRegistry};
use plumb_report::terminal;

use super::output::{CliOutput, CommandResult};
use crate::problem::{ExitReason, Problem};
use options::{LinkChangeOptions, LocalFiles};

pub mod check;
pub mod document;
pub mod kept_labs;
pub mod options;
pub mod run;

/// Run a command behind an emulated link, and print what the link did
#[derive(Clone, Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
The command runs in a network of its own, with device plumb0, addresses 10.77.0.1 and fd77::1, and the
link behind it. TCP and UDP reach the network outside through a gateway at the far end (10.77.0.2 and
fd77::2, which are this machine's loopback); ping reaches only the far end. Needs no root if the kernel
allows user namespaces and /dev/net/tun, no kernel module, and leaves nothing behind: processes that
the command leaves running, daemons too, are ended and counted.
A link is not a sandbox: the command has your files and rights, as root nearly all capabilities, and reaches
every service on this machine's loopback at 10.77.0.2, unless --isolated.
'plumb help links' describes the language of links, the presets, and the environment of the command.

Examples:
  plumb link --rate 10mbit --delay 25ms --loss 0.1% --queue fq-codel -- curl https://example.org
  plumb link --preset geo-satellite                a shell behind a satellite
  plumb link --preset dsl --up rate=512kbit -- ./my-test
  plumb link --delay 5ms --hop rate=100mbit,delay=20ms -- traceroute 10.77.0.2
  plumb link --rate 1mbit --stats --pcap seen.pcapng -- wget http://10.77.0.2:8000/file
  plumb link set 4711 --rate 56kbit                change a running link, by its name
  plumb link up lab --hosts a,b,c --delay 2ms      a lab that stays
  plumb link exec lab a -- ping -c 3 b
  plumb link down lab"
)]
pub struct LinkCommand {
    #[command(subcommand)]
    action: Option<LinkSubcommand>,
    #[command(flatten)]
    run: run::LinkRunOptions,
}

#[derive(Clone, Debug, Subcommand)]
enum LinkSubcommand {
    Check(check::LinkCheckCommand),
    Up(kept_labs::LinkUpCommand),
    Exec(kept_labs::LinkExecCommand),
    Set(LinkSetCommand),
    Show(LinkShowCommand),
    /// List running links and labs
    List,
    Down(LinkDownCommand),
    /// Remove the names of killed links; nothing else is ever left of them
    Clean,
}

impl LinkCommand {
    /// Runs the subcommand, or a command behind a link.
    ///
    /// # Errors
    /// As each subcommand.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        match self.action {
            None => self.run.perform(output),
            Some(LinkSubcommand::Check(command)) => command.perform(output),
            Some(LinkSubcommand::Up(command)) => command.perform(output),
            Some(LinkSubcommand::Exec(command)) => command.perform(),
            Some(LinkSubcommand::Set(command)) => command.perform(output),
            Some(LinkSubcommand::Show(command)) => command.perform(output),
            Some(LinkSubcommand::List) => list(output),
            Some(LinkSubcommand::Down(command)) => command.perform(output),
            Some(LinkSubcommand::Clean) => clean(output),
        }
    }
}

/// Runs the gateway's helper process on its control socket, and returns the exit code.
pub fn run_gateway_helper(control: RawFd) -> u8 {
    let served = lab::adopt_fd(control).is_ok_and(|socket| gateway::serve_outside(&socket).is_ok());
    if served { ExitReason::Success } else { ExitReason::Failure }.code()
}

/// Change a running link; packets in flight are not affected
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Changes apply to every hop; 'hop N' before a change limits it to that hop, in a --schedule file too.

Examples:
  plumb link set lab --rate 56kbit
  plumb link set 4711 --up loss=5% --down delay=100ms
  plumb link set 4711 --up 'hop 2 rate=1mbit'
  plumb link set 4711 'hop 2 queue=fq-codel,limit=1000packets'
  plumb link set 4711 --preset lossy")]
struct LinkSetCommand {
    /// Name of the link: see 'plumb link list'
    name: String,
    /// Any change: rate=1mbit,loss=1%, or 'hop 2 up rate=1mbit'
    #[arg(value_name = "CHANGE")]
    changes: Vec<String>,
    #[command(flatten)]
    sides: LinkChangeOptions,
}

impl LinkSetCommand {
    fn perform(self, output: &CliOutput) -> CommandResult {
        let texts: Vec<String> = self.sides.changes()?.into_iter().chain(self.changes).collect();
        if texts.is_empty() {
            return Err(Problem::usage("no change was given")
                .fix(format!("give one: plumb link set {} --rate 1mbit", self.name))
                .into());
        }
        let stream = LinkRegistry::of_user()?.connect(&self.name)?;
        let changes = LinkChanges::new(texts, &LocalFiles)?;
        let LinkControlReply::Text(text) = ask(&stream, &LinkControlRequest::Change(changes))?
        else {
            return Err(unexpected_reply().into());
        };
        output.note(&format!("{} is now {text}", self.name));
        Ok(ExitReason::Success)
    }
}

/// Show the counters of a running link
#[derive(Clone, Debug, Args)]
struct LinkShowCommand {
    /// Name of the link [default: the only one that runs]
    name: Option<String>,
}

impl LinkShowCommand {
    fn perform(self, output: &CliOutput) -> CommandResult {
        let registry = LinkRegistry::of_user()?;
        let name = self.name.map_or_else(|| single_name(registry.names()), Ok)?;
        let document = document_of(&registry.connect(&name)?)?;
        output.show(&document, |style| terminal::link::render(&document, true, style))?;
        Ok(ExitReason::Success)
    }
}

fn list(output: &CliOutput) -> CommandResult {
    let registry = LinkRegistry::of_user()?;
    let mut documents = Vec::new();
    for name in registry.names() {
        // A link may end meanwhile.
        let Ok(stream) = registry.connect(&name) else { continue };
        documents.extend(document_of(&stream));
    }
    if output.json {
        let schema = LINKS_SCHEMA.to_owned();
        output.document(&LinksDocument { schema, links: documents })?;
        return Ok(ExitReason::Success);
    }
    if documents.is_empty() {
        output.note("no link is running");
    }
    output.page(&terminal::link::list(&documents, output.style))?;
    Ok(ExitReason::Success)
}

/// End a lab, or the command behind a link
#[derive(Clone, Debug, Args)]
struct LinkDownCommand {
    /// Name of the link: see 'plumb link list'
    name: String,
}

impl LinkDownCommand {
    fn perform(self, output: &CliOutput) -> CommandResult {
        let registry = LinkRegistry::of_user()?;
        let stream = registry.connect(&self.name)?;
        ask(&stream, &LinkControlRequest::Down)?;
        if !wait_for_end(&stream) {
            return Err(Problem::failure(format!("{} did not end", self.name))
                .because("its command ignores SIGTERM")
                .fix("end the command, or kill the process of 'plumb link' with SIGKILL")
                .into());
        }
        registry.remove_stale();
        output.note(&format!("{} is down", self.name));
        Ok(ExitReason::Success)
    }
}

fn clean(output: &CliOutput) -> CommandResult {
    let removed = LinkRegistry::of_user()?.remove_stale();
    output.note(&format!("{removed} names of killed links removed"));
    Ok(ExitReason::Success)
}

fn single_name(names: Vec<String>) -> Result<String, Problem> {
    match <[String; 1]>::try_from(names) {
        Ok([name]) => Ok(name),
        Err(names) if names.is_empty() => Err(Problem::usage("no link is running")),
        Err(names) => Err(Problem::usage("several links are running")
            .fix(format!("name one: plumb link show {}", names.join("|")))),
    }
}

fn document_of(stream: &UnixStream) -> Result<LinkDocument, Problem> {
    match ask(stream, &LinkControlRequest::Show)? {
        LinkControlReply::State(document) => {
            serde_json::from_value(document).map_err(|_| unexpected_reply())
        }
        _ => Err(unexpected_reply()),
    }
}

fn unexpected_reply() -> Problem {
    Problem::failure("the link sent an unexpected reply")
        .because("it may run another version of plumb")
}

/// The link that this process runs behind.
#[derive(Debug)]
struct OuterLink {
    /// As first found.
    revision: LinkRevision,
    /// Whether the link itself reported it.
    is_confirmed: bool,
}

fn found() -> Option<&'static OuterLink> {
    // A run names one link, whatever becomes of it later.
    static FOUND: OnceLock<Option<OuterLink>> = OnceLock::new();
    let find = || {
        let link = launch_network::outer_link()?;
        Some(match query_revision() {
            Some(present) => OuterLink { revision: present, is_confirmed: true },
            None => OuterLink { revision: LinkRevision { link, changes: 0 }, is_confirmed: false },
        })
    };
    FOUND.get_or_init(find).as_ref()
}

/// The current description of the outer link; none without one, or if it does not answer.
fn query_revision() -> Option<LinkRevision> {
    let path = std::env::var_os(OUTER_CONTROL_ENV).filter(|path| !path.is_empty())?;
    let stream = UnixStream::connect(path).ok()?;
    match ask(&stream, &LinkControlRequest::Present) {
        Ok(LinkControlReply::Present(present)) => Some(present),
        _ => None,
    }
}

/// The link that this process runs behind, as first found, if its far side is known.
pub fn outer_link() -> Option<String> {
    found().map(|found| found.revision.link.clone())
}

/// What that link is now, if it has changed at all since it was first found.
pub fn changed_outer_link() -> Option<String> {
    let found = found().filter(|found| found.is_confirmed)?;
    query_revision().filter(|now| *now != found.revision).map(|now| now.link)
}
