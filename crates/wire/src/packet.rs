//! Packets: owned handles to frames of pooled memory, with metadata.
//!
//! A [`Packet`] is the right to use one frame of a [`Pool`]; the pool is passed along to whatever
//! reads its bytes, so that no packet carries a reference and the frames can be memory that a
//! kernel writes (AF_XDP). Ordinary frames hold one frame of a link; large ones hold a super-segment or a
//! reassembled datagram. All are allocated at the start, so that the memory of a stack is bounded.

use std::fmt;
use std::ops::Range;

use plumb_base::time::Instant;

use crate::ip::Ecn;

/// One packet: a frame of its pool, where in it the data lies, and metadata.
///
/// Not `Clone`: a frame has one owner. A packet that is dropped without [`Pool::free`] leaks its
/// frame until the pool is dropped; tests compare [`Pool::available`] before and after.
///
/// The order of its fields, and four bytes for the state of its checksum, which are how an `Option` of one says `None`, let it be moved in
/// pieces that do not overlap: a processor that reads across two of its last writes waits for everything it has written.
#[derive(Debug)]
#[must_use = "a packet is a frame of its pool: pass it on, or free it with Pool::free"]
#[repr(C)]
pub struct Packet {
    frame: FrameId,
    start: u32,
    end: u32,
    /// Which payload follows the data, of those that the machine keeps until it is polled again; 0: the data are all.
    pub tail: u32,
    /// Its metadata.
    pub meta: PacketMeta,
}

/// Three pieces of a vector register: every link holds one for each packet inside.
const _: () = assert!(size_of::<Packet>() == 48, "no byte of padding but the last");

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

/// Packets that are handed over together.
pub type Batch = Vec<Packet>;

/// Metadata of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct PacketMeta {
    /// When the device received it; the origin where that is not known.
    pub received: Instant,
    /// A hash of its flow, where the device or the stack computed one; else 0.
    pub flow: u32,
    /// Bits a second of its flow, where a queue labelled it with that; else 0.
    pub flow_rate: f32,
    /// The state of its transport checksum.
    pub checksum: ChecksumState,
    /// Set on a super-segment: how to segment it, or how it was coalesced.
    pub segments: Option<SegmentationInfo>,
    /// Congestion notification: as received, or to be sent.
    pub ecn: Ecn,
}

/// The state of a packet's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum ChecksumState {
    /// The field is complete: not verified yet, or to be sent as it is.
    #[default]
    Plain,
    /// Verified by the device, or from this machine, where nothing can have corrupted it.
    Verified,
    /// The field holds the folded, uncomplemented sum of the pseudo-header; the device sums
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
pub struct SegmentationInfo {
    /// Its segments.
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

/// Where frames begin: so headers of 64 bytes in front of [`HEADROOM`] lie in one line of a cache.
const CACHE_LINE: usize = 64;

/// Bytes copied at a time where both frames lie in memory shared with a kernel; even, so that sums of 16-bit
/// words can be added up.
const PIECE: usize = 1_024;

/// Room before the data of a fresh packet: for every header that may come in front of it.
pub const HEADROOM: usize = 128;

/// Bytes of a large frame: the largest IP datagram with its link header, and headroom.
pub const LARGE_FRAME: usize = 65_535 + 18 + HEADROOM;

/// Memory that frames live in where it is not the pool's own: a ring shared with a kernel.
pub trait PoolMemory: fmt::Debug + Send {
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
    /// The kernel is about to get the frame around `offset`; until it comes back nobody asks for its bytes.
    fn lend(&mut self, _offset: usize) {}
}

/// The number of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FrameId(u32);

/// Number and size of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Ordinary frames.
    pub count: u32,
    /// Bytes of each, headroom included.
    pub size: u32,
    /// Large frames, of [`LARGE_FRAME`] bytes each.
    pub large: u32,
}

impl Default for PoolConfig {
    /// 1,024 frames of 2 KiB and 16 large ones: 3 MiB.
    fn default() -> Self {
        Self { count: 1_024, size: 2_048, large: 16 }
    }
}

enum PoolRegion {
    /// Bytes, and where the first frame begins.
    Own(Box<[u8]>, usize),
    Shared(Box<dyn PoolMemory>),
}

impl PoolRegion {
    /// Memory for `len` bytes, of which the first `written` have been.
    fn own(len: usize, written: usize) -> Self {
        let mut bytes = vec![0; len + CACHE_LINE].into_boxed_slice();
        bytes[..written + CACHE_LINE].fill(1);
        let begin = bytes.as_ptr().align_offset(CACHE_LINE);
        Self::Own(bytes, begin)
    }

    #[inline]
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        match self {
            Self::Own(bytes, begin) => &bytes[begin + range.start..begin + range.end],
            Self::Shared(memory) => memory.bytes(range),
        }
    }

    #[inline]
    fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        match self {
            Self::Own(bytes, begin) => &mut bytes[*begin + range.start..*begin + range.end],
            Self::Shared(memory) => memory.bytes_mut(range),
        }
    }
}

/// The frames, each free, in a packet, or lent to a kernel.
pub struct Pool {
    region: PoolRegion,
    frames: PoolConfig,
    large: Box<[u8]>,
    free: Vec<FrameId>,
    free_large: Vec<FrameId>,
}

impl Pool {
    /// A pool in memory of its own, written once so that no page fault is left.
    pub fn new(frames: PoolConfig) -> Self {
        Self::reserve(frames, frames.count)
    }

    /// The same, of which only the first `written` frames are: the others take memory once they are
    /// used. A frame that was used last is used first, so that only as many ever are as were in use at once.
    pub fn reserve(frames: PoolConfig, written: u32) -> Self {
        let [len, written] = [frames.count, written.min(frames.count)]
            .map(|count| count as usize * frames.size as usize);
        Self::with(PoolRegion::own(len, written), frames)
    }

    /// A pool whose ordinary frames lie in shared memory, one behind the other.
    ///
    /// Panics when the memory is too short for them.
    pub fn in_memory(memory: Box<dyn PoolMemory>, frames: PoolConfig) -> Self {
        assert!(
            memory.len() >= frames.count as usize * frames.size as usize,
            "memory for every frame"
        );
        Self::with(PoolRegion::Shared(memory), frames)
    }

    fn with(region: PoolRegion, frames: PoolConfig) -> Self {
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
    pub fn frames(&self) -> PoolConfig {
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
    pub fn free_all(&mut self, packets: &mut Batch) {
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
        let first = self.place(ordinary.frame, ordinary.start as usize..ordinary.end as usize);
        let second = self.place(large.frame, large.start as usize..large.end as usize);
        (self.region.bytes_mut(first), &mut self.large[second])
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

    /// A packet with a copy of bytes `range` of `from`'s data; `None` when no frame is free that holds them.
    #[inline]
    pub fn copy_of(&mut self, from: &Packet, range: Range<usize>) -> Option<Packet> {
        let mut copy = self.allocate_for(range.len())?;
        let copied = self.append_from(&mut copy, from, range, |from, to| to.copy_from_slice(from));
        debug_assert!(copied, "a fresh frame has the room that was asked for");
        Some(copy)
    }

    /// Appends bytes `range` of `from`'s data to `to`, by `copy(source, target)`; several calls of
    /// it, each but the last for an even number of bytes, may make up the whole.
    ///
    /// `false`, and nothing changed, when `to` has no room. Panics when `from` has no such bytes.
    #[inline]
    pub fn append_from(
        &mut self,
        to: &mut Packet,
        from: &Packet,
        range: Range<usize>,
        copy: impl FnMut(&[u8], &mut [u8]),
    ) -> bool {
        if range.len() > self.tailroom(to) {
            return false;
        }
        let at = to.len();
        to.end += u32::try_from(range.len()).expect("a frame is shorter than 4 GiB");
        self.copy_between(to, at, from, range, copy);
        true
    }

    /// Overwrites `to`'s data from byte `at` with bytes `range` of `from`'s, by `copy` as in
    /// [`Pool::append_from`].
    ///
    /// Panics when either packet has no such bytes.
    pub fn copy_between(
        &mut self,
        to: &mut Packet,
        at: usize,
        from: &Packet,
        range: Range<usize>,
        mut copy: impl FnMut(&[u8], &mut [u8]),
    ) {
        assert!(range.end <= from.len() && at + range.len() <= to.len(), "bytes within the data");
        let target = to.start as usize + at..to.start as usize + at + range.len();
        let source = from.start as usize + range.start..from.start as usize + range.end;
        let (source, target) = (self.place(from.frame, source), self.place(to.frame, target));
        let is_large = (self.is_large(from), self.is_large(to));
        let Self { region, large, .. } = self;
        match (is_large, region) {
            ((true, true), _) => pair(large, source, target, copy),
            ((true, false), region) => copy(&large[source], region.bytes_mut(target)),
            ((false, true), region) => copy(region.bytes(source), &mut large[target]),
            ((false, false), PoolRegion::Own(bytes, begin)) => {
                pair(&mut bytes[*begin..], source, target, copy);
            }
            ((false, false), PoolRegion::Shared(memory)) => {
                let mut piece = [0; PIECE];
                for done in (0..source.len()).step_by(PIECE) {
                    let len = PIECE.min(source.len() - done);
                    let source = source.start + done..source.start + done + len;
                    let target = target.start + done..target.start + done + len;
                    piece[..len].copy_from_slice(memory.bytes(source));
                    copy(&piece[..len], memory.bytes_mut(target));
                }
            }
        }
    }

    /// Lends a packet's frame to a kernel that shares the memory: the offset of its data there.
    ///
    /// # Errors
    /// Returns the packet when it lies in a large frame, which no kernel shares.
    pub fn lend(&mut self, packet: Packet) -> Result<usize, Packet> {
        if self.is_large(&packet) {
            return Err(packet);
        }
        let offset = packet.frame.0 as usize * self.frames.size as usize + packet.start as usize;
        if let PoolRegion::Shared(memory) = &mut self.region {
            memory.lend(offset);
        }
        Ok(offset)
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
            tail: 0,
            meta: PacketMeta::default(),
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

    /// Where bytes of a frame are: in the region, or in the memory of large frames.
    #[inline]
    fn place(&self, frame: FrameId, range: Range<usize>) -> Range<usize> {
        let base = if self.is_large_frame(frame) {
            (frame.0 - self.frames.count) as usize * LARGE_FRAME
        } else {
            frame.0 as usize * self.frames.size as usize
        };
        base + range.start..base + range.end
    }

    #[inline]
    fn frame(&self, frame: FrameId, range: Range<usize>) -> &[u8] {
        let range = self.place(frame, range);
        if self.is_large_frame(frame) { &self.large[range] } else { self.region.bytes(range) }
    }

    #[inline]
    fn frame_mut(&mut self, frame: FrameId, range: Range<usize>) -> &mut [u8] {
        let range = self.place(frame, range);
        if self.is_large_frame(frame) {
            &mut self.large[range]
        } else {
            self.region.bytes_mut(range)
        }
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
    Packet { frame, start, end: start, tail: 0, meta: PacketMeta::default() }
}

/// `copy` with two ranges of one slice, which belong to different frames and so do not overlap.
#[inline]
fn pair(
    bytes: &mut [u8],
    source: Range<usize>,
    target: Range<usize>,
    mut copy: impl FnMut(&[u8], &mut [u8]),
) {
    if source.is_empty() {
        return;
    }
    let [source, target] =
        bytes.get_disjoint_mut([source, target]).expect("two packets share no frame");
    copy(source, target);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Pool {
        Pool::new(PoolConfig { count: 2, size: 256, large: 1 })
    }

    #[test]
    fn reserve_reuses_the_frame_freed_last() {
        let mut pool = Pool::reserve(PoolConfig { count: 4, size: 256, large: 0 }, 9);
        assert_eq!(pool.available(), (4, 0));
        let (first, second) = (pool.allocate().unwrap(), pool.allocate().unwrap());
        assert_eq!((first.frame, second.frame), (FrameId(0), FrameId(1)));
        pool.free(first);
        assert_eq!(pool.allocate().unwrap().frame, FrameId(0));
    }

    #[test]
    fn data_grows_at_both_ends_within_its_frame() {
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
    fn each_frame_is_allocated_once() {
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
    fn ordinary_and_large_packet_are_written_together() {
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
    fn reclaimed_frame_has_what_the_kernel_left() {
        let mut pool = small();
        let packet = pool.packet_of(b"frame").unwrap();
        let offset = pool.lend(packet).unwrap();
        let packet = pool.reclaim(offset + 1, 3);
        assert_eq!(pool.bytes(&packet), b"ram");
        pool.free(packet);
        assert_eq!(pool.available().0, 2);
    }

    #[derive(Debug)]
    struct Elsewhere(Vec<u8>);

    impl PoolMemory for Elsewhere {
        fn len(&self) -> usize {
            self.0.len()
        }
        fn bytes(&self, range: Range<usize>) -> &[u8] {
            &self.0[range]
        }
        fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
            &mut self.0[range]
        }
    }

    #[test]
    fn bytes_are_copied_between_all_kinds_of_frames() {
        let frames = PoolConfig { count: 2, size: 4_096, large: 2 };
        let shared = Box::new(Elsewhere(vec![0; 2 * 4_096]));
        let data: Vec<u8> = (0..3_000_u32).map(|i| i.to_le_bytes()[0]).collect();
        for mut pool in [Pool::new(frames), Pool::in_memory(shared, frames)] {
            for (from_len, to_len) in [(0, 0), (0, 9_000), (9_000, 0), (9_000, 9_000)] {
                let mut from = pool.allocate_for(from_len).unwrap();
                let mut to = pool.allocate_for(to_len).unwrap();
                pool.append(&mut from, data.len()).unwrap().copy_from_slice(&data);
                pool.append(&mut to, 2).unwrap().copy_from_slice(b"to");
                let mut lens = Vec::new();
                assert!(pool.append_from(&mut to, &from, 1..2_500, |source, target| {
                    target.copy_from_slice(source);
                    lens.push(source.len());
                }));
                assert_eq!(pool.bytes(&to)[..2], *b"to");
                assert_eq!(pool.bytes(&to)[2..], data[1..2_500]);
                assert!(lens[..lens.len() - 1].iter().all(|len| len % 2 == 0));
                pool.free(from);
                pool.free(to);
            }
            assert_eq!(pool.available(), (2, 2));
        }
    }

    #[test]
    fn append_without_room_changes_nothing() {
        let mut pool = Pool::new(PoolConfig { count: 1, size: 256, large: 1 });
        let mut small = pool.allocate().unwrap();
        let mut large = pool.allocate_for(1_000).unwrap();
        pool.append(&mut large, 1_000).unwrap();
        assert!(!pool.append_from(&mut small, &large, 0..129, |_, _| unreachable!("no room")));
        assert!(small.is_empty());
        pool.free(small);
        pool.free(large);
    }
}
