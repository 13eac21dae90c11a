//! Two hosts with a network between them: two namespaces of a test bed, and commands in both.
//!
//! Says `skipped:` where namespaces are not allowed, and fails for that under CI=true.

use std::process::{Child, Command, Output, Stdio};

use plumb_netdev::lab::{FarEndMode, LabError, TestBed, TestBedOptions};

use super::agent_process::AgentProcess;
use crate::home::TestHome;
use crate::support::{PLUMB, skip};

/// Near, where `plumb net` runs, and far, where the agent is.
pub struct HostPair {
    pub bed: TestBed,
    pub bench: TestHome,
    /// By which the far namespace is named; it ends with its standard input.
    holder: Child,
}

impl HostPair {
    pub fn new() -> Option<Self> {
        let made = TestBed::veth(
            FarEndMode::Answers,
            TestBedOptions { neighbors: true, ..TestBedOptions::default() },
        );
        let bed = match made {
            Err(error @ LabError::NotPermitted { .. }) => {
                skip(&error.to_string());
                return None;
            }
            made => made.unwrap_or_else(|error| panic!("{error}")),
        };
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

    /// What gives an agent's standard streams there, not over the network between the two.
    pub fn via(&self) -> String {
        format!("{} {PLUMB} agent --stdio", self.enter_far())
    }

    /// A command in the near host.
    pub fn near(&self, program: &str, words: &[&str]) -> Output {
        self.bed.in_near(|| self.bench.command_of(program, words).output()).unwrap().unwrap()
    }

    /// `plumb` in the near host.
    pub fn plumb(&self, words: &[&str]) -> Output {
        self.near(PLUMB, words)
    }

    /// `plumb` in the near host, which goes on meanwhile.
    pub fn start(&self, words: &[&str]) -> Child {
        let mut command = self.bench.command_of(PLUMB, words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.bed.in_near(|| command.spawn()).unwrap().unwrap()
    }

    /// `ip` in either host; it has to do it.
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

    /// What the kernel of the near host counts, by its name in /proc/net/snmp: `Udp InDatagrams`.
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
