//! TAP and TUN: packets through a network interface that a file descriptor is the far side of.
//!
//! One kernel call for each packet each way. A device that blocks sleeps in the very read(2) that
//! brings the packet; one that spins reads without waiting. Super-segments and partial checksums
//! cross in the virtio header.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use plumb_base::time::{Instant, Span};
use plumb_sys::{fd, tun};
use plumb_wire::machine::{Machine, Medium};
use plumb_wire::packet::{Batch, HEADROOM, LARGE_FRAME, Packet, Pool};

use super::{Device, DeviceCounters, DeviceError, DeviceInfo, DeviceWait, vnet};

mod open;

pub use open::{TapOffload, TapOptions};

/// Room for an Ethernet header and two VLAN tags.
const LINK_HEADER_MAX: usize = 14 + 2 * 4;
/// Empty reads after which a spinning wait looks up, so that its caller can stop.
const SPINS: u32 = 64;

/// One queue of a TAP or TUN interface.
#[derive(Debug)]
pub struct TapDevice {
    fd: OwnedFd,
    info: DeviceInfo,
    wait: DeviceWait,
    vnet_header: bool,
    /// Super-segments may come.
    large: bool,
    /// A packet that arrived while waiting.
    held: Option<Packet>,
    read_ahead: ReadAhead,
    counters: DeviceCounters,
}

/// Whether to look for another packet after one was read: where packets come one by one, as requests do, that is a call in vain
/// each time.
#[derive(Clone, Copy, Debug, Default)]
struct ReadAhead {
    /// Times in a row that there was no other.
    failures: u8,
    /// Packets after which no other is looked for.
    skips: u8,
}

impl ReadAhead {
    /// Most doublings of the packets skipped.
    const DOUBLINGS_MAX: u8 = 5;

    /// Whether to look this time.
    #[inline]
    fn is_due(&mut self) -> bool {
        let is_due = self.skips == 0;
        self.skips = self.skips.saturating_sub(1);
        is_due
    }

    #[inline]
    fn note(&mut self, found: bool) {
        self.failures = if found { 0 } else { (self.failures + 1).min(Self::DOUBLINGS_MAX) };
        self.skips = (1 << self.failures) - 1;
    }
}

/// The result of one read.
enum TapRead {
    Packet(Packet),
    /// Read, and not worth handing over.
    Dropped,
    Nothing,
    Interrupted,
}

impl TapDevice {
    /// Its descriptor: to be inherited by a process that shall adopt it.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Room for the longest frame that a read can bring, virtio header aside and super-segments
    /// excepted, and one byte by which a read shows that it was cut short.
    fn frame_len_max(&self) -> usize {
        let link_header = match self.info.capabilities.medium {
            Medium::Ethernet => LINK_HEADER_MAX,
            Medium::Ip => 0,
        };
        self.info.capabilities.mtu as usize + link_header + 1
    }

    /// Reads one packet; waits for it unless `nowait`.
    #[inline]
    fn read(&mut self, pool: &mut Pool, nowait: bool) -> Result<TapRead, DeviceError> {
        self.counters.calls += 1;
        let header_len = if self.vnet_header { vnet::HEADER_LEN } else { 0 };
        let Some(mut packet) = pool.allocate_for(self.frame_len_max()) else {
            return self.discard(nowait);
        };
        pool.prepend(&mut packet, header_len);
        let room = pool.tailroom(&packet);
        // A large frame has room for a super-segment as it is.
        let is_large = pool.is_large(&packet);
        let room = if self.large && is_large { room } else { room.min(self.frame_len_max()) };
        pool.append(&mut packet, room);
        let result = if self.large && !is_large {
            self.read_scattered(&mut packet, pool, nowait)
        } else {
            self.read_into(&mut packet, pool, nowait)
        };
        match result {
            Ok(len) => Ok(self.packet_from_read(packet, len, pool)),
            Err(error) => {
                pool.free(packet);
                self.read_failed(error)
            }
        }
    }

    /// Reads into one frame, which has room for whatever can come.
    #[inline]
    fn read_into(&self, packet: &mut Packet, pool: &mut Pool, nowait: bool) -> io::Result<usize> {
        let buffer = pool.bytes_mut(packet);
        if nowait && self.wait != DeviceWait::Spin {
            tun::read_into(self.fd.as_fd(), &mut [IoSliceMut::new(buffer)], true)
        } else {
            fd::read(self.fd.as_fd(), buffer)
        }
    }

    /// Reads what may be a super-segment: into the ordinary frame, and behind that into a large
    /// one, which becomes the packet's frame only when it is needed.
    fn read_scattered(
        &self,
        packet: &mut Packet,
        pool: &mut Pool,
        nowait: bool,
    ) -> io::Result<usize> {
        let first = packet.len();
        let Some(mut large) = pool.allocate_for(LARGE_FRAME - HEADROOM) else {
            let buffer = pool.bytes_mut(packet);
            return tun::read_into(self.fd.as_fd(), &mut [IoSliceMut::new(buffer)], nowait);
        };
        pool.prepend(&mut large, vnet::HEADER_LEN);
        let room = pool.tailroom(&large);
        pool.append(&mut large, room);
        let (front, behind) = pool.bytes_mut_both(packet, &mut large);
        let mut parts = [IoSliceMut::new(front), IoSliceMut::new(&mut behind[first..])];
        let result = tun::read_into(self.fd.as_fd(), &mut parts, nowait);
        if result.as_ref().is_ok_and(|&len| len > first) {
            let (front, behind) = pool.bytes_mut_both(packet, &mut large);
            behind[..first].copy_from_slice(front);
            std::mem::swap(packet, &mut large);
        }
        pool.free(large);
        result
    }

    /// Makes a packet of what was read.
    #[inline]
    fn packet_from_read(&mut self, mut packet: Packet, len: usize, pool: &mut Pool) -> TapRead {
        if len >= packet.len() {
            // Cut short: a super-segment that found no large frame, or an MTU that has grown.
            self.counters.rx_dropped += 1;
            pool.free(packet);
            return TapRead::Dropped;
        }
        pool.truncate(&mut packet, len);
        if self.vnet_header {
            let Some(&header) = pool.bytes(&packet).first_chunk() else {
                return self.malformed(packet, pool);
            };
            pool.trim_front(&mut packet, vnet::HEADER_LEN);
            let parsed = vnet::parse(header, self.info.capabilities.medium, pool.bytes(&packet));
            let Some((checksum, segments)) = parsed else {
                return self.malformed(packet, pool);
            };
            packet.meta.checksum = checksum;
            packet.meta.segments = segments;
        }
        self.counters.rx_packets += 1;
        self.counters.rx_bytes += packet.len() as u64;
        TapRead::Packet(packet)
    }

    #[cold]
    fn malformed(&mut self, packet: Packet, pool: &mut Pool) -> TapRead {
        self.counters.rx_malformed += 1;
        pool.free(packet);
        TapRead::Dropped
    }

    /// Reads one packet away that no frame is free for.
    #[cold]
    fn discard(&mut self, nowait: bool) -> Result<TapRead, DeviceError> {
        let mut scratch = [0; 64];
        let mut parts = [IoSliceMut::new(&mut scratch)];
        match tun::read_into(self.fd.as_fd(), &mut parts, nowait) {
            Ok(_) => {
                self.counters.rx_dropped += 1;
                Ok(TapRead::Dropped)
            }
            Err(error) => self.read_failed(error),
        }
    }

    fn read_failed(&self, error: io::Error) -> Result<TapRead, DeviceError> {
        match error.kind() {
            io::ErrorKind::WouldBlock => Ok(TapRead::Nothing),
            io::ErrorKind::Interrupted => Ok(TapRead::Interrupted),
            _ => Err(self.failed("read from", error)),
        }
    }

    #[cold]
    fn failed(&self, what: &'static str, source: io::Error) -> DeviceError {
        let name = self.info.name.clone();
        if tun::is_gone(&source) {
            DeviceError::Gone { name, source }
        } else {
            DeviceError::Io { what, name, source }
        }
    }

    /// Writes one packet, behind its virtio header where there is one, and before what the machine keeps of it.
    #[inline]
    fn write(
        &mut self,
        packet: &mut Packet,
        tail: [&[u8]; 2],
        pool: &mut Pool,
    ) -> io::Result<usize> {
        self.counters.calls += 1;
        if !self.vnet_header {
            return fd::write(self.fd.as_fd(), pool.bytes(packet));
        }
        let header = vnet::emit(&packet.meta, pool.bytes(packet));
        if pool.headroom(packet) < vnet::HEADER_LEN {
            let parts = [&header[..], pool.bytes(packet), tail[0], tail[1]].map(IoSlice::new);
            return tun::write_parts(self.fd.as_fd(), &parts);
        }
        pool.prepend(packet, vnet::HEADER_LEN).copy_from_slice(&header);
        let result = if tail[0].is_empty() {
            fd::write(self.fd.as_fd(), pool.bytes(packet))
        } else {
            let parts = [pool.bytes(packet), tail[0], tail[1]].map(IoSlice::new);
            tun::write_parts(self.fd.as_fd(), &parts)
        };
        pool.trim_front(packet, vnet::HEADER_LEN);
        result
    }

    /// Writes packets, each with its tail.
    #[inline]
    fn write_all<'a>(
        &mut self,
        batch: &mut Batch,
        pool: &mut Pool,
        tail: impl Fn(&Packet) -> [&'a [u8]; 2],
    ) -> Result<(), DeviceError> {
        let mut outcome = Ok(());
        for mut packet in batch.drain(..) {
            if outcome.is_ok() {
                let tail = tail(&packet);
                match self.write(&mut packet, tail, pool) {
                    Ok(_) => {
                        let len = packet.len() + tail[0].len() + tail[1].len();
                        self.counters.tx_packets += 1;
                        self.counters.tx_bytes += len as u64;
                    }
                    Err(error) => outcome = self.write_failed(error),
                }
            }
            pool.free(packet);
        }
        outcome
    }

    /// Counts a packet that the kernel did not take, or says that it never will take one again.
    #[cold]
    fn write_failed(&mut self, error: io::Error) -> Result<(), DeviceError> {
        if tun::is_gone(&error) {
            return Err(self.failed("write to", error));
        }
        // EIO while it is down, EINVAL for a packet it does not like, EAGAIN, ENOBUFS and ENOMEM
        // when it has no room: each is this packet's affair.
        self.counters.tx_dropped += 1;
        Ok(())
    }

    /// Keeps what was read; whether there is something to receive.
    #[inline]
    fn keep(&mut self, read: TapRead) -> bool {
        match read {
            TapRead::Packet(packet) => {
                self.held = Some(packet);
                true
            }
            TapRead::Dropped | TapRead::Nothing | TapRead::Interrupted => false,
        }
    }

    /// Sleeps at most this long for a packet.
    fn wait_timed(&mut self, timeout: Span, pool: &mut Pool) -> Result<bool, DeviceError> {
        if timeout > Span::ZERO {
            self.counters.calls += 1;
            let ns = timeout.as_ps().div_ceil(1_000);
            match fd::wait_readable(&[self.fd.as_fd()], &mut [false], Some(ns)) {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(false),
                Err(error) => return Err(self.failed("wait for", error)),
            }
        }
        let read = self.read(pool, true)?;
        Ok(self.keep(read))
    }

    /// Reads again and again, at most this long; whether something came.
    fn spin(&mut self, at_most: Option<Span>, pool: &mut Pool) -> Result<bool, DeviceError> {
        let end = at_most.map(|span| plumb_clock::monotonic_ns().saturating_add(span.as_ns()));
        let mut spins = 0;
        loop {
            let read = self.read(pool, true)?;
            if self.keep(read) {
                return Ok(true);
            }
            spins += 1;
            let over = match end {
                Some(end) => plumb_clock::monotonic_ns() >= end,
                None => spins >= SPINS,
            };
            if over {
                return Ok(false);
            }
        }
    }
}

impl Device for TapDevice {
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
        let mut count = 0;
        while count < max {
            let read = match self.held.take() {
                Some(packet) => TapRead::Packet(packet),
                None if count == 1 && !self.read_ahead.is_due() => break,
                None => {
                    let read = self.read(pool, true)?;
                    if count == 1 {
                        self.read_ahead.note(!matches!(read, TapRead::Nothing));
                    }
                    read
                }
            };
            match read {
                TapRead::Packet(mut packet) => {
                    packet.meta.received = now;
                    batch.push(packet);
                    count += 1;
                }
                TapRead::Dropped => {}
                TapRead::Nothing | TapRead::Interrupted => break,
            }
        }
        Ok(count)
    }

    #[inline]
    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), DeviceError> {
        self.write_all(batch, pool, |_| [&[], &[]])
    }

    #[inline]
    fn transmit_from(
        &mut self,
        batch: &mut Batch,
        pool: &mut Pool,
        machine: &dyn Machine,
    ) -> Result<(), DeviceError> {
        let nothing: [&[u8]; 2] = [&[], &[]];
        self.write_all(
            batch,
            pool,
            |packet| {
                if packet.tail == 0 { nothing } else { machine.tail(packet) }
            },
        )
    }

    #[inline]
    fn wait(&mut self, timeout: Option<Span>, pool: &mut Pool) -> Result<bool, DeviceError> {
        if self.held.is_some() {
            return Ok(true);
        }
        let rest = match self.wait {
            DeviceWait::Spin => return self.spin(timeout, pool),
            DeviceWait::Block => timeout,
            DeviceWait::Poll(span) => {
                let span = timeout.map_or(span, |timeout| span.min(timeout));
                if self.spin(Some(span), pool)? {
                    return Ok(true);
                }
                timeout.map(|timeout| timeout.saturating_sub(span))
            }
        };
        if let Some(rest) = rest {
            return self.wait_timed(rest, pool);
        }
        let read = self.read(pool, false)?;
        Ok(self.keep(read))
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}
