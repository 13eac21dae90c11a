//! The single-producer, single-consumer rings between a process and an AF_XDP socket.
//!
//! Left out: what their entries mean.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// One mapped ring whose entries are `T`.
#[derive(Debug)]
pub(super) struct Map<T> {
    base: NonNull<u8>,
    len: usize,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    mask: u32,
    kind: PhantomData<T>,
}

// SAFETY: the mapping belongs to the process; only the owner of the ring touches it.
unsafe impl<T: Send> Send for Map<T> {}

impl<T: Copy> Map<T> {
    pub(super) fn new(
        fd: BorrowedFd<'_>,
        offsets: &libc::xdp_ring_offset,
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
        let page_offset = libc::off_t::try_from(page_offset).map_err(|_| invalid())?;
        // SAFETY: a new mapping at an address the kernel chooses; the result is checked.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                page_offset,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(address.cast()).ok_or_else(io::Error::last_os_error)?;
        let map = Self {
            base,
            len,
            producer: at(offsets.producer)?,
            consumer: at(offsets.consumer)?,
            flags: at(offsets.flags)?,
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
        let address = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: aligned, in range, mapped as long as `self`; both sides access it atomically.
        unsafe { AtomicU32::from_ptr(address.cast()) }
    }

    #[inline]
    fn entry(&self, index: u32) -> *mut T {
        let offset = self.entries + (index & self.mask) as usize * size_of::<T>();
        // SAFETY: the masked index is below the number of entries, which `len` covers.
        unsafe { self.base.as_ptr().add(offset) }.cast()
    }

    #[inline]
    fn needs_wakeup(&self) -> bool {
        self.word(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

impl<T> Drop for Map<T> {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped; no reference outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A ring that the process writes and the kernel reads.
#[derive(Debug)]
pub(super) struct Producer<T> {
    map: Map<T>,
    /// Entries written, published or not.
    head: u32,
    /// Entries that the kernel had read when it was last asked.
    tail: u32,
}

impl<T: Copy> Producer<T> {
    pub(super) fn new(map: Map<T>) -> Self {
        Self { map, head: 0, tail: 0 }
    }

    /// Entries that the kernel has not read.
    #[inline]
    pub(super) fn pending(&mut self) -> u32 {
        self.tail = self.map.word(self.map.consumer).load(Ordering::Acquire);
        self.head.wrapping_sub(self.tail)
    }

    #[inline]
    pub(super) fn room(&mut self) -> u32 {
        self.map.mask + 1 - self.pending()
    }

    #[inline]
    pub(super) fn push(&mut self, entry: T) {
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
    pub(super) fn submit(&self) {
        self.map.word(self.map.producer).store(self.head, Ordering::Release);
    }

    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.map.needs_wakeup()
    }
}

/// A ring that the kernel writes and the process reads.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    map: Map<T>,
    /// Entries written when the kernel was last asked.
    head: u32,
    /// Entries read, told or not.
    tail: u32,
}

impl<T: Copy> Consumer<T> {
    pub(super) fn new(map: Map<T>) -> Self {
        Self { map, head: 0, tail: 0 }
    }

    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.map.word(self.map.producer).load(Ordering::Acquire) != self.tail
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
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
    pub(super) fn release(&self) {
        self.map.word(self.map.consumer).store(self.tail, Ordering::Release);
    }
}
