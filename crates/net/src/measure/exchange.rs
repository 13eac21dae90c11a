//! Requests and responses over TCP: one after another, at a rate whatever comes back, and each over a
//! connection of its own.
//!
//! At a rate, a request's time begins when it was due, not when there was room for it, so a stall counts
//! for every request that it held up. Left out: datagrams, and encryption ([`super::transport`]).

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::thread;
use std::time::Duration;

use plumb_base::stats::histogram::Histogram;
use plumb_sys::clock::{Clock, read_ns};
use serde::{Deserialize, Serialize};

use crate::clock::{sleep_until, steady_ns};

/// Longest request or response.
pub const MESSAGE_BYTES_MAX: u32 = 1 << 20;
/// Most samples that are kept: 8 bytes each.
pub const SAMPLES_MAX: u32 = 4_000_000;
/// How long a single read or write may wait.
const STEP_MAX: Duration = Duration::from_secs(5);
/// How often an accept loop looks at its deadline.
const LOOK_EVERY_MS: i32 = 50;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExchangeSpec {
    /// Bytes of a request, at least 1.
    pub request_bytes: u32,
    /// Bytes of a response, at least 1.
    pub response_bytes: u32,
    /// When requests are sent.
    pub pacing: Pacing,
    /// Time at the beginning that is not counted.
    pub warm_up_ns: u64,
    /// Time that counts, after the warm-up.
    pub duration_ns: u64,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pacing {
    /// Each after the response to the one before.
    Closed,
    /// At even times, whatever comes back.
    Open {
        /// How many a second.
        per_second: u32,
    },
    /// Each over a connection of its own, one after another: connect, ask, read to the end.
    Connect,
}

/// What came of it, as the side that asked saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExchangeReport {
    /// Requests that were due in the time that counts.
    pub due: u64,
    /// Of them, those that were answered.
    pub answered: u64,
    /// From the due time (at closed loop: from the sending) until the whole response was read.
    /// Nanoseconds, HdrHistogram V2.
    pub latency: Vec<u8>,
    /// How late requests were given to the kernel, at open loop. Nanoseconds, HdrHistogram V2.
    pub lateness: Vec<u8>,
    /// Time in connect(2), for a connection each. Nanoseconds, HdrHistogram V2.
    pub connect: Vec<u8>,
    /// Time that counted.
    pub counted_ns: u64,
    /// Processor time of the threads that asked, with the warm-up, without interrupts.
    pub cpu_ns: u64,
}

/// A test that cannot be, or that broke.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The request makes no sense.
    #[error("{0}; ask for another test")]
    Spec(&'static str),
    /// The connection.
    #[error(
        "requests and responses ended after {after} of them ({error}); is the other side running?"
    )]
    Connection {
        /// Responses until then.
        after: u64,
        /// The system's word.
        error: io::Error,
    },
}

impl ExchangeSpec {
    /// Whether it can be done.
    ///
    /// # Errors
    /// [`ExchangeError::Spec`].
    pub fn check(&self) -> Result<(), ExchangeError> {
        let sizes = [self.request_bytes, self.response_bytes];
        if sizes.iter().any(|bytes| *bytes == 0 || *bytes > MESSAGE_BYTES_MAX) {
            return Err(ExchangeError::Spec("requests and responses have 1 B to 1 MiB"));
        }
        if self.pacing == (Pacing::Open { per_second: 0 }) {
            return Err(ExchangeError::Spec("no requests a second are no test"));
        }
        if self.duration_ns == 0 || self.end_ns() > 3_600_000_000_000 {
            return Err(ExchangeError::Spec("a test lasts longer than nothing and up to an hour"));
        }
        Ok(())
    }

    const fn end_ns(&self) -> u64 {
        self.warm_up_ns.saturating_add(self.duration_ns)
    }
}

/// Asks over one connection, at closed or open loop.
///
/// # Errors
/// [`ExchangeError`].
pub fn ask(stream: &TcpStream, spec: &ExchangeSpec) -> Result<ExchangeReport, ExchangeError> {
    spec.check()?;
    let prepared = stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(STEP_MAX)))
        .and_then(|()| stream.set_write_timeout(Some(STEP_MAX)));
    prepared.map_err(|error| ExchangeError::Connection { after: 0, error })?;
    match spec.pacing {
        Pacing::Closed => ask_closed(&mut &*stream, spec),
        Pacing::Open { per_second } => ask_open(stream, spec, per_second),
        Pacing::Connect => Err(ExchangeError::Spec("a connection each needs an address")),
    }
}

/// Asks over anything that reads and writes, each request after the response to the one before.
///
/// # Errors
/// [`ExchangeError`].
pub fn ask_closed(
    stream: &mut (impl Read + Write),
    spec: &ExchangeSpec,
) -> Result<ExchangeReport, ExchangeError> {
    spec.check()?;
    let request = vec![0x71_u8; spec.request_bytes as usize];
    let mut response = vec![0_u8; spec.response_bytes as usize];
    let mut samples = Samples::new(spec);
    let cpu = read_ns(Clock::ThreadCpu);
    let start = steady_ns();
    let (counted_from, end) = (start + spec.warm_up_ns, start + spec.end_ns());
    let mut after = 0;
    loop {
        let sent = steady_ns();
        if sent >= end || samples.is_full() {
            break;
        }
        stream
            .write_all(&request)
            .and_then(|()| stream.flush())
            .and_then(|()| stream.read_exact(&mut response))
            .map_err(|error| ExchangeError::Connection { after, error })?;
        let read = steady_ns();
        after += 1;
        if sent >= counted_from {
            samples.take(read - sent);
        }
    }
    let counted_ns = steady_ns().saturating_sub(counted_from);
    let cpu_ns = read_ns(Clock::ThreadCpu) - cpu;
    let answered = samples.len();
    let latency = samples.encode();
    Ok(ExchangeReport {
        due: answered,
        answered,
        latency,
        counted_ns,
        cpu_ns,
        ..Default::default()
    })
}

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
        let per_second = u64::from(per_second);
        let within = |ns: u64| {
            let count = u128::from(ns) * u128::from(per_second) / 1_000_000_000;
            u64::try_from(count).unwrap_or(u64::MAX)
        };
        let warm_up = within(spec.warm_up_ns);
        let total = within(spec.end_ns()).clamp(1, warm_up + u64::from(SAMPLES_MAX));
        Self { start_ns, per_second, warm_up, total }
    }

    /// When request `index` is due.
    fn due_ns(&self, index: u64) -> u64 {
        self.start_ns + index * 1_000_000_000 / self.per_second
    }
}

fn ask_open(
    stream: &TcpStream,
    spec: &ExchangeSpec,
    per_second: u32,
) -> Result<ExchangeReport, ExchangeError> {
    let fault = |error| ExchangeError::Connection { after: 0, error };
    let sender = stream.try_clone().map_err(fault)?;
    let request = vec![0x71_u8; spec.request_bytes as usize];
    let mut latency = Samples::new(spec);
    let mut lateness = Samples::new(spec);
    // Both threads are up before the first request is due.
    let schedule = Schedule::new(spec, per_second, steady_ns() + 5_000_000);
    let (received, sent, cpu_ns) = thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let cpu = read_ns(Clock::ThreadCpu);
            plumb_sys::timer::set_slack_ns(1).ok();
            let outcome = send_due(&sender, &request, &schedule, &mut lateness);
            (outcome, read_ns(Clock::ThreadCpu) - cpu)
        });
        let cpu = read_ns(Clock::ThreadCpu);
        let received = receive_due(stream, spec, &schedule, &mut latency);
        if received.is_err() {
            stream.shutdown(Shutdown::Both).ok();
        }
        let cpu_received = read_ns(Clock::ThreadCpu) - cpu;
        let (sent, cpu_sent) = sending.join().expect("the sender does not panic");
        (received, sent, cpu_received + cpu_sent)
    });
    let after = received.map_err(|(after, error)| ExchangeError::Connection { after, error })?;
    sent.map_err(|error| ExchangeError::Connection { after, error })?;
    Ok(ExchangeReport {
        due: schedule.total - schedule.warm_up.min(schedule.total),
        answered: latency.len(),
        latency: latency.encode(),
        lateness: lateness.encode(),
        counted_ns: spec.duration_ns,
        cpu_ns,
        ..Default::default()
    })
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

fn receive_due(
    mut stream: &TcpStream,
    spec: &ExchangeSpec,
    schedule: &Schedule,
    latency: &mut Samples,
) -> Result<u64, (u64, io::Error)> {
    let mut response = vec![0_u8; spec.response_bytes as usize];
    for index in 0..schedule.total {
        stream.read_exact(&mut response).map_err(|error| (index, error))?;
        let read = steady_ns();
        if index >= schedule.warm_up {
            latency.take(read.saturating_sub(schedule.due_ns(index)));
        }
    }
    Ok(schedule.total)
}

/// Connects, asks and reads to the end, again and again.
///
/// # Errors
/// [`ExchangeError`].
pub fn ask_each(address: SocketAddr, spec: &ExchangeSpec) -> Result<ExchangeReport, ExchangeError> {
    spec.check()?;
    let request = vec![0x71_u8; spec.request_bytes as usize];
    let mut response = vec![0_u8; spec.response_bytes as usize];
    let [mut latency, mut connect] = [Samples::new(spec), Samples::new(spec)];
    let cpu = read_ns(Clock::ThreadCpu);
    let start = steady_ns();
    let (counted_from, end) = (start + spec.warm_up_ns, start + spec.end_ns());
    let mut after = 0;
    loop {
        let began = steady_ns();
        if began >= end || latency.is_full() {
            break;
        }
        let connected = ask_once(address, &request, &mut response);
        let connected = connected.map_err(|error| ExchangeError::Connection { after, error })?;
        let ended = steady_ns();
        after += 1;
        if began >= counted_from {
            latency.take(ended - began);
            connect.take(connected - began);
        }
    }
    let counted_ns = steady_ns().saturating_sub(counted_from);
    let cpu_ns = read_ns(Clock::ThreadCpu) - cpu;
    let answered = latency.len();
    let (latency, connect) = (latency.encode(), connect.encode());
    let due = answered;
    Ok(ExchangeReport { due, answered, latency, connect, counted_ns, cpu_ns, ..Default::default() })
}

/// When the connection stood.
fn ask_once(address: SocketAddr, request: &[u8], response: &mut [u8]) -> io::Result<u64> {
    let mut stream = TcpStream::connect_timeout(&address, STEP_MAX)?;
    let connected = steady_ns();
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STEP_MAX))?;
    stream.write_all(request)?;
    stream.read_exact(response)?;
    // The other side closes first, so that its ports, not this side's, wait before they serve again.
    match stream.read(&mut [0])? {
        0 => Ok(connected),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "more than a response came")),
    }
}

/// Answers on one connection until it ends or the deadline by the steady clock; requests answered.
///
/// # Errors
/// The connection's, and a peer that falls silent.
pub fn answer(stream: &TcpStream, spec: &ExchangeSpec, deadline_ns: u64) -> io::Result<u64> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STEP_MAX))?;
    stream.set_write_timeout(Some(STEP_MAX))?;
    answer_all(&mut &*stream, spec, deadline_ns)
}

/// The same over anything that reads and writes.
///
/// # Errors
/// The connection's.
pub fn answer_all(
    stream: &mut (impl Read + Write),
    spec: &ExchangeSpec,
    deadline_ns: u64,
) -> io::Result<u64> {
    let checked = spec.check();
    checked.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    let mut request = vec![0_u8; spec.request_bytes as usize];
    let response = vec![0x61_u8; spec.response_bytes as usize];
    let mut answered = 0;
    while steady_ns() < deadline_ns {
        // The end is only an end between two requests.
        let first = stream.read(&mut request)?;
        if first == 0 {
            return Ok(answered);
        }
        stream.read_exact(&mut request[first..])?;
        stream.write_all(&response)?;
        stream.flush()?;
        answered += 1;
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "the test went on beyond its deadline"))
}

/// Answers one request on each connection that comes, until the deadline or until `stop` says so.
///
/// # Errors
/// The listening socket's; a connection that fails is passed over.
pub fn answer_each(
    listener: &TcpListener,
    spec: &ExchangeSpec,
    deadline_ns: u64,
    stop: impl Fn() -> bool,
) -> io::Result<u64> {
    let checked = spec.check();
    checked.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    listener.set_nonblocking(true)?;
    let mut request = vec![0_u8; spec.request_bytes as usize];
    let response = vec![0x61_u8; spec.response_bytes as usize];
    let mut answered = 0;
    while steady_ns() < deadline_ns && !stop() {
        if !plumb_sys::fd::poll_readable(listener.as_fd(), LOOK_EVERY_MS)? {
            continue;
        }
        let Ok((mut stream, _)) = listener.accept() else { continue };
        let served = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_nodelay(true))
            .and_then(|()| stream.set_read_timeout(Some(STEP_MAX)))
            .and_then(|()| stream.read_exact(&mut request))
            .and_then(|()| stream.write_all(&response));
        answered += u64::from(served.is_ok());
    }
    Ok(answered)
}

/// Samples in memory that is there before the first of them.
#[derive(Debug)]
struct Samples(Vec<u64>);

impl Samples {
    fn new(spec: &ExchangeSpec) -> Self {
        // No exchange takes less than a microsecond.
        let most = (spec.duration_ns / 1_000 + 1).min(u64::from(SAMPLES_MAX));
        Self(Vec::with_capacity(usize::try_from(most).unwrap_or(0)))
    }

    fn take(&mut self, ns: u64) {
        if !self.is_full() {
            self.0.push(ns);
        }
    }

    fn is_full(&self) -> bool {
        self.0.len() == self.0.capacity()
    }

    fn len(&self) -> u64 {
        u64::try_from(self.0.len()).unwrap_or(u64::MAX)
    }

    fn encode(&self) -> Vec<u8> {
        let mut histogram = Histogram::new();
        for ns in &self.0 {
            histogram.record(*ns);
        }
        histogram.encode()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn spec(pacing: Pacing) -> ExchangeSpec {
        ExchangeSpec {
            request_bytes: 100,
            response_bytes: 1_000,
            pacing,
            warm_up_ns: 20_000_000,
            duration_ns: 100_000_000,
        }
    }

    fn with_answers(
        spec: &ExchangeSpec,
        ask: impl FnOnce(&TcpStream) -> Result<ExchangeReport, ExchangeError>,
    ) -> (Result<ExchangeReport, ExchangeError>, io::Result<u64>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        thread::scope(|scope| {
            let deadline = steady_ns() + 60_000_000_000;
            let answering = scope.spawn(move || answer(&far, spec, deadline));
            let report = ask(&near);
            near.shutdown(Shutdown::Write).unwrap();
            (report, answering.join().unwrap())
        })
    }

    fn decoded(histogram: &[u8]) -> Histogram {
        Histogram::decode(histogram).unwrap()
    }

    #[test]
    fn at_closed_loop_every_request_is_answered_and_timed() {
        let spec = spec(Pacing::Closed);
        let (report, answered) = with_answers(&spec, |stream| ask(stream, &spec));
        let report = report.unwrap();
        assert!(report.answered > 0 && report.answered == report.due);
        assert!(answered.unwrap() >= report.answered, "the warm-up is answered but not counted");
        let latency = decoded(&report.latency);
        assert_eq!(latency.len(), report.answered);
        // One after another: together they cannot take longer than the time that counted.
        assert!(latency.min() * report.answered <= report.counted_ns);
        assert!(report.cpu_ns > 0);
    }

    #[test]
    fn at_open_loop_as_many_are_sent_as_are_due() {
        let spec = spec(Pacing::Open { per_second: 2_000 });
        let (report, answered) = with_answers(&spec, |stream| ask(stream, &spec));
        let report = report.unwrap();
        assert_eq!((report.due, report.answered), (200, 200));
        assert_eq!(answered.unwrap(), 240);
        assert_eq!(decoded(&report.lateness).len(), 200);
    }

    #[test]
    fn a_stall_counts_for_every_request_that_it_held_up() {
        let spec = ExchangeSpec { warm_up_ns: 0, ..spec(Pacing::Open { per_second: 1_000 }) };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let stall_ns = 60_000_000;
        let report = thread::scope(|scope| {
            scope.spawn(|| {
                let mut request = [0; 100];
                for index in 0..100 {
                    far.read_exact(&mut request).unwrap();
                    if index == 20 {
                        sleep_until(steady_ns() + stall_ns);
                    }
                    far.write_all(&[0; 1_000]).unwrap();
                }
            });
            ask(&near, &spec).unwrap()
        });
        let latency = decoded(&report.latency);
        assert_eq!(latency.len(), 100);
        // Sixty were due while the server stood still; on average they waited half of it.
        let long = latency.iter_recorded().filter(|(ns, _)| *ns >= stall_ns / 6);
        let long: u64 = long.map(|(_, count)| count).sum();
        assert!(long >= 45, "{long} of 100 show the stall");
    }

    #[test]
    fn a_connection_each_is_closed_by_the_other_side_and_timed_apart() {
        let spec = spec(Pacing::Connect);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let done = AtomicBool::new(false);
        let (report, answered) = thread::scope(|scope| {
            let deadline = steady_ns() + 60_000_000_000;
            let (done, spec) = (&done, &spec);
            let answering = scope.spawn(move || {
                answer_each(&listener, spec, deadline, || done.load(Ordering::Relaxed))
            });
            let report = ask_each(address, spec);
            done.store(true, Ordering::Relaxed);
            (report.unwrap(), answering.join().unwrap().unwrap())
        });
        assert!(report.answered > 0 && answered >= report.answered);
        let [latency, connect] = [decoded(&report.latency), decoded(&report.connect)];
        assert_eq!(connect.len(), report.answered);
        assert!(connect.quantile(0.5) < latency.quantile(0.5));
    }

    #[test]
    fn a_server_that_goes_away_ends_the_test_with_its_place() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop(listener.accept().unwrap());
        for pacing in [Pacing::Closed, Pacing::Open { per_second: 100 }] {
            let error = ask(&near, &spec(pacing)).unwrap_err();
            assert!(matches!(error, ExchangeError::Connection { after: 0, .. }), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = spec(Pacing::Closed);
        for bad in [
            ExchangeSpec { request_bytes: 0, ..good.clone() },
            ExchangeSpec { response_bytes: MESSAGE_BYTES_MAX + 1, ..good.clone() },
            ExchangeSpec { duration_ns: 0, ..good.clone() },
            ExchangeSpec { duration_ns: u64::MAX, ..good.clone() },
            ExchangeSpec { pacing: Pacing::Open { per_second: 0 }, ..good },
        ] {
            assert!(matches!(bad.check(), Err(ExchangeError::Spec(_))), "{bad:?}");
        }
    }
}
