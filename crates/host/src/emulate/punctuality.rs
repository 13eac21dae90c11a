//! The account of how punctual a driver was: each frame's lateness, and the driver's own absences.
//!
//! Left out: what is done about it; nothing can be.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use plumb_base::stats::histogram::Histogram;
use plumb_base::time::{Instant, Span};
use plumb_sys::clock::{Clock, read_ns};

/// A driver that is away for longer than this, beyond any wait of its own, is noticed to have been. Shorter
/// absences show in the lateness of frames.
pub const ABSENCE_MIN: Span = Span::from_ms(1);

/// How punctual a driver was so far.
#[derive(Clone, Debug)]
pub struct Punctuality {
    /// Frames handed to devices.
    pub frames: u64,
    /// Nanoseconds between a frame's moment and its being handed over.
    pub lateness: Histogram,
    /// Beyond which a frame's deadline counts as missed.
    pub tolerance: Span,
    /// Frames handed over later than that.
    pub missed: Sizes,
    /// Times at which the driver did not run when it should have: stopped, frozen, or put aside.
    pub absences: Sizes,
    /// Frames that were found waiting at devices when the driver came back from such an absence: they may
    /// have entered the link later than they came, by at most the longest absence.
    pub entered_late: u64,
    /// How long the driver's thread was ready to run and had no CPU; `None` where the kernel does not say.
    pub waited_for_cpu: Option<Span>,
    /// How long the machine was suspended.
    pub suspended: Span,
}

/// Spans that were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// How many.
    pub count: u64,
    /// All together.
    pub total: Span,
    /// The longest.
    pub worst: Span,
}

impl Sizes {
    fn add(&mut self, span: Span) {
        self.count += 1;
        self.total += span;
        self.worst = self.worst.max(span);
    }
}

/// Keeps the account.
#[derive(Debug)]
pub(super) struct Account {
    frames: u64,
    lateness: Histogram,
    tolerance: Span,
    missed: Sizes,
    absences: Sizes,
    entered_late: u64,
    last_look: Instant,
    /// Until when the driver meant to be asleep, at the most.
    asleep_until: Option<Instant>,
    just_back: bool,
    schedule: Option<File>,
    waited_before: Option<Span>,
    suspended_before: u64,
}

impl Account {
    /// Begins at `now`; on the thread that will drive.
    pub(super) fn new(now: Instant, tolerance: Span) -> Self {
        let schedule = File::open("/proc/thread-self/schedstat").ok();
        let waited_before = schedule.as_ref().and_then(waited_for_cpu);
        Self {
            frames: 0,
            lateness: Histogram::new(),
            tolerance,
            missed: Sizes::default(),
            absences: Sizes::default(),
            entered_late: 0,
            last_look: now,
            asleep_until: None,
            just_back: false,
            schedule,
            waited_before,
            suspended_before: suspended_ns(),
        }
    }

    /// The driver looks at the clock, about to look at its devices.
    #[inline]
    pub(super) fn on_look(&mut self, now: Instant) {
        let expected = self.asleep_until.take().unwrap_or(self.last_look);
        let away = now.saturating_since(expected.max(self.last_look));
        self.just_back = away > ABSENCE_MIN;
        if self.just_back {
            self.absences.add(away);
        }
        self.last_look = now;
    }

    /// Frames have come in since the last look.
    #[inline]
    pub(super) fn on_entered(&mut self, frames: usize) {
        if self.just_back {
            self.entered_late += frames as u64;
        }
    }

    /// The driver goes to sleep, until then at the most.
    #[inline]
    pub(super) fn on_sleep(&mut self, until: Instant) {
        self.asleep_until = Some(until);
    }

    /// A frame that was due at `due` was handed over at `now`.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Instant, due: Instant) {
        let late = now.saturating_since(due);
        self.frames += 1;
        self.lateness.record(late.as_ns());
        if late > self.tolerance {
            self.missed.add(late);
        }
    }

    /// How things stand.
    pub(super) fn punctuality(&self) -> Punctuality {
        let waited = self.schedule.as_ref().and_then(waited_for_cpu);
        // The difference of two clocks jitters by the time between their readings.
        let suspended = Span::from_ns(suspended_ns().saturating_sub(self.suspended_before));
        let suspended = if suspended > ABSENCE_MIN { suspended } else { Span::ZERO };
        let waited_for_cpu =
            waited.zip(self.waited_before).map(|(now, before)| now.saturating_sub(before));
        Punctuality {
            frames: self.frames,
            lateness: self.lateness.clone(),
            tolerance: self.tolerance,
            missed: self.missed,
            absences: self.absences,
            entered_late: self.entered_late,
            waited_for_cpu,
            suspended,
        }
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

/// By how much more time has passed than this machine was running.
fn suspended_ns() -> u64 {
    let boot = read_ns(Clock::Boottime);
    boot.saturating_sub(read_ns(Clock::Monotonic))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::ORIGIN + Span::from_us(us)
    }

    #[test]
    fn only_frames_later_than_the_tolerance_are_missed_deadlines() {
        let mut account = Account::new(at(0), Span::from_us(100));
        account.on_sent(at(1_000), at(1_000));
        account.on_sent(at(1_100), at(1_000));
        assert_eq!(account.punctuality().missed, Sizes::default());
        account.on_sent(at(1_101), at(1_000));
        account.on_sent(at(3_000), at(1_000));
        let punctuality = account.punctuality();
        let (total, worst) = (Span::from_us(2_101), Span::from_us(2_000));
        assert_eq!(punctuality.missed, Sizes { count: 2, total, worst });
        assert_eq!((punctuality.frames, punctuality.lateness.len()), (4, 4));
    }

    #[test]
    fn a_sleep_is_no_absence_but_what_goes_beyond_it_is_and_marks_what_it_finds() {
        let mut account = Account::new(at(0), Span::from_us(100));
        account.on_look(at(500));
        account.on_sleep(at(10_500));
        account.on_look(at(10_600));
        account.on_entered(3);
        assert_eq!(account.punctuality().absences, Sizes::default());
        account.on_sleep(at(20_600));
        account.on_look(at(120_600));
        account.on_entered(2);
        account.on_look(at(120_700));
        account.on_entered(4);
        // Without a sleep, between two looks.
        account.on_look(at(123_700));
        let punctuality = account.punctuality();
        assert_eq!(punctuality.absences.count, 2);
        assert_eq!(punctuality.absences.worst, Span::from_ms(100));
        assert_eq!(punctuality.absences.total, Span::from_ms(103));
        assert_eq!(punctuality.entered_late, 2);
    }
}
