//! The AF_XDP socket: packets of chosen queues come past the kernel's stack, into the pool's own
//! memory.
//!
//! A program of six instructions, attached for as long as the device is open, steers every packet
//! of its queues here, so the kernel's stack on that interface hears nothing and answers nothing. On a virtual
//! Ethernet the kernel at the other end must complete its checksums (`ethtool -K NAME tx off` there,
//! or a bed of the lab without offloads): what it leaves open is not said here.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use plumb_base::time::{Instant, Span};
use plumb_sys::fd;
use plumb_sys::xdp::{UmemRange, XdpSocket};
use plumb_wire::packet::{Batch, Packet, Pool};

use super::{Device, DeviceCounters, DeviceError, DeviceInfo, DeviceWait, SpinOutcome, spin};

mod open;

pub use open::XdpOptions;
pub use plumb_sys::bpf::XdpAttachMode;
pub use plumb_sys::xdp::XdpCopyMode;

/// Packets that a blocking device may leave to the call with which it waits: that sends no more
/// than 32 (the kernel's TX_BATCH_SIZE).
const DEFERRED: u32 = 16;

/// The longest sleep: a poll(2) of an AF_XDP socket does not end when its interface vanishes.
const SLEEP: Span = Span::from_secs(1);

/// One queue of the interface.
#[derive(Debug)]
struct XdpQueue {
    socket: XdpSocket,
    /// Frames that wait in the kernel for packets.
    lent: u32,
    /// How many there should be.
    lent_target: u32,
    /// Packets that were submitted and may not have been sent.
    tx_unsent: u32,
}

/// AF_XDP sockets on some or all queues of one interface.
#[derive(Debug)]
pub struct XdpDevice {
    // The order of fields is that of closing: first nothing is steered here any more.
    _link: OwnedFd,
    queues: Vec<XdpQueue>,
    next: usize,
    info: DeviceInfo,
    wait: DeviceWait,
    /// Where the program runs.
    pub mode: XdpAttachMode,
    /// Whether the kernel copies.
    pub copying: XdpCopyMode,
    counters: DeviceCounters,
}

impl XdpDevice {
    /// Frames that are with the kernel, waiting for packets or being sent.
    pub fn lent(&self) -> usize {
        let lent = |queue: &XdpQueue| (queue.lent + queue.socket.tx_in_flight()) as usize;
        self.queues.iter().map(lent).sum()
    }

    /// Lends free frames to the kernel, as many as it should have.
    #[inline]
    fn fill(queue: &mut XdpQueue, pool: &mut Pool) {
        if queue.lent >= queue.lent_target {
            return;
        }
        // The kernel hands over a packet before it says that it has read the ring (xsk_flush), so
        // there may be less room than frames are missing.
        let missing = (queue.lent_target - queue.lent).min(queue.socket.fill_room());
        for _ in 0..missing {
            let Some(packet) = pool.allocate() else { break };
            match pool.lend(packet) {
                Ok(offset) => queue.socket.lend_for_receive(offset),
                Err(packet) => {
                    pool.free(packet);
                    break;
                }
            }
            queue.lent += 1;
        }
        queue.socket.submit_fill();
    }

    /// Takes back the frames of packets that have been sent.
    #[inline]
    fn complete(queue: &mut XdpQueue, pool: &mut Pool) {
        let mut any = false;
        while let Some(offset) = queue.socket.complete() {
            let packet = pool.reclaim(offset, 0);
            pool.free(packet);
            any = true;
        }
        if any {
            queue.socket.release_completion();
        }
    }

    /// Makes the kernel send what one queue owes.
    fn kick(&mut self, index: usize) -> Result<(), DeviceError> {
        let queue = &mut self.queues[index];
        while queue.tx_unsent > 0 {
            if !queue.socket.tx_needs_wakeup() {
                queue.tx_unsent = 0;
                break;
            }
            let before = queue.socket.tx_pending();
            self.counters.calls += 1;
            let Err(error) = queue.socket.wake_tx() else {
                queue.tx_unsent = 0;
                break;
            };
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                // 32 packets were sent and there are more; without progress the device is full.
                io::ErrorKind::WouldBlock if queue.socket.tx_pending() < before => {}
                io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy => break,
                _ if error.raw_os_error() == Some(ENOBUFS) => break,
                _ => {
                    queue.tx_unsent = 0;
                    return self.failed("send to", error);
                }
            }
        }
        Ok(())
    }

    fn kick_all(&mut self) -> Result<(), DeviceError> {
        (0..self.queues.len()).try_for_each(|index| self.kick(index))
    }

    /// What an error of the kernel means: nothing when the interface is only down.
    #[cold]
    fn failed(&self, what: &'static str, source: io::Error) -> Result<(), DeviceError> {
        let name = self.info.name.clone();
        match source.raw_os_error() {
            Some(ENETDOWN) => Ok(()),
            Some(ENXIO) => Err(DeviceError::Gone { name, source }),
            _ => Err(DeviceError::Io { what, name, source }),
        }
    }

    /// Whether the interface still exists; always `false` otherwise, for nothing has come.
    #[cold]
    fn check(&mut self) -> Result<bool, DeviceError> {
        self.counters.calls += 1;
        match self.queues[0].socket.wake_rx() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => self.failed("receive from", error).map(|()| false),
            Ok(()) => Ok(false),
        }
    }

    /// Sleeps until a packet comes; the same call sends what is owed.
    fn sleep(&mut self, timeout: Option<Span>) -> Result<bool, DeviceError> {
        let limit = timeout.map_or(SLEEP, |timeout| timeout.min(SLEEP));
        let ns = limit.as_ps().div_ceil(1_000);
        self.counters.calls += 1;
        let result = match &self.queues[..] {
            [queue] => fd::wait_readable(&[queue.socket.as_fd()], &mut [false], Some(ns)),
            queues => {
                let fds: Vec<BorrowedFd<'_>> =
                    queues.iter().map(|queue| queue.socket.as_fd()).collect();
                fd::wait_readable(&fds, &mut vec![false; fds.len()], Some(ns))
            }
        };
        for queue in &mut self.queues {
            queue.tx_unsent = 0;
        }
        match result {
            Ok(0) if limit == SLEEP => self.check(),
            Ok(count) => Ok(count > 0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.check(),
            Err(error) => self.failed("wait for", error).map(|()| false),
        }
    }
}

/// linux/errno.h, the same on every machine that plumb knows.
const ENXIO: i32 = 6;
const ENETDOWN: i32 = 100;
const ENOBUFS: i32 = 105;

impl Device for XdpDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    #[inline]
    fn receive(
        &mut self,
        now: Instant,
        batch: &mut Batch,
        max: usize,
        pool: &mut Pool,
    ) -> Result<usize, DeviceError> {
        let before = batch.len();
        let count = self.queues.len();
        for _ in 0..count {
            let queue = &mut self.queues[self.next];
            self.next = if self.next + 1 == count { 0 } else { self.next + 1 };
            let mut taken = 0;
            while batch.len() - before < max {
                let Some(UmemRange { offset, len }) = queue.socket.receive() else { break };
                let mut packet = pool.reclaim(offset, len);
                packet.meta.received = now;
                self.counters.rx_packets += 1;
                self.counters.rx_bytes += len as u64;
                batch.push(packet);
                taken += 1;
            }
            if taken > 0 {
                queue.socket.release_rx();
                queue.lent -= taken;
            }
            Self::complete(queue, pool);
            Self::fill(queue, pool);
        }
        if batch.len() == before && max > 0 {
            // Nobody waited, and so nobody sent.
            self.kick_all()?;
        }
        Ok(batch.len() - before)
    }

    #[inline]
    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), DeviceError> {
        let count = self.queues.len();
        for packet in batch.drain(..) {
            let index = if count == 1 { 0 } else { packet.meta.flow as usize % count };
            let queue = &mut self.queues[index];
            if queue.socket.tx_room() == 0 {
                Self::complete(queue, pool);
                if queue.socket.tx_room() == 0 {
                    pool.free(packet);
                    self.counters.tx_dropped += 1;
                    continue;
                }
            }
            let len = packet.len();
            let Some(offset) = lend(packet, pool) else {
                self.counters.tx_dropped += 1;
                continue;
            };
            queue.socket.lend_for_transmit(UmemRange { offset, len });
            queue.tx_unsent += 1;
            self.counters.tx_packets += 1;
            self.counters.tx_bytes += len as u64;
        }
        for index in 0..count {
            let queue = &mut self.queues[index];
            if queue.tx_unsent == 0 {
                continue;
            }
            queue.socket.submit_tx();
            // The call that waits sends as well (xsk_poll), and one call less is made.
            if self.wait != DeviceWait::Block || queue.tx_unsent > DEFERRED {
                self.kick(index)?;
            }
            Self::complete(&mut self.queues[index], pool);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.kick_all()
    }

    #[inline]
    fn wait(&mut self, timeout: Option<Span>, pool: &mut Pool) -> Result<bool, DeviceError> {
        for queue in &mut self.queues {
            Self::complete(queue, pool);
            Self::fill(queue, pool);
            if queue.socket.fill_needs_wakeup() && !queue.socket.is_ready() {
                self.counters.calls += 1;
                // The calls below report errors of the socket.
                let _ = queue.socket.wake_rx();
            }
        }
        let queues = &self.queues;
        let is_ready = || queues.iter().any(|queue| queue.socket.is_ready());
        match spin(self.wait, timeout, is_ready) {
            SpinOutcome::Ready => Ok(true),
            SpinOutcome::TimedOut => {
                self.kick_all()?;
                self.check()
            }
            SpinOutcome::Sleep(timeout) => self.sleep(timeout),
        }
    }

    fn counters(&self) -> DeviceCounters {
        let mut counters = self.counters;
        counters.rx_dropped +=
            self.queues.iter().filter_map(|queue| queue.socket.drops().ok()).sum::<u64>();
        counters
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.queues[..] {
            [queue] => Some(queue.socket.as_fd()),
            _ => None,
        }
    }
}

/// Gives a packet's frame to the kernel: where its data lies there. A packet in a large frame moves to
/// an ordinary one if it fits; none, and the packet is gone, when not.
#[inline]
fn lend(packet: Packet, pool: &mut Pool) -> Option<usize> {
    match pool.lend(packet) {
        Ok(offset) => Some(offset),
        Err(large) => {
            let bytes = pool.bytes(&large).to_vec();
            pool.free(large);
            let packet = pool.packet_of(&bytes)?;
            match pool.lend(packet) {
                Ok(offset) => Some(offset),
                Err(large) => {
                    pool.free(large);
                    None
                }
            }
        }
    }
}

impl Drop for XdpDevice {
    fn drop(&mut self) {
        // Frames that were handed over are sent before the socket closes; an interface that is gone
        // cannot take it.
        let _ = self.kick_all();
    }
}
