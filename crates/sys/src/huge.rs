//! Memory in huge pages, where the kernel gives them: a private mapping that asks for them.

use std::io;
use std::ptr::{self, NonNull};
use std::slice;

/// Bytes of a huge page of most machines.
pub const HUGE_PAGE: usize = 2 << 20;

/// Zeroed memory of this process alone, at the beginning of a huge page, for which huge pages were asked.
#[derive(Debug)]
pub struct HugePages {
    mapping: NonNull<u8>,
    mapped: usize,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is private and owned by this value, as a box is.
unsafe impl Send for HugePages {}

impl HugePages {
    /// `len` bytes: mmap(2), and madvise(2) with MADV_HUGEPAGE. Whether the kernel gives huge pages, the
    /// first touch decides.
    ///
    /// Not to be touched until that was asked: a process that locks what it will have (mlockall(2)) gets its
    /// pages as soon as they may be.
    ///
    /// # Errors
    /// ENOMEM, and EINVAL of a kernel without transparent huge pages.
    pub fn new(len: usize) -> io::Result<Self> {
        let too_long = || io::Error::from_raw_os_error(libc::ENOMEM);
        let whole = len.max(1).checked_next_multiple_of(HUGE_PAGE).ok_or_else(too_long)?;
        let mapped = whole.checked_add(HUGE_PAGE).ok_or_else(too_long)?;
        // SAFETY: a new private mapping at an address the kernel chooses; the result is checked.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = NonNull::new(address.cast::<u8>()).ok_or_else(io::Error::last_os_error)?;
        let ahead = mapping.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE);
        // SAFETY: less than a huge page ahead, and one more than `whole` is mapped.
        let start = unsafe { mapping.add(ahead) };
        let pages = Self { mapping, mapped, start, len };
        // SAFETY: the range lies within the mapping just made.
        crate::check(unsafe { libc::madvise(start.as_ptr().cast(), whole, libc::MADV_HUGEPAGE) })?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range lies within the mapping just made, which nobody refers to yet.
        crate::check(unsafe { libc::mprotect(start.as_ptr().cast(), whole, protection) })?;
        Ok(pages)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped, readable, initialised by the kernel, and nobody else's while `self` is borrowed.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: mapped, writable, initialised by the kernel, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped; no reference outlives `self`.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_begins_at_a_huge_page_and_holds_what_is_written() {
        let Ok(mut pages) = HugePages::new(100_000) else { return };
        assert!(pages.bytes().as_ptr().addr().is_multiple_of(HUGE_PAGE));
        assert!(pages.bytes().iter().all(|byte| *byte == 0));
        pages.bytes_mut().fill(7);
        assert_eq!((pages.bytes().len(), pages.bytes()[99_999]), (100_000, 7));
    }
}
