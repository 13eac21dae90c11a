//! When the requests of an open loop are due, whatever carries them, and what came of those that were.
//!
//! Left out: sending and receiving them (`super::open`, [`super::udp`], [`crate::measure::quic`]).

use super::buffered_histogram::BufferedHistogram;
use super::{RequestResponseSpec, RequesterReport};
use crate::measure::pacer::Pacer;
use plumb_clock::monotonic_ns;

/// How long after its making a schedule begins: whoever works by it is up by then.
const LEAD_NS: u64 = 5_000_000;

/// Even times.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct OpenLoopSchedule {
    pace: Pacer,
    warm_up_ns: u64,
    duration_ns: u64,
    /// Requests of the warm-up, and all.
    warm_up: u64,
    total: u64,
}

impl OpenLoopSchedule {
    /// The times of a spec, once it has begun ([`Self::begin`]).
    pub(in super::super) fn new(spec: &RequestResponseSpec, per_second: u32) -> Self {
        let pace = Pacer::new(0, per_second.into());
        // Without the first, which is due at once.
        let within = |ns: u64| pace.due_by(ns).saturating_sub(1);
        Self {
            pace,
            warm_up_ns: spec.warm_up_ns,
            duration_ns: spec.duration_ns,
            warm_up: within(spec.warm_up_ns),
            total: within(spec.end_ns()).max(1),
        }
    }

    /// The first request is due in a moment.
    pub(in super::super) fn begin(&mut self) {
        self.pace.start_ns = monotonic_ns() + LEAD_NS;
    }

    /// How many requests there are.
    pub(in super::super) const fn total(&self) -> u64 {
        self.total
    }

    /// How many of them count.
    pub(in super::super) const fn counted(&self) -> u64 {
        self.total.saturating_sub(self.warm_up)
    }

    /// Whether request `index` counts.
    #[inline]
    pub(in super::super) const fn counts(&self, index: u64) -> bool {
        index >= self.warm_up
    }

    /// When request `index` is due.
    #[inline]
    pub(in super::super) fn due_ns(&self, index: u64) -> u64 {
        self.pace.due_ns(index)
    }

    /// How many requests were due by then.
    pub(in super::super) fn due_by(&self, now_ns: u64) -> u64 {
        self.pace.due_by(now_ns).min(self.total)
    }

    /// What came of the first `judged` requests; `is_whole` is whether the test came to its end.
    ///
    /// The time that counts lasts until the last response was read, without the least that any took: what needs more
    /// than the planned time does not come at the planned rate.
    pub(in super::super) fn conclude(
        &self,
        judged: u64,
        is_whole: bool,
        answers: OpenLoopResponses,
        lateness: BufferedHistogram,
        cpu_ns: u64,
    ) -> RequesterReport {
        let from_ns = self.pace.start_ns + self.warm_up_ns;
        let carried_ns = answers.last_ns.saturating_sub(answers.least_ns);
        let until_ns =
            if is_whole { carried_ns.max(from_ns + self.duration_ns) } else { monotonic_ns() };
        RequesterReport {
            due: judged.saturating_sub(self.warm_up),
            answered: answers.counted,
            latency: answers.latency.encode(),
            lateness: lateness.encode(),
            counted_ns: until_ns.saturating_sub(from_ns),
            cpu_ns,
            cpu_requests: answers.all,
            ..RequesterReport::default()
        }
    }
}

/// The responses of an open loop.
#[derive(Debug)]
pub(in super::super) struct OpenLoopResponses {
    latency: BufferedHistogram,
    all: u64,
    counted: u64,
    /// The least that any took.
    least_ns: u64,
    /// When the last was read.
    last_ns: u64,
}

impl OpenLoopResponses {
    /// Room for all of a schedule's.
    pub(in super::super) fn of(schedule: &OpenLoopSchedule) -> Self {
        let latency = BufferedHistogram::with_capacity_for(schedule.counted());
        Self { latency, all: 0, counted: 0, least_ns: u64::MAX, last_ns: 0 }
    }

    /// How many came, with those of the warm-up.
    pub(in super::super) const fn all(&self) -> u64 {
        self.all
    }

    /// The whole response to request `index` was read at `read_ns`; how long that was after it was due.
    #[inline]
    pub(in super::super) fn record(
        &mut self,
        schedule: &OpenLoopSchedule,
        index: u64,
        read_ns: u64,
    ) -> u64 {
        let took_ns = read_ns.saturating_sub(schedule.due_ns(index));
        self.all += 1;
        self.least_ns = self.least_ns.min(took_ns);
        self.last_ns = read_ns;
        if schedule.counts(index) {
            self.counted += 1;
            self.latency.record(took_ns);
        }
        took_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::request_response::RequestPacing;

    fn counted_ns(response_ns: impl Fn(u64) -> u64) -> u64 {
        let spec = RequestResponseSpec {
            request_bytes: 1,
            response_bytes: 1,
            pacing: RequestPacing::Open { per_second: 1_000 },
            warm_up_ns: 0,
            duration_ns: 1_000_000_000,
        };
        let mut schedule = OpenLoopSchedule::new(&spec, 1_000);
        schedule.pace.start_ns = 7;
        let mut answers = OpenLoopResponses::of(&schedule);
        for index in 0..schedule.total() {
            answers.record(&schedule, index, 7 + response_ns(index));
        }
        let report = schedule.conclude(1_000, true, answers, BufferedHistogram::new(), 0);
        assert_eq!((report.due, report.answered), (1_000, 1_000));
        report.counted_ns
    }

    #[test]
    fn a_rate_that_is_carried_counts_as_planned_over_any_delay_and_a_slower_one_for_as_long_as_it_took()
     {
        for delay_ns in [0, 300_000_000, 4_000_000_000] {
            assert_eq!(counted_ns(|index| index * 1_000_000 + delay_ns), 1_000_000_000);
            let slow_ns = counted_ns(|index| index * 4_000_000 + delay_ns);
            assert_eq!(slow_ns, 999 * 4_000_000);
        }
    }

    #[test]
    fn as_many_are_due_by_a_moment_as_have_their_time_before_it() {
        let spec = RequestResponseSpec {
            request_bytes: 1,
            response_bytes: 1,
            pacing: RequestPacing::Open { per_second: 3 },
            warm_up_ns: 1_000_000_000,
            duration_ns: 2_000_000_000,
        };
        let mut schedule = OpenLoopSchedule::new(&spec, 3);
        schedule.pace.start_ns = 100;
        assert_eq!((schedule.total(), schedule.counted()), (9, 6));
        assert_eq!(schedule.due_by(99), 0);
        for index in 0..9 {
            // A third of a second is cut to whole nanoseconds.
            let due_ns = schedule.due_ns(index) + 1;
            assert_eq!(schedule.due_by(due_ns), index + 1);
        }
        assert_eq!(schedule.due_by(u64::MAX), 9);
    }
}
