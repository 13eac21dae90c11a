//! Requests at even times over one stream of QUIC, whatever comes back: one half sends, the other reads.
//!
//! The runtime's own timer counts in milliseconds, so a timer of the kernel's wakes who sends. Left out: how the
//! stream came to be.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use plumb_sys::clock::{ClockId, read_ns};
use plumb_sys::timer::TimerFd;
use quinn::{RecvStream, SendStream};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::measure::bulk::Counter;
use crate::measure::request_response::closed_loop::SampleBuffer;
use crate::measure::request_response::open_loop::{OpenResponses, OpenSchedule, finish};
use crate::measure::request_response::{RequestError, RequestSpec, RequesterReport};
use plumb_clock::monotonic_ns;

/// After how long it is looked whether the test is over.
const STOP_POLL: Duration = Duration::from_millis(50);

/// Asks at even times; `is_over` says whether the time for it has passed.
pub(super) async fn send_requests(
    send: &mut SendStream,
    receive: &mut RecvStream,
    spec: &RequestSpec,
    per_second: u32,
    progress: &Counter,
    is_over: &dyn Fn() -> bool,
) -> Result<RequesterReport, RequestError> {
    let alarm = TimerFd::new().and_then(registered).map_err(RequestError::before_first)?;
    let (request, mut response) = (spec.request(), spec.response());
    let mut schedule = OpenSchedule::new(spec, per_second);
    let mut answers = OpenResponses::of(&schedule);
    let mut lateness = SampleBuffer::with_capacity_for(schedule.counted());
    let cpu = read_ns(ClockId::ThreadCpu);
    schedule.begin();
    let outcome = {
        let sending = send_due(send, &request, &alarm, &schedule, &mut lateness);
        let receiving = receive_due(receive, &mut response, &schedule, &mut answers, progress);
        until_answered(sending, receiving, until_stopped(is_over)).await
    };
    let cpu_ns = read_ns(ClockId::ThreadCpu) - cpu;
    finish(&schedule, outcome, answers, lateness, cpu_ns, is_over)
}

/// Until everything is received, or anything breaks, or it is over.
async fn until_answered(
    sending: impl Future<Output = io::Result<()>>,
    receiving: impl Future<Output = io::Result<()>>,
    over: impl Future<Output = ()>,
) -> io::Result<()> {
    let (mut sending, mut receiving, mut over) = (pin!(sending), pin!(receiving), pin!(over));
    let mut is_sent = false;
    poll_fn(|context| {
        if let Poll::Ready(received) = receiving.as_mut().poll(context) {
            return Poll::Ready(received);
        }
        if !is_sent && let Poll::Ready(sent) = sending.as_mut().poll(context) {
            is_sent = true;
            if sent.is_err() {
                return Poll::Ready(sent);
            }
        }
        over.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    })
    .await
}

async fn until_stopped(is_over: &dyn Fn() -> bool) {
    while !is_over() {
        tokio::time::sleep(STOP_POLL).await;
    }
}

async fn send_due(
    send: &mut SendStream,
    request: &[u8],
    alarm: &AsyncFd<TimerFd>,
    schedule: &OpenSchedule,
    lateness: &mut SampleBuffer,
) -> io::Result<()> {
    for index in 0..schedule.total {
        let due = schedule.due_ns(index);
        if monotonic_ns() >= due {
            // Late: lets the connection send what it has, and read.
            tokio::task::yield_now().await;
        } else {
            wait_until(alarm, due).await?;
        }
        send.write_all(request).await?;
        if schedule.counts(index) {
            lateness.record(monotonic_ns().saturating_sub(due));
        }
    }
    Ok(())
}

#[expect(deprecated, reason = "safe for an alarm, which owns its descriptor until it is dropped")]
fn registered(alarm: TimerFd) -> io::Result<AsyncFd<TimerFd>> {
    AsyncFd::with_interest(alarm, Interest::READABLE)
}

async fn wait_until(alarm: &AsyncFd<TimerFd>, until_ns: u64) -> io::Result<()> {
    loop {
        let left_ns = until_ns.saturating_sub(monotonic_ns());
        if left_ns == 0 {
            return Ok(());
        }
        alarm.get_ref().set(left_ns)?;
        alarm.readable().await?.clear_ready();
    }
}

async fn receive_due(
    receive: &mut RecvStream,
    response: &mut [u8],
    schedule: &OpenSchedule,
    answers: &mut OpenResponses,
    progress: &Counter,
) -> io::Result<()> {
    for index in 0..schedule.total {
        receive.read_exact(response).await.map_err(io::Error::other)?;
        answers.record(schedule, index, monotonic_ns());
        progress.set(answers.all);
    }
    Ok(())
}
