//! Requests and responses in datagrams; each shows the session's token and its number.
//!
//! A response is never longer than its request and goes only to the one address that has shown the token. What
//! does not come back in time is lost: one after another, the next request is sent then; at even times a thread sends
//! and a thread receives, and no request waits for any other.

use std::collections::VecDeque;
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use std::{io, thread};

use plumb_sys::clock::{ClockId, read_ns};
use plumb_sys::errno::is_transient_datagram;
use plumb_sys::socket::{IntOption, set_option};

use super::closed_loop::{ClosedLoop, SampleBuffer};
use super::open_loop::{OpenResponses, OpenSchedule};
use super::{
    RequestError, RequestPacing, RequestSpec, RequesterReport, ResponderBounds, ResponderReport,
};
use crate::measure::bulk::Counter;
use crate::measure::datagram::sequence_tracker::SequenceTracker;
use crate::measure::pacer::wait_until;
use plumb_clock::monotonic_ns;
use plumb_remote::datagram_header::{
    HEADER_BYTES, TestDatagramHeader, TestDatagramKind, TestToken,
};
use plumb_remote::udp_handshake;

/// Bytes of the shortest request and response: token and number.
pub const BYTES_MIN: u32 = 40;
/// Bytes of the longest: what one datagram of IPv4 carries.
pub const BYTES_MAX: u32 = 65_507;
/// How often the end is said where nobody says that it was heard.
const END_TRIES: u32 = 5;
/// Room for datagrams that come while nobody reads.
const BUFFER_BYTES: i32 = 1 << 20;
/// After how long who receives looks whether it is over.
const LOOK_RECEIVING_NS: u64 = 20_000_000;
/// How long the last responses are waited for, at least.
const LINGER_MIN_NS: u64 = 1_000_000_000;
/// And where none has come.
const LINGER_UNKNOWN_NS: u64 = 2_000_000_000;
/// How long a response is waited for as long as nothing is known about the path.
const UNKNOWN_NS: u64 = 1_000_000_000;
/// At least, once something is known.
const MIN_NS: u64 = 50_000_000;
/// And at most.
const MAX_NS: u64 = 5_000_000_000;
/// The shortest wait that the kernel is asked for: none at all would mean for ever.
const WAIT_MIN_NS: u64 = 1_000;
/// Requests that were given up and may still be answered.
const OVERDUE_MAX: usize = 64;

/// How many times as long as the longest so far a response may take.
const TIMES: u64 = 4;

/// Asks over a connected socket whose peer is ready; `is_over` says whether the time for it has passed.
///
/// # Errors
/// [`RequestError`].
pub fn send_requests(
    socket: &UdpSocket,
    token: &TestToken,
    spec: &RequestSpec,
    progress: &Counter,
    is_over: &dyn Fn() -> bool,
) -> Result<RequesterReport, RequestError> {
    spec.check()?;
    // As large as the kernel allows.
    set_option(socket.as_fd(), IntOption::ReceiveBuffer, BUFFER_BYTES).ok();
    match spec.pacing {
        RequestPacing::Open { per_second } => {
            ask_at_even_times(socket, token, spec, per_second, progress, is_over)
        }
        RequestPacing::Closed | RequestPacing::Connect => {
            ask_in_turn(socket, token, spec, progress, is_over)
        }
    }
}

fn ask_in_turn(
    socket: &UdpSocket,
    token: &TestToken,
    spec: &RequestSpec,
    progress: &Counter,
    is_over: &dyn Fn() -> bool,
) -> Result<RequesterReport, RequestError> {
    let mut request = spec.request();
    let mut buffer = vec![0; BYTES_MAX as usize];
    let mut patience = ResponseTimeout::begin(socket).map_err(RequestError::before_first)?;
    let mut overdue = OverdueRequests::default();
    let mut turns = ClosedLoop::new(spec, progress);
    let mut sequence = 0_u32;
    while let Some(due) = turns.next_request() {
        sequence = sequence.wrapping_add(1);
        TestDatagramHeader::of(TestDatagramKind::Data, 0, sequence, 0).write(token, &mut request);
        let mut came = exchange(socket, token, &request, sequence, &mut buffer);
        // Other datagrams do not restart the wait.
        while let Ok(ReceivedReply::Other(number)) = came {
            if let Some(began) = number.and_then(|number| overdue.take(number)) {
                patience.on_late_response(turns.on_late_response(began));
            }
            came = match patience.wait_remaining(due) {
                Ok(true) => receive_reply(socket, token, sequence, &mut buffer),
                Ok(false) => Ok(ReceivedReply::NoReply),
                Err(error) => Err(error),
            };
        }
        match came {
            Ok(ReceivedReply::Response) => patience.on_response(turns.on_response(due)),
            // Shut down by whoever ends the test.
            Err(_) if is_over() => {
                turns.on_lost(due);
                break;
            }
            Err(error) => return Err(turns.into_error(error)),
            Ok(ReceivedReply::NoReply | ReceivedReply::Other(_)) => {
                turns.on_lost(due);
                overdue.note(sequence, due);
                patience.on_lost();
                if is_over() {
                    break;
                }
            }
        }
        if let Err(error) = patience.restore() {
            return Err(turns.into_error(error));
        }
    }
    Ok(turns.into_report())
}

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReceivedReply {
    /// The response that was waited for.
    Response,
    /// Something else: a response of this number, or nothing of this test.
    Other(Option<u32>),
    /// Nothing in time, or the word that nothing will come.
    NoReply,
}

#[inline]
fn exchange(
    socket: &UdpSocket,
    token: &TestToken,
    request: &[u8],
    sequence: u32,
    buffer: &mut [u8],
) -> io::Result<ReceivedReply> {
    match socket.send(request) {
        Err(error) if is_transient_datagram(&error) => return Ok(ReceivedReply::NoReply),
        other => other?,
    };
    receive_reply(socket, token, sequence, buffer)
}

/// One datagram, or none within the time that the socket waits.
#[inline]
fn receive_reply(
    socket: &UdpSocket,
    token: &TestToken,
    sequence: u32,
    buffer: &mut [u8],
) -> io::Result<ReceivedReply> {
    match socket.recv(buffer) {
        // Shut down by whoever ends the test.
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(len) => {
            let header = TestDatagramHeader::read(token, &buffer[..len]);
            let number =
                header.filter(|it| it.kind == TestDatagramKind::Data).map(|it| it.sequence);
            let is_own = number == Some(sequence);
            Ok(if is_own { ReceivedReply::Response } else { ReceivedReply::Other(number) })
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(ReceivedReply::Other(None)),
        Err(error) if is_transient_datagram(&error) => Ok(ReceivedReply::NoReply),
        Err(error) => Err(error),
    }
}

/// Tells the other side that it is over.
pub fn send_end(socket: &UdpSocket, token: &TestToken) {
    let said = TestDatagramHeader::of(TestDatagramKind::End, 0, 0, 0).to_bytes(token);
    let mut buffer = [0; HEADER_BYTES];
    socket.set_read_timeout(Some(Duration::from_millis(50))).ok();
    for _ in 0..END_TRIES {
        socket.send(&said).ok();
        while let Ok(len @ 1..) = socket.recv(&mut buffer) {
            let header = TestDatagramHeader::read(token, &buffer[..len]);
            if header.is_some_and(|header| header.kind == TestDatagramKind::EndAck) {
                return;
            }
        }
    }
}

/// Answers over a socket that is connected to whoever showed the token, until the end is said or the socket is
/// shut down.
pub(crate) fn respond(
    socket: &UdpSocket,
    token: &TestToken,
    spec: &RequestSpec,
    bounds: ResponderBounds<'_>,
) -> ResponderReport {
    let mut report = ResponderReport::default();
    // As large as the kernel allows: at a rate, several requests may be queued.
    set_option(socket.as_fd(), IntOption::ReceiveBuffer, BUFFER_BYTES).ok();
    let mut buffer = vec![0; BYTES_MAX as usize];
    let mut response = spec.response();
    let (expected, each) = (spec.request_bytes as usize, u64::from(spec.request_bytes) * 2);
    let began_ns = monotonic_ns();
    loop {
        let len = match socket.recv(&mut buffer) {
            Ok(0) => return report,
            Ok(len) => len,
            Err(error) if is_transient_datagram(&error) => continue,
            Err(error) => {
                report.error = Some(error.to_string());
                return report;
            }
        };
        match TestDatagramHeader::read(token, &buffer[..len]) {
            Some(header) if header.kind == TestDatagramKind::Data && len == expected => {
                response[..HEADER_BYTES].copy_from_slice(&buffer[..HEADER_BYTES]);
                if socket.send(&response).is_ok() {
                    report.answered += 1;
                }
                if let Err(error) = bounds.allow(began_ns, report.answered * each) {
                    report.error = Some(error.to_string());
                    return report;
                }
            }
            // A welcome or the word that the end was heard may have been lost.
            Some(header)
                if matches!(header.kind, TestDatagramKind::Hello | TestDatagramKind::End) =>
            {
                if let Some(reply) = udp_handshake::reply_to(token, &buffer[..len]) {
                    socket.send(&reply).ok();
                }
                if header.kind == TestDatagramKind::End {
                    return report;
                }
            }
            _ => report.strange += 1,
        }
    }
}

/// Asks at even times. Where the test is ended early, only requests are judged whose response could have come.
///
/// # Errors
/// [`RequestError`].
fn ask_at_even_times(
    socket: &UdpSocket,
    token: &TestToken,
    spec: &RequestSpec,
    per_second: u32,
    progress: &Counter,
    is_over: &dyn Fn() -> bool,
) -> Result<RequesterReport, RequestError> {
    let look = Duration::from_nanos(LOOK_RECEIVING_NS);
    socket.set_read_timeout(Some(look)).map_err(RequestError::before_first)?;
    let mut schedule = OpenSchedule::new(spec, per_second);
    let mut answers = OpenResponses::of(&schedule);
    let mut lateness = SampleBuffer::with_capacity_for(schedule.counted());
    let mut request = spec.request();
    // Both threads are up before the first request is due.
    schedule.begin();
    let (sent_ns, is_stopped) = (AtomicU64::new(0), AtomicBool::new(false));
    let line = PacedUdpRequester {
        socket,
        token,
        schedule: &schedule,
        sent_ns: &sent_ns,
        is_stopped: &is_stopped,
    };
    let (received, sent, cpu_ns) = thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let cpu = read_ns(ClockId::ThreadCpu);
            plumb_sys::timer::set_timer_slack_ns(1).ok();
            let sent = line.send_due(&mut request, &mut lateness);
            line.is_stopped.store(sent.is_err(), Ordering::Release);
            (sent, read_ns(ClockId::ThreadCpu) - cpu)
        });
        let cpu = read_ns(ClockId::ThreadCpu);
        let received = line.receive(&mut answers, progress, is_over);
        let cpu_received = read_ns(ClockId::ThreadCpu) - cpu;
        is_stopped.store(true, Ordering::Release);
        let (sent, cpu_sent) = sending.join().expect("the sender does not panic");
        (received, sent, cpu_received + cpu_sent)
    });
    let after = answers.all;
    let (judged, received) = match received {
        Ok(judged) => (judged, Ok(())),
        Err((judged, error)) => (judged, Err(error)),
    };
    let is_whole = judged == schedule.total;
    let mut report = schedule.conclude(judged, is_whole, answers, lateness, cpu_ns);
    report.lost = report.due.saturating_sub(report.answered);
    match sent.and(received) {
        // Shut down by whoever ends the test.
        Err(error) if !is_over() => {
            Err(RequestError::Connection { after, error, partial: Box::new(report) })
        }
        _ => Ok(report),
    }
}

struct PacedUdpRequester<'a> {
    socket: &'a UdpSocket,
    token: &'a TestToken,
    schedule: &'a OpenSchedule,
    /// When the last request was sent; 0 before.
    sent_ns: &'a AtomicU64,
    is_stopped: &'a AtomicBool,
}

impl PacedUdpRequester<'_> {
    fn send_due(&self, request: &mut [u8], lateness: &mut SampleBuffer) -> io::Result<()> {
        for index in 0..self.schedule.total {
            let due = self.schedule.due_ns(index);
            // The processor time of a request is counted: nothing is spun away.
            let is_stopped = |_| self.is_stopped.load(Ordering::Relaxed);
            if wait_until(due, 0, is_stopped).is_none() {
                return Ok(());
            }
            // A test of an hour at the highest rate has fewer.
            let number = u32::try_from(index).unwrap_or(u32::MAX);
            TestDatagramHeader::of(TestDatagramKind::Data, 0, number, 0).write(self.token, request);
            match self.socket.send(request) {
                Err(error) if !is_transient_datagram(&error) => return Err(error),
                _ => {}
            }
            if self.schedule.counts(index) {
                lateness.record(monotonic_ns().saturating_sub(due));
            }
        }
        self.sent_ns.store(monotonic_ns(), Ordering::Release);
        Ok(())
    }

    /// Receives until every response has come or those that have not are lost; how many requests are judged, also
    /// where the socket breaks.
    fn receive(
        &self,
        answers: &mut OpenResponses,
        progress: &Counter,
        is_over: &dyn Fn() -> bool,
    ) -> Result<u64, (u64, io::Error)> {
        let total = self.schedule.total;
        let mut account = SequenceTracker::new(total);
        let mut buffer = vec![0; BYTES_MAX as usize];
        let (mut longest_ns, mut look_ns) = (0, 0);
        loop {
            let received = self.socket.recv(&mut buffer);
            let now = monotonic_ns();
            let judged = |account: &SequenceTracker| self.resolved_by(now, longest_ns, account);
            match received {
                // Shut down by whoever ends the test.
                Ok(0) => {
                    return Err((judged(&account), io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(len) => {
                    let header = TestDatagramHeader::read(self.token, &buffer[..len]);
                    if let Some(TestDatagramHeader {
                        kind: TestDatagramKind::Data, sequence, ..
                    }) = header
                        && account.record(sequence).is_new()
                        && now <= self.schedule.due_ns(sequence.into()) + MAX_NS
                    {
                        let took_ns = answers.record(self.schedule, sequence.into(), now);
                        longest_ns = longest_ns.max(took_ns);
                        progress.set(answers.all);
                    }
                }
                Err(error) if is_transient_datagram(&error) => {}
                Err(error) => return Err((judged(&account), error)),
            }
            if account.unique() >= total {
                return Ok(total);
            }
            if now < look_ns {
                continue;
            }
            look_ns = now + LOOK_RECEIVING_NS;
            if is_over() || self.is_stopped.load(Ordering::Acquire) {
                return Ok(self.resolved_by(now, longest_ns, &account));
            }
            let sent_ns = self.sent_ns.load(Ordering::Acquire);
            if sent_ns > 0 && now >= sent_ns + linger_ns(longest_ns) {
                return Ok(total);
            }
        }
    }

    /// How many requests have been answered, or could have been: the others are under way.
    fn resolved_by(&self, now: u64, longest_ns: u64, account: &SequenceTracker) -> u64 {
        let overdue = self.schedule.due_by(now.saturating_sub(linger_ns(longest_ns)));
        overdue.max(account.next())
    }
}

fn linger_ns(longest_ns: u64) -> u64 {
    if longest_ns == 0 { LINGER_UNKNOWN_NS } else { timeout_for(longest_ns, LINGER_MIN_NS) }
}

/// How long what is under way may still take, where the longest so far took this long.
fn timeout_for(longest_ns: u64, min_ns: u64) -> u64 {
    longest_ns.saturating_mul(TIMES).clamp(min_ns, MAX_NS)
}

/// How long a closed loop waits for a response, and the timeout that its socket has for it.
#[derive(Debug)]
struct ResponseTimeout<'a> {
    socket: &'a UdpSocket,
    ns: u64,
    configured_ns: u64,
    longest_ns: u64,
}

impl<'a> ResponseTimeout<'a> {
    /// Of who knows nothing of the path.
    fn begin(socket: &'a UdpSocket) -> io::Result<Self> {
        let mut patience = Self { socket, ns: UNKNOWN_NS, configured_ns: 0, longest_ns: 0 };
        patience.restore()?;
        Ok(patience)
    }

    /// A response took so long.
    #[inline]
    fn on_response(&mut self, took_ns: u64) {
        self.longest_ns = self.longest_ns.max(took_ns);
    }

    /// A response that was given up took so long.
    fn on_late_response(&mut self, took_ns: u64) {
        self.on_response(took_ns);
        self.ns = timeout_for(self.longest_ns, MIN_NS);
    }

    /// A request was given up.
    fn on_lost(&mut self) {
        if self.longest_ns > 0 {
            self.ns = timeout_for(self.longest_ns, MIN_NS);
        }
    }

    /// Has the socket wait for what is left for a request that began at `began_ns`; whether anything is.
    fn wait_remaining(&mut self, began_ns: u64) -> io::Result<bool> {
        let left_ns = began_ns.saturating_add(self.ns).saturating_sub(monotonic_ns());
        if left_ns > 0 {
            self.configure(left_ns)?;
        }
        Ok(left_ns > 0)
    }

    /// Has the socket wait for a whole patience again.
    #[inline]
    fn restore(&mut self) -> io::Result<()> {
        if self.configured_ns == self.ns { Ok(()) } else { self.configure(self.ns) }
    }

    fn configure(&mut self, ns: u64) -> io::Result<()> {
        self.socket.set_read_timeout(Some(Duration::from_nanos(ns.max(WAIT_MIN_NS))))?;
        self.configured_ns = ns;
        Ok(())
    }
}

/// Requests that were given up, the last so many, each until its response comes.
#[derive(Debug, Default)]
struct OverdueRequests {
    requests: VecDeque<(u32, u64)>,
}

impl OverdueRequests {
    /// Request `number`, which began at `began_ns`, is waited for no longer.
    fn note(&mut self, number: u32, began_ns: u64) {
        if self.requests.len() == OVERDUE_MAX {
            self.requests.pop_front();
        }
        self.requests.push_back((number, began_ns));
    }

    /// When the request of this number began, where it was given up; once.
    fn take(&mut self, number: u32) -> Option<u64> {
        let at = self.requests.iter().position(|request| request.0 == number)?;
        self.requests.remove(at).map(|request| request.1)
    }
}

#[cfg(test)]
mod tests;
