//! What every command that runs plumb's own stack takes.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_base::units::quantity::parse_span;
use plumb_harness::stop_signals;
use plumb_netdev::device::DeviceWait;
use plumb_netdev::device::fault::FaultRates;
use plumb_stack::host::IpHost;
use plumb_wire::ethernet::MacAddr;

use crate::cli::output::CliOutput;
use crate::problem::Problem;
use crate::stack::attached_host::{AttachedHostSettings, ServicePort};
use crate::stack::device::{self, DeviceInstrumentation, DeviceName};

/// How long a polling wait spins after the last packet.
const POLL: Span = Span::from_us(50);

/// Where the stack is and as whom.
#[derive(Clone, Debug, Args)]
pub struct StackHostOptions {
    /// Device of the stack: tap:NAME, tun:NAME, packet:INTERFACE, xdp:INTERFACE, pcap:FILE
    /// or memory
    #[arg(long, value_name = "DEVICE", value_parser = parse_device)]
    #[arg(help_heading = "Stack")]
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

/// How to wait, as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StackWaitOption {
    /// Asleep in the kernel
    Block,
    /// Spinning a little, then asleep
    Poll,
    /// Spinning
    Spin,
}

impl From<StackWaitOption> for DeviceWait {
    fn from(word: StackWaitOption) -> Self {
        match word {
            StackWaitOption::Block => Self::Block,
            StackWaitOption::Poll => Self::Poll(POLL),
            StackWaitOption::Spin => Self::Spin,
        }
    }
}

impl StackHostOptions {
    /// The settings of a station; `far` is who is at the other end of a link in memory, and what it
    /// offers there.
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
                    "name one, --device tap:NAME for instance; 'plumb stack lab' makes some to try",
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
                .because("it has none by itself, and asks nobody for one")
                .fix(
                    "give it one of the network there: --addr 10.77.0.2/24 or --addr fd77::2/64",
                ));
        }
        let seed = match self.seed {
            Some(seed) => seed,
            None => plumb_clock::entropy().map_err(|error| {
                Problem::failure("cannot read random bits from /dev/urandom").because(error)
            })?,
        };
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
                faults: self.faults.map(|faults| (faults, faults)),
            },
            seed: Seed(seed),
            memory_peer: far,
        })
    }

    /// Refuses what has a meaning only for plumb's own stack.
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
                .because("without --device the kernel's stack sends")
                .fix(format!("name a device, or leave out {option}"))),
        }
    }
}

/// The other address of the smallest network of two.
fn neighbor_address(far: IpAddr) -> (IpAddr, u8) {
    match far {
        IpAddr::V4(far) => (IpAddr::V4((far.to_bits() ^ 1).into()), 31),
        IpAddr::V6(far) => (IpAddr::V6((far.to_bits() ^ 1).into()), 127),
    }
}

fn parse_device(text: &str) -> Result<DeviceName, String> {
    text.parse().map_err(|error: device::ParseDeviceError| error.to_string())
}

/// Reads `10.77.0.2/24` or `fd77::2/64`.
pub fn parse_address(text: &str) -> Result<(IpAddr, u8), String> {
    let fault = || format!("'{text}' is no address of a network: write 10.77.0.2/24 or fd77::2/64");
    let (address, len) = text.split_once('/').ok_or_else(fault)?;
    let address: IpAddr = address.parse().map_err(|_| fault())?;
    let len: u8 = len.parse().map_err(|_| fault())?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    if len > max {
        Err(format!("{address} has {max} bits, and not {len}"))
    } else {
        Ok((address, len))
    }
}

/// Says while a station runs how things stand: when asked by SIGUSR1, and every so often.
#[derive(Debug)]
pub struct StatusReports {
    every: Option<Span>,
    next: Option<Instant>,
    answered: u32,
    output: CliOutput,
}

impl StatusReports {
    /// Nothing said yet.
    pub fn new(options: &StackHostOptions, output: &CliOutput) -> Self {
        let every = options.stats.filter(|every| *every > Span::ZERO);
        Self { every, next: None, answered: 0, output: output.clone() }
    }

    /// Says it if it is time to; `summary` is the application's own line.
    pub fn print_if_due(&mut self, now: Instant, host: &IpHost, summary: impl FnOnce() -> String) {
        let asked = stop_signals::status_requests();
        let mut is_due = asked != self.answered;
        self.answered = asked;
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
    fn addresses_are_read_with_their_networks_and_nonsense_is_refused() {
        assert_eq!(parse_address("10.77.0.2/24"), Ok(("10.77.0.2".parse().unwrap(), 24)));
        assert_eq!(parse_address("fd77::2/64"), Ok(("fd77::2".parse().unwrap(), 64)));
        for text in ["10.77.0.2", "10.77.0/24", "10.77.0.2/33", "fd77::2/129", "a/b", "/"] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_near_end_of_a_link_in_memory_is_beside_the_far_one() {
        assert_eq!(
            neighbor_address("10.0.0.2".parse().unwrap()),
            ("10.0.0.3".parse().unwrap(), 31)
        );
        assert_eq!(neighbor_address("fd77::2".parse().unwrap()), ("fd77::3".parse().unwrap(), 127));
    }
}
