//! The requests of one thread, each after the one before, over one connection or each over a connection of its own:
//! when each begins, what counts, and the result of all.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;

use plumb_base::stats::histogram::Histogram;
use plumb_sys::clock::{ClockId, read_ns};

use super::{RequestError, RequestSpec, RequesterReport};
use crate::measure::bulk::Counter;
use plumb_clock::{monotonic_ns, sleep_until};

/// How often the accept loop looks whether it is over.
const LOOK_EVERY_MS: i32 = 20;
/// How long to wait when the kernel has no descriptor for a connection.
const PAUSE_NS: u64 = 5_000_000;
/// Samples between two emptyings, where nobody knows how many there will be.
const ROOM: usize = 1 << 16;
/// Most samples that wait at all.
const ROOM_MAX: u64 = 4_000_000;

/// The requests of one thread.
#[derive(Debug)]
pub struct ClosedLoop<'a> {
    counted_from: u64,
    end: u64,
    latency: SampleBuffer,
    connect: SampleBuffer,
    /// Processor time of this thread when what counts began.
    cpu_from: Option<u64>,
    due: u64,
    answered: u64,
    lost: u64,
    all: u64,
    progress: &'a Counter,
}

impl<'a> ClosedLoop<'a> {
    /// Those of a spec, from now on.
    pub fn new(spec: &RequestSpec, progress: &'a Counter) -> Self {
        let (latency, connect) = (SampleBuffer::new(), SampleBuffer::new());
        let start_ns = monotonic_ns();
        Self {
            counted_from: start_ns + spec.warm_up_ns,
            end: start_ns + spec.end_ns(),
            latency,
            connect,
            cpu_from: None,
            due: 0,
            answered: 0,
            lost: 0,
            all: 0,
            progress,
        }
    }

    /// When the next request begins, which is now; none when the time is over.
    #[inline]
    pub fn next_request(&mut self) -> Option<u64> {
        let mut due = monotonic_ns();
        if due >= self.end {
            return None;
        }
        if due >= self.counted_from {
            if self.cpu_from.is_none() {
                self.cpu_from = Some(read_ns(ClockId::ThreadCpu));
                due = monotonic_ns();
            }
            self.due += 1;
        }
        Some(due)
    }

    /// The whole response has been read; how long that took since the request began.
    #[inline]
    pub fn on_response(&mut self, due: u64) -> u64 {
        let took_ns = monotonic_ns().saturating_sub(due);
        self.all += 1;
        self.progress.set(self.all);
        if due >= self.counted_from {
            self.answered += 1;
            self.latency.record(took_ns);
        }
        took_ns
    }

    /// The connection of a request stood so long after it was begun.
    pub fn on_connected(&mut self, due: u64, connect_ns: u64) {
        if due >= self.counted_from {
            self.connect.record(connect_ns);
        }
    }

    /// Nothing came back.
    pub const fn on_lost(&mut self, due: u64) {
        if due >= self.counted_from {
            self.lost += 1;
        }
    }

    /// The response to one that was taken for lost has come after all; how long that took.
    pub fn on_late_response(&mut self, due: u64) -> u64 {
        if due >= self.counted_from {
            self.lost = self.lost.saturating_sub(1);
        }
        self.on_response(due)
    }

    /// Their results.
    pub fn into_report(self) -> RequesterReport {
        let counted_ns = monotonic_ns().saturating_sub(self.counted_from);
        let cpu_ns = self.cpu_from.map_or(0, |from| read_ns(ClockId::ThreadCpu) - from);
        RequesterReport {
            due: self.due,
            answered: self.answered,
            lost: self.lost,
            latency: self.latency.encode(),
            lateness: Vec::new(),
            connect: self.connect.encode(),
            counted_ns,
            cpu_ns,
            cpu_requests: self.answered,
            error: None,
        }
    }

    /// The error of a connection that broke, with their results until then.
    pub fn into_error(self, error: io::Error) -> RequestError {
        RequestError::Connection { after: self.all, error, partial: Box::new(self.into_report()) }
    }
}

/// Asks once over each of the connections that `connect` makes; each begins with `opening`.
///
/// # Errors
/// [`RequestError`].
pub fn request_per_connection<S: Read + Write>(
    spec: &RequestSpec,
    opening: &[u8],
    progress: &Counter,
    mut connect: impl FnMut() -> io::Result<S>,
    is_halted: impl Fn() -> bool,
) -> Result<RequesterReport, RequestError> {
    spec.check()?;
    let request = [opening, &spec.request()].concat();
    let mut response = spec.response();
    let mut turns = ClosedLoop::new(spec, progress);
    while !is_halted()
        && let Some(due) = turns.next_request()
    {
        let asked = connect().and_then(|mut stream| {
            let connected = monotonic_ns();
            request_once(&mut stream, &request, &mut response)?;
            Ok(connected)
        });
        match asked {
            Ok(connected) => {
                turns.on_response(due);
                turns.on_connected(due, connected - due);
            }
            Err(error) => return Err(turns.into_error(error)),
        }
    }
    Ok(turns.into_report())
}

fn request_once(
    stream: &mut (impl Read + Write),
    request: &[u8],
    response: &mut [u8],
) -> io::Result<()> {
    stream.write_all(request)?;
    stream.flush()?;
    stream.read_exact(response)?;
    match stream.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "more than a response came")),
    }
}

/// Gives each connection that comes from `client` to `serve`, until `is_over` says so; how many were
/// served, and how many were not.
///
/// # Errors
/// The listening socket's; a connection that fails is passed over.
pub fn respond_per_connection(
    listener: &TcpListener,
    client: IpAddr,
    mut serve: impl FnMut(TcpStream) -> io::Result<()>,
    is_over: impl Fn() -> bool,
) -> io::Result<(u64, u64)> {
    listener.set_nonblocking(true)?;
    let (mut served, mut failed) = (0, 0);
    loop {
        let is_asked = plumb_sys::fd::poll_readable(listener.as_fd(), LOOK_EVERY_MS)?;
        // Somebody who goes on connecting does not keep it from ending.
        if is_over() {
            return Ok((served, failed));
        }
        if !is_asked {
            continue;
        }
        let Ok((stream, from)) = listener.accept() else {
            sleep_until(monotonic_ns() + PAUSE_NS);
            continue;
        };
        let outcome = if from.ip().to_canonical() == client.to_canonical() {
            stream.set_nonblocking(false).and_then(|()| serve(stream))
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        };
        match outcome {
            Ok(()) => served += 1,
            Err(_) => failed += 1,
        }
    }
}

/// A histogram with a buffer before it, so that taking a sample is one write.
#[derive(Debug)]
pub(crate) struct SampleBuffer {
    waiting: Vec<u64>,
    histogram: Histogram,
}

impl SampleBuffer {
    /// For any number of them.
    pub(crate) fn new() -> Self {
        Self::with_room(ROOM)
    }

    /// For a loop that must not stop to empty its buffer before so many.
    pub(crate) fn with_capacity_for(count: u64) -> Self {
        Self::with_room(usize::try_from(count.clamp(1, ROOM_MAX)).unwrap_or(ROOM))
    }

    fn with_room(room: usize) -> Self {
        // Written once, so that the kernel gives the pages now.
        let mut waiting = vec![1; room];
        waiting.clear();
        Self { waiting, histogram: Histogram::new() }
    }

    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        if self.waiting.len() == self.waiting.capacity() {
            self.flush();
        }
        self.waiting.push(ns);
    }

    fn flush(&mut self) {
        for ns in self.waiting.drain(..) {
            self.histogram.record(ns);
        }
    }

    /// All of them, encoded; nothing where there are none.
    pub(crate) fn encode(mut self) -> Vec<u8> {
        self.flush();
        if self.histogram.is_empty() { Vec::new() } else { self.histogram.encode() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sample_is_lost_however_many_come() {
        let mut samples = SampleBuffer::with_room(16);
        (1..=1_000).for_each(|ns| samples.record(ns));
        let histogram = Histogram::decode(&samples.encode()).unwrap();
        assert_eq!((histogram.len(), histogram.min(), histogram.quantile(0.5)), (1_000, 1, 500));
        assert!(SampleBuffer::new().encode().is_empty());
    }
}
