//! `plumb stack`: plumb's own network stack in a user process, and a test bed for it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use plumb_base::time::{Instant, Span};
use plumb_base::units::quantity::parse_span;
use plumb_harness::stop_signals;
use plumb_netdev::device::DeviceWait;
use plumb_netdev::device::fault::FaultRates;
use plumb_stack::host::IpHost;
use plumb_wire::ethernet::MacAddr;

use super::GlobalOptions;
use super::output::{CliOutput, CommandResult};
use super::seed_or_random;
use crate::problem::Problem;
use crate::stack::attached_host::{AttachedHostSettings, ServicePort};
use crate::stack::device::{self, DeviceInstrumentation, DeviceName};

mod applications;
mod lab;
mod replay;

/// Run plumb's own network stack, or create a test bed for it
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb stack lab
  plumb stack lab -- ping -c 3 10.77.0.2
  plumb stack serve --device tap:plumb0 --addr 10.77.0.2/24
  plumb stack ping 10.0.0.2 --device memory
  plumb stack send 10.77.0.2:1997
  plumb stack replay trace.pcapng")]
pub struct StackCommand {
    #[command(subcommand)]
    action: StackSubcommand,
}

#[derive(Clone, Debug, Subcommand)]
enum StackSubcommand {
    Lab(lab::StackLabCommand),
    Mirror(applications::StackMirrorCommand),
    Serve(applications::StackServeCommand),
    Ping(applications::StackPingCommand),
    Send(applications::StackSendCommand),
    Replay(replay::StackReplayCommand),
}

impl StackCommand {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// As each subcommand.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        match self.action {
            StackSubcommand::Lab(command) => command.perform(global, output),
            StackSubcommand::Mirror(command) => command.perform(output),
            StackSubcommand::Serve(command) => command.perform(output),
            StackSubcommand::Ping(command) => command.perform(output),
            StackSubcommand::Send(command) => command.perform(output),
            StackSubcommand::Replay(command) => command.perform(output),
        }
    }
}

/// Time that `--wait poll` spins after the last packet.
const POLL: Span = Span::from_us(50);

/// Device, addresses and other options of plumb's stack.
#[derive(Clone, Debug, Args)]
pub struct StackHostOptions {
    /// Device of the stack: tap:NAME, tun:NAME, packet:INTERFACE, xdp:INTERFACE, pcap:FILE or memory
    #[arg(long, value_name = "DEVICE", help_heading = "Stack")]
    pub device: Option<DeviceName>,
    /// Address of the stack with its prefix length; may be repeated
    #[arg(long, value_name = "ADDRESS/BITS", value_parser = parse_address)]
    #[arg(help_heading = "Stack")]
    pub addr: Vec<(IpAddr, u8)>,
    /// Default gateway; one per address family
    #[arg(long, value_name = "ADDRESS", help_heading = "Stack")]
    pub gateway: Vec<IpAddr>,
    /// MAC address of the stack [default: the interface's own; random on a TAP]
    #[arg(long, value_name = "MAC", help_heading = "Stack")]
    pub mac: Option<MacAddr>,
    /// How to wait for packets: block, poll for 50 µs and then block, or spin
    #[arg(long, value_name = "HOW", default_value = "block", help_heading = "Stack")]
    pub wait: StackWaitOption,
    /// Most packets per batch
    #[arg(long, value_name = "N", default_value_t = 32, help_heading = "Stack")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub batch: u16,
    /// Record every packet, in both directions, to this pcapng file
    #[arg(long, value_name = "OUT.pcapng", help_heading = "Stack")]
    pub pcap: Option<PathBuf>,
    /// Inject faults in both directions: loss, burst, truncate, corrupt, duplicate, reorder
    #[arg(long, value_name = "FAULT=SHARE,…", value_parser = device::parse_faults)]
    #[arg(help_heading = "Stack")]
    pub faults: Option<FaultRates>,
    /// Print every counter at the end and on SIGUSR1; with a time, also periodically
    #[arg(long, value_name = "EVERY", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "0s", value_parser = parse_span, help_heading = "Stack")]
    pub stats: Option<Span>,
    /// Seed of every random choice
    #[arg(long, value_name = "N", help_heading = "Stack")]
    pub seed: Option<u64>,
}

/// How to wait for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StackWaitOption {
    /// Sleep in the kernel
    Block,
    /// Spin for 50 µs, then sleep
    Poll,
    /// Spin
    Spin,
}

impl From<StackWaitOption> for DeviceWait {
    fn from(wait: StackWaitOption) -> Self {
        match wait {
            StackWaitOption::Block => Self::Block,
            StackWaitOption::Poll => Self::Poll(POLL),
            StackWaitOption::Spin => Self::Spin,
        }
    }
}

impl StackHostOptions {
    /// The settings of a host; `far` is the address and the services of the host at the other end of a link in memory.
    ///
    /// # Errors
    /// No device, or no address.
    pub fn settings(
        &self,
        far: Option<(IpAddr, Vec<ServicePort>)>,
    ) -> Result<AttachedHostSettings, Problem> {
        let Some(device) = self.device.clone() else {
            return Err(Problem::usage("plumb's stack needs a device")
                .because("packets must enter and leave somewhere")
                .fix(
                    "name one, such as --device tap:NAME; 'plumb stack lab' creates some to try",
                ));
        };
        let mut addresses = self.addr.clone();
        let far = far.filter(|_| device == DeviceName::Memory);
        if let Some((far, _)) = &far
            && addresses.is_empty()
        {
            addresses.push(neighbor_address(*far));
        }
        if addresses.is_empty() {
            return Err(Problem::usage("plumb's stack needs an address")
                .because("it uses neither DHCP nor router advertisements")
                .fix("give it one of its network: --addr 10.77.0.2/24 or --addr fd77::2/64"));
        }
        let source = device.file().map(Path::to_owned);
        Ok(AttachedHostSettings {
            device,
            addresses,
            gateways: self.gateway.clone(),
            mac: self.mac,
            wait: self.wait.into(),
            batch: self.batch.into(),
            instrumentation: DeviceInstrumentation {
                record: self.pcap.clone(),
                source,
                faults: self.faults,
            },
            seed: seed_or_random(self.seed)?,
            memory_peer: far,
        })
    }

    /// Rejects options of plumb's stack when the kernel's stack is used.
    ///
    /// # Errors
    /// Such an option was given.
    pub fn refuse_without_device(&self) -> Result<(), Problem> {
        let given = [
            (!self.addr.is_empty(), "--addr"),
            (!self.gateway.is_empty(), "--gateway"),
            (self.mac.is_some(), "--mac"),
            (self.pcap.is_some(), "--pcap"),
            (self.faults.is_some(), "--faults"),
            (self.stats.is_some(), "--stats"),
        ];
        match given.into_iter().find(|(given, _)| *given) {
            None => Ok(()),
            Some((_, option)) => Err(Problem::usage(format!("{option} is for plumb's own stack"))
                .because("without --device the kernel's stack is used")
                .fix(format!("name a device, or leave out {option}"))),
        }
    }
}

/// The other address of the /31 or /127 network.
fn neighbor_address(far: IpAddr) -> (IpAddr, u8) {
    match far {
        IpAddr::V4(far) => (IpAddr::V4((far.to_bits() ^ 1).into()), 31),
        IpAddr::V6(far) => (IpAddr::V6((far.to_bits() ^ 1).into()), 127),
    }
}

/// Reads `10.77.0.2/24` or `fd77::2/64`.
pub fn parse_address(text: &str) -> Result<(IpAddr, u8), String> {
    let fault = || {
        format!("'{text}' is not an address with a prefix length: write 10.77.0.2/24 or fd77::2/64")
    };
    let (address, len) = text.split_once('/').ok_or_else(fault)?;
    let address: IpAddr = address.parse().map_err(|_| fault())?;
    let len: u8 = len.parse().map_err(|_| fault())?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    if len <= max { Ok((address, len)) } else { Err(format!("{address} has only {max} bits")) }
}

/// Prints the state of a running host on SIGUSR1, and periodically if requested.
#[derive(Debug)]
pub struct StatusReports {
    every: Option<Span>,
    next: Option<Instant>,
    requests_seen: u32,
    output: CliOutput,
}

impl StatusReports {
    /// Nothing printed yet.
    pub fn new(options: &StackHostOptions, output: &CliOutput) -> Self {
        let every = options.stats.filter(|every| *every > Span::ZERO);
        Self { every, next: None, requests_seen: 0, output: output.clone() }
    }

    /// Prints the counters if due, after the `summary` of the application.
    pub fn print_if_due(&mut self, now: Instant, host: &IpHost, summary: impl FnOnce() -> String) {
        let requests = stop_signals::status_requests();
        let mut is_due = requests != self.requests_seen;
        self.requests_seen = requests;
        if let Some(every) = self.every {
            let next = *self.next.get_or_insert(now + every);
            if now >= next {
                is_due = true;
                self.next = Some(now + every);
            }
        }
        if !is_due {
            return;
        }
        let counted = host.counters().iter().filter(|(_, count)| *count > 0);
        let counted: Vec<String> = counted.map(|(name, count)| format!("{name} {count}")).collect();
        self.output.note(&format!("{}; {}", summary(), counted.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_need_a_valid_prefix_length() {
        assert_eq!(parse_address("10.77.0.2/24"), Ok(("10.77.0.2".parse().unwrap(), 24)));
        assert_eq!(parse_address("fd77::2/64"), Ok(("fd77::2".parse().unwrap(), 64)));
        for text in ["10.77.0.2", "10.77.0/24", "10.77.0.2/33", "fd77::2/129", "a/b", "/"] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn neighbor_address_is_the_other_of_two() {
        for (far, near, bits) in [("10.0.0.2", "10.0.0.3", 31), ("fd77::2", "fd77::3", 127)] {
            assert_eq!(neighbor_address(far.parse().unwrap()), (near.parse().unwrap(), bits));
        }
    }
}
