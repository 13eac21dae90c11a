//! Echo test: one datagram at a time to a peer that returns it, over plumb's stack or the kernel's.
//!
//! [`EchoTest`] has neither socket nor clock, so that both stacks are timed by the same code. A payload is its sequence
//! number and a pattern derived from it, so that late, foreign and corrupt datagrams are recognized.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use plumb_base::time::{Instant, Span};
use plumb_clock::InstantClock;
use plumb_stack::host::{DeliveryFailureKind, HostEvent, IpHost};
use plumb_stack::service::HostApplication;
use plumb_stack::udp::{BindError, CopyPolicy, UdpId, UdpOptions};
use plumb_sys::signal;
use plumb_wire::packet::Pool;

use super::{StackEndReason, WatchedApplication};
use crate::device::DeviceWait;

/// Shortest payload: the bytes of its sequence number.
pub const PAYLOAD_MIN: usize = 8;

/// Frames of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoStage {
    /// Bytes on Ethernet, without the check sequence.
    pub frame_bytes: usize,
    /// Bytes of payload.
    pub payload_bytes: usize,
    /// Round trips.
    pub count: u64,
}

/// The round trips of one size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundTripSeries {
    /// Bytes on Ethernet, without the check sequence.
    pub frame_bytes: usize,
    /// Bytes of payload.
    pub payload_bytes: usize,
    /// Packets sent.
    pub sent: u64,
    /// Of those, answered in time and unchanged.
    pub answered: u64,
    /// Of those, not answered in time.
    pub lost: u64,
    /// Answers that came after their deadline, or again.
    pub late: u64,
    /// Answers whose payload was not what was sent.
    pub corrupt: u64,
    /// Errors of ICMP or of sending.
    pub errors: u64,
    /// The first round trip, in nanoseconds, which includes address resolution.
    pub first_ns: Option<f64>,
    /// The other round trips, in nanoseconds.
    pub samples: Vec<f64>,
}

/// Why a test was aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EchoAbort {
    /// This many datagrams in a row were not answered.
    Silent(u32),
    /// An error was reported.
    Refused(String),
}

/// When to give up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EchoTimeouts {
    /// Time to wait for one answer.
    pub timeout: Span,
    /// Unanswered datagrams in a row that abort the test.
    pub silent_max: u32,
}

/// The stages of a test and their results so far.
#[derive(Debug, Default)]
pub struct EchoTest {
    stages: Vec<EchoStage>,
    results: Vec<RoundTripSeries>,
    timeouts: EchoTimeouts,
    /// Sequence number of the datagram that is next or outstanding.
    number: u64,
    /// Its stage.
    stage: usize,
    /// Its number in the stage; number 0 resolves addresses and does not count.
    step: u64,
    outstanding: Option<Instant>,
    /// Datagrams sent, including those at step 0.
    sent: u64,
    /// Whether any datagram was answered.
    any_answered: bool,
    unanswered_in_row: u32,
    /// Why the test was aborted.
    pub abort: Option<EchoAbort>,
    payload: Vec<u8>,
}

impl EchoTest {
    /// A new test.
    pub fn new(stages: Vec<EchoStage>, timeouts: EchoTimeouts) -> Self {
        Self { stages, timeouts, ..Self::default() }
    }

    /// Whether nothing remains to be sent or received.
    pub fn is_over(&self) -> bool {
        self.abort.is_some() || (self.outstanding.is_none() && self.stage == self.stages.len())
    }

    /// Datagrams sent, if none was answered.
    pub fn unanswered(&self) -> Option<u64> {
        (self.sent > 0 && !self.any_answered).then_some(self.sent)
    }

    /// Round trips begun and planned.
    pub fn progress(&self) -> (u64, u64) {
        let done = self.results.iter().map(|series| series.sent).sum();
        (done, self.stages.iter().map(|stage| stage.count).sum())
    }

    /// The payload to send now; none while an answer is outstanding, or at the end.
    pub fn poll_payload(&mut self) -> Option<&[u8]> {
        if self.outstanding.is_some() || self.abort.is_some() {
            return None;
        }
        let stage = *self.stages.get(self.stage)?;
        if self.results.len() == self.stage {
            let samples = usize::try_from(stage.count.min(1 << 20)).unwrap_or(0);
            self.results.push(RoundTripSeries {
                frame_bytes: stage.frame_bytes,
                payload_bytes: stage.payload_bytes,
                samples: Vec::with_capacity(samples),
                ..RoundTripSeries::default()
            });
        }
        self.payload.resize(stage.payload_bytes, 0);
        write_pattern(self.number, &mut self.payload);
        Some(&self.payload)
    }

    /// Notes that the payload was sent.
    pub fn on_sent(&mut self, at: Instant) {
        self.outstanding = Some(at);
        self.sent += 1;
        if !self.is_warm_up()
            && let Some(series) = self.results.last_mut()
        {
            series.sent += 1;
        }
    }

    /// Time to wait for one answer.
    pub fn timeout(&self) -> Span {
        self.timeouts.timeout
    }

    /// Handles a received payload, whose deadline may have passed.
    pub fn handle_answer(&mut self, at: Instant, payload: &[u8]) {
        self.handle_deadline(at);
        let is_warm_up = self.is_warm_up();
        let is_current = payload == self.payload && self.outstanding.is_some();
        let number = number_of(payload);
        let Some(series) = self.results.last_mut() else { return };
        if !is_current {
            match number {
                // An earlier number: late after a loss, or a duplicate.
                Some(number) if number < self.number => {
                    if is_intact(number, payload) {
                        series.late += 1;
                    } else {
                        series.corrupt += 1;
                    }
                }
                _ => series.corrupt += 1,
            }
            return;
        }
        let Some(sent) = self.outstanding.take() else { return };
        let rtt = at.saturating_since(sent).as_ns_f64();
        if is_warm_up {
            series.first_ns = Some(rtt);
        } else {
            series.answered += 1;
            series.samples.push(rtt);
        }
        self.any_answered = true;
        self.unanswered_in_row = 0;
        self.advance();
    }

    /// The deadline of the outstanding answer.
    pub fn deadline(&self) -> Option<Instant> {
        self.outstanding.map(|sent| sent + self.timeouts.timeout)
    }

    /// Counts the outstanding answer as lost if its deadline has passed.
    pub fn handle_deadline(&mut self, now: Instant) {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        self.outstanding = None;
        if !self.is_warm_up()
            && let Some(series) = self.results.last_mut()
        {
            series.lost += 1;
        }
        self.advance();
        self.unanswered_in_row += 1;
        if self.unanswered_in_row >= self.timeouts.silent_max {
            self.abort = Some(EchoAbort::Silent(self.unanswered_in_row));
        }
    }

    /// Aborts the test because of an ICMP or socket error.
    pub fn on_refused(&mut self, why: String) {
        if let Some(series) = self.results.last_mut() {
            series.errors += 1;
        }
        self.abort = Some(EchoAbort::Refused(why));
    }

    /// The results of every stage begun.
    pub fn into_results(mut self) -> Vec<RoundTripSeries> {
        if self.outstanding.take().is_some()
            && !self.is_warm_up()
            && let Some(series) = self.results.last_mut()
        {
            // Outstanding at the end: neither answered nor lost.
            series.sent -= 1;
        }
        self.results
    }

    /// Goes on to the next datagram.
    fn advance(&mut self) {
        self.number += 1;
        self.step += 1;
        if self.stages.get(self.stage).is_some_and(|stage| self.step > stage.count) {
            self.stage += 1;
            self.step = 0;
        }
    }

    /// Whether the current datagram is the first of its stage, which does not count.
    fn is_warm_up(&self) -> bool {
        self.step == 0
    }
}

/// Writes a sequence number and its pattern.
fn write_pattern(number: u64, payload: &mut [u8]) {
    let Some((head, rest)) = payload.split_first_chunk_mut() else { return };
    *head = number.to_be_bytes();
    let mut byte = head[7].wrapping_mul(31);
    for place in rest {
        *place = byte;
        byte = byte.wrapping_add(1);
    }
}

fn number_of(payload: &[u8]) -> Option<u64> {
    payload.first_chunk().map(|head| u64::from_be_bytes(*head))
}

/// Whether a payload has the pattern of its number.
fn is_intact(number: u64, payload: &[u8]) -> bool {
    let mut expected = vec![0; payload.len()];
    write_pattern(number, &mut expected);
    payload == expected
}

/// A test over plumb's stack: one connected socket, one datagram at a time.
#[derive(Debug)]
pub struct EchoSender {
    /// The test.
    pub test: EchoTest,
    socket: UdpId,
    remote: SocketAddr,
    timeline: InstantClock,
}

impl EchoSender {
    /// Opens a socket and connects it.
    ///
    /// # Errors
    /// There is no route to the peer.
    pub(super) fn open(
        host: &mut IpHost,
        remote: SocketAddr,
        test: EchoTest,
        timeline: InstantClock,
    ) -> Result<Self, BindError> {
        let local = SocketAddr::new(unspecified(remote.ip()), 0);
        let socket = host.udp_bind(local, UdpOptions::default())?;
        host.udp_connect(timeline.now(), socket, remote)?;
        Ok(Self { test, socket, remote, timeline })
    }
}

impl HostApplication for EchoSender {
    fn handle(&mut self, now: Instant, host: &mut IpHost, pool: &mut Pool) {
        while let Some(datagram) = host.udp_receive(self.socket, pool) {
            let at = self.timeline.now();
            self.test.handle_answer(at, pool.bytes(&datagram.packet));
            pool.free(datagram.packet);
        }
        while let Some(event) = host.poll_event() {
            match event {
                HostEvent::DeliveryFailed(failure) if failure.udp == Some(self.socket) => {
                    let reporter = failure.reporter;
                    self.test
                        .on_refused(format!("{reporter} reports: {}", failure_text(failure.kind)));
                }
                HostEvent::NeighborFailed { address, .. } => {
                    self.test.on_refused(format!(
                        "{address} does not answer {}",
                        neighbor_protocol(address)
                    ));
                }
                _ => {}
            }
        }
        self.test.handle_deadline(now);
        let at = self.timeline.now();
        if let Some(payload) = self.test.poll_payload() {
            match host.udp_send(at, self.socket, payload, None, CopyPolicy::Fused, pool) {
                Ok(()) => self.test.on_sent(at),
                Err(error) => {
                    self.test.on_refused(format!("{}: {}", self.remote, first_part(&error)));
                }
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.test.deadline()
    }
}

impl WatchedApplication for EchoSender {
    fn is_complete(&self) -> bool {
        self.test.is_over()
    }
}

/// The unspecified address of the same family.
fn unspecified(ip: IpAddr) -> IpAddr {
    if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// What the stack says about an error, without how to fix it, which follows a colon.
pub(super) fn first_part(error: &impl std::error::Error) -> String {
    let message = error.to_string();
    message.split_once(": ").map_or(message.as_str(), |(what, _)| what).to_owned()
}

/// The protocol that resolves link addresses.
pub(super) fn neighbor_protocol(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "ARP" } else { "neighbor discovery" }
}

/// An ICMP error in the words of RFC 792 and RFC 4443.
pub(super) fn failure_text(kind: DeliveryFailureKind) -> String {
    match kind {
        DeliveryFailureKind::Network => "network unreachable".to_owned(),
        DeliveryFailureKind::Host => "host unreachable".to_owned(),
        DeliveryFailureKind::Protocol => "protocol unreachable".to_owned(),
        DeliveryFailureKind::Port => "port unreachable".to_owned(),
        DeliveryFailureKind::Prohibited => "administratively prohibited".to_owned(),
        DeliveryFailureKind::TooBig(mtu) => format!("packet too big for a link with MTU {mtu}"),
        DeliveryFailureKind::HopLimit => "hop limit exceeded".to_owned(),
        DeliveryFailureKind::Reassembly => "fragment reassembly time exceeded".to_owned(),
        DeliveryFailureKind::Parameter(at) => format!("parameter problem at octet {at}"),
        DeliveryFailureKind::Other(kind, code) => format!("ICMP type {kind}, code {code}"),
    }
}

/// Longest wait of one call, after which requests to stop are checked.
const RECEIVE_TIMEOUT_MAX: Span = Span::from_ms(20);
/// Shortest wait: `SO_RCVTIMEO` of 0 means no timeout (socket(7)).
const RECEIVE_TIMEOUT_MIN: Span = Span::from_us(1);

/// Duration of one spinning wait.
const SPIN: Span = Span::from_ms(10);

/// Longest datagram.
const DATAGRAM_MAX: usize = 65_535;

/// Runs a test over the kernel's stack with a connected UDP socket, and returns why it ended.
///
/// # Errors
/// The socket cannot be opened, or fails.
pub fn run_over_kernel(
    test: &mut EchoTest,
    remote: SocketAddr,
    wait: DeviceWait,
    duration: Option<Span>,
    timeline: InstantClock,
) -> io::Result<StackEndReason> {
    let begun = timeline.now();
    let mut socket = ConnectedUdpSocket::open(remote, wait)?;
    let mut buffer = vec![0; DATAGRAM_MAX];
    let mut now = timeline.now();
    loop {
        if signal::stop_requests() > 0 {
            return Ok(StackEndReason::Interrupted);
        }
        if test.is_over() {
            return Ok(StackEndReason::Complete);
        }
        if duration.is_some_and(|duration| now.saturating_since(begun) >= duration) {
            return Ok(StackEndReason::Duration);
        }
        let left = test.deadline().map(|deadline| deadline.saturating_since(now));
        socket.set_receive_timeout(left.unwrap_or(test.timeout()))?;
        let sent_at = timeline.now();
        if let Some(payload) = test.poll_payload() {
            match socket.udp.send(payload) {
                Ok(_) => test.on_sent(sent_at),
                Err(error) if is_transient(&error) => {}
                Err(error) => test.on_refused(describe_error(&error)),
            }
        }
        match socket.receive(&mut buffer, timeline) {
            Ok(len) => {
                now = timeline.now();
                test.handle_answer(now, &buffer[..len]);
            }
            Err(error) if is_transient(&error) => {
                now = timeline.now();
                test.handle_deadline(now);
            }
            Err(error) => test.on_refused(describe_error(&error)),
        }
    }
}

/// A connected socket, and how it waits.
struct ConnectedUdpSocket {
    udp: UdpSocket,
    wait: DeviceWait,
    /// The socket's receive timeout.
    receive_timeout: Span,
}

impl ConnectedUdpSocket {
    fn open(remote: SocketAddr, wait: DeviceWait) -> io::Result<Self> {
        let udp = UdpSocket::bind((unspecified(remote.ip()), 0))?;
        udp.connect(remote)?;
        if wait != DeviceWait::Block {
            udp.set_nonblocking(true)?;
        }
        Ok(Self { udp, wait, receive_timeout: Span::ZERO })
    }

    /// Sets the receive timeout to the time left; a system call only if it changed.
    fn set_receive_timeout(&mut self, left: Span) -> io::Result<()> {
        let timeout = left.min(RECEIVE_TIMEOUT_MAX).max(RECEIVE_TIMEOUT_MIN);
        if timeout != self.receive_timeout {
            self.udp.set_read_timeout(Some(Duration::from_nanos(timeout.as_ns())))?;
            self.receive_timeout = timeout;
        }
        Ok(())
    }

    fn receive(&self, buffer: &mut [u8], timeline: InstantClock) -> io::Result<usize> {
        let spins = match self.wait {
            DeviceWait::Block => return self.udp.recv(buffer),
            DeviceWait::Poll(span) => span,
            DeviceWait::Spin => SPIN,
        };
        let end = timeline.now() + spins.min(self.receive_timeout);
        loop {
            match self.udp.recv(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock && timeline.now() < end => {}
                Err(error)
                    if error.kind() == ErrorKind::WouldBlock && self.wait != DeviceWait::Spin =>
                {
                    break;
                }
                other => return other,
            }
        }
        self.udp.set_nonblocking(false)?;
        let received = self.udp.recv(buffer);
        self.udp.set_nonblocking(true)?;
        received
    }
}

/// Whether an error may be retried.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn describe_error(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "the kernel reports: port unreachable".to_owned(),
        _ => format!("the kernel reports: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::ORIGIN + Span::from_us(us)
    }

    fn test(count: u64) -> EchoTest {
        let stage = |frame_bytes, payload_bytes| EchoStage { frame_bytes, payload_bytes, count };
        let timeouts = EchoTimeouts { timeout: Span::from_us(100), silent_max: 3 };
        EchoTest::new(vec![stage(60, 18), stage(1_514, 1_472)], timeouts)
    }

    #[test]
    fn every_stage_runs_after_one_warm_up() {
        let mut test = test(10);
        let mut now = 0;
        let mut sizes = Vec::new();
        while let Some(payload) = test.poll_payload().map(<[u8]>::to_vec) {
            sizes.push(payload.len());
            test.on_sent(at(now));
            assert!(test.poll_payload().is_none(), "one at a time");
            test.handle_answer(at(now + 5), &payload);
            now += 10;
        }
        assert!(test.is_over() && test.abort.is_none());
        assert_eq!(sizes, [vec![18; 11], vec![1_472; 11]].concat());
        let exchanges = test.into_results();
        for exchange in exchanges {
            assert_eq!((exchange.sent, exchange.answered, exchange.lost), (10, 10, 0));
            assert_eq!(exchange.samples, [5_000.0; 10]);
            assert_eq!(exchange.first_ns, Some(5_000.0));
        }
    }

    #[test]
    fn late_foreign_and_corrupt_answers_are_counted_but_not_timed() {
        let mut test = test(3);
        let first = test.poll_payload().unwrap().to_vec();
        test.on_sent(at(0));
        test.handle_deadline(at(99));
        assert!(test.deadline().is_some(), "it still has time");
        test.handle_deadline(at(100));
        let second = test.poll_payload().unwrap().to_vec();
        test.on_sent(at(200));
        test.handle_answer(at(201), &first);
        let mut broken = second.clone();
        broken[12] ^= 1;
        test.handle_answer(at(202), &broken);
        test.handle_answer(at(203), b"?");
        test.handle_answer(at(204), &second);
        test.handle_answer(at(205), &second);
        let exchanges = test.into_results();
        let exchange = &exchanges[0];
        assert_eq!((exchange.late, exchange.corrupt, exchange.answered), (2, 2, 1));
        assert_eq!(exchange.samples.len(), 1);
    }

    #[test]
    fn answer_after_the_deadline_is_late() {
        let mut test = test(3);
        for _ in 0..2 {
            let payload = test.poll_payload().unwrap().to_vec();
            test.on_sent(at(0));
            test.handle_answer(at(100), &payload);
        }
        let third = test.poll_payload().unwrap().to_vec();
        test.on_sent(at(0));
        test.handle_answer(at(99), &third);
        let exchanges = test.into_results();
        let exchange = &exchanges[0];
        assert_eq!((exchange.late, exchange.lost, exchange.answered), (2, 1, 1));
    }

    #[test]
    fn unanswered_is_none_after_any_answer() {
        let mut test = test(3);
        assert_eq!(test.unanswered(), None, "nothing was sent");
        let first = test.poll_payload().unwrap().to_vec();
        test.on_sent(at(0));
        assert_eq!(test.unanswered(), Some(1));
        test.handle_answer(at(1), &first);
        assert_eq!(test.unanswered(), None);
        assert!(!test.is_over());
    }

    #[test]
    fn silence_and_refusal_abort_the_test() {
        let mut silent = test(1_000);
        let mut now = 0;
        while silent.poll_payload().is_some() {
            silent.on_sent(at(now));
            now += 100;
            silent.handle_deadline(at(now));
        }
        assert_eq!(silent.abort, Some(EchoAbort::Silent(3)));
        assert_eq!(silent.unanswered(), Some(3));
        let mut refused = test(1);
        refused.poll_payload().unwrap();
        refused.on_sent(at(0));
        refused.on_refused("nobody listens".to_owned());
        assert!(refused.is_over() && refused.poll_payload().is_none());
    }
}
