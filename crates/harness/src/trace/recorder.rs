//! Switches tracepoints on for two processes, and decodes their records into a timeline.
//!
//! Events are attached to CPUs and filtered by thread: an event attached to a thread would be moved
//! in and out at each context switch, which costs more than the filter.

use std::ffi::CString;
use std::io;

use plumb_clock::{ClockAnchor, Stopwatch};
use plumb_sys::perf::{self, PerfRecord, PerfRing, PerfScope};

use super::tracepoint::{TraceEvent, TraceUnavailable, Tracefs, TracepointLayout, TracepointSet};

/// Bytes of a ring when as much may be locked; about 80,000 events.
const RING_LEN: usize = 8 << 20;
/// Less than this is not worth having.
const RING_LEN_MIN: usize = 64 << 10;
/// The inode of the first process namespace: PROC_PID_INIT_INO in linux/proc_ns.h.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Records what the kernel does for a set of threads on a set of CPUs; bounded, and off until
/// [`Self::enable`].
///
/// A recorder that is open but disabled still costs something, because the kernel then takes the
/// slow path into every system call: what looking costs is found against none at all.
#[derive(Debug)]
pub(crate) struct TraceRecorder {
    watch: Stopwatch,
    layouts: Vec<TracepointLayout>,
    cpus: Vec<CpuRecorder>,
    first: ClockAnchor,
    /// When the rings were last emptied, in ticks.
    drained_at: u64,
}

/// The events of one CPU; the first leads the group and owns the ring.
#[derive(Debug)]
struct CpuRecorder {
    cpu: u32,
    events: Vec<perf::TracepointEvent>,
    ring: PerfRing,
}

impl TraceRecorder {
    /// Opens the tracepoints of a set for these threads wherever they run on these CPUs.
    ///
    /// # Errors
    /// Says what is missing and what helps.
    pub(crate) fn open(
        threads: &[u32],
        cpus: &[u32],
        set: TracepointSet,
        watch: Stopwatch,
    ) -> Result<Self, TraceUnavailable> {
        if std::fs::read_link("/proc/self/ns/pid")
            .is_ok_and(|link| link.as_os_str() != FIRST_PID_NAMESPACE)
        {
            return Err(TraceUnavailable::OtherNamespace);
        }
        let tracefs = Tracefs::find()?;
        let mut layouts = Vec::new();
        for tracepoint in set.iter() {
            match tracefs.layout(tracepoint) {
                Ok(layout) => layouts.push(layout),
                Err(source) if tracepoint.is_required() => {
                    return Err(TraceUnavailable::Missing { what: tracepoint.name(), source });
                }
                // The time up to its next neighbor is then unexplained.
                Err(_) => {}
            }
        }
        let mut cpus = cpus.to_vec();
        cpus.sort_unstable();
        cpus.dedup();
        let cpus = cpus
            .into_iter()
            .map(|cpu| CpuRecorder::open(cpu, threads, &layouts))
            .collect::<Result<_, _>>()?;
        let first = watch.anchor();
        Ok(Self { watch, layouts, cpus, first, drained_at: first.ticks })
    }

    /// Starts recording.
    pub(crate) fn enable(&self) -> io::Result<()> {
        self.cpus
            .iter()
            .filter_map(|cpu| cpu.events.first())
            .try_for_each(perf::TracepointEvent::enable_group)
    }

    /// Stops recording.
    pub(crate) fn disable(&self) -> io::Result<()> {
        self.cpus
            .iter()
            .filter_map(|cpu| cpu.events.first())
            .try_for_each(perf::TracepointEvent::disable_group)
    }

    /// Everything recorded since the last call, and the rings empty again.
    pub(crate) fn drain(&mut self) -> TraceTimeline {
        let last = self.watch.anchor();
        let scale = AnchorScale::between(self.watch, self.first, last);
        let mut events = Vec::new();
        let mut gaps = Vec::new();
        for recorder in &mut self.cpus {
            let cpu = recorder.cpu;
            let mut before = self.drained_at;
            let full = recorder.ring.drain(|record| match record {
                PerfRecord::Sample(ns, bytes) => {
                    let at = scale.ticks(ns);
                    before = at;
                    let layout = TracepointLayout::id_of(bytes)
                        .and_then(|id| self.layouts.iter().find(|layout| layout.id == id));
                    if let Some((thread, kind)) = layout.and_then(|layout| layout.decode(bytes)) {
                        events.push(TraceEvent { at, cpu, thread, kind });
                    }
                }
                PerfRecord::Lost(ns, lost) => {
                    gaps.push(TraceGap { from: before, to: scale.ticks(ns), lost });
                }
            });
            if full {
                // How many follow is known at the next event.
                gaps.push(TraceGap { from: before, to: last.ticks, lost: 0 });
            }
        }
        self.drained_at = last.ticks;
        TraceTimeline::new(self.watch, events, gaps)
    }
}

impl CpuRecorder {
    fn open(
        cpu: u32,
        threads: &[u32],
        layouts: &[TracepointLayout],
    ) -> Result<Self, TraceUnavailable> {
        let mut events: Vec<perf::TracepointEvent> = Vec::new();
        let mut ring = None;
        for layout in layouts {
            let what = layout.tracepoint.name();
            let failed = |source: io::Error| match source.kind() {
                io::ErrorKind::PermissionDenied => TraceUnavailable::Refused(source),
                _ => TraceUnavailable::Failed { what, source },
            };
            let event =
                perf::TracepointEvent::tracepoint(layout.id, PerfScope::Cpu(cpu), events.first())
                    .map_err(failed)?;
            if let Some(filter) = layout.tracepoint.filter(threads) {
                let filter = CString::new(filter).map_err(|error| failed(error.into()))?;
                event.set_filter(&filter).map_err(failed)?;
            }
            match events.first() {
                Some(leader) => event.redirect_output(leader).map_err(failed)?,
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
fn largest_ring(event: &perf::TracepointEvent) -> io::Result<PerfRing> {
    let mut len = RING_LEN;
    loop {
        match PerfRing::new(event, len) {
            Err(error) if len > RING_LEN_MIN && error.kind() == io::ErrorKind::PermissionDenied => {
                len /= 2;
            }
            outcome => return outcome,
        }
    }
}

/// A time in which a ring had no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceGap {
    /// The last event before, in ticks.
    pub(crate) from: u64,
    /// When there was room again, in ticks.
    pub(crate) to: u64,
    /// Events that are missing; 0 where a later gap counts them.
    pub(crate) lost: u64,
}

/// Every event of a block, merged over its CPUs.
#[derive(Clone, Debug)]
pub(crate) struct TraceTimeline {
    /// The clock in whose ticks it is written.
    pub(super) watch: Stopwatch,
    events: Vec<TraceEvent>,
    gaps: Vec<TraceGap>,
}

impl TraceTimeline {
    /// Merges events of several CPUs by time; those of one CPU keep their order.
    pub(crate) fn new(watch: Stopwatch, mut events: Vec<TraceEvent>, gaps: Vec<TraceGap>) -> Self {
        events.sort_by_key(|event| event.at);
        Self { watch, events, gaps }
    }

    /// The events from `start` to `end`.
    pub(super) fn between(&self, start: u64, end: u64) -> &[TraceEvent] {
        let first = self.events.partition_point(|event| event.at < start);
        let after = self.events.partition_point(|event| event.at <= end);
        self.events.get(first..after).unwrap_or(&[])
    }

    /// Whether events may be missing from `start` to `end`.
    pub(super) fn has_lost_events(&self, start: u64, end: u64) -> bool {
        self.gaps.iter().any(|gap| gap.from <= end && start <= gap.to)
    }
}

/// From nanoseconds of the raw clock to the worker's ticks, by the straight line through two
/// anchors: the raw clock is never slewed.
#[derive(Clone, Copy, Debug)]
struct AnchorScale {
    from: ClockAnchor,
    ticks_per_ns: f64,
}

impl AnchorScale {
    /// Anchors closer than this say less about the rate than calibration did.
    const SPAN_MIN_NS: u64 = 100_000_000;

    fn between(watch: Stopwatch, first: ClockAnchor, last: ClockAnchor) -> Self {
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
    use crate::trace::tracepoint::{SyscallKind, TraceEventKind};
    use plumb_base::time::Span;

    fn lost(timeline: &TraceTimeline) -> u64 {
        timeline.gaps.iter().map(|gap| gap.lost).sum()
    }

    fn anchor(ticks: u64, ns: u64) -> ClockAnchor {
        ClockAnchor { ticks, ns, slack: 0 }
    }

    #[test]
    fn times_between_anchors_fall_between_their_ticks() {
        let watch = Stopwatch::new(Some(2.5));
        let first = anchor(1_000, 50_000_000_000);
        let last = anchor(1_000 + 2_600_000_000, 51_000_000_000);
        let scale = AnchorScale::between(watch, first, last);
        assert_eq!(scale.ticks(first.ns), first.ticks);
        assert_eq!(scale.ticks(last.ns), last.ticks);
        assert_eq!(scale.ticks(50_500_000_000), 1_000 + 1_300_000_000);
        // Too close together: the calibrated rate counts.
        let soon = anchor(9_000, first.ns + 1_000);
        let scale = AnchorScale::between(watch, first, soon);
        assert_eq!(scale.ticks(soon.ns + 100), 9_250);
        assert_eq!(scale.ticks(soon.ns - 100), 8_750);
        // The raw clock itself needs no conversion.
        let raw = Stopwatch::new(None);
        let scale = AnchorScale::between(raw, anchor(700, 700), anchor(900_000_700, 900_000_700));
        assert_eq!(scale.ticks(123_456_789), 123_456_789);
    }

    /// A recorder of this thread on its own CPU, or visibly none.
    fn own_recorder(watch: Stopwatch) -> Option<(u32, TraceRecorder)> {
        let thread = plumb_sys::process::thread_id();
        let cpu = plumb_sys::sched::current_cpu().ok()?;
        plumb_sys::sched::bind(&[cpu]).ok()?;
        match TraceRecorder::open(&[thread], &[cpu], TracepointSet::pipe(), watch) {
            Ok(recorder) => Some((thread, recorder)),
            Err(reason) => {
                assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{reason}");
                println!("skipped: {reason}");
                None
            }
        }
    }

    #[test]
    fn calls_are_recorded_between_the_clock_reads_around_them() {
        let watch = Stopwatch::new(plumb_clock::calibrate(Span::from_ms(20)).ticks_per_ns);
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
        assert_eq!(lost(&timeline), 0);
        assert!(timeline.events.is_sorted_by_key(|event| event.at));
        // The most that the two clocks may differ by: little beside the time of all the calls.
        let slack = watch.ticks(1e6);
        for (start, end) in trips {
            let inside: Vec<_> = timeline
                .between(start - slack, end + slack)
                .iter()
                .filter(|event| event.thread == thread)
                .map(|event| event.kind)
                .collect();
            assert!(inside.contains(&TraceEventKind::Enter(SyscallKind::Other)), "{inside:?}");
            assert!(inside.contains(&TraceEventKind::Exit(SyscallKind::Other)), "{inside:?}");
        }
        // Nothing is recorded while it is off, and nothing twice.
        let own = |timeline: &TraceTimeline| {
            let calls = timeline.events.iter().filter(|event| event.thread == thread);
            calls.filter(|event| event.kind == TraceEventKind::Enter(SyscallKind::Other)).count()
        };
        assert!(own(&timeline) >= 50);
        assert_eq!(own(&recorder.drain()), 0);
    }

    #[test]
    fn events_beyond_the_ring_are_counted_as_a_gap() {
        let watch = Stopwatch::new(None);
        let Some((_, mut recorder)) = own_recorder(watch) else { return };
        recorder.enable().unwrap();
        let start = watch.begin();
        // Two events a call: more than a ring of any size holds.
        for _ in 0..RING_LEN / 64 {
            plumb_sys::process::call::getppid_raw();
        }
        let end = watch.end();
        let full = recorder.drain();
        assert!(full.has_lost_events(end, end) && !full.has_lost_events(start, start));
        // There is room again: the next record says what was lost before it.
        plumb_sys::process::call::getppid_raw();
        recorder.disable().unwrap();
        let after = recorder.drain();
        assert!(lost(&after) > 0 && !full.events.is_empty());
        assert!(after.has_lost_events(end, watch.end()));
    }
}
