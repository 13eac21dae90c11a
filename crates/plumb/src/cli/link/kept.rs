//! `plumb link up|exec`: a lab that stays until it is taken down, and commands on its hosts.
//!
//! The lab is held by a process without a terminal, whose root is process 1 of everything on its
//! hosts. Left out: talking to it otherwise (`super::running`).

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::RawFd;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;

use clap::Args;
use plumb_host::clock::{Stopwatch, Timeline};
use plumb_host::device::Wait;
use plumb_host::device::tap::{Offload, Settings, Tap};
use plumb_host::emulate::Interface;
use plumb_host::harness::remote::OUTER_LINK;
use plumb_host::lab::{
    self, Contained, Doors, Host, LinkOptions, Published, Registry, Signals, show_text,
};
use plumb_link::link::Link;
use plumb_link::network::Network;
use plumb_link::spec::LinkSpec;
use plumb_link::switch::Switch;
use plumb_wire::medium::Medium;

use super::behind::{Inside, Plan, exit, of_spec};
use super::shape::Shape;
use super::ways::Ways;
use super::words_inside;
use crate::cli::output::{Failure, Output};
use crate::link::account::{self, About};
use crate::link::control::{Answer, Desk, Question, ask};
use crate::link::course::{Asked, Course, Talk};
use crate::link::names;
use crate::link::trouble::Troubles;
use crate::problem::{Exit, Problem};

/// What a lab says when it is there.
const READY: &str = "ready\n";

/// Make a lab of hosts joined by a link, or from three on by a switch, that stays until it is taken
/// down
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Each host has a network of its own with device plumb0: 10.77.0.1 and fd77::1 on the first, and so on.
Hosts find each other by name. With a switch, every host has a link of that kind to the switch.

Examples:
  plumb link up lab --hosts a,b --rate 10mbit --delay 25ms
  plumb link exec lab b -- iperf3 -s &
  plumb link exec lab a -- iperf3 -c b
  plumb link set lab --loss 1%
  plumb link down lab")]
pub struct Up {
    /// What it is called
    name: String,
    /// The hosts, at least two: a,b,c
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    hosts: Vec<String>,
    #[command(flatten)]
    shape: Shape,
    #[command(flatten)]
    ways: Ways,
    #[command(flatten)]
    inside: Inside,
}

impl Up {
    /// Makes it, and returns when it is there.
    ///
    /// # Errors
    /// The name is taken, the hosts are not good ones, or there can be no lab.
    pub fn perform(self, output: &Output) -> Result<Exit, Failure> {
        self.check_hosts()?;
        let spec = self.shape.spec()?;
        let lines = self.hosts.len() as u64;
        let plan = Plan::new(&spec, &self.ways, if lines == 2 { 1 } else { lines })?;
        match (self.inside.inside, self.inside.keeper) {
            (Some(lifeline), _) => self.run_inside(spec, plan, lifeline, output),
            (None, Some(_)) => Ok(exit(Self::keep()?)),
            (None, None) => self.start(&spec, output),
        }
    }

    fn check_hosts(&self) -> Result<(), Problem> {
        let count = self.hosts.len();
        if !(2..=Host::MOST).contains(&count) {
            return Err(Problem::usage(format!(
                "a lab has 2 to {} hosts, not {count}",
                Host::MOST
            ))
            .fix("name them: --hosts a,b"));
        }
        let fit = |name: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
            name.starts_with(|c: char| c.is_ascii_alphanumeric())
                && name.len() <= 63
                && name.chars().all(plain)
                && name != "localhost"
        };
        if let Some(name) = self.hosts.iter().find(|name| !fit(name)) {
            return Err(Problem::usage(format!("'{name}' is no name for a host"))
                .fix("use letters, digits and '-', as in --hosts client,server"));
        }
        let mut sorted: Vec<&String> = self.hosts.iter().collect();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Problem::usage(format!("two hosts are called '{}'", pair[0]))
                .fix("give each a name of its own")),
            None => Ok(()),
        }
    }

    /// Starts the keeper, and waits until the lab is there.
    fn start(&self, spec: &LinkSpec, output: &Output) -> Result<Exit, Failure> {
        let registry = Registry::of_user().map_err(Problem::from)?;
        registry.remove_stale();
        if registry.names().contains(&self.name) {
            return Err(Problem::from(lab::RegistryError::Taken(self.name.clone())).into());
        }
        Registry::check(&self.name).map_err(Problem::from)?;
        let cannot = |error| Problem::trouble("cannot start the lab").because(error);
        let (mut said, say) = io::pipe().map_err(cannot)?;
        let mut keeper = Command::new(std::env::current_exe().map_err(cannot)?)
            .args(words_inside(vec![
                format!("--keeper={}", std::process::id()).into(),
                "--registry".into(),
                registry.path().into(),
            ]))
            .stdin(Stdio::null())
            .stdout(say.try_clone().map_err(cannot)?)
            .stderr(say)
            .spawn()
            .map_err(cannot)?;
        let mut text = String::new();
        let mut buffer = [0; 4_096];
        while !text.ends_with(READY) {
            match said.read(&mut buffer).map_err(cannot)? {
                0 => break,
                len => text += &String::from_utf8_lossy(&buffer[..len]),
            }
        }
        let is_ready = text.ends_with(READY);
        let words = text.strip_suffix(READY).unwrap_or(&text).trim_end();
        if is_ready {
            if !words.is_empty() {
                output.remark(words);
            }
            let hosts = self.hosts.join(", ");
            output.remark(&format!(
                "{} is up: {hosts}, joined by {spec}\n  try    plumb link exec {} {} -- ping -c 3 {}\n  \
                 end    plumb link down {}",
                self.name, self.name, self.hosts[0], self.hosts[1], self.name
            ));
            return Ok(Exit::Fine);
        }
        let status = keeper.wait().map_err(cannot)?;
        crate::cli::output::stderr_line(words);
        Ok(exit(status))
    }

    /// The keeper: leaves the terminal, and waits.
    fn keep() -> Result<ExitStatus, Problem> {
        lab::leave_session()
            .map_err(|error| Problem::trouble("cannot leave the terminal").because(error))?;
        let words = |lifeline: RawFd| vec![OsString::from(format!("--inside={lifeline}"))];
        lab::contain(Signals::Obey, |lifeline| words_inside(words(lifeline))).map_err(Problem::from)
    }

    /// The lab, as the root of everything that will run in it.
    fn run_inside(
        &self,
        spec: LinkSpec,
        plan: Plan,
        lifeline: RawFd,
        output: &Output,
    ) -> Result<Exit, Failure> {
        let contained = Contained::begin(lifeline, Signals::Obey).map_err(Problem::from)?;
        let medium = Medium::Ethernet;
        if self.hosts.len() == 2 {
            let make = |spec: &LinkSpec, start| Link::new(spec, medium, start);
            return self.run_network(spec, plan, &contained, make, output);
        }
        let lines = self.hosts.len();
        let make = |spec: &LinkSpec, start| Switch::new(&vec![spec.clone(); lines], start);
        self.run_network(spec, plan, &contained, make, output)
    }

    fn run_network<N: Network + Send + 'static>(
        &self,
        spec: LinkSpec,
        plan: Plan,
        contained: &Contained,
        make: impl FnOnce(
            &LinkSpec,
            plumb_base::time::Instant,
        ) -> Result<N, plumb_link::spec::SpecError>,
        output: &Output,
    ) -> Result<Exit, Failure> {
        let options = LinkOptions { mtu: plan.mtu, offloads: true, neighbours: true };
        let mut flags = self.ways.warnings();
        flags.extend(plan.remarks.iter().cloned());
        let timeline = Timeline::begin(Stopwatch::new(None));
        let (hosts, taps) = self.make_hosts(options)?;
        if let Err(error) = show_text(Path::new("/etc/hosts"), &hosts_text(&hosts)) {
            flags.push(format!("hosts are not found by name: {error}"));
        }
        // Whoever asks how it does is told: nobody else is there.
        let troubles = Troubles::told(|_| ());
        let mut devices = Vec::new();
        let mut interfaces = Vec::new();
        let last = taps.len() - 1;
        for (index, (tap, host)) in taps.into_iter().zip(&hosts).enumerate() {
            interfaces
                .push(Interface::watch(&host.namespace, Host::DEVICE).map_err(Problem::from)?);
            devices.push(match index {
                0 => self.ways.near(tap, &plan.files, timeline, &troubles)?,
                index if index == last => self.ways.far(tap, &plan.files, timeline, &troubles)?,
                _ => Box::new(tap),
            });
        }
        let mut course = Course::start(
            |spec, start| make(spec, start).map_err(|error| of_spec(&error)),
            Asked { spec, schedule: plan.schedule, room: plan.room },
            devices,
            interfaces,
            timeline,
            self.ways.options(),
            self.ways.seats(),
        )?;
        let about = Arc::new(About {
            name: self.name.clone(),
            command: Vec::new(),
            hosts: self.hosts.clone(),
            began_ns: course.began_ns(),
            gateway: None,
            flags,
            troubles,
        });
        let (down, taken_down) = std::sync::mpsc::channel();
        let ended = down.clone();
        // A lab whose hosts hear nothing of each other any more is none.
        course.on_early_end(move |_| {
            ended.send(()).ok();
        })?;
        let published = self.publish(course.handle(), &about, &hosts, down)?;
        output.bytes(READY.as_bytes())?;
        contained.stay(&taken_down);
        drop(published);
        course.finish()?;
        Ok(Exit::Fine)
    }

    fn make_hosts(&self, options: LinkOptions) -> Result<(Vec<Host>, Vec<Tap>), Problem> {
        let settings = Settings {
            wait: Wait::Spin,
            offload: Offload::Segments,
            mtu: Some(options.mtu),
            ..Settings::default()
        };
        let mut hosts = Vec::new();
        let mut taps = Vec::new();
        for (number, name) in self.hosts.iter().enumerate() {
            let number = u8::try_from(number).map_err(|_| Problem::usage("too many hosts"))?;
            let host = Host::new(name, number, options)?;
            let tap = host.namespace.enter(|| Tap::open(Host::DEVICE, settings))?;
            taps.push(
                tap.map_err(|error| Problem::trouble("there can be no link here").because(error))?,
            );
            hosts.push(host);
        }
        for host in &hosts {
            host.bring_up(&hosts, options)?;
        }
        Ok((hosts, taps))
    }

    fn publish<T: Talk + Clone + 'static>(
        &self,
        handle: T,
        about: &Arc<About>,
        hosts: &[Host],
        down: std::sync::mpsc::Sender<()>,
    ) -> Result<Published, Problem> {
        let path = self.inside.registry.clone().unwrap_or_default();
        let keeper = self.inside.keeper.unwrap_or_else(std::process::id);
        let published = Registry::at(path).publish(&self.name, keeper)?;
        let doors: Result<Vec<_>, lab::LabError> = hosts
            .iter()
            .map(|host| Ok((host.name.clone(), Doors::here(&host.namespace)?)))
            .collect();
        let (shown, about_shown) = (handle.clone(), Arc::clone(about));
        let desk = Desk {
            talk: Box::new(handle),
            doors: doors?,
            show: Box::new(move || Some(account::document(&about_shown, &shown.state()?, None))),
            down: Box::new(move || {
                down.send(()).ok();
            }),
        };
        desk.open(&published.listener)
            .map_err(|error| Problem::trouble("cannot listen to other processes").because(error))?;
        Ok(published)
    }
}

fn hosts_text(hosts: &[Host]) -> String {
    names::hosts(hosts.iter().map(|host| {
        (host.name.as_str(), host.addresses().into_iter().map(|(address, _)| address).collect())
    }))
}

/// Run a command on a host of a lab, or at an end of a running link ('near' and 'far')
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The command ends when the lab is taken down, at the latest, and so does what it leaves running in the
background. Where 'plumb link exec' itself is killed, its command is too.

Examples:
  plumb link exec lab a -- ping -c 3 b
  plumb link exec lab b                     a shell on b")]
pub struct Exec {
    /// Which lab
    name: String,
    /// Which host
    host: String,
    /// What to run [default: $SHELL]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Exec {
    /// Runs it, and ends as it does.
    ///
    /// # Errors
    /// There is no such lab, host, or command.
    pub fn perform(self) -> Result<Exit, Failure> {
        let registry = Registry::of_user().map_err(Problem::from)?;
        let connect = || registry.connect(&self.name).map_err(Problem::from);
        let present = ask(&connect()?, &Question::Present)?;
        let stream = connect()?;
        ask(&stream, &Question::Enter(self.host.clone()))?;
        let doors = Doors::take(&stream).map_err(|error| {
            Problem::trouble(format!("{} does not let anybody in", self.name)).because(error)
        })?;
        drop(stream);
        let shell = || std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
        let mut words = self.command.into_iter();
        let program = words.next().unwrap_or_else(shell);
        let mut command = Command::new(&program);
        command.args(words).env("PLUMB_LINK_HOST", &self.host);
        if let Answer::Present(present) = present {
            command.env(OUTER_LINK, present.link);
        }
        let status = doors.run(&mut command).map_err(Problem::from)?;
        let status = status.map_err(|error| super::behind::not_started(&program, &error))?;
        Ok(exit(status))
    }
}
