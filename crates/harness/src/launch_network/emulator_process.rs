//! The process that is the link of a remote channel: it makes the test bed, holds both devices, and
//! carries frames between them until the worker is gone.
//!
//! A process of its own, so that its CPU time is nobody else's.

use std::error::Error;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use plumb_clock::{InstantClock, Stopwatch};
use plumb_link::link::Link;
use plumb_link::spec::{LinkSpec, SpecError};
use plumb_link::text::LinkTextFiles;
use plumb_netdev::emulator::{
    self, Emulator, EmulatorControl, EmulatorOptions, EmulatorState, InterfaceDropCounter,
};
use plumb_netdev::lab::{NetNamespace, TestBed, TestBedOptions};
use plumb_sys::sched;
use plumb_wire::machine::{Medium, PortId};
use plumb_wire::packet::{Pool, PoolConfig};
use serde::{Deserialize, Serialize};

use crate::child_process::{self, ControlledProcess, HiddenCommand, SELF_EXE, control_sockets};
use crate::launch_protocol::ControlSocket;
use crate::report::LaunchFault;
use crate::spec::{LaunchSpec, PathSpec};

/// What the worker says.
#[derive(Debug, Serialize, Deserialize)]
enum WorkerToLink {
    /// Be this link.
    Start(EmulationRequest),
    /// Say how it goes.
    Report,
}

/// All that a link needs.
#[derive(Debug, Serialize, Deserialize)]
struct EmulationRequest {
    text: String,
    mtu: u32,
    seed: u64,
    cpus: Vec<u32>,
    ticks_per_ns: Option<f64>,
}

/// What the link says.
#[derive(Debug, Serialize, Deserialize)]
enum LinkToWorker {
    /// Frames pass. The namespaces are behind these descriptors of its process.
    Started { near: i32, far: i32, has_v6: bool },
    /// This host cannot do it.
    Refused(String),
    /// How it went so far.
    Report(EmulationCounters),
}

/// How an emulation went so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EmulationCounters {
    /// Frames handed over.
    pub(crate) frames: u64,
    /// Frames handed over later than the tolerance allows, and frames that may have entered late.
    pub(crate) late: u64,
    /// Frames lost by the machine.
    pub(crate) lost: u64,
}

impl EmulationCounters {
    /// What happened since an earlier account.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            frames: self.frames.saturating_sub(before.frames),
            late: self.late.saturating_sub(before.late),
            lost: self.lost.saturating_sub(before.lost),
        }
    }
}

/// The link's process as the worker knows it; killed when forgotten.
#[derive(Debug)]
pub(super) struct EmulatorProcess {
    process: ControlledProcess,
    /// Where the near end is.
    pub(super) near: Option<NetNamespace>,
    /// Where the far end is.
    pub(super) far: Option<NetNamespace>,
    /// Whether there is IPv6.
    pub(super) has_v6: bool,
}

impl EmulatorProcess {
    /// Starts a link by its text, and returns when frames pass.
    pub(super) fn start(
        text: &str,
        path: &PathSpec,
        launch: &LaunchSpec,
        cpus: &[u32],
    ) -> Result<Self, LaunchFault> {
        let task = WorkerToLink::Start(EmulationRequest {
            text: text.to_owned(),
            mtu: path.mtu,
            seed: launch.seed,
            cpus: cpus.to_vec(),
            ticks_per_ns: launch.ticks_per_ns,
        });
        let (process, answer) = ControlledProcess::start(
            Path::new(SELF_EXE),
            HiddenCommand::Emulator,
            control_sockets()?,
            Vec::new(),
            &task,
        )?;
        let mut link = Self { process, near: None, far: None, has_v6: false };
        let broken = |source: io::Error| LaunchFault::failed("start the link", source);
        match answer {
            LinkToWorker::Started { near, far, has_v6 } => {
                link.near = Some(link.namespace(near).map_err(broken)?);
                link.far = Some(link.namespace(far).map_err(broken)?);
                link.has_v6 = has_v6;
                Ok(link)
            }
            LinkToWorker::Refused(reason) => Err(LaunchFault::Unavailable(reason)),
            LinkToWorker::Report(_) => Err(broken(io::ErrorKind::InvalidData.into())),
        }
    }

    fn namespace(&self, number: i32) -> io::Result<NetNamespace> {
        let file = File::open(format!("/proc/{}/fd/{number}", self.process.process.child.id()))?;
        Ok(NetNamespace::from(OwnedFd::from(file)))
    }

    /// How it went so far; nothing new when it does not answer, which the next message finds.
    pub(super) fn counters(&mut self) -> Option<EmulationCounters> {
        self.process.control.send(&WorkerToLink::Report).ok()?;
        match self.process.control.receive().ok()? {
            LinkToWorker::Report(counters) => Some(counters),
            _ => None,
        }
    }
}

/// Runs a link over an inherited control socket; its exit code.
pub fn main(control: RawFd) -> u8 {
    child_process::main(control, serve)
}

fn serve(control_fd: OwnedFd) -> io::Result<()> {
    let mut control = ControlSocket::new(control_fd);
    let WorkerToLink::Start(orders) = control.receive()? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    match EmulatedLink::make(&orders) {
        Ok(carrier) => carrier.run(control),
        Err(reason) => control.send(&LinkToWorker::Refused(reason.to_string())),
    }
}

/// A link with its bed and devices, ready to carry.
struct EmulatedLink {
    bed: TestBed,
    emulator: Emulator<Link, plumb_netdev::device::tap::TapDevice>,
}

impl EmulatedLink {
    fn make(orders: &EmulationRequest) -> Result<Self, Box<dyn Error>> {
        let mut spec = LinkSpec::parse(&orders.text, &DiskFiles)?;
        if spec.seed.0 == 0 {
            // Each launch draws anew, reproducibly.
            spec.seed.0 = orders.seed;
        }
        sched::bind(&orders.cpus)
            .map_err(|error| format!("may not run on CPUs {:?}: {error}", orders.cpus))?;
        emulator::raise_priority();
        let options =
            TestBedOptions { mtu: orders.mtu, neighbors: true, ..TestBedOptions::default() };
        let (bed, taps) = emulator::tap_pair(options)?;
        let timeline = InstantClock::begin(Stopwatch::new(orders.ticks_per_ns));
        let link = Link::new(&spec, Medium::Ethernet, timeline.now());
        let link = link?;
        let pool = Pool::new(pool_frames(&spec, orders.mtu)?);
        let mut emulator =
            Emulator::new(link, taps.into(), pool, timeline, EmulatorOptions::default())?;
        for (port, side) in [(0, Some(bed.near())), (1, bed.far())] {
            let name = [TestBed::NEAR_DEVICE, TestBed::FAR_DEVICE][usize::from(port)];
            let Some(side) = side else { continue };
            let interface = InterfaceDropCounter::watch(side, name)?;
            emulator.watch(PortId(port), interface);
        }
        Ok(Self { bed, emulator })
    }

    /// Carries until the worker is gone.
    fn run(mut self, mut control: ControlSocket) -> io::Result<()> {
        let number = |side: Option<BorrowedFd<'_>>| side.map_or(-1, |fd| fd.as_raw_fd());
        control.send(&LinkToWorker::Started {
            near: number(Some(self.bed.near().as_fd())),
            far: number(self.bed.far().map(std::os::fd::AsFd::as_fd)),
            has_v6: self.bed.addresses().any(|(_, far, _)| far.is_ipv6()),
        })?;
        let emulator = self.emulator.control();
        let thread = std::thread::Builder::new().name("control".to_owned());
        thread.spawn(move || answer(&mut control, &emulator))?;
        self.emulator.run().map_err(io::Error::other)
    }
}

/// Answers the worker until it is gone, and then ends the link.
fn answer(control: &mut ControlSocket, emulator: &EmulatorControl<EmulatorState<Link>>) {
    while let Ok(WorkerToLink::Report) = control.receive() {
        let Ok(report) = emulator.report() else { return };
        let counters = EmulationCounters {
            frames: report.timing.frames,
            late: report.timing.missed.count + report.timing.entered_late,
            lost: report.losses.iter().map(emulator::PortLosses::total).sum(),
        };
        if control.send(&LinkToWorker::Report(counters)).is_err() {
            break;
        }
    }
    emulator.stop();
}

/// Memory for what a link holds at most, twice over.
///
/// # Errors
/// More than [`MEMORY_MAX`] would be needed.
fn pool_frames(spec: &LinkSpec, mtu: u32) -> Result<PoolConfig, SpecError> {
    let size = mtu.saturating_add(FRAME_OVERHEAD).next_multiple_of(2_048);
    spec.check_memory(USUAL_FRAME_BYTES, size, MEMORY_MAX / 2)?;
    let most = MEMORY_MAX / 2 / u64::from(size);
    let wanted = spec.memory_need(USUAL_FRAME_BYTES, size).wanted.min(most);
    let count = wanted.saturating_mul(2).saturating_add(FRAMES_MIN);
    Ok(PoolConfig { count: u32::try_from(count).unwrap_or(u32::MAX), size, large: 128 })
}

/// Bytes that a device may put around a packet.
const FRAME_OVERHEAD: u32 = 64;
/// Bytes of a frame that a long transfer is made of, at least.
const USUAL_FRAME_BYTES: u32 = 1_024;
const FRAMES_MIN: u64 = 4_096;
/// Bytes of memory that the frames of one link may take.
const MEMORY_MAX: u64 = 1 << 30;

/// Reads the files that a text names.
#[derive(Clone, Copy, Debug)]
pub struct DiskFiles;

impl LinkTextFiles for DiskFiles {
    fn read(&self, name: &str) -> Result<String, String> {
        std::fs::read_to_string(name).map_err(|error| error.to_string())
    }
}
