//! `plumb stack replay`: passes frames from memory through plumb's own stack.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use plumb_analysis::document::stack::{ReplayRate, SCHEMA, StackDevice, StackDocument};
use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_base::units::quantity::parse_duration;
use plumb_netdev::device::Device as _;
use plumb_netdev::device::replay::{FRAME_MAX, ReplayCount};
use plumb_netdev::host::calibrated_clock;
use plumb_netdev::host::replay::{
    CaptureDestination, REPLAY_MTU, ReplayLoad, destination, frames_of,
};
use plumb_netdev::host::services::{OfferedServices, ServiceKind, ServicePort};
use plumb_stack::interface::InterfaceConfig;
use plumb_stack::route::{IpPrefix, Route};
use plumb_stack::service::HostNode;
use plumb_wire::machine::{DeviceCapabilities, Medium, PortId};

use super::applications::finish;
use super::device::{capture, instrumented};
use super::host::{
    address_texts, device_counters, drops, host, install_signal_handlers, nonzero, parse_address,
    random_mac,
};
use super::serve::service_counts;
use crate::cli::output::{CliOutput, CommandResult};
use crate::cli::seed_or_random;
use crate::problem::Problem;

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
    #[arg(long, value_name = "TIME", conflicts_with = "times", value_parser = parse_duration)]
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

impl StackReplayCommand {
    /// Replays the frames and prints the rate.
    ///
    /// # Errors
    /// The file is not a capture, or the addresses are invalid.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        install_signal_handlers()?;
        let (source, load, too_long) = self.load()?;
        let frames = load.frames.iter().map(Vec::as_slice);
        let found = destination(load.medium, frames);
        let seed = seed_or_random(self.seed)?;
        let timeline = calibrated_clock();
        let mut node = self.node(&load, &found, seed)?;
        let (record, file) = (self.pcap.as_deref(), self.file.as_deref());
        let device = instrumented(load.device(), record, file, None, timeline, seed)?;
        let run = load.run(&mut node, device, timeline)?;
        let alone = load.device_alone_ns(timeline)?;

        let counters = run.device.counters();
        let packets = counters.rx_packets.max(1) as f64;
        let mut document = StackDocument {
            schema: SCHEMA.to_owned(),
            command: "replay".to_owned(),
            stack: "plumb".to_owned(),
            device: Some(StackDevice {
                name: "memory".to_owned(),
                mac: found.mac.map_or_else(String::new, |mac| mac.to_string()),
                mtu: REPLAY_MTU,
                wait: "spin".to_owned(),
                batch: self.batch.into(),
            }),
            addresses: address_texts(&node.host),
            seconds: run.seconds,
            ended: run.ended.name().to_owned(),
            services: service_counts(&node.application),
            replay: Some(ReplayRate {
                source,
                frames: load.frames.len() as u64,
                frame_bytes: load.frames.iter().map(|frame| frame.len() as u64).sum(),
                received: counters.rx_packets,
                sent: counters.tx_packets,
                packets_per_second: packets / run.seconds.max(1e-9),
                ns_per_packet: run.seconds * 1e9 / packets,
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
        if too_long > 0 {
            document.flags.push(format!(
                "{too_long} frames are longer than {FRAME_MAX} bytes, which no packet holds: left out"
            ));
        }
        if counters.tx_packets == 0 {
            document.flags.push(NOTHING_OUT.to_owned());
        }
        finish(&document, None, self.stats, output)
    }

    /// The name of the source, its frames, and how many others are longer than a packet.
    fn load(&self) -> Result<(String, ReplayLoad, u64), Problem> {
        let (name, medium, frames, too_long) = match (&self.frame, &self.file) {
            (Some(HexFrame(frame)), _) => {
                ("frame".to_owned(), Medium::Ethernet, vec![frame.clone()], 0)
            }
            (None, Some(path)) => {
                let mut source = capture(path)?;
                let medium = source.info().capabilities.medium;
                let frames = frames_of(&mut source)?;
                (path.display().to_string(), medium, frames, source.counters().rx_dropped)
            }
            (None, None) => return Err(Problem::usage("there is nothing to replay")),
        };
        let (repeat, duration) = match (self.times, self.duration, &self.frame) {
            (Some(times), ..) => (ReplayCount::Times(times), None),
            (None, Some(duration), _) => (ReplayCount::Forever, Some(duration)),
            (None, None, Some(_)) => (ReplayCount::Forever, Some(DURATION)),
            (None, None, None) => (ReplayCount::Times(1), None),
        };
        let batch = self.batch.into();
        Ok((name, ReplayLoad { medium, frames, repeat, duration, batch }, too_long))
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
            capabilities: DeviceCapabilities::plain(load.medium, REPLAY_MTU),
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
        let application = OfferedServices::open(&mut host, &offers, None)?;
        Ok(HostNode { host, application })
    }
}

/// Parses hexadecimal digits, which white space and colons may separate.
///
/// # Errors
/// The fault and its place.
fn parse_hex(text: &str) -> Result<Vec<u8>, String> {
    let mut digits = Vec::new();
    for (place, c) in text.chars().enumerate() {
        match c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()) {
            Some(digit) => digits.push(digit),
            None if c.is_whitespace() || c == ':' => {}
            None => {
                return Err(format!("'{c}' at position {} is not a hexadecimal digit", place + 1));
            }
        }
    }
    let (pairs, rest) = digits.as_chunks::<2>();
    match rest {
        _ if digits.is_empty() => Err("there are no digits".to_owned()),
        [] => Ok(pairs.iter().map(|[high, low]| high << 4 | low).collect()),
        _ => Err(format!("{} digits are not whole bytes", digits.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_parsed_from_hexadecimal_digits() {
        assert_eq!(parse_hex("02:00 ff\n0A"), Ok(vec![2, 0, 255, 10]));
        assert!(parse_hex("0g").unwrap_err().contains("'g' at position 2"));
        assert!(parse_hex("0").is_err() && parse_hex(" ").is_err());
    }
}
