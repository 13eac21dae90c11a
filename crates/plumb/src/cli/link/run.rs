//! `plumb link … -- COMMAND`: one command, or a shell, behind a link.
//!
//! Four processes: the keeper, started by the user, waits and forwards signals; its helper stays in the outer network
//! and creates the gateway's sockets there; the inner process, init of a PID namespace, drives the link and runs the
//! command.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use plumb_clock::{InstantClock, Stopwatch, monotonic_ns};
use plumb_harness::child_process::HiddenCommand;
use plumb_harness::launch_network::{
    OUTER_CONTROL_ENV, OUTER_FAR_ADDRESSES_ENV, OUTER_FAR_NAMESPACE_ENV, OUTER_LINK_ENV,
};
use plumb_link::spec::LinkSpec;
use plumb_netdev::device::tap::TapDevice;
use plumb_netdev::emulator::control_socket::LinkControlServer;
use plumb_netdev::emulator::running_link::{LinkHandle, LinkTopology};
use plumb_netdev::emulator::{self, InterfaceDropCounter};
use plumb_netdev::gateway::{
    AddressMap, Gateway, GatewayDevice, GatewayOptions, OutsideSockets, ResolverConfig,
};
use plumb_netdev::lab::{
    self, InitExit, LabError, LinkRegistry, NamespaceFds, NetNamespace, OutsideProcess,
    PidNamespaceInit, RegisteredName, SignalPolicy, TestBed, TestBedOptions,
};

use super::document::{self, LinkDescription, LinkProblems, LinkStatusLine};
use super::options::{
    LinkDriverOptions, LinkEnd, LinkRunPlan, LinkShapeOptions, check_writable, finish,
};
use crate::cli::output::{CliOutput, CommandResult, stderr_line};
use crate::cli::subprocess::{
    add_own_directory_to_path, address_lists, command_or_shell, exit_reason, far_namespace_path,
    inner_arguments, not_started,
};
use crate::problem::{ExitReason, Problem};
use crate::recording::refuse_overwrite;

/// Time between two updates of the status line.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);
/// Time for the command to end after SIGTERM, when the link has ended.
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(5);
/// Exit codes of shells for a command that is not found, and for one that cannot be executed.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;
/// Directories of name services other than a resolver.
const NAME_SERVICES: [&str; 2] = ["/run/systemd/resolve", "/run/nscd"];

/// A command behind a link.
#[derive(Clone, Debug, Args)]
pub struct LinkRunOptions {
    #[command(flatten)]
    shape: LinkShapeOptions,
    #[command(flatten)]
    driver: LinkDriverOptions,
    /// No gateway: only the far end can be reached
    #[arg(long, help_heading = "How it runs")]
    isolated: bool,
    /// Print the counters of the link at the end, on standard error
    #[arg(long, help_heading = "How it runs")]
    stats: bool,
    /// Write the report as JSON to this file
    #[arg(long, value_name = "FILE", help_heading = "How it runs")]
    report: Option<PathBuf>,
    /// Name for link set, show and down [default: the process id]
    #[arg(long, value_name = "NAME", help_heading = "How it runs")]
    name: Option<String>,
    /// Command to run [default: $SHELL]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    #[command(flatten)]
    inside: InnerProcessOptions,
}

/// Options that the keeper gives to the inner process.
#[derive(Clone, Debug, Default, Args)]
pub struct InnerProcessOptions {
    /// Descriptor whose end means that the keeper has ended; marks the inner process
    #[arg(long, hide = true, value_name = "FD")]
    pub inside: Option<RawFd>,
    /// Socket of the gateway's helper
    #[arg(long, hide = true, value_name = "FD")]
    pub outside: Option<RawFd>,
    /// Directory of the registry
    #[arg(long, hide = true, value_name = "PATH")]
    pub registry: Option<PathBuf>,
    /// Process id of the keeper
    #[arg(long, hide = true, value_name = "PID")]
    pub keeper: Option<u32>,
}

impl LinkRunOptions {
    /// Creates the link, runs the command behind it, and removes everything.
    ///
    /// # Errors
    /// An invalid link, no namespaces, no TUN, or an unknown command.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        let spec = self.shape.spec()?;
        let plan = self.driver.plan(&spec, 1)?;
        match self.inside.inside {
            Some(lifeline) => self.run_inside(spec, plan, lifeline, output),
            None => Ok(exit_reason(self.run_outer(&plan)?)),
        }
    }

    /// The keeper.
    fn run_outer(&self, plan: &LinkRunPlan) -> Result<ExitStatus, Problem> {
        if let Some(name) = &self.name {
            LinkRegistry::check(name)?;
        }
        if let Some(path) = &self.report {
            check_writable(path)?;
            refuse_overwrite("report", path, plan.files.iter().map(PathBuf::as_path))?;
        }
        let registry = LinkRegistry::of_user()?;
        registry.remove_stale();
        let cannot = |error| Problem::failure("cannot start the gateway's helper").because(error);
        let arguments = |socket| HiddenCommand::GatewayHelper(socket).arguments();
        let helper = if self.isolated { None } else { Some(OutsideProcess::start(arguments)) };
        let helper = helper.transpose().map_err(cannot)?;
        let socket = helper.as_ref().map(OutsideProcess::make_inheritable).transpose();
        let socket = socket.map_err(cannot)?;
        let arguments = |lifeline: RawFd| {
            let mut more: Vec<OsString> = vec![
                format!("--inside={lifeline}").into(),
                format!("--keeper={}", std::process::id()).into(),
                "--registry".into(),
                registry.path().into(),
            ];
            more.extend(socket.map(|socket| format!("--outside={socket}").into()));
            inner_arguments(more)
        };
        Ok(lab::run_in_pid_namespace(SignalPolicy::Forward, arguments)?)
    }

    /// The inner process.
    fn run_inside(
        &self,
        spec: LinkSpec,
        mut plan: LinkRunPlan,
        lifeline: RawFd,
        output: &CliOutput,
    ) -> CommandResult {
        let contained = PidNamespaceInit::become_init(lifeline, SignalPolicy::Forward)?;
        let mut flags = std::mem::take(&mut plan.flags);
        let timeline = InstantClock::begin(Stopwatch::new(None));
        let options = TestBedOptions { mtu: plan.mtu, offloads: true, neighbors: true };
        let (bed, [near, far]) = emulator::tap_pair(options).map_err(tap_problem)?;
        let near_drops = InterfaceDropCounter::watch(bed.near(), TestBed::NEAR_DEVICE)?;
        let far_drops = InterfaceDropCounter::watch(far_side(&bed)?, TestBed::FAR_DEVICE)?;
        let printed = output.clone();
        let problems = LinkProblems::reporting_to(move |text| printed.note(text));
        let files: Vec<PathBuf> = plan.files.iter().chain(&self.report).cloned().collect();
        let near = self.driver.record(near, LinkEnd::Near, &files, timeline, &problems)?;
        let (gateway, far) = match self.inside.outside {
            Some(socket) => {
                let (gateway, far) = open_gateway(&bed, socket, far, &mut flags)?;
                let far = self.driver.record(far, LinkEnd::Far, &files, timeline, &problems)?;
                (Some(Arc::new(gateway)), far)
            }
            None => (None, self.driver.record(far, LinkEnd::Far, &files, timeline, &problems)?),
        };
        let link = spec.to_string();
        let ports = vec![(near, near_drops), (far, far_drops)];
        let running =
            self.driver.start(LinkTopology::Line, spec, plan, ports, timeline, end_command)?;
        let description = Arc::new(LinkDescription {
            name: self.name(),
            command: self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            hosts: vec!["near".to_owned(), "far".to_owned()],
            began_ns: running.began_ns,
            gateway,
            flags,
            problems,
        });
        let published = self.publish(&running.handle, &description, &bed)?;
        if self.command.is_empty() {
            output.note(&self.welcome(&description, &link, &bed));
        }
        let mut command = self.command_inside(&link, &bed, &contained, output.json);
        if let Some(published) = &published {
            command.env(OUTER_CONTROL_ENV, published.path());
        }
        let status = self.start_status(&running.handle, &description, output);
        let ended = run(&contained, &bed, command);
        if let Some(status) = status {
            status.stop();
        }
        drop(published);
        let state = running.finish()?;
        let ended = ended?;
        let exit = exit_reason(ended.status);
        let end = Some((i32::from(exit.code()), ended.killed));
        let document = document::document(&description, &state, end);
        finish(&document, self.stats, self.report.as_deref(), output)?;
        Ok(exit)
    }

    /// The name that was given, or else the process id of the outermost process.
    fn name(&self) -> String {
        let keeper = || self.inside.keeper.unwrap_or_else(std::process::id).to_string();
        self.name.clone().unwrap_or_else(keeper)
    }

    /// Registers the link's name and answers requests.
    fn publish(
        &self,
        handle: &LinkHandle,
        description: &Arc<LinkDescription>,
        bed: &TestBed,
    ) -> Result<Option<RegisteredName>, Problem> {
        let (Some(path), Some(keeper)) = (&self.inside.registry, self.inside.keeper) else {
            return Ok(None);
        };
        let server = LinkControlServer {
            link: Arc::clone(handle),
            document: document::json(description),
            namespaces: vec![
                ("near".to_owned(), NamespaceFds::of_this_process(bed.near())?),
                ("far".to_owned(), NamespaceFds::of_this_process(far_side(bed)?)?),
            ],
            stop: Box::new(lab::terminate_command),
        };
        Ok(Some(server.publish(&description.name, path, keeper)?))
    }

    /// The command, with plumb in its PATH and the link in its environment.
    fn command_inside(
        &self,
        link: &str,
        bed: &TestBed,
        contained: &PidNamespaceInit,
        json: bool,
    ) -> Command {
        let mut command = command_or_shell(&self.command);
        add_own_directory_to_path(&mut command);
        let far: Vec<String> = bed.addresses().map(|(_, far, _)| far.to_string()).collect();
        command.env(OUTER_LINK_ENV, link);
        command.env(OUTER_FAR_ADDRESSES_ENV, far.join(","));
        if let Some(path) = far_namespace_path(bed, contained) {
            command.env(OUTER_FAR_NAMESPACE_ENV, path);
        }
        if json {
            // Standard output is for the document only.
            command.stdout(Stdio::from(io::stderr()));
        }
        command
    }

    /// Draws the status line, unless it could disturb a shell or there is no terminal.
    fn start_status(
        &self,
        handle: &LinkHandle,
        description: &LinkDescription,
        output: &CliOutput,
    ) -> Option<StatusTicker> {
        if !output.progress || self.command.is_empty() || !io::stderr().is_terminal() {
            return None;
        }
        let (handle, output, began_ns) = (Arc::clone(handle), output.clone(), description.began_ns);
        // The command may draw on the terminal's rows: use its title.
        let is_shared = io::stdout().is_terminal();
        let mut status = LinkStatusLine::default();
        let mut drawn = false;
        StatusTicker::start(STATUS_INTERVAL, move |last| {
            let state = if last { None } else { handle.state() };
            let width = output.style_stderr.width;
            let line = state.map(|state| status.line(monotonic_ns() - began_ns, &state, width));
            match line {
                Some(line) if is_shared => output.draw_title(&line, !drawn),
                Some(line) => output.draw_line(&line),
                None if last && drawn && is_shared => output.restore_title(),
                None if last && drawn => output.erase_line(),
                None => return,
            }
            drawn = true;
        })
    }

    fn welcome(&self, description: &LinkDescription, link: &str, bed: &TestBed) -> String {
        let name = &description.name;
        let [near, far] = address_lists(bed);
        let beyond = match self.inside.outside {
            Some(_) => "which is this machine's loopback; TCP and UDP reach the network outside",
            None => "and nothing beyond",
        };
        [
            "a shell behind a link, which ends with this shell",
            "",
            &format!("  link   {link}"),
            &format!("  here   {near}  on plumb0"),
            &format!("  far    {far}"),
            &format!("         {beyond}"),
            "",
            &format!("  try                  ping {}", TestBed::FAR_V4),
            &format!("  change it            plumb link set {name} --loss 1%"),
            &format!("  what it does         plumb link show {name}"),
            "  leave                exit",
        ]
        .join("\n")
    }
}

/// Calls a function at an interval on a thread of its own, and once more at the end.
#[derive(Debug)]
struct StatusTicker {
    stop: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl StatusTicker {
    /// `None` without another thread: the status is optional.
    fn start(every: Duration, mut tick: impl FnMut(bool) + Send + 'static) -> Option<Self> {
        let (stop, stopped) = std::sync::mpsc::channel();
        let run = move || {
            use std::sync::mpsc::RecvTimeoutError::Timeout;
            while stopped.recv_timeout(every) == Err(Timeout) {
                tick(false);
            }
            tick(true);
        };
        let thread = std::thread::Builder::new().name("live".to_owned()).spawn(run).ok()?;
        Some(Self { stop, thread })
    }

    fn stop(self) {
        self.stop.send(()).ok();
        self.thread.join().ok();
    }
}

/// Ends the command because the link has ended: nothing can arrive any more.
fn end_command(why: &str) {
    stderr_line(&format!("the link has ended ({why}), and ends its command"));
    lab::terminate_command();
    // Nothing is ever sent: this waits, and the process ends meanwhile if the command obeys.
    let (_held, silent) = std::sync::mpsc::channel::<()>();
    silent.recv_timeout(TERMINATE_TIMEOUT).ok();
    lab::kill_others();
}

/// Runs the command on the near side, and ends processes that it leaves.
fn run(
    contained: &PidNamespaceInit,
    bed: &TestBed,
    mut command: Command,
) -> Result<InitExit, Problem> {
    let start = || command.spawn().map(|child| child.id());
    // This thread waits inside the near side, so that nsenter finds that side by this process.
    let ended = bed.in_near(|| contained.run(start))?;
    ended.map_err(|error| command_not_started(command.get_program(), &error))
}

/// The error for a command that cannot be started, with the exit code of shells.
pub fn command_not_started(program: &OsStr, error: &io::Error) -> Problem {
    let is_absent = error.kind() == io::ErrorKind::NotFound;
    let code = if is_absent { NOT_FOUND } else { NOT_EXECUTABLE };
    Problem { exit: ExitReason::Command(code), ..not_started(program, "behind the link", error) }
}

/// Starts the gateway behind the far device, and makes it the resolver of all processes inside.
fn open_gateway(
    bed: &TestBed,
    socket: RawFd,
    far: TapDevice,
    flags: &mut Vec<String>,
) -> Result<(Gateway, GatewayDevice<TapDevice>), Problem> {
    let cannot = |error| Problem::failure("cannot reach the gateway's helper").because(error);
    let outside = OutsideSockets::new(lab::adopt_fd(socket).map_err(cannot)?);
    bed.route_all_to_far()?;
    let conf = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let addresses: Vec<IpAddr> = bed.addresses().map(|(_, far, _)| far).collect();
    let settings = GatewayOptions {
        inside: far_side(bed)?.try_clone()?,
        tap: far.as_fd().try_clone_to_owned().map_err(cannot)?,
        outside,
        targets: AddressMap { far: addresses, resolvers: ResolverConfig::of(&conf) },
    };
    if let Err(error) = show_resolver(&resolv_conf(&conf, TestBed::FAR_V4.into())) {
        flags.push(format!("names cannot be looked up behind the link: {error}"));
    }
    Gateway::start(settings, far).map_err(Problem::failed)
}

/// The host's resolv.conf(5) with `resolver` instead of its resolvers.
fn resolv_conf(outside: &str, resolver: IpAddr) -> String {
    let mut text = format!("nameserver {resolver}\n");
    for line in outside.lines() {
        let word = line.split_whitespace().next().unwrap_or_default();
        if matches!(word, "search" | "domain" | "options" | "sortlist") {
            text += line.trim();
            text.push('\n');
        }
    }
    text
}

/// Replaces resolv.conf for the processes inside, and hides other name services.
fn show_resolver(text: &str) -> Result<(), LabError> {
    let place = Path::new("/etc/resolv.conf");
    let target = std::fs::canonicalize(place);
    for directory in NAME_SERVICES {
        lab::hide_directory(Path::new(directory))?;
    }
    match target {
        // It was in a directory that is now hidden behind an empty one.
        Ok(target) if !target.exists() => {
            std::fs::write(&target, text).map_err(|source| LabError::Refused {
                what: format!("write {}", target.display()),
                source,
                kernel_message: String::new(),
            })
        }
        _ => lab::mount_text_over(place, text),
    }
}

fn far_side(bed: &TestBed) -> Result<&NetNamespace, Problem> {
    bed.far().ok_or_else(|| Problem::failure("the far side of the link has no namespace"))
}

/// The error for TAP devices that cannot be created.
pub fn tap_problem(error: emulator::TapPairError) -> Problem {
    match error {
        emulator::TapPairError::Lab(error) => error.into(),
        emulator::TapPairError::Tap(error) => {
            Problem::failure("cannot create a link here").because(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_keeps_the_outer_options() {
        let outside =
            "# comment\nnameserver 127.0.0.53\noptions edns0\nsearch a.example b.example\n";
        let inside = resolv_conf(outside, "10.77.0.2".parse().unwrap());
        assert_eq!(inside, "nameserver 10.77.0.2\noptions edns0\nsearch a.example b.example\n");
    }
}
