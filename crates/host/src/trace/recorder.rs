//! Switches tracepoints on for two processes, and decodes what they left in the rings.
//!
//! Events are attached to CPUs and filtered by thread: an event attached to a thread would be moved
//! in and out at each context switch, which costs more than the filter. Left out: meaning.

use std::ffi::CString;
use std::io;

use plumb_sys::clock::{self, Clock};
use plumb_sys::perf::{self, Record, Ring, Scope};

use super::timeline::{Event, Gap, Timeline};
use super::tracepoint::{EventSet, Layout, Tracefs, Tracepoint};
use crate::clock::Stopwatch;

/// Bytes of a ring when as much may be locked; about 80,000 events.
const RING_LEN: usize = 8 << 20;
/// Less than this is not worth having.
const RING_LEN_MIN: usize = 64 << 10;
/// The inode of the first process namespace: PROC_PID_INIT_INO in linux/proc_ns.h.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Why nothing can be recorded, with what helps.
#[derive(Debug, thiserror::Error)]
pub enum TraceUnavailable {
    /// No tracefs, and none may be mounted.
    #[error("the kernel's tracepoints cannot be found ({0}); {fix}", fix = MOUNT)]
    NoTracefs(io::Error),
    /// A tracefs is there, and not for this user.
    #[error("this user may not read the kernel's list of tracepoints ({0}); {fix}", fix = READ)]
    Unreadable(io::Error),
    /// perf_event_open(2) is refused.
    #[error("the kernel refuses to record tracepoints ({0}); {fix}", fix = RECORD)]
    Refused(io::Error),
    /// This kernel has no such tracepoint, or describes it in a way unknown here.
    #[error("this kernel does not offer the tracepoint {what} ({source}); {fix}", fix = NOTHING)]
    Missing {
        /// Its path.
        what: &'static str,
        /// What reading it said.
        source: io::Error,
    },
    /// Tracepoints name processes by other numbers than this process sees.
    #[error(
        "tracepoints number processes as the host does, and this is another process namespace; {fix}",
        fix = OUTSIDE
    )]
    OtherNamespace,
    /// No ring could be mapped.
    #[error("no memory for the records ({0}); {fix}", fix = LOCK)]
    NoRing(io::Error),
    /// Something else about a tracepoint failed.
    #[error("cannot listen to {what}: {source}")]
    Failed {
        /// Its path.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl TraceUnavailable {
    /// What helps, as a reader would do it.
    pub const fn fix(&self) -> &'static str {
        match self {
            Self::NoTracefs(_) => MOUNT,
            Self::Unreadable(_) => READ,
            Self::Refused(_) => RECORD,
            Self::Missing { .. } | Self::Failed { .. } => NOTHING,
            Self::OtherNamespace => OUTSIDE,
            Self::NoRing(_) => LOCK,
        }
    }
}

const MOUNT: &str = "as root: mount -t tracefs tracefs /sys/kernel/tracing, and run plumb as root";
/// Its files are its group's to read, not everybody's.
const READ: &str = "run plumb as root, or: sudo mount -o remount,mode=750,gid=$(id -g) \
    /sys/kernel/tracing && sudo sysctl -w kernel.perf_event_paranoid=-1";
const RECORD: &str =
    "run plumb as root or with CAP_PERFMON, or: sudo sysctl -w kernel.perf_event_paranoid=-1";
const NOTHING: &str = "no setting helps";
const OUTSIDE: &str = "run plumb on the host, or the container with --pid=host";
const LOCK: &str = "raise it: sudo sysctl -w kernel.perf_event_mlock_kb=2048";

/// Records what the kernel does for a set of threads on a set of CPUs; bounded, and off until
/// [`Self::enable`].
///
/// A recorder that is open but disabled still costs something, because the kernel then takes the
/// slow path into every system call: what looking costs is found against none at all.
#[derive(Debug)]
pub struct Recorder {
    watch: Stopwatch,
    layouts: Vec<Layout>,
    missing: Vec<Tracepoint>,
    cpus: Vec<CpuRecorder>,
    first: Anchor,
    /// When the rings were last emptied, in ticks.
    emptied: u64,
}

/// The events of one CPU; the first leads the group and owns the ring.
#[derive(Debug)]
struct CpuRecorder {
    cpu: u32,
    events: Vec<perf::Event>,
    ring: Ring,
}

impl Recorder {
    /// Opens the tracepoints of a set for these threads wherever they run on these CPUs.
    ///
    /// # Errors
    /// Says what is missing and what helps.
    pub fn open(
        threads: &[u32],
        cpus: &[u32],
        set: EventSet,
        watch: Stopwatch,
    ) -> Result<Self, TraceUnavailable> {
        if std::fs::read_link("/proc/self/ns/pid")
            .is_ok_and(|link| link.as_os_str() != FIRST_PID_NAMESPACE)
        {
            return Err(TraceUnavailable::OtherNamespace);
        }
        let tracefs = Tracefs::find()?;
        let mut layouts = Vec::new();
        let mut missing = Vec::new();
        for tracepoint in set.iter() {
            match tracefs.layout(tracepoint) {
                Ok(layout) => layouts.push(layout),
                Err(source) if tracepoint.is_indispensable() => {
                    return Err(TraceUnavailable::Missing { what: tracepoint.path(), source });
                }
                Err(_) => missing.push(tracepoint),
            }
        }
        let mut cpus = cpus.to_vec();
        cpus.sort_unstable();
        cpus.dedup();
        let cpus = cpus
            .into_iter()
            .map(|cpu| CpuRecorder::open(cpu, threads, &layouts))
            .collect::<Result<_, _>>()?;
        let first = Anchor::read(watch);
        Ok(Self { watch, layouts, missing, cpus, first, emptied: first.ticks })
    }

    /// Tracepoints of the set that this kernel lacks.
    pub fn missing(&self) -> &[Tracepoint] {
        &self.missing
    }

    /// Starts recording.
    pub fn enable(&self) -> io::Result<()> {
        self.cpus
            .iter()
            .filter_map(|cpu| cpu.events.first())
            .try_for_each(perf::Event::enable_group)
    }

    /// Stops recording.
    pub fn disable(&self) -> io::Result<()> {
        self.cpus
            .iter()
            .filter_map(|cpu| cpu.events.first())
            .try_for_each(perf::Event::disable_group)
    }

    /// Everything recorded since the last call, and the rings empty again.
    pub fn drain(&mut self) -> Timeline {
        let last = Anchor::read(self.watch);
        let scale = Scale::between(self.watch, self.first, last);
        let mut events = Vec::new();
        let mut gaps = Vec::new();
        for recorder in &mut self.cpus {
            let cpu = recorder.cpu;
            let mut before = self.emptied;
            let full = recorder.ring.drain(|record| match record {
                Record::Sample(ns, bytes) => {
                    let at = scale.ticks(ns);
                    before = at;
                    let layout = Layout::id_of(bytes)
                        .and_then(|id| self.layouts.iter().find(|layout| layout.id == id));
                    if let Some((thread, kind)) = layout.and_then(|layout| layout.decode(bytes)) {
                        events.push(Event { at, cpu, thread, kind });
                    }
                }
                Record::Lost(ns, lost) => {
                    gaps.push(Gap { from: before, to: scale.ticks(ns), lost });
                }
            });
            if full {
                // How many follow is known at the next event.
                gaps.push(Gap { from: before, to: last.ticks, lost: 0 });
            }
        }
        self.emptied = last.ticks;
        Timeline::new(self.watch, events, gaps)
    }
}

impl CpuRecorder {
    fn open(cpu: u32, threads: &[u32], layouts: &[Layout]) -> Result<Self, TraceUnavailable> {
        let mut events: Vec<perf::Event> = Vec::new();
        let mut ring = None;
        for layout in layouts {
            let what = layout.tracepoint.path();
            let failed = |source: io::Error| match source.kind() {
                io::ErrorKind::PermissionDenied => TraceUnavailable::Refused(source),
                _ => TraceUnavailable::Failed { what, source },
            };
            let event = perf::Event::tracepoint(layout.id, Scope::Cpu(cpu), events.first())
                .map_err(failed)?;
            if let Some(filter) = layout.tracepoint.filter(threads) {
                let filter = CString::new(filter).map_err(|error| failed(error.into()))?;
                event.set_filter(&filter).map_err(failed)?;
            }
            match events.first() {
                Some(leader) => event.write_into(leader).map_err(failed)?,
                None => ring = Some(largest_ring(&event).map_err(TraceUnavailable::NoRing)?),
            }
            events.push(event);
        }
        let ring = ring.ok_or_else(|| TraceUnavailable::Failed {
            what: "an empty set",
            source: io::ErrorKind::InvalidInput.into(),
        })?;
        Ok(Self { cpu, events, ring })
    }
}

/// The largest ring that this user may lock.
fn largest_ring(event: &perf::Event) -> io::Result<Ring> {
    let mut len = RING_LEN;
    loop {
        match Ring::new(event, len) {
            Err(error) if len > RING_LEN_MIN && error.kind() == io::ErrorKind::PermissionDenied => {
                len /= 2;
            }
            outcome => return outcome,
        }
    }
}

/// The worker's clock and the kernel's raw clock at one moment.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    ticks: u64,
    ns: u64,
}

/// Pairs read for an anchor; the tightest counts.
const ANCHOR_READS: u32 = 64;

impl Anchor {
    fn read(watch: Stopwatch) -> Self {
        let pair = || {
            let before = watch.begin();
            let ns = clock::read_ns(Clock::MonotonicRaw);
            let slack = watch.end().wrapping_sub(before);
            (slack, Self { ticks: before.wrapping_add(slack / 2), ns })
        };
        let first = pair();
        (1..ANCHOR_READS)
            .map(|_| pair())
            .fold(first, |best, pair| if pair.0 < best.0 { pair } else { best })
            .1
    }
}

/// From nanoseconds of the raw clock to the worker's ticks, by the straight line through two
/// anchors: the raw clock is never slewed.
#[derive(Clone, Copy, Debug)]
struct Scale {
    from: Anchor,
    ticks_per_ns: f64,
}

impl Scale {
    /// Anchors closer than this say less about the rate than calibration did.
    const SPAN_MIN_NS: u64 = 100_000_000;

    fn between(watch: Stopwatch, first: Anchor, last: Anchor) -> Self {
        let ns = last.ns.saturating_sub(first.ns);
        let ticks_per_ns = if ns >= Self::SPAN_MIN_NS {
            last.ticks.wrapping_sub(first.ticks) as f64 / ns as f64
        } else {
            watch.ticks(1e9) as f64 / 1e9
        };
        Self { from: last, ticks_per_ns }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a float cast saturates; spans here are hours at most"
    )]
    fn ticks(self, ns: u64) -> u64 {
        let after = i128::from(ns) - i128::from(self.from.ns);
        let ticks = (after as f64 * self.ticks_per_ns).round() as i64;
        self.from.ticks.wrapping_add_signed(ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Call, Kind};
    use plumb_base::time::Span;

    #[test]
    fn a_time_between_anchors_falls_between_their_ticks() {
        let watch = Stopwatch::new(Some(2.5));
        let first = Anchor { ticks: 1_000, ns: 50_000_000_000 };
        let last = Anchor { ticks: 1_000 + 2_600_000_000, ns: 51_000_000_000 };
        let scale = Scale::between(watch, first, last);
        assert_eq!(scale.ticks(first.ns), first.ticks);
        assert_eq!(scale.ticks(last.ns), last.ticks);
        assert_eq!(scale.ticks(50_500_000_000), 1_000 + 1_300_000_000);
        // Too close together: the calibrated rate counts.
        let soon = Anchor { ticks: 9_000, ns: first.ns + 1_000 };
        let scale = Scale::between(watch, first, soon);
        assert_eq!(scale.ticks(soon.ns + 100), 9_250);
        assert_eq!(scale.ticks(soon.ns - 100), 8_750);
    }

    #[test]
    fn the_raw_clock_needs_no_conversion() {
        let watch = Stopwatch::new(None);
        let first = Anchor { ticks: 700, ns: 700 };
        let scale = Scale::between(watch, first, Anchor { ticks: 900_000_700, ns: 900_000_700 });
        assert_eq!(scale.ticks(123_456_789), 123_456_789);
    }

    /// A recorder of this thread on its own CPU, or visibly none.
    fn own_recorder(watch: Stopwatch) -> Option<(u32, Recorder)> {
        let thread = plumb_sys::process::thread_id();
        let cpu = plumb_sys::affinity::current_cpu().ok()?;
        plumb_sys::affinity::bind(&[cpu]).ok()?;
        match Recorder::open(&[thread], &[cpu], EventSet::pipe(), watch) {
            Ok(recorder) => Some((thread, recorder)),
            Err(reason) => {
                assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{reason}");
                println!("skipped: {reason}");
                None
            }
        }
    }

    #[test]
    fn calls_are_seen_between_the_clock_reads_around_them() {
        let watch = Stopwatch::new(crate::clock::calibrate(Span::from_ms(20)).ticks_per_ns);
        let Some((thread, mut recorder)) = own_recorder(watch) else { return };
        plumb_sys::process::call::getppid_raw();
        recorder.enable().unwrap();
        let trips: Vec<_> = (0..50)
            .map(|_| {
                let start = watch.begin();
                plumb_sys::process::call::getppid_raw();
                (start, watch.end())
            })
            .collect();
        recorder.disable().unwrap();
        plumb_sys::process::call::getppid_raw();
        let timeline = recorder.drain();
        assert_eq!(timeline.lost(), 0);
        assert!(timeline.events().is_sorted_by_key(|event| event.at));
        // A virtual machine's clocks agree to within the slack of reading both.
        let slack = watch.ticks(500.0);
        for (start, end) in trips {
            let inside: Vec<_> = timeline
                .between(start - slack, end + slack)
                .iter()
                .filter(|event| event.thread == thread)
                .map(|event| event.kind)
                .collect();
            assert!(inside.contains(&Kind::Enter(Call::Other)), "{inside:?}");
            assert!(inside.contains(&Kind::Exit(Call::Other)), "{inside:?}");
        }
        // Nothing is recorded while it is off, and nothing twice.
        let own = |timeline: &Timeline| {
            let calls = timeline.events().iter().filter(|event| event.thread == thread);
            calls.filter(|event| event.kind == Kind::Enter(Call::Other)).count()
        };
        // The 50, and the ioctl that switched it off.
        assert_eq!(own(&timeline), 51);
        assert_eq!(own(&recorder.drain()), 0);
    }

    #[test]
    fn events_beyond_the_ring_are_counted_and_leave_a_gap() {
        let watch = Stopwatch::new(None);
        let Some((_, mut recorder)) = own_recorder(watch) else { return };
        recorder.enable().unwrap();
        let start = watch.begin();
        for _ in 0..100_000 {
            plumb_sys::process::call::getppid_raw();
        }
        let end = watch.end();
        let full = recorder.drain();
        assert!(full.is_torn(end, end) && !full.is_torn(start, start));
        // There is room again: the next record says what was lost before it.
        plumb_sys::process::call::getppid_raw();
        recorder.disable().unwrap();
        let after = recorder.drain();
        assert!(after.lost() > 10_000, "{} lost", after.lost());
        assert!(full.events().len() > 10_000);
        assert!(after.is_torn(end, watch.end()));
    }

    #[test]
    fn a_recorder_leaves_no_mount_and_no_descriptor() {
        let mounts = || std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let before = mounts();
        let Some((_, recorder)) = own_recorder(Stopwatch::new(None)) else { return };
        assert_eq!(mounts(), before);
        drop(recorder);
        assert_eq!(mounts(), before);
    }
}
