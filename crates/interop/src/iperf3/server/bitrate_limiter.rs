//! What a test may still move: the server's limit against what is seen to go, whatever its client said before.
//!
//! A budget of bits that fills at the limit's rate and holds five seconds of it, over which iperf3 takes its mean, and
//! some blocks of each stream, because a sender that is paced gives them to the kernel whole. Left out: what is done
//! with a test that has spent it.

use plumb_base::time::Instant;
use plumb_base::units::rate::Rate;

/// Seconds of the rate that may come at once.
const DEPTH_S: u128 = 5;
/// Blocks of each stream that may.
const DEPTH_BLOCKS: u128 = 4;

/// Of one test.
#[derive(Clone, Copy, Debug)]
pub(super) struct BitrateLimiter {
    rate: Rate,
    /// What it holds when it is full, and what has been taken of that, in bits.
    depth: u128,
    taken: u128,
    /// Bytes of the test at the last look, and when that was.
    bytes: u64,
    looked: Instant,
}

impl BitrateLimiter {
    /// A full one; `block_bytes` are those of one block of every stream together.
    pub(super) fn new(rate: Rate, block_bytes: u64, began: Instant) -> Self {
        let blocks = u128::from(block_bytes) * 8 * DEPTH_BLOCKS;
        let depth = u128::from(rate.bits_per_second()) * DEPTH_S + blocks;
        Self { rate, depth, taken: 0, bytes: 0, looked: began }
    }

    /// Takes what has come and gone since the last look of a test that had so many bytes in all; whether it was
    /// there.
    pub(super) fn admit(&mut self, bytes: u64, now: Instant) -> bool {
        let elapsed = u128::from(now.saturating_since(self.looked).as_ns());
        let filled = u128::from(self.rate.bits_per_second()) * elapsed / 1_000_000_000;
        let moved = u128::from(bytes.saturating_sub(self.bytes)) * 8;
        self.taken = self.taken.saturating_sub(filled).saturating_add(moved);
        (self.bytes, self.looked) = (bytes, now);
        self.taken <= self.depth
    }
}

#[cfg(test)]
mod tests {
    use plumb_base::time::Span;

    use super::*;

    /// After how many looks, 20 ms apart, a test that moves so many bits a second is ended.
    fn ends_after(rate: u64, limit: u64) -> Option<u64> {
        let limit = Rate::from_bits_per_second(limit).unwrap();
        let mut allowance = BitrateLimiter::new(limit, 128 << 10, Instant::ORIGIN);
        (1..100_000).find(|look| {
            let now = Instant::ORIGIN + Span::from_ms(20) * *look;
            !allowance.admit(rate / 8 * look / 50, now)
        })
    }

    #[test]
    fn a_test_is_ended_by_what_it_moves_and_not_at_its_limit() {
        assert_eq!(ends_after(1_000_000, 1_000_000), None, "for half an hour");
        // The depth is 5 Mb and four blocks, 9.2 Mb in all: at 94 Mb/s a tenth of a second.
        let looks = ends_after(94_000_000, 1_000_000).expect("it is too fast");
        assert!((5..=6).contains(&looks), "{looks}");
        assert!(ends_after(1_100_000, 1_000_000).is_some(), "a tenth too fast is too fast");
    }

    #[test]
    fn blocks_that_come_whole_and_a_pause_are_no_faster_than_their_mean() {
        let limit = Rate::from_bits_per_second(100_000).unwrap();
        let mut allowance = BitrateLimiter::new(limit, 128 << 10, Instant::ORIGIN);
        // A block every 10.5 s, as a sender at 100 kb/s has it.
        for block in 1..1_000_u64 {
            let now = Instant::ORIGIN + Span::from_ms(10_500) * block;
            assert!(allowance.admit(block * (128 << 10), now), "block {block}");
        }
    }
}
