//! Memory that begins with a page, whatever the allocator would have done.
//!
//! A large block of the allocator's begins 16 bytes behind its page. The kernel copies into such a place more
//! slowly than into an aligned one, and where a small one begins is chance: it would be a property of the
//! process, not of what it measures. Left out: huge pages (`crate::huge`).

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

/// Bytes of the smallest page of every machine; larger pages begin at a multiple of it.
const PAGE: usize = 4096;

/// Bytes of this process that begin with a page, all of them written before.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is private and owned by this value, as a box is.
unsafe impl Send for Pages {}

impl Pages {
    /// So many bytes, each of them `value`. All are there: no page fault is left for later, unless `value`
    /// is zero, which the kernel's pages are anyhow.
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

/// Whole alignment for so many bytes and at least one; none where no machine has as many.
fn layout(len: usize) -> Option<Layout> {
    Layout::from_size_align(len.max(1), PAGE).ok()
}

impl Default for Pages {
    fn default() -> Self {
        Self::filled(0, 0)
    }
}

impl Deref for Pages {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: allocated, initialised in `filled`, and nobody else's while `self` is borrowed.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Pages {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Some(layout) = layout(self.len) {
            // SAFETY: allocated in `filled` with this very layout; no reference outlives `self`.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_begins_with_a_page_and_holds_what_is_written() {
        for len in [0, 1, 64, 4096, 131_080] {
            let mut pages = Pages::filled(3, len);
            assert!(pages.as_ptr().addr().is_multiple_of(PAGE), "{len}");
            assert_eq!(&pages[..], &vec![3; len][..]);
            if let Some(last) = pages.last_mut() {
                *last = 7;
                assert_eq!(pages[len - 1], 7);
            }
        }
        assert_eq!(Pages::default().len(), 0);
    }
}
