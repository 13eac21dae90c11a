//! The process that is the link of a remote channel: it makes the test bed, holds both devices, and
//! carries frames between them until the worker is gone.
//!
//! A process of its own, so that its CPU time is nobody else's. Left out: what a link is
//! (`plumb_link`), and driving it (`crate::emulate`).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use plumb_link::link::Link;
use plumb_link::spec::{LinkSpec, SpecError};
use plumb_link::text::Files;
use plumb_sys::affinity;
use plumb_wire::machine::Port;
use plumb_wire::medium::Medium;
use plumb_wire::packet::{Frames, Pool};
use serde::{Deserialize, Serialize};

use crate::clock::{Stopwatch, Timeline};
use crate::emulate::{self, Control as Word, Emulator, Inside, Interface, Options};
use crate::harness::control::Control;
use crate::harness::spec::{LaunchSpec, PathSpec};
use crate::harness::subordinate::{self, Subordinate};
use crate::lab::{LinkOptions, Namespace, TestBed};
use crate::local::OpenError;

/// The hidden subcommand that runs it.
const WORD: &str = "__link";

/// What the worker says.
#[derive(Debug, Serialize, Deserialize)]
enum WorkerToLink {
    /// Be this link.
    Carry(Orders),
    /// Say how it goes.
    Report,
}

/// All that a link needs.
#[derive(Debug, Serialize, Deserialize)]
struct Orders {
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
    Carrying { near: i32, far: i32, has_v6: bool },
    /// This host cannot do it.
    Refused(String),
    /// How it went so far.
    Report(Account),
}

/// How an emulation went so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Account {
    /// Frames handed over.
    pub(crate) frames: u64,
    /// Frames handed over later than the tolerance allows, and frames that may have entered late.
    pub(crate) late: u64,
    /// Frames lost that the link did not mean to lose.
    pub(crate) lost: u64,
}

impl Account {
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
pub(super) struct Emulation {
    process: Subordinate,
    /// Where the near end is.
    pub(super) near: Option<Namespace>,
    /// Where the far end is.
    pub(super) far: Option<Namespace>,
    /// Whether there is IPv6.
    pub(super) has_v6: bool,
}

impl Emulation {
    /// Starts a link by its text, and returns when frames pass.
    pub(super) fn start(
        text: &str,
        path: &PathSpec,
        launch: &LaunchSpec,
        cpus: &[u32],
    ) -> Result<Self, OpenError> {
        let process = Subordinate::start(WORD, "start the link's process")?;
        let mut link = Self { process, near: None, far: None, has_v6: false };
        let broken = |source| OpenError::Io { what: "start the link", source };
        let orders = Orders {
            text: text.to_owned(),
            mtu: path.mtu,
            seed: launch.seed,
            cpus: cpus.to_vec(),
            ticks_per_ns: launch.ticks_per_ns,
        };
        link.process.control.say(&WorkerToLink::Carry(orders)).map_err(broken)?;
        match link.process.control.hear().map_err(broken)? {
            LinkToWorker::Carrying { near, far, has_v6 } => {
                link.near = Some(link.namespace(near).map_err(broken)?);
                link.far = Some(link.namespace(far).map_err(broken)?);
                link.has_v6 = has_v6;
                Ok(link)
            }
            LinkToWorker::Refused(reason) => Err(OpenError::Unavailable(reason)),
            LinkToWorker::Report(_) => Err(broken(io::ErrorKind::InvalidData.into())),
        }
    }

    fn namespace(&self, number: i32) -> io::Result<Namespace> {
        let file = File::open(format!("/proc/{}/fd/{number}", self.process.pid()))?;
        Ok(Namespace::from(OwnedFd::from(file)))
    }

    /// How it went so far; nothing new when it does not answer, which the next message finds.
    pub(super) fn account(&mut self) -> Option<Account> {
        self.process.control.say(&WorkerToLink::Report).ok()?;
        match self.process.control.hear().ok()? {
            LinkToWorker::Report(account) => Some(account),
            _ => None,
        }
    }
}

/// Runs a link whose control socket is the inherited descriptor that the second argument names; its
/// exit code.
pub fn main() -> u8 {
    subordinate::main(serve)
}

fn serve(control_fd: OwnedFd) -> io::Result<()> {
    let mut control = Control::new(control_fd);
    let WorkerToLink::Carry(orders) = control.hear()? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    match Carrier::make(&orders) {
        Ok(carrier) => carrier.carry(control),
        Err(reason) => control.say(&LinkToWorker::Refused(reason)),
    }
}

/// A link with its bed and devices, ready to carry.
struct Carrier {
    bed: TestBed,
    emulator: Emulator<Link, crate::device::tap::Tap>,
}

impl Carrier {
    fn make(orders: &Orders) -> Result<Self, String> {
        let mut spec = LinkSpec::parse(&orders.text, &Disk).map_err(|error| error.to_string())?;
        if spec.seed.0 == 0 {
            // Each launch draws anew, reproducibly.
            spec.seed.0 = orders.seed;
        }
        affinity::bind(&orders.cpus)
            .map_err(|error| format!("may not run on CPUs {:?}: {error}", orders.cpus))?;
        emulate::take_precedence();
        let options = LinkOptions { mtu: orders.mtu, neighbours: true, ..LinkOptions::default() };
        let (bed, taps) = emulate::taps(options).map_err(|error| error.to_string())?;
        let timeline = Timeline::begin(Stopwatch::new(orders.ticks_per_ns));
        let link = Link::new(&spec, Medium::Ethernet, timeline.now());
        let link = link.map_err(|error| error.to_string())?;
        let pool = Pool::new(frames(&spec, orders.mtu).map_err(|error| error.to_string())?);
        let mut emulator = Emulator::new(link, taps.into(), pool, timeline, Options::default())
            .map_err(|error| error.to_string())?;
        for (port, side) in [(0, Some(bed.a())), (1, bed.b())] {
            let name = [TestBed::NEAR_DEVICE, TestBed::FAR_DEVICE][usize::from(port)];
            let Some(side) = side else { continue };
            let interface = Interface::watch(side, name).map_err(|error| error.to_string())?;
            emulator.watch(Port(port), interface);
        }
        Ok(Self { bed, emulator })
    }

    /// Carries until the worker is gone.
    fn carry(mut self, mut control: Control) -> io::Result<()> {
        let number = |side: Option<BorrowedFd<'_>>| side.map_or(-1, |fd| fd.as_raw_fd());
        control.say(&LinkToWorker::Carrying {
            near: number(Some(self.bed.a().as_fd())),
            far: number(self.bed.b().map(std::os::fd::AsFd::as_fd)),
            has_v6: self.bed.addresses().any(|(_, far, _)| far.is_ipv6()),
        })?;
        let word = self.emulator.control();
        let ear = std::thread::Builder::new().name("ear".to_owned());
        ear.spawn(move || answer(&mut control, &word))?;
        self.emulator.run().map_err(io::Error::other)
    }
}

/// Answers the worker until it is gone, and then ends the link.
fn answer(control: &mut Control, word: &Word<Inside<Link>>) {
    while let Ok(WorkerToLink::Report) = control.hear() {
        let Ok(report) = word.report() else { return };
        let account = Account {
            frames: report.punctuality.frames,
            late: report.punctuality.missed.count + report.punctuality.entered_late,
            lost: report.losses.iter().map(emulate::Losses::total).sum(),
        };
        if control.say(&LinkToWorker::Report(account)).is_err() {
            break;
        }
    }
    word.stop();
}

/// Memory for what a link holds at most, twice over.
///
/// # Errors
/// More than [`MEMORY_MAX`] would be needed.
fn frames(spec: &LinkSpec, mtu: u32) -> Result<Frames, SpecError> {
    let size = mtu.saturating_add(AROUND).next_multiple_of(2_048);
    spec.check_memory(USUAL, size, MEMORY_MAX / 2)?;
    let most = MEMORY_MAX / 2 / u64::from(size);
    let wanted = spec.need(USUAL, size).wanted.min(most);
    let count = wanted.saturating_mul(2).saturating_add(FRAMES_MIN);
    Ok(Frames { count: u32::try_from(count).unwrap_or(u32::MAX), size, large: 128 })
}

/// Bytes that a device may put around a packet.
const AROUND: u32 = 64;
/// Bytes of a frame that a long transfer is made of, at least.
const USUAL: u32 = 1_024;
const FRAMES_MIN: u64 = 4_096;
/// Bytes of memory that the frames of one link may take.
const MEMORY_MAX: u64 = 1 << 30;

/// Reads the files that a text names.
#[derive(Clone, Copy, Debug)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, name: &str) -> Result<String, String> {
        std::fs::read_to_string(name).map_err(|error| error.to_string())
    }
}
