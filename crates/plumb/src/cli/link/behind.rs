//! `plumb link … -- COMMAND`: one command, or a shell, behind a link.
//!
//! The program runs three times: a keeper, which only waits and passes signals on; a companion, which
//! stays in the outer network and makes the gateway's sockets there; and inside, in a tree of
//! processes that the kernel ends as one, the link with the command. Left out: what is printed at
//! the end (`super::finish`).

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
use plumb_host::clock::{Stopwatch, Timeline, monotonic_ns};
use plumb_host::emulate::{self, Interface};
use plumb_host::gateway::{self, Gateway, Outside, Resolvers, Targets};
use plumb_host::harness::remote::{OUTER_ADDRESS, OUTER_CONTROL, OUTER_FAR, OUTER_LINK};
use plumb_host::lab::{
    self, Companion, Contained, Doors, Ended, LinkOptions, Registry, Signals, TestBed,
};
use plumb_link::link::Link;
use plumb_link::schedule::Schedule;
use plumb_link::spec::LinkSpec;
use plumb_wire::medium::Medium;

use super::finish::{Finish, check_writable, finish};
use super::shape::Shape;
use super::ways::Ways;
use super::words_inside;
use crate::cli::output::{Failure, Output, stderr_line};
use crate::link::account::{self, About};
use crate::link::control::Desk;
use crate::link::course::{Asked, Course, Handle};
use crate::link::live::Live;
use crate::link::names;
use crate::link::room::Room;
use crate::link::trouble::Troubles;
use crate::problem::{Exit, Problem};
use crate::recording::check_apart;

/// How often the line on standard error changes.
const LIVE_EVERY: Duration = Duration::from_millis(500);
/// How long a command may take that is asked to end because the link has.
const OBEY_MAX: Duration = Duration::from_secs(5);
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
pub struct Behind {
    #[command(flatten)]
    shape: Shape,
    #[command(flatten)]
    ways: Ways,
    /// No way out: the far end is all that can be reached
    #[arg(long, help_heading = "How it runs")]
    isolated: bool,
    /// Print what the link did, at the end, on standard error
    #[arg(long, help_heading = "How it runs")]
    stats: bool,
    /// Write what the link did as JSON
    #[arg(long, value_name = "FILE", help_heading = "How it runs")]
    report: Option<PathBuf>,
    /// What others call it: plumb link set NAME … [default: the number of this process]
    #[arg(long, value_name = "NAME", help_heading = "How it runs")]
    name: Option<String>,
    /// What to run [default: $SHELL]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    #[command(flatten)]
    inside: Inside,
}

/// What the keeper gives to the process inside.
#[derive(Clone, Debug, Default, Args)]
pub struct Inside {
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

impl Behind {
    /// Makes the link, runs the command behind it, and removes everything.
    ///
    /// # Errors
    /// No such link, no namespaces, no TUN, or no such command.
    pub fn perform(self, output: &Output) -> Result<Exit, Failure> {
        let spec = self.shape.spec()?;
        let plan = Plan::new(&spec, &self.ways, 1)?;
        match self.inside.inside {
            Some(lifeline) => self.run_inside(spec, plan, lifeline, output),
            None => Ok(exit(self.keep(&plan)?)),
        }
    }

    /// The keeper: everything that must be done outside, then waiting.
    fn keep(&self, plan: &Plan) -> Result<ExitStatus, Problem> {
        if let Some(name) = &self.name {
            Registry::check(name)?;
        }
        if let Some(path) = &self.report {
            check_writable(path)?;
            check_apart("report", path, plan.files.iter().map(PathBuf::as_path))?;
        }
        let registry = Registry::of_user()?;
        registry.remove_stale();
        let cannot =
            |error| Problem::trouble("cannot start the gateway's companion").because(error);
        let companion = if self.isolated { None } else { Some(Companion::start("__outside")) };
        let companion = companion.transpose().map_err(cannot)?;
        let socket = companion.as_ref().map(Companion::give_on).transpose().map_err(cannot)?;
        let words = |lifeline: RawFd| {
            let mut more: Vec<OsString> = vec![
                format!("--inside={lifeline}").into(),
                format!("--keeper={}", std::process::id()).into(),
                "--registry".into(),
                registry.path().into(),
            ];
            more.extend(socket.map(|socket| format!("--outside={socket}").into()));
            words_inside(more)
        };
        lab::contain(Signals::PassOn, words).map_err(Problem::from)
    }

    /// The link and the command, as the root of the tree that the keeper started.
    fn run_inside(
        &self,
        spec: LinkSpec,
        plan: Plan,
        lifeline: RawFd,
        output: &Output,
    ) -> Result<Exit, Failure> {
        let contained = Contained::begin(lifeline, Signals::PassOn).map_err(Problem::from)?;
        let mut flags = self.ways.warnings();
        flags.extend(plan.remarks.iter().cloned());
        let timeline = Timeline::begin(Stopwatch::new(None));
        let options = LinkOptions { mtu: plan.mtu, offloads: true, neighbours: true };
        let (bed, [near, far]) = emulate::taps(options).map_err(of_taps)?;
        let interfaces = vec![
            Interface::watch(bed.a(), TestBed::NEAR_DEVICE).map_err(Problem::from)?,
            Interface::watch(far_side(&bed)?, TestBed::FAR_DEVICE).map_err(Problem::from)?,
        ];
        let told = output.clone();
        let troubles = Troubles::told(move |text| told.remark(text));
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
        let mut course = Course::start(
            |spec, start| Link::new(spec, Medium::Ethernet, start).map_err(|error| of_spec(&error)),
            Asked { spec, schedule: plan.schedule, room: plan.room },
            vec![near, far],
            interfaces,
            timeline,
            self.ways.options(),
            self.ways.seats(),
        )?;
        let about = Arc::new(About {
            name: self.name_inside(),
            command: self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            hosts: vec!["near".to_owned(), "far".to_owned()],
            began_ns: course.began_ns(),
            gateway: gateway.clone(),
            flags,
            troubles,
        });
        course.on_early_end(end_command)?;
        let published = self.publish(&course.handle(), &about, &bed)?;
        if self.command.is_empty() {
            output.remark(&welcome(&about, &link, &bed, self.inside.outside.is_some()));
        }
        let mut command = self.command_inside(&link, &bed, &contained, output.json);
        if let Some(published) = &published {
            command.env(OUTER_CONTROL, published.path());
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
            account::document(&about, &state, Some((i32::from(exit.code()), ended.left)));
        let wishes = Finish { stats: self.stats, report: self.report.as_deref() };
        finish(&document, &wishes, output)?;
        Ok(exit)
    }

    fn name_inside(&self) -> String {
        let number = self.inside.keeper.unwrap_or_else(std::process::id);
        self.name.clone().unwrap_or_else(|| number.to_string())
    }

    /// Listens to other processes under the link's name.
    fn publish(
        &self,
        handle: &Handle<Link>,
        about: &Arc<About>,
        bed: &TestBed,
    ) -> Result<Option<lab::Published>, Problem> {
        let (Some(path), Some(keeper)) = (&self.inside.registry, self.inside.keeper) else {
            return Ok(None);
        };
        let published = Registry::at(path.clone()).publish(&about.name, keeper)?;
        let doors = vec![
            ("near".to_owned(), Doors::here(bed.a()).map_err(Problem::from)?),
            ("far".to_owned(), Doors::here(far_side(bed)?).map_err(Problem::from)?),
        ];
        let (shown, about_shown) = (handle.clone(), Arc::clone(about));
        let desk = Desk {
            talk: Box::new(handle.clone()),
            doors,
            show: Box::new(move || Some(account::document(&about_shown, &shown.state()?, None))),
            down: Box::new(lab::end_heir),
        };
        desk.open(&published.listener)
            .map_err(|error| Problem::trouble("cannot listen to other processes").because(error))?;
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
        contained: &Contained,
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
        command.env(OUTER_LINK, link);
        command.env(OUTER_ADDRESS, far.join(","));
        if let Some(far) = bed.b() {
            let process = if contained.has_own_proc { 1 } else { contained.process_outside };
            command.env(OUTER_FAR, format!("/proc/{process}/fd/{}", far.as_fd().as_raw_fd()));
        }
        if json {
            // Standard output is the document's alone.
            command.stdout(Stdio::from(io::stderr()));
        }
        command
    }

    fn start_live(&self, handle: &Handle<Link>, about: &About, output: &Output) -> Option<Ticker> {
        let wanted = output.progress && !self.command.is_empty() && io::stderr().is_terminal();
        if !wanted {
            return None;
        }
        let (handle, output, began_ns) = (handle.clone(), output.clone(), about.began_ns);
        // What the command writes, or asks for, must stay as it is.
        let is_shared = io::stdout().is_terminal();
        let mut live = Live::default();
        let mut drawn = false;
        Ticker::start(LIVE_EVERY, move |last| {
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
struct Ticker {
    stop: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Ticker {
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
    lab::end_heir();
    // Nobody ever says anything: this waits, and the process ends meanwhile where the command obeys.
    let (_held, silent) = std::sync::mpsc::channel::<()>();
    silent.recv_timeout(OBEY_MAX).ok();
    lab::end_others();
}

/// Runs the command in the near side, and ends what it leaves.
fn run(
    contained: &Contained,
    bed: &TestBed,
    mut command: Command,
    program: &OsStr,
) -> Result<Ended, Problem> {
    let start = || command.spawn().map(|child| child.id());
    // This thread waits inside the near side, so that the process is found there from outside.
    let ended = bed.in_a(|| contained.run(start)).map_err(Problem::from)?;
    ended.map_err(|error| not_started(program, &error))
}

/// A command that there is not, or that may not be run.
pub fn not_started(program: &OsStr, error: &io::Error) -> Problem {
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE };
    let name = program.to_string_lossy().into_owned();
    let problem = Problem::usage(format!("cannot start '{name}' behind the link"))
        .because(error)
        .fix("check the name; behind the link are the same files as before it");
    Problem { exit: Exit::Command(code), ..problem }
}

/// Puts the gateway behind the far device, and its resolver into everybody's sight.
fn open_gateway(
    bed: &TestBed,
    socket: RawFd,
    far: plumb_host::device::tap::Tap,
    flags: &mut Vec<String>,
) -> Result<(Gateway, gateway::Gate<plumb_host::device::tap::Tap>), Problem> {
    let cannot = |error| Problem::trouble("cannot join the gateway's companion").because(error);
    let outside = Outside::new(lab::adopt(socket).map_err(cannot)?);
    bed.open_far_to_all().map_err(Problem::from)?;
    let conf = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let addresses: Vec<IpAddr> = bed.addresses().map(|(_, far, _)| far).collect();
    let tap = far.as_fd().try_clone_to_owned().map_err(cannot)?;
    let settings = gateway::Settings {
        inside: far_side(bed)?.try_clone().map_err(Problem::from)?,
        tap,
        outside,
        targets: Targets { far: addresses, resolvers: Resolvers::of(&conf) },
    };
    if let Err(error) = show_resolver(&names::resolv_conf(&conf, TestBed::FAR_V4.into())) {
        flags.push(format!("names cannot be looked up behind the link: {error}"));
    }
    Gateway::start(settings, far)
        .map_err(|error| Problem::from_message(&error.to_string(), Exit::Trouble))
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
                said: String::new(),
            })
        }
        _ => lab::show_text(place, text),
    }
}

/// What follows from a link's description, found out before anything is made.
#[derive(Debug)]
pub struct Plan {
    /// Of the devices.
    pub mtu: u32,
    /// For the frames.
    pub room: Room,
    /// What a reader must know about what was asked for.
    pub remarks: Vec<String>,
    /// What the link becomes.
    pub schedule: Option<Schedule>,
    /// The files that all this was read from.
    pub files: Vec<PathBuf>,
}

impl Plan {
    /// For a network of so many lines.
    ///
    /// # Errors
    /// No room for it, or a schedule that cannot be read.
    pub fn new(spec: &LinkSpec, ways: &Ways, lines: u64) -> Result<Self, Problem> {
        let schedule = ways.schedule(spec)?;
        let later = schedule.iter().flat_map(|schedule| &schedule.links);
        let specs: Vec<&LinkSpec> = std::iter::once(spec).chain(later).collect();
        let mtu = specs.iter().map(|spec| device_mtu(spec)).max().unwrap_or(MTU);
        let mut remarks: Vec<String> = Vec::new();
        for remark in specs.iter().flat_map(|spec| spec.remarks()) {
            if !remarks.contains(&remark) {
                remarks.push(remark);
            }
        }
        let room = Room::new(&specs, mtu, lines).map_err(|error| of_spec(&error))?;
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

fn far_side(bed: &TestBed) -> Result<&lab::Namespace, Problem> {
    bed.b().ok_or_else(|| Problem::trouble("the far side of the link has no namespace"))
}

fn welcome(about: &About, link: &str, bed: &TestBed, has_gateway: bool) -> String {
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
pub fn exit(status: ExitStatus) -> Exit {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(Exit::Trouble, Exit::Command)
}

/// A pair of TAPs that cannot be had.
pub fn of_taps(error: emulate::TapsError) -> Problem {
    match error {
        emulate::TapsError::Lab(error) => error.into(),
        emulate::TapsError::Tap(error) => {
            Problem::trouble("there can be no link here").because(error)
        }
    }
}

/// A link that cannot be.
pub fn of_spec(error: &plumb_link::spec::SpecError) -> Problem {
    Problem::from_message(&error.to_string(), Exit::Usage)
}
