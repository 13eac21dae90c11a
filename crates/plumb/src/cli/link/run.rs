//! `plumb link … -- COMMAND`: one command, or a shell, behind a link.
//!
//! The program runs three times: a keeper, which only waits and passes signals on; a companion, which
//! stays in the outer network and makes the gateway's sockets there; and inside, in a tree of
//! processes that the kernel ends as one, the link with the command.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::process::ExitStatusExt;
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
use plumb_link::link::Link;
use plumb_link::schedule::LinkSchedule;
use plumb_link::spec::LinkSpec;
use plumb_netdev::emulator::{self, InterfaceDropCounter};
use plumb_netdev::gateway::{self, AddressMap, Gateway, OutsideSockets, ResolverConfig};
use plumb_netdev::lab::{
    self, InitExit, LinkRegistry, NamespaceFds, OutsideProcess, PidNamespaceInit, SignalPolicy,
    TestBed, TestBedOptions,
};
use plumb_wire::machine::Medium;

use super::inner_arguments;
use super::options::{LinkDriverOptions, LinkShapeOptions};
use super::options::{LinkOutputOptions, check_writable, finish};
use crate::cli::output::{CliOutput, CommandError, stderr_line};
use crate::link::control::LinkControlServer;
use crate::link::document::LinkStatusLine;
use crate::link::document::{self, LinkDescription};
use crate::link::running_link;
use crate::link::running_link::FrameMemory;
use crate::link::running_link::LinkProblems;
use crate::link::running_link::{LinkHandle, LinkSetup, RunningLink};
use crate::problem::{ExitReason, Problem};
use crate::recording::refuse_overwrite;

/// How often the line on standard error changes.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);
/// How long a command may take that is asked to end because the link has.
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(5);
/// What the shells of the world say of a command that they do not find.
const NOT_FOUND: u8 = 127;
/// The same of one that may not be run.
const NOT_RUNNABLE: u8 = 126;
/// What Ethernet carries where nobody says otherwise.
const MTU: u32 = 1_500;
/// Where names are looked up by other ways than by asking a resolver.
const OTHER_RESOLVERS: [&str; 2] = ["/run/systemd/resolve", "/run/nscd"];

/// A command behind a link.
#[derive(Clone, Debug, Args)]
pub struct LinkRunOptions {
    #[command(flatten)]
    shape: LinkShapeOptions,
    #[command(flatten)]
    ways: LinkDriverOptions,
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
    /// What to run [default: $SHELL]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    #[command(flatten)]
    inside: InnerProcessOptions,
}

/// What the keeper gives to the process inside.
#[derive(Clone, Debug, Default, Args)]
pub struct InnerProcessOptions {
    /// What the root of the tree holds its keeper by: this is the process inside
    #[arg(long, hide = true, value_name = "FD")]
    pub inside: Option<RawFd>,
    /// The socket of the gateway's companion
    #[arg(long, hide = true, value_name = "FD")]
    pub outside: Option<RawFd>,
    /// The directory of names
    #[arg(long, hide = true, value_name = "PATH")]
    pub registry: Option<PathBuf>,
    /// The number of the keeper
    #[arg(long, hide = true, value_name = "PID")]
    pub keeper: Option<u32>,
}

impl LinkRunOptions {
    /// Makes the link, runs the command behind it, and removes everything.
    ///
    /// # Errors
    /// No such link, no namespaces, no TUN, or no such command.
    pub fn perform(self, output: &CliOutput) -> Result<ExitReason, CommandError> {
        let spec = self.shape.spec()?;
        let plan = LinkRunPlan::new(&spec, &self.ways, 1)?;
        match self.inside.inside {
            Some(lifeline) => self.run_inside(spec, plan, lifeline, output),
            None => Ok(exit(self.run_outer(&plan)?)),
        }
    }

    /// The keeper: everything that must be done outside, then waiting.
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
        let cannot =
            |error| Problem::failure("cannot start the gateway's companion").because(error);
        let helper = |socket| HiddenCommand::GatewayHelper(socket).arguments();
        let companion = if self.isolated { None } else { Some(OutsideProcess::start(helper)) };
        let companion = companion.transpose().map_err(cannot)?;
        let socket =
            companion.as_ref().map(OutsideProcess::make_inheritable).transpose().map_err(cannot)?;
        let words = |lifeline: RawFd| {
            let mut more: Vec<OsString> = vec![
                format!("--inside={lifeline}").into(),
                format!("--keeper={}", std::process::id()).into(),
                "--registry".into(),
                registry.path().into(),
            ];
            more.extend(socket.map(|socket| format!("--outside={socket}").into()));
            inner_arguments(more)
        };
        lab::run_in_pid_namespace(SignalPolicy::Forward, words).map_err(Problem::from)
    }

    /// The link and the command, as the root of the tree that the keeper started.
    fn run_inside(
        &self,
        spec: LinkSpec,
        plan: LinkRunPlan,
        lifeline: RawFd,
        output: &CliOutput,
    ) -> Result<ExitReason, CommandError> {
        let contained = PidNamespaceInit::become_init(lifeline, SignalPolicy::Forward)
            .map_err(Problem::from)?;
        let mut flags = self.ways.warnings();
        flags.extend(plan.remarks.iter().cloned());
        let timeline = InstantClock::begin(Stopwatch::new(None));
        let options = TestBedOptions { mtu: plan.mtu, offloads: true, neighbors: true };
        let (bed, [near, far]) = emulator::tap_pair(options).map_err(tap_problem)?;
        let interfaces = vec![
            InterfaceDropCounter::watch(bed.near(), TestBed::NEAR_DEVICE).map_err(Problem::from)?,
            InterfaceDropCounter::watch(far_side(&bed)?, TestBed::FAR_DEVICE)
                .map_err(Problem::from)?,
        ];
        let told = output.clone();
        let troubles = LinkProblems::reporting_to(move |text| told.note(text));
        let taken: Vec<PathBuf> = plan.files.iter().chain(&self.report).cloned().collect();
        let near = self.ways.near(near, &taken, timeline, &troubles)?;
        let (gateway, far) = match self.inside.outside {
            Some(socket) => {
                let (gateway, gate) = open_gateway(&bed, socket, far, &mut flags)?;
                (Some(Arc::new(gateway)), self.ways.far(gate, &taken, timeline, &troubles)?)
            }
            None => (None, self.ways.far(far, &taken, timeline, &troubles)?),
        };
        let link = spec.to_string();
        let mut course = RunningLink::start(
            |spec, start| {
                Link::new(spec, Medium::Ethernet, start).map_err(|error| spec_problem(&error))
            },
            LinkSetup { spec, schedule: plan.schedule, memory: plan.room },
            vec![near, far],
            interfaces,
            timeline,
            self.ways.options(),
            self.ways.dedicated_cpu(),
        )?;
        let about = self.describe(course.began_ns(), gateway, flags, troubles);
        course.on_early_end(end_command)?;
        let published = self.publish(&course.handle(), &about, &bed)?;
        if self.command.is_empty() {
            output.note(&welcome(&about, &link, &bed, self.inside.outside.is_some()));
        }
        let mut command = self.command_inside(&link, &bed, &contained, output.json);
        if let Some(published) = &published {
            command.env(OUTER_CONTROL_ENV, published.path());
        }
        let live = self.start_live(&course.handle(), &about, output);
        let ended = run(&contained, &bed, command, &self.program());
        if let Some(live) = live {
            live.stop();
        }
        drop(published);
        let state = course.finish()?;
        let ended = ended?;
        let exit = exit(ended.status);
        let document =
            document::document(&about, &state, Some((i32::from(exit.code()), ended.killed)));
        let wishes = LinkOutputOptions { stats: self.stats, report: self.report.as_deref() };
        finish(&document, &wishes, output)?;
        Ok(exit)
    }

    /// What is told of the link, now and at the end.
    fn describe(
        &self,
        began_ns: u64,
        gateway: Option<Arc<Gateway>>,
        flags: Vec<String>,
        problems: LinkProblems,
    ) -> Arc<LinkDescription> {
        Arc::new(LinkDescription {
            name: self.name_inside(),
            command: self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            hosts: vec!["near".to_owned(), "far".to_owned()],
            began_ns,
            gateway,
            flags,
            problems,
        })
    }

    fn name_inside(&self) -> String {
        let number = self.inside.keeper.unwrap_or_else(std::process::id);
        self.name.clone().unwrap_or_else(|| number.to_string())
    }

    /// Listens to other processes under the link's name.
    fn publish(
        &self,
        handle: &LinkHandle<Link>,
        about: &Arc<LinkDescription>,
        bed: &TestBed,
    ) -> Result<Option<lab::RegisteredName>, Problem> {
        let (Some(path), Some(keeper)) = (&self.inside.registry, self.inside.keeper) else {
            return Ok(None);
        };
        let published = LinkRegistry::at(path.clone()).register(&about.name, keeper)?;
        let doors = vec![
            ("near".to_owned(), NamespaceFds::of_this_process(bed.near()).map_err(Problem::from)?),
            (
                "far".to_owned(),
                NamespaceFds::of_this_process(far_side(bed)?).map_err(Problem::from)?,
            ),
        ];
        let (shown, about_shown) = (handle.clone(), Arc::clone(about));
        let desk = LinkControlServer {
            link: Box::new(handle.clone()),
            namespaces: doors,
            document: Box::new(move || {
                Some(document::document(&about_shown, &shown.state()?, None))
            }),
            stop: Box::new(lab::terminate_command),
        };
        desk.spawn(&published.listener)
            .map_err(|error| Problem::failure("cannot listen to other processes").because(error))?;
        Ok(Some(published))
    }

    fn program(&self) -> OsString {
        let shell = || std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
        self.command.first().cloned().unwrap_or_else(shell)
    }

    /// The user's command or shell, which finds this very plumb by its name, and the link in its
    /// environment.
    fn command_inside(
        &self,
        link: &str,
        bed: &TestBed,
        contained: &PidNamespaceInit,
        json: bool,
    ) -> Command {
        let mut command = Command::new(self.program());
        command.args(self.command.iter().skip(1));
        let own = std::env::current_exe().ok();
        if let Some(directory) = own.as_deref().and_then(Path::parent) {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let places = std::iter::once(directory.to_owned()).chain(std::env::split_paths(&path));
            if let Ok(path) = std::env::join_paths(places) {
                command.env("PATH", path);
            }
        }
        let far: Vec<String> = bed.addresses().map(|(_, far, _)| far.to_string()).collect();
        command.env(OUTER_LINK_ENV, link);
        command.env(OUTER_FAR_ADDRESSES_ENV, far.join(","));
        if let Some(far) = bed.far() {
            let process = if contained.has_own_proc { 1 } else { contained.outer_pid };
            command.env(
                OUTER_FAR_NAMESPACE_ENV,
                format!("/proc/{process}/fd/{}", far.as_fd().as_raw_fd()),
            );
        }
        if json {
            // Standard output is the document's alone.
            command.stdout(Stdio::from(io::stderr()));
        }
        command
    }

    fn start_live(
        &self,
        handle: &LinkHandle<Link>,
        about: &LinkDescription,
        output: &CliOutput,
    ) -> Option<StatusTicker> {
        let wanted = output.progress && !self.command.is_empty() && io::stderr().is_terminal();
        if !wanted {
            return None;
        }
        let (handle, output, began_ns) = (handle.clone(), output.clone(), about.began_ns);
        // What the command writes, or asks for, must stay as it is.
        let is_shared = io::stdout().is_terminal();
        let mut live = LinkStatusLine::default();
        let mut drawn = false;
        StatusTicker::start(STATUS_INTERVAL, move |last| {
            let state = if last { None } else { handle.state() };
            let width = output.style_stderr.width;
            let line = state.map(|state| live.line(monotonic_ns() - began_ns, &state, width));
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
}

/// Calls something again and again on a thread of its own, and once more at the end.
#[derive(Debug)]
struct StatusTicker {
    stop: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl StatusTicker {
    /// `None` where there are no more threads: nobody needs the line.
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

/// Ends the command of a link that has ended: nothing that it waits for can come any more.
fn end_command(why: &str) {
    stderr_line(&format!("the link has ended ({why}), and ends its command"));
    lab::terminate_command();
    // Nobody ever says anything: this waits, and the process ends meanwhile where the command obeys.
    let (_held, silent) = std::sync::mpsc::channel::<()>();
    silent.recv_timeout(TERMINATE_TIMEOUT).ok();
    lab::kill_others();
}

/// Runs the command in the near side, and ends what it leaves.
fn run(
    contained: &PidNamespaceInit,
    bed: &TestBed,
    mut command: Command,
    program: &OsStr,
) -> Result<InitExit, Problem> {
    let start = || command.spawn().map(|child| child.id());
    // This thread waits inside the near side, so that the process is found there from outside.
    let ended = bed.in_near(|| contained.run(start)).map_err(Problem::from)?;
    ended.map_err(|error| not_started(program, &error))
}

/// A command that there is not, or that may not be run.
pub fn not_started(program: &OsStr, error: &io::Error) -> Problem {
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE };
    let name = program.to_string_lossy().into_owned();
    let problem = Problem::usage(format!("cannot start '{name}' behind the link"))
        .because(error)
        .fix("check the name; behind the link are the same files as before it");
    Problem { exit: ExitReason::Command(code), ..problem }
}

/// Puts the gateway behind the far device, and its resolver into everybody's sight.
fn open_gateway(
    bed: &TestBed,
    socket: RawFd,
    far: plumb_netdev::device::tap::TapDevice,
    flags: &mut Vec<String>,
) -> Result<(Gateway, gateway::GatewayDevice<plumb_netdev::device::tap::TapDevice>), Problem> {
    let cannot = |error| Problem::failure("cannot join the gateway's companion").because(error);
    let outside = OutsideSockets::new(lab::adopt_fd(socket).map_err(cannot)?);
    bed.route_all_to_far().map_err(Problem::from)?;
    let conf = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let addresses: Vec<IpAddr> = bed.addresses().map(|(_, far, _)| far).collect();
    let tap = far.as_fd().try_clone_to_owned().map_err(cannot)?;
    let settings = gateway::GatewayOptions {
        inside: far_side(bed)?.try_clone().map_err(Problem::from)?,
        tap,
        outside,
        targets: AddressMap { far: addresses, resolvers: ResolverConfig::of(&conf) },
    };
    if let Err(error) = show_resolver(&running_link::resolv_conf(&conf, TestBed::FAR_V4.into())) {
        flags.push(format!("names cannot be looked up behind the link: {error}"));
    }
    Gateway::start(settings, far)
        .map_err(|error| Problem::from_message(&error.to_string(), ExitReason::Failure))
}

/// Shows a resolv.conf to the whole tree, and hides the other ways of looking names up.
fn show_resolver(text: &str) -> Result<(), lab::LabError> {
    let place = Path::new("/etc/resolv.conf");
    let target = std::fs::canonicalize(place);
    for directory in OTHER_RESOLVERS {
        lab::hide_directory(Path::new(directory))?;
    }
    match target {
        // It was in a directory that is hidden now, and is empty and this tree's own.
        Ok(target) if !target.exists() => {
            std::fs::write(&target, text).map_err(|source| lab::LabError::Refused {
                what: format!("write {}", target.display()),
                source,
                kernel_message: String::new(),
            })
        }
        _ => lab::mount_text_over(place, text),
    }
}

/// What follows from a link's description, found out before anything is made.
#[derive(Debug)]
pub struct LinkRunPlan {
    /// Of the devices.
    pub mtu: u32,
    /// For the frames.
    pub room: FrameMemory,
    /// What a reader must know about what was asked for.
    pub remarks: Vec<String>,
    /// What the link becomes.
    pub schedule: Option<LinkSchedule>,
    /// The files that all this was read from.
    pub files: Vec<PathBuf>,
}

impl LinkRunPlan {
    /// For a network of so many lines.
    ///
    /// # Errors
    /// No room for it, or a schedule that cannot be read.
    pub fn new(spec: &LinkSpec, ways: &LinkDriverOptions, lines: u64) -> Result<Self, Problem> {
        let schedule = ways.schedule(spec)?;
        let later = schedule.iter().flat_map(|schedule| &schedule.links);
        let specs: Vec<&LinkSpec> = std::iter::once(spec).chain(later).collect();
        let mtu = specs.iter().map(|spec| device_mtu(spec)).max().unwrap_or(MTU);
        let mut remarks: Vec<String> = Vec::new();
        for remark in specs.iter().flat_map(|spec| spec.warnings()) {
            if !remarks.contains(&remark) {
                remarks.push(remark);
            }
        }
        let room = FrameMemory::new(&specs, mtu, lines).map_err(|error| spec_problem(&error))?;
        let files = ways.files_read(&specs);
        Ok(Self { mtu, room, remarks, schedule, files })
    }
}

/// The MTU of the devices: what the outermost hops carry, where that is more than usual.
fn device_mtu(spec: &LinkSpec) -> u32 {
    mtus(spec).max().unwrap_or(0).max(MTU)
}

/// Those that were given.
fn mtus(spec: &LinkSpec) -> impl Iterator<Item = u32> {
    let directions = spec.hops.iter().flat_map(|hop| [&hop.up, &hop.down]);
    directions.filter_map(|direction| direction.mtu).map(|mtu| mtu.bytes)
}

fn far_side(bed: &TestBed) -> Result<&lab::NetNamespace, Problem> {
    bed.far().ok_or_else(|| Problem::failure("the far side of the link has no namespace"))
}

fn welcome(about: &LinkDescription, link: &str, bed: &TestBed, has_gateway: bool) -> String {
    let list = |address: &dyn Fn((IpAddr, IpAddr, u8)) -> String| {
        bed.addresses().map(address).collect::<Vec<_>>().join("  ")
    };
    let name = &about.name;
    let mut lines = vec![
        "a shell behind a link: all of it ends with this shell".to_owned(),
        String::new(),
        format!("  link   {link}"),
        format!("  here   {}  on plumb0", list(&|(near, _, bits)| format!("{near}/{bits}"))),
        format!("  far    {}", list(&|(_, far, bits)| format!("{far}/{bits}"))),
    ];
    lines.push(if has_gateway {
        "         which is this machine's loopback; TCP and UDP reach the network outside"
            .to_owned()
    } else {
        "         and nothing beyond".to_owned()
    });
    lines.push(String::new());
    lines.push(format!("  try                  ping {}", TestBed::FAR_V4));
    lines.push(format!("  change it            plumb link set {name} --loss 1%"));
    lines.push(format!("  what it does         plumb link show {name}"));
    lines.push("  leave                exit".to_owned());
    lines.join("\n")
}

/// A command's end as this program's own, as a shell would put it.
pub fn exit(status: ExitStatus) -> ExitReason {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitReason::Failure, ExitReason::Command)
}

/// A pair of TAPs that cannot be had.
pub fn tap_problem(error: emulator::TapPairError) -> Problem {
    match error {
        emulator::TapPairError::Lab(error) => error.into(),
        emulator::TapPairError::Tap(error) => {
            Problem::failure("there can be no link here").because(error)
        }
    }
}

/// A link that cannot be.
pub fn spec_problem(error: &plumb_link::spec::SpecError) -> Problem {
    Problem::from_message(&error.to_string(), ExitReason::Usage)
}
