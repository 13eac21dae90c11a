//! Packets: owned handles to frames of pooled memory, with what is known of each.
//!
//! A [`Packet`] is the right to use one frame of a [`Pool`]; the pool is passed along to whoever
//! looks at its bytes, so that no packet carries a reference and the frames can be memory that a
//! kernel writes (AF_XDP). Left out: what is in a packet, and queues of them.

use plumb_base::time::Instant;

use crate::ecn::Ecn;

mod pool;

use pool::FrameId;
pub use pool::{Frames, HEADROOM, LARGE_FRAME, Memory, Pool};

/// One packet: a frame of its pool, where in it the data lies, and what is known of it.
///
/// Not `Clone`: a frame has one owner. A packet that is dropped without [`Pool::free`] leaks its
/// frame until the pool is dropped; tests compare [`Pool::available`] before and after.
#[derive(Debug)]
#[must_use = "a packet is a frame of its pool: pass it on, or give it back with Pool::free"]
pub struct Packet {
    frame: FrameId,
    start: u32,
    end: u32,
    /// What is known of it.
    pub meta: Meta,
}

impl Packet {
    /// Bytes of data.
    #[inline]
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether it holds no data.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.end == self.start
    }
}

/// What is known of a packet beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// When the device received it; the origin where nobody said.
    pub received: Instant,
    /// What is known or wanted of its transport checksum.
    pub checksum: ChecksumState,
    /// Set on a super-segment: how it must be cut, or how it was put together.
    pub segments: Option<Segments>,
    /// Congestion notification: as received, or as it shall be sent.
    pub ecn: Ecn,
    /// A hash of its flow, where the device or the stack computed one; 0 where nobody did.
    pub flow: u32,
}

/// What is known or wanted of a packet's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumState {
    /// The field is as it came, or complete as it shall be sent; whoever cares verifies it.
    #[default]
    Plain,
    /// Received from a device that verified it (or from this machine, where nothing can have
    /// broken it): it need not be verified again.
    Verified,
    /// The field holds the folded, uncomplemented sum of the pseudo-header; whoever sends it on a wire sums
    /// from `start` to the end and stores the complement at `start + offset` (virtio 1.2 §5.1.6,
    /// Linux's CHECKSUM_PARTIAL).
    Partial {
        /// First byte summed, from the packet's first byte.
        start: u16,
        /// Where the field is, from `start`.
        offset: u16,
    },
}

/// A super-segment: one packet that stands for many of `size` bytes of payload each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// What it is cut into.
    pub kind: SegmentKind,
    /// Payload bytes of each but the last.
    pub size: u16,
    /// Bytes of headers, link layer included, that each repeats.
    pub header_len: u16,
}

/// Transport and family of a super-segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv4.
    Udp4,
    /// UDP over IPv6.
    Udp6,
}
