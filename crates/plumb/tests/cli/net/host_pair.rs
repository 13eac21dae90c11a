//! Two hosts with a network between them: two namespaces of a test bed, and commands in both.
//!
//! Says `skipped:` where namespaces are not allowed, and fails for that under CI=true.

use std::process::{Child, Command, Output, Stdio};

use plumb_netdev::lab::{FarEndMode, TestBed, TestBedOptions};

use serde_json::Value;

use super::agent_process::AgentProcess;
use crate::home::{Arguments, TestHome};
use crate::stack::test_bed::allowed;
use crate::support::PLUMB;

/// The near host runs `plumb net`, the far host the agent.
pub struct HostPair {
    pub bed: TestBed,
    pub bench: TestHome,
    /// A process whose pid names the far namespace; ends with its standard input.
    holder: Child,
}

impl HostPair {
    pub fn new() -> Option<Self> {
        let options = TestBedOptions { neighbors: true, ..TestBedOptions::default() };
        let bed = allowed(TestBed::veth(FarEndMode::Answers, options))?;
        let hold = || Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let holder = bed.in_far(hold).unwrap().unwrap();
        Some(Self { bed, bench: TestHome::new(), holder })
    }

    /// The command that enters the far host.
    pub fn enter_far(&self) -> String {
        format!("nsenter --net=/proc/{}/ns/net", self.holder.id())
    }

    /// Leaves the far host without a name by which it could be entered.
    pub fn forget_far(&mut self) {
        self.holder.kill().ok();
        self.holder.wait().ok();
    }

    /// The command of an agent there, which does not use the network between the two.
    pub fn via(&self) -> String {
        format!("{} {PLUMB} agent --stdio", self.enter_far())
    }

    /// `plumb` in the near host.
    pub fn plumb(&self, arguments: &(impl Arguments + ?Sized)) -> Output {
        self.bed.in_near(|| self.bench.plumb(arguments)).unwrap()
    }

    /// Expects success of `plumb` in the near host; its JSON document.
    pub fn json_of(&self, arguments: &(impl Arguments + ?Sized)) -> Value {
        self.bed.in_near(|| self.bench.json_of(arguments)).unwrap()
    }

    /// The command line of a measurement to the far host.
    pub fn net(&self) -> String {
        format!("net --via '{}' 10.77.0.2", self.via())
    }

    /// Starts `plumb` in the near host.
    pub fn start(&self, arguments: &(impl Arguments + ?Sized)) -> Child {
        self.bed.in_near(|| self.bench.spawn(arguments)).unwrap()
    }

    /// Runs `ip` in either host; expects success.
    pub fn ip(&self, is_near: bool, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let run = || Command::new("ip").args(&words).output().unwrap();
        let output = if is_near { self.bed.in_near(run) } else { self.bed.in_far(run) }.unwrap();
        assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// An agent that listens on the far host.
    pub fn start_agent(&self, words: &[&str]) -> AgentProcess {
        self.bed.in_far(|| AgentProcess::at("10.77.0.2:0", words)).unwrap()
    }

    /// Pairs the near host with it.
    pub fn pair(&self, daemon: &AgentProcess) {
        let output = self.plumb(&["net", &daemon.host(), "--pair", &daemon.token]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// A counter of the near host by its name in /proc/net/snmp: `Udp InDatagrams`.
    pub fn near_count(&self, protocol: &str, name: &str) -> u64 {
        let read = || std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
        let text = self.bed.in_near(read).unwrap();
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(&format!("{protocol}: ")));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let place = names.split_whitespace().position(|word| word == name).unwrap();
        values.split_whitespace().nth(place).unwrap().parse().unwrap()
    }
}

impl Drop for HostPair {
    fn drop(&mut self) {
        self.forget_far();
    }
}
