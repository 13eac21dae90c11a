//! A link seen from outside: datagrams of plain kernel sockets, sent and received by the same clock.
//!
//! Nothing of plumb's own stack or driver takes part: an independent sender notes when it sends, the
//! kernel when each datagram is received, in real time, which is all that the kernel has for it. Moments are waited for by
//! the clock that only rises, and where real time was set meanwhile there is no result.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, thread};

use plumb_base::time::Span;
use plumb_sys::clock::{ClockId, read_ns};
use plumb_sys::datagram::{enable_receive_timestamps, receive_with_timestamp};
use plumb_sys::socket::{IntOption, receive_drops, set_option};
use plumb_sys::timer::{set_timer_slack_ns, sleep_ns};

use crate::emulator::check::LinkCheckError;
use crate::emulator::timing::Lateness;
use crate::lab::TestBed;

/// Bytes of a datagram that are used: its number.
pub const PAYLOAD_MIN: usize = 8;
/// Bytes of Ethernet, IPv4 and UDP headers around the payload.
pub const HEADERS: usize = 14 + 20 + 8;

/// Room for datagrams that were received and not yet read.
const RECEIVE_BUFFER: i32 = 32 << 20;
/// The last stretch before a moment is spun, in nanoseconds.
const SPIN: u64 = 60_000;
/// A smaller step of real time is one that would be seen in no delay.
const CLOCK_STEP_MIN_NS: u64 = 50_000;
/// How often the clocks are compared while datagrams are sent, in nanoseconds.
const CLOCK_CHECK_MARGIN_NS: u64 = 50_000_000;
/// How late a sender may be that is still waited for: one that died says nothing.
const RECEIVE_GRACE: Span = Span::from_secs(30);
/// The moment of a sender's end, before there is one.
const STILL_SENDING: u64 = u64::MAX;
/// No room in a device's queue.
const ENOBUFS: i32 = 105;

/// What one direction is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeTraffic {
    /// Bytes of payload of each datagram; at least [`PAYLOAD_MIN`].
    pub payload: usize,
    /// When each is sent, since the beginning; not decreasing.
    pub send_times: Vec<Span>,
    /// Datagrams whose time has not come by then are not sent any more.
    pub until: Span,
    /// How late the sender may be and still catch up: when it is later, all that follows is sent by as
    /// much later, so that it never sends more at once than what would fill the link again.
    pub slack: Span,
    /// How long to wait for the last, after it was sent.
    pub last_wait: Span,
    /// For how long nothing may come before what is missing then counts as lost: a link whose driver was
    /// preempted is behind by that, and has not lost what it still sends.
    pub silence_max: Span,
}

/// A datagram that was sent: the clock before and after, in nanoseconds of real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeSendTimes {
    /// Before the call.
    pub before_call_ns: u64,
    /// After it.
    pub after_call_ns: u64,
}

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedProbe {
    /// Which of those sent, from 0.
    pub number: u32,
    /// When the kernel had it, in nanoseconds of real time.
    pub at_ns: u64,
}

/// What was seen of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedTraffic {
    /// In the order of sending.
    pub sent: Vec<ProbeSendTimes>,
    /// In the order of reception.
    pub received: Vec<ReceivedProbe>,
    /// Datagrams that reached the receiving socket and found no room there.
    pub overrun: u32,
    /// How late the link's driver says that it was meanwhile, where it was asked.
    pub lateness: Lateness,
}

fn socket_error(what: &'static str) -> impl Fn(io::Error) -> LinkCheckError {
    move |source| LinkCheckError::Failed(format!("cannot {what} a socket of the check: {source}"))
}

fn died<T>(_: T) -> LinkCheckError {
    let why = "a thread of the check ended early, which is a bug of plumb";
    LinkCheckError::Failed(why.to_owned())
}

/// Sends `up` from the near side to the far one, and `down` back, both at the same time, and waits
/// for what arrives.
///
/// # Errors
/// No namespace, no socket, or the clock was set meanwhile.
pub fn exchange(
    bed: &TestBed,
    up: Option<&ProbeTraffic>,
    down: Option<&ProbeTraffic>,
) -> Result<[ObservedTraffic; 2], LinkCheckError> {
    let (near, far) =
        (bed.in_near(|| socket(TestBed::NEAR_V4))??, bed.in_far(|| socket(TestBed::FAR_V4))??);
    let (to_far, to_near) = (address(&far)?, address(&near)?);
    let clocks = RealtimeReading::read();
    let ended = [const { AtomicU64::new(STILL_SENDING) }; 2];
    let [up_ended, down_ended] = &ended;
    let seen = thread::scope(|scope| -> Result<_, LinkCheckError> {
        let receivers = [(up, &far, up_ended), (down, &near, down_ended)];
        let receivers = receivers.map(|(traffic, socket, ended)| {
            traffic.map(|traffic| scope.spawn(move || receive(socket, traffic, ended)))
        });
        let senders = [(up, &near, to_far, up_ended), (down, &far, to_near, down_ended)];
        let senders = senders.map(|(traffic, socket, to, ended)| {
            traffic.map(|traffic| {
                scope.spawn(move || {
                    let sent = send(socket, to, traffic);
                    ended.store(read_ns(ClockId::Monotonic), Ordering::Release);
                    sent
                })
            })
        });
        let mut seen = [ObservedTraffic::default(), ObservedTraffic::default()];
        for (seen, sender) in seen.iter_mut().zip(senders) {
            if let Some(sender) = sender {
                seen.sent = sender.join().map_err(died)??;
            }
        }
        for (seen, receiver) in seen.iter_mut().zip(receivers) {
            if let Some(receiver) = receiver {
                (seen.received, seen.overrun) = receiver.join().map_err(died)??;
            }
        }
        Ok(seen)
    })?;
    clocks.check_not_stepped(&RealtimeReading::read())?;
    Ok(seen)
}

/// What real time was when the clock that only rises was read, and how far apart the two may have been read.
#[derive(Clone, Copy, Debug)]
struct RealtimeReading {
    monotonic_ns: u64,
    realtime_ns: u64,
    uncertainty_ns: u64,
}

impl RealtimeReading {
    /// The best of a few tries: one between whose readings this thread was preempted is worth little.
    fn read() -> Self {
        let tries = (0..8).map(|_| {
            let before = read_ns(ClockId::Monotonic);
            let real = read_ns(ClockId::Realtime);
            let apart = read_ns(ClockId::Monotonic).saturating_sub(before);
            Self { monotonic_ns: before, realtime_ns: real, uncertainty_ns: apart }
        });
        tries.min_by_key(|tried| tried.uncertainty_ns).expect("eight tries")
    }

    /// Whether real time went on as it should from here to there: it may be steered by a thousandth, and not be set.
    fn check_not_stepped(&self, later: &Self) -> Result<(), LinkCheckError> {
        let gone = later.monotonic_ns.saturating_sub(self.monotonic_ns);
        let should = self.realtime_ns.saturating_add(gone);
        let allowed = gone / 1_000 + self.uncertainty_ns + later.uncertainty_ns + CLOCK_STEP_MIN_NS;
        let by = should.abs_diff(later.realtime_ns);
        if by <= allowed {
            return Ok(());
        }
        Err(LinkCheckError::Failed(format!(
            "the machine's clock was set by {} while the check ran, so that no delay can be told; run \
             it again",
            Span::from_ns(by)
        )))
    }
}

fn socket(address: Ipv4Addr) -> Result<UdpSocket, LinkCheckError> {
    let socket = UdpSocket::bind((address, 0)).map_err(socket_error("open"))?;
    enable_receive_timestamps(socket.as_fd()).map_err(socket_error("time"))?;
    let forced = set_option(socket.as_fd(), IntOption::ReceiveBufferForce, RECEIVE_BUFFER);
    if forced.is_err() {
        // Without the rights of the machine's own root there is less room, and the kernel counts
        // what finds none.
        let option = IntOption::ReceiveBuffer;
        set_option(socket.as_fd(), option, RECEIVE_BUFFER).map_err(socket_error("make room in"))?;
    }
    let patience = Some(std::time::Duration::from_millis(20));
    socket.set_read_timeout(patience).map_err(socket_error("set up"))?;
    Ok(socket)
}

fn address(socket: &UdpSocket) -> Result<SocketAddr, LinkCheckError> {
    socket.local_addr().map_err(socket_error("name"))
}

fn send(
    socket: &UdpSocket,
    to: SocketAddr,
    traffic: &ProbeTraffic,
) -> Result<Vec<ProbeSendTimes>, LinkCheckError> {
    let fault = socket_error("send through");
    // Sleeps that end late are spun through, so without this only precision is lost.
    set_timer_slack_ns(1).ok();
    socket.connect(to).map_err(&fault)?;
    let mut payload = vec![0; traffic.payload.max(PAYLOAD_MIN)];
    let mut sent = Vec::with_capacity(traffic.send_times.len());
    let mut clocks = RealtimeReading::read();
    let begin = read_ns(ClockId::Monotonic);
    let mut pace = ProbePacer { start: begin, slack: traffic.slack.as_ns() };
    for (number, moment) in (0_u32..).zip(&traffic.send_times) {
        let due = pace.due(*moment);
        if due > clocks.monotonic_ns + CLOCK_CHECK_MARGIN_NS {
            // While there is time before the next one.
            let now = RealtimeReading::read();
            clocks.check_not_stepped(&now)?;
            clocks = now;
        }
        let now = wait_until(due);
        if now > begin + traffic.until.as_ns() {
            break;
        }
        pace.delay_rest(due, now);
        payload[..4].copy_from_slice(&number.to_be_bytes());
        let begun = read_ns(ClockId::Realtime);
        match socket.send(&payload) {
            Ok(_) => {}
            // A device's queue is full: as lost as if the link had lost it, and its driver counts it.
            Err(error) if error.raw_os_error() == Some(ENOBUFS) => {}
            Err(error) => return Err(fault(error)),
        }
        sent.push(ProbeSendTimes {
            before_call_ns: begun,
            after_call_ns: read_ns(ClockId::Realtime),
        });
    }
    Ok(sent)
}

/// When datagrams are due, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct ProbePacer {
    start: u64,
    slack: u64,
}

impl ProbePacer {
    fn due(&self, moment: Span) -> u64 {
        self.start + moment.as_ns()
    }

    /// What was due is sent now: later than one may catch up with, the rest is due later too.
    fn delay_rest(&mut self, due: u64, now: u64) {
        self.start += now.saturating_sub(due).saturating_sub(self.slack);
    }
}

/// Waits, asleep and then spinning; the time it then is.
fn wait_until(due: u64) -> u64 {
    loop {
        let now = read_ns(ClockId::Monotonic);
        match due.saturating_sub(now) {
            0 => return now,
            left if left > SPIN => {
                sleep_ns(left - SPIN);
            }
            _ => std::hint::spin_loop(),
        }
    }
}

/// Frames that arrive, and how many found no room.
fn receive(
    socket: &UdpSocket,
    traffic: &ProbeTraffic,
    ended: &AtomicU64,
) -> Result<(Vec<ReceivedProbe>, u32), LinkCheckError> {
    // From the sender's own end on, however late that one was: it ends by itself, at `until` at the latest.
    let begin = read_ns(ClockId::Monotonic);
    let worst = begin + (traffic.until + traffic.last_wait + RECEIVE_GRACE).as_ns();
    let is_over = |last: u64| {
        let now = read_ns(ClockId::Monotonic);
        match ended.load(Ordering::Acquire) {
            STILL_SENDING => now >= worst,
            ended => {
                let rest =
                    (ended + traffic.last_wait.as_ns()).max(last + traffic.silence_max.as_ns());
                now >= rest.min(worst)
            }
        }
    };
    let mut last = begin;
    let mut received = Vec::with_capacity(traffic.send_times.len());
    let mut missing: std::collections::BTreeSet<u32> =
        (0_u32..).zip(&traffic.send_times).map(|(number, _)| number).collect();
    let mut buffer = vec![0; traffic.payload.max(PAYLOAD_MIN)];
    while !missing.is_empty() && !is_over(last) {
        match receive_with_timestamp(socket.as_fd(), &mut buffer) {
            Ok((len, at)) => {
                last = read_ns(ClockId::Monotonic);
                if let Some(number) = buffer[..len].first_chunk() {
                    let number = u32::from_be_bytes(*number);
                    let at = at.unwrap_or_else(|| read_ns(ClockId::Realtime));
                    received.push(ReceivedProbe { number, at_ns: at });
                    missing.remove(&number);
                }
            }
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(socket_error("receive through")(error)),
        }
    }
    Ok((received, receive_drops(socket.as_fd()).map_err(socket_error("ask"))?))
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(count: u64) -> ProbeTraffic {
        ProbeTraffic {
            payload: PAYLOAD_MIN,
            send_times: (0..count).map(|number| Span::from_ms(1) * number).collect(),
            until: Span::from_secs(10),
            slack: Span::from_ms(3),
            last_wait: Span::from_ms(5),
            silence_max: Span::from_secs(20),
        }
    }

    #[test]
    fn what_a_link_still_sends_is_waited_for_however_far_behind_it_is() {
        let local = (Ipv4Addr::LOCALHOST, 0);
        let (link, receiver) = (UdpSocket::bind(local).unwrap(), UdpSocket::bind(local).unwrap());
        receiver.set_read_timeout(Some(std::time::Duration::from_millis(20))).unwrap();
        let traffic = traffic(50);
        let to = receiver.local_addr().unwrap();
        let ended = AtomicU64::new(read_ns(ClockId::Monotonic));
        let (received, _) = thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(&receiver, &traffic, &ended).unwrap());
            // The sender ended long ago, and what it sent comes half a second later.
            sleep_ns(500_000_000);
            for number in 0..50_u32 {
                let payload = [number.to_be_bytes(), [0; 4]].concat();
                link.send_to(&payload, to).unwrap();
                sleep_ns(2_000_000);
            }
            receiver.join().unwrap()
        });
        assert_eq!(received.len(), 50);
    }

    #[test]
    fn what_does_not_come_is_waited_for_no_longer_than_that() {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        receiver.set_read_timeout(Some(std::time::Duration::from_millis(1))).unwrap();
        let traffic = ProbeTraffic { silence_max: Span::from_ms(5), ..traffic(50) };
        let ended = AtomicU64::new(read_ns(ClockId::Monotonic));
        let before = read_ns(ClockId::Monotonic);
        assert_eq!(receive(&receiver, &traffic, &ended).unwrap(), (Vec::new(), 0));
        // It would not end before the sender may have died otherwise.
        assert!(read_ns(ClockId::Monotonic) - before < RECEIVE_GRACE.as_ns());
    }

    #[test]
    fn a_sender_that_was_put_aside_catches_up_with_what_the_link_has_sent_and_no_more() {
        let (ms, moment) = (1_000_000, |ms| Span::from_ms(ms));
        let mut pace = ProbePacer { start: 7 * ms, slack: 3 * ms };
        pace.delay_rest(pace.due(moment(100)), 109 * ms);
        assert_eq!(pace.due(moment(101)), 108 * ms, "two milliseconds late is within the slack");
        // Half a second later than due.
        pace.delay_rest(pace.due(moment(101)), 608 * ms);
        assert_eq!(pace.due(moment(104)), 608 * ms, "three milliseconds' worth at once");
        assert_eq!(pace.due(moment(105)), 609 * ms);
        pace.delay_rest(pace.due(moment(105)), 609 * ms);
        assert_eq!(pace.due(moment(106)), 610 * ms);
    }

    #[test]
    fn a_clock_that_is_set_is_noticed_and_one_that_is_steered_or_read_late_is_not() {
        let second = 1_000_000_000;
        let clocks = |rising: u64, real: u64, apart| RealtimeReading {
            monotonic_ns: rising,
            realtime_ns: real,
            uncertainty_ns: apart,
        };
        let begin = clocks(5 * second, 100 * second, 100);
        for (real, apart, set) in [
            (110 * second, 100, false),
            (110 * second + 5_000_000, 100, false),
            (110 * second + 20_000_000, 100, true),
            (109 * second, 100, true),
            (110 * second + 20_000_000, 30_000_000, false),
            (90 * second, 100, true),
        ] {
            let result = begin.check_not_stepped(&clocks(15 * second, real, apart));
            assert_eq!(result.is_err(), set, "{real} {apart}: {result:?}");
        }
        RealtimeReading::read().check_not_stepped(&RealtimeReading::read()).unwrap();
    }
}
