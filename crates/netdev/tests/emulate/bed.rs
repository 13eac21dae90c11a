//! Two namespaces with an emulator between them, in a thread of its own.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use plumb_clock::{InstantClock, Stopwatch};
use plumb_link::link::Link;
use plumb_link::report::Network as _;
use plumb_link::spec::LinkSpec;
use plumb_netdev::device::packet::{PacketDevice, PacketOptions, PacketReceiveMode};
use plumb_netdev::device::xdp::{XdpDevice, XdpOptions};
use plumb_netdev::device::{
    Device, DeviceCounters, DeviceOpenError, DeviceOpenFailure, DeviceWait,
};
use plumb_netdev::emulator::{
    Emulator, EmulatorControl, EmulatorOptions, EmulatorReport, EmulatorState, TapPairError,
    tap_pair,
};
use plumb_netdev::lab::{LabError, TestBed, TestBedOptions};
use plumb_wire::machine::Medium;
use plumb_wire::packet::{Pool, PoolConfig};

/// What was left when the emulator was stopped.
#[derive(Debug)]
pub struct StoppedEmulator {
    pub report: EmulatorReport,
    pub counters: Vec<DeviceCounters>,
    /// Frames that nobody gave back.
    pub missing: (usize, usize),
}

/// A bed with an emulator that runs.
pub struct RunningEmulator {
    pub bed: TestBed,
    pub control: EmulatorControl<EmulatorState<Link>>,
    thread: JoinHandle<StoppedEmulator>,
}

const FRAMES: PoolConfig = PoolConfig { count: 8_192, size: 2_048, large: 64 };

/// What is between the two namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmulatorWire {
    /// Two TAPs.
    Taps,
    /// Packet sockets on two virtual Ethernets.
    Packet,
    /// AF_XDP there, with one memory.
    Xdp,
}

/// Frames that AF_XDP lends to the kernel at each end.
const LENT: u32 = 1_024;

/// Whether this process may make beds; a word about it where it may not.
pub fn can_make_beds() -> bool {
    start("plain", EmulatorOptions::default()).is_some_and(|running| {
        running.stop();
        true
    })
}

/// Two TAPs and a link between them; none, with a word about it, where this process may not.
pub fn start(link: &str, options: EmulatorOptions) -> Option<RunningEmulator> {
    start_over(EmulatorWire::Taps, link, options)
}

/// The same over any wire.
pub fn start_over(
    wire: EmulatorWire,
    link: &str,
    options: EmulatorOptions,
) -> Option<RunningEmulator> {
    let spec: LinkSpec = link.parse().unwrap();
    let offloads = wire != EmulatorWire::Xdp;
    let lab = TestBedOptions { neighbors: true, offloads, ..TestBedOptions::default() };
    let (bed, (control, thread)) = match wire {
        EmulatorWire::Taps => {
            let (bed, devices) = allowed(tap_pair(lab), not_permitted)?;
            (bed, spawn(spec, devices.into(), Pool::new(FRAMES), 0, options))
        }
        EmulatorWire::Packet => {
            let (bed, middle) =
                allowed(TestBed::veths_via_middle(lab).map_err(TapPairError::Lab), not_permitted)?;
            let wanted = PacketOptions {
                wait: DeviceWait::Spin,
                receive: Some(PacketReceiveMode::Ring),
                promiscuous: true,
                ..PacketOptions::default()
            };
            let open = |name| PacketDevice::open(name, &wanted).unwrap();
            let devices = middle.enter(|| TestBed::MIDDLE_DEVICES.map(open)).unwrap();
            (bed, spawn(spec, devices.into(), Pool::new(FRAMES), 0, options))
        }
        EmulatorWire::Xdp => {
            let (bed, middle) =
                allowed(TestBed::veths_via_middle(lab).map_err(TapPairError::Lab), not_permitted)?;
            let wanted = XdpOptions {
                wait: DeviceWait::Spin,
                frames: FRAMES.count,
                rx_frames: Some(LENT),
                large: 0,
                ..XdpOptions::default()
            };
            let [near, far] = TestBed::MIDDLE_DEVICES;
            let opened = middle.enter(|| {
                let (first, mut pool) = XdpDevice::open(near, &wanted)?;
                let second = XdpDevice::open_sharing_umem(&first, &mut pool, far, &wanted)?;
                Ok((vec![first, second], pool))
            });
            let lacks = |error: &DeviceOpenError| error.failure == DeviceOpenFailure::Lacking;
            let (devices, pool) = allowed(opened.unwrap(), lacks)?;
            // The kernel also holds frames that are being sent.
            (bed, spawn(spec, devices, pool, 2 * LENT as usize + 256, options))
        }
    };
    Some(RunningEmulator { bed, control, thread })
}

fn not_permitted(error: &TapPairError) -> bool {
    matches!(error, TapPairError::Lab(LabError::NotPermitted { .. }))
}

/// What was made; none, with a word about it, where that is for want of what `may_lack` knows.
fn allowed<T, E: std::fmt::Display>(
    made: Result<T, E>,
    may_lack: impl Fn(&E) -> bool,
) -> Option<T> {
    match made {
        Err(error) if may_lack(&error) => {
            println!("skipped: {error}");
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "skipped under CI");
            None
        }
        made => Some(made.unwrap_or_else(|error| panic!("{error}"))),
    }
}

fn spawn<D: Device + Send + 'static>(
    spec: LinkSpec,
    devices: Vec<D>,
    pool: Pool,
    lent: usize,
    options: EmulatorOptions,
) -> (EmulatorControl<EmulatorState<Link>>, JoinHandle<StoppedEmulator>) {
    let (said, hears) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let timeline = InstantClock::begin(Stopwatch::new(None));
        let link = Link::new(&spec, Medium::Ethernet, timeline.now()).unwrap();
        let mut emulator = Emulator::new(link, devices, pool, timeline, options).unwrap();
        said.send(emulator.control()).unwrap();
        emulator.run().unwrap();
        let report = emulator.state().report();
        let counters = emulator.devices.iter().map(Device::counters).collect();
        let (mut network, _, mut pool) = emulator.into_parts();
        network.clear(&mut pool);
        let (frames, free) = (pool.frames(), pool.available());
        let missing = (frames.count as usize - free.0, frames.large as usize - free.1);
        let missing = (missing.0.saturating_sub(lent), missing.1);
        StoppedEmulator { report, counters, missing }
    });
    (hears.recv().unwrap(), thread)
}

impl RunningEmulator {
    pub fn stop(self) -> StoppedEmulator {
        self.control.stop();
        self.thread.join().unwrap()
    }

    /// Sockets at both ends, connected to each other.
    pub fn pair(&self, near: IpAddr, far: IpAddr) -> (UdpSocket, UdpSocket) {
        let bind = |address| UdpSocket::bind(SocketAddr::new(address, 0)).unwrap();
        let (a, b) =
            (self.bed.in_near(|| bind(near)).unwrap(), self.bed.in_far(|| bind(far)).unwrap());
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        for socket in [&a, &b] {
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        }
        (a, b)
    }
}
