//! Devices and faults on the command line.

use std::error::Error as _;
use std::path::{Path, PathBuf};
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
use plumb_netdev::host::{AttachedDevice, LARGEST_MTU, pool_for};
use plumb_wire::machine::Medium;
use plumb_wire::packet::Pool;

use crate::problem::{ExitReason, Problem, nearest};
use crate::recording::{not_recorded, refuse_overwrite};

/// A device on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// A TAP device: Ethernet frames to and from the kernel.
    Tap(String),
    /// A TUN device: IP packets to and from the kernel.
    Tun(String),
    /// A packet socket on an interface.
    Packet(String),
    /// AF_XDP sockets on an interface.
    Xdp(String),
    /// A capture file whose frames are received.
    Pcap(PathBuf),
    /// A link within this process.
    Memory,
}

const KINDS: [&str; 6] = ["tap", "tun", "packet", "xdp", "pcap", "memory"];

/// An invalid device name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseDeviceError {
    /// Unknown kind.
    #[error(
        "there is no device '{kind}'; {hint}write tap:NAME, tun:NAME, packet:INTERFACE, \
         xdp:INTERFACE, pcap:FILE or memory"
    )]
    Unknown {
        /// The part before the colon.
        kind: String,
        /// The nearest kind, as a question.
        hint: String,
    },
    /// A kind that needs a name.
    #[error("'{0}' needs a name: write {0}:NAME")]
    Nameless(String),
}

/// `did you mean 'NAME'? ` for the nearest name, if one is near.
fn hint<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(text, names).map_or_else(String::new, |name| format!("did you mean '{name}'? "))
}

impl FromStr for DeviceName {
    type Err = ParseDeviceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, name) = text.split_once(':').unwrap_or((text, ""));
        let named = || match name {
            "" => Err(ParseDeviceError::Nameless(kind.to_owned())),
            name => Ok(name.to_owned()),
        };
        Ok(match kind {
            "tap" => Self::Tap(named()?),
            "tun" => Self::Tun(named()?),
            "packet" => Self::Packet(named()?),
            "xdp" => Self::Xdp(named()?),
            "pcap" => Self::Pcap(named()?.into()),
            "memory" => Self::Memory,
            _ => {
                let hint = hint(kind, KINDS);
                return Err(ParseDeviceError::Unknown { kind: kind.to_owned(), hint });
            }
        })
    }
}

impl std::fmt::Display for DeviceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tap(name) => write!(f, "tap:{name}"),
            Self::Tun(name) => write!(f, "tun:{name}"),
            Self::Packet(name) => write!(f, "packet:{name}"),
            Self::Xdp(name) => write!(f, "xdp:{name}"),
            Self::Pcap(path) => write!(f, "pcap:{}", path.display()),
            Self::Memory => f.write_str("memory"),
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
        let tap = |name: &str, medium| -> Result<Box<dyn Device>, Problem> {
            let options = TapOptions { medium, wait, ..TapOptions::default() };
            Ok(Box::new(TapDevice::open(name, options)?))
        };
        let device = match self {
            Self::Tap(name) => tap(name, Medium::Ethernet)?,
            Self::Tun(name) => tap(name, Medium::Ip)?,
            Self::Packet(name) => {
                let options =
                    PacketOptions { wait, promiscuous: own_mac, ..PacketOptions::default() };
                Box::new(PacketDevice::open(name, &options)?)
            }
            Self::Xdp(name) => {
                let options = XdpOptions { wait, ..XdpOptions::default() };
                let (device, pool) = XdpDevice::open(name, &options)?;
                return Ok((Box::new(device), pool));
            }
            Self::Pcap(path) => return Ok((Box::new(capture(path)?), pool_for(LARGEST_MTU))),
            Self::Memory => {
                return Err(Problem::usage("a link in memory has no host at its other end here")
                    .because("only this process can reach it")
                    .fix("use it with send, ping or replay, or use a TAP: --device tap:NAME"));
            }
        };
        let pool = pool_for(device.info().capabilities.mtu);
        Ok((device, pool))
    }

    /// The capture file.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Pcap(path) => Some(path),
            _ => None,
        }
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

/// Names of faults.
const FAULT_NAMES: [&str; 6] = ["loss", "burst", "truncate", "corrupt", "duplicate", "reorder"];
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
        let rate = match name.trim() {
            "loss" => &mut faults.lose,
            "burst" => &mut faults.burst_begin,
            "truncate" => &mut faults.truncate,
            "corrupt" => &mut faults.corrupt,
            "duplicate" => &mut faults.duplicate,
            "reorder" => &mut faults.reorder,
            other => {
                return Err(format!(
                    "there is no fault '{other}'; {}choose from: {}",
                    hint(other, FAULT_NAMES),
                    FAULT_NAMES.join(", ")
                ));
            }
        };
        *rate = share;
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
            assert_eq!(text.parse::<DeviceName>().unwrap().to_string(), text);
        }
        let parse = |text: &str| text.parse::<DeviceName>().unwrap_err();
        assert!(parse("pakcet:eth0").to_string().contains("'packet'?"));
        assert!(
            matches!(parse("zebra"), ParseDeviceError::Unknown { hint, .. } if hint.is_empty())
        );
        assert_eq!(parse("tap:"), ParseDeviceError::Nameless("tap".to_owned()));
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
