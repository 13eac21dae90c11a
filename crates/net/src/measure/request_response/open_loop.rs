//! Requests at even times, whatever comes back: when each is due, their results, and the loops over a connection
//! that keeps their order.
//!
//! A thread sends and a thread reads, so that any number may be under way.

use std::io::{self, Read, Write};
use std::thread;

use plumb_sys::clock::{ClockId, read_ns};

use super::closed_loop::SampleBuffer;
use super::{RequestError, RequestSpec, RequesterReport};
use crate::measure::bulk::Counter;
use crate::measure::pacer::Pacer;
use plumb_clock::{monotonic_ns, sleep_until};

/// How long after its making a schedule begins: whoever works by it is up by then.
const LEAD_NS: u64 = 5_000_000;

/// Asks at even times over the two directions of a connection, with what ends both when either breaks; `is_over` says
/// whether the time for it has passed.
///
/// # Errors
/// [`RequestError`].
pub fn send_requests(
    (mut reader, mut writer, close): (impl Read, impl Write + Send, impl Fn() + Sync),
    spec: &RequestSpec,
    per_second: u32,
    progress: &Counter,
    is_over: &dyn Fn() -> bool,
) -> Result<RequesterReport, RequestError> {
    spec.check()?;
    let (request, mut response) = (spec.request(), spec.response());
    let mut schedule = OpenSchedule::new(spec, per_second);
    let mut answers = OpenResponses::of(&schedule);
    let mut lateness = SampleBuffer::with_capacity_for(schedule.counted());
    // Both threads are up before the first request is due.
    schedule.begin();
    let (received, sent, cpu_ns) = thread::scope(|scope| {
        let (schedule, lateness, close) = (&schedule, &mut lateness, &close);
        let writer = &mut writer;
        let sending = scope.spawn(move || {
            let cpu = read_ns(ClockId::ThreadCpu);
            plumb_sys::timer::set_timer_slack_ns(1).ok();
            let sent = send_due(writer, &request, schedule, lateness);
            if sent.is_err() {
                close();
            }
            (sent, read_ns(ClockId::ThreadCpu) - cpu)
        });
        let cpu = read_ns(ClockId::ThreadCpu);
        let received = receive_due(&mut reader, &mut response, schedule, &mut answers, progress);
        if received.is_err() {
            close();
        }
        let cpu_received = read_ns(ClockId::ThreadCpu) - cpu;
        let (sent, cpu_sent) = sending.join().expect("the sender does not panic");
        (received, sent, cpu_received + cpu_sent)
    });
    // A failure to send explains why no more responses came, so it comes first.
    finish(&schedule, sent.and(received), answers, lateness, cpu_ns, is_over)
}

/// The result of all requests over a reliable transport.
pub(crate) fn finish(
    schedule: &OpenSchedule,
    outcome: io::Result<()>,
    answers: OpenResponses,
    lateness: SampleBuffer,
    cpu_ns: u64,
    is_over: &dyn Fn() -> bool,
) -> Result<RequesterReport, RequestError> {
    let after = answers.all;
    let Err(error) = outcome else {
        return Ok(schedule.conclude(schedule.total, true, answers, lateness, cpu_ns));
    };
    let judged = schedule.due_by(monotonic_ns());
    let partial = Box::new(schedule.conclude(judged, false, answers, lateness, cpu_ns));
    if is_over() {
        return Err(RequestError::Unfinished { after, partial });
    }
    Err(RequestError::Connection { after, error, partial })
}

fn send_due(
    writer: &mut impl Write,
    request: &[u8],
    schedule: &OpenSchedule,
    lateness: &mut SampleBuffer,
) -> io::Result<()> {
    for index in 0..schedule.total {
        let due = schedule.due_ns(index);
        while monotonic_ns() < due {
            sleep_until(due);
        }
        writer.write_all(request)?;
        if schedule.counts(index) {
            lateness.record(monotonic_ns().saturating_sub(due));
        }
    }
    Ok(())
}

fn receive_due(
    reader: &mut impl Read,
    response: &mut [u8],
    schedule: &OpenSchedule,
    answers: &mut OpenResponses,
    progress: &Counter,
) -> io::Result<()> {
    for index in 0..schedule.total {
        reader.read_exact(response)?;
        answers.record(schedule, index, monotonic_ns());
        progress.set(answers.all);
    }
    Ok(())
}

/// Even times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenSchedule {
    pace: Pacer,
    warm_up_ns: u64,
    duration_ns: u64,
    /// Requests of the warm-up.
    warm_up: u64,
    /// All.
    pub(crate) total: u64,
}

impl OpenSchedule {
    /// The times of a spec, once it has begun ([`Self::begin`]).
    pub(crate) fn new(spec: &RequestSpec, per_second: u32) -> Self {
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
    pub(crate) fn begin(&mut self) {
        self.pace.start_ns = monotonic_ns() + LEAD_NS;
    }

    /// How many of the requests count.
    pub(crate) const fn counted(&self) -> u64 {
        self.total.saturating_sub(self.warm_up)
    }

    /// Whether request `index` counts.
    #[inline]
    pub(crate) const fn counts(&self, index: u64) -> bool {
        index >= self.warm_up
    }

    /// When request `index` is due.
    #[inline]
    pub(crate) fn due_ns(&self, index: u64) -> u64 {
        self.pace.due_ns(index)
    }

    /// How many requests were due by then.
    pub(crate) fn due_by(&self, now_ns: u64) -> u64 {
        self.pace.due_by(now_ns).min(self.total)
    }

    /// The result of the first `judged` requests; `is_whole` is whether the test came to its end.
    ///
    /// The time that counts lasts until the last response was read, without the least that any took: what needs more
    /// than the planned time does not come at the planned rate.
    pub(crate) fn conclude(
        &self,
        judged: u64,
        is_whole: bool,
        answers: OpenResponses,
        lateness: SampleBuffer,
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
pub(crate) struct OpenResponses {
    latency: SampleBuffer,
    /// How many came, with those of the warm-up.
    pub(crate) all: u64,
    counted: u64,
    /// The least that any took.
    least_ns: u64,
    /// When the last was read.
    last_ns: u64,
}

impl OpenResponses {
    /// Room for all of a schedule's.
    pub(crate) fn of(schedule: &OpenSchedule) -> Self {
        let latency = SampleBuffer::with_capacity_for(schedule.counted());
        Self { latency, all: 0, counted: 0, least_ns: u64::MAX, last_ns: 0 }
    }

    /// The whole response to request `index` was read at `read_ns`; how long that was after it was due.
    #[inline]
    pub(crate) fn record(&mut self, schedule: &OpenSchedule, index: u64, read_ns: u64) -> u64 {
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
        let spec = RequestSpec {
            request_bytes: 1,
            response_bytes: 1,
            pacing: RequestPacing::Open { per_second: 1_000 },
            warm_up_ns: 0,
            duration_ns: 1_000_000_000,
        };
        let mut schedule = OpenSchedule::new(&spec, 1_000);
        schedule.pace.start_ns = 7;
        let mut answers = OpenResponses::of(&schedule);
        for index in 0..schedule.total {
            answers.record(&schedule, index, 7 + response_ns(index));
        }
        let report = schedule.conclude(1_000, true, answers, SampleBuffer::new(), 0);
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
        let spec = RequestSpec {
            request_bytes: 1,
            response_bytes: 1,
            pacing: RequestPacing::Open { per_second: 3 },
            warm_up_ns: 1_000_000_000,
            duration_ns: 2_000_000_000,
        };
        let mut schedule = OpenSchedule::new(&spec, 3);
        schedule.pace.start_ns = 100;
        assert_eq!((schedule.total, schedule.counted()), (9, 6));
        assert_eq!(schedule.due_by(99), 0);
        for index in 0..9 {
            // A third of a second is cut to whole nanoseconds.
            let due_ns = schedule.due_ns(index) + 1;
            assert_eq!(schedule.due_by(due_ns), index + 1);
        }
        assert_eq!(schedule.due_by(u64::MAX), 9);
    }
}
