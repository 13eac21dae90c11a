//! Requests in datagrams at even times: a thread sends and a thread receives, and each response is known by its
//! number, so that one that is lost delays no other.
//!
//! Left out: who answers (`super::answer`).

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use plumb_sys::clock::{ClockId, read_ns};

use super::{BYTES_MAX, response_timeout};
use crate::measure::bulk::Counter;
use crate::measure::datagram::sequence_tracker::{SequenceStatus, SequenceTracker};
use crate::measure::pacer::wait_until;
use crate::measure::request_response::buffered_histogram::BufferedHistogram;
use crate::measure::request_response::open_loop_schedule::{OpenLoopResponses, OpenLoopSchedule};
use crate::measure::request_response::{
    RequestResponseError, RequestResponseSpec, RequesterReport,
};
use plumb_clock::monotonic_ns;
use plumb_remote::datagram_header::{TestDatagramHeader, TestDatagramKind, TokenBytes};
use plumb_remote::udp_handshake::is_transient;

/// After how long who receives looks whether it is over.
const LOOK_RECEIVING_NS: u64 = 20_000_000;
/// How long the last responses are waited for, at least.
const LINGER_MIN_NS: u64 = 1_000_000_000;
/// And where none has come.
const LINGER_UNKNOWN_NS: u64 = 2_000_000_000;

/// Asks at even times. Where the test is ended early, only requests are judged whose response could have come.
///
/// # Errors
/// [`RequestResponseError`].
pub(super) fn send_requests(
    socket: &UdpSocket,
    token: &TokenBytes,
    spec: &RequestResponseSpec,
    per_second: u32,
    progress: &Counter,
    is_over: &dyn Fn() -> bool,
) -> Result<RequesterReport, RequestResponseError> {
    let look = Duration::from_nanos(LOOK_RECEIVING_NS);
    socket.set_read_timeout(Some(look)).map_err(RequestResponseError::before_first)?;
    let mut schedule = OpenLoopSchedule::new(spec, per_second);
    let mut answers = OpenLoopResponses::of(&schedule);
    let mut lateness = BufferedHistogram::with_capacity_for(schedule.counted());
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
    let after = answers.all();
    let (judged, received) = match received {
        Ok(judged) => (judged, Ok(())),
        Err(PacedReceiveError { resolved: judged, error }) => (judged, Err(error)),
    };
    let is_whole = judged == schedule.total();
    let mut report = schedule.conclude(judged, is_whole, answers, lateness, cpu_ns);
    report.lost = report.due.saturating_sub(report.answered);
    match sent.and(received) {
        // Shut down by whoever ends the test.
        Err(error) if !is_over() => {
            Err(RequestResponseError::Connection { after, error, partial: Box::new(report) })
        }
        _ => Ok(report),
    }
}

struct PacedUdpRequester<'a> {
    socket: &'a UdpSocket,
    token: &'a TokenBytes,
    schedule: &'a OpenLoopSchedule,
    /// When the last request was sent; 0 before.
    sent_ns: &'a AtomicU64,
    is_stopped: &'a AtomicBool,
}

/// A socket that broke.
struct PacedReceiveError {
    resolved: u64,
    error: io::Error,
}

impl PacedUdpRequester<'_> {
    fn send_due(&self, request: &mut [u8], lateness: &mut BufferedHistogram) -> io::Result<()> {
        for index in 0..self.schedule.total() {
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
                Err(error) if !is_transient(&error) => return Err(error),
                _ => {}
            }
            if self.schedule.counts(index) {
                lateness.record(monotonic_ns().saturating_sub(due));
            }
        }
        self.sent_ns.store(monotonic_ns(), Ordering::Release);
        Ok(())
    }

    /// Receives until every response has come or those that have not are lost; how many requests are judged.
    fn receive(
        &self,
        answers: &mut OpenLoopResponses,
        progress: &Counter,
        is_over: &dyn Fn() -> bool,
    ) -> Result<u64, PacedReceiveError> {
        let total = self.schedule.total();
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
                    let error = io::ErrorKind::UnexpectedEof.into();
                    return Err(PacedReceiveError { resolved: judged(&account), error });
                }
                Ok(len) => {
                    let header = TestDatagramHeader::read(self.token, &buffer[..len]);
                    if let Some(TestDatagramHeader {
                        kind: TestDatagramKind::Data, sequence, ..
                    }) = header
                        && is_new(account.record(sequence))
                        && now <= self.schedule.due_ns(sequence.into()) + response_timeout::MAX_NS
                    {
                        let took_ns = answers.record(self.schedule, sequence.into(), now);
                        longest_ns = longest_ns.max(took_ns);
                        progress.set(answers.all());
                    }
                }
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(PacedReceiveError { resolved: judged(&account), error }),
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

const fn is_new(verdict: SequenceStatus) -> bool {
    matches!(verdict, SequenceStatus::InOrder | SequenceStatus::Late { .. })
}

fn linger_ns(longest_ns: u64) -> u64 {
    if longest_ns == 0 {
        LINGER_UNKNOWN_NS
    } else {
        response_timeout::timeout_for(longest_ns, LINGER_MIN_NS)
    }
}
