//! Devices and faults as named on the command line, opened and decorated.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use plumb_base::seed::Seed;
use plumb_clock::InstantClock;
use plumb_netdev::device::DeviceLayer;
use plumb_netdev::device::fault::{FaultCounters, FaultRates, FaultyDevice};
use plumb_netdev::device::packet::{PacketDevice, PacketOpenError, PacketOptions};
use plumb_netdev::device::recording::RecordingDevice;
use plumb_netdev::device::replay::{self, PcapError};
use plumb_netdev::device::tap::{self, TapDevice, TapError};
use plumb_netdev::device::xdp::{XdpDevice, XdpOpenError, XdpOptions};
use plumb_netdev::device::{Device, DeviceError, DeviceWait};
use plumb_wire::machine::Medium;
use plumb_wire::packet::{HEADROOM, Pool, PoolConfig};

use crate::problem::{ExitReason, Problem, nearest};
use crate::recording::recorded;

/// A device as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// A TAP: Ethernet frames to and from the kernel of this machine.
    Tap(String),
    /// A TUN: the same with bare IP packets.
    Tun(String),
    /// A packet socket on an interface.
    Packet(String),
    /// AF_XDP sockets on an interface.
    Xdp(String),
    /// A capture file whose frames arrive.
    Pcap(PathBuf),
    /// A link within this process.
    Memory,
}

/// What a device's name may begin with.
const KINDS: [&str; 6] = ["tap", "tun", "packet", "xdp", "pcap", "memory"];

/// A word that names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseDeviceError {
    /// No such kind.
    #[error(
        "there is no device '{word}'; {hint}write tap:NAME, tun:NAME, packet:INTERFACE, \
         xdp:INTERFACE, pcap:FILE or memory"
    )]
    Unknown {
        /// The word before the colon.
        word: String,
        /// The nearest kind, as a question.
        hint: String,
    },
    /// A kind that needs a name.
    #[error("'{0}' needs a name: write {0}:NAME")]
    Nameless(&'static str),
}

impl FromStr for DeviceName {
    type Err = ParseDeviceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (word, name) = text.split_once(':').unwrap_or((text, ""));
        let Some(kind) = KINDS.into_iter().find(|kind| *kind == word) else {
            let hint = nearest(word, KINDS).map(|kind| format!("did you mean '{kind}'? "));
            let hint = hint.unwrap_or_default();
            return Err(ParseDeviceError::Unknown { word: word.to_owned(), hint });
        };
        if kind == "memory" {
            return Ok(Self::Memory);
        }
        if name.is_empty() {
            return Err(ParseDeviceError::Nameless(kind));
        }
        let name = name.to_owned();
        Ok(match kind {
            "tap" => Self::Tap(name),
            "tun" => Self::Tun(name),
            "packet" => Self::Packet(name),
            "xdp" => Self::Xdp(name),
            _ => Self::Pcap(name.into()),
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
    /// Opens it, and the pool that its packets come from. `own_mac`: whether the stack has a link
    /// address that the interface has not.
    ///
    /// # Errors
    /// What the device says, with its fix. A link in memory has two ends and is not opened here.
    pub fn open(
        &self,
        wait: DeviceWait,
        own_mac: bool,
    ) -> Result<(Box<dyn Device>, Pool), Problem> {
        let tap = |name: &str, medium| {
            let settings = tap::TapOptions { medium, wait, ..tap::TapOptions::default() };
            let device = TapDevice::open(name, settings)?;
            let pool = pool_for(device.capabilities().mtu);
            Ok::<_, Problem>((Box::new(device) as Box<dyn Device>, pool))
        };
        match self {
            Self::Tap(name) => tap(name, Medium::Ethernet),
            Self::Tun(name) => tap(name, Medium::Ip),
            Self::Packet(name) => {
                let options =
                    PacketOptions { wait, promiscuous: own_mac, ..PacketOptions::default() };
                let device = PacketDevice::open(name, &options)?;
                let pool = pool_for(device.capabilities().mtu);
                Ok((Box::new(device), pool))
            }
            Self::Xdp(name) => {
                let options = XdpOptions { wait, ..XdpOptions::default() };
                let (device, pool) = XdpDevice::open(name, &options)?;
                Ok((Box::new(device), pool))
            }
            Self::Pcap(path) => Ok((Box::new(capture(path)?), pool_for(LARGEST_MTU))),
            Self::Memory => {
                Err(Problem::usage("a link in memory has nobody at its other end here")
                    .because("only this process can reach it")
                    .fix("use send, ping or replay with it, or a TAP: --device tap:NAME"))
            }
        }
    }

    /// The file that its packets come from.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Pcap(path) => Some(path),
            _ => None,
        }
    }

    /// Whether the kernel's own stack sees the packets too.
    pub fn is_shared_with_kernel(&self) -> bool {
        matches!(self, Self::Packet(_))
    }
}

/// MTU of a pool that does not know better, and the largest that ordinary frames are made for: jumbo
/// frames.
const LARGEST_MTU: u32 = 9_000;
/// Large frames where every packet may need one.
const LARGE_FRAMES: u32 = 256;

/// Opens a capture file.
///
/// # Errors
/// What is wrong with it.
pub fn capture(path: &Path) -> Result<replay::ReplaySource, Problem> {
    Ok(replay::open(path, replay::PcapOptions::default())?)
}

/// A pool whose ordinary frames hold a packet of this MTU with its link header and tags; beyond jumbo
/// frames the large ones do, of which it then has more.
pub fn pool_for(mtu: u32) -> Pool {
    const LINK_HEADER: u32 = 22;
    let headroom = u32::try_from(HEADROOM).unwrap_or(u32::MAX);
    let size = (mtu.min(LARGEST_MTU) + LINK_HEADER + headroom).next_multiple_of(64);
    let frames = PoolConfig::default();
    let large = if mtu > LARGEST_MTU { LARGE_FRAMES } else { frames.large };
    Pool::new(PoolConfig { size: size.max(frames.size), large, ..frames })
}

/// A device as the stack has it: perhaps recorded, perhaps behind a hostile link.
#[derive(Debug)]
pub struct AttachedDevice {
    layers: DeviceLayers,
}

enum DeviceLayers {
    Bare(Box<dyn Device>),
    Faulty(FaultyDevice<Box<dyn Device>>),
    Recorded(RecordingDevice<Box<dyn Device>>),
    RecordedFaulty(RecordingDevice<FaultyDevice<Box<dyn Device>>>),
}

impl std::fmt::Debug for DeviceLayers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.device().name())
    }
}

impl DeviceLayers {
    fn device(&self) -> &(dyn Device + 'static) {
        match self {
            Self::Bare(device) => device,
            Self::Faulty(device) => device,
            Self::Recorded(device) => device,
            Self::RecordedFaulty(device) => device,
        }
    }

    #[inline]
    fn device_mut(&mut self) -> &mut (dyn Device + 'static) {
        match self {
            Self::Bare(device) => device,
            Self::Faulty(device) => device,
            Self::Recorded(device) => device,
            Self::RecordedFaulty(device) => device,
        }
    }
}

/// What stands between the stack and its device.
#[derive(Clone, Debug, Default)]
pub struct DeviceInstrumentation {
    /// The file that packets are recorded in, as the stack sees them.
    pub record: Option<PathBuf>,
    /// The file that packets come from, which no recording may be made over.
    pub source: Option<PathBuf>,
    /// Faults on what is received and on what is sent.
    pub faults: Option<(FaultRates, FaultRates)>,
}

impl AttachedDevice {
    /// A device, decorated.
    ///
    /// # Errors
    /// The recording cannot be made, or would be made over the source.
    pub fn new(
        device: Box<dyn Device>,
        decoration: &DeviceInstrumentation,
        timeline: InstantClock,
        seed: Seed,
    ) -> Result<Self, Problem> {
        let hostile = |device, (rx, tx)| FaultyDevice::new(device, rx, tx, seed);
        let source = decoration.source.as_deref();
        let layers = match (&decoration.record, decoration.faults) {
            (None, None) => DeviceLayers::Bare(device),
            (None, Some(faults)) => DeviceLayers::Faulty(hostile(device, faults)),
            (Some(path), None) => DeviceLayers::Recorded(recorded(device, path, source, timeline)?),
            (Some(path), Some(faults)) => {
                let device = hostile(device, faults);
                DeviceLayers::RecordedFaulty(recorded(device, path, source, timeline)?)
            }
        };
        Ok(Self { layers })
    }

    /// What happened on the hostile link to packets received, and to packets sent.
    pub fn faults(&self) -> Option<(FaultCounters, FaultCounters)> {
        match &self.layers {
            DeviceLayers::Bare(_) | DeviceLayers::Recorded(_) => None,
            DeviceLayers::Faulty(device) => Some(device.faults()),
            DeviceLayers::RecordedFaulty(device) => Some(device.device().faults()),
        }
    }

    /// Writes what is not yet in the recording.
    ///
    /// # Errors
    /// The file takes no more.
    pub fn finish(&mut self) -> Result<(), DeviceError> {
        match &mut self.layers {
            DeviceLayers::Bare(_) | DeviceLayers::Faulty(_) => Ok(()),
            DeviceLayers::Recorded(device) => device.flush(),
            DeviceLayers::RecordedFaulty(device) => device.flush(),
        }
    }
}

impl DeviceLayer for AttachedDevice {
    type Below = dyn Device;

    fn below(&self) -> &Self::Below {
        self.layers.device()
    }

    #[inline]
    fn below_mut(&mut self) -> &mut Self::Below {
        self.layers.device_mut()
    }
}

impl From<TapError> for Problem {
    fn from(error: TapError) -> Self {
        let exit = match error {
            TapError::Name(_) | TapError::WrongKind(..) | TapError::MtuTooSmall { .. } => {
                ExitReason::Usage
            }
            _ => ExitReason::Failure,
        };
        let text = error.to_string();
        match (error, text.split_once(": ")) {
            (TapError::Io { .. } | TapError::NotATap(_), Some((what, why))) => {
                Self { exit, ..Self::failure(what).because(why) }
            }
            (_, Some((what, fix))) => Self { exit, ..Self::failure(what).fix(fix) },
            (_, None) => Self { exit, ..Self::failure(text) },
        }
    }
}

/// What a device says of itself, and the kernel's answer as its reason, where it does not say that too.
fn not_opened(error: &impl std::error::Error, exit: ExitReason) -> Problem {
    let said = error.to_string();
    let problem = Problem::from_message(&said, exit);
    match error.source().map(ToString::to_string) {
        Some(source) if !said.contains(&source) => problem.because(source),
        _ => problem,
    }
}

impl From<PacketOpenError> for Problem {
    fn from(error: PacketOpenError) -> Self {
        let exit = match error {
            PacketOpenError::NoInterface(_) | PacketOpenError::UnsupportedLinkType { .. } => {
                ExitReason::Usage
            }
            _ => ExitReason::Failure,
        };
        not_opened(&error, exit)
    }
}

impl From<XdpOpenError> for Problem {
    fn from(error: XdpOpenError) -> Self {
        let exit = match error {
            XdpOpenError::NoInterface(_)
            | XdpOpenError::UnsupportedLinkType { .. }
            | XdpOpenError::Mtu { .. } => ExitReason::Usage,
            _ => ExitReason::Failure,
        };
        not_opened(&error, exit)
    }
}

impl From<PcapError> for Problem {
    fn from(error: PcapError) -> Self {
        Self::from_message(&error.to_string(), ExitReason::Usage)
    }
}

impl From<DeviceError> for Problem {
    fn from(error: DeviceError) -> Self {
        let fix = match &error {
            DeviceError::Gone { .. } => "make it again, and start this command again",
            DeviceError::Finished => "give it a longer capture",
            DeviceError::Io { .. } => "see 'plumb doctor' for what this host allows",
        };
        Self::failure(error.to_string()).fix(fix)
    }
}

/// Names of faults.
const FAULT_NAMES: [&str; 6] = ["loss", "burst", "truncate", "corrupt", "duplicate", "reorder"];

/// Packets in a burst of losses, on average.
const BURST_PACKETS: f64 = 10.0;

/// Packets that overtake a reordered one.
const REORDER_DISTANCE: u32 = 3;

/// Parses `loss=1%,corrupt=0.001`: the share of packets with each fault, in both directions.
///
/// # Errors
/// What is wrong, and what is valid.
pub fn parse_faults(text: &str) -> Result<FaultRates, String> {
    let mut faults = FaultRates {
        burst_end: 1.0 / BURST_PACKETS,
        reorder_distance: REORDER_DISTANCE,
        ..FaultRates::default()
    };
    for part in text.split(',') {
        let (name, share) =
            part.split_once('=').ok_or_else(|| format!("'{part}' has no share: write loss=1%"))?;
        let share = parse_probability(share).ok_or_else(|| {
            format!("'{share}' is not a share of packets: write 1% or 0.01, at most 100%")
        })?;
        let place = match name.trim() {
            "loss" => &mut faults.lose,
            "burst" => &mut faults.burst_begin,
            "truncate" => &mut faults.truncate,
            "corrupt" => &mut faults.corrupt,
            "duplicate" => &mut faults.duplicate,
            "reorder" => &mut faults.reorder,
            other => {
                let hint =
                    nearest(other, FAULT_NAMES).map(|name| format!("did you mean '{name}'? "));
                let hint = hint.unwrap_or_default();
                return Err(format!(
                    "there is no fault '{other}'; {hint}choose from: {}",
                    FAULT_NAMES.join(", ")
                ));
            }
        };
        *place = share;
    }
    Ok(faults)
}

fn parse_probability(text: &str) -> Option<f64> {
    let text = text.trim();
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (0.0..=1.0).contains(&share).then_some(share)
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
    fn device_names_round_trip_and_strange_ones_are_answered_with_those_there_are() {
        for text in ["tap:a", "tun:b", "packet:eth0", "xdp:eth0", "pcap:x/y.pcap", "memory"] {
            assert_eq!(text.parse::<DeviceName>().unwrap().to_string(), text);
        }
        let said = "pakcet:eth0".parse::<DeviceName>().unwrap_err().to_string();
        assert!(said.contains("did you mean 'packet'?"), "{said}");
        let said = "zebra".parse::<DeviceName>().unwrap_err().to_string();
        assert!(said.contains("xdp:INTERFACE"), "{said}");
        assert_eq!("tap:".parse::<DeviceName>(), Err(ParseDeviceError::Nameless("tap")));
    }

    #[test]
    fn what_the_kernel_answers_is_a_reason_and_no_advice() {
        let refused = || std::io::Error::from_raw_os_error(1);
        let packet = Problem::from(PacketOpenError::Permission(refused()));
        let name = "eth0".to_owned();
        let xdp = Problem::from(XdpOpenError::Permission { name, source: refused() });
        for problem in [packet, xdp] {
            assert_eq!(problem.why, Some(refused().to_string()));
            let fix = problem.fix.unwrap();
            assert!(fix.starts_with("run as root, or") && !fix.contains("os error"), "{fix}");
        }
        let other = PacketOpenError::Io { what: "open", name: "eth0".into(), source: refused() };
        let other = Problem::from(other);
        assert_eq!((other.why, other.what.matches("os error").count()), (None, 1));
    }

    #[test]
    fn frames_of_a_pool_hold_packets_of_the_mtu() {
        assert_eq!(pool_for(1_500).frames().size, 2_048);
        assert!(pool_for(9_000).frames().size as usize >= 9_022 + HEADROOM);
        let mut pool = pool_for(65_535);
        let mut packets: Vec<_> = (0..32).map(|_| pool.allocate_for(65_535).unwrap()).collect();
        pool.free_all(&mut packets);
    }

    #[test]
    fn fault_shares_are_percent_or_numbers() {
        let faults = parse_faults("loss=1%,corrupt=0.25,reorder=100%").unwrap();
        let expected = FaultRates {
            lose: 0.01,
            corrupt: 0.25,
            reorder: 1.0,
            ..parse_faults("loss=0").unwrap()
        };
        assert_eq!(faults, expected);
        for (text, told) in [
            ("loss", "no share"),
            ("loss=2", "not a share of packets"),
            ("loss=-1%", "not a share of packets"),
            ("los=1%", "did you mean 'loss'?"),
            ("zebra=1%", "choose from: loss"),
            ("", "no share"),
        ] {
            let said = parse_faults(text).unwrap_err();
            assert!(said.contains(told), "{text}: {said}");
        }
    }
}
