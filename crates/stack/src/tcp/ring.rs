//! Bytes of a stream between two sequence numbers: what a connection has to send, or has received.

use std::fmt;

use plumb_copy::{Sum16, copy_and_sum, sum};

use super::config::ChecksumPass;
use super::seq::SeqNum;

/// Least capacity once there are bytes.
const CAPACITY_MIN: usize = 4_096;

/// A ring addressed by sequence numbers. It has no memory until it is written to, and grows by doubling up to its limit; where its
/// content is not kept, it never has any.
pub(super) struct SeqRing {
    bytes: Box<[u8]>,
    /// What lies at the beginning of the memory: segments of an even size then never begin at an odd address.
    origin: SeqNum,
    /// Where the bytes that are kept begin.
    start: SeqNum,
    limit: usize,
    keeps_content: bool,
}

impl SeqRing {
    /// A ring for at most `limit` bytes that begins at `start`.
    pub fn new(start: SeqNum, limit: u32, keeps_content: bool) -> Self {
        let limit = limit as usize;
        Self { bytes: Box::default(), origin: start, start, limit, keeps_content }
    }

    /// Whether it holds bytes, and not only their number.
    #[inline]
    pub const fn keeps_content(&self) -> bool {
        self.keeps_content
    }

    /// Where it begins.
    #[inline]
    pub const fn start(&self) -> SeqNum {
        self.start
    }

    /// Where it ends at most.
    #[inline]
    pub fn limit(&self) -> SeqNum {
        self.start + self.limit as u64
    }

    /// Most bytes that it holds.
    #[inline]
    pub const fn capacity_limit(&self) -> usize {
        self.limit
    }

    /// Bytes of memory that it has.
    pub fn memory(&self) -> usize {
        self.bytes.len()
    }

    /// Lets it hold more; never less.
    pub fn raise_limit(&mut self, limit: usize) {
        self.limit = self.limit.max(limit);
    }

    /// Forgets what lies before `start`.
    #[inline]
    pub fn advance(&mut self, start: SeqNum) {
        debug_assert!(start >= self.start, "a ring moves forward");
        self.start = start;
    }

    /// Gives the memory back, when nothing is kept.
    pub fn release(&mut self) {
        self.bytes = Box::default();
    }

    /// Sees to memory for bytes up to `end`, which is within the limit; `kept` is where the bytes end that must survive.
    #[inline]
    pub fn reserve(&mut self, end: SeqNum, kept: SeqNum) {
        let needed = usize::try_from(end - self.start).expect("within the limit");
        debug_assert!(needed <= self.limit, "bytes within the limit");
        if needed > self.bytes.len() && self.keeps_content {
            self.grow(needed, kept);
        }
    }

    #[cold]
    fn grow(&mut self, needed: usize, kept: SeqNum) {
        let capacity = needed.max(CAPACITY_MIN).next_power_of_two();
        let mut grown = vec![0; capacity].into_boxed_slice();
        let mut at = self.start;
        while at < kept {
            let piece = self.contiguous(at, kept);
            let to = self.index(at, capacity);
            let len = piece.len().min(capacity - to);
            grown[to..to + len].copy_from_slice(&piece[..len]);
            at += len as u64;
        }
        self.bytes = grown;
    }

    /// The bytes from `at` that lie in one piece, up to `end`.
    #[inline]
    pub fn contiguous(&self, at: SeqNum, end: SeqNum) -> &[u8] {
        let (from, to) = self.piece(at, end);
        &self.bytes[from..to]
    }

    /// The same, to be written.
    #[inline]
    pub fn contiguous_mut(&mut self, at: SeqNum, end: SeqNum) -> &mut [u8] {
        let (from, to) = self.piece(at, end);
        &mut self.bytes[from..to]
    }

    #[inline]
    const fn index(&self, at: SeqNum, capacity: usize) -> usize {
        at.index().wrapping_sub(self.origin.index()) & (capacity - 1)
    }

    #[inline]
    fn piece(&self, at: SeqNum, end: SeqNum) -> (usize, usize) {
        if self.bytes.is_empty() {
            return (0, 0);
        }
        let from = self.index(at, self.bytes.len());
        let len = usize::try_from(end.saturating_since(at)).unwrap_or(usize::MAX);
        (from, from + len.min(self.bytes.len() - from))
    }

    /// Writes `bytes` at `at`, for which memory was reserved; their sum, if it is asked for.
    #[inline]
    pub fn write(&mut self, at: SeqNum, bytes: &[u8], pass: Option<ChecksumPass>) -> Sum16 {
        if !self.keeps_content {
            return sum_if(pass, bytes);
        }
        let end = at + bytes.len() as u64;
        let first = self.contiguous_mut(at, end);
        let cut = first.len();
        let mut total = copy(&bytes[..cut], first, pass);
        if cut < bytes.len() {
            let rest = self.contiguous_mut(at + cut as u64, end);
            total += copy(&bytes[cut..], rest, pass).at(cut);
        }
        total
    }

    /// Copies the bytes at `at` to `out`, which stays as it is where they are not kept; the sum of `out`, if it is asked for.
    #[inline]
    pub fn read(&self, at: SeqNum, out: &mut [u8], pass: Option<ChecksumPass>) -> Sum16 {
        if !self.keeps_content {
            return sum_if(pass, out);
        }
        let end = at + out.len() as u64;
        let first = self.contiguous(at, end);
        let cut = first.len();
        let (head, tail) = out.split_at_mut(cut);
        let mut total = copy(first, head, pass);
        if !tail.is_empty() {
            total += copy(self.contiguous(at + cut as u64, end), tail, pass).at(cut);
        }
        total
    }
}

impl fmt::Debug for SeqRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes from {:?}, at most {}", self.bytes.len(), self.start, self.limit)
    }
}

#[inline]
fn copy(from: &[u8], to: &mut [u8], pass: Option<ChecksumPass>) -> Sum16 {
    match pass {
        Some(ChecksumPass::Fused) => copy_and_sum(from, to),
        Some(ChecksumPass::Separate) => {
            to.copy_from_slice(from);
            sum(to)
        }
        None => {
            to.copy_from_slice(from);
            Sum16::ZERO
        }
    }
}

#[inline]
fn sum_if(pass: Option<ChecksumPass>, bytes: &[u8]) -> Sum16 {
    pass.map_or(Sum16::ZERO, |_| sum(bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_with_its_sum(
            start in any::<u32>(), lens in prop::collection::vec(0_usize..9_000, 1..20),
        ) {
            let start = SeqNum::initial(start);
            let mut ring = SeqRing::new(start, 1 << 20, true);
            let mut end = start;
            let mut kept: Vec<u8> = Vec::new();
            for (n, len) in lens.into_iter().enumerate() {
                let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + n).to_le_bytes()[0]).collect();
                ring.reserve(end + len as u64, end);
                let sum = ring.write(end, &bytes, Some(ChecksumPass::Fused));
                prop_assert_eq!(sum, Sum16::of(&bytes));
                end += len as u64;
                kept.extend(&bytes);
                let mut out = vec![0; kept.len()];
                let sum = ring.read(ring.start(), &mut out, Some(ChecksumPass::Separate));
                prop_assert_eq!(&out, &kept);
                prop_assert_eq!(sum, Sum16::of(&kept));
                let consumed = kept.len() / 3;
                kept.drain(..consumed);
                ring.advance(ring.start() + consumed as u64);
            }
        }
    }

    #[test]
    fn content_that_is_not_kept_takes_no_memory_and_has_a_right_sum() {
        let start = SeqNum::initial(7);
        let mut ring = SeqRing::new(start, 65_536, false);
        let end = start + 65_536;
        ring.reserve(end, start);
        assert_eq!(ring.write(start, &[1, 2], Some(ChecksumPass::Fused)), Sum16::of(&[1, 2]));
        let mut frame = [3, 4, 5];
        assert_eq!(
            ring.read(start, &mut frame, Some(ChecksumPass::Separate)),
            Sum16::of(&[3, 4, 5])
        );
        assert_eq!((frame, ring.memory()), ([3, 4, 5], 0));
    }

    #[test]
    fn it_takes_no_memory_before_it_is_used() {
        let mut ring = SeqRing::new(SeqNum::initial(7), 65_536, true);
        assert_eq!(ring.memory(), 0);
        ring.reserve(SeqNum::initial(8), SeqNum::initial(7));
        assert_eq!(ring.memory(), CAPACITY_MIN);
    }
}
