//! The session-sender: asks at a pace, hears the answers on a thread of their own, and waits for the last.
//!
//! Times of reception are the kernel's. Round trips are by a clock that is never set; the times in packets are by
//! the real-time clock, as the protocol has it, so that a step of either side's is seen as one. Left out: what the
//! numbers come to ([`super::report`]).

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use plumb_base::time::Span;
use plumb_result::stamp::{StampEnding, StampSession, TimestampFormat};
use plumb_sys::clock::{ClockId, read_ns};
use plumb_sys::datagram::{DatagramOption, ReceiveBatch, ReceivedDatagram, enable_option, set_ttl};
use plumb_sys::errno::{is_queue_full, is_transient_datagram};
use plumb_sys::timer;

use super::packet::{self, ErrorEstimate, StampAnswer, StampKey, StampPacketError, StampQuestion};
use super::report::{self, StampReply};
use super::tlv::{self, TlvFlagCounts};
use plumb_clock::ReceiveTimestamps;
use plumb_net::measure::datagram::sequence_tracker::SequenceTracker;
use plumb_net::measure::pacer::{SPIN_NS, wait_until};

/// Questions of one session at most: what their times take is kept until the end.
pub const COUNT_MAX: u32 = 1_000_000;
/// How long one wait lasts at most, so that a stop is seen.
const WAIT: Duration = Duration::from_millis(10);
const SLOTS: usize = 16;
/// The session of answers of a reflector that knows none.
const NO_SESSION: u16 = 0;
/// The last answer is waited for as long as so many of the longest trip take.
const TIMEOUT_ROUND_TRIPS: u64 = 4;
/// So many times the least patience where nothing has come yet, and at most.
const SILENT_TIMEOUT_FACTOR: u64 = 5;
const TIMEOUT_FACTOR_MAX: u64 = 10;

/// What is asked.
#[derive(Clone, Debug)]
pub struct SessionSenderOptions {
    /// How many questions, up to [`COUNT_MAX`].
    pub count: u32,
    /// The time from one to the next.
    pub interval: Span,
    /// The key of the authenticated mode; without one, the open mode.
    pub key: Option<StampKey>,
    /// The session among those between the same two ports.
    pub session: u16,
    /// How times are written.
    pub format: TimestampFormat,
    /// Bytes of extra padding, in a TLV; none without.
    pub padding: usize,
    /// How long to wait for answers after the last question, at least; longer where trips are long, and where nothing
    /// has come yet.
    pub reply_timeout: Span,
}

impl Default for SessionSenderOptions {
    fn default() -> Self {
        Self {
            count: 100,
            interval: Span::from_ms(10),
            key: None,
            session: 0,
            format: TimestampFormat::Ntp,
            padding: 0,
            reply_timeout: Span::from_secs(1),
        }
    }
}

impl SessionSenderOptions {
    fn packet(&self) -> Vec<u8> {
        let mut bytes = vec![0; packet::len(self.key.as_ref())];
        if self.padding > 0 {
            // Alone, it needs no seal.
            tlv::append(&mut bytes, tlv::PADDING, &vec![0; self.padding.min(60_000)]);
        }
        bytes
    }
}

/// Whether to stop: asked again and again while waiting.
pub type SyncStopCheck<'a> = &'a (dyn Fn() -> bool + Sync);

/// Runs one session over a socket that is connected to the reflector.
///
/// # Errors
/// The kernel's; silence is no error but a report of losses.
pub fn run(
    socket: &UdpSocket,
    plan: &SessionSenderOptions,
    stop: SyncStopCheck<'_>,
) -> io::Result<(StampSession, StampEnding)> {
    let v6 = socket.local_addr()?.is_ipv6();
    for kind in [DatagramOption::ReceiveTimestamp, DatagramOption::Ttl] {
        enable_option(socket.as_fd(), v6, kind)?;
    }
    set_ttl(socket.as_fd(), v6, u8::MAX)?;
    socket.set_read_timeout(Some(WAIT))?;
    let here = ErrorEstimate::here(plan.format);
    let count = plan.count.min(COUNT_MAX);
    let sent: Vec<PacketSendTime> = (0..count).map(|_| PacketSendTime::default()).collect();
    let (asked_all, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut hearing = ReplyReceiver::new(plan, count, &sent);
    let failed = AtomicBool::new(false);
    let stop: SyncStopCheck<'_> = &|| failed.load(Ordering::Relaxed) || stop();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let outcome = send_packets(socket, plan, here, &sent, &asked, stop);
            asked_all.store(true, Ordering::Release);
            outcome
        });
        let heard = hearing.run(socket, &asked_all, &asked, stop);
        // The asking thread is to end as well.
        failed.store(heard.is_err(), Ordering::Relaxed);
        let outcome = asking.join().map_err(|_| io::Error::other("the asking thread panicked"));
        outcome??;
        heard
    })?;
    let asked = asked.load(Ordering::Relaxed);
    let tally = hearing.account.finish(Some(asked));
    let ended = match asked {
        _ if asked < u64::from(count) => StampEnding::Interrupted,
        _ if tally.unique == 0 => StampEnding::Silent,
        _ => StampEnding::Complete,
    };
    Ok((report::summarize(&hearing.counted, asked, &tally, &hearing.replies, here), ended))
}

/// When one question left, by both clocks.
#[derive(Debug, Default)]
struct PacketSendTime {
    steady_ns: AtomicU64,
    unix_ns: AtomicU64,
}

/// Asks all questions, each at its time.
fn send_packets(
    socket: &UdpSocket,
    plan: &SessionSenderOptions,
    here: ErrorEstimate,
    sent: &[PacketSendTime],
    asked: &AtomicU64,
    stop: SyncStopCheck<'_>,
) -> io::Result<()> {
    // This thread's own wish; without it sleeps are 50 µs longer.
    let _ = timer::set_timer_slack_ns(1);
    let key = plan.key.as_ref();
    let mut bytes = plan.packet();
    let begun_ns = read_ns(ClockId::MonotonicRaw);
    for (number, moment) in (0_u32..).zip(sent) {
        let due_ns = begun_ns.saturating_add((plan.interval * u64::from(number)).as_ns());
        if wait_until(due_ns, SPIN_NS, |_| stop()).is_none() {
            break;
        }
        let unix_ns = read_ns(ClockId::Realtime);
        moment.unix_ns.store(unix_ns, Ordering::Relaxed);
        moment.steady_ns.store(read_ns(ClockId::MonotonicRaw), Ordering::Release);
        let time = plan.format.write(unix_ns);
        let question =
            StampQuestion { sequence: number, time, error: here.write(), session: plan.session };
        question.write(key, &mut bytes);
        loop {
            match socket.send(&bytes) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // News of an earlier one, or a full queue: this one is lost.
                Err(error) if is_transient_datagram(&error) || is_queue_full(&error) => break,
                Err(error) => return Err(error),
            }
        }
        asked.store(u64::from(number) + 1, Ordering::Relaxed);
    }
    Ok(())
}

struct ReplyReceiver<'a> {
    plan: &'a SessionSenderOptions,
    sent: &'a [PacketSendTime],
    account: SequenceTracker,
    replies: Vec<StampReply>,
    /// The longest trip so far.
    longest_ns: Option<u64>,
    /// What is not told by the replies.
    counted: StampSession,
}

impl<'a> ReplyReceiver<'a> {
    fn new(plan: &'a SessionSenderOptions, count: u32, sent: &'a [PacketSendTime]) -> Self {
        Self {
            plan,
            sent,
            account: SequenceTracker::new(u64::from(count)),
            replies: Vec::with_capacity(sent.len()),
            longest_ns: None,
            counted: StampSession::default(),
        }
    }

    fn run(
        &mut self,
        socket: &UdpSocket,
        asked_all: &AtomicBool,
        asked: &AtomicU64,
        stop: SyncStopCheck<'_>,
    ) -> io::Result<()> {
        let slot = self.plan.packet().len() + 1;
        let mut batch = ReceiveBatch::new(SLOTS, slot);
        let mut stamps = ReceiveTimestamps::begin();
        let mut last_ns = None;
        loop {
            match batch.receive(socket.as_fd(), true) {
                Ok(came) => {
                    stamps.sample_clocks();
                    (0..came).for_each(|index| self.handle_reply(&batch.datagram(index), &stamps));
                }
                Err(error) if is_transient_datagram(&error) => {}
                Err(error) => return Err(error),
            }
            if !asked_all.load(Ordering::Acquire) {
                continue;
            }
            let now = read_ns(ClockId::MonotonicRaw);
            let complete = self.account.unique() >= asked.load(Ordering::Relaxed);
            let since = now - *last_ns.get_or_insert(now);
            let patience_ns = if stop() { self.stop_timeout_ns() } else { self.reply_timeout_ns() };
            if complete || since > patience_ns {
                return Ok(());
            }
        }
    }

    /// How long to wait after the last question, as far as is known.
    fn reply_timeout_ns(&self) -> u64 {
        let least = self.plan.reply_timeout.as_ns();
        match self.longest_ns {
            None => least.saturating_mul(SILENT_TIMEOUT_FACTOR),
            Some(longest_ns) => {
                let most = least.saturating_mul(TIMEOUT_FACTOR_MAX);
                longest_ns.saturating_mul(TIMEOUT_ROUND_TRIPS).clamp(least, most)
            }
        }
    }

    /// How long to wait for what is under way when told to stop: as long as any answer took, and not at all where none
    /// has come.
    fn stop_timeout_ns(&self) -> u64 {
        self.longest_ns
            .map_or(0, |longest_ns| longest_ns.saturating_mul(2).min(self.reply_timeout_ns()))
    }

    fn handle_reply(&mut self, arrival: &ReceivedDatagram<'_>, stamps: &ReceiveTimestamps) {
        let (answer, tlvs) = match StampAnswer::read(self.plan.key.as_ref(), arrival.bytes) {
            Ok(read) => read,
            Err(StampPacketError::BadHmac) => {
                self.counted.unsealed += 1;
                return;
            }
            Err(StampPacketError::Short { .. }) => {
                self.counted.foreign += 1;
                return;
            }
        };
        let index = usize::try_from(answer.sender.sequence).unwrap_or(usize::MAX);
        let moment = self.sent.get(index);
        let sent_steady_ns = moment.map_or(0, |sent| sent.steady_ns.load(Ordering::Acquire));
        let sent_unix_ns = moment.map_or(0, |sent| sent.unix_ns.load(Ordering::Relaxed));
        // Only what was asked, with the very time that was written, is an answer.
        let is_ours = sent_steady_ns > 0
            && answer.sender.time == self.plan.format.write(sent_unix_ns)
            && [self.plan.session, NO_SESSION].contains(&answer.sender.session);
        if !is_ours {
            self.counted.foreign += 1;
            return;
        }
        if !self.account.record(answer.sender.sequence).is_new() {
            return;
        }
        self.counted.sessionless += u64::from(answer.sender.session != self.plan.session);
        let flagged = TlvFlagCounts::of(tlvs);
        self.counted.unrecognised_tlvs += flagged.unrecognised;
        self.counted.malformed_tlvs += flagged.malformed;
        self.counted.unsealed_tlvs += flagged.unsealed;
        // Where its stamp is not to be believed, it came when it was read; and not before it was asked for.
        let read = stamps.last();
        let stamped = arrival.received_ns.and_then(|stamp_ns| stamps.to_steady_ns(stamp_ns));
        let came_ns = stamped.filter(|&at| at >= sent_steady_ns).unwrap_or(read.steady_ns);
        let elapsed_ns = came_ns.saturating_sub(sent_steady_ns);
        self.longest_ns = self.longest_ns.max(Some(elapsed_ns));
        self.replies.push(StampReply {
            answer,
            sent_unix_ns,
            received_unix_ns: arrival.received_ns.unwrap_or(read.real_ns),
            elapsed_ns,
            ttl: arrival.ttl,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::reflector::{ReflectorOptions, serve};
    use super::*;

    /// A sender's socket and the reflector's, to which it is connected.
    fn pair(at: &str) -> (UdpSocket, UdpSocket) {
        let (near, far) = (UdpSocket::bind(at).unwrap(), UdpSocket::bind(at).unwrap());
        near.connect(far.local_addr().unwrap()).unwrap();
        (near, far)
    }

    fn questions(count: u32) -> SessionSenderOptions {
        let interval = Span::from_ms(1);
        SessionSenderOptions { count, interval, ..SessionSenderOptions::default() }
    }

    fn answer_to(sender: StampQuestion, bytes: &mut [u8]) {
        StampAnswer { sender, ..StampAnswer::default() }.write(None, bytes);
    }

    fn with_reflector(
        at: &str,
        conduct: ReflectorOptions,
        plan: &SessionSenderOptions,
    ) -> (StampSession, StampEnding) {
        let (near, far) = pair(at);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| serve(&far, conduct, &|| stop.load(Ordering::Relaxed)));
            let came = run(&near, plan, &|| false).unwrap();
            stop.store(true, Ordering::Relaxed);
            let counts = serving.join().unwrap().unwrap();
            assert_eq!(counts.unsent, 0);
            came
        })
    }

    #[test]
    fn every_question_is_answered_in_both_families_modes_and_formats() {
        let plan = SessionSenderOptions { interval: Span::from_us(500), ..questions(50) };
        let key = StampKey::new(b"between us");
        for at in ["127.0.0.1:0", "[::1]:0"] {
            for key in [None, Some(key.clone())] {
                for (format, padding) in [(TimestampFormat::Ntp, 0), (TimestampFormat::Ptp, 100)] {
                    let plan =
                        SessionSenderOptions { key: key.clone(), format, padding, ..plan.clone() };
                    let key = key.clone();
                    let conduct = ReflectorOptions { key, format, ..ReflectorOptions::default() };
                    let (report, _) = with_reflector(at, conduct, &plan);
                    assert_eq!((report.sent, report.answered), (50, 50), "{report:?}");
                    assert_eq!((report.lost, report.lost_forward), (0, Some(0)));
                    assert_eq!(report.reflector_format, Some(format));
                    assert_eq!((report.ttl_forward, report.ttl_backward), (Some(255), Some(255)));
                    let trip = report.round_trip.unwrap();
                    assert!(trip.min_ns > 0.0 && trip.min_ns <= trip.p50_ns, "{trip:?}");
                    assert!(report.dwell.unwrap().min_ns >= 0.0);
                    assert_eq!((report.unsealed, report.foreign), (0, 0));
                }
            }
        }
    }

    #[test]
    fn a_reflector_of_both_versions_answers_from_where_it_was_asked_with_all_hops_left() {
        let far = UdpSocket::bind("[::]:0").unwrap();
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        // Any address of the loopback is this host's, and its answers would leave from another one.
        near.connect(("127.0.0.9", far.local_addr().unwrap().port())).unwrap();
        let stop = AtomicBool::new(false);
        let plan = questions(3);
        std::thread::scope(|scope| {
            let reflect =
                || serve(&far, ReflectorOptions::default(), &|| stop.load(Ordering::Relaxed));
            let serving = scope.spawn(reflect);
            let (report, _) = run(&near, &plan, &|| false).unwrap();
            stop.store(true, Ordering::Relaxed);
            serving.join().unwrap().unwrap();
            assert_eq!((report.answered, report.ttl_backward), (3, Some(255)), "{report:?}");
        });
    }

    #[test]
    fn answers_of_a_reflector_that_knows_no_sessions_are_answers() {
        let (near, far) = pair("127.0.0.1:0");
        let plan = SessionSenderOptions { session: 77, ..questions(2) };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for session in [0, 78] {
                    let mut bytes = [0; 1_000];
                    let (len, from) = far.recv_from(&mut bytes).unwrap();
                    let (question, _) = StampQuestion::read(None, &bytes[..len]).unwrap();
                    answer_to(StampQuestion { session, ..question }, &mut bytes);
                    far.send_to(&bytes[..len], from).unwrap();
                }
            });
            let (report, _) = run(&near, &plan, &|| false).unwrap();
            // The second is another session's.
            assert_eq!((report.answered, report.sessionless, report.foreign), (1, 1, 1));
        });
    }

    #[test]
    fn a_stop_waits_for_what_is_under_way_and_does_not_call_it_lost() {
        let (near, far) = pair("127.0.0.1:0");
        let (stop, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let plan = SessionSenderOptions { interval: Span::from_ms(2), ..questions(100_000) };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Each is answered half a second after it came; asked to stop when the first is.
                far.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
                let mut waiting = std::collections::VecDeque::new();
                let mut bytes = [0; 1_000];
                while !over.load(Ordering::Relaxed) {
                    if let Ok((len, from)) = far.recv_from(&mut bytes) {
                        let (question, _) = StampQuestion::read(None, &bytes[..len]).unwrap();
                        waiting.push_back((read_ns(ClockId::MonotonicRaw), question, len, from));
                    }
                    let due = |at: u64| read_ns(ClockId::MonotonicRaw) - at > 500_000_000;
                    while waiting.front().is_some_and(|&(at, ..)| due(at)) {
                        let (_, question, len, from) = waiting.pop_front().unwrap();
                        answer_to(question, &mut bytes);
                        far.send_to(&bytes[..len], from).unwrap();
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            });
            let (report, ended) = run(&near, &plan, &|| stop.load(Ordering::Relaxed)).unwrap();
            over.store(true, Ordering::Relaxed);
            assert!(ended == StampEnding::Interrupted && report.sent > 1, "{report:?}");
            assert_eq!(report.lost, 0, "{} of {}", report.answered, report.sent);
        });
    }

    #[test]
    fn an_answer_after_more_than_a_second_is_late_and_not_lost() {
        let (near, far) = pair("127.0.0.1:0");
        let stop = AtomicBool::new(false);
        let plan = questions(3);
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| {
                // All questions have come long before.
                timer::sleep_ns(1_500_000_000);
                serve(&far, ReflectorOptions::default(), &|| stop.load(Ordering::Relaxed))
            });
            let (report, _) = run(&near, &plan, &|| false).unwrap();
            stop.store(true, Ordering::Relaxed);
            serving.join().unwrap().unwrap();
            assert_eq!((report.sent, report.answered, report.lost), (3, 3, 0));
        });
    }

    #[test]
    fn another_key_or_nobody_is_silence_and_not_a_failure() {
        let (key, reply_timeout) = (Some(StampKey::new(b"mine")), Span::from_ms(50));
        let plan = SessionSenderOptions { key, reply_timeout, ..questions(3) };
        let theirs =
            ReflectorOptions { key: Some(StampKey::new(b"theirs")), ..ReflectorOptions::default() };
        let (report, _) = with_reflector("127.0.0.1:0", theirs, &plan);
        assert_eq!((report.answered, report.lost), (0, 3));
        assert!(report.round_trip.is_none() && report.clock.is_none());
    }

    #[test]
    fn an_answer_that_was_not_asked_for_is_not_counted() {
        let (near, far) = pair("127.0.0.1:0");
        far.connect(near.local_addr().unwrap()).unwrap();
        let mut forged = [0; packet::UNAUTHENTICATED_LEN];
        answer_to(StampQuestion { time: 12_345, ..StampQuestion::default() }, &mut forged);
        far.send(&forged).unwrap();
        let plan = SessionSenderOptions { reply_timeout: Span::from_ms(50), ..questions(1) };
        let (report, _) = run(&near, &plan, &|| false).unwrap();
        assert_eq!((report.answered, report.foreign), (0, 1));
    }
}
