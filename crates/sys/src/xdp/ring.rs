//! The memory and the single-producer, single-consumer rings that a process shares with an AF_XDP socket.

use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

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
    /// One of the three states below for each frame.
    states: Box<[AtomicU8]>,
}

/// A frame that its [`Umem`] gives access to.
const OWN: u8 = 0;
/// A frame that [`Umem::lend`] has set aside: nobody has a reference into it, or gets one.
const SET_ASIDE: u8 = 1;
/// A frame that a socket has given to the kernel.
const WITH_KERNEL: u8 = 2;

impl UmemRegion {
    /// Changes the state of the frame around `offset`. Panics when it is in another than `from`.
    #[inline]
    fn change(&self, offset: usize, from: u8, to: u8, expected: &str) {
        let state = &self.states[offset >> self.frame_shift];
        let changed = state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        assert!(changed.is_ok(), "{expected}");
    }
}

/// Memory that AF_XDP sockets share with the kernel, in frames, each guarded: access to a frame that is lent panics.
///
/// A frame is lent through the memory itself, which nobody may have a reference into meanwhile:
///
/// ```compile_fail,E0502
/// let mut umem = plumb_sys::xdp::Umem::new(4, 2_048).unwrap();
/// let held = umem.bytes(0..4);
/// umem.lend(0);
/// assert_eq!(held.len(), 4);
/// ```
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
        let states = (0..count).map(|_| AtomicU8::new(OWN)).collect();
        let frame_shift = frame_size.trailing_zeros();
        Ok(Self { region: Arc::new(UmemRegion { map, frame_shift, states }) })
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
            let is_own = region.states[frame].load(Ordering::Acquire) == OWN;
            assert!(is_own, "a frame that is not lent");
        }
        // SAFETY: at most the mapping's end.
        unsafe { region.map.base().add(range.start) }
    }

    /// Sets the frame around `offset` aside for a socket to give to the kernel. Panics when it is lent already.
    #[inline]
    pub fn lend(&mut self, offset: usize) {
        self.region.change(offset, OWN, SET_ASIDE, "a frame is lent once");
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

/// What a socket needs of the memory: to register it, and to say which frames the kernel has.
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

    /// Before the kernel gets a frame. Panics unless it is set aside.
    #[inline]
    pub(super) fn hand_over(&self, offset: usize) {
        self.region.change(offset, SET_ASIDE, WITH_KERNEL, "a frame that its memory has lent");
    }

    /// After the kernel has given a frame back. Panics when it did not have it.
    #[inline]
    pub(super) fn reclaim(&self, offset: usize) {
        self.region.change(offset, WITH_KERNEL, OWN, "the kernel returns what it was lent");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a frame that is not lent")]
    fn the_bytes_of_a_lent_frame_are_out_of_reach() {
        let mut umem = Umem::new(4, 2_048).unwrap();
        umem.lend(2_048);
        assert_eq!(umem.bytes(0..2_048).len(), 2_048);
        umem.bytes(3_000..3_001);
    }

    #[test]
    fn a_frame_that_came_back_can_be_written_again() {
        let mut umem = Umem::new(2, 2_048).unwrap();
        let handle = umem.handle();
        umem.lend(100);
        handle.hand_over(200);
        handle.reclaim(300);
        umem.bytes_mut(0..4).copy_from_slice(b"ours");
        assert_eq!(umem.bytes(0..4), b"ours");
        assert_eq!(umem.bytes(4_096..4_096), b"");
    }

    #[test]
    #[should_panic(expected = "a frame that its memory has lent")]
    fn no_socket_gives_the_kernel_a_frame_that_was_not_lent() {
        Umem::new(2, 2_048).unwrap().handle().hand_over(0);
    }

    #[test]
    #[should_panic(expected = "a frame is lent once")]
    fn no_frame_is_lent_twice() {
        let mut umem = Umem::new(2, 2_048).unwrap();
        umem.lend(0);
        umem.handle().hand_over(0);
        umem.lend(2_047);
    }

    #[test]
    #[should_panic(expected = "within one frame")]
    fn no_range_reaches_into_the_next_frame() {
        Umem::new(2, 2_048).unwrap().bytes(2_000..2_100);
    }
}
