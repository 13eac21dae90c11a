//! `plumb link up|exec`: a lab that stays until it is taken down, and commands on its hosts.
//!
//! The lab is held by a process without a terminal, whose root is process 1 of everything on its
//! hosts.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::RawFd;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;

use clap::Args;
use plumb_clock::{InstantClock, Stopwatch};
use plumb_harness::launch_network::OUTER_LINK_ENV;
use plumb_link::link::Link;
use plumb_link::report::Network;
use plumb_link::spec::LinkSpec;
use plumb_link::switch::LearningSwitch;
use plumb_netdev::device::DeviceWait;
use plumb_netdev::device::tap::{TapDevice, TapOffload, TapOptions};
use plumb_netdev::emulator::InterfaceDropCounter;
use plumb_netdev::lab::{
    self, LabHost, LinkRegistry, NamespaceFds, PidNamespaceInit, RegisteredName, SignalPolicy,
    TestBedOptions, mount_text_over,
};
use plumb_wire::machine::Medium;

use super::inner_arguments;
use super::options::{LinkDriverOptions, LinkShapeOptions};
use super::run::{InnerProcessOptions, LinkRunPlan, exit, spec_problem};
use crate::cli::output::{CliOutput, CommandError};
use crate::link::control::{LinkControlReply, LinkControlRequest, LinkControlServer, ask};
use crate::link::document::{self, LinkDescription};
use crate::link::running_link;
use crate::link::running_link::LinkProblems;
use crate::link::running_link::{LinkControl, LinkSetup, RunningLink};
use crate::problem::{ExitReason, Problem};

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
pub struct LinkUpCommand {
    /// What it is called
    name: String,
    /// The hosts, at least two: a,b,c
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    hosts: Vec<String>,
    #[command(flatten)]
    shape: LinkShapeOptions,
    #[command(flatten)]
    ways: LinkDriverOptions,
    #[command(flatten)]
    inside: InnerProcessOptions,
}

impl LinkUpCommand {
    /// Makes it, and returns when it is there.
    ///
    /// # Errors
    /// The name is taken, the hosts are not good ones, or there can be no lab.
    pub fn perform(self, output: &CliOutput) -> Result<ExitReason, CommandError> {
        self.check_hosts()?;
        let spec = self.shape.spec()?;
        let lines = self.hosts.len() as u64;
        let plan = LinkRunPlan::new(&spec, &self.ways, if lines == 2 { 1 } else { lines })?;
        match (self.inside.inside, self.inside.keeper) {
            (Some(lifeline), _) => self.run_inside(spec, plan, lifeline, output),
            (None, Some(_)) => Ok(exit(Self::run_outer()?)),
            (None, None) => self.start(&spec, output),
        }
    }

    fn check_hosts(&self) -> Result<(), Problem> {
        let count = self.hosts.len();
        if !(2..=LabHost::COUNT_MAX).contains(&count) {
            return Err(Problem::usage(format!(
                "a lab has 2 to {} hosts, not {count}",
                LabHost::COUNT_MAX
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
    fn start(&self, spec: &LinkSpec, output: &CliOutput) -> Result<ExitReason, CommandError> {
        let registry = LinkRegistry::of_user().map_err(Problem::from)?;
        registry.remove_stale();
        if registry.names().contains(&self.name) {
            return Err(Problem::from(lab::RegistryError::Taken(self.name.clone())).into());
        }
        LinkRegistry::check(&self.name).map_err(Problem::from)?;
        let cannot = |error| Problem::failure("cannot start the lab").because(error);
        let (mut said, say) = io::pipe().map_err(cannot)?;
        let mut keeper = Command::new(std::env::current_exe().map_err(cannot)?)
            .args(inner_arguments(vec![
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
                output.note(words);
            }
            let hosts = self.hosts.join(", ");
            output.note(&format!(
                "{} is up: {hosts}, joined by {spec}\n  try    plumb link exec {} {} -- ping -c 3 {}\n  \
                 end    plumb link down {}",
                self.name, self.name, self.hosts[0], self.hosts[1], self.name
            ));
            return Ok(ExitReason::Success);
        }
        let status = keeper.wait().map_err(cannot)?;
        crate::cli::output::stderr_line(words);
        Ok(exit(status))
    }

    /// The keeper: leaves the terminal, and waits.
    fn run_outer() -> Result<ExitStatus, Problem> {
        lab::leave_session()
            .map_err(|error| Problem::failure("cannot leave the terminal").because(error))?;
        let words = |lifeline: RawFd| vec![OsString::from(format!("--inside={lifeline}"))];
        lab::run_in_pid_namespace(SignalPolicy::Die, |lifeline| inner_arguments(words(lifeline)))
            .map_err(Problem::from)
    }

    /// The lab, as the root of everything that will run in it.
    fn run_inside(
        &self,
        spec: LinkSpec,
        plan: LinkRunPlan,
        lifeline: RawFd,
        output: &CliOutput,
    ) -> Result<ExitReason, CommandError> {
        let contained =
            PidNamespaceInit::become_init(lifeline, SignalPolicy::Die).map_err(Problem::from)?;
        let medium = Medium::Ethernet;
        if self.hosts.len() == 2 {
            let make = |spec: &LinkSpec, start| Link::new(spec, medium, start);
            return self.run_network(spec, plan, &contained, make, output);
        }
        let lines = self.hosts.len();
        let make = |spec: &LinkSpec, start| LearningSwitch::new(&vec![spec.clone(); lines], start);
        self.run_network(spec, plan, &contained, make, output)
    }

    fn run_network<N: Network + Send + 'static>(
        &self,
        spec: LinkSpec,
        plan: LinkRunPlan,
        contained: &PidNamespaceInit,
        make: impl FnOnce(
            &LinkSpec,
            plumb_base::time::Instant,
        ) -> Result<N, plumb_link::spec::SpecError>,
        output: &CliOutput,
    ) -> Result<ExitReason, CommandError> {
        let options = TestBedOptions { mtu: plan.mtu, offloads: true, neighbors: true };
        let mut flags = self.ways.warnings();
        flags.extend(plan.remarks.iter().cloned());
        let timeline = InstantClock::begin(Stopwatch::new(None));
        let (hosts, taps) = self.make_hosts(options)?;
        if let Err(error) = mount_text_over(Path::new("/etc/hosts"), &hosts_text(&hosts)) {
            flags.push(format!("hosts are not found by name: {error}"));
        }
        // Whoever asks how it does is told: nobody else is there.
        let troubles = LinkProblems::reporting_to(|_| ());
        let mut devices = Vec::new();
        let mut interfaces = Vec::new();
        let last = taps.len() - 1;
        for (index, (tap, host)) in taps.into_iter().zip(&hosts).enumerate() {
            interfaces.push(
                InterfaceDropCounter::watch(&host.namespace, LabHost::DEVICE)
                    .map_err(Problem::from)?,
            );
            devices.push(match index {
                0 => self.ways.near(tap, &plan.files, timeline, &troubles)?,
                index if index == last => self.ways.far(tap, &plan.files, timeline, &troubles)?,
                _ => Box::new(tap),
            });
        }
        let mut course = RunningLink::start(
            |spec, start| make(spec, start).map_err(|error| spec_problem(&error)),
            LinkSetup { spec, schedule: plan.schedule, memory: plan.room },
            devices,
            interfaces,
            timeline,
            self.ways.options(),
            self.ways.dedicated_cpu(),
        )?;
        let about = Arc::new(LinkDescription {
            name: self.name.clone(),
            command: Vec::new(),
            hosts: self.hosts.clone(),
            began_ns: course.began_ns(),
            gateway: None,
            flags,
            problems: troubles,
        });
        let (down, taken_down) = std::sync::mpsc::channel();
        let ended = down.clone();
        // A lab whose hosts hear nothing of each other any more is none.
        course.on_early_end(move |_| {
            ended.send(()).ok();
        })?;
        let published = self.publish(course.handle(), &about, &hosts, down)?;
        output.bytes(READY.as_bytes())?;
        contained.reap_until(&taken_down);
        drop(published);
        course.finish()?;
        Ok(ExitReason::Success)
    }

    fn make_hosts(
        &self,
        options: TestBedOptions,
    ) -> Result<(Vec<LabHost>, Vec<TapDevice>), Problem> {
        let settings = TapOptions {
            wait: DeviceWait::Spin,
            offload: TapOffload::Segments,
            mtu: Some(options.mtu),
            ..TapOptions::default()
        };
        let mut hosts = Vec::new();
        let mut taps = Vec::new();
        for (number, name) in self.hosts.iter().enumerate() {
            let number = u8::try_from(number).map_err(|_| Problem::usage("too many hosts"))?;
            let host = LabHost::new(name, number, options)?;
            let tap = host.namespace.enter(|| TapDevice::open(LabHost::DEVICE, settings))?;
            taps.push(
                tap.map_err(|error| Problem::failure("there can be no link here").because(error))?,
            );
            hosts.push(host);
        }
        for host in &hosts {
            host.bring_up(&hosts, options)?;
        }
        Ok((hosts, taps))
    }

    fn publish<T: LinkControl + Clone + 'static>(
        &self,
        handle: T,
        about: &Arc<LinkDescription>,
        hosts: &[LabHost],
        down: std::sync::mpsc::Sender<()>,
    ) -> Result<RegisteredName, Problem> {
        let path = self.inside.registry.clone().unwrap_or_default();
        let keeper = self.inside.keeper.unwrap_or_else(std::process::id);
        let published = LinkRegistry::at(path).register(&self.name, keeper)?;
        let doors: Result<Vec<_>, lab::LabError> = hosts
            .iter()
            .map(|host| Ok((host.name.clone(), NamespaceFds::of_this_process(&host.namespace)?)))
            .collect();
        let (shown, about_shown) = (handle.clone(), Arc::clone(about));
        let desk = LinkControlServer {
            link: Box::new(handle),
            namespaces: doors?,
            document: Box::new(move || {
                Some(document::document(&about_shown, &shown.state()?, None))
            }),
            stop: Box::new(move || {
                down.send(()).ok();
            }),
        };
        desk.spawn(&published.listener)
            .map_err(|error| Problem::failure("cannot listen to other processes").because(error))?;
        Ok(published)
    }
}

fn hosts_text(hosts: &[LabHost]) -> String {
    running_link::hosts_file(hosts.iter().map(|host| {
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
pub struct LinkExecCommand {
    /// Which lab
    name: String,
    /// Which host
    host: String,
    /// What to run [default: $SHELL]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl LinkExecCommand {
    /// Runs it, and ends as it does.
    ///
    /// # Errors
    /// There is no such lab, host, or command.
    pub fn perform(self) -> Result<ExitReason, CommandError> {
        let registry = LinkRegistry::of_user().map_err(Problem::from)?;
        let connect = || registry.connect(&self.name).map_err(Problem::from);
        let present = ask(&connect()?, &LinkControlRequest::Present)?;
        let stream = connect()?;
        ask(&stream, &LinkControlRequest::Enter(self.host.clone()))?;
        let doors = NamespaceFds::receive(&stream).map_err(|error| {
            Problem::failure(format!("{} does not let anybody in", self.name)).because(error)
        })?;
        drop(stream);
        let shell = || std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
        let mut words = self.command.into_iter();
        let program = words.next().unwrap_or_else(shell);
        let mut command = Command::new(&program);
        command.args(words).env("PLUMB_LINK_HOST", &self.host);
        if let LinkControlReply::Present(present) = present {
            command.env(OUTER_LINK_ENV, present.link);
        }
        let status = doors.run_inside(&mut command).map_err(Problem::from)?;
        let status = status.map_err(|error| super::run::not_started(&program, &error))?;
        Ok(exit(status))
    }
}
