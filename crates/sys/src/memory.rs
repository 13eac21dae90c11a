//! Memory: shared between processes, in huge pages, or aligned to a page; and the system's allocator with a count of what each
//! thread asks it for.

use std::alloc::{GlobalAlloc, Layout, System, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::{io, slice};

use rustix::mm::{self, Advice, MapFlags, MprotectFlags, ProtFlags};

/// A mapping of mmap(2), unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: *mut u8,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives an address only; whoever dereferences it answers for the access.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// MAP_SHARED of a file from an offset, readable and writable, populated at once.
    pub fn shared(fd: BorrowedFd<'_>, len: usize, offset: u64) -> io::Result<Self> {
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { mm::mmap(ptr::null_mut(), len, protection, flags, fd, offset) }?;
        Ok(Self { base: base.cast(), len })
    }

    /// Anonymous memory of this process alone.
    pub fn private(len: usize, protection: ProtFlags, flags: MapFlags) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | flags;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { mm::mmap_anonymous(ptr::null_mut(), len, protection, flags) }?;
        Ok(Self { base: base.cast(), len })
    }

    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped; no reference outlives `self`.
        unsafe { mm::munmap(self.base.cast(), self.len) }.ok();
    }
}

/// A MAP_SHARED mapping of a file.
///
/// Nothing hands out references to its plain bytes, because another process may be writing them;
/// they are copied in and out, ordered by the atomics that guard them.
#[derive(Debug)]
pub struct SharedMap {
    map: Mapping,
}

impl SharedMap {
    /// Maps the first `len` bytes of a file, populated at once so that no page faults are left.
    pub fn new(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Ok(Self { map: Mapping::shared(fd, len, 0)? })
    }

    /// The address of `len` bytes at an offset. Panics when out of range.
    #[inline]
    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        let end = self.map.len();
        assert!(offset <= end && len <= end - offset, "within the mapping");
        // SAFETY: in range by the assertion above.
        unsafe { self.map.base().add(offset) }
    }

    /// The 32-bit atomic at a byte offset. Panics when out of range or misaligned.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "aligned");
        // SAFETY: aligned, in range, mapped as long as `self`; every access to it is atomic.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }
    }

    /// The 64-bit atomic at a byte offset. Panics when out of range or misaligned.
    #[inline]
    pub fn double_word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "aligned");
        // SAFETY: aligned, in range, mapped as long as `self`; every access to it is atomic.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }

    /// Copies bytes in. Panics when out of range. The caller orders it with an atomic.
    #[inline]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        let target = self.at(offset, bytes.len());
        // SAFETY: both ranges are valid for the length and cannot overlap: one is a Rust slice.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
    }

    /// Copies bytes out. Panics when out of range. The caller orders it with an atomic.
    #[inline]
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        let source = self.at(offset, bytes.len());
        // SAFETY: both ranges are valid for the length and cannot overlap: one is a Rust slice.
        unsafe { ptr::copy_nonoverlapping(source, bytes.as_mut_ptr(), bytes.len()) };
    }
}

/// Bytes of the smallest page of every machine; larger pages begin at a multiple of it.
const PAGE: usize = 4096;

/// Bytes that begin at a page boundary.
///
/// A large block of the allocator's begins 16 bytes behind its page, to which the kernel copies more slowly, and
/// where a small one begins is chance: it would be a property of the process, not of what it measures.
#[derive(Debug)]
pub struct PageAlignedBuffer {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is private and owned by this value, as a box is.
unsafe impl Send for PageAlignedBuffer {}

impl PageAlignedBuffer {
    /// `len` bytes of `value`, written now, so that no page fault is left for later.
    pub fn filled(value: u8, len: usize) -> Self {
        let Some(layout) = layout(len) else { handle_alloc_error(Layout::new::<u8>()) };
        // SAFETY: the layout has at least one byte.
        let start = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        // SAFETY: `layout` has at least `len` bytes, just allocated, that nobody refers to.
        unsafe { start.write_bytes(value, len) };
        Self { start, len }
    }
}

fn layout(len: usize) -> Option<Layout> {
    Layout::from_size_align(len.max(1), PAGE).ok()
}

impl Default for PageAlignedBuffer {
    fn default() -> Self {
        Self::filled(0, 0)
    }
}

impl Deref for PageAlignedBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: allocated, initialised in `filled`, and nobody else's while `self` is borrowed.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for PageAlignedBuffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for PageAlignedBuffer {
    fn drop(&mut self) {
        if let Some(layout) = layout(self.len) {
            // SAFETY: allocated in `filled` with this very layout; no reference outlives `self`.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

/// Bytes of a huge page of most machines.
pub const HUGE_PAGE: usize = 2 << 20;

/// Zeroed memory of this process, aligned to a huge page and advised to be in huge pages.
#[derive(Debug)]
pub struct HugePages {
    map: Mapping,
    /// Where the first huge page begins in the mapping.
    ahead: usize,
    len: usize,
}

impl HugePages {
    /// `len` bytes: mmap(2), and madvise(2) with MADV_HUGEPAGE. Whether the kernel gives huge pages, the
    /// first touch decides.
    ///
    /// # Errors
    /// ENOMEM, and EINVAL of a kernel without transparent huge pages.
    pub fn new(len: usize) -> io::Result<Self> {
        let too_long = || io::Error::from_raw_os_error(libc::ENOMEM);
        let whole = len.max(1).checked_next_multiple_of(HUGE_PAGE).ok_or_else(too_long)?;
        let mapped = whole.checked_add(HUGE_PAGE).ok_or_else(too_long)?;
        // Without access at first: under mlockall(2) the pages would else be populated before the advice.
        let map = Mapping::private(mapped, ProtFlags::empty(), MapFlags::empty())?;
        let ahead = map.base().align_offset(HUGE_PAGE).min(HUGE_PAGE);
        let pages = Self { map, ahead, len };
        let start = pages.start().cast();
        // SAFETY: the range lies within the mapping just made.
        unsafe { mm::madvise(start, whole, Advice::LinuxHugepage) }?;
        // SAFETY: the range lies within the mapping just made, which nobody refers to yet.
        unsafe { mm::mprotect(start, whole, MprotectFlags::READ | MprotectFlags::WRITE) }?;
        Ok(pages)
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: at most a huge page ahead, and one more than the whole length is mapped.
        unsafe { self.map.base().add(self.ahead) }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped, readable, initialised by the kernel, and nobody else's while `self` is borrowed.
        unsafe { slice::from_raw_parts(self.start(), self.len) }
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: mapped, writable, initialised by the kernel, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

thread_local! {
    // Neither is made with memory of the heap nor torn down.
    static ALLOCATIONS: Cell<AllocationCount> = const { Cell::new(AllocationCount { times: 0, bytes: 0 }) };
}

/// What a thread has asked for so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocationCount {
    /// How often.
    pub times: u64,
    /// Bytes in all.
    pub bytes: u64,
}

impl AllocationCount {
    /// What this thread has asked for so far; nothing where another allocator serves the program.
    pub fn by_this_thread() -> Self {
        ALLOCATIONS.get()
    }
}

/// The system's allocator, which counts.
#[derive(Clone, Copy, Debug)]
pub struct CountingAllocator;

fn count(bytes: usize) {
    // A thread that is being torn down is not counted any more.
    ALLOCATIONS
        .try_with(|asked| {
            let AllocationCount { times, bytes: before } = asked.get();
            let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
            asked.set(AllocationCount { times: times + 1, bytes: before.saturating_add(bytes) });
        })
        .ok();
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of the heap.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps to the contract of the same function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps to the contract of the same function.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller keeps to the contract of the same function.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps to the contract of the same function.
        unsafe { System.dealloc(block, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_aligned_memory_holds_what_is_written() {
        for len in [0, 1, 64, 4096, 131_080] {
            let mut pages = PageAlignedBuffer::filled(3, len);
            assert!(pages.as_ptr().addr().is_multiple_of(PAGE), "{len}");
            assert_eq!(&pages[..], &vec![3; len][..]);
            if let Some(last) = pages.last_mut() {
                *last = 7;
                assert_eq!(pages[len - 1], 7);
            }
        }
        assert_eq!(PageAlignedBuffer::default().len(), 0);
    }

    #[test]
    fn huge_pages_are_aligned_and_hold_what_is_written() {
        let Ok(mut pages) = HugePages::new(100_000) else { return };
        assert!(pages.bytes().as_ptr().addr().is_multiple_of(HUGE_PAGE));
        assert!(pages.bytes().iter().all(|byte| *byte == 0));
        pages.bytes_mut().fill(7);
        assert_eq!((pages.bytes().len(), pages.bytes()[99_999]), (100_000, 7));
    }
}
