//! The packet socket: every frame of a network interface, beside the kernel's own stack.
//!
//! Asleep it makes two kernel calls a packet, a receiving one that waits and a sending one; awake
//! it watches a ring that the kernel fills and makes one. A virtio header before each frame carries
//! partial checksums and super-segments both ways.
//!
//! The kernel's stack sees every received frame as well and answers what it can: an ICMP port
//! unreachable or a TCP reset where nobody listens, ARP for its own addresses. It stays silent on
//! an interface that has no address and ARP switched off (`ip link set NAME arp off`), which is how the
//! lab sets one up.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use plumb_base::time::{Instant, Span};
use plumb_sys::fd;
use plumb_sys::packet_socket::{self, ReceiveRing};
use plumb_wire::packet::{Batch, Packet, Pool};

use super::{Device, DeviceCounters, DeviceError, DeviceInfo, DeviceWait, SpinOutcome, spin, vnet};

mod open;
mod transfer;

pub use open::{PacketOptions, PacketReceiveMode};

/// A packet socket on one interface.
#[derive(Debug)]
pub struct PacketDevice {
    fd: OwnedFd,
    info: DeviceInfo,
    wait: DeviceWait,
    /// The kernel's ring; calls receive where there is none.
    ring: Option<ReceiveRing>,
    /// What did not fit in an ordinary frame.
    overflow: Box<[u8]>,
    /// A packet that a waiting call brought along.
    kept: Option<Packet>,
    /// The last receive handed over a kept packet, so the next need not ask: a wait will.
    skip_next_call: bool,
    /// SO_RCVTIMEO as it stands.
    receive_timeout: Span,
    /// PACKET_QDISC_BYPASS as wanted and as it stands.
    bypass: (bool, bool),
    counters: DeviceCounters,
    /// The kernel's own count of frames it had no room for, which asking resets.
    kernel_drops: Cell<u64>,
}

impl PacketDevice {
    /// What an error of the kernel means for the device: nothing when the interface is only down.
    #[cold]
    fn failed(&self, what: &'static str, source: io::Error) -> Result<(), DeviceError> {
        let name = self.info.name.clone();
        if !source.raw_os_error().is_some_and(is_interface_absent) {
            return Err(DeviceError::Io { what, name, source });
        }
        match packet_socket::bound(self.fd.as_fd()) {
            Ok(_) => Ok(()),
            Err(_) => Err(DeviceError::Gone { name, source }),
        }
    }
}

/// A time limit in nanoseconds, not shorter than it was.
fn nanoseconds(span: Span) -> u64 {
    span.as_ps().div_ceil(1_000)
}

/// ENETDOWN, ENXIO and ENODEV: what a socket says after its interface was taken down or removed.
fn is_interface_absent(code: i32) -> bool {
    [100, 6, 19].contains(&code)
}

impl Device for PacketDevice {
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
        let result = if self.ring.is_some() {
            self.receive_from_ring(batch, max, pool)
        } else {
            self.receive_by_calls(batch, max, pool)
        };
        for packet in &mut batch[before..] {
            packet.meta.received = now;
            self.counters.rx_packets += 1;
            self.counters.rx_bytes += packet.len() as u64;
        }
        result.map(|()| batch.len() - before)
    }

    #[inline]
    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), DeviceError> {
        let result = self.send_all(batch, pool);
        pool.free_all(batch);
        result
    }

    #[inline]
    fn wait(&mut self, timeout: Option<Span>, pool: &mut Pool) -> Result<bool, DeviceError> {
        self.skip_next_call = false;
        let Some(ring) = &self.ring else { return self.wait_in_call(timeout, pool) };
        match spin(self.wait, timeout, || ring.is_ready()) {
            SpinOutcome::Ready => Ok(true),
            SpinOutcome::TimedOut => self.check(),
            SpinOutcome::Sleep(timeout) => {
                self.counters.calls += 1;
                match fd::wait_readable(&[self.fd.as_fd()], &mut [false], timeout.map(nanoseconds))
                {
                    // An error of the socket ends a poll as well as a packet does.
                    Ok(1..) if self.ring.as_ref().is_some_and(ReceiveRing::is_ready) => Ok(true),
                    Ok(1..) => self.check(),
                    Ok(0) => Ok(false),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => self.check(),
                    Err(error) => self.failed("wait for", error).map(|()| false),
                }
            }
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn counters(&self) -> DeviceCounters {
        if let Ok(drops) = packet_socket::take_drops(self.fd.as_fd()) {
            self.kernel_drops.set(self.kernel_drops.get() + u64::from(drops));
        }
        let mut counters = self.counters;
        counters.rx_dropped += self.kernel_drops.get();
        counters
    }
}

impl PacketDevice {
    /// Whether the interface is still there: always `false` then, for nothing has come.
    ///
    /// The kernel tells about its end only once, and perhaps before it is complete.
    #[cold]
    fn check(&mut self) -> Result<bool, DeviceError> {
        self.counters.calls += 2;
        if let Err(error) = packet_socket::take_error(self.fd.as_fd()) {
            self.failed("receive from", error)?;
        }
        match packet_socket::bound(self.fd.as_fd()) {
            Ok(_) => Ok(false),
            Err(source) => Err(DeviceError::Gone { name: self.info.name.clone(), source }),
        }
    }
}
