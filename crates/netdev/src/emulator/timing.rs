//! The account of how punctual a driver was: each frame's lateness, at the way out and at the way in, and
//! the driver's own absences.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use plumb_base::stats::histogram::Histogram;
use plumb_base::time::{Instant, Span};
use plumb_base::units::Unit;
use plumb_clock::InstantClock;
use plumb_sys::clock::{ClockId, read_ns};
use plumb_sys::{fd, timer};

/// A driver that had something to do and is away for longer than this, beyond any wait of its own, is noticed
/// to have been. Where it had nothing to do, the tolerance is enough: an idle turn takes a microsecond or two.
/// Shorter absences show in the lateness of frames.
pub const STALL_MIN: Span = Span::from_ms(1);

/// How punctual a driver was so far.
#[derive(Clone, Debug)]
pub struct EmulatorTiming {
    /// Frames handed to devices.
    pub frames: u64,
    /// Nanoseconds between a frame's moment and its being handed over.
    pub lateness: Histogram,
    /// Beyond which a frame's deadline counts as missed.
    pub tolerance: Span,
    /// Frames handed over later than that.
    pub missed: SpanTotals,
    /// Times at which the driver did not run when it should have: stopped, frozen, or preempted.
    pub stalls: SpanTotals,
    /// Frames that were found waiting at devices when the driver came back from such an absence, or after
    /// it had been ready to run, and without a CPU, for longer than the tolerance: they may have entered the
    /// link later than they came.
    pub entered_late: u64,
    /// By how much, at the most.
    pub entered_late_worst: Span,
    /// Frames that found the driver asleep: they entered later than they came by what waking costs, which
    /// no device tells ([`crate::emulator::MeasuredPrecision`] says what it cost when it was tried).
    pub found_asleep: u64,
    /// How long the driver's thread was ready to run and had no CPU; `None` where the kernel does not say.
    pub waited_for_cpu: Option<Span>,
    /// How long the machine was suspended.
    pub suspended: Span,
}

/// Spans that were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanTotals {
    /// How many.
    pub count: u64,
    /// All together.
    pub total: Span,
    /// The longest.
    pub worst: Span,
}

impl SpanTotals {
    fn add(&mut self, span: Span) {
        self.count += 1;
        self.total += span;
        self.worst = self.worst.max(span);
    }
}

/// How late a driver was between two of its accounts.
///
/// The driver counts for both directions together and not by datagram: the most that its lateness may explain is assumed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Nanoseconds by which frames were handed over late, and how many, the latest first.
    pub handed_over: Vec<(u64, u64)>,
    /// Frames that entered later than they came.
    pub entered: u64,
    /// By how many nanoseconds at the most, of all so far.
    pub entered_worst_ns: u64,
    /// For how many nanoseconds the driver was away, or ready to run without a CPU.
    pub stalled_ns: u64,
}

impl Lateness {
    /// What was counted between two accounts.
    pub fn between(before: &EmulatorTiming, after: &EmulatorTiming) -> Self {
        let earlier: BTreeMap<u64, u64> = before.lateness.iter_recorded().collect();
        let grown = after.lateness.iter_recorded().map(|(late_ns, count)| {
            let earlier = earlier.get(&late_ns).copied().unwrap_or(0);
            (late_ns, count.saturating_sub(earlier))
        });
        let mut handed_over: Vec<_> = grown.filter(|&(_, count)| count > 0).collect();
        handed_over.reverse();
        let entered = after.entered_late.saturating_sub(before.entered_late);
        let waited = |account: &EmulatorTiming| account.waited_for_cpu.unwrap_or_default();
        let away = after.stalls.total.saturating_sub(before.stalls.total)
            + waited(after).saturating_sub(waited(before));
        let entered_worst = if entered > 0 { after.entered_late_worst } else { Span::ZERO };
        Self {
            handed_over,
            entered,
            entered_worst_ns: entered_worst.as_ns(),
            stalled_ns: away.as_ns(),
        }
    }

    /// The most by which each frame may have been late in all, the latest first.
    pub fn latest(&self) -> impl Iterator<Item = u64> + '_ {
        (0_u64..).zip(self.each_handed_over()).map(|(rank, late_ns)| {
            late_ns + if rank < self.entered { self.entered_worst_ns } else { 0 }
        })
    }

    /// By how much each frame was handed over late.
    fn each_handed_over(&self) -> impl Iterator<Item = u64> + '_ {
        let repeated = |&(late_ns, count): &(u64, u64)| (0..count).map(move |_| late_ns);
        self.handed_over.iter().flat_map(repeated)
    }

    /// Frames that were handed over later than that, or entered late.
    pub fn frames_beyond(&self, ns: u64) -> u64 {
        let beyond = self.handed_over.iter().filter(|&&(late_ns, _)| late_ns > ns);
        beyond.map(|&(_, count)| count).sum::<u64>() + self.entered
    }

    /// What is left of delays that are too long when all of it is taken away, each from the one that it explains
    /// best; `sorted` and the result ascend.
    pub fn subtract_from(&self, sorted: &[f64]) -> Vec<f64> {
        let late = self.latest().map(|ns| ns as f64).chain(std::iter::repeat(0.0));
        let mut relieved: Vec<f64> =
            sorted.iter().rev().zip(late).map(|(delay, late)| delay - late).collect();
        relieved.sort_by(f64::total_cmp);
        relieved
    }

    /// The longest time that `stretches` of frames one after the other may have lasted longer or shorter for it,
    /// because their ends were told late.
    pub fn uncertainty_ns(&self, stretches: u64) -> u64 {
        let stretches = usize::try_from(stretches).unwrap_or(usize::MAX);
        self.each_handed_over().take(stretches).fold(0, u64::saturating_add)
    }

    /// For how long at the most frames that came were not in the link yet.
    pub fn idle_ns(&self) -> u64 {
        self.stalled_ns.min(self.entered.saturating_mul(self.entered_worst_ns))
    }

    /// The figure of it, with how many frames were handed over later than `ns`.
    pub fn describe(&self, ns: u64) -> String {
        let time = |ns: u64| Unit::Nanoseconds.format(ns as f64, 3);
        let handed_over = self.frames_beyond(ns) - self.entered;
        let worst = self.handed_over.first().map_or(0, |&(late_ns, _)| late_ns);
        let mut parts = Vec::new();
        if handed_over > 0 || (worst > 0 && self.entered == 0) {
            let (limit, worst) = (time(ns), time(worst));
            parts.push(format!(
                "delivered {handed_over} frames more than {limit} late, max {worst}"
            ));
        }
        if self.entered > 0 {
            let worst = time(self.entered_worst_ns);
            parts.push(format!("took {} in late, max {worst}", self.entered));
        }
        parts.join(" and ")
    }
}

/// Keeps the account.
#[derive(Debug)]
pub(super) struct TimingRecorder {
    timing: EmulatorTiming,
    last_look: Instant,
    /// Until when the driver meant to be asleep, at the most.
    asleep_until: Option<Instant>,
    /// Whether it was, before the last look.
    slept: bool,
    /// Whether it did nothing but look in its last turn.
    was_idle: bool,
    /// How long before the last look it did not look, its own sleep left out, where that is an absence.
    stalled: Span,
    /// How long it did not look in all.
    unseen: Span,
    schedule: Option<File>,
    waited_before: Option<Span>,
    /// What the kernel had said before the driver last went to sleep, or when it was last asked.
    waited_last: Option<Span>,
    suspended_before: u64,
}

impl TimingRecorder {
    /// Begins at `now`; on the thread that will drive.
    pub fn new(now: Instant, tolerance: Span) -> Self {
        let schedule = File::open("/proc/thread-self/schedstat").ok();
        let waited_before = schedule.as_ref().and_then(waited_for_cpu);
        let timing = EmulatorTiming {
            frames: 0,
            lateness: Histogram::new(),
            tolerance,
            missed: SpanTotals::default(),
            stalls: SpanTotals::default(),
            entered_late: 0,
            entered_late_worst: Span::ZERO,
            found_asleep: 0,
            waited_for_cpu: None,
            suspended: Span::ZERO,
        };
        Self {
            timing,
            last_look: now,
            asleep_until: None,
            slept: false,
            was_idle: false,
            stalled: Span::ZERO,
            unseen: Span::ZERO,
            schedule,
            waited_before,
            waited_last: waited_before,
            suspended_before: suspended_ns(),
        }
    }

    /// The driver looks at the clock, about to look at its devices.
    #[inline]
    pub fn on_poll(&mut self, now: Instant) {
        self.slept = self.asleep_until.is_some();
        let expected = self.asleep_until.take().unwrap_or(self.last_look);
        let away = now.saturating_since(expected.max(self.last_look));
        self.unseen = now.saturating_since(self.last_look);
        let was_idle = std::mem::take(&mut self.was_idle);
        let is_absence =
            away > if was_idle { self.timing.tolerance.min(STALL_MIN) } else { STALL_MIN };
        self.stalled = if is_absence { away } else { Span::ZERO };
        if is_absence {
            self.timing.stalls.add(away);
        }
        self.last_look = now;
    }

    /// The driver found nothing to do in this turn, and looks again at once.
    #[inline]
    pub fn on_idle(&mut self) {
        self.was_idle = true;
    }

    /// Frames have come in since the last look. To be told after they were seen to: the kernel may be asked.
    #[inline]
    pub fn on_entered(&mut self, frames: usize) {
        if self.slept {
            self.timing.found_asleep += frames as u64;
        }
        if self.slept || self.unseen > self.timing.tolerance {
            let waited = self.run_queue_wait_delta();
            self.judge_entry(frames, waited);
        }
    }

    /// `waited` is how long the driver was ready to run and had no CPU since it was last asked.
    fn judge_entry(&mut self, frames: usize, waited: Span) {
        let late = waited.min(self.unseen).max(self.stalled);
        if late > self.timing.tolerance {
            self.timing.entered_late += frames as u64;
            self.timing.entered_late_worst = self.timing.entered_late_worst.max(late);
        }
    }

    /// How long the driver was ready to run and had no CPU since this was last asked; nothing where the kernel
    /// does not say.
    #[cold]
    fn run_queue_wait_delta(&mut self) -> Span {
        let now = self.schedule.as_ref().and_then(waited_for_cpu);
        let before = std::mem::replace(&mut self.waited_last, now);
        now.zip(before).map_or(Span::ZERO, |(now, before)| now.saturating_sub(before))
    }

    /// The driver goes to sleep, until then at the most.
    #[inline]
    pub fn on_sleep(&mut self, until: Instant) {
        self.asleep_until = Some(until);
        self.run_queue_wait_delta();
    }

    /// A frame that was due at `due` was handed over at `now`.
    #[inline]
    pub fn on_sent(&mut self, now: Instant, due: Instant) {
        let late = now.saturating_since(due);
        self.timing.frames += 1;
        self.timing.lateness.record(late.as_ns());
        if late > self.timing.tolerance {
            self.timing.missed.add(late);
        }
    }

    /// How things stand.
    pub fn timing(&self) -> EmulatorTiming {
        let mut timing = self.timing.clone();
        self.fill(&mut timing);
        timing
    }

    /// The same into a form, whose empty distribution is exchanged for that of what happened since the last time.
    pub fn exchange_report(&mut self, form: &mut EmulatorTiming) {
        std::mem::swap(&mut self.timing.lateness, &mut form.lateness);
        self.fill(form);
    }

    /// Everything that is counted.
    fn fill(&self, form: &mut EmulatorTiming) {
        let waited = self.schedule.as_ref().and_then(waited_for_cpu);
        form.frames = self.timing.frames;
        form.missed = self.timing.missed;
        form.stalls = self.timing.stalls;
        form.entered_late = self.timing.entered_late;
        form.entered_late_worst = self.timing.entered_late_worst;
        form.found_asleep = self.timing.found_asleep;
        form.waited_for_cpu =
            waited.zip(self.waited_before).map(|(now, before)| now.saturating_sub(before));
        form.suspended = jump(self.suspended_before, suspended_ns());
    }
}

/// The second number of schedstat (Linux's Documentation/scheduler/sched-stats.rst): nanoseconds spent
/// waiting on a run queue.
fn waited_for_cpu(schedule: &File) -> Option<Span> {
    let mut buffer = [0; 96];
    let len = schedule.read_at(&mut buffer, 0).ok()?;
    let text = std::str::from_utf8(&buffer[..len]).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok().map(Span::from_ns)
}

/// By how much the time that this machine was suspended has grown. The difference of two clocks jitters by
/// the time between their readings.
fn jump(before_ns: u64, now_ns: u64) -> Span {
    let jump = Span::from_ns(now_ns.saturating_sub(before_ns));
    if jump > STALL_MIN { jump } else { Span::ZERO }
}

/// By how much more time has passed than this machine was running.
fn suspended_ns() -> u64 {
    let boot = read_ns(ClockId::Boottime);
    boot.saturating_sub(read_ns(ClockId::Monotonic))
}

/// How a driver waits for a frame's moment.
///
/// A frame that comes while it sleeps is not known to have come before it is awake: it enters the link
/// late by what waking costs, about as much as [`MeasuredPrecision`] says about sleeps. Such frames are counted
/// (`EmulatorTiming::found_asleep`), and where others kept the driver from waking, so is that
/// (`EmulatorTiming::entered_late`). Only spinning avoids both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerPrecision {
    /// Asleep until the kernel's timer: needs no CPU while nothing happens, and is late by what waking costs.
    Timer,
    /// Asleep until shortly before, then spinning; and as long after a frame came.
    Hybrid {
        /// How long before; what was measured to be enough when absent.
        spin: Option<Span>,
    },
    /// Spinning for ever: needs a CPU to itself.
    Busy,
}

impl fmt::Display for TimerPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timer => "timer",
            Self::Hybrid { .. } => "hybrid",
            Self::Busy => "busy",
        })
    }
}

/// What waiting was worth when it was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredPrecision {
    /// By how much a sleep was too long, by the middle one.
    pub oversleep_p50: Span,
    /// By the worst but one in a hundred.
    pub oversleep_p99: Span,
    /// By the worst.
    pub oversleep_worst: Span,
    /// The time between two looks at the clock while spinning, by the worst but one in a thousand.
    pub look_p999: Span,
    /// By the worst: how long the machine was elsewhere.
    pub look_worst: Span,
}

/// Sleeps that are tried, and how long the shortest and the longest are.
const SLEEPS: u64 = 60;
const SLEEP_MIN: Span = Span::from_us(50);
const SLEEP_STEP: Span = Span::from_us(25);
/// How long is spun.
const SPIN: Span = Span::from_ms(10);

/// The least and the most that is spun before a deadline when nobody says.
const MARGIN_MIN: Span = Span::from_us(20);
const MARGIN_MAX: Span = Span::from_ms(1);
/// The least and the most by which a frame may be late without being called so when nobody says.
const TOLERANCE_MIN: Span = Span::from_us(100);
const TOLERANCE_MAX: Span = Span::from_ms(1);

impl MeasuredPrecision {
    /// How long before a deadline a sleep must end for the deadline to be met.
    pub fn margin(&self) -> Span {
        (self.oversleep_p99 * 2).clamp(MARGIN_MIN, MARGIN_MAX)
    }

    /// By how much a frame may be late before its deadline counts as missed: four times what the way
    /// of waiting usually costs, and between 100 µs and 1 ms.
    pub fn tolerance(&self, precision: TimerPrecision) -> Span {
        let usual = match precision {
            TimerPrecision::Timer => self.oversleep_p99,
            TimerPrecision::Hybrid { .. } | TimerPrecision::Busy => self.look_p999,
        };
        (usual * 4).clamp(TOLERANCE_MIN, TOLERANCE_MAX)
    }
}

/// Tries it, in about a twentieth of a second and a tenth: sleeps of various lengths in ppoll(2), and
/// a spin. This thread's timer slack is a nanosecond from then on.
pub fn measure_precision(timeline: &InstantClock) -> MeasuredPrecision {
    // Where a kernel refuses, the sleeps show it.
    let _ = timer::set_timer_slack_ns(1);
    let (mut oversleeps, mut looks) = (Histogram::new(), Histogram::new());
    for n in 0..SLEEPS {
        let wanted = SLEEP_MIN + SLEEP_STEP * n;
        let before = timeline.now();
        // A sleep that a signal ends is too short, and counts as exact.
        let _ = fd::wait_readable(&[], &mut [], Some(wanted.as_ns()));
        let slept = timeline.now().saturating_since(before);
        oversleeps.record(slept.saturating_sub(wanted).as_ns());
    }
    let begun = timeline.now();
    let mut last = begun;
    while last.saturating_since(begun) < SPIN {
        let now = timeline.now();
        looks.record(now.saturating_since(last).as_ns());
        last = now;
    }
    MeasuredPrecision {
        oversleep_p50: Span::from_ns(oversleeps.quantile(0.5)),
        oversleep_p99: Span::from_ns(oversleeps.quantile(0.99)),
        oversleep_worst: Span::from_ns(oversleeps.max()),
        look_p999: Span::from_ns(looks.quantile(0.999)),
        look_worst: Span::from_ns(looks.max()),
    }
}

#[cfg(test)]
mod tests {
    use plumb_clock::Stopwatch;

    use super::*;

    fn at(us: u64) -> Instant {
        Instant::ORIGIN + Span::from_us(us)
    }

    /// Of virtual time: what the kernel says about the thread that tests does not belong to it.
    fn account() -> TimingRecorder {
        let account = TimingRecorder::new(at(0), Span::from_us(100));
        TimingRecorder { schedule: None, waited_before: None, waited_last: None, ..account }
    }

    #[test]
    fn only_frames_later_than_the_tolerance_are_missed_deadlines() {
        let mut account = account();
        account.on_sent(at(1_000), at(1_000));
        account.on_sent(at(1_100), at(1_000));
        assert_eq!(account.timing().missed, SpanTotals::default());
        account.on_sent(at(1_101), at(1_000));
        account.on_sent(at(3_000), at(1_000));
        let punctuality = account.timing();
        let (total, worst) = (Span::from_us(2_101), Span::from_us(2_000));
        assert_eq!(punctuality.missed, SpanTotals { count: 2, total, worst });
        assert_eq!((punctuality.frames, punctuality.lateness.len()), (4, 4));
    }

    #[test]
    fn a_sleep_is_no_absence_but_what_goes_beyond_it_is_and_marks_what_it_finds() {
        let mut account = account();
        account.on_poll(at(500));
        account.on_sleep(at(10_500));
        account.on_poll(at(10_600));
        account.on_entered(3);
        assert_eq!(account.timing().stalls, SpanTotals::default());
        account.on_sleep(at(20_600));
        account.on_poll(at(120_600));
        account.on_entered(2);
        account.on_poll(at(120_700));
        account.on_entered(4);
        // Without a sleep, between two looks.
        account.on_poll(at(123_700));
        let punctuality = account.timing();
        assert_eq!(punctuality.stalls.count, 2);
        assert_eq!(punctuality.stalls.worst, Span::from_ms(100));
        assert_eq!(punctuality.stalls.total, Span::from_ms(103));
        assert_eq!(punctuality.entered_late, 2);
        assert_eq!(punctuality.entered_late_worst, Span::from_ms(100));
        assert_eq!(punctuality.found_asleep, 5, "those that it slept before, late or not");
    }

    #[test]
    fn an_idle_driver_that_does_not_look_for_longer_than_the_tolerance_was_absent_and_a_busy_one_was_not()
     {
        let mut account = account();
        account.on_idle();
        account.on_poll(at(100));
        account.on_entered(1);
        assert_eq!(account.timing().stalls, SpanTotals::default(), "as long as the tolerance");
        account.on_poll(at(400));
        account.on_entered(1);
        assert_eq!(account.timing().stalls, SpanTotals::default(), "it had something to do");
        account.on_idle();
        account.on_poll(at(700));
        account.on_entered(2);
        // Once: the turn that follows is not an idle one.
        account.on_poll(at(1_000));
        let punctuality = account.timing();
        let taken = Span::from_us(300);
        assert_eq!(punctuality.stalls, SpanTotals { count: 1, total: taken, worst: taken });
        assert_eq!((punctuality.entered_late, punctuality.entered_late_worst), (2, taken));
    }

    #[test]
    fn a_machine_that_was_suspended_is_told_by_clocks_that_no_one_sets() {
        assert_eq!(jump(7_000_000, 7_900_000), Span::ZERO, "two readings of two clocks");
        assert_eq!(jump(7_000_000, 6_000_000), Span::ZERO);
        assert_eq!(jump(7_000_000, 60_007_000_000), Span::from_secs(60));
    }

    #[test]
    fn a_frame_whose_driver_was_ready_and_had_no_cpu_for_longer_than_the_tolerance_entered_late() {
        let mut account = account();
        account.on_sleep(at(10_000));
        // Woken in time by what the clock says, and kept waiting by others.
        account.on_poll(at(900));
        account.judge_entry(1, Span::from_us(100));
        assert_eq!(account.timing().entered_late, 0, "as long as the tolerance is in time");
        account.judge_entry(2, Span::from_us(400));
        let punctuality = account.timing();
        assert_eq!(punctuality.entered_late, 2);
        assert_eq!(punctuality.entered_late_worst, Span::from_us(400));
        assert_eq!(punctuality.stalls, SpanTotals::default());
        // It cannot have waited for longer than it did not look.
        account.on_poll(at(1_050));
        account.judge_entry(3, Span::from_us(9_000));
        assert_eq!(account.timing().entered_late, 5);
        assert_eq!(account.timing().entered_late_worst, Span::from_us(400));
    }

    #[test]
    fn what_was_measured_is_ordered_and_gives_a_margin_and_a_tolerance_within_their_limits() {
        let measured = measure_precision(&InstantClock::begin(Stopwatch::new(None)));
        assert!(measured.oversleep_p50 <= measured.oversleep_p99, "{measured:?}");
        assert!(measured.oversleep_p99 <= measured.oversleep_worst, "{measured:?}");
        assert!(measured.look_p999 <= measured.look_worst, "{measured:?}");
        assert!(measured.oversleep_worst > Span::ZERO, "no sleep is exact: {measured:?}");
        assert!((MARGIN_MIN..=MARGIN_MAX).contains(&measured.margin()));
        for precision in
            [TimerPrecision::Timer, TimerPrecision::Busy, TimerPrecision::Hybrid { spin: None }]
        {
            let tolerance = measured.tolerance(precision);
            assert!((TOLERANCE_MIN..=TOLERANCE_MAX).contains(&tolerance), "{precision}");
        }
    }

    #[test]
    fn the_lateness_of_a_part_is_what_was_counted_since_the_part_before() {
        let mut account = TimingRecorder::new(at(0), Span::from_us(100));
        for late_us in [500, 3, 900] {
            account.on_sent(at(10_000 + late_us), at(10_000));
        }
        let before = account.timing();
        for late_us in [2, 700, 3, 700] {
            account.on_sent(at(20_000 + late_us), at(20_000));
        }
        account.on_poll(at(20_000));
        account.on_poll(at(50_000));
        account.on_entered(2);
        let lateness = Lateness::between(&before, &account.timing());
        let shown: Vec<u64> = lateness.handed_over.iter().map(|(ns, _)| ns / 1_000).collect();
        assert_eq!(shown, [700, 3, 2], "{lateness:?}");
        assert_eq!(lateness.frames_beyond(50_000), 4, "two handed over, two taken in");
        assert_eq!((lateness.entered, lateness.entered_worst_ns), (2, 30_000_000));
        let latest: Vec<u64> = lateness.latest().map(|ns| ns / 1_000).collect();
        assert_eq!(latest, [30_700, 30_700, 3, 2]);
        let figure = lateness.describe(50_000);
        assert!(figure.contains("delivered 2 frames more than 50.0 µs late"), "{figure}");
        assert!(figure.contains("took 2 in late, max 30.0 ms"), "{figure}");
        assert_eq!(Lateness::between(&before, &before), Lateness::default());
    }

    #[test]
    fn the_most_that_lateness_explains_is_taken_from_the_longest_delays() {
        let handed_over = vec![(300, 2), (50, 1)];
        let lateness = Lateness { handed_over, ..Lateness::default() };
        let relieved = lateness.subtract_from(&[10.0, 20.0, 400.0, 500.0]);
        assert_eq!(relieved, [-30.0, 10.0, 100.0, 200.0]);
        assert_eq!(lateness.uncertainty_ns(2), 600);
        assert_eq!(lateness.idle_ns(), 0, "none came before it was in the link");
    }
}
