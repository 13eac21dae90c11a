//! The kernels, one instruction set a file, and the choice of the best one that the processor has.
//!
//! A long copy goes in six lanes at once: whoever fetches bytes ahead for the processor does so page by page, and with six
//! pages of either side under way the memory is kept busier than with one. Out of memory that is quicker than one lane,
//! which is as quick as `memcpy`; out of the second cache it is no slower. Fetching ahead by instructions was slower than
//! leaving it alone, at whatever distance.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::Sum16;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
pub(crate) mod short;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod skeleton;

/// What a kernel sums at once, in bytes: at most 2¹⁶ words, whose sum a 32-bit lane can hold.
const PIECE_MAX: usize = 128 << 10;

/// From this many bytes on, a copy is stored past the cache. Earlier, it would be read back from
/// memory; later, every line is fetched only to be overwritten. With a last-level cache of 32 MiB
/// it paid between 8 and 16 MiB, as source and copy together begin to fill it.
const STREAM_MIN: usize = 12 << 20;

/// One way to sum and to copy, by the instructions that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChecksumKernel {
    /// 64-bit additions, on any processor.
    Portable,
    /// aarch64 with NEON.
    Neon,
    /// x86-64 with AVX2.
    Avx2,
    /// x86-64 with AVX2 and AVX-VNNI.
    Vnni256,
    /// x86-64 with AVX-512 F and BW.
    Avx512,
    /// x86-64 with AVX-512 F, BW and VNNI.
    Vnni512,
}

impl ChecksumKernel {
    /// Every kernel, whether or not this processor has it; the better ones later.
    pub const ALL: &[Self] =
        &[Self::Portable, Self::Neon, Self::Avx2, Self::Vnni256, Self::Avx512, Self::Vnni512];

    /// The name that figures and tables use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::Vnni256 => "avx-vnni",
            Self::Avx512 => "avx512bw",
            Self::Vnni512 => "avx512-vnni",
        }
    }

    /// Whether this processor has the instructions.
    #[cfg(target_arch = "x86_64")]
    pub fn available(self) -> bool {
        let has_avx512 =
            || is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        match self {
            Self::Portable => true,
            Self::Neon => false,
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            Self::Vnni256 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("avxvnni")
            }
            Self::Avx512 => has_avx512(),
            Self::Vnni512 => has_avx512() && is_x86_feature_detected!("avx512vnni"),
        }
    }

    /// Whether this processor has the instructions.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            _ => false,
        }
    }

    /// The one that [`sum`](crate::sum()) and [`copy_and_sum`](crate::copy_and_sum) use here: the
    /// last available of [`ALL`](Self::ALL).
    pub fn best() -> Self {
        let last = Self::ALL.iter().rfind(|kernel| kernel.available());
        *last.expect("Portable always is")
    }

    /// It, where this processor has it: asked for once, as the answer takes a nanosecond or two.
    pub fn if_available(self) -> Option<AvailableKernel> {
        self.available().then(|| AvailableKernel(self.passes()))
    }

    #[inline]
    const fn passes(self) -> &'static KernelFunctions {
        match self {
            #[cfg(target_arch = "aarch64")]
            Self::Neon => &neon::PASSES,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => &avx2::PASSES,
            #[cfg(target_arch = "x86_64")]
            Self::Vnni256 => &avx2::vnni::PASSES,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => &avx512::PASSES,
            #[cfg(target_arch = "x86_64")]
            Self::Vnni512 => &avx512::vnni::PASSES,
            _ => &portable::PASSES,
        }
    }
}

/// A kernel that this processor has.
#[derive(Clone, Copy)]
pub struct AvailableKernel(&'static KernelFunctions);

impl AvailableKernel {
    /// As [`sum`](crate::sum()), by this kernel.
    #[inline]
    pub fn sum(self, bytes: &[u8]) -> Sum16 {
        // SAFETY: it is available.
        unsafe { sum_by(bytes, self.0) }
    }

    /// As [`copy_and_sum`](crate::copy_and_sum), by this kernel.
    ///
    /// # Panics
    ///
    /// When the lengths differ.
    #[inline]
    pub fn copy_and_sum(self, src: &[u8], dst: &mut [u8]) -> Sum16 {
        assert_eq!(src.len(), dst.len(), "a copy has the length of its source");
        // SAFETY: it is available.
        unsafe { copy_and_sum_by(src, dst, self.0) }
    }

    /// The loads and stores of [`copy_and_sum`](Self::copy_and_sum) without its additions, never
    /// past the cache: the least time that a sum within the copy could take with these instructions.
    ///
    /// For measurements; to copy, call `copy_from_slice`.
    ///
    /// # Panics
    ///
    /// When the lengths differ.
    #[inline]
    pub fn copy(self, src: &[u8], dst: &mut [u8]) {
        assert_eq!(src.len(), dst.len(), "a copy has the length of its source");
        if src.len() < LANE_COPY_MIN {
            // SAFETY: it is available.
            unsafe { (self.0.copy)(src, dst) };
        } else {
            // SAFETY: it is available.
            unsafe { copy_in_lanes(src, dst, self.0.copy, self.0.copy_lanes) };
        }
    }
}

impl std::fmt::Debug for AvailableKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AvailableKernel").finish_non_exhaustive()
    }
}

/// A kernel's passes over at most [`PIECE_MAX`] bytes, each giving the sum of little-endian words
/// modulo 2⁶⁴−1. Calling one is safe where its kernel is available.
struct KernelFunctions {
    sum: unsafe fn(&[u8]) -> u64,
    /// The slices are equally long.
    copy_and_sum: unsafe fn(&[u8], &mut [u8]) -> u64,
    /// The same, with stores that go past the cache, not ordered with others until a fence.
    stream_and_sum: unsafe fn(&[u8], &mut [u8]) -> u64,
    copy_and_sum_lanes: LaneCopyFn,
    /// The copy without the sum: what it gives means nothing.
    copy: unsafe fn(&[u8], &mut [u8]) -> u64,
    copy_lanes: LaneCopyFn,
}

/// The best kernel's passes, from the first call on: one load and one jump away from a caller.
static CHOSEN: AtomicPtr<KernelFunctions> = AtomicPtr::new(ptr::from_ref(&CHOICE).cast_mut());

/// Chooses, and then does what was asked for.
static CHOICE: KernelFunctions = KernelFunctions {
    sum: |bytes| {
        // SAFETY: the best kernel is available.
        unsafe { (choose().sum)(bytes) }
    },
    copy_and_sum: |src, dst| {
        // SAFETY: the best kernel is available.
        unsafe { (choose().copy_and_sum)(src, dst) }
    },
    stream_and_sum: |src, dst| {
        // SAFETY: the best kernel is available.
        unsafe { (choose().stream_and_sum)(src, dst) }
    },
    copy_and_sum_lanes: |src, dst, apart, lines| {
        // SAFETY: the best kernel is available.
        unsafe { (choose().copy_and_sum_lanes)(src, dst, apart, lines) }
    },
    copy: |src, dst| {
        // SAFETY: the best kernel is available.
        unsafe { (choose().copy)(src, dst) }
    },
    copy_lanes: |src, dst, apart, lines| {
        // SAFETY: the best kernel is available.
        unsafe { (choose().copy_lanes)(src, dst, apart, lines) }
    },
};

#[cold]
fn choose() -> &'static KernelFunctions {
    let passes = ChecksumKernel::best().passes();
    CHOSEN.store(ptr::from_ref(passes).cast_mut(), Ordering::Relaxed);
    passes
}

#[inline]
fn chosen() -> &'static KernelFunctions {
    let passes = CHOSEN.load(Ordering::Relaxed);
    // SAFETY: only pointers to constants are ever stored, so they need no order either.
    unsafe { &*passes }
}

/// The best kernel's sum, without the short path.
#[inline]
pub(crate) fn sum(bytes: &[u8]) -> Sum16 {
    // SAFETY: the best kernel is available.
    unsafe { sum_by(bytes, chosen()) }
}

/// The length up to which one call of a kernel does it all.
pub(crate) const SIMPLE_MAX: usize = LANE_COPY_MIN;

/// The best kernel's copy and sum of fewer bytes than [`SIMPLE_MAX`]. The slices are equally long.
#[inline]
pub(crate) fn copy_and_sum_simple(src: &[u8], dst: &mut [u8]) -> Sum16 {
    // SAFETY: the best kernel is available.
    Sum16::from_le(unsafe { (chosen().copy_and_sum)(src, dst) })
}

/// The best kernel's copy and sum, without the short path. The slices are equally long.
#[inline]
pub(crate) fn copy_and_sum(src: &[u8], dst: &mut [u8]) -> Sum16 {
    // SAFETY: the best kernel is available.
    unsafe { copy_and_sum_by(src, dst, chosen()) }
}

/// # Safety
///
/// The kernel is available.
#[inline]
unsafe fn sum_by(bytes: &[u8], passes: &KernelFunctions) -> Sum16 {
    if bytes.len() <= PIECE_MAX {
        // SAFETY: the caller's promise.
        return Sum16::from_le(unsafe { (passes.sum)(bytes) });
    }
    // SAFETY: the caller's promise.
    unsafe { sum_pieces(bytes, passes) }
}

/// # Safety
///
/// The kernel is available.
#[inline]
unsafe fn copy_and_sum_by(src: &[u8], dst: &mut [u8], passes: &KernelFunctions) -> Sum16 {
    if src.len() < LANE_COPY_MIN {
        // SAFETY: the caller's promise.
        return Sum16::from_le(unsafe { (passes.copy_and_sum)(src, dst) });
    }
    if src.len() < STREAM_MIN {
        // SAFETY: the caller's promise.
        return unsafe { copy_in_lanes(src, dst, passes.copy_and_sum, passes.copy_and_sum_lanes) };
    }
    // SAFETY: the caller's promise.
    unsafe { stream_and_sum_pieces(src, dst, passes) }
}

/// # Safety
///
/// The kernel is available.
#[inline(never)]
unsafe fn sum_pieces(bytes: &[u8], passes: &KernelFunctions) -> Sum16 {
    let mut sum = Sum16::ZERO;
    for piece in bytes.chunks(PIECE_MAX) {
        // SAFETY: the caller's promise.
        sum += Sum16::from_le(unsafe { (passes.sum)(piece) });
    }
    sum
}

/// # Safety
///
/// The kernel is available.
#[inline(never)]
unsafe fn stream_and_sum_pieces(src: &[u8], dst: &mut [u8], passes: &KernelFunctions) -> Sum16 {
    let mut sum = Sum16::ZERO;
    for (src, dst) in src.chunks(PIECE_MAX).zip(dst.chunks_mut(PIECE_MAX)) {
        // SAFETY: the caller's promise.
        sum += Sum16::from_le(unsafe { (passes.stream_and_sum)(src, dst) });
    }
    fence();
    sum
}

/// Orders streaming stores before later ones, as other threads expect of a copy.
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has SSE.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// The sum of the words of so many bytes, given their sum less 2¹⁵ each, wrapped into 32 bits.
#[cfg(target_arch = "x86_64")]
#[inline]
fn unsigned(sum: i32, bytes: usize) -> u64 {
    (u64::from(sum.cast_unsigned()) + ((bytes as u64 / 2) << 15)) & u64::from(u32::MAX)
}

/// Lanes of a long copy.
const LANES: usize = 6;

/// Lanes are as long as so many whole lines of the cache, in bytes.
const LINE: usize = 64;

/// From this many bytes on, a copy is made in lanes. A shorter one gains from them only where it is cold, and
/// loses in the first cache.
const LANE_COPY_MIN: usize = 64 << 10;

/// Bytes that one pass takes from each lane.
const STEP: usize = PIECE_MAX / LANES / LINE * LINE;

/// What processors fetch ahead within, and what their first cache is addressed by.
const PAGE: usize = 4096;

/// Nearer than this to one place of their pages, lanes share sets of the first cache.
const APART: usize = 640;

/// A pass over lanes: so many lines of each, the first bytes of a lane so many behind those of the one before;
/// at most [`PIECE_MAX`] bytes in all, each of them in one source and one destination. Pointers, because a
/// slice for each lane and side would want more registers than there are.
type LaneCopyFn = unsafe fn(*const u8, *mut u8, apart: usize, lines: usize) -> u64;

/// Copies with `edge` up to the first line of `dst` and after the last lane, with `pass` in between.
///
/// # Safety
///
/// The kernel of the passes is available. The slices are equally long.
#[inline(never)]
unsafe fn copy_in_lanes(
    src: &[u8],
    dst: &mut [u8],
    edge: unsafe fn(&[u8], &mut [u8]) -> u64,
    pass: LaneCopyFn,
) -> Sum16 {
    let head = dst.as_ptr().align_offset(LINE).min(src.len());
    let (first, src) = src.split_at(head);
    let (into_first, dst) = dst.split_at_mut(head);
    // SAFETY: the caller's promise.
    let mut sum = Sum16::from_le(unsafe { edge(first, into_first) });
    let length = length(src.len());
    let (src, last) = src.split_at(LANES * length);
    let (dst, into_last) = dst.split_at_mut(LANES * length);
    for from in (0..length).step_by(STEP) {
        let lines = STEP.min(length - from) / LINE;
        let (src, dst) = (src[from..].as_ptr(), dst[from..].as_mut_ptr());
        // SAFETY: the caller's promise; the last lane ends where the slices do.
        let step = unsafe { pass(src, dst, length, lines) };
        sum += Sum16::from_le(step).at(head);
    }
    // SAFETY: the caller's promise.
    sum + Sum16::from_le(unsafe { edge(last, into_last) }).at(head)
}

/// The length of each lane of so many bytes; what is left over is less than a piece.
const fn length(bytes: usize) -> usize {
    let length = bytes / LANES / LINE * LINE;
    let place = length % PAGE;
    // Lanes that all lie at one place of their pages would want more lines of a set than it has.
    if place < APART {
        length - place - APART
    } else if place > PAGE - APART {
        length - (place - (PAGE - APART))
    } else {
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_never_all_lie_at_one_place_of_their_pages_and_leave_little_over() {
        for bytes in (LANE_COPY_MIN..2 << 20).step_by(LINE) {
            let length = length(bytes);
            assert_eq!(length % LINE, 0, "{bytes}");
            assert!((APART..=PAGE - APART).contains(&(length % PAGE)), "{bytes}: {length}");
            assert!(bytes >= LANES * length && bytes - LANES * length < 3 * PAGE, "{bytes}");
        }
    }
}
