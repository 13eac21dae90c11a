//! Sends one stream at its pace, and says how many there were until that is heard.
//!
//! One thread: sleeps until the next call is due, writes the times into the datagrams that are, and hands them over
//! by one call, cut up by the kernel (UDP_SEGMENT) where several leave at once and the path lets it. The queue of
//! this host's device is asked to refuse what it drops (IP_RECVERR), so that a loss there is known here. What waited for
//! room in the socket has the time of after the wait. Nothing is sent twice but the end. What the receiver shows of its
//! presence is counted. Left out: who may be sent to (`plumb_remote::udp_handshake`), and who is sent nothing more.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use plumb_base::stats::histogram::Histogram;
use plumb_base::time::Span;
use plumb_base::units::Rate;
use plumb_sys::clock::{ClockId, read_ns};
use plumb_sys::datagram::{DatagramOption, SendBatch};
use plumb_sys::errno::{is_queue_full, is_remote_refusal, is_too_long, is_transient_datagram};
use plumb_sys::socket::{IntOption, set_option};
use plumb_sys::{datagram, fd, timer};
use serde::{Deserialize, Serialize};

use super::drops::{self, KernelDrops};
use super::receiver::DatagramProgress;
use crate::measure::pacer::{BATCH_MAX, DatagramPacer, SPIN_NS, wait_until};
use plumb_remote::datagram_header::{
    HEADER_BYTES, TestDatagramHeader, TestDatagramKind, TestToken,
};

/// Bytes that one call hands over to be cut up: what a datagram of IPv4 holds, less its headers.
const SEGMENTED_MAX: usize = 65_000;
/// The longest payload of UDP over IPv4; IPv6 takes twenty bytes more.
const DATAGRAM_MAX: usize = 65_507;
/// The end is said this often, this far apart, unless it is heard.
const END_TRIES: u32 = 20;
const END_SPACING_MS: i32 = 50;
/// How often what the receiver has shown of its presence is read, and how much of it at most.
const PRESENCE_POLL_NS: u64 = 100_000_000;
const PRESENCES_MAX: usize = 16;
/// How far behind its schedule a stream may end.
const OVERRUN_MAX: Span = Span::from_ms(500);

/// So many refusals in a row, by the far host or by routers on the way, mean that nobody is there.
const STREAK_MAX: u32 = 64;
/// A silence as long ends a row: hosts refuse the same one once a second at least (icmp_ratelimit, icmp(7)).
const STREAK_GAP_NS: u64 = 2_000_000_000;

/// What is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct DatagramSendPlan {
    /// The session's token.
    pub token: TestToken,
    /// The stream of the session.
    pub stream: u16,
    /// Bytes of payload of each datagram, at least [`HEADER_BYTES`].
    pub datagram_bytes: usize,
    /// Of the payload; without one, as fast as the kernel takes them.
    pub rate: Option<Rate>,
    /// For how long.
    pub duration: Span,
    /// Whether the kernel may cut one call's bytes into datagrams.
    pub segmentation: bool,
}

/// A stream that could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum DatagramSendError {
    /// Too short for a header, or longer than UDP allows.
    #[error("a datagram of {bytes} bytes cannot be sent: give {least} to {most}", least = HEADER_BYTES, most = DATAGRAM_MAX)]
    Length {
        /// What was asked for.
        bytes: usize,
    },
    /// The path or the device takes no datagram of this length.
    #[error(
        "datagrams of {bytes} bytes are too long for the way to the other host; give fewer bytes, as many as \
         the path's MTU less 28 (IPv4) or 48 (IPv6)"
    )]
    TooLong {
        /// What was asked for.
        bytes: usize,
    },
    /// Routers or the far host keep saying that nobody is there.
    #[error(
        "the other host stopped taking datagrams after {sent}: its program ended or a firewall came between"
    )]
    Unreachable {
        /// How many had been sent.
        sent: u64,
    },
    /// The kernel refused otherwise.
    #[error("sending datagrams failed: {0}")]
    Kernel(#[from] io::Error),
}

/// What a sender did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SenderReport {
    /// How many were to be sent at the rate asked for.
    pub planned: Option<u64>,
    /// How many were numbered: sent, or refused by this host.
    pub count: u64,
    /// Datagrams that the queue of this host's device refused (ENOBUFS): lost here.
    pub refused: u64,
    /// Bytes of payload of each.
    pub datagram_bytes: u64,
    /// When the first was due, by this host's CLOCK_MONOTONIC_RAW.
    pub start_ns: u64,
    /// When the last call returned.
    pub end_ns: u64,
    /// Datagrams that leave by one call at this rate.
    pub batch: u64,
    /// Whether the kernel cut calls up.
    pub segmentation: bool,
    /// Calls.
    pub calls: u64,
    /// How often the socket's buffer was full, so that sending waited: the device is slower than the rate.
    pub waits: u64,
    /// The most bytes seen in this host's own queues.
    pub queued_bytes_max: u64,
    /// Refusals by the far host or a router (ICMP).
    pub unreachable: u64,
    /// How late datagrams left: half of them no later than this.
    pub late_p50_ns: u64,
    /// Ninety-nine in a hundred no later than this.
    pub late_p99_ns: u64,
    /// The latest.
    pub late_max_ns: u64,
    /// Whether the receiver said that it heard the end.
    pub end_heard: bool,
    /// Whether it was told to stop, or ran out of time, before all were sent.
    pub cut_short: bool,
    /// What else this host dropped meanwhile.
    pub drops: KernelDrops,
    /// Packets, of everybody's, that the queueing discipline of the device towards the receiver dropped meanwhile, those
    /// refused among them; `None` where the kernel does not say.
    pub queue_dropped: Option<u64>,
}

/// What happened to a stream that was begun.
#[derive(Debug)]
pub struct SendOutcome {
    /// What was sent, up to its end or to where it broke.
    pub report: SenderReport,
    /// What broke it off.
    pub error: Option<DatagramSendError>,
}

/// Sends one stream over a connected socket.
///
/// # Errors
/// [`DatagramSendError`] where nothing could be sent at all.
pub fn send(
    socket: &UdpSocket,
    plan: &DatagramSendPlan,
    progress: &DatagramProgress,
) -> Result<SendOutcome, DatagramSendError> {
    if !(HEADER_BYTES..=DATAGRAM_MAX).contains(&plan.datagram_bytes) {
        return Err(DatagramSendError::Length { bytes: plan.datagram_bytes });
    }
    let v6 = socket.local_addr()?.is_ipv6();
    datagram::enable_option(socket.as_fd(), v6, DatagramOption::ExtendedErrors)?;
    if v6 {
        // A socket of both families may be connected to an IPv4 address.
        let _ = datagram::enable_option(socket.as_fd(), false, DatagramOption::ExtendedErrors);
    }
    // This thread's own wish; without it sleeps are 50 µs longer.
    let _ = timer::set_timer_slack_ns(1);
    let drops_before = KernelDrops::read();
    let dropped_before = drops::drops_towards_peer(socket);
    let mut sender = DatagramSender::new(socket, plan, progress);
    progress.is_sending.store(true, Ordering::Relaxed);
    let ran = sender.run();
    // However it ended, the receiver waits for the number of datagrams.
    let uncut = sender.buffer.set_segmentation(socket, false);
    let end_ns = read_ns(ClockId::MonotonicRaw);
    sender.sample_queue();
    let said = sender.send_end();
    progress.is_sending.store(false, Ordering::Relaxed);
    let mut report = sender.report;
    report.end_ns = end_ns;
    report.end_heard = matches!(said, Ok(true));
    report.cut_short |= ran.is_err();
    report.late_p50_ns = sender.lateness.quantile(0.5);
    report.late_p99_ns = sender.lateness.quantile(0.99);
    report.late_max_ns = sender.lateness.max();
    report.drops = KernelDrops::read().since(drops_before);
    // The end was in the same queue behind all of them.
    let dropped = drops::drops_towards_peer(socket).zip(dropped_before);
    report.queue_dropped = dropped.map(|(after, before)| after.saturating_sub(before));
    let broke = ran
        .and(uncut.map_err(DatagramSendError::from))
        .and(said.map_err(DatagramSendError::from))
        .err();
    Ok(SendOutcome { report, error: broke })
}

/// The memory that calls are made from: slots of one datagram, or of several that the kernel cuts apart.
struct SendBuffer {
    batch: SendBatch,
    datagram_bytes: usize,
    per_slot: usize,
    /// Datagrams filled in, from the first slot on.
    filled: usize,
    /// The number of the first of them.
    first: u64,
}

impl SendBuffer {
    fn new(datagram_bytes: usize, batch: usize, segmentation: bool) -> Self {
        let per_slot = if segmentation {
            (SEGMENTED_MAX / datagram_bytes).clamp(1, BATCH_MAX).min(batch)
        } else {
            1
        };
        let slots = (2 * batch).div_ceil(per_slot);
        let batch = SendBatch::new(slots, per_slot * datagram_bytes);
        Self { batch, datagram_bytes, per_slot, filled: 0, first: 0 }
    }

    fn is_segmented(&self) -> bool {
        self.per_slot > 1
    }

    /// Has the kernel cut what is sent into datagrams, or leave it.
    fn set_segmentation(&self, socket: &UdpSocket, wanted: bool) -> io::Result<()> {
        let size = if wanted { self.datagram_bytes } else { 0 };
        let size = i32::try_from(size).unwrap_or(0);
        match set_option(socket.as_fd(), IntOption::UdpSegment, size) {
            // A kernel that cannot never did.
            Err(_) if !wanted => Ok(()),
            result => result,
        }
    }

    /// Writes the headers of `count` datagrams from the `next`-th on.
    #[inline]
    fn fill(
        &mut self,
        plan: &DatagramSendPlan,
        pace: &DatagramPacer,
        next: u64,
        count: u64,
        now_ns: u64,
    ) {
        self.first = next;
        self.filled = usize::try_from(count).unwrap_or(0);
        self.stamp(plan, pace, 0, now_ns);
    }

    /// Writes the headers of what is filled in from a slot on: it leaves now.
    #[inline]
    fn stamp(&mut self, plan: &DatagramSendPlan, pace: &DatagramPacer, slot: usize, now_ns: u64) {
        for index in slot * self.per_slot..self.filled {
            let number = self.first + index as u64;
            let header = TestDatagramHeader {
                kind: TestDatagramKind::Data,
                stream: plan.stream,
                sequence: wrapped(number),
                intended_ns: pace.due_ns(number).unwrap_or(now_ns),
                sent_ns: now_ns,
            };
            let (slot, place) = (index / self.per_slot, index % self.per_slot);
            let start = place * self.datagram_bytes;
            header.write(&plan.token, &mut self.batch.slot(slot)[start..]);
            self.batch.set_len(slot, start + self.datagram_bytes);
        }
    }

    fn slots(&self) -> usize {
        self.filled.div_ceil(self.per_slot)
    }

    /// Datagrams of one slot.
    fn datagrams_in(&self, slot: usize) -> usize {
        self.per_slot.min(self.filled - slot * self.per_slot)
    }
}

/// The low 32 bits of a number.
fn wrapped(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0)
}

struct DatagramSender<'a> {
    socket: &'a UdpSocket,
    plan: &'a DatagramSendPlan,
    progress: &'a DatagramProgress,
    pace: DatagramPacer,
    buffer: SendBuffer,
    deadline_ns: u64,
    presence_due_ns: u64,
    lateness: Histogram,
    refusals: UnreachableStreak,
    report: SenderReport,
}

impl<'a> DatagramSender<'a> {
    fn new(
        socket: &'a UdpSocket,
        plan: &'a DatagramSendPlan,
        progress: &'a DatagramProgress,
    ) -> Self {
        let start_ns = read_ns(ClockId::MonotonicRaw);
        let pace = DatagramPacer::new(start_ns, plan.datagram_bytes, plan.rate);
        let batch = usize::try_from(pace.batch).unwrap_or(1);
        let mut outlet = SendBuffer::new(plan.datagram_bytes, batch, plan.segmentation);
        if outlet.is_segmented() && outlet.set_segmentation(socket, true).is_err() {
            outlet = SendBuffer::new(plan.datagram_bytes, batch, false);
        }
        let planned = pace.count_in(plan.duration.as_ns());
        let overtime = if plan.rate.is_some() { OVERRUN_MAX } else { Span::ZERO };
        let deadline_ns = start_ns.saturating_add((plan.duration + overtime).as_ns());
        let report = SenderReport {
            planned,
            datagram_bytes: plan.datagram_bytes as u64,
            start_ns,
            end_ns: start_ns,
            batch: pace.batch,
            segmentation: outlet.is_segmented(),
            ..SenderReport::default()
        };
        Self {
            socket,
            plan,
            progress,
            pace,
            buffer: outlet,
            deadline_ns,
            presence_due_ns: start_ns,
            lateness: Histogram::new(),
            refusals: UnreachableStreak::default(),
            report,
        }
    }

    fn run(&mut self) -> Result<(), DatagramSendError> {
        let count = self.report.planned.unwrap_or(u64::MAX);
        let (mut last_call_ns, mut last_sent) = (0, 0);
        while self.report.count < count {
            let next = self.report.count;
            let call_ns = self.pace.next_call_ns(next, count, last_call_ns, last_sent);
            let is_over = |now| now > self.deadline_ns || self.progress.is_stopped();
            let until_ns = call_ns.min(self.presence_due_ns);
            let Some(now_ns) = wait_until(until_ns, SPIN_NS, is_over) else {
                self.report.cut_short = self.plan.rate.is_some() || self.progress.is_stopped();
                break;
            };
            if now_ns >= self.presence_due_ns {
                // Before the time is read that goes into datagrams.
                self.read_presence(now_ns)?;
                continue;
            }
            let due = self.pace.sendable(next, count, now_ns);
            self.buffer.fill(self.plan, &self.pace, next, due, now_ns);
            last_call_ns = self.transmit(now_ns)?;
            last_sent = self.report.count - next;
            self.progress.datagrams.store(self.report.count, Ordering::Relaxed);
            let bytes = self.report.count * self.report.datagram_bytes;
            self.progress.bytes.store(bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Hands over everything that is filled in, and counts what the kernel took or refused for good; when it was
    /// stamped last.
    fn transmit(&mut self, now_ns: u64) -> Result<u64, DatagramSendError> {
        let (mut slot, mut stamped_ns) = (0, now_ns);
        while slot < self.buffer.slots() {
            self.report.calls += 1;
            let end = self.buffer.slots();
            match self.buffer.batch.send(self.socket.as_fd(), slot, end) {
                Ok(sent) => {
                    let taken = (slot..slot + sent).map(|slot| self.buffer.datagrams_in(slot));
                    let taken: usize = taken.sum();
                    self.count_sent(taken, stamped_ns);
                    slot += sent;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.report.waits += 1;
                    self.sample_queue();
                    fd::poll_writable(self.socket.as_fd(), 20).or_else(ignore_interrupt)?;
                    if stamped_ns >= self.presence_due_ns {
                        self.read_presence(stamped_ns)?;
                    }
                    stamped_ns = read_ns(ClockId::MonotonicRaw);
                    if stamped_ns > self.deadline_ns || self.progress.is_stopped() {
                        break;
                    }
                    // The kernel did not have them meanwhile.
                    self.buffer.stamp(self.plan, &self.pace, slot, stamped_ns);
                }
                Err(error) if is_queue_full(&error) => {
                    let datagrams = self.buffer.datagrams_in(slot) as u64;
                    self.report.refused += datagrams;
                    self.report.count += datagrams;
                    slot += 1;
                }
                Err(error) if self.buffer.is_segmented() && forbids_segmentation(&error) => {
                    self.stop_segmentation(slot, stamped_ns)?;
                    slot = 0;
                }
                Err(error) => self.handle_send_error(error)?,
            }
        }
        Ok(stamped_ns)
    }

    /// The kernel took the next so many.
    #[inline]
    fn count_sent(&mut self, datagrams: usize, stamped_ns: u64) {
        let next = self.report.count;
        self.report.count += datagrams as u64;
        for due_ns in (next..self.report.count).filter_map(|number| self.pace.due_ns(number)) {
            self.lateness.record(stamped_ns.saturating_sub(due_ns));
        }
    }

    /// From here on every datagram is a message of its own: the path's MTU, or a device, allows nothing else.
    fn stop_segmentation(&mut self, slot: usize, now_ns: u64) -> io::Result<()> {
        self.buffer.set_segmentation(self.socket, false)?;
        let left = (self.buffer.filled - slot * self.buffer.per_slot) as u64;
        let batch = usize::try_from(self.pace.batch).unwrap_or(1);
        self.buffer = SendBuffer::new(self.plan.datagram_bytes, batch, false);
        self.buffer.fill(self.plan, &self.pace, self.report.count, left, now_ns);
        self.report.segmentation = false;
        Ok(())
    }

    /// An error that says something about datagrams sent before, or one that ends the stream.
    fn handle_send_error(&mut self, error: io::Error) -> Result<(), DatagramSendError> {
        if error.kind() == io::ErrorKind::Interrupted {
            return Ok(());
        }
        // Errors of earlier datagrams would otherwise fill the error queue.
        while datagram::discard_error(self.socket.as_fd()).unwrap_or(false) {}
        if !is_remote_refusal(&error) {
            return Err(error.into());
        }
        self.report.unreachable += 1;
        if !self.refusals.record(read_ns(ClockId::MonotonicRaw)) {
            return Ok(());
        }
        Err(if is_too_long(&error) {
            DatagramSendError::TooLong { bytes: self.plan.datagram_bytes }
        } else {
            DatagramSendError::Unreachable { sent: self.report.count }
        })
    }

    /// Takes in what the receiver has shown of its presence since the last time.
    fn read_presence(&mut self, now_ns: u64) -> Result<(), DatagramSendError> {
        self.presence_due_ns = now_ns + PRESENCE_POLL_NS;
        let mut buffer = [0; HEADER_BYTES];
        for _ in 0..PRESENCES_MAX {
            match plumb_sys::socket::receive(self.socket.as_fd(), &mut buffer, false) {
                Ok(len) => {
                    let header = TestDatagramHeader::read(&self.plan.token, &buffer[..len]);
                    if header.is_some_and(|header| header.kind == TestDatagramKind::Presence) {
                        self.progress.presence.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => self.handle_send_error(error)?,
            }
        }
        Ok(())
    }

    fn sample_queue(&mut self) {
        let bytes = datagram::unsent_bytes(self.socket.as_fd()).unwrap_or(0);
        self.report.queued_bytes_max = self.report.queued_bytes_max.max(u64::from(bytes));
    }

    /// Says how many there were until that is heard, or often enough.
    fn send_end(&self) -> io::Result<bool> {
        let DatagramSendPlan { token, stream, .. } = self.plan;
        let end = TestDatagramHeader::of(TestDatagramKind::End, *stream, 0, self.report.count)
            .to_bytes(token);
        let fd = self.socket.as_fd();
        let mut buffer = [0; HEADER_BYTES];
        for _ in 0..END_TRIES {
            // A full queue or a refusal: the next one may pass.
            let _ = self.socket.send(&end);
            let again_ns = read_ns(ClockId::MonotonicRaw)
                + u64::from(END_SPACING_MS.unsigned_abs()) * 1_000_000;
            loop {
                let left_ns = again_ns.saturating_sub(read_ns(ClockId::MonotonicRaw));
                let left_ms = i32::try_from(left_ns / 1_000_000).unwrap_or(END_SPACING_MS);
                if left_ms == 0 || !fd::poll_readable(fd, left_ms).or_else(ignore_interrupt)? {
                    break;
                }
                while datagram::discard_error(fd).unwrap_or(false) {}
                match plumb_sys::socket::receive(fd, &mut buffer, false) {
                    Ok(len) => {
                        let heard = TestDatagramHeader::read(token, &buffer[..len]);
                        if heard.is_some_and(|heard| heard.kind == TestDatagramKind::EndAck) {
                            return Ok(true);
                        }
                    }
                    Err(error) if is_transient_datagram(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(false)
    }
}

fn ignore_interrupt(error: io::Error) -> io::Result<bool> {
    if error.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) }
}

/// Anything but news of datagrams sent before: too long for the path, or no checksums by the device.
fn forbids_segmentation(error: &io::Error) -> bool {
    let interrupted = error.kind() == io::ErrorKind::Interrupted;
    is_too_long(error) || !(interrupted || is_remote_refusal(error))
}

/// Refusals so far.
#[derive(Clone, Copy, Debug, Default)]
struct UnreachableStreak {
    count: u32,
    last_ns: u64,
}

impl UnreachableStreak {
    /// Notes one; whether nobody is there.
    const fn record(&mut self, now_ns: u64) -> bool {
        let is_of_row = now_ns.saturating_sub(self.last_ns) < STREAK_GAP_NS;
        self.count = if is_of_row { self.count.saturating_add(1) } else { 1 };
        self.last_ns = now_ns;
        self.count >= STREAK_MAX
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    /// Fills in a batch while the kernel takes nothing, and hands it over once it does; the result of it, and the stamp
    /// from before. None where the kernel took it before it was asked to wait.
    fn wait_for_room() -> Option<(TestDatagramHeader, u64, u64, SenderReport)> {
        // Local datagrams wait for their reader as others do for a slow device.
        let (near, far) = UnixDatagram::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        while near.send(&[0; 64]).is_ok() {}
        let near = UdpSocket::from(OwnedFd::from(near));
        let rate = Rate::from_bits_per_second(1_000_000);
        let duration = Span::from_secs(600);
        let plan = DatagramSendPlan {
            token: TestToken([3; 16]),
            stream: 0,
            datagram_bytes: 100,
            rate,
            duration,
            segmentation: false,
        };
        let progress = DatagramProgress::default();
        let mut sender = DatagramSender::new(&near, &plan, &progress);
        let stamped_ns = read_ns(ClockId::MonotonicRaw);
        sender.buffer.fill(&plan, &sender.pace, 0, 1, stamped_ns);
        let header = std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut buffer = [0; 200];
                loop {
                    let len = far.recv(&mut buffer).unwrap();
                    if let Some(header) = TestDatagramHeader::read(&plan.token, &buffer[..len]) {
                        break header;
                    }
                }
            });
            sender.transmit(stamped_ns).unwrap();
            reading.join().unwrap()
        });
        let late_ns = sender.lateness.max();
        (sender.report.waits > 0).then_some((header, stamped_ns, late_ns, sender.report))
    }

    #[test]
    fn what_waited_for_room_leaves_with_the_time_of_after_the_wait() {
        let waited = (0..1_000).find_map(|_| wait_for_room());
        let (header, stamped_ns, late_ns, report) = waited.expect("a full queue is waited for");
        assert!(header.sent_ns > stamped_ns, "{header:?} {stamped_ns}");
        // It was due at the start, and left so much later; the histogram's grain is a part in some hundreds.
        let late = header.sent_ns - header.intended_ns;
        assert!(late_ns >= late - late / 100, "{late_ns} {late}");
        assert_eq!((report.count, report.refused), (1, 0));
    }

    #[test]
    fn a_few_now_and_then_are_never_too_many_and_a_row_is() {
        const SECOND: u64 = 1_000_000_000;
        let mut refusals = UnreachableStreak::default();
        // Ten at a time, every ten seconds of two hours.
        for number in 0..7_200_u64 {
            let now_ns = (number / 10) * 10 * SECOND + (number % 10) * 1_000;
            assert!(!refusals.record(now_ns), "after {number}");
        }
        let mut in_a_row = |every_ns: u64| {
            (0..100).position(|number| refusals.record(90_000 * SECOND + number * every_ns))
        };
        assert_eq!(in_a_row(SECOND), Some(63));
        assert_eq!(in_a_row(0), Some(0), "the same row");
    }
}
