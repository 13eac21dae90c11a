//! A running link: its driver on a thread of its own, and handles to it.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use plumb_base::time::Instant;
use plumb_clock::{InstantClock, monotonic_ns};
use plumb_link::memory::MemoryAllowance;
use plumb_link::report::{Network, NetworkReport};
use plumb_link::schedule::{LinkSchedule, ReconfigurableNetwork};
use plumb_link::spec::{LinkSpec, SpecError};
use plumb_link::text::{FileContents, LinkTextFiles, TextError};
use plumb_netdev::device::{Device, DeviceError};
use plumb_netdev::emulator::{
    Emulator, EmulatorControl, EmulatorOptions, EmulatorReport, EmulatorState,
    InterfaceDropCounter, raise_priority,
};
use plumb_netdev::lab::DriverPlacement;
use plumb_wire::machine::PortId;
use plumb_wire::packet::{Pool, PoolConfig};
use serde::{Deserialize, Serialize};

use crate::problem::{ExitReason, Problem};

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
    fn of<N: Network>(inside: &mut EmulatorState<ReconfigurableNetwork<N>>) -> Self {
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
    fn update<N: Network>(&mut self, inside: &mut EmulatorState<ReconfigurableNetwork<N>>) {
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

fn refusals<N: Network>(inside: &EmulatorState<ReconfigurableNetwork<N>>) -> Vec<String> {
    inside.network.refusals().iter().map(ToString::to_string).collect()
}

/// What to start.
#[derive(Debug)]
pub struct LinkSetup {
    /// The link at the start.
    pub spec: LinkSpec,
    /// Later changes, relative to the start.
    pub schedule: Option<LinkSchedule>,
    /// Memory for its frames.
    pub memory: FrameMemory,
}

/// A running link.
#[derive(Debug)]
pub struct RunningLink<N: Network> {
    control: EmulatorControl<EmulatorState<ReconfigurableNetwork<N>>>,
    known: Arc<Mutex<LinkState>>,
    thread: JoinHandle<Result<(), DeviceError>>,
    /// Start, in nanoseconds of the monotonic clock.
    pub began_ns: u64,
    /// Receives why the driver ended by itself; taken by [`RunningLink::on_early_end`].
    failure: Option<Receiver<String>>,
}

/// Reports a panic of the driver's thread.
#[derive(Debug)]
struct PanicNotifier(Sender<String>);

impl Drop for PanicNotifier {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.send(BUG.to_owned()).ok();
        }
    }
}

/// Reason of the end of a driver that panicked.
const BUG: &str = "its driver has a bug; see the message above";

impl<N: Network + Send + 'static> RunningLink<N> {
    /// Starts a link on a thread of its own, which calibrates its timer first; returns when frames pass. `make` creates the
    /// network from its description and its start, to which schedules and other times are relative.
    ///
    /// # Errors
    /// An invalid link, or the kernel is out of threads or descriptors.
    pub fn start(
        make: impl FnOnce(&LinkSpec, Instant) -> Result<N, SpecError>,
        setup: LinkSetup,
        devices: Vec<BoxedDevice>,
        interfaces: Vec<InterfaceDropCounter>,
        timeline: InstantClock,
        options: EmulatorOptions,
        placement: Option<DriverPlacement>,
    ) -> Result<Self, Problem> {
        let cannot = |error| Problem::failure("cannot start the link's driver").because(error);
        let (start, began_ns) = (timeline.now(), monotonic_ns());
        let network = make(&setup.spec, start)?;
        let LinkSetup { spec, schedule, memory } = setup;
        let network =
            ReconfigurableNetwork::new(network, spec, start, schedule, memory.allowance());
        let (started, starting) = mpsc::sync_channel(1);
        let (failure, early) = channel();
        let drive = move || {
            let failure = PanicNotifier(failure);
            // Best effort: without it the driver may be late, and reports that.
            placement.and_then(|placement| placement.bind_to_driver_cpu().ok());
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
                let port = u16::try_from(index).expect("as many interfaces as devices");
                emulator.watch(PortId(port), interface);
            }
            started.send(Ok((emulator.control(), LinkState::of(emulator.state())))).ok();
            let ended = emulator.run();
            if let Err(error) = &ended {
                failure.0.send(error.to_string()).ok();
            }
            ended
        };
        let thread =
            std::thread::Builder::new().name("link".to_owned()).spawn(drive).map_err(cannot)?;
        let ended = |_| Problem::failure("the link's driver ended at its start");
        let (control, state) = starting.recv().map_err(ended)?.map_err(cannot)?;
        let known = Arc::new(Mutex::new(state));
        Ok(Self { control, known, thread, began_ns, failure: Some(early) })
    }

    /// Calls `notify` with the reason, on a thread of its own, if the link ends before [`RunningLink::finish`].
    ///
    /// # Errors
    /// The kernel is out of threads.
    pub fn on_early_end(
        &mut self,
        notify: impl FnOnce(&str) + Send + 'static,
    ) -> Result<(), Problem> {
        let Some(early) = self.failure.take() else { return Ok(()) };
        let listen = move || {
            if let Ok(why) = early.recv() {
                notify(&why);
            }
        };
        let spawned = std::thread::Builder::new().name("early end".to_owned()).spawn(listen);
        spawned
            .map(drop)
            .map_err(|error| Problem::failure("cannot watch the link's driver").because(error))
    }

    /// A handle for any thread.
    pub fn handle(&self) -> LinkHandle<N> {
        LinkHandle { control: self.control.clone(), known: Arc::clone(&self.known) }
    }

    /// Ends the link and returns its final state.
    ///
    /// # Errors
    /// A device failed, or the driver panicked.
    pub fn finish(self) -> Result<LinkState, Problem> {
        let state = self.handle().state();
        self.control.stop();
        let ended = self.thread.join();
        let failed = |why: String| {
            Problem::failure("the link ended before the command did")
                .because(why)
                .fix("later frames were lost: run it again")
        };
        match ended {
            Ok(Ok(())) => state.ok_or_else(|| failed("its driver does not answer".to_owned())),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed(BUG.to_owned())),
        }
    }
}

/// A handle to a running link.
#[derive(Debug)]
pub struct LinkHandle<N: Network> {
    control: EmulatorControl<EmulatorState<ReconfigurableNetwork<N>>>,
    /// The last state, with the histograms since the start.
    known: Arc<Mutex<LinkState>>,
}

impl<N: Network> Clone for LinkHandle<N> {
    fn clone(&self) -> Self {
        Self { control: self.control.clone(), known: Arc::clone(&self.known) }
    }
}

/// A handle to a running network of any kind. Each method returns `None` once it has ended.
pub trait LinkControl: Send + Sync {
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
}

impl<N: Network + Send + 'static> LinkControl for LinkHandle<N> {
    fn state(&self) -> Option<LinkState> {
        // Locked throughout: histograms that one caller takes must be added for all.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut form = known.empty_copy();
        let ask = |inside: &mut EmulatorState<ReconfigurableNetwork<N>>| {
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
        let ask = |inside: &mut EmulatorState<ReconfigurableNetwork<N>>| {
            (inside.network.spec().clone(), inside.network.changes())
        };
        let (spec, changes) = self.control.call(ask).ok()?;
        Some(LinkRevision { link: spec.to_string(), changes })
    }

    fn change(
        &self,
        changes: Vec<String>,
        files: FileContents,
    ) -> Option<Result<LinkSpec, TextError>> {
        let ask = move |inside: &mut EmulatorState<ReconfigurableNetwork<N>>| {
            let EmulatorState { now, network, pool, .. } = inside;
            let changes = changes.iter().map(String::as_str);
            network.change(*now, changes, &files, pool).cloned()
        };
        self.control.call(ask).ok()
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

/// Problems since the start.
#[derive(Clone, Debug)]
pub struct LinkProblems {
    texts: Arc<Mutex<Vec<String>>>,
    notifier: Sender<String>,
}

impl LinkProblems {
    /// No problems yet; calls `print` with each one, on a thread of its own, so that adding one never blocks. If no thread
    /// can be started, problems are only recorded.
    pub fn reporting_to(mut print: impl FnMut(&str) + Send + 'static) -> Self {
        let (sender, texts) = channel::<String>();
        let report = move || texts.iter().for_each(|text| print(&text));
        std::thread::Builder::new().name("problems".to_owned()).spawn(report).map(drop).ok();
        Self { texts: Arc::default(), notifier: sender }
    }

    /// Adds a problem.
    pub fn add(&self, text: String) {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).push(text.clone());
        self.notifier.send(text).ok();
    }

    /// All problems.
    pub fn texts(&self) -> Vec<String> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The resolv.conf(5) `outside` with `resolver` instead of its resolvers.
pub fn resolv_conf(outside: &str, resolver: IpAddr) -> String {
    let mut text = format!("nameserver {resolver}\n");
    for line in outside.lines() {
        let word = line.split_whitespace().next().unwrap_or_default();
        if matches!(word, "search" | "domain" | "options" | "sortlist") {
            text += line.trim();
            text.push('\n');
        }
    }
    text
}

/// A hosts(5) with the loopback and the hosts of a lab.
pub fn hosts_file<'a>(hosts: impl IntoIterator<Item = (&'a str, Vec<IpAddr>)>) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n".to_owned();
    for (name, addresses) in hosts {
        for address in addresses {
            writeln!(text, "{address} {name}").expect("writing to a String cannot fail");
        }
    }
    text
}

/// Reads a schedule for a link that begins as `base`.
///
/// # Errors
/// The file cannot be read, or a line of it.
pub fn read_schedule(
    path: &Path,
    base: &LinkSpec,
    files: &dyn LinkTextFiles,
) -> Result<LinkSchedule, Problem> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Problem::usage(format!("cannot read the schedule {}", path.display()))
            .because(error)
            .fix("name a file with lines like '5s rate=1mbit'")
    })?;
    LinkSchedule::parse(&path.to_string_lossy(), &text, base, files)
        .map_err(|error| Problem::from_message(&error.to_string(), ExitReason::Usage))
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

    #[test]
    fn resolv_conf_keeps_the_outer_options() {
        let outside =
            "# comment\nnameserver 127.0.0.53\noptions edns0\nsearch a.example b.example\n";
        let inside = resolv_conf(outside, "10.77.0.2".parse().unwrap());
        assert_eq!(inside, "nameserver 10.77.0.2\noptions edns0\nsearch a.example b.example\n");
    }

    #[test]
    fn hosts_file_has_a_line_per_address() {
        let text =
            hosts_file([("a", vec!["10.77.0.1".parse().unwrap(), "fd77::1".parse().unwrap()])]);
        assert!(text.ends_with("10.77.0.1 a\nfd77::1 a\n"));
        assert!(text.starts_with("127.0.0.1 localhost\n"));
    }
}
