//! The pool's frames in memory that AF_XDP sockets share with the kernel.
//!
//! Left out: who has lent which frame.

use std::ops::Range;

use plumb_sys::xdp::Umem;
use plumb_wire::packet::Memory;

/// Frames shared with a kernel.
#[derive(Debug)]
pub(super) struct SharedFrames(pub(super) Umem);

impl Memory for SharedFrames {
    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.0.bytes(range)
    }

    #[inline]
    fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.0.bytes_mut(range)
    }
}
