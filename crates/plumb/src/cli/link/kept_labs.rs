//! `plumb link up|exec`: a lab that stays until it is taken down, and commands on its hosts.
//!
//! A keeper without a terminal holds the lab; its inner process is init of the PID namespace of all hosts.

use std::ffi::OsString;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, mpsc};

use clap::Args;
use plumb_clock::{InstantClock, Stopwatch};
use plumb_harness::launch_network::OUTER_LINK_ENV;
use plumb_link::spec::LinkSpec;
use plumb_netdev::device::DeviceWait;
use plumb_netdev::device::tap::{TapDevice, TapOffload, TapOptions};
use plumb_netdev::emulator::InterfaceDropCounter;
use plumb_netdev::emulator::control_socket::{
    LinkControlReply, LinkControlRequest, LinkControlServer, ask,
};
use plumb_netdev::emulator::running_link::LinkTopology;
use plumb_netdev::lab::{
    self, LabError, LabHost, LinkRegistry, NamespaceFds, PidNamespaceInit, RegistryError,
    SignalPolicy, TestBedOptions, mount_text_over,
};

use super::document::{self, LinkDescription, LinkProblems};
use super::options::{LinkDriverOptions, LinkEnd, LinkRunPlan, LinkShapeOptions};
use super::run::{InnerProcessOptions, command_not_started};
use crate::cli::output::{CliOutput, CommandResult, stderr_line};
use crate::cli::subprocess::{command_or_shell, exit_reason, inner_arguments};
use crate::problem::{ExitReason, Problem};

/// Printed by the keeper when the lab is up.
const READY: &str = "ready\n";

/// Create a lab of hosts joined by a link, or from three on by a switch, that stays until it is taken down
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Each host has a network of its own with device plumb0: 10.77.0.1 and fd77::1 on the first, and so on.
Hosts know each other by name. With a switch, each host has a link of this kind to the switch.

Examples:
  plumb link up lab --hosts a,b --rate 10mbit --delay 25ms
  plumb link exec lab b -- iperf3 -s &
  plumb link exec lab a -- iperf3 -c b
  plumb link set lab --loss 1%
  plumb link down lab")]
pub struct LinkUpCommand {
    /// Name of the lab
    name: String,
    /// Names of the hosts, at least two: a,b,c
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    hosts: Vec<String>,
    #[command(flatten)]
    shape: LinkShapeOptions,
    #[command(flatten)]
    driver: LinkDriverOptions,
    #[command(flatten)]
    inside: InnerProcessOptions,
}

impl LinkUpCommand {
    /// Creates the lab, and returns when it is up.
    ///
    /// # Errors
    /// The name is in use, host names are invalid, or a lab cannot be created.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        self.check_hosts()?;
        let spec = self.shape.spec()?;
        let lines = if self.hosts.len() == 2 { 1 } else { self.hosts.len() as u64 };
        let plan = self.driver.plan(&spec, lines)?;
        match (self.inside.inside, self.inside.keeper) {
            (Some(lifeline), _) => self.run_inside(spec, plan, lifeline, output),
            (None, Some(_)) => Ok(exit_reason(Self::run_outer()?)),
            (None, None) => self.start(&spec, output),
        }
    }

    fn check_hosts(&self) -> Result<(), Problem> {
        let (count, most) = (self.hosts.len(), LabHost::COUNT_MAX);
        if !(2..=most).contains(&count) {
            return Err(Problem::usage(format!("a lab has 2 to {most} hosts, not {count}"))
                .fix("name them: --hosts a,b"));
        }
        let is_valid = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_alphanumeric())
                && name.len() <= 63
                && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'))
                && name != "localhost"
        };
        for (index, name) in self.hosts.iter().enumerate() {
            if !is_valid(name) {
                return Err(Problem::usage(format!("'{name}' is not a valid host name"))
                    .fix("use letters, digits and '-', as in --hosts client,server"));
            }
            if self.hosts[..index].contains(name) {
                return Err(Problem::usage(format!("two hosts are called '{name}'"))
                    .fix("give each host its own name"));
            }
        }
        Ok(())
    }

    /// Starts the keeper, and waits until the lab is up.
    fn start(&self, spec: &LinkSpec, output: &CliOutput) -> CommandResult {
        let registry = LinkRegistry::of_user()?;
        registry.remove_stale();
        if registry.names().contains(&self.name) {
            return Err(RegistryError::Taken(self.name.clone()).into());
        }
        LinkRegistry::check(&self.name)?;
        let cannot = |error| Problem::failure("cannot start the lab").because(error);
        let (mut reader, writer) = io::pipe().map_err(cannot)?;
        let mut keeper = Command::new(std::env::current_exe().map_err(cannot)?)
            .args(inner_arguments([
                format!("--keeper={}", std::process::id()).into(),
                "--registry".into(),
                registry.path().into(),
            ]))
            .stdin(Stdio::null())
            .stdout(writer.try_clone().map_err(cannot)?)
            .stderr(writer)
            .spawn()
            .map_err(cannot)?;
        let mut text = String::new();
        let mut buffer = [0; 4_096];
        while !text.ends_with(READY) {
            match reader.read(&mut buffer).map_err(cannot)? {
                0 => break,
                len => text += &String::from_utf8_lossy(&buffer[..len]),
            }
        }
        let Some(messages) = text.strip_suffix(READY) else {
            let status = keeper.wait().map_err(cannot)?;
            stderr_line(text.trim_end());
            return Ok(exit_reason(status));
        };
        if !messages.is_empty() {
            output.note(messages.trim_end());
        }
        let (name, hosts) = (&self.name, &self.hosts);
        output.note(&format!(
            "{name} is up: {}, joined by {spec}\n  try    plumb link exec {name} {} -- ping -c 3 {}\n  \
             end    plumb link down {name}",
            hosts.join(", "),
            hosts[0],
            hosts[1]
        ));
        Ok(ExitReason::Success)
    }

    /// The keeper: leaves the terminal and waits.
    fn run_outer() -> Result<ExitStatus, Problem> {
        lab::leave_session()
            .map_err(|error| Problem::failure("cannot leave the terminal").because(error))?;
        let arguments =
            |lifeline: RawFd| inner_arguments([OsString::from(format!("--inside={lifeline}"))]);
        Ok(lab::run_in_pid_namespace(SignalPolicy::Die, arguments)?)
    }

    /// The inner process.
    fn run_inside(
        &self,
        spec: LinkSpec,
        mut plan: LinkRunPlan,
        lifeline: RawFd,
        output: &CliOutput,
    ) -> CommandResult {
        let contained = PidNamespaceInit::become_init(lifeline, SignalPolicy::Die)?;
        let mut flags = std::mem::take(&mut plan.flags);
        let timeline = InstantClock::begin(Stopwatch::new(None));
        let (hosts, taps) = self.create_hosts(plan.mtu)?;
        if let Err(error) = mount_text_over(Path::new("/etc/hosts"), &hosts_text(&hosts)) {
            flags.push(format!("hosts do not know each other by name: {error}"));
        }
        // Problems are printed by 'link show' only: the keeper has no terminal.
        let problems = LinkProblems::reporting_to(|_| ());
        let mut ports = Vec::new();
        let last = taps.len() - 1;
        for (index, (tap, host)) in taps.into_iter().zip(&hosts).enumerate() {
            let drops = InterfaceDropCounter::watch(&host.namespace, LabHost::DEVICE)?;
            let record = |tap, end| self.driver.record(tap, end, &plan.files, timeline, &problems);
            let device = match index {
                0 => record(tap, LinkEnd::Near)?,
                index if index == last => record(tap, LinkEnd::Far)?,
                _ => Box::new(tap),
            };
            ports.push((device, drops));
        }
        let (down, taken_down) = mpsc::channel();
        let ended = down.clone();
        let topology = match hosts.len() {
            2 => LinkTopology::Line,
            lines => LinkTopology::Switch(lines),
        };
        // A lab ends with its link.
        let on_early_end = move |_: &str| {
            ended.send(()).ok();
        };
        let running = self.driver.start(topology, spec, plan, ports, timeline, on_early_end)?;
        let description = Arc::new(LinkDescription {
            name: self.name.clone(),
            command: Vec::new(),
            hosts: self.hosts.clone(),
            began_ns: running.began_ns,
            gateway: None,
            flags,
            problems,
        });
        let fds = |host: &LabHost| {
            Ok((host.name.clone(), NamespaceFds::of_this_process(&host.namespace)?))
        };
        let server = LinkControlServer {
            link: Arc::clone(&running.handle),
            document: document::json(&description),
            namespaces: hosts.iter().map(fds).collect::<Result<_, LabError>>()?,
            stop: Box::new(move || {
                down.send(()).ok();
            }),
        };
        let registry = self.inside.registry.clone().unwrap_or_default();
        let keeper = self.inside.keeper.unwrap_or_else(std::process::id);
        let published = server.publish(&self.name, &registry, keeper)?;
        output.bytes(READY.as_bytes())?;
        contained.reap_until(&taken_down);
        drop(published);
        running.finish()?;
        Ok(ExitReason::Success)
    }

    fn create_hosts(&self, mtu: u32) -> Result<(Vec<LabHost>, Vec<TapDevice>), Problem> {
        let options = TestBedOptions { mtu, offloads: true, neighbors: true };
        let settings = TapOptions {
            wait: DeviceWait::Spin,
            offload: TapOffload::Segments,
            mtu: Some(mtu),
            ..TapOptions::default()
        };
        let (mut hosts, mut taps) = (Vec::new(), Vec::new());
        for (number, name) in (0..).zip(&self.hosts) {
            let host = LabHost::new(name, number, options)?;
            let tap = host.namespace.enter(|| TapDevice::open(LabHost::DEVICE, settings))?;
            taps.push(
                tap.map_err(|error| Problem::failure("cannot create a link here").because(error))?,
            );
            hosts.push(host);
        }
        for host in &hosts {
            host.bring_up(&hosts, options)?;
        }
        Ok((hosts, taps))
    }
}

/// A hosts(5) with the loopback and the hosts of a lab.
fn hosts_text(hosts: &[LabHost]) -> String {
    let addresses = |host: &LabHost| host.addresses().into_iter().map(|(address, _)| address);
    let line = |host: &LabHost, address: IpAddr| format!("{address} {}\n", host.name);
    let lines = hosts.iter().flat_map(|host| addresses(host).map(move |ip| line(host, ip)));
    let local = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n".to_owned();
    std::iter::once(local).chain(lines).collect()
}

/// Run a command on a host of a lab, or at an end of a running link ('near' and 'far')
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The command, and what it leaves running in the background, ends when the lab is taken down, at the
latest. If 'plumb link exec' is killed, so is its command.

Examples:
  plumb link exec lab a -- ping -c 3 b
  plumb link exec lab b                     a shell on b")]
pub struct LinkExecCommand {
    /// Name of the lab or link
    name: String,
    /// Name of the host
    host: String,
    /// Command to run [default: $SHELL]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl LinkExecCommand {
    /// Runs the command; its exit code is the command's.
    ///
    /// # Errors
    /// No such lab, host, or command.
    pub fn perform(self) -> CommandResult {
        let registry = LinkRegistry::of_user()?;
        let revision = ask(&registry.connect(&self.name)?, &LinkControlRequest::Present)?;
        let stream = registry.connect(&self.name)?;
        ask(&stream, &LinkControlRequest::Enter(self.host.clone()))?;
        let namespaces = NamespaceFds::receive(&stream).map_err(|error| {
            Problem::failure(format!("cannot enter {}", self.name)).because(error)
        })?;
        drop(stream);
        let mut command = command_or_shell(&self.command);
        command.env("PLUMB_LINK_HOST", &self.host);
        if let LinkControlReply::Present(revision) = revision {
            command.env(OUTER_LINK_ENV, revision.link);
        }
        let status = namespaces.run_inside(&mut command)?;
        let status = status.map_err(|error| command_not_started(command.get_program(), &error))?;
        Ok(exit_reason(status))
    }
}
