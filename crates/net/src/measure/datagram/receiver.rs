//! Receives one stream: blocks for the first datagram, takes all that have come by one call, and counts.
//!
//! The end is the receiver's: once the sender has said how many there were, it waits for the last of them, or until
//! none has come for a grace period. Silence ends nothing while the sender is to send: a path may come back. Probes,
//! announcements and ends are answered meanwhile, each with forty bytes. A client shows an agent that it is still there,
//! for datagrams are acknowledged by nobody. Where the kernel can, it joins what came together (UDP_GRO); each is counted
//! by itself all the same. Left out: who may send, which `plumb_remote::udp_handshake` decides.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use plumb_base::time::Span;
use plumb_base::units::Rate;
use plumb_result::net::ReceiveEnding;
use plumb_sys::clock::{ClockId, read_ns};
use plumb_sys::datagram::{ReceiveBatch, ReceivedDatagram, send_from};
use plumb_sys::errno::is_transient_datagram;
use plumb_sys::socket;
use serde::{Deserialize, Serialize};

use super::drops::KernelDrops;
use super::sequence_tracker::{SequenceCounts, SequenceStatus, SequenceTracker};
use super::{InterarrivalJitter, TransitTrace};
use plumb_clock::ReceiveTimestamps;
use plumb_remote::datagram_header::{TestDatagramHeader, TestDatagramKind, TestToken};
use plumb_remote::udp_handshake;

/// Datagrams, or joined ones, of one call.
const SLOTS: usize = 32;
/// Joined datagrams come in up to so many bytes.
const SLOT_BYTES: usize = 65_536;
/// How long one call waits at most, so that a stop and a deadline are seen.
const WAIT: Duration = Duration::from_millis(10);
/// How long to stay once everything came: for second copies, and to answer an end that is said again.
const LINGER: Span = Span::from_ms(50);
const NEVER: u64 = u64::MAX;
/// How often a receiver shows that it is there.
const PRESENCE_INTERVAL: Span = Span::from_ms(200);

/// What both sides of a stream share with whoever watches it: counts so far, and a wish to stop.
#[derive(Debug, Default)]
pub struct DatagramProgress {
    /// Datagrams sent, or different ones received.
    pub datagrams: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Times that the receiver has shown a sender that it is there.
    pub presence: AtomicU64,
    /// Whether a sender sends.
    pub is_sending: AtomicBool,
    /// Ends the stream soon.
    pub stop: AtomicBool,
}

impl DatagramProgress {
    /// Whether the stream is to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// What a receiver is to expect.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    /// The session's token.
    pub token: TestToken,
    /// The stream of the session; others are not counted.
    pub stream: u16,
    /// No number is as great as this.
    pub count_max: u64,
    /// The rate of the payload, which the buffer is chosen for.
    pub rate: Option<Rate>,
    /// How long to wait for a next datagram where the sender is to have ended.
    pub idle: Span,
    /// How long to wait for stragglers after the end.
    pub grace: Span,
    /// How long all of it may last.
    pub duration_max: Span,
    /// Whether to show the sender, which the socket is connected to, that somebody is there.
    pub shows_presence: bool,
}

impl ReceiverConfig {
    /// With half a second for stragglers and five of patience for the next datagram.
    pub const fn new(
        token: TestToken,
        stream: u16,
        rate: Option<Rate>,
        duration_max: Span,
    ) -> Self {
        Self {
            token,
            stream,
            count_max: u64::MAX,
            rate,
            idle: Span::from_secs(5),
            grace: Span::from_ms(500),
            duration_max,
            shows_presence: false,
        }
    }

    /// A buffer for half a second at the rate: the longest time that a reader may be kept from running.
    fn buffer_bytes(&self) -> usize {
        const LEAST: f64 = 4e6;
        const MOST: f64 = 64e6;
        let half_second = self.rate.map_or(MOST, |rate| rate.bytes_per_second() / 2.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to what fits"
        )]
        {
            half_second.clamp(LEAST, MOST) as usize
        }
    }
}

/// What a receiver saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReceiverReport {
    /// Why it ended.
    pub ending: ReceiveEnding,
    /// How many were sent, where that was heard.
    pub count: Option<u64>,
    /// Received, lost, late and twice.
    pub tally: SequenceCounts,
    /// Bytes of payload of all different datagrams.
    pub bytes: u64,
    /// Bytes of payload a second from the first datagram to the last, without the first.
    pub rate_bits_per_second: f64,
    /// When the first came, by this host's CLOCK_MONOTONIC_RAW.
    pub first_ns: Option<u64>,
    /// When the last came.
    pub last_ns: Option<u64>,
    /// Jitter of RFC 3550 at the end.
    pub jitter_ns: f64,
    /// Transit times by both clocks.
    pub trace: TransitTrace,
    /// Datagrams that this socket's buffer had no room for.
    pub overflow: u64,
    /// Whether the kernel joined datagrams, each such drop then being of one or more.
    pub joined: bool,
    /// Bytes of the socket's buffer as its kernel keeps it: twice what it took of what was asked for.
    pub buffer_bytes: u64,
    /// Bytes that were asked for.
    pub buffer_asked_bytes: u64,
    /// What else this host dropped meanwhile.
    pub drops: KernelDrops,
    /// Datagrams that were not of this stream.
    pub foreign: u64,
    /// Calls that received something.
    pub calls: u64,
}

/// A socket that may be sent to: it has its buffer, and what is dropped from now on is counted.
#[derive(Clone, Copy, Debug)]
pub struct PreparedReceiver {
    buffer_bytes: u64,
    overflow_before: u32,
    drops_before: KernelDrops,
}

/// Gets a socket ready; to be done before the sender is told to begin.
///
/// # Errors
/// The kernel's.
pub fn prepare(socket: &UdpSocket, expectation: &ReceiverConfig) -> io::Result<PreparedReceiver> {
    let buffer_bytes = prepare_receiving(socket, expectation.buffer_bytes())?;
    socket.set_read_timeout(Some(WAIT))?;
    let overflow_before = socket::receive_drops(socket.as_fd()).unwrap_or(0);
    Ok(PreparedReceiver { buffer_bytes, overflow_before, drops_before: KernelDrops::read() })
}

/// Receives one stream until it ends, of a sender that is to send until `due_ns` by the steady clock: `None` before it
/// has begun, 0 where any silence may be the end. Nothing but the end of all allowed time, or a stop, ends the stream
/// before.
///
/// # Errors
/// The kernel's; a silent or stopped sender is no error but an [`ReceiveEnding`].
pub fn receive(
    socket: &UdpSocket,
    prepared: PreparedReceiver,
    expectation: &ReceiverConfig,
    progress: &DatagramProgress,
    due_ns: &dyn Fn() -> Option<u64>,
) -> io::Result<ReceiverReport> {
    let PreparedReceiver { buffer_bytes, overflow_before, drops_before } = prepared;
    // The handshake may have left another timeout on this socket.
    socket.set_read_timeout(Some(WAIT))?;
    let fd = socket.as_fd();
    let mut stream = DatagramReceiver::new(socket, expectation);
    let mut batch = ReceiveBatch::new(SLOTS, SLOT_BYTES);
    let mut begun = read_ns(ClockId::MonotonicRaw);
    let presence = TestDatagramHeader::of(TestDatagramKind::Presence, expectation.stream, 0, 0)
        .to_bytes(&expectation.token);
    let mut presence_due = if expectation.shows_presence { begun } else { NEVER };
    let ending = loop {
        match batch.receive(fd, true) {
            Ok(came) => {
                let read_ns = stream.stamps.sample_clocks();
                stream.report.calls += 1;
                for index in 0..came {
                    stream.on_arrival(&batch.datagram(index), read_ns);
                }
                progress.datagrams.store(stream.tracker.unique(), Ordering::Relaxed);
                progress.bytes.store(stream.report.bytes, Ordering::Relaxed);
            }
            Err(error) if is_transient_datagram(&error) => {}
            Err(error) => return Err(error),
        }
        let now = read_ns(ClockId::MonotonicRaw);
        if now >= presence_due {
            // One that does not leave is followed by others.
            let _ = socket.send(&presence);
            presence_due = now + PRESENCE_INTERVAL.as_ns();
        }
        if progress.is_stopped() {
            break ReceiveEnding::Stopped;
        }
        let due_ns = due_ns();
        if due_ns.is_none() && stream.report.last_ns.is_none() {
            begun = now;
        }
        if let Some(ending) = stream.ending(now, begun, due_ns) {
            break ending;
        }
    };
    let overflow = socket::receive_drops(fd).unwrap_or(0).wrapping_sub(overflow_before);
    let drops = KernelDrops::read().since(drops_before);
    Ok(ReceiverReport {
        overflow: overflow.into(),
        buffer_bytes,
        buffer_asked_bytes: expectation.buffer_bytes() as u64,
        drops,
        ..stream.into_report(ending)
    })
}

struct DatagramReceiver<'a> {
    socket: &'a UdpSocket,
    expectation: &'a ReceiverConfig,
    stamps: ReceiveTimestamps,
    tracker: SequenceTracker,
    jitter: InterarrivalJitter,
    first_bytes: u64,
    /// When the count was heard.
    ended_ns: Option<u64>,
    report: ReceiverReport,
}

impl<'a> DatagramReceiver<'a> {
    fn new(socket: &'a UdpSocket, expectation: &'a ReceiverConfig) -> Self {
        Self {
            socket,
            expectation,
            stamps: ReceiveTimestamps::begin(),
            tracker: SequenceTracker::new(expectation.count_max),
            jitter: InterarrivalJitter::default(),
            first_bytes: 0,
            ended_ns: None,
            report: ReceiverReport { trace: TransitTrace::new(), ..ReceiverReport::default() },
        }
    }

    #[inline]
    fn on_arrival(&mut self, arrival: &ReceivedDatagram<'_>, read_ns: u64) {
        // Without a stamp that can be believed, it came when it was read.
        let stamped = arrival.received_ns.and_then(|stamp_ns| self.stamps.to_steady_ns(stamp_ns));
        let at_ns = stamped.unwrap_or(read_ns);
        match arrival.segment_bytes {
            Some(size) if size < arrival.bytes.len() => {
                self.report.joined = true;
                arrival.bytes.chunks(size).for_each(|part| self.on_datagram(part, arrival, at_ns));
            }
            _ => self.on_datagram(arrival.bytes, arrival, at_ns),
        }
    }

    #[inline]
    fn on_datagram(&mut self, bytes: &[u8], arrival: &ReceivedDatagram<'_>, at_ns: u64) {
        let header = TestDatagramHeader::read(&self.expectation.token, bytes);
        let header = header.filter(|header| header.stream == self.expectation.stream);
        match header {
            Some(header) if header.kind == TestDatagramKind::Data => {
                self.on_data(&header, bytes.len(), at_ns);
            }
            Some(header) => {
                if header.kind == TestDatagramKind::End {
                    self.on_end(header.intended_ns, at_ns);
                }
                self.reply(bytes, arrival);
            }
            None => self.report.foreign += 1,
        }
    }

    #[inline]
    fn on_data(&mut self, header: &TestDatagramHeader, len: usize, at_ns: u64) {
        let verdict = self.tracker.record(header.sequence);
        if verdict == SequenceStatus::OutOfRange {
            return;
        }
        self.report.last_ns = Some(at_ns);
        if !verdict.is_new() {
            return;
        }
        let len = u64::try_from(len).unwrap_or(0);
        if self.report.first_ns.is_none() {
            self.report.first_ns = Some(at_ns);
            self.first_bytes = len;
        }
        self.report.bytes += len;
        let sample = self.report.trace.record(header.sent_ns, at_ns);
        self.jitter.record(sample.transit_ns);
    }

    fn on_end(&mut self, count: u64, now_ns: u64) {
        if self.report.count.is_none() && count != NEVER && count <= self.expectation.count_max {
            self.report.count = Some(count);
            self.ended_ns = Some(now_ns);
        }
    }

    /// Answers what asks for it, to where it came from.
    fn reply(&self, bytes: &[u8], arrival: &ReceivedDatagram<'_>) {
        let Some(answer) = udp_handshake::reply_to(&self.expectation.token, bytes) else { return };
        // A reply that does not leave is asked for again.
        let _ = match arrival.from {
            Some(from) if self.socket.peer_addr().is_err() => {
                send_from(self.socket.as_fd(), &answer, from, None)
            }
            _ => self.socket.send(&answer),
        };
    }

    fn ending(&self, now_ns: u64, begun_ns: u64, due_ns: Option<u64>) -> Option<ReceiveEnding> {
        let since = |moment: u64| now_ns.saturating_sub(moment);
        let ReceiverReport { count, last_ns, .. } = self.report;
        let complete = count.is_some_and(|count| self.tracker.unique() >= count);
        let quiet_since = self.ended_ns.unwrap_or(begun_ns).max(last_ns.unwrap_or(0));
        if complete && since(quiet_since) > LINGER.min(self.expectation.grace).as_ns() {
            return Some(ReceiveEnding::Complete);
        }
        if since(begun_ns) > self.expectation.duration_max.as_ns() {
            return Some(ReceiveEnding::Deadline);
        }
        let heard = last_ns.unwrap_or(begun_ns);
        let idle = self.expectation.idle.as_ns();
        match (self.ended_ns, due_ns) {
            (Some(ended), _) if since(ended.max(heard)) > self.expectation.grace.as_ns() => {
                Some(ReceiveEnding::Grace)
            }
            (None, Some(due)) if since(heard.max(due)) > idle => Some(ReceiveEnding::Idle),
            _ => None,
        }
    }

    fn into_report(self, ending: ReceiveEnding) -> ReceiverReport {
        let report = self.report;
        let both = report.last_ns.zip(report.first_ns);
        let span_ns = both.map_or(0, |(last, first)| last.saturating_sub(first));
        let bits = (report.bytes - self.first_bytes) as f64 * 8.0;
        ReceiverReport {
            ending,
            tally: self.tracker.finish(report.count),
            rate_bits_per_second: if span_ns > 0 { bits * 1e9 / span_ns as f64 } else { 0.0 },
            jitter_ns: self.jitter.estimate_ns(),
            ..report
        }
    }
}

/// Has the kernel join what belongs together and say when each came, and gives the largest buffer that is
/// allowed up to `bytes`; the bytes it has then.
fn prepare_receiving(socket: &UdpSocket, bytes: usize) -> io::Result<u64> {
    use plumb_sys::datagram::{DatagramOption, enable_option};
    use plumb_sys::socket::{IntOption, option, set_option};
    let fd = socket.as_fd();
    let v6 = socket.local_addr()?.is_ipv6();
    for kind in [
        DatagramOption::ReceiveTimestamp,
        DatagramOption::DropCount,
        DatagramOption::ReceiveOffload,
    ] {
        // An old kernel without one of them is measured without it.
        let _ = enable_option(fd, v6, kind);
    }
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    if set_option(fd, IntOption::ReceiveBufferForce, bytes).is_err() {
        set_option(fd, IntOption::ReceiveBuffer, bytes)?;
    }
    Ok(u64::from(option(fd, IntOption::ReceiveBuffer)?.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plumb_clock::ClockReading;

    #[test]
    fn silence_ends_no_stream_whose_sender_is_still_to_send() {
        const SECOND: u64 = 1_000_000_000;
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        // A minute of datagrams, of which none came from the tenth second to the sixteenth.
        let expectation = ReceiverConfig::new(TestToken([3; 16]), 0, None, Span::from_secs(70));
        let (begun, due) = (100 * SECOND, Some(160 * SECOND));
        let mut stream = DatagramReceiver::new(&socket, &expectation);
        stream.report.last_ns = Some(110 * SECOND);
        for second in 110..=160 {
            assert_eq!(stream.ending(second * SECOND, begun, due), None, "at {second} s");
        }
        assert_eq!(stream.ending(165 * SECOND + 1, begun, due), Some(ReceiveEnding::Idle));
        // Nor one that is not known to have begun, in all the time that is allowed.
        assert_eq!(stream.ending(169 * SECOND, begun, None), None);
        assert_eq!(stream.ending(170 * SECOND + 1, begun, None), Some(ReceiveEnding::Deadline));
        // Nor one of which nothing has come at all.
        stream.report.last_ns = None;
        assert_eq!(stream.ending(160 * SECOND, begun, due), None);
        // The sender's own word ends it, whatever was planned.
        (stream.report.last_ns, stream.ended_ns) = (Some(110 * SECOND), Some(120 * SECOND));
        assert_eq!(stream.ending(121 * SECOND, begun, due), Some(ReceiveEnding::Grace));
    }

    #[test]
    fn a_clock_that_is_set_in_the_middle_changes_neither_rate_nor_delay_nor_jitter() {
        const MS: u64 = 1_000_000;
        // How far the real-time clock is ahead, and by how much it is set after half of the datagrams.
        let ahead_ns = 7_000_000_000 * MS / 1_000;
        for set_by_ns in [0, 5_000 * MS, 59_000 * MS, 3_600_000 * MS] {
            for is_back in [false, true] {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                let expectation =
                    ReceiverConfig::new(TestToken([3; 16]), 0, None, Span::from_secs(10));
                let mut stream = DatagramReceiver::new(&socket, &expectation);
                let began_ns = 100_000 * MS;
                let reading = |steady_ns: u64, is_set: bool| {
                    let real_ns = steady_ns + ahead_ns;
                    let set_ns = if is_back { real_ns - set_by_ns } else { real_ns + set_by_ns };
                    ClockReading { steady_ns, real_ns: if is_set { set_ns } else { real_ns } }
                };
                stream.stamps = ReceiveTimestamps::after(reading(began_ns, false));
                for number in 0..1_000_u32 {
                    // One a millisecond; each comes 3 ms later, and is read 0.5 ms after that.
                    let sent_ns = began_ns + u64::from(number) * MS;
                    let (came_ns, read_ns) = (sent_ns + 3 * MS, sent_ns + 3 * MS + MS / 2);
                    // The one at which it is set waits with the stamp of before.
                    let stamp_ns = reading(came_ns, number > 500).real_ns;
                    stream.stamps.record_reading(reading(read_ns, number >= 500));
                    let mut bytes = [0; 100];
                    let header = TestDatagramHeader {
                        sent_ns,
                        ..TestDatagramHeader::of(TestDatagramKind::Data, 0, number, 0)
                    };
                    header.write(&TestToken([3; 16]), &mut bytes);
                    let arrival = ReceivedDatagram {
                        bytes: &bytes,
                        is_truncated: false,
                        from: None,
                        received_ns: Some(stamp_ns),
                        drops: None,
                        segment_bytes: None,
                        ttl: None,
                        to: None,
                    };
                    stream.on_arrival(&arrival, read_ns);
                }
                let report = stream.into_report(ReceiveEnding::Complete);
                let what = format!("set by {set_by_ns} ns, back: {is_back}");
                let span_ns = report.last_ns.unwrap() - report.first_ns.unwrap();
                assert_eq!(span_ns, 999 * MS, "{what}");
                assert!(report.jitter_ns < MS as f64, "{what}: {}", report.jitter_ns);
                let trace = &report.trace;
                for sample in trace.samples.iter().chain(&trace.least).chain(&trace.greatest) {
                    let transit_ns = sample.transit_ns.unsigned_abs();
                    assert!((3 * MS..=4 * MS).contains(&transit_ns), "{what}: {sample:?}");
                }
            }
        }
    }
}
