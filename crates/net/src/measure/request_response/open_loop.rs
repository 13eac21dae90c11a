//! Requests at even times over one connection that keeps their order, whatever comes back: a thread sends and a
//! thread reads, so that any number may be under way.
//!
//! Left out: what encrypts the connection ([`super::super::tls`]), and datagrams ([`super::udp`]).

use std::io::{self, Read, Write};
use std::thread;

use plumb_sys::clock::{ClockId, read_ns};

use super::buffered_histogram::BufferedHistogram;
use super::open_loop_schedule::{OpenLoopResponses, OpenLoopSchedule};
use super::{RequestResponseError, RequestResponseSpec, RequesterReport};
use crate::measure::bulk::Counter;
use plumb_clock::{monotonic_ns, sleep_until};

/// The two directions of a connection, and what ends both when either breaks.
#[derive(Debug)]
pub struct OpenLoopConnection<R, W, C> {
    /// The half that reads.
    pub reader: R,
    /// The half that writes.
    pub writer: W,
    /// Ends what either half waits for.
    pub close: C,
}

impl<R: Read, W: Write + Send, C: Fn() + Sync> OpenLoopConnection<R, W, C> {
    /// Asks at even times; `is_over` says whether the time for it has passed.
    ///
    /// # Errors
    /// [`RequestResponseError`].
    pub fn send_requests(
        mut self,
        spec: &RequestResponseSpec,
        per_second: u32,
        progress: &Counter,
        is_over: &dyn Fn() -> bool,
    ) -> Result<RequesterReport, RequestResponseError> {
        spec.check()?;
        let (request, mut response) = (spec.request(), spec.response());
        let mut schedule = OpenLoopSchedule::new(spec, per_second);
        let mut answers = OpenLoopResponses::of(&schedule);
        let mut lateness = BufferedHistogram::with_capacity_for(schedule.counted());
        // Both threads are up before the first request is due.
        schedule.begin();
        let Self { reader, writer, close } = &mut self;
        let (received, sent, cpu_ns) = thread::scope(|scope| {
            let (schedule, lateness, close) = (&schedule, &mut lateness, &*close);
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
            let received = receive_due(reader, &mut response, schedule, &mut answers, progress);
            if received.is_err() {
                close();
            }
            let cpu_received = read_ns(ClockId::ThreadCpu) - cpu;
            let (sent, cpu_sent) = sending.join().expect("the sender does not panic");
            (received, sent, cpu_received + cpu_sent)
        });
        // What could not be sent says why nothing more came, not the other way round.
        finish(&schedule, sent.and(received), answers, lateness, cpu_ns, is_over)
    }
}

/// What came of all, over whatever loses nothing.
pub(in super::super) fn finish(
    schedule: &OpenLoopSchedule,
    outcome: io::Result<()>,
    answers: OpenLoopResponses,
    lateness: BufferedHistogram,
    cpu_ns: u64,
    is_over: &dyn Fn() -> bool,
) -> Result<RequesterReport, RequestResponseError> {
    let after = answers.all();
    let Err(error) = outcome else {
        return Ok(schedule.conclude(schedule.total(), true, answers, lateness, cpu_ns));
    };
    let judged = schedule.due_by(monotonic_ns());
    let partial = Box::new(schedule.conclude(judged, false, answers, lateness, cpu_ns));
    if is_over() {
        return Err(RequestResponseError::Unfinished { after, partial });
    }
    Err(RequestResponseError::Connection { after, error, partial })
}

fn send_due(
    writer: &mut impl Write,
    request: &[u8],
    schedule: &OpenLoopSchedule,
    lateness: &mut BufferedHistogram,
) -> io::Result<()> {
    for index in 0..schedule.total() {
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
    schedule: &OpenLoopSchedule,
    answers: &mut OpenLoopResponses,
    progress: &Counter,
) -> io::Result<()> {
    for index in 0..schedule.total() {
        reader.read_exact(response)?;
        answers.record(schedule, index, monotonic_ns());
        progress.set(answers.all());
    }
    Ok(())
}
