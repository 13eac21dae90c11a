//! Memory shared between processes, as atomics and byte ranges that are copied in and out.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A MAP_SHARED mapping of a memory file.
///
/// Nothing hands out references to its plain bytes, because another process may be writing them;
/// they are copied in and out, ordered by the atomics that guard them.
#[derive(Debug)]
pub struct SharedMap {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process; all access is by atomics or by copies that the
// protocol above orders, from whichever thread.
unsafe impl Send for SharedMap {}
// SAFETY: as above: `copy_in` and `copy_out` make no references to the shared bytes.
unsafe impl Sync for SharedMap {}

impl SharedMap {
    /// Maps the first `len` bytes of a file, populated at once so that no page faults are left.
    pub fn new(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address the kernel chooses; the result is checked.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(address.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { base, len })
    }

    /// Bytes mapped.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is mapped, which `new` never makes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The 32-bit atomic at a byte offset. Panics when out of range or misaligned.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len, "word within the mapping");
        // SAFETY: in range by the assertion above.
        let address = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: aligned, in range, mapped as long as `self`; every access to it is atomic.
        unsafe { AtomicU32::from_ptr(address.cast()) }
    }

    /// The 64-bit atomic at a byte offset. Panics when out of range or misaligned.
    #[inline]
    pub fn double_word(&self, offset: usize) -> &AtomicU64 {
        assert!(
            offset.is_multiple_of(8) && offset + 8 <= self.len,
            "double word within the mapping"
        );
        // SAFETY: in range by the assertion above.
        let address = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: aligned, in range, mapped as long as `self`; every access to it is atomic.
        unsafe { AtomicU64::from_ptr(address.cast()) }
    }

    /// Copies bytes in. Panics when out of range. The caller orders it with an atomic.
    #[inline]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        assert!(offset <= self.len && bytes.len() <= self.len - offset, "within the mapping");
        // SAFETY: in range by the assertion above.
        let target = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: both ranges are valid for the length and cannot overlap: one is a Rust slice.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
    }

    /// Copies bytes out. Panics when out of range. The caller orders it with an atomic.
    #[inline]
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset <= self.len && bytes.len() <= self.len - offset, "within the mapping");
        // SAFETY: in range by the assertion above.
        let source = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: both ranges are valid for the length and cannot overlap: one is a Rust slice.
        unsafe { std::ptr::copy_nonoverlapping(source, bytes.as_mut_ptr(), bytes.len()) };
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped; no reference outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
