//! A running link: its driver on a thread of its own, and what others may ask of it.

use std::fmt;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use plumb_base::time::Instant;
use plumb_clock::{InstantClock, monotonic_ns};
use plumb_link::link::Link;
use plumb_link::memory::MemoryAllowance;
use plumb_link::report::{Network, NetworkReport};
use plumb_link::schedule::{LinkSchedule, ReconfigurableNetwork};
use plumb_link::spec::{LinkSpec, SpecError};
use plumb_link::switch::LearningSwitch;
use plumb_link::text::{FileContents, TextError};
use plumb_wire::machine::Medium;
use plumb_wire::packet::{Pool, PoolConfig};
use serde::{Deserialize, Serialize};

use super::{
    Emulator, EmulatorControl, EmulatorOptions, EmulatorReport, EmulatorState,
    InterfaceDropCounter, raise_priority,
};
use crate::device::{Device, DeviceError};
use crate::lab::DriverPlacement;

/// The description of a link at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRevision {
    /// As text.
    pub link: String,
    /// Number of changes so far.
    pub changes: u64,
}

/// A device that may be driven by another thread.
pub type BoxedDevice = Box<dyn Device + Send>;

/// The state that a link's driver lends to its control.
type DrivenState<N> = EmulatorState<ReconfigurableNetwork<N>>;

/// The state of a link.
#[derive(Clone, Debug)]
pub struct LinkState {
    /// Report of the driver.
    pub driver: EmulatorReport,
    /// Report of the network.
    pub network: NetworkReport,
    /// Current description.
    pub requested: LinkSpec,
    /// Number of changes so far.
    pub changes: u64,
    /// Refused lines of its schedule, with reasons.
    pub refusals: Vec<String>,
}

impl LinkState {
    /// The full state.
    fn of<N: Network>(inside: &mut DrivenState<N>) -> Self {
        Self {
            driver: inside.report(),
            network: inside.network.report(inside.now),
            requested: inside.network.spec().clone(),
            changes: inside.network.changes(),
            refusals: refusals(inside),
        }
    }

    /// The same with empty histograms, for [`LinkState::update`].
    fn empty_copy(&self) -> Self {
        Self {
            driver: self.driver.with_empty_histograms(),
            network: self.network.with_empty_histograms(),
            ..self.clone()
        }
    }

    /// Takes the current state, and the histograms since the last call. Runs on the driver's thread while frames wait:
    /// copies nothing long, and allocates only if the link was changed.
    fn update<N: Network>(&mut self, inside: &mut DrivenState<N>) {
        let is_changed = self.changes != inside.network.changes();
        inside.exchange_report(&mut self.driver);
        inside.network.exchange_report(inside.now, is_changed, &mut self.network);
        if is_changed {
            self.requested = inside.network.spec().clone();
            self.changes = inside.network.changes();
        }
        if self.refusals.len() != inside.network.refusals().len() {
            self.refusals = refusals(inside);
        }
    }

    /// Adds the histograms of an earlier state.
    fn add_earlier(&mut self, earlier: &Self) {
        self.driver.merge_earlier(&earlier.driver);
        self.network.merge_earlier(&earlier.network);
    }
}

fn refusals<N: Network>(inside: &DrivenState<N>) -> Vec<String> {
    inside.network.refusals().iter().map(ToString::to_string).collect()
}

/// What joins the hosts of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkTopology {
    /// One line between two devices.
    Line,
    /// A learning switch with a line of the same kind to each of so many devices.
    Switch(usize),
}

/// What to start.
pub struct LinkSetup {
    /// What joins the hosts.
    pub topology: LinkTopology,
    /// Each line at the start.
    pub spec: LinkSpec,
    /// Later changes, relative to the start.
    pub schedule: Option<LinkSchedule>,
    /// Memory for its frames.
    pub memory: FrameMemory,
    /// A device for each port, opened so that it never waits, and its interface, whose losses count too.
    pub ports: Vec<(BoxedDevice, InterfaceDropCounter)>,
    /// The clock.
    pub timeline: InstantClock,
    /// How it is driven.
    pub options: EmulatorOptions,
    /// A CPU for the driver.
    pub placement: Option<DriverPlacement>,
    /// Called with the reason, on a thread of its own, if the link ends by itself.
    pub on_early_end: Box<dyn FnOnce(&str) + Send>,
}

impl fmt::Debug for LinkSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkSetup").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// Why a link could not be started, or ended.
#[derive(Debug, thiserror::Error)]
pub enum RunningLinkError {
    /// It is invalid.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The kernel is out of threads or descriptors.
    #[error("cannot start the link's driver")]
    Start(#[source] io::Error),
    /// A device failed, or the driver panicked.
    #[error("the link ended before the command did")]
    Ended(String),
}

/// A running link.
#[derive(Debug)]
pub struct RunningLink {
    /// Start, in nanoseconds of the monotonic clock.
    pub began_ns: u64,
    /// What any thread may ask of it.
    pub handle: LinkHandle,
    thread: JoinHandle<Result<(), DeviceError>>,
}

/// Reports a panic of the driver's thread.
#[derive(Debug)]
struct PanicNotifier(Sender<String>);

impl Drop for PanicNotifier {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.send(BUG.to_owned()).ok();
        }
    }
}

/// Reason of the end of a driver that panicked.
const BUG: &str = "its driver has a bug; see the message above";

impl RunningLink {
    /// Starts a link on a thread of its own, which calibrates its timer first; returns when frames pass.
    ///
    /// # Errors
    /// An invalid link, or the kernel is out of threads or descriptors.
    pub fn start(setup: LinkSetup) -> Result<Self, RunningLinkError> {
        let (start, spec) = (setup.timeline.now(), &setup.spec);
        // The kind of network is decided once: each has a driver loop of its own.
        match setup.topology {
            LinkTopology::Line => {
                let network = Link::new(spec, Medium::Ethernet, start)?;
                Self::start_network(network, start, setup)
            }
            LinkTopology::Switch(lines) => {
                let network = LearningSwitch::new(&vec![spec.clone(); lines], start)?;
                Self::start_network(network, start, setup)
            }
        }
    }

    fn start_network<N: Network + fmt::Debug + Send + 'static>(
        network: N,
        start: Instant,
        setup: LinkSetup,
    ) -> Result<Self, RunningLinkError> {
        let began_ns = monotonic_ns();
        let LinkSetup { spec, schedule, memory, ports, timeline, options, .. } = setup;
        let (devices, interfaces): (Vec<_>, Vec<_>) = ports.into_iter().unzip();
        let network =
            ReconfigurableNetwork::new(network, spec, start, schedule, memory.allowance());
        let (started, starting) = mpsc::sync_channel(1);
        let (failure, early_end) = channel::<String>();
        let notify = setup.on_early_end;
        let listen = move || early_end.recv().map_or((), |why| notify(&why));
        spawn("early end", listen)?;
        let drive = move || {
            let failure = PanicNotifier(failure);
            // Best effort: without it the driver may be late, and reports that.
            setup.placement.and_then(|placement| placement.bind_to_driver_cpu().ok());
            raise_priority();
            let emulator = Emulator::new(network, devices, memory.pool(), timeline, options);
            let mut emulator = match emulator {
                Ok(emulator) => emulator,
                Err(error) => {
                    started.send(Err(error)).ok();
                    return Ok(());
                }
            };
            for (index, interface) in interfaces.into_iter().enumerate() {
                emulator.watch(super::port(index), interface);
            }
            started.send(Ok((emulator.control(), LinkState::of(emulator.state())))).ok();
            let ended = emulator.run();
            if let Err(error) = &ended {
                failure.0.send(error.to_string()).ok();
            }
            ended
        };
        let thread = spawn("link", drive)?;
        let ended = |_| io::Error::other("it ended at its start");
        let started = starting.recv().map_err(ended).and_then(|started| started);
        let (control, state) = started.map_err(RunningLinkError::Start)?;
        let handle = Arc::new(NetworkControl { control, known: Mutex::new(state) });
        Ok(Self { began_ns, handle, thread })
    }

    /// Ends the link and returns its final state.
    ///
    /// # Errors
    /// A device failed, or the driver panicked.
    pub fn finish(self) -> Result<LinkState, RunningLinkError> {
        let state = self.handle.state();
        self.handle.stop();
        let failed = |why: &str| RunningLinkError::Ended(why.to_owned());
        match self.thread.join() {
            Ok(Ok(())) => state.ok_or_else(|| failed("its driver does not answer")),
            Ok(Err(error)) => Err(failed(&error.to_string())),
            Err(_) => Err(failed(BUG)),
        }
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, RunningLinkError> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map_err(RunningLinkError::Start)
}

/// What any thread may ask of a running link.
pub type LinkHandle = Arc<dyn LinkControl>;

/// Control of a running network of any kind. Each question is answered by `None` once it has ended.
pub trait LinkControl: fmt::Debug + Send + Sync {
    /// The state.
    fn state(&self) -> Option<LinkState>;

    /// The current description only, which is cheap.
    fn revision(&self) -> Option<LinkRevision>;

    /// Applies all of `changes` or none; the changed link, or why it was refused.
    fn change(
        &self,
        changes: Vec<String>,
        files: FileContents,
    ) -> Option<Result<LinkSpec, TextError>>;

    /// Asks the driver to end.
    fn stop(&self);
}

/// Control of a network of one kind.
#[derive(Debug)]
struct NetworkControl<N> {
    control: EmulatorControl<DrivenState<N>>,
    /// The last state, with the histograms since the start.
    known: Mutex<LinkState>,
}

impl<N: Network + fmt::Debug + Send + 'static> LinkControl for NetworkControl<N> {
    fn state(&self) -> Option<LinkState> {
        // Locked throughout: histograms that one caller takes must be added for all.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut form = known.empty_copy();
        let ask = |inside: &mut DrivenState<N>| {
            form.update(inside);
            form
        };
        let mut state = self.control.call(ask).ok()?;
        state.add_earlier(&known);
        self.control.add_interface_drops(&mut state.driver);
        known.clone_from(&state);
        Some(state)
    }

    fn revision(&self) -> Option<LinkRevision> {
        let ask =
            |inside: &mut DrivenState<N>| (inside.network.spec().clone(), inside.network.changes());
        let (spec, changes) = self.control.call(ask).ok()?;
        Some(LinkRevision { link: spec.to_string(), changes })
    }

    fn change(
        &self,
        changes: Vec<String>,
        files: FileContents,
    ) -> Option<Result<LinkSpec, TextError>> {
        let ask = move |inside: &mut DrivenState<N>| {
            let EmulatorState { now, network, pool, .. } = inside;
            let changes = changes.iter().map(String::as_str);
            network.change(*now, changes, &files, pool).cloned()
        };
        self.control.call(ask).ok()
    }

    fn stop(&self) {
        self.control.stop();
    }
}

/// Bytes of a frame around the IP packet: link headers, a virtio header, headroom.
const AROUND: u32 = 512;
/// Bytes of the Ethernet header.
const ETHERNET: u32 = 14;
/// Frames held by devices and the driver.
const IN_HAND: u64 = 2_048;
/// Fewest frames that are allocated at the start.
const FRAMES_MIN: u64 = 16_384;
/// Most bytes reserved for later changes of the link, for all lines together.
const RESERVE_MAX: u64 = 1 << 30;
/// A change for which every line has memory.
const DEFAULT_CHANGE: &str = "delay=1s";
/// Frames for super-segments.
const LARGE: u32 = 512;
/// Available memory in bytes, if the kernel does not say.
const AVAILABLE: u64 = 1 << 30;

/// Memory for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameMemory {
    frame_len: u32,
    frame_size: u32,
    count: u32,
    /// Frames allocated at the start.
    preallocated: u32,
    lines: u64,
}

impl FrameMemory {
    /// Memory for `lines` lines, each like every one of `specs` in turn, between devices of this MTU.
    ///
    /// # Errors
    /// [`SpecError::Memory`]: it may need more than half of the available memory.
    pub fn new(specs: &[&LinkSpec], mtu: u32, lines: u64) -> Result<Self, SpecError> {
        let lines = lines.max(1);
        let (frame_len, frame_size) = (mtu + ETHERNET, (mtu + AROUND).next_power_of_two());
        let allowed = available() / 2;
        let (mut least, mut wanted) = (0, 0);
        for spec in specs {
            spec.check_memory(frame_len, frame_size, allowed / lines)?;
            let need = spec.memory_need(frame_len, frame_size);
            least = least.max(need.frames.saturating_mul(lines));
            wanted = wanted.max(need.wanted.saturating_mul(lines));
        }
        let size = u64::from(frame_size);
        let later: LinkSpec = DEFAULT_CHANGE.parse().expect("a link");
        let later = later.memory_need(frame_len, frame_size).wanted.saturating_mul(lines);
        let written = (least + IN_HAND).max(FRAMES_MIN);
        let reserved = (wanted + IN_HAND).max(later.min(RESERVE_MAX / size)).min(allowed / size);
        let short = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let (count, written) = (short(reserved.max(written)), short(written));
        Ok(Self { frame_len, frame_size, count, preallocated: written, lines })
    }

    /// The frame pool.
    pub fn pool(&self) -> Pool {
        let frames = PoolConfig { count: self.count, size: self.frame_size, large: LARGE };
        Pool::reserve(frames, self.preallocated)
    }

    /// The limit for changes of each line.
    pub fn allowance(&self) -> MemoryAllowance {
        let bytes = u64::from(self.count) * u64::from(self.frame_size) / self.lines;
        MemoryAllowance { frame_len: self.frame_len, frame_size: self.frame_size, bytes }
    }
}

/// Available memory in bytes (proc(5), MemAvailable).
fn available() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kibibytes.map_or(AVAILABLE, |kibibytes| kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_large_a_link_is_a_memory_error() {
        let spec: LinkSpec = "rate=400gbit,delay=1h".parse().unwrap();
        let error = FrameMemory::new(&[&spec], 1_500, 1).unwrap_err();
        assert!(matches!(error, SpecError::Memory { .. }), "{error}");
    }

    #[test]
    fn changes_are_limited_by_reserved_memory() {
        let small: LinkSpec = "rate=1mbit,delay=10ms".parse().unwrap();
        let room = FrameMemory::new(&[&small], 1_500, 2).unwrap().allowance();
        room.check(&small).unwrap();
        let large: LinkSpec = "rate=10gbit,delay=1s".parse().unwrap();
        assert!(room.check(&large).is_err());
    }

    #[test]
    fn delay_without_a_rate_needs_no_memory() {
        let plain: LinkSpec = "delay=0".parse().unwrap();
        let room = FrameMemory::new(&[&plain], 1_500, 1).unwrap();
        for delay in ["30ms", "1s", "1h"] {
            let long: LinkSpec = format!("delay={delay}").parse().unwrap();
            room.allowance().check(&long).unwrap();
            let own = FrameMemory::new(&[&long], 1_500, 1).unwrap();
            assert_eq!(
                (own.preallocated, u64::from(room.preallocated)),
                (room.preallocated, FRAMES_MIN)
            );
        }
    }
}
