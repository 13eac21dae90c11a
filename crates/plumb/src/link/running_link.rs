//! A link at work: its driver on a thread of its own, and the way to talk to it.

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

/// What a link is asked to be at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRevision {
    /// As text.
    pub link: String,
    /// How often it has changed.
    pub changes: u64,
}

/// A device that may be driven by another thread.
pub type BoxedDevice = Box<dyn Device + Send>;

/// What is known of a link at one moment.
#[derive(Clone, Debug)]
pub struct LinkState {
    /// How it is driven.
    pub driver: EmulatorReport,
    /// What it did.
    pub network: NetworkReport,
    /// What it is asked to be.
    pub requested: LinkSpec,
    /// How often that changed.
    pub changes: u64,
    /// What of its schedule it has refused, and why.
    pub refusals: Vec<String>,
}

impl LinkState {
    /// All of it.
    fn of<N: Network>(inside: &mut EmulatorState<ReconfigurableNetwork<N>>) -> Self {
        Self {
            driver: inside.report(),
            network: inside.network.report(inside.now),
            requested: inside.network.spec().clone(),
            changes: inside.network.changes(),
            refusals: refusals(inside),
        }
    }

    /// The same with empty distributions, for `LinkState::fill`.
    fn empty_copy(&self) -> Self {
        Self {
            driver: self.driver.with_empty_histograms(),
            network: self.network.with_empty_histograms(),
            ..self.clone()
        }
    }

    /// What is known now, its distributions since this was last done: by the driver, whose frames wait meanwhile, so that
    /// nothing is copied that may be long, and no memory asked for but where the link became another.
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

    /// Adds the distributions of what was known before.
    fn add_earlier(&mut self, earlier: &Self) {
        self.driver.merge_earlier(&earlier.driver);
        self.network.merge_earlier(&earlier.network);
    }
}

fn refusals<N: Network>(inside: &EmulatorState<ReconfigurableNetwork<N>>) -> Vec<String> {
    inside.network.refusals().iter().map(ToString::to_string).collect()
}

/// What a link shall be: at first, later, and how much memory its frames have.
#[derive(Debug)]
pub struct LinkSetup {
    /// As it begins.
    pub spec: LinkSpec,
    /// What it becomes, counted from its beginning.
    pub schedule: Option<LinkSchedule>,
    /// For its frames.
    pub memory: FrameMemory,
}

/// A link that runs.
#[derive(Debug)]
pub struct RunningLink<N: Network> {
    control: EmulatorControl<EmulatorState<ReconfigurableNetwork<N>>>,
    known: Arc<Mutex<LinkState>>,
    thread: JoinHandle<Result<(), DeviceError>>,
    began_ns: u64,
    /// Says why it has ended where nobody asked for that; taken by who listens.
    failure: Option<Receiver<String>>,
}

/// Tells of the end of a driver that has a bug.
#[derive(Debug)]
struct PanicNotifier(Sender<String>);

impl Drop for PanicNotifier {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.send(BUG.to_owned()).ok();
        }
    }
}

/// Why a driver ended that panicked.
const BUG: &str = "its driver has a bug, which it has named";

impl<N: Network + Send + 'static> RunningLink<N> {
    /// Starts it on a thread of its own, which measures its precision first, and returns when frames
    /// pass. `make` makes the network that begins as asked, from its moment of origin: all that counts from a
    /// link's beginning counts from there.
    ///
    /// # Errors
    /// There are no more threads or descriptors.
    pub fn start(
        make: impl FnOnce(&LinkSpec, Instant) -> Result<N, Problem>,
        asked: LinkSetup,
        devices: Vec<BoxedDevice>,
        interfaces: Vec<InterfaceDropCounter>,
        timeline: InstantClock,
        options: EmulatorOptions,
        placement: Option<DriverPlacement>,
    ) -> Result<Self, Problem> {
        let cannot = |error| Problem::failure("cannot start the link's driver").because(error);
        let (start, began_ns) = (timeline.now(), monotonic_ns());
        let network = make(&asked.spec, start)?;
        let LinkSetup { spec, schedule, memory: room } = asked;
        let network = ReconfigurableNetwork::new(network, spec, start, schedule, room.allowance());
        let (tell, told) = mpsc::sync_channel(1);
        let (alarm, early) = channel();
        let drive = move || {
            let alarm = PanicNotifier(alarm);
            // Refused, it runs where the kernel likes, and its lateness shows it.
            placement.and_then(|placement| placement.bind_to_driver_cpu().ok());
            raise_priority();
            let emulator = Emulator::new(network, devices, room.pool(), timeline, options);
            let mut emulator = match emulator {
                Ok(emulator) => emulator,
                Err(error) => {
                    tell.send(Err(error)).ok();
                    return Ok(());
                }
            };
            for (index, interface) in interfaces.into_iter().enumerate() {
                let port = u16::try_from(index).expect("as many interfaces as devices");
                emulator.watch(PortId(port), interface);
            }
            tell.send(Ok((emulator.control(), LinkState::of(emulator.state())))).ok();
            let ended = emulator.run();
            if let Err(error) = &ended {
                alarm.0.send(error.to_string()).ok();
            }
            ended
        };
        let thread =
            std::thread::Builder::new().name("link".to_owned()).spawn(drive).map_err(cannot)?;
        let gone = |_| Problem::failure("the link's driver ended before it began");
        let (control, state) = told.recv().map_err(gone)?.map_err(cannot)?;
        let known = Arc::new(Mutex::new(state));
        Ok(Self { control, known, thread, began_ns, failure: Some(early) })
    }

    /// Has `tell` hear why the link has ended, should it before [`RunningLink::finish`]: at once, on a thread
    /// of its own.
    ///
    /// # Errors
    /// There are no more threads.
    pub fn on_early_end(
        &mut self,
        tell: impl FnOnce(&str) + Send + 'static,
    ) -> Result<(), Problem> {
        let Some(early) = self.failure.take() else { return Ok(()) };
        let listen = move || {
            if let Ok(why) = early.recv() {
                tell(&why);
            }
        };
        let spawned = std::thread::Builder::new().name("early end".to_owned()).spawn(listen);
        spawned
            .map(drop)
            .map_err(|error| Problem::failure("cannot watch over the link's driver").because(error))
    }

    /// When it began, by the clock that only rises.
    pub fn began_ns(&self) -> u64 {
        self.began_ns
    }

    /// A way to talk to it from any thread.
    pub fn handle(&self) -> LinkHandle<N> {
        LinkHandle { control: self.control.clone(), known: Arc::clone(&self.known) }
    }

    /// Ends it; how it was at the end.
    ///
    /// # Errors
    /// A device failed, or its driver has a bug.
    pub fn finish(self) -> Result<LinkState, Problem> {
        let state = self.handle().state();
        self.control.stop();
        let ended = self.thread.join();
        let failed = |why: String| {
            Problem::failure("the link ended before the command did")
                .because(why)
                .fix("what came after went nowhere: run it again")
        };
        match ended {
            Ok(Ok(())) => state.ok_or_else(|| failed("its driver does not answer".to_owned())),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed(BUG.to_owned())),
        }
    }
}

/// A way to talk to a link that runs.
#[derive(Debug)]
pub struct LinkHandle<N: Network> {
    control: EmulatorControl<EmulatorState<ReconfigurableNetwork<N>>>,
    /// What the driver told last, with the distributions of all that it told.
    known: Arc<Mutex<LinkState>>,
}

impl<N: Network> Clone for LinkHandle<N> {
    fn clone(&self) -> Self {
        Self { control: self.control.clone(), known: Arc::clone(&self.known) }
    }
}

/// What everything but the driver needs of a link that runs, whatever it is inside.
pub trait LinkControl: Send + Sync {
    /// How it is; none once it has ended.
    fn state(&self) -> Option<LinkState>;

    /// What it is asked to be: all that is cheap to know. None once it has ended.
    fn revision(&self) -> Option<LinkRevision>;

    /// Changes by all of `changes` or by none; what it then is, or why it is not. None once it has ended.
    fn change(
        &self,
        changes: Vec<String>,
        files: FileContents,
    ) -> Option<Result<LinkSpec, TextError>>;
}

impl<N: Network + Send + 'static> LinkHandle<N> {
    /// As [`LinkControl::state`].
    pub fn state(&self) -> Option<LinkState> {
        // One after the other: what the driver tells one is to be known by all.
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
}

impl<N: Network + Send + 'static> LinkControl for LinkHandle<N> {
    fn state(&self) -> Option<LinkState> {
        Self::state(self)
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

/// Bytes around an IP packet in its frame: link headers, a virtio header, the pool's headroom.
const AROUND: u32 = 512;
/// Bytes of Ethernet's header.
const ETHERNET: u32 = 14;
/// Frames beside those inside the link: what devices and the driver have in hand.
const IN_HAND: u64 = 2_048;
/// Frames that are there from the beginning, at least.
const FRAMES_MIN: u64 = 16_384;
/// Bytes of frames that may be used later, for a change of the link while it runs: of all lines
/// together.
const RESERVE_MAX: u64 = 1 << 30;
/// The link that a line without a rate and a delay may become.
const DEFAULT_CHANGE: &str = "delay=1s";
/// Frames for super-segments.
const LARGE: u32 = 512;
/// Taken to be there where the kernel does not say.
const AVAILABLE: u64 = 1 << 30;

/// Memory for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameMemory {
    frame_len: u32,
    frame_size: u32,
    count: u32,
    /// Of those, the ones that are taken at the beginning.
    preallocated: u32,
    lines: u64,
}

impl FrameMemory {
    /// For a network of so many lines like each of `specs` in turn, between devices of this MTU.
    ///
    /// # Errors
    /// [`SpecError::Memory`]: it may need more than half of the memory that is free.
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

    /// The pool.
    pub fn pool(&self) -> Pool {
        let frames = PoolConfig { count: self.count, size: self.frame_size, large: LARGE };
        Pool::reserve(frames, self.preallocated)
    }

    /// What there is for each line of whatever the link becomes while it runs.
    pub fn allowance(&self) -> MemoryAllowance {
        let bytes = u64::from(self.count) * u64::from(self.frame_size) / self.lines;
        MemoryAllowance { frame_len: self.frame_len, frame_size: self.frame_size, bytes }
    }
}

/// Bytes of memory that are free, as the kernel estimates it (proc(5), MemAvailable).
fn available() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kibibytes.map_or(AVAILABLE, |kibibytes| kibibytes << 10)
}

/// All that went wrong so far.
#[derive(Clone, Debug)]
pub struct LinkProblems {
    texts: Arc<Mutex<Vec<String>>>,
    notifier: Sender<String>,
}

impl LinkProblems {
    /// None yet; `say` hears of each, on a thread of its own, so that whoever finds one need not wait.
    /// Without one more thread there is only the account.
    pub fn reporting_to(mut say: impl FnMut(&str) + Send + 'static) -> Self {
        let (sender, texts) = channel::<String>();
        let tell = move || texts.iter().for_each(|text| say(&text));
        std::thread::Builder::new().name("troubles".to_owned()).spawn(tell).map(drop).ok();
        Self { texts: Arc::default(), notifier: sender }
    }

    /// One more.
    pub fn add(&self, text: String) {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).push(text.clone());
        self.notifier.send(text).ok();
    }

    /// All of them.
    pub fn texts(&self) -> Vec<String> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A resolv.conf(5) that asks `resolver` instead of those that `outside` names, and is as that one
/// otherwise.
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
    fn a_link_that_needs_more_than_there_is_has_no_room_and_says_how_much_it_needs() {
        let spec: LinkSpec = "rate=400gbit,delay=1h".parse().unwrap();
        let error = FrameMemory::new(&[&spec], 1_500, 1).unwrap_err().to_string();
        assert!(error.contains("GiB") && error.contains("lower"), "{error}");
    }

    #[test]
    fn a_link_that_runs_becomes_only_what_its_room_is_enough_for() {
        let small: LinkSpec = "rate=1mbit,delay=10ms".parse().unwrap();
        let room = FrameMemory::new(&[&small], 1_500, 2).unwrap().allowance();
        room.check(&small).unwrap();
        let large: LinkSpec = "rate=10gbit,delay=1s".parse().unwrap();
        assert!(room.check(&large).is_err());
    }

    #[test]
    fn a_link_without_a_rate_may_become_as_long_as_one_likes_and_takes_no_memory_for_it() {
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
    fn names_are_asked_at_the_far_side_with_the_outer_options() {
        let outside =
            "# comment\nnameserver 127.0.0.53\noptions edns0\nsearch a.example b.example\n";
        let inside = resolv_conf(outside, "10.77.0.2".parse().unwrap());
        assert_eq!(inside, "nameserver 10.77.0.2\noptions edns0\nsearch a.example b.example\n");
    }

    #[test]
    fn every_host_has_a_line_for_each_address() {
        let text =
            hosts_file([("a", vec!["10.77.0.1".parse().unwrap(), "fd77::1".parse().unwrap()])]);
        assert!(text.ends_with("10.77.0.1 a\nfd77::1 a\n"));
        assert!(text.starts_with("127.0.0.1 localhost\n"));
    }
}
