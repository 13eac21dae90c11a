//! `plumb stack replay`: passes frames from memory through plumb's own stack.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use plumb_analysis::document::stack::{ReplayRate, SCHEMA, StackDevice, StackDocument};
use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_base::units::quantity::parse_span;
use plumb_clock::InstantClock;
use plumb_netdev::device::driver::{Driver, DriverExit, DriverOptions};
use plumb_netdev::device::replay::{ReplayCount, ReplaySource};
use plumb_netdev::device::{Device, DeviceWait};
use plumb_stack::interface::InterfaceConfig;
use plumb_stack::route::{IpPrefix, Route};
use plumb_wire::machine::{DeviceCapabilities, Medium};
use plumb_wire::machine::{Machine, PortId};

use super::applications::finish;
use super::parse_address;
use crate::cli::output::{CliOutput, CommandResult};
use crate::cli::{is_stopped, seed_or_random};
use crate::problem::Problem;
use crate::stack::attached_host::{
    OfferedServices, ServiceKind, ServicePort, address_texts, device_counters, drops, host,
    install_signal_handlers, nonzero, random_mac, timeline,
};
use crate::stack::device::{AttachedDevice, DeviceInstrumentation, capture, pool_for};
use crate::stack::replay::{
    CaptureDestination, NeighborResponder, PacketSink, destination, frames_of, parse_hex,
};
use plumb_stack::service::HostNode;

/// Pass the frames of a capture through plumb's own stack as fast as possible
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The stack gets the addresses of most frames, and mirrors their UDP ports. Frames come from memory, so
neither kernel nor network is measured. The cost of the memory device alone, with the same frames and
no stack, is measured separately.

Examples:
  plumb stack replay trace.pcapng
  plumb stack replay trace.pcap --times 1000 --pcap answers.pcapng
  plumb stack replay --frame '02 00 00 00 00 02 …' --duration 5s")]
pub struct StackReplayCommand {
    /// A pcap or pcapng file
    #[arg(value_name = "FILE", required_unless_present = "frame")]
    file: Option<PathBuf>,
    /// One frame in hexadecimal digits, instead of a file
    #[arg(long, value_name = "HEX", conflicts_with = "file", value_parser = parse_frame)]
    frame: Option<HexFrame>,
    /// Number of passes over all frames [default: a file once, one frame for a second]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    times: Option<u64>,
    /// Repeat for this time
    #[arg(long, value_name = "TIME", conflicts_with = "times", value_parser = parse_span)]
    duration: Option<Span>,
    /// Address of the stack with its prefix length, instead of that of most frames; may be repeated
    #[arg(long, value_name = "ADDRESS/BITS", value_parser = parse_address)]
    addr: Vec<(IpAddr, u8)>,
    /// UDP ports to mirror, instead of those of the frames
    #[arg(long, value_name = "PORT,…", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    port: Vec<u16>,
    /// Most packets per batch
    #[arg(long, value_name = "N", default_value_t = 32)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    batch: u16,
    /// Record every packet, in both directions, to this pcapng file
    #[arg(long, value_name = "OUT.pcapng")]
    pcap: Option<PathBuf>,
    /// Also print the counters of the device
    #[arg(long)]
    stats: bool,
    /// Seed of every random choice
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// A frame; clap would take a bare `Vec` as several values.
#[derive(Clone, Debug)]
struct HexFrame(Vec<u8>);

fn parse_frame(text: &str) -> Result<HexFrame, String> {
    parse_hex(text).map(HexFrame)
}

/// Default duration of one frame.
const DURATION: Span = Span::from_secs(1);

/// Flag of a replay without any output.
const NOTHING_OUT: &str =
    "nothing came out: the rate is that of dropping packets, for the reasons below";

/// Duration of the measurement of the device alone.
const DEVICE_ALONE: Span = Span::from_ms(200);

/// MTU of the memory device, enough for any capture.
const MTU: u32 = 65_535;

/// Frames to replay, and how often.
#[derive(Clone)]
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

/// Duration and end of a replay.
struct ReplayOutcome {
    seconds: f64,
    ended: &'static str,
}

impl StackReplayCommand {
    /// Replays the frames and prints the rate.
    ///
    /// # Errors
    /// The file is not a capture, or the addresses are invalid.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        install_signal_handlers()?;
        let load = self.load()?;
        let frames = load.frames.iter().map(Vec::as_slice);
        let found = destination(load.medium, frames);
        let seed = seed_or_random(self.seed)?;
        let timeline = timeline();
        let mut node = self.node(&load, &found, seed)?;
        let instrumentation = DeviceInstrumentation {
            record: self.pcap.clone(),
            source: self.file.clone(),
            faults: None,
        };
        let source = Box::new(NeighborResponder::new(load.source()));
        let attached = AttachedDevice::new(source, &instrumentation, timeline, seed)?;
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
            addresses: address_texts(&node.host),
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
                "no frame has a UDP datagram, so the stack only has a random link address; --addr gives \
                 it an address",
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
                let medium = source.info().capabilities.medium;
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

    /// A host with the addresses of the frames, on-link default routes, and mirrors.
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
        let application = OfferedServices::open(&mut host, &offers)?;
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
            if is_stopped() {
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
        let device = devices.pop().expect("one device");
        Ok((ReplayOutcome { seconds, ended }, device))
    }

    /// Nanoseconds per packet of the device alone.
    fn device_alone(&self, load: &ReplayLoad, timeline: InstantClock) -> Result<f64, Problem> {
        let duration = Some(DEVICE_ALONE);
        let alone = ReplayLoad { repeat: ReplayCount::Forever, duration, ..load.clone() };
        let device: Box<dyn Device> = Box::new(NeighborResponder::new(alone.source()));
        let (pass, device) = self.drive(&mut PacketSink, device, &alone, timeline)?;
        Ok(pass.seconds * 1e9 / device.counters().rx_packets.max(1) as f64)
    }
}
