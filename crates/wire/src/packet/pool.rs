//! The pool: frames of two sizes, of which each is free, in a packet, or lent to a kernel.
//!
//! Ordinary frames hold one frame of a link and may be memory shared with a kernel; large ones hold
//! a super-segment or a reassembled datagram. All are made at the start, so that what a stack may
//! use is bounded by its configuration. Left out: any policy about what to do when none is free.

use std::fmt;
use std::ops::Range;

use super::{Meta, Packet};

mod transfer;

/// Room before the data of a fresh packet: for every header that may come in front of it.
pub const HEADROOM: usize = 128;

/// Bytes of a large frame: the largest IP datagram with its link header, and headroom.
pub const LARGE_FRAME: usize = 65_535 + 18 + HEADROOM;

/// Memory that frames live in where it is not the pool's own: a ring shared with a kernel.
pub trait Memory: fmt::Debug + Send {
    /// Bytes in all.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Bytes of a frame that the caller owns. Panics when out of range.
    fn bytes(&self, range: Range<usize>) -> &[u8];
    /// The same, to be written.
    fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8];
}

/// The number of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameId(u32);

/// How many frames of which size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    /// Ordinary frames.
    pub count: u32,
    /// Bytes of each, headroom included.
    pub size: u32,
    /// Large frames, of [`LARGE_FRAME`] bytes each.
    pub large: u32,
}

impl Default for Frames {
    /// 1,024 frames of 2 KiB and 16 large ones: 3 MiB.
    fn default() -> Self {
        Self { count: 1_024, size: 2_048, large: 16 }
    }
}

enum Region {
    Own(Box<[u8]>),
    Shared(Box<dyn Memory>),
}

impl Region {
    #[inline]
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        match self {
            Self::Own(bytes) => &bytes[range],
            Self::Shared(memory) => memory.bytes(range),
        }
    }

    #[inline]
    fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        match self {
            Self::Own(bytes) => &mut bytes[range],
            Self::Shared(memory) => memory.bytes_mut(range),
        }
    }
}

/// Frames and the account of who has them.
pub struct Pool {
    region: Region,
    frames: Frames,
    large: Box<[u8]>,
    free: Vec<FrameId>,
    free_large: Vec<FrameId>,
}

impl Pool {
    /// A pool in memory of its own, written once so that no page fault is left.
    pub fn new(frames: Frames) -> Self {
        let bytes = frames.count as usize * frames.size as usize;
        Self::with(Region::Own(vec![1; bytes].into_boxed_slice()), frames)
    }

    /// The same, of which only the first `written` frames are: the others take memory once they are
    /// used. A frame that was used last is used first, so that only as many ever are as were in use at once.
    pub fn reserve(frames: Frames, written: u32) -> Self {
        let mut bytes = vec![0; frames.count as usize * frames.size as usize].into_boxed_slice();
        bytes[..written.min(frames.count) as usize * frames.size as usize].fill(1);
        Self::with(Region::Own(bytes), frames)
    }

    /// A pool whose ordinary frames lie in shared memory, one behind the other.
    ///
    /// Panics when the memory is too short for them.
    pub fn in_memory(memory: Box<dyn Memory>, frames: Frames) -> Self {
        assert!(
            memory.len() >= frames.count as usize * frames.size as usize,
            "memory for every frame"
        );
        Self::with(Region::Shared(memory), frames)
    }

    fn with(region: Region, frames: Frames) -> Self {
        assert!(frames.size as usize > HEADROOM, "frames have room for data");
        Self {
            region,
            frames,
            large: vec![1; frames.large as usize * LARGE_FRAME].into_boxed_slice(),
            free: (0..frames.count).rev().map(FrameId).collect(),
            free_large: (frames.count..frames.count + frames.large).rev().map(FrameId).collect(),
        }
    }

    /// How it was made.
    pub fn frames(&self) -> Frames {
        self.frames
    }

    /// Free frames: ordinary and large ones.
    pub fn available(&self) -> (usize, usize) {
        (self.free.len(), self.free_large.len())
    }

    /// An empty packet in an ordinary frame, its data beginning after [`HEADROOM`] bytes.
    #[inline]
    pub fn allocate(&mut self) -> Option<Packet> {
        let frame = self.free.pop()?;
        Some(packet(frame, HEADROOM))
    }

    /// An empty packet that can hold `len` bytes: in an ordinary frame if that is enough.
    #[inline]
    pub fn allocate_for(&mut self, len: usize) -> Option<Packet> {
        if HEADROOM + len <= self.frames.size as usize {
            return self.allocate();
        }
        if HEADROOM + len > LARGE_FRAME {
            return None;
        }
        let frame = self.free_large.pop()?;
        Some(packet(frame, HEADROOM))
    }

    /// Takes a packet's frame back.
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "the packet ends here")]
    pub fn free(&mut self, packet: Packet) {
        if self.is_large(&packet) {
            self.free_large.push(packet.frame);
        } else {
            self.free.push(packet.frame);
        }
    }

    /// Takes the frames of all packets back.
    pub fn free_all(&mut self, packets: &mut Vec<Packet>) {
        for packet in packets.drain(..) {
            self.free(packet);
        }
    }

    /// A packet's data.
    #[inline]
    pub fn bytes(&self, packet: &Packet) -> &[u8] {
        self.frame(packet.frame, packet.start as usize..packet.end as usize)
    }

    /// A packet's data, to be written.
    #[inline]
    pub fn bytes_mut(&mut self, packet: &mut Packet) -> &mut [u8] {
        self.frame_mut(packet.frame, packet.start as usize..packet.end as usize)
    }

    /// The data of an ordinary and of a large packet, both to be written: for one read into both.
    ///
    /// Panics when they are not one of each, in this order.
    pub fn bytes_mut_both(
        &mut self,
        ordinary: &mut Packet,
        large: &mut Packet,
    ) -> (&mut [u8], &mut [u8]) {
        assert!(!self.is_large(ordinary) && self.is_large(large), "one of each");
        let base = (large.frame.0 - self.frames.count) as usize * LARGE_FRAME;
        let second = &mut self.large[base + large.start as usize..base + large.end as usize];
        let base = ordinary.frame.0 as usize * self.frames.size as usize;
        let first = base + ordinary.start as usize..base + ordinary.end as usize;
        match &mut self.region {
            Region::Own(bytes) => (&mut bytes[first], second),
            Region::Shared(memory) => (memory.bytes_mut(first), second),
        }
    }

    /// Whether a packet lies in a large frame.
    #[inline]
    pub fn is_large(&self, packet: &Packet) -> bool {
        self.is_large_frame(packet.frame)
    }

    /// Bytes that fit behind the data.
    #[inline]
    pub fn tailroom(&self, packet: &Packet) -> usize {
        self.frame_len(packet.frame) - packet.end as usize
    }

    /// Bytes that fit before the data.
    #[inline]
    pub fn headroom(&self, packet: &Packet) -> usize {
        packet.start as usize
    }

    /// Makes the data `len` bytes longer at its end; the new bytes, whatever they held.
    ///
    /// `None`, and nothing changed, when there is no room.
    #[inline]
    pub fn append(&mut self, packet: &mut Packet, len: usize) -> Option<&mut [u8]> {
        if len > self.tailroom(packet) {
            return None;
        }
        let from = packet.end as usize;
        packet.end += u32::try_from(len).ok()?;
        Some(self.frame_mut(packet.frame, from..from + len))
    }

    /// Makes the data `len` bytes longer at its front; the new bytes, whatever they held.
    ///
    /// Panics without that much headroom: [`HEADROOM`] is enough for every header there is.
    #[inline]
    pub fn prepend(&mut self, packet: &mut Packet, len: usize) -> &mut [u8] {
        let from = (packet.start as usize).checked_sub(len).expect("headroom for the header");
        packet.start = u32::try_from(from).expect("a frame is shorter than 4 GiB");
        self.frame_mut(packet.frame, from..from + len)
    }

    /// Removes `len` bytes at the front. Panics when there are fewer.
    #[inline]
    pub fn trim_front(&mut self, packet: &mut Packet, len: usize) {
        assert!(len <= packet.len(), "bytes to trim");
        packet.start += u32::try_from(len).expect("a frame is shorter than 4 GiB");
    }

    /// Keeps the first `len` bytes. Panics when there are fewer.
    #[inline]
    pub fn truncate(&mut self, packet: &mut Packet, len: usize) {
        assert!(len <= packet.len(), "bytes to keep");
        packet.end = packet.start + u32::try_from(len).expect("a frame is shorter than 4 GiB");
    }

    /// A packet with these bytes; `None` when no frame is free that holds them.
    #[inline]
    pub fn packet_of(&mut self, bytes: &[u8]) -> Option<Packet> {
        let mut packet = self.allocate_for(bytes.len())?;
        self.append(&mut packet, bytes.len())?.copy_from_slice(bytes);
        Some(packet)
    }

    /// Gives a packet's frame away to a kernel that shares the memory: the offset of its data there.
    ///
    /// # Errors
    /// Gives the packet back when it lies in a large frame, which no kernel shares.
    pub fn lend(&mut self, packet: Packet) -> Result<usize, Packet> {
        if self.is_large(&packet) {
            return Err(packet);
        }
        Ok(packet.frame.0 as usize * self.frames.size as usize + packet.start as usize)
    }

    /// Takes back a frame that was lent, with the data that a kernel left at `offset` of the shared
    /// memory.
    ///
    /// Panics when the range does not lie in one ordinary frame: the kernel was lent no other.
    pub fn reclaim(&mut self, offset: usize, len: usize) -> Packet {
        let size = self.frames.size as usize;
        let (frame, start) = (offset / size, offset % size);
        assert!(frame < self.frames.count as usize && start + len <= size, "data in one frame");
        let narrow = |n: usize| u32::try_from(n).expect("a frame is shorter than 4 GiB");
        Packet {
            frame: FrameId(narrow(frame)),
            start: narrow(start),
            end: narrow(start + len),
            meta: Meta::default(),
        }
    }

    #[inline]
    fn is_large_frame(&self, frame: FrameId) -> bool {
        frame.0 >= self.frames.count
    }

    #[inline]
    fn frame_len(&self, frame: FrameId) -> usize {
        if self.is_large_frame(frame) { LARGE_FRAME } else { self.frames.size as usize }
    }

    #[inline]
    fn frame(&self, frame: FrameId, range: Range<usize>) -> &[u8] {
        if self.is_large_frame(frame) {
            let base = (frame.0 - self.frames.count) as usize * LARGE_FRAME;
            return &self.large[base + range.start..base + range.end];
        }
        let base = frame.0 as usize * self.frames.size as usize;
        let range = base + range.start..base + range.end;
        self.region.bytes(range)
    }

    #[inline]
    fn frame_mut(&mut self, frame: FrameId, range: Range<usize>) -> &mut [u8] {
        if self.is_large_frame(frame) {
            let base = (frame.0 - self.frames.count) as usize * LARGE_FRAME;
            return &mut self.large[base + range.start..base + range.end];
        }
        let base = frame.0 as usize * self.frames.size as usize;
        let range = base + range.start..base + range.end;
        self.region.bytes_mut(range)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("frames", &self.frames)
            .field("available", &self.available())
            .finish_non_exhaustive()
    }
}

#[inline]
fn packet(frame: FrameId, start: usize) -> Packet {
    let start = u32::try_from(start).expect("a frame is shorter than 4 GiB");
    Packet { frame, start, end: start, meta: Meta::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Pool {
        Pool::new(Frames { count: 2, size: 256, large: 1 })
    }

    #[test]
    fn a_reserve_has_every_frame_and_uses_those_first_that_were_used() {
        let mut pool = Pool::reserve(Frames { count: 4, size: 256, large: 0 }, 9);
        assert_eq!(pool.available(), (4, 0));
        let (first, second) = (pool.allocate().unwrap(), pool.allocate().unwrap());
        assert_eq!((first.frame, second.frame), (FrameId(0), FrameId(1)));
        pool.free(first);
        assert_eq!(pool.allocate().unwrap().frame, FrameId(0));
    }

    #[test]
    fn data_grows_at_both_ends_within_its_frame_and_no_further() {
        let mut pool = small();
        let mut packet = pool.packet_of(b"payload").unwrap();
        pool.prepend(&mut packet, 3).copy_from_slice(b"ip ");
        assert_eq!(pool.bytes(&packet), b"ip payload");
        pool.trim_front(&mut packet, 3);
        pool.truncate(&mut packet, 3);
        assert_eq!(pool.bytes(&packet), b"pay");
        assert!(pool.append(&mut packet, 256).is_none());
        assert_eq!(packet.len(), 3);
        pool.free(packet);
    }

    #[test]
    fn a_pool_gives_out_each_frame_once_and_takes_it_back() {
        let mut pool = small();
        let mut held: Vec<Packet> = std::iter::from_fn(|| pool.allocate()).collect();
        assert_eq!(held.len(), 2);
        pool.bytes_mut(&mut held[0]);
        pool.append(&mut held[0], 4).unwrap().copy_from_slice(b"ours");
        pool.append(&mut held[1], 4).unwrap().copy_from_slice(b"your");
        assert_eq!(pool.bytes(&held[0]), b"ours");
        held.push(pool.allocate_for(60_000).unwrap());
        assert!(pool.allocate_for(60_000).is_none());
        assert_eq!(pool.available(), (0, 0));
        pool.free_all(&mut held);
        assert_eq!(pool.available(), (2, 1));
    }

    #[test]
    fn an_ordinary_and_a_large_packet_are_written_side_by_side() {
        let mut pool = small();
        let mut ordinary = pool.packet_of(b"small").unwrap();
        let mut large = pool.packet_of(&[7; 1_000]).unwrap();
        let (first, second) = pool.bytes_mut_both(&mut ordinary, &mut large);
        first[0] = b'S';
        second[999] = 8;
        assert_eq!(pool.bytes(&ordinary), b"Small");
        assert_eq!(pool.bytes(&large)[998..], [7, 8]);
        pool.free(ordinary);
        pool.free(large);
    }

    #[test]
    fn a_lent_frame_comes_back_with_what_was_left_in_it() {
        let mut pool = small();
        let packet = pool.packet_of(b"frame").unwrap();
        let offset = pool.lend(packet).unwrap();
        let packet = pool.reclaim(offset + 1, 3);
        assert_eq!(pool.bytes(&packet), b"ram");
        pool.free(packet);
        assert_eq!(pool.available().0, 2);
    }
}
