//! Devices: where packets enter and leave the machine, one a file, all of one shape.
//!
//! A device moves packets between its kernel interface and a pool, in batches, and knows how to wait
//! for more.

use std::io;
use std::os::fd::BorrowedFd;

use plumb_base::time::{Instant, Span};
use plumb_sys::clock::{ClockId, read_ns};
use plumb_wire::ethernet::MacAddr;
use plumb_wire::machine::{DeviceCapabilities, Machine};
use plumb_wire::packet::{Batch, Packet, Pool};

pub mod driver;
pub mod fault;
pub mod memory;
pub mod packet;
pub mod recording;
pub mod replay;
pub mod tap;
pub mod vnet;
pub mod xdp;

/// Smallest MTU of a link that carries IPv4 (RFC 791 §3.2), in bytes.
pub const MTU_MIN_IPV4: u32 = 68;

/// How a device waits for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceWait {
    /// Asleep in the kernel.
    Block,
    /// Spinning this long after the last packet, then asleep.
    Poll(Span),
    /// Spinning for ever.
    Spin,
}

/// Why a device could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceOpenFailure {
    /// No such device can be opened; another may be asked for.
    Request,
    /// This kernel has none, or this process may not.
    Lacking,
    /// It is in use or not ready, or the kernel refused.
    Refused,
}

/// A device that could not be opened: what is wrong and, after a semicolon, what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct DeviceOpenError {
    /// Of what kind it is.
    pub failure: DeviceOpenFailure,
    message: String,
    source: Option<io::Error>,
}

impl DeviceOpenError {
    /// With the kernel's answer, where that is not part of the message.
    pub fn new(
        failure: DeviceOpenFailure,
        message: impl Into<String>,
        source: Option<io::Error>,
    ) -> Self {
        Self { failure, message: message.into(), source }
    }

    fn request(message: impl Into<String>) -> Self {
        Self::new(DeviceOpenFailure::Request, message, None)
    }

    fn refused(message: impl Into<String>) -> Self {
        Self::new(DeviceOpenFailure::Refused, message, None)
    }

    fn no_interface(name: &str) -> Self {
        Self::request(format!(
            "there is no network interface `{name}` here; `ip link` lists those there are, and \
             `plumb stack lab` makes a pair to try"
        ))
    }

    fn interface_down(name: &str) -> Self {
        Self::refused(format!("the interface {name} is down; bring it up: ip link set {name} up"))
    }
}

/// Why a device did not move packets.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The interface was removed. One that is only down drops what is sent, and counts it.
    #[error("the interface {name} was removed while it was in use")]
    Gone {
        /// Its name.
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A device that replays has nothing more.
    #[error("the capture is at its end")]
    Finished,
    /// The kernel refused.
    #[error("cannot {what} {name}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The device.
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// What a device counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Packets received, super-segments counted once.
    pub rx_packets: u64,
    /// Their bytes, link headers included.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Packets that arrived and were lost for want of a free frame or ring slot.
    pub rx_dropped: u64,
    /// Packets that the kernel would not take.
    pub tx_dropped: u64,
    /// Packets that were malformed before any protocol looked: an impossible vnet header.
    pub rx_malformed: u64,
    /// Kernel calls made.
    pub calls: u64,
}

/// The fixed properties of an open device.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Its name, for messages.
    pub name: String,
    /// What it carries and what it does by itself.
    pub capabilities: DeviceCapabilities,
    /// Its own link address, where it has one that the stack should use.
    pub mac: Option<MacAddr>,
}

/// A place where packets enter and leave.
pub trait Device {
    /// What does not change of it.
    fn info(&self) -> &DeviceInfo;

    /// Appends what has arrived to `batch`, at most `max` packets, without waiting; how many.
    ///
    /// Each is stamped with `now` as its time of receipt. Packets for which the pool has no frame are
    /// dropped and counted.
    ///
    /// # Errors
    /// When the device is gone, at its end, or the kernel refuses; the packets got so far are kept.
    fn receive(
        &mut self,
        now: Instant,
        batch: &mut Batch,
        max: usize,
        pool: &mut Pool,
    ) -> Result<usize, DeviceError>;

    /// Sends every packet of `batch` in order and gives its frames back; what the kernel does not take now
    /// is dropped and counted. Leaves `batch` empty. Packets may leave only with the next [`Device::wait`] or
    /// [`Device::flush`].
    ///
    /// # Errors
    /// When the device is gone or the kernel refuses for good.
    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), DeviceError>;

    /// The same for packets that `machine` was just polled for, some of which may have their payload there.
    ///
    /// # Errors
    /// As for [`Device::transmit`].
    fn transmit_from(
        &mut self,
        batch: &mut Batch,
        pool: &mut Pool,
        machine: &dyn Machine,
    ) -> Result<(), DeviceError> {
        join_tails(batch, pool, |packet| machine.tail(packet));
        self.transmit(batch, pool)
    }

    /// Sends what was left to the next wait, for whoever does not wait now.
    ///
    /// # Errors
    /// As for [`Device::transmit`].
    fn flush(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Waits until there may be something to receive, at most `timeout` (for ever when absent), in
    /// the way the device was opened with; whether there may be. An interruption by a signal ends the wait early
    /// with `false`.
    ///
    /// A device that can wait inside its receiving call does so here and keeps the packet for the next
    /// [`Device::receive`]: one kernel call less for each packet.
    ///
    /// # Errors
    /// As for [`Device::receive`].
    fn wait(&mut self, timeout: Option<Span>, pool: &mut Pool) -> Result<bool, DeviceError>;

    /// What was counted.
    fn counters(&self) -> DeviceCounters;

    /// What poll(2) can watch for packets; `None` where there is no such thing.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The packet and waiting functions of a layer; every layer is a [`Device`] too.
///
/// Each method is that of [`Device`] without `_through`, and does what the device below does unless said otherwise.
pub trait DeviceLayer {
    /// The device below.
    type Below: Device + ?Sized;

    /// The device below.
    fn below(&self) -> &Self::Below;

    /// The device below.
    fn below_mut(&mut self) -> &mut Self::Below;

    /// See [`Device::receive`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    fn receive_through(
        &mut self,
        now: Instant,
        batch: &mut Batch,
        max: usize,
        pool: &mut Pool,
    ) -> Result<usize, DeviceError> {
        self.below_mut().receive(now, batch, max, pool)
    }

    /// See [`Device::transmit`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    fn transmit_through(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), DeviceError> {
        self.below_mut().transmit(batch, pool)
    }

    /// See [`Device::transmit_from`].
    ///
    /// # Errors
    /// As there.
    fn transmit_from_through(
        &mut self,
        batch: &mut Batch,
        pool: &mut Pool,
        machine: &dyn Machine,
    ) -> Result<(), DeviceError> {
        join_tails(batch, pool, |packet| machine.tail(packet));
        self.transmit_through(batch, pool)
    }

    /// See [`Device::wait`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    fn wait_through(
        &mut self,
        timeout: Option<Span>,
        pool: &mut Pool,
    ) -> Result<bool, DeviceError> {
        self.below_mut().wait(timeout, pool)
    }

    /// See [`Device::fd`].
    fn fd_through(&self) -> Option<BorrowedFd<'_>> {
        self.below().fd()
    }
}

impl<L: DeviceLayer> Device for L {
    #[inline]
    fn info(&self) -> &DeviceInfo {
        self.below().info()
    }

    #[inline]
    fn receive(
        &mut self,
        now: Instant,
        batch: &mut Batch,
        max: usize,
        pool: &mut Pool,
    ) -> Result<usize, DeviceError> {
        self.receive_through(now, batch, max, pool)
    }

    #[inline]
    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), DeviceError> {
        self.transmit_through(batch, pool)
    }

    #[inline]
    fn transmit_from(
        &mut self,
        batch: &mut Batch,
        pool: &mut Pool,
        machine: &dyn Machine,
    ) -> Result<(), DeviceError> {
        self.transmit_from_through(batch, pool, machine)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.below_mut().flush()
    }

    #[inline]
    fn wait(&mut self, timeout: Option<Span>, pool: &mut Pool) -> Result<bool, DeviceError> {
        self.wait_through(timeout, pool)
    }

    fn counters(&self) -> DeviceCounters {
        self.below().counters()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd_through()
    }
}

/// A device in memory of its own is a layer that changes nothing.
impl<D: Device + ?Sized> DeviceLayer for Box<D> {
    type Below = D;

    #[inline]
    fn below(&self) -> &D {
        self
    }

    #[inline]
    fn below_mut(&mut self) -> &mut D {
        self
    }

    #[inline]
    fn transmit_from_through(
        &mut self,
        batch: &mut Batch,
        pool: &mut Pool,
        machine: &dyn Machine,
    ) -> Result<(), DeviceError> {
        (**self).transmit_from(batch, pool, machine)
    }
}

/// Copies payload that packets left with the machine behind their data. A packet for which no frame is free is lost,
/// as is one that the kernel does not take.
fn join_tails<'a>(batch: &mut Batch, pool: &mut Pool, tail: impl Fn(&Packet) -> [&'a [u8]; 2]) {
    if batch.iter().all(|packet| packet.tail == 0) {
        return;
    }
    for packet in std::mem::take(batch) {
        if packet.tail == 0 {
            batch.push(packet);
            continue;
        }
        batch.extend(joined(&packet, tail(&packet), pool));
        pool.free(packet);
    }
}

/// A copy of a packet and its tail in one frame.
fn joined(packet: &Packet, tail: [&[u8]; 2], pool: &mut Pool) -> Option<Packet> {
    let mut whole = pool.allocate_for(packet.len() + tail[0].len() + tail[1].len())?;
    whole.meta = packet.meta;
    pool.append_from(&mut whole, packet, 0..packet.len(), |from, to| to.copy_from_slice(from));
    for piece in tail {
        pool.append(&mut whole, piece.len()).expect("room for all of it").copy_from_slice(piece);
    }
    Some(whole)
}

/// The longest that a spinning wait goes on before it returns, so that whoever drives it can look
/// at its reasons to stop, and the device at whether it still exists.
const SPIN_TURN_MAX: Span = Span::from_ms(10);

/// Looks at the memory this often between two readings of the clock.
const CHECKS_PER_CLOCK_READ: u32 = 64;

/// What a wait found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpinOutcome {
    /// Something is ready.
    Ready,
    /// Nothing within the time for spinning; the wait is over.
    TimedOut,
    /// Nothing within the time for spinning; sleep for the rest, for ever when absent.
    Sleep(Option<Span>),
}

/// Spins as long as `wait` and `timeout` say.
#[inline]
fn spin(wait: DeviceWait, timeout: Option<Span>, is_ready: impl Fn() -> bool) -> SpinOutcome {
    if is_ready() {
        return SpinOutcome::Ready;
    }
    let limit = match wait {
        DeviceWait::Block => return SpinOutcome::Sleep(timeout),
        DeviceWait::Poll(limit) => limit,
        DeviceWait::Spin => SPIN_TURN_MAX,
    };
    let limit = timeout.map_or(limit, |timeout| timeout.min(limit));
    if spin_for(limit, is_ready) {
        return SpinOutcome::Ready;
    }
    let rest = timeout.map(|timeout| timeout.saturating_sub(limit));
    if wait == DeviceWait::Spin || rest == Some(Span::ZERO) {
        SpinOutcome::TimedOut
    } else {
        SpinOutcome::Sleep(rest)
    }
}

fn spin_for(limit: Span, is_ready: impl Fn() -> bool) -> bool {
    let start = read_ns(ClockId::Monotonic);
    loop {
        for _ in 0..CHECKS_PER_CLOCK_READ {
            if is_ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        if read_ns(ClockId::Monotonic).saturating_sub(start) >= limit.as_ns() {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use plumb_wire::packet::PoolConfig;

    use super::*;

    #[test]
    fn a_packet_leaves_whole_with_its_tail_or_not_at_all() {
        let mut pool = Pool::new(PoolConfig { count: 4, size: 256, large: 0 });
        let head = |pool: &mut Pool, tail| {
            let mut packet = pool.packet_of(b"head").unwrap();
            packet.tail = tail;
            packet
        };
        let mut batch = vec![head(&mut pool, 1), head(&mut pool, 0), head(&mut pool, 2)];
        // One frame is left: the first packet takes it and gives its own back, which the last takes.
        join_tails(&mut batch, &mut pool, |packet| [b"-tail", &b"!!"[..packet.tail as usize]]);
        let bytes = |pool: &Pool, batch: &Batch| -> Vec<Vec<u8>> {
            batch.iter().map(|packet| pool.bytes(packet).to_vec()).collect()
        };
        assert_eq!(bytes(&pool, &batch), [&b"head-tail!"[..], b"head", b"head-tail!!"]);
        batch[1].tail = 1;
        let held = pool.allocate().unwrap();
        join_tails(&mut batch, &mut pool, |_| [b"-tail", b""]);
        assert_eq!(bytes(&pool, &batch), [&b"head-tail!"[..], b"head-tail!!"]);
        for packet in batch.drain(..).chain([held]) {
            pool.free(packet);
        }
        assert_eq!((0..4).filter_map(|_| pool.allocate()).count(), 4, "no frame is lost");
    }

    #[test]
    fn a_blocking_wait_sleeps_at_once_and_a_polling_one_for_what_is_left() {
        let second = Some(Span::from_secs(1));
        assert_eq!(spin(DeviceWait::Block, second, || false), SpinOutcome::Sleep(second));
        let polling = DeviceWait::Poll(Span::from_us(10));
        assert_eq!(spin(polling, None, || false), SpinOutcome::Sleep(None));
        let SpinOutcome::Sleep(Some(rest)) = spin(polling, second, || false) else {
            panic!("sleeps")
        };
        assert_eq!(rest, Span::from_us(999_990));
        assert_eq!(spin(polling, Some(Span::from_us(5)), || false), SpinOutcome::TimedOut);
    }

    #[test]
    fn a_spinning_wait_never_sleeps_and_sees_what_arrives() {
        assert_eq!(spin(DeviceWait::Spin, None, || false), SpinOutcome::TimedOut);
        let looks = Cell::new(0);
        let arrives = || {
            looks.set(looks.get() + 1);
            looks.get() > 1_000
        };
        assert_eq!(spin(DeviceWait::Spin, None, arrives), SpinOutcome::Ready);
    }
}
