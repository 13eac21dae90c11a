//! The memory and the single-producer, single-consumer rings that a process shares with an AF_XDP socket.

use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::xdp::{XdpRingOffset, XdpUmemReg, XdpUmemRegFlags};

use crate::memory::Mapping;

/// One mapped ring whose entries are `T`.
#[derive(Debug)]
pub(super) struct XdpRing<T> {
    mapping: Mapping,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    mask: u32,
    kind: PhantomData<T>,
}

impl<T: Copy> XdpRing<T> {
    pub fn new(
        fd: BorrowedFd<'_>,
        offsets: &XdpRingOffset,
        entries: u32,
        page_offset: u64,
    ) -> io::Result<Self> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        if !entries.is_power_of_two() {
            return Err(invalid());
        }
        let at = |offset: u64| usize::try_from(offset).map_err(|_| invalid());
        let start = at(offsets.desc)?;
        let len = start + entries as usize * size_of::<T>();
        let mapping = Mapping::shared(fd, len, page_offset)?;
        let map = Self {
            mapping,
            producer: at(offsets.producer)?,
            consumer: at(offsets.consumer)?,
            // Since Linux 5.4.
            flags: at(offsets.flags.ok_or(Errno::OPNOTSUPP)?)?,
            entries: start,
            mask: entries - 1,
            kind: PhantomData,
        };
        for word in [map.producer, map.consumer, map.flags] {
            assert!(word.is_multiple_of(4) && word + 4 <= len, "a word within the ring");
        }
        assert!(start.is_multiple_of(align_of::<T>()), "entries are aligned");
        Ok(map)
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: one of the three offsets that `new` checked.
        let address = unsafe { self.mapping.base().add(offset) };
        // SAFETY: aligned, in range, mapped as long as `self`; both sides access it atomically.
        unsafe { AtomicU32::from_ptr(address.cast()) }
    }

    #[inline]
    fn entry(&self, index: u32) -> *mut T {
        let offset = self.entries + (index & self.mask) as usize * size_of::<T>();
        // SAFETY: the masked index is below the number of entries, which `len` covers.
        unsafe { self.mapping.base().add(offset) }.cast()
    }

    #[inline]
    fn needs_wakeup(&self) -> bool {
        self.word(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring that the process writes and the kernel reads.
#[derive(Debug)]
pub(super) struct ProducerRing<T> {
    map: XdpRing<T>,
    /// Entries written, published or not.
    head: u32,
    /// Entries that the kernel had read when it was last asked.
    tail: u32,
}

impl<T: Copy> ProducerRing<T> {
    pub fn new(map: XdpRing<T>) -> Self {
        Self { map, head: 0, tail: 0 }
    }

    /// Entries that the kernel has not read.
    #[inline]
    pub fn pending(&mut self) -> u32 {
        self.tail = self.map.word(self.map.consumer).load(Ordering::Acquire);
        self.head.wrapping_sub(self.tail)
    }

    #[inline]
    pub fn room(&mut self) -> u32 {
        self.map.mask + 1 - self.pending()
    }

    #[inline]
    pub fn push(&mut self, entry: T) {
        if self.head.wrapping_sub(self.tail) > self.map.mask {
            assert!(self.room() > 0, "room in the ring");
        }
        let place = self.map.entry(self.head);
        // SAFETY: the entry lies in the ring and is not the kernel's: it has read it, as `tail` says,
        // and `head` is not published.
        unsafe { place.write(entry) };
        self.head = self.head.wrapping_add(1);
    }

    #[inline]
    pub fn submit(&self) {
        self.map.word(self.map.producer).store(self.head, Ordering::Release);
    }

    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.map.needs_wakeup()
    }
}

/// A ring that the kernel writes and the process reads.
#[derive(Debug)]
pub(super) struct ConsumerRing<T> {
    map: XdpRing<T>,
    /// Entries written when the kernel was last asked.
    head: u32,
    /// Entries read, told or not.
    tail: u32,
}

impl<T: Copy> ConsumerRing<T> {
    pub fn new(map: XdpRing<T>) -> Self {
        Self { map, head: 0, tail: 0 }
    }

    #[inline]
    pub fn is_ready(&self) -> bool {
        self.map.word(self.map.producer).load(Ordering::Acquire) != self.tail
    }

    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.head == self.tail {
            self.head = self.map.word(self.map.producer).load(Ordering::Acquire);
            if self.head == self.tail {
                return None;
            }
        }
        let place = self.map.entry(self.tail);
        // SAFETY: the entry lies in the ring, was published by the kernel before `head`, and is not
        // written again before `tail` is told.
        let entry = unsafe { place.read() };
        self.tail = self.tail.wrapping_add(1);
        Some(entry)
    }

    #[inline]
    pub fn release(&self) {
        self.map.word(self.map.consumer).store(self.tail, Ordering::Release);
    }
}

/// The mapping and which frames are lent; shared by the one [`Umem`] and its handles. The kernel keeps the pages
/// themselves for as long as a socket uses them.
#[derive(Debug)]
struct UmemRegion {
    map: Mapping,
    frame_shift: u32,
    lent: Box<[AtomicBool]>,
}

impl UmemRegion {
    #[inline]
    fn lent(&self, offset: usize) -> &AtomicBool {
        &self.lent[offset >> self.frame_shift]
    }
}

/// Memory that AF_XDP sockets share with the kernel, in frames, each guarded: access to a frame that is lent panics.
#[derive(Debug)]
pub struct Umem {
    region: Arc<UmemRegion>,
}

impl Umem {
    /// mmap(2) of `count` frames of `frame_size` bytes each, populated.
    ///
    /// # Errors
    /// EINVAL when `frame_size` is no power of two, ENOMEM when there is not so much memory.
    pub fn new(count: u32, frame_size: u32) -> io::Result<Self> {
        if !frame_size.is_power_of_two() || count == 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let len = count as usize * frame_size as usize;
        let map = Mapping::private(len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::POPULATE)?;
        let lent = (0..count).map(|_| AtomicBool::new(false)).collect();
        let frame_shift = frame_size.trailing_zeros();
        Ok(Self { region: Arc::new(UmemRegion { map, frame_shift, lent }) })
    }

    /// For a socket on this memory.
    pub fn handle(&self) -> UmemHandle {
        UmemHandle { region: Arc::clone(&self.region) }
    }

    /// Bytes in all.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.region.map.len()
    }

    /// Where bytes of one frame that is not lent are; panics for others.
    #[inline]
    fn address(&self, range: &Range<usize>) -> *mut u8 {
        let region = &*self.region;
        assert!(range.start <= range.end && range.end <= region.map.len(), "within the memory");
        if range.start < range.end {
            let frame = range.start >> region.frame_shift;
            assert!((range.end - 1) >> region.frame_shift == frame, "within one frame");
            assert!(!region.lent[frame].load(Ordering::Acquire), "a frame that is not lent");
        }
        // SAFETY: at most the mapping's end.
        unsafe { region.map.base().add(range.start) }
    }

    /// Bytes of one frame. Panics out of range or when the frame is lent.
    #[inline]
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        let address = self.address(&range);
        // SAFETY: mapped and initialised for the length; the kernel does not write frames that are not
        // lent, and nobody else has a `Umem` to write through.
        unsafe { std::slice::from_raw_parts(address, range.len()) }
    }

    /// The same, to be written.
    #[inline]
    pub fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        let address = self.address(&range);
        // SAFETY: as for `bytes`; `&mut self` is the only way to any of the bytes.
        unsafe { std::slice::from_raw_parts_mut(address, range.len()) }
    }
}

/// What a socket needs of the memory: to register it, and to say what is lent.
#[derive(Clone, Debug)]
pub struct UmemHandle {
    region: Arc<UmemRegion>,
}

impl UmemHandle {
    pub(super) fn registration(&self) -> XdpUmemReg {
        XdpUmemReg {
            addr: self.region.map.base().expose_provenance() as u64,
            len: self.region.map.len() as u64,
            chunk_size: 1 << self.region.frame_shift,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        }
    }

    #[inline]
    pub(super) fn lend(&self, offset: usize) {
        let was = self.region.lent(offset).load(Ordering::Relaxed);
        assert!(!was, "a frame is lent once");
        self.region.lent(offset).store(true, Ordering::Release);
    }

    #[inline]
    pub(super) fn reclaim(&self, offset: usize) {
        self.region.lent(offset).store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a frame that is not lent")]
    fn the_bytes_of_a_lent_frame_are_out_of_reach() {
        let umem = Umem::new(4, 2_048).unwrap();
        umem.handle().lend(2_048);
        assert_eq!(umem.bytes(0..2_048).len(), 2_048);
        umem.bytes(3_000..3_001);
    }

    #[test]
    fn a_frame_that_came_back_can_be_written_again() {
        let mut umem = Umem::new(2, 2_048).unwrap();
        let handle = umem.handle();
        handle.lend(100);
        handle.reclaim(300);
        umem.bytes_mut(0..4).copy_from_slice(b"ours");
        assert_eq!(umem.bytes(0..4), b"ours");
        assert_eq!(umem.bytes(4_096..4_096), b"");
    }

    #[test]
    #[should_panic(expected = "within one frame")]
    fn no_range_reaches_into_the_next_frame() {
        Umem::new(2, 2_048).unwrap().bytes(2_000..2_100);
    }
}
