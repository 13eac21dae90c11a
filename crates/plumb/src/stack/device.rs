//! Devices by their names on the command line, opened and decorated.
//!
//! Left out: the devices themselves (`plumb_host::device`).

use std::path::{Path, PathBuf};
use std::str::FromStr;

use plumb_base::seed::Seed;
use plumb_host::clock::Timeline;
use plumb_host::device::fault::{FaultCounters, Faults, Faulty};
use plumb_host::device::layer::Layer;
use plumb_host::device::memory;
use plumb_host::device::packet::{PacketDevice, PacketOpenError, PacketOptions};
use plumb_host::device::pcap::{self, PcapError};
use plumb_host::device::record::Recorder;
use plumb_host::device::tap::{self, Tap, TapError};
use plumb_host::device::xdp::{XdpDevice, XdpOpenError, XdpOptions};
use plumb_host::device::{Device, DeviceError, Wait};
use plumb_wire::medium::Medium;
use plumb_wire::packet::{Frames, HEADROOM, Pool};

use crate::problem::{Exit, Problem, nearest};
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
    pub fn open(&self, wait: Wait, own_mac: bool) -> Result<(Box<dyn Device>, Pool), Problem> {
        let tap = |name: &str, medium| {
            let settings = tap::Settings { medium, wait, ..tap::Settings::default() };
            let device = Tap::open(name, settings)?;
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
pub fn capture(path: &Path) -> Result<memory::Source, Problem> {
    Ok(pcap::open(path, pcap::Settings::default())?)
}

/// A pool whose ordinary frames hold a packet of this MTU with its link header and tags; beyond jumbo
/// frames the large ones do, of which it then has more.
pub fn pool_for(mtu: u32) -> Pool {
    const LINK_HEADER: u32 = 22;
    let headroom = u32::try_from(HEADROOM).unwrap_or(u32::MAX);
    let size = (mtu.min(LARGEST_MTU) + LINK_HEADER + headroom).next_multiple_of(64);
    let frames = Frames::default();
    let large = if mtu > LARGEST_MTU { LARGE_FRAMES } else { frames.large };
    Pool::new(Frames { size: size.max(frames.size), large, ..frames })
}

/// A device as the stack has it: perhaps recorded, perhaps behind a hostile link.
#[derive(Debug)]
pub struct Attached {
    layers: Layers,
}

enum Layers {
    Bare(Box<dyn Device>),
    Hostile(Faulty<Box<dyn Device>>),
    Recorded(Recorder<Box<dyn Device>>),
    RecordedHostile(Recorder<Faulty<Box<dyn Device>>>),
}

impl std::fmt::Debug for Layers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.device().name())
    }
}

impl Layers {
    fn device(&self) -> &(dyn Device + 'static) {
        match self {
            Self::Bare(device) => device,
            Self::Hostile(device) => device,
            Self::Recorded(device) => device,
            Self::RecordedHostile(device) => device,
        }
    }

    #[inline]
    fn device_mut(&mut self) -> &mut (dyn Device + 'static) {
        match self {
            Self::Bare(device) => device,
            Self::Hostile(device) => device,
            Self::Recorded(device) => device,
            Self::RecordedHostile(device) => device,
        }
    }
}

/// What stands between the stack and its device.
#[derive(Clone, Debug, Default)]
pub struct Decoration {
    /// The file that packets are recorded in, as the stack sees them.
    pub record: Option<PathBuf>,
    /// The file that packets come from, which no recording may be made over.
    pub source: Option<PathBuf>,
    /// Faults on what is received and on what is sent.
    pub faults: Option<(Faults, Faults)>,
}

impl Attached {
    /// A device, decorated.
    ///
    /// # Errors
    /// The recording cannot be made, or would be made over the source.
    pub fn new(
        device: Box<dyn Device>,
        decoration: &Decoration,
        timeline: Timeline,
        seed: Seed,
    ) -> Result<Self, Problem> {
        let hostile = |device, (rx, tx)| Faulty::new(device, rx, tx, seed);
        let source = decoration.source.as_deref();
        let layers = match (&decoration.record, decoration.faults) {
            (None, None) => Layers::Bare(device),
            (None, Some(faults)) => Layers::Hostile(hostile(device, faults)),
            (Some(path), None) => Layers::Recorded(recorded(device, path, source, timeline)?),
            (Some(path), Some(faults)) => {
                let device = hostile(device, faults);
                Layers::RecordedHostile(recorded(device, path, source, timeline)?)
            }
        };
        Ok(Self { layers })
    }

    /// What happened on the hostile link to packets received, and to packets sent.
    pub fn faults(&self) -> Option<(FaultCounters, FaultCounters)> {
        match &self.layers {
            Layers::Bare(_) | Layers::Recorded(_) => None,
            Layers::Hostile(device) => Some(device.faults()),
            Layers::RecordedHostile(device) => Some(device.device().faults()),
        }
    }

    /// Writes what is not yet in the recording.
    ///
    /// # Errors
    /// The file takes no more.
    pub fn finish(&mut self) -> Result<(), DeviceError> {
        match &mut self.layers {
            Layers::Bare(_) | Layers::Hostile(_) => Ok(()),
            Layers::Recorded(device) => device.flush(),
            Layers::RecordedHostile(device) => device.flush(),
        }
    }
}

impl Layer for Attached {
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
            TapError::Name(_) | TapError::Kind(..) | TapError::MtuTooSmall { .. } => Exit::Usage,
            _ => Exit::Trouble,
        };
        let text = error.to_string();
        match (error, text.split_once(": ")) {
            (TapError::Io { .. } | TapError::NotATap(_), Some((what, why))) => {
                Self { exit, ..Self::trouble(what).because(why) }
            }
            (_, Some((what, fix))) => Self { exit, ..Self::trouble(what).fix(fix) },
            (_, None) => Self { exit, ..Self::trouble(text) },
        }
    }
}

/// What a device says of itself, and the kernel's answer as its reason, where it does not say that too.
fn not_opened(error: &impl std::error::Error, exit: Exit) -> Problem {
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
            PacketOpenError::NoInterface(_) | PacketOpenError::Foreign { .. } => Exit::Usage,
            _ => Exit::Trouble,
        };
        not_opened(&error, exit)
    }
}

impl From<XdpOpenError> for Problem {
    fn from(error: XdpOpenError) -> Self {
        let exit = match error {
            XdpOpenError::NoInterface(_)
            | XdpOpenError::Foreign { .. }
            | XdpOpenError::Mtu { .. } => Exit::Usage,
            _ => Exit::Trouble,
        };
        not_opened(&error, exit)
    }
}

impl From<PcapError> for Problem {
    fn from(error: PcapError) -> Self {
        Self::from_message(&error.to_string(), Exit::Usage)
    }
}

impl From<DeviceError> for Problem {
    fn from(error: DeviceError) -> Self {
        let fix = match &error {
            DeviceError::Gone { .. } => "make it again, and start this command again",
            DeviceError::Finished => "give it a longer capture",
            DeviceError::Io { .. } => "see 'plumb doctor' for what this host allows",
        };
        Self::trouble(error.to_string()).fix(fix)
    }
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
}
