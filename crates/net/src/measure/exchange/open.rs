//! Requests at even times over one TCP connection, whatever comes back: a thread sends and a thread reads, so
//! that any number may be under way.
//!
//! Left out: transports that one thread has to serve ([`super::ask_in_turn`]).

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::thread;

use plumb_sys::clock::{Clock, read_ns};

use super::samples::Samples;
use super::turns::Progress;
use super::{ExchangeError, ExchangeReport, ExchangeSpec};
use crate::clock::{sleep_until, steady_ns};

/// The schedule of an open loop.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    start_ns: u64,
    per_second: u64,
    /// Requests of the warm-up, and all.
    warm_up: u64,
    total: u64,
}

impl Schedule {
    fn new(spec: &ExchangeSpec, per_second: u32, start_ns: u64) -> Self {
        let per_second = u64::from(per_second.max(1));
        let within = |ns: u64| {
            let count = u128::from(ns) * u128::from(per_second) / 1_000_000_000;
            u64::try_from(count).unwrap_or(u64::MAX)
        };
        let warm_up = within(spec.warm_up_ns);
        Self { start_ns, per_second, warm_up, total: within(spec.end_ns()).max(1) }
    }

    /// When request `index` is due.
    fn due_ns(&self, index: u64) -> u64 {
        let after = u128::from(index) * 1_000_000_000 / u128::from(self.per_second);
        self.start_ns + u64::try_from(after).unwrap_or(u64::MAX)
    }

    const fn counted(&self) -> u64 {
        self.total.saturating_sub(self.warm_up)
    }
}

/// Asks at even times.
///
/// # Errors
/// [`ExchangeError`].
pub fn ask(
    stream: &TcpStream,
    spec: &ExchangeSpec,
    per_second: u32,
    progress: &Progress,
) -> Result<ExchangeReport, ExchangeError> {
    spec.check()?;
    let sender = stream.try_clone().map_err(ExchangeError::at_once)?;
    let request = spec.request();
    // Both threads are up before the first request is due.
    let mut schedule = Schedule::new(spec, per_second, 0);
    let mut latency = Samples::of(schedule.counted());
    let mut lateness = Samples::of(schedule.counted());
    schedule.start_ns = steady_ns() + 5_000_000;
    let mut answered = 0;
    let (received, sent, cpu_ns) = thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let cpu = read_ns(Clock::ThreadCpu);
            plumb_sys::timer::set_slack_ns(1).ok();
            let outcome = send_due(&sender, &request, &schedule, &mut lateness);
            (outcome, read_ns(Clock::ThreadCpu) - cpu)
        });
        let cpu = read_ns(Clock::ThreadCpu);
        let reader = Reader { stream, schedule: &schedule, progress };
        let received = reader.receive_due(spec, &mut latency, &mut answered);
        if received.is_err() {
            stream.shutdown(Shutdown::Both).ok();
        }
        let cpu_received = read_ns(Clock::ThreadCpu) - cpu;
        let (sent, cpu_sent) = sending.join().expect("the sender does not panic");
        (received, sent, cpu_received + cpu_sent)
    });
    let report = ExchangeReport {
        due: schedule.counted(),
        answered: answered.saturating_sub(schedule.warm_up),
        latency: latency.encode(),
        lateness: lateness.encode(),
        counted_ns: spec.duration_ns,
        cpu_ns,
        cpu_requests: answered,
        ..ExchangeReport::default()
    };
    match received.and(sent) {
        Ok(()) => Ok(report),
        Err(error) => {
            Err(ExchangeError::Connection { after: answered, error, partial: Box::new(report) })
        }
    }
}

fn send_due(
    mut stream: &TcpStream,
    request: &[u8],
    schedule: &Schedule,
    lateness: &mut Samples,
) -> io::Result<()> {
    for index in 0..schedule.total {
        let due = schedule.due_ns(index);
        while steady_ns() < due {
            sleep_until(due);
        }
        stream.write_all(request)?;
        if index >= schedule.warm_up {
            lateness.take(steady_ns().saturating_sub(due));
        }
    }
    Ok(())
}

struct Reader<'a> {
    stream: &'a TcpStream,
    schedule: &'a Schedule,
    progress: &'a Progress,
}

impl Reader<'_> {
    fn receive_due(
        &self,
        spec: &ExchangeSpec,
        latency: &mut Samples,
        answered: &mut u64,
    ) -> io::Result<()> {
        let mut stream = self.stream;
        let mut response = spec.response();
        for index in 0..self.schedule.total {
            stream.read_exact(&mut response)?;
            let read = steady_ns();
            *answered = index + 1;
            self.progress.set(*answered);
            if index >= self.schedule.warm_up {
                latency.take(read.saturating_sub(self.schedule.due_ns(index)));
            }
        }
        Ok(())
    }
}
