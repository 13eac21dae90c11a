//! A frame on its way through a link: the packet and what the link knows of it.
//!
//! Left out: its bytes, which are the pool's.

use plumb_base::time::Instant;
use plumb_wire::packet::Packet;

/// One frame in a link.
///
/// Its moments are *logical*: when things happen by the model, however late the driver comes to see
/// to them, so that lateness never accumulates.
#[derive(Debug)]
#[must_use = "a frame holds a packet: pass it on, or give it to Context::discard"]
pub struct Frame {
    /// The bytes and their description.
    pub packet: Packet,
    /// Bytes that the rate is spent on: the frame's, and the overhead of each frame it stands for.
    pub wire_len: u32,
    /// Frames on the wire it stands for: more than one for a super-segment that is carried whole.
    pub count: u32,
    /// Keyed hash of its flow; the same for every frame that is no IP.
    pub flow: u64,
    /// When it entered the link.
    pub entered: Instant,
    /// When it reached the element it is in: the queue, while it waits there.
    pub arrived: Instant,
}
