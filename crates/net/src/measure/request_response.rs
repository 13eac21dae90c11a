//! Requests and responses: one after another, at a rate whatever comes back, and each over a connection of
//! its own.
//!
//! At a rate, a request's time begins when it was due, not when there was room for it, so a stall counts
//! for every request that it held up. Whoever has to end a blocked exchange shuts its socket down: nothing but the
//! exchange itself is done in its loops. Left out: how the two sides find each other ([`endpoint`]), and
//! encryption ([`super::tls`], [`super::quic`]).

use std::io::{self, Read, Write};

use plumb_base::stats::histogram::Histogram;
use serde::{Deserialize, Serialize};

pub mod closed_loop;
pub mod endpoint;
pub mod open_loop;
pub mod udp;

#[cfg(test)]
pub(super) mod relay;
#[cfg(test)]
pub(super) mod tests;

use super::bulk::Counter;
use super::pacer::{Pacer, wait_until};
use closed_loop::ClosedLoop;
use plumb_clock::monotonic_ns;

/// Longest request or response.
pub const MESSAGE_BYTES_MAX: u32 = 1 << 20;
/// Most requests a second that may be asked for.
pub const PER_SECOND_MAX: u32 = 1_000_000;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestSpec {
    /// Bytes of a request, at least 1.
    pub request_bytes: u32,
    /// Bytes of a response, at least 1.
    pub response_bytes: u32,
    /// When requests are sent.
    pub pacing: RequestPacing,
    /// Time at the beginning that is not counted.
    pub warm_up_ns: u64,
    /// Time that counts, after the warm-up.
    pub duration_ns: u64,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestPacing {
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

/// Its result, as the side that asked saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequesterReport {
    /// Requests that were due in the time that counts; of datagrams of a test that was ended early, those whose
    /// response could have come.
    pub due: u64,
    /// Of them, those that were answered.
    pub answered: u64,
    /// Of them, those whose request or response was lost on the way: datagrams only.
    pub lost: u64,
    /// From the due time (at closed loop: from the sending) until the whole response was read.
    /// Nanoseconds, HdrHistogram V2.
    pub latency: Vec<u8>,
    /// How late requests had been given to the kernel, at open loop. Nanoseconds, HdrHistogram V2.
    pub lateness: Vec<u8>,
    /// Time until a connection could be used, with its encryption: of each, or of the one.
    /// Nanoseconds, HdrHistogram V2.
    pub connect: Vec<u8>,
    /// Time that counted: what was asked for, and more where that did not suffice; at open loop until the last response
    /// was read, without the least that any took.
    pub counted_ns: u64,
    /// Processor time of the threads that asked, without interrupts.
    pub cpu_ns: u64,
    /// Requests that this processor time is of.
    pub cpu_requests: u64,
    /// What broke.
    pub error: Option<String>,
}

/// Its result, as the side that answered saw it, with the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponderReport {
    /// Requests that were answered.
    pub answered: u64,
    /// Processor time of the thread that answered, without interrupts.
    pub cpu_ns: u64,
    /// Datagrams and connections that did not show the token or made no sense.
    pub strange: u64,
    /// What broke.
    pub error: Option<String>,
}

/// A test that cannot be, or that broke.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
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
        /// What had been measured.
        partial: Box<RequesterReport>,
    },
    /// Requests at a rate that is not carried.
    #[error(
        "only {after} responses had come when the time for what is under way was over: the path or a host does not \
         carry so many; ask for fewer a second, or wait longer for them (--drain-timeout)"
    )]
    Unfinished {
        /// Responses until then.
        after: u64,
        /// What had been measured.
        partial: Box<RequesterReport>,
    },
}

impl RequestError {
    /// One that broke before anything was measured.
    pub fn before_first(error: io::Error) -> Self {
        Self::Connection { after: 0, error, partial: Box::default() }
    }

    /// What had been measured, with the error in it.
    pub fn into_partial(self) -> RequesterReport {
        let error = Some(self.to_string());
        match self {
            Self::Spec(_) => RequesterReport { error, ..RequesterReport::default() },
            Self::Connection { partial, .. } | Self::Unfinished { partial, .. } => {
                RequesterReport { error, ..*partial }
            }
        }
    }
}

impl RequestSpec {
    /// Whether it can be done.
    ///
    /// # Errors
    /// [`RequestError::Spec`].
    pub const fn check(&self) -> Result<(), RequestError> {
        let most = MESSAGE_BYTES_MAX;
        if self.request_bytes == 0 || self.request_bytes > most {
            return Err(RequestError::Spec("requests have 1 B to 1 MiB"));
        }
        if self.response_bytes == 0 || self.response_bytes > most {
            return Err(RequestError::Spec("responses have 1 B to 1 MiB"));
        }
        if let RequestPacing::Open { per_second } = self.pacing
            && (per_second == 0 || per_second > PER_SECOND_MAX)
        {
            return Err(RequestError::Spec("there are 1 to 1,000,000 requests a second"));
        }
        if self.duration_ns == 0 || self.end_ns() > 3_600_000_000_000 {
            return Err(RequestError::Spec("a test lasts longer than nothing and up to an hour"));
        }
        Ok(())
    }

    const fn end_ns(&self) -> u64 {
        self.warm_up_ns.saturating_add(self.duration_ns)
    }

    pub(super) fn request(&self) -> Vec<u8> {
        vec![0x71; self.request_bytes as usize]
    }

    pub(super) fn response(&self) -> Vec<u8> {
        vec![0x61; self.response_bytes as usize]
    }
}

/// Asks over anything that reads and writes, each request after the response to the one before.
///
/// # Errors
/// [`RequestError`].
pub fn request_in_turn(
    stream: &mut (impl Read + Write),
    spec: &RequestSpec,
    progress: &Counter,
) -> Result<RequesterReport, RequestError> {
    spec.check()?;
    let (request, mut response) = (spec.request(), spec.response());
    let mut turns = ClosedLoop::new(spec, progress);
    while let Some(due) = turns.next_request() {
        let asked = stream
            .write_all(&request)
            .and_then(|()| stream.flush())
            .and_then(|()| stream.read_exact(&mut response));
        if let Err(error) = asked {
            return Err(turns.into_error(error));
        }
        turns.on_response(due);
    }
    Ok(turns.into_report())
}

/// A report of requests over one connection, which took so long to stand.
pub(super) fn with_connect_time(report: RequesterReport, connect_ns: u64) -> RequesterReport {
    let mut connect = Histogram::new();
    connect.record(connect_ns);
    RequesterReport { connect: connect.encode(), ..report }
}

/// What the answering side must not go beyond.
#[derive(Clone, Copy)]
pub(crate) struct ResponderBounds<'a> {
    /// The most that it takes or gives, in bytes a second.
    pub(crate) bytes_per_second: Option<u64>,
    /// Whether the test is over, which ends a wait for the rate.
    pub(crate) is_over: &'a dyn Fn() -> bool,
}

impl ResponderBounds<'_> {
    /// Waits as the rate demands after `bytes` since `began_ns`.
    ///
    /// # Errors
    /// TimedOut where the test was over before.
    fn allow(&self, began_ns: u64, bytes: u64) -> io::Result<()> {
        let Some(rate) = self.bytes_per_second else { return Ok(()) };
        let due_ns = Pacer::new(began_ns, rate).due_ns(bytes);
        // One message at a low rate may be due long after the test.
        if monotonic_ns() < due_ns && wait_until(due_ns, 0, |_| (self.is_over)()).is_none() {
            let why = "the test went on beyond its deadline";
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        Ok(())
    }
}

/// Answers over anything that reads and writes, until it ends; counts in `answered`.
///
/// # Errors
/// The connection's, and that the test was over.
pub(crate) fn respond_in_turn(
    stream: &mut (impl Read + Write),
    spec: &RequestSpec,
    bounds: ResponderBounds<'_>,
    answered: &mut u64,
) -> io::Result<()> {
    let checked = spec.check();
    checked.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    let (mut request, response) = (spec.request(), spec.response());
    let each = u64::from(spec.request_bytes) + u64::from(spec.response_bytes);
    let began_ns = monotonic_ns();
    loop {
        // The end is only an end between two requests.
        let first = stream.read(&mut request)?;
        if first == 0 {
            return Ok(());
        }
        if first < request.len() {
            stream.read_exact(&mut request[first..])?;
        }
        stream.write_all(&response)?;
        stream.flush()?;
        *answered += 1;
        bounds.allow(began_ns, *answered * each)?;
    }
}
