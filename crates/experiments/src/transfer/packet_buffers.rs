//! How a receiving host keeps packets until they are read (Lantz, Nowicki & Theimer 1985, §7.1).
//!
//! [`BufferedHost`] is a model in virtual time: a host with few buffers that works as slowly as theirs. [`PacketStore`] does the work
//! of each policy in real time.

use std::collections::VecDeque;

use plumb_base::time::{Instant, Span};
use plumb_harness::spec::PacketBufferPolicy;
use plumb_wire::ethernet::EthernetFrame;
use plumb_wire::ipv4::Ipv4Packet;
use plumb_wire::tcp::{TcpFlags, TcpSegment};

/// Packet buffers of a host, each of which holds the longest packet of its network.
pub(crate) const BUFFERS: usize = 8;
/// Bytes of one.
pub(crate) const BUFFER_LEN: usize = 1_024;

/// Bytes of buffers where they have several sizes; the longest holds any frame.
const SIZES: [usize; 3] = [128, 512, STORED_LEN];

/// The smallest of them that is enough.
fn size_class(len: usize) -> usize {
    SIZES.iter().position(|size| len <= *size).unwrap_or(SIZES.len() - 1)
}

/// What compacting a packet takes: a tenth of the 18 ms that a packet of 1,000 bytes took in all (§7.3).
const COMPACTION: Span = Span::from_us(1_800);

/// A packet that was taken in.
#[derive(Debug)]
struct KeptPacket {
    /// Behind its last byte in the stream.
    end: u64,
    len: usize,
    /// From when on its bytes lie with those of others.
    compacted: Instant,
}

/// The packet buffers of a slow host.
#[derive(Debug)]
pub(super) struct BufferedHost {
    policy: PacketBufferPolicy,
    kept: VecDeque<KeptPacket>,
    /// The sequence number before the first byte.
    initial: Option<u32>,
    busy_until: Instant,
    /// Packets for which there was no buffer.
    pub dropped: u64,
}

impl BufferedHost {
    pub fn new(policy: PacketBufferPolicy) -> Self {
        let kept = VecDeque::new();
        Self { policy, kept, initial: None, busy_until: Instant::ORIGIN, dropped: 0 }
    }

    /// Whether there is a buffer for a frame; it is taken.
    pub fn admit(&mut self, now: Instant, frame: &[u8], read: u64) -> bool {
        if self.policy == PacketBufferPolicy::Ring {
            return true;
        }
        let Some((seq, flags, len)) = tcp_of(frame) else { return true };
        if flags.contains(TcpFlags::SYN) {
            self.initial = Some(seq.wrapping_add(1));
        }
        if len == 0 {
            return true;
        }
        // Buffers of data that was read, or came twice, are free.
        self.kept.retain(|kept| kept.end > read);
        let needed = if self.policy == PacketBufferPolicy::Sized {
            SIZES[size_class(len)]
        } else {
            BUFFER_LEN
        };
        if self.in_use(now) * BUFFER_LEN + needed > BUFFERS * BUFFER_LEN {
            self.dropped += 1;
            return false;
        }
        let start = u64::from(seq.wrapping_sub(self.initial.unwrap_or(seq)));
        let end = start + len as u64;
        if end > read {
            self.busy_until = self.busy_until.max(now) + COMPACTION;
            self.kept.push_back(KeptPacket { end, len, compacted: self.busy_until });
        }
        true
    }

    /// Buffers of one KiB, or as much memory in others.
    fn in_use(&self, now: Instant) -> usize {
        match self.policy {
            PacketBufferPolicy::Compacted => {}
            PacketBufferPolicy::Sized => {
                let bytes: usize = self.kept.iter().map(|kept| SIZES[size_class(kept.len)]).sum();
                return bytes.div_ceil(BUFFER_LEN);
            }
            _ => return self.kept.len(),
        }
        let (done, waiting): (Vec<_>, Vec<_>) =
            self.kept.iter().partition(|kept| kept.compacted <= now);
        let bytes: usize = done.iter().map(|kept| kept.len).sum();
        waiting.len() + bytes.div_ceil(BUFFER_LEN)
    }
}

/// Sequence number, flags and bytes of payload of a TCP segment.
fn tcp_of(frame: &[u8]) -> Option<(u32, TcpFlags, usize)> {
    let frame = EthernetFrame::parse(frame).ok()?;
    let packet = Ipv4Packet::parse(frame.payload()).ok()?;
    let segment = TcpSegment::parse(packet.payload()).ok()?;
    Some((segment.seq(), segment.flags(), segment.payload().len()))
}

/// Buffers of a chunk: as many as hold a write of 16 KiB, which is read before the next.
const CHUNK: usize = 12;
/// Bytes of a buffer that holds any frame.
const STORED_LEN: usize = 2_048;

/// Keeps frames in memory, and gives them back in their order.
#[derive(Debug)]
pub(super) struct PacketStore {
    policy: PacketBufferPolicy,
    kept: VecDeque<(Vec<u8>, usize)>,
    /// Buffers by which the free list grows and shrinks.
    chunk: usize,
    /// As many free ones are too many.
    free_max: usize,
    /// Of each size; all but the longest are empty where there is one size.
    free: [Vec<Vec<u8>>; SIZES.len()],
}

impl PacketStore {
    /// With room for `most` frames where buffers are there from the start.
    pub fn new(policy: PacketBufferPolicy, most: usize) -> Self {
        let [is_fixed, is_sized] = [
            matches!(policy, PacketBufferPolicy::Fixed | PacketBufferPolicy::Compacted),
            policy == PacketBufferPolicy::Sized,
        ];
        let buffers = |size: usize| vec![vec![0; size]; most];
        let free = SIZES.map(|size| {
            if is_sized || (is_fixed && size == STORED_LEN) { buffers(size) } else { Vec::new() }
        });
        let chunk = match policy {
            PacketBufferPolicy::SmallChunks => CHUNK / 4,
            PacketBufferPolicy::LargeChunks => CHUNK * 4,
            _ => CHUNK,
        };
        let free_max = if is_fixed || is_sized { usize::MAX } else { 2 * chunk };
        Self { policy, kept: VecDeque::with_capacity(most), chunk, free_max, free }
    }

    fn class(&self, len: usize) -> usize {
        if self.policy == PacketBufferPolicy::Sized { size_class(len) } else { SIZES.len() - 1 }
    }

    /// Keeps a frame.
    #[inline]
    pub fn keep(&mut self, frame: &[u8]) {
        let class = self.class(frame.len());
        let mut buffer = match self.policy {
            PacketBufferPolicy::Malloc => Vec::with_capacity(frame.len()),
            _ => self.free[class].pop().unwrap_or_else(|| self.grow(class)),
        };
        buffer.clear();
        buffer.extend_from_slice(frame);
        self.kept.push_back((buffer, frame.len()));
    }

    #[cold]
    fn grow(&mut self, class: usize) -> Vec<u8> {
        let size = SIZES[class];
        self.free[class].extend((1..self.chunk).map(|_| Vec::with_capacity(size)));
        Vec::with_capacity(size)
    }

    /// Gives back the frame that was kept first.
    #[inline]
    pub fn take(&mut self, give: impl FnOnce(&[u8])) -> bool {
        let Some((buffer, len)) = self.kept.pop_front() else { return false };
        give(&buffer[..len]);
        if self.policy != PacketBufferPolicy::Malloc {
            let class = self.class(len);
            let free = &mut self.free[class];
            free.push(buffer);
            if free.len() >= self.free_max {
                free.truncate(self.chunk);
            }
        }
        true
    }
}
