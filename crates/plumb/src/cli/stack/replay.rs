//! `plumb stack replay`: frames of a capture, or one frame, through plumb's own stack from memory.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use plumb_analysis::document::stack::{ReplayRate, SCHEMA, StackDevice, StackDocument};
use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_base::units::quantity::parse_span;
use plumb_clock::InstantClock;
use plumb_harness::stop_signals;
use plumb_netdev::device::driver::{Driver, DriverExit, DriverOptions};
use plumb_netdev::device::replay::{ReplayCount, ReplaySource};
use plumb_netdev::device::{Device, DeviceWait};
use plumb_stack::interface::InterfaceConfig;
use plumb_stack::route::{IpPrefix, Route};
use plumb_wire::machine::{DeviceCapabilities, Medium};
use plumb_wire::machine::{Machine, PortId};

use super::applications::finish;
use super::options::parse_address;
use crate::cli::output::{CliOutput, CommandError};
use crate::problem::{ExitReason, Problem};
use crate::stack::attached_host::{
    OfferedServices, ServiceKind, ServicePort, device_counters, drops, host,
    install_signal_handlers, nonzero, random_mac, timeline,
};
use crate::stack::device::{AttachedDevice, DeviceInstrumentation, capture, pool_for};
use crate::stack::replay::{
    CaptureDestination, NeighborResponder, PacketSink, destination, frames_of, parse_hex,
};
use plumb_stack::service::HostNode;

/// Pass the frames of a capture through plumb's own stack, as fast as it takes them
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The stack gets the addresses that most of the frames are for, and mirrors their UDP ports. Frames come
from memory: no kernel and no network is in what is measured. What the memory device takes by itself
is measured apart, with the same frames and no stack.

Examples:
  plumb stack replay trace.pcapng
  plumb stack replay trace.pcap --times 1000 --pcap answers.pcapng
  plumb stack replay --frame '02 00 00 00 00 02 …' --duration 5s")]
pub struct StackReplayCommand {
    /// A pcap or pcapng file
    #[arg(value_name = "FILE", required_unless_present = "frame")]
    file: Option<PathBuf>,
    /// One frame as hexadecimal digits, instead of a file
    #[arg(long, value_name = "HEX", conflicts_with = "file", value_parser = parse_frame)]
    frame: Option<HexFrame>,
    /// How often all frames are given [default: a file's once, one frame for a second]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    times: Option<u64>,
    /// Again and again for this long
    #[arg(long, value_name = "TIME", conflicts_with = "times", value_parser = parse_span)]
    duration: Option<Span>,
    /// An address of the stack, with the bits of its network, instead of what most frames are for
    #[arg(long, value_name = "ADDRESS/BITS", value_parser = parse_address)]
    addr: Vec<(IpAddr, u8)>,
    /// UDP ports to mirror, instead of those of the frames
    #[arg(long, value_name = "PORT,…", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    port: Vec<u16>,
    /// Most packets taken at a time
    #[arg(long, value_name = "N", default_value_t = 32)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    batch: u16,
    /// Record every packet, both ways, in this pcapng file
    #[arg(long, value_name = "OUT.pcapng")]
    pcap: Option<PathBuf>,
    /// Print the counters of the device too
    #[arg(long)]
    stats: bool,
    /// Seed of every random choice
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// A frame, as clap must have it: a list would be several options.
#[derive(Clone, Debug)]
struct HexFrame(Vec<u8>);

fn parse_frame(text: &str) -> Result<HexFrame, String> {
    parse_hex(text).map(HexFrame)
}

/// One frame, without a word about how long.
const DURATION: Span = Span::from_secs(1);

/// What a reader must know of a rate at which nothing was answered.
const NOTHING_OUT: &str = "nothing came out: the rate is that of dropping what came in, for the \
     reasons below";

/// How long the device is measured by itself.
const DEVICE_ALONE: Span = Span::from_ms(200);

/// Of the link in memory: whatever a capture may hold fits.
const MTU: u32 = 65_535;

/// What is replayed, how often.
struct ReplayLoad {
    name: String,
    medium: Medium,
    frames: Vec<Vec<u8>>,
    repeat: ReplayCount,
    duration: Option<Span>,
}

impl ReplayLoad {
    fn source(&self) -> ReplaySource {
        let capabilities = DeviceCapabilities::plain(self.medium, MTU);
        ReplaySource::new(capabilities, self.frames.iter().map(Vec::as_slice), self.repeat)
    }
}

/// How a replay went.
struct ReplayOutcome {
    seconds: f64,
    ended: &'static str,
}

impl StackReplayCommand {
    /// Replays and prints how fast.
    ///
    /// # Errors
    /// A file that is no capture, or a host that cannot be made of what was asked for.
    pub fn perform(self, output: &CliOutput) -> Result<ExitReason, CommandError> {
        install_signal_handlers()?;
        let load = self.load()?;
        let frames = load.frames.iter().map(Vec::as_slice);
        let found = destination(load.medium, frames);
        let seed = match self.seed {
            Some(seed) => Seed(seed),
            None => Seed(plumb_clock::entropy().map_err(|error| {
                Problem::failure("cannot read random bits from /dev/urandom").because(error)
            })?),
        };
        let timeline = timeline();
        let mut node = self.node(&load, &found, seed)?;
        let addresses = node.host.interfaces().iter().flat_map(|interface| &interface.addresses);
        let addresses: Vec<String> =
            addresses.map(|address| format!("{}/{}", address.ip, address.prefix.len())).collect();
        let decoration = DeviceInstrumentation {
            record: self.pcap.clone(),
            source: self.file.clone(),
            faults: None,
        };
        let source = Box::new(NeighborResponder::new(load.source()));
        let attached = AttachedDevice::new(source, &decoration, timeline, seed)?;
        let (pass, device) = self.drive(&mut node, attached, &load, timeline)?;
        let alone = self.device_alone(&load, timeline)?;

        let counters = device.counters();
        let packets = counters.rx_packets.max(1) as f64;
        let mut document = StackDocument {
            schema: SCHEMA.to_owned(),
            command: "replay".to_owned(),
            stack: "plumb".to_owned(),
            device: Some(StackDevice {
                name: "memory".to_owned(),
                mac: found.mac.map_or_else(String::new, |mac| mac.to_string()),
                mtu: MTU,
                wait: "spin".to_owned(),
                batch: self.batch.into(),
            }),
            addresses,
            seconds: pass.seconds,
            ended: pass.ended.to_owned(),
            services: node.application.counts(),
            replay: Some(ReplayRate {
                source: load.name.clone(),
                frames: load.frames.len() as u64,
                frame_bytes: load.frames.iter().map(|frame| frame.len() as u64).sum(),
                received: counters.rx_packets,
                sent: counters.tx_packets,
                packets_per_second: packets / pass.seconds.max(1e-9),
                ns_per_packet: pass.seconds * 1e9 / packets,
                device_ns_per_packet: alone,
            }),
            stack_counters: nonzero(node.host.counters().iter()),
            drop_counters: drops(node.host.counters()),
            device_counters: nonzero(device_counters(counters)),
            ..StackDocument::default()
        };
        if found.addresses.is_empty() && self.addr.is_empty() {
            output.note(
                "no frame holds a UDP datagram, so the stack has only an address of its own by chance; \
                 --addr gives it another",
            );
        }
        if counters.tx_packets == 0 {
            document.flags.push(NOTHING_OUT.to_owned());
        }
        finish(&document, None, self.stats, output)
    }

    fn load(&self) -> Result<ReplayLoad, Problem> {
        let (name, medium, frames) = match (&self.frame, &self.file) {
            (Some(HexFrame(frame)), _) => {
                ("frame".to_owned(), Medium::Ethernet, vec![frame.clone()])
            }
            (None, Some(path)) => {
                let mut source = capture(path)?;
                let medium = source.capabilities().medium;
                (path.display().to_string(), medium, frames_of(&mut source)?)
            }
            (None, None) => return Err(Problem::usage("there is nothing to replay")),
        };
        let (repeat, duration) = match (self.times, self.duration, &self.frame) {
            (Some(times), ..) => (ReplayCount::Times(times), None),
            (None, Some(duration), _) => (ReplayCount::Forever, Some(duration)),
            (None, None, Some(_)) => (ReplayCount::Forever, Some(DURATION)),
            (None, None, None) => (ReplayCount::Times(1), None),
        };
        Ok(ReplayLoad { name, medium, frames, repeat, duration })
    }

    /// A host with the addresses that the frames are for, all the world on its link, and mirrors.
    fn node(
        &self,
        load: &ReplayLoad,
        found: &CaptureDestination,
        seed: Seed,
    ) -> Result<HostNode<OfferedServices>, Problem> {
        let derived = |ip: &IpAddr| (*ip, if ip.is_ipv4() { 24 } else { 64 });
        let addresses = if self.addr.is_empty() {
            found.addresses.iter().map(derived).collect()
        } else {
            self.addr.clone()
        };
        let config = InterfaceConfig {
            capabilities: DeviceCapabilities::plain(load.medium, MTU),
            mac: found.mac.unwrap_or_else(|| random_mac(seed)),
            addresses,
            link_local: load.medium == Medium::Ethernet,
        };
        let mut host = host(&config, &[], seed)?;
        for is_v6 in [false, true] {
            let prefix = IpPrefix::default_route(is_v6);
            host.add_route(Route { prefix, port: PortId(0), gateway: None });
        }
        let ports = if self.port.is_empty() { &found.ports } else { &self.port };
        let offers: Vec<ServicePort> =
            ports.iter().map(|&port| ServicePort { kind: ServiceKind::Mirror, port }).collect();
        let application = OfferedServices::open(&mut host, &offers)
            .map_err(|error| Problem::from_message(&error.to_string(), ExitReason::Usage))?;
        Ok(HostNode { host, application })
    }

    fn drive<M: Machine, D: Device>(
        &self,
        machine: &mut M,
        device: D,
        load: &ReplayLoad,
        timeline: InstantClock,
    ) -> Result<(ReplayOutcome, D), Problem> {
        let options =
            DriverOptions { batch: self.batch.into(), tick: None, wait: DeviceWait::Spin };
        let mut driver = Driver::new(vec![device], pool_for(MTU), timeline, options);
        let begun = driver.read_clock();
        let mut ended = "complete";
        let end = driver.run(machine, |_, now, _| {
            if stop_signals::stop_requests() > 0 {
                ended = "interrupted";
                return true;
            }
            let is_over = load.duration.is_some_and(|span| now.saturating_since(begun) >= span);
            if is_over {
                ended = "duration";
            }
            is_over
        })?;
        if end == DriverExit::Finished {
            ended = "complete";
        }
        let seconds = driver.read_clock().saturating_since(begun).as_secs_f64();
        let (mut devices, _, ()) = driver.into_parts();
        let device = devices.pop().expect("the one that was put in");
        Ok((ReplayOutcome { seconds, ended }, device))
    }

    /// Nanoseconds that the device takes for each packet when nobody does anything with them.
    fn device_alone(&self, load: &ReplayLoad, timeline: InstantClock) -> Result<f64, Problem> {
        let alone = ReplayLoad {
            name: String::new(),
            medium: load.medium,
            frames: load.frames.clone(),
            repeat: ReplayCount::Forever,
            duration: Some(DEVICE_ALONE),
        };
        let device: Box<dyn Device> = Box::new(NeighborResponder::new(alone.source()));
        let (pass, device) = self.drive(&mut PacketSink, device, &alone, timeline)?;
        Ok(pass.seconds * 1e9 / device.counters().rx_packets.max(1) as f64)
    }
}
