//! Devices and faults on the command line.

use std::error::Error as _;
use std::path::Path;
use std::str::FromStr;

use plumb_base::seed::Seed;
use plumb_base::units::quantity::parse_probability;
use plumb_clock::InstantClock;
use plumb_netdev::device::fault::{FaultCounters, FaultRates};
use plumb_netdev::device::packet::{PacketDevice, PacketOptions};
use plumb_netdev::device::replay;
use plumb_netdev::device::tap::{TapDevice, TapOptions};
use plumb_netdev::device::xdp::{XdpDevice, XdpOptions};
use plumb_netdev::device::{Device, DeviceError, DeviceOpenError, DeviceOpenFailure, DeviceWait};
use plumb_netdev::host::{AttachedDevice, LARGEST_MTU, pool_for, pool_for_device};
use plumb_wire::machine::Medium;
use plumb_wire::packet::Pool;

use crate::problem::{ExitReason, Problem, nearest};
use crate::recording::{not_recorded, refuse_overwrite};

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A TAP device: Ethernet frames to and from the kernel.
    Tap,
    /// A TUN device: IP packets to and from the kernel.
    Tun,
    /// A packet socket on an interface.
    Packet,
    /// AF_XDP sockets on an interface.
    Xdp,
    /// A capture file whose frames are received.
    Pcap,
    /// A link within this process.
    Memory,
}

const KINDS: [(&str, DeviceKind); 6] = [
    ("tap", DeviceKind::Tap),
    ("tun", DeviceKind::Tun),
    ("packet", DeviceKind::Packet),
    ("xdp", DeviceKind::Xdp),
    ("pcap", DeviceKind::Pcap),
    ("memory", DeviceKind::Memory),
];

/// A device on the command line, such as `tap:plumb0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceName {
    /// Its kind.
    pub kind: DeviceKind,
    /// Both parts; of a link in memory the kind alone.
    pub text: String,
}

/// `did you mean 'NAME'? ` for the nearest name, if one is near.
fn hint<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(text, names).map_or_else(String::new, |name| format!("did you mean '{name}'? "))
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (word, name) = text.split_once(':').unwrap_or((text, ""));
        match KINDS.into_iter().find(|(known, _)| *known == word) {
            Some((_, kind @ DeviceKind::Memory)) => Ok(Self { kind, text: word.to_owned() }),
            Some(_) if name.is_empty() => Err(format!("'{word}' needs a name: write {word}:NAME")),
            Some((_, kind)) => Ok(Self { kind, text: text.to_owned() }),
            None => Err(format!(
                "there is no device '{word}'; {}write tap:NAME, tun:NAME, packet:INTERFACE, \
                 xdp:INTERFACE, pcap:FILE or memory",
                hint(word, KINDS.map(|(known, _)| known))
            )),
        }
    }
}

impl DeviceName {
    /// Opens the device and creates its packet pool. `own_mac`: whether the stack's link address is not the
    /// interface's.
    ///
    /// # Errors
    /// As the device; a link in memory has two ends and is not opened here.
    pub fn open(
        &self,
        wait: DeviceWait,
        own_mac: bool,
    ) -> Result<(Box<dyn Device>, Pool), Problem> {
        let name = self.name();
        let tap =
            |medium| TapDevice::open(name, TapOptions { medium, wait, ..TapOptions::default() });
        let device: Box<dyn Device> = match self.kind {
            DeviceKind::Tap => Box::new(tap(Medium::Ethernet)?),
            DeviceKind::Tun => Box::new(tap(Medium::Ip)?),
            DeviceKind::Packet => {
                let options =
                    PacketOptions { wait, promiscuous: own_mac, ..PacketOptions::default() };
                Box::new(PacketDevice::open(name, &options)?)
            }
            DeviceKind::Xdp => {
                let options = XdpOptions { wait, ..XdpOptions::default() };
                let (device, pool) = XdpDevice::open(name, &options)?;
                return Ok((Box::new(device), pool));
            }
            DeviceKind::Pcap => {
                return Ok((Box::new(capture(Path::new(name))?), pool_for(LARGEST_MTU)));
            }
            DeviceKind::Memory => {
                return Err(Problem::usage("a link in memory has no host at its other end here")
                    .because("only this process can reach it")
                    .fix("use it with send, ping or replay, or use a TAP: --device tap:NAME"));
            }
        };
        let pool = pool_for_device(device.info().capabilities);
        Ok((device, pool))
    }

    fn name(&self) -> &str {
        self.text.split_once(':').map_or("", |(_, name)| name)
    }

    /// The capture file.
    pub fn file(&self) -> Option<&Path> {
        (self.kind == DeviceKind::Pcap).then(|| Path::new(self.name()))
    }
}

/// Opens a capture file.
///
/// # Errors
/// It cannot be read, or is not a capture.
pub fn capture(path: &Path) -> Result<replay::ReplaySource, Problem> {
    Ok(replay::open(path)?)
}

/// A device with faults and a recording between it and the stack; the recording may not overwrite `source`, the file
/// that packets come from.
///
/// # Errors
/// The recording cannot be created, or would overwrite the source.
pub fn instrumented(
    device: Box<dyn Device>,
    record: Option<&Path>,
    source: Option<&Path>,
    faults: Option<FaultRates>,
    timeline: InstantClock,
    seed: Seed,
) -> Result<AttachedDevice, Problem> {
    if let Some(path) = record {
        refuse_overwrite("recording", path, source)?;
    }
    AttachedDevice::new(device, record, faults, timeline, seed)
        .map_err(|error| not_recorded(record.unwrap_or(Path::new("")), error))
}

impl From<DeviceOpenError> for Problem {
    /// The message with the kernel's error as its reason, unless the message contains it.
    fn from(error: DeviceOpenError) -> Self {
        let exit = match error.failure {
            DeviceOpenFailure::Request => ExitReason::Usage,
            DeviceOpenFailure::Lacking | DeviceOpenFailure::Refused => ExitReason::Failure,
        };
        let problem = Self::from_message(&error.to_string(), exit);
        match error.source() {
            Some(source) => problem.because(source),
            None => problem,
        }
    }
}

impl From<DeviceError> for Problem {
    fn from(error: DeviceError) -> Self {
        let fix = match &error {
            DeviceError::Gone { .. } => "create it and run this command again",
            DeviceError::Finished => "use a longer capture",
            DeviceError::Io { .. } => "see 'plumb doctor' for what this host allows",
        };
        Self::failure(error.to_string()).fix(fix)
    }
}

/// A fault's name, and its rate.
type NamedFault = (&'static str, fn(&mut FaultRates) -> &mut f64);

/// Faults by name.
const FAULTS: [NamedFault; 6] = [
    ("loss", |faults| &mut faults.lose),
    ("burst", |faults| &mut faults.burst_begin),
    ("truncate", |faults| &mut faults.truncate),
    ("corrupt", |faults| &mut faults.corrupt),
    ("duplicate", |faults| &mut faults.duplicate),
    ("reorder", |faults| &mut faults.reorder),
];
/// Mean number of packets in a burst of losses.
const BURST_PACKETS: f64 = 10.0;
/// Packets that overtake a reordered one.
const REORDER_DISTANCE: u32 = 3;

/// Parses `loss=1%,corrupt=0.001`: the share of packets with each fault, in both directions.
///
/// # Errors
/// The fault in the text, and what is valid.
pub fn parse_faults(text: &str) -> Result<FaultRates, String> {
    let mut faults = FaultRates {
        burst_end: 1.0 / BURST_PACKETS,
        reorder_distance: REORDER_DISTANCE,
        ..FaultRates::default()
    };
    for part in text.split(',') {
        let (name, share) =
            part.split_once('=').ok_or_else(|| format!("'{part}' has no share: write loss=1%"))?;
        let share = parse_probability(share).map_err(|error| error.to_string())?;
        let name = name.trim();
        let Some((_, rate)) = FAULTS.iter().find(|(known, _)| *known == name) else {
            let names = FAULTS.map(|(known, _)| known);
            return Err(format!(
                "there is no fault '{name}'; {}choose from: {}",
                hint(name, names),
                names.join(", ")
            ));
        };
        *rate(&mut faults) = share;
    }
    Ok(faults)
}

/// Counters of each direction and fault, by name.
pub fn fault_counters(rx: FaultCounters, tx: FaultCounters) -> impl Iterator<Item = (String, u64)> {
    [("rx", rx), ("tx", tx)].into_iter().flat_map(|(way, counters)| {
        [
            ("lost", counters.lost),
            ("lost_in_bursts", counters.lost_in_bursts),
            ("truncated", counters.truncated),
            ("corrupted", counters.corrupted),
            ("duplicated", counters.duplicated),
            ("reordered", counters.reordered),
        ]
        .map(|(name, count)| (format!("{way}_{name}"), count))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_round_trip_and_unknown_ones_get_a_hint() {
        for text in ["tap:a", "tun:b", "packet:eth0", "xdp:eth0", "pcap:x/y.pcap", "memory"] {
            assert_eq!(text.parse::<DeviceName>().unwrap().text, text);
        }
        for (text, part) in
            [("pakcet:eth0", "'packet'?"), ("zebra", "'zebra'; write"), ("tap:", "tap:NAME")]
        {
            let error = text.parse::<DeviceName>().unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn kernel_error_is_the_reason_not_the_fix() {
        let refused = || std::io::Error::from_raw_os_error(1);
        let message = "it needs a capability; run as root, or elsewhere";
        let problem = Problem::from(DeviceOpenError::new(
            DeviceOpenFailure::Lacking,
            message,
            Some(refused()),
        ));
        assert_eq!(problem.why, Some(refused().to_string()));
        assert_eq!(problem.fix.as_deref(), Some("run as root, or elsewhere"));
    }

    #[test]
    fn fault_rates_are_percent_or_numbers() {
        let faults = parse_faults("loss=1%,corrupt=0.25,reorder=100%").unwrap();
        let expected = FaultRates {
            lose: 0.01,
            corrupt: 0.25,
            reorder: 1.0,
            ..parse_faults("loss=0").unwrap()
        };
        assert_eq!(faults, expected);
        assert!(parse_faults("los=1%").unwrap_err().contains("'loss'?"));
        for text in ["loss", "loss=2", "loss=-1%", "zebra=1%", ""] {
            assert!(parse_faults(text).is_err(), "{text}");
        }
    }
}
