//! Requests at even times over one connection that keeps their order, whatever comes back: a thread sends and a
//! thread reads, so that any number may be under way.
//!
//! Left out: what encrypts the connection ([`super::super::tls`]), and datagrams ([`super::datagram`]).

use std::io::{self, Read, Write};
use std::thread;

use plumb_sys::clock::{Clock, read_ns};

use super::samples::Samples;
use super::schedule::{Answers, Schedule};
use super::turns::Progress;
use super::{ExchangeError, ExchangeReport, ExchangeSpec};
use crate::clock::{sleep_until, steady_ns};

/// The two directions of a connection, and what ends both when either breaks.
#[derive(Debug)]
pub struct Line<R, W, C> {
    /// The half that reads.
    pub reader: R,
    /// The half that writes.
    pub writer: W,
    /// Ends what either half waits for.
    pub close: C,
}

impl<R: Read, W: Write + Send, C: Fn() + Sync> Line<R, W, C> {
    /// Asks at even times; `is_over` says whether the time for it has passed.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn ask(
        mut self,
        spec: &ExchangeSpec,
        per_second: u32,
        progress: &Progress,
        is_over: &dyn Fn() -> bool,
    ) -> Result<ExchangeReport, ExchangeError> {
        spec.check()?;
        let (request, mut response) = (spec.request(), spec.response());
        let mut schedule = Schedule::new(spec, per_second);
        let mut answers = Answers::of(&schedule);
        let mut lateness = Samples::of(schedule.counted());
        // Both threads are up before the first request is due.
        schedule.begin();
        let Self { reader, writer, close } = &mut self;
        let (received, sent, cpu_ns) = thread::scope(|scope| {
            let (schedule, lateness, close) = (&schedule, &mut lateness, &*close);
            let sending = scope.spawn(move || {
                let cpu = read_ns(Clock::ThreadCpu);
                plumb_sys::timer::set_slack_ns(1).ok();
                let sent = send_due(writer, &request, schedule, lateness);
                if sent.is_err() {
                    close();
                }
                (sent, read_ns(Clock::ThreadCpu) - cpu)
            });
            let cpu = read_ns(Clock::ThreadCpu);
            let received = receive_due(reader, &mut response, schedule, &mut answers, progress);
            if received.is_err() {
                close();
            }
            let cpu_received = read_ns(Clock::ThreadCpu) - cpu;
            let (sent, cpu_sent) = sending.join().expect("the sender does not panic");
            (received, sent, cpu_received + cpu_sent)
        });
        // What could not be sent says why nothing more came, not the other way round.
        finish(&schedule, sent.and(received), answers, lateness, cpu_ns, is_over)
    }
}

/// What came of all, over whatever loses nothing.
pub(in super::super) fn finish(
    schedule: &Schedule,
    outcome: io::Result<()>,
    answers: Answers,
    lateness: Samples,
    cpu_ns: u64,
    is_over: &dyn Fn() -> bool,
) -> Result<ExchangeReport, ExchangeError> {
    let after = answers.all();
    let Err(error) = outcome else {
        return Ok(schedule.conclude(schedule.total(), true, answers, lateness, cpu_ns));
    };
    let judged = schedule.due_by(steady_ns());
    let partial = Box::new(schedule.conclude(judged, false, answers, lateness, cpu_ns));
    if is_over() {
        return Err(ExchangeError::Unfinished { after, partial });
    }
    Err(ExchangeError::Connection { after, error, partial })
}

fn send_due(
    writer: &mut impl Write,
    request: &[u8],
    schedule: &Schedule,
    lateness: &mut Samples,
) -> io::Result<()> {
    for index in 0..schedule.total() {
        let due = schedule.due_ns(index);
        while steady_ns() < due {
            sleep_until(due);
        }
        writer.write_all(request)?;
        if schedule.counts(index) {
            lateness.take(steady_ns().saturating_sub(due));
        }
    }
    Ok(())
}

fn receive_due(
    reader: &mut impl Read,
    response: &mut [u8],
    schedule: &Schedule,
    answers: &mut Answers,
    progress: &Progress,
) -> io::Result<()> {
    for index in 0..schedule.total() {
        reader.read_exact(response)?;
        answers.take(schedule, index, steady_ns());
        progress.set(answers.all());
    }
    Ok(())
}
