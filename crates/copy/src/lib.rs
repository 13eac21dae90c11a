//! The Internet checksum (RFC 1071), and copy with checksum in one pass over the bytes.
//!
//! [`sum()`] and [`copy_and_sum`] use the fastest [`ChecksumKernel`] that the processor has, chosen once.
//! Left out: pseudo-headers, where a protocol keeps its checksum, and what a zero there means.
#![expect(unsafe_code, reason = "vector instructions: this crate is their fence")]

mod kernel;
mod sum;

pub use kernel::{AvailableKernel, ChecksumKernel};
pub use sum::Sum16;

use kernel::short;

/// The sum of `bytes` as big-endian 16-bit words, an odd last byte being padded with zero
/// (RFC 1071 §1).
#[inline]
pub fn sum(bytes: &[u8]) -> Sum16 {
    if bytes.len() <= short::MAX { Sum16::from_le(short::sum(bytes)) } else { kernel::sum(bytes) }
}

/// Copies `src` to `dst` and gives the sum of the bytes, reading them once.
///
/// # Panics
///
/// When the lengths differ, which only a bug can cause.
#[inline]
pub fn copy_and_sum(src: &[u8], dst: &mut [u8]) -> Sum16 {
    assert_eq!(src.len(), dst.len(), "a copy has the length of its source");
    if src.len() > short::MAX && src.len() < kernel::SIMPLE_MAX {
        kernel::copy_and_sum_simple(src, dst)
    } else {
        copy_and_sum_of_any_length(src, dst)
    }
}

/// Apart, that what most callers need is inlined.
#[inline(never)]
fn copy_and_sum_of_any_length(src: &[u8], dst: &mut [u8]) -> Sum16 {
    if src.len() <= short::MAX {
        Sum16::from_le(short::copy_and_sum(src, dst))
    } else {
        kernel::copy_and_sum(src, dst)
    }
}

/// Asks the processor to have the first `LINES` cache lines of these bytes near soon, without waiting for them; nothing where there is
/// no such instruction.
#[inline]
pub fn prefetch<const LINES: usize>(bytes: &[u8]) {
    for line in bytes.chunks(64).take(LINES) {
        prefetch_line(line.as_ptr());
    }
}

/// The same of the line in which a value begins.
#[inline]
pub fn prefetch_value<T>(value: &T) {
    prefetch_line(std::ptr::from_ref(value).cast());
}

/// The same of all lines of a value.
#[inline]
pub fn prefetch_all<T>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    for line in 0..size_of::<T>().div_ceil(64) {
        prefetch_line(start.wrapping_add(64 * line));
    }
}

/// The same of the lines of the place after a value, which may be another's: where the next is about to be written.
#[inline]
pub fn prefetch_after<T>(value: &T) {
    let next = std::ptr::from_ref(value).wrapping_add(1).cast::<u8>();
    for line in 0..size_of::<T>().div_ceil(64) {
        prefetch_line(next.wrapping_add(64 * line));
    }
}

#[inline]
fn prefetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86-64, and a prefetch of any address has no effect but on caches.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
