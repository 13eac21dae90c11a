//! The memory that AF_XDP sockets share with the kernel, in frames, each guarded: the process sees
//! the bytes of no frame that it has lent.
//!
//! Left out: which frame is lent when.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The mapping and the account of what is lent; shared by the one [`Umem`] and its handles.
#[derive(Debug)]
struct Region {
    base: NonNull<u8>,
    len: usize,
    frame_shift: u32,
    lent: Box<[AtomicBool]>,
}

// SAFETY: the mapping belongs to the process; its bytes are reached only through the one `Umem`.
unsafe impl Send for Region {}
// SAFETY: as above; what the handles share is atomic or never changes.
unsafe impl Sync for Region {}

impl Region {
    #[inline]
    fn lent(&self, offset: usize) -> &AtomicBool {
        &self.lent[offset >> self.frame_shift]
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped, with neither owner nor handle left; the
        // kernel keeps the pages themselves for as long as a socket uses them.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// The memory itself: whoever has it reads and writes the frames that are not lent.
#[derive(Debug)]
pub struct Umem {
    region: Arc<Region>,
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
        // SAFETY: a new mapping at an address the kernel chooses; the result is checked.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(address.cast()).ok_or_else(io::Error::last_os_error)?;
        let lent = (0..count).map(|_| AtomicBool::new(false)).collect();
        let frame_shift = frame_size.trailing_zeros();
        Ok(Self { region: Arc::new(Region { base, len, frame_shift, lent }) })
    }

    /// For a socket on this memory.
    pub fn handle(&self) -> UmemHandle {
        UmemHandle { region: Arc::clone(&self.region) }
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.region.len
    }

    /// Whether there are none, which `new` never makes.
    pub fn is_empty(&self) -> bool {
        self.region.len == 0
    }

    /// Where bytes of one frame that is not lent are; panics for others.
    #[inline]
    fn address(&self, range: &Range<usize>) -> *mut u8 {
        let region = &*self.region;
        assert!(range.start <= range.end && range.end <= region.len, "within the memory");
        if range.start < range.end {
            let frame = range.start >> region.frame_shift;
            assert!((range.end - 1) >> region.frame_shift == frame, "within one frame");
            assert!(!region.lent[frame].load(Ordering::Acquire), "a frame that is not lent");
        }
        // SAFETY: at most the mapping's end.
        unsafe { region.base.as_ptr().add(range.start) }
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
    region: Arc<Region>,
}

impl UmemHandle {
    pub(super) fn registration(&self) -> libc::xdp_umem_reg {
        libc::xdp_umem_reg {
            addr: self.region.base.as_ptr().expose_provenance() as u64,
            len: self.region.len as u64,
            chunk_size: 1 << self.region.frame_shift,
            headroom: 0,
            flags: 0,
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
