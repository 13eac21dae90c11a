//! Initial sequence numbers (RFC 6528) and offsets of timestamp clocks (RFC 7323 §5.4): unpredictable from outside, monotonic
//! for each pair of ends.

use plumb_base::seed::Seed;
use plumb_base::time::Instant;
use plumb_wire::flow::SipKey;

use super::connection::TcpEnds;
use super::handshake::TimestampClock;
use super::tuple::words;

/// The secrets that the numbers depend on.
#[derive(Debug)]
pub(super) struct InitialNumbers {
    number: SipKey,
    clock: SipKey,
}

impl InitialNumbers {
    pub fn new(seed: Seed) -> Self {
        Self {
            number: SipKey::new(seed, "initial sequence numbers"),
            clock: SipKey::new(seed, "timestamp offsets"),
        }
    }

    /// ISN = M + F(ends, secret), M a clock of 4 µs (RFC 6528 §3).
    pub fn number(&self, now: Instant, ends: &TcpEnds) -> u32 {
        let ticks = now.since_origin().as_ps() / 4_000_000;
        low_half(ticks).wrapping_add(low_half(self.number.hash(words(ends))))
    }

    /// The timestamp clock of a pair of ends.
    pub fn clock(&self, ends: &TcpEnds) -> TimestampClock {
        TimestampClock::new(low_half(self.clock.hash(words(ends))))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
const fn low_half(word: u64) -> u32 {
    word as u32
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use plumb_base::time::Span;

    use super::*;

    fn ends(port: u16) -> TcpEnds {
        TcpEnds {
            local: SocketAddr::from(([192, 0, 2, 1], port)),
            remote: SocketAddr::from(([192, 0, 2, 2], 80)),
        }
    }

    // MUST-8.
    #[test]
    fn number_of_a_pair_grows_by_one_in_four_microseconds() {
        let numbers = InitialNumbers::new(Seed(1));
        let start = Instant::ORIGIN + Span::from_secs(1);
        let first = numbers.number(start, &ends(7));
        // Twice round the 32 bits.
        for us in [4, 400, 17_179_869_184_u64, 34_359_738_368] {
            let later = numbers.number(start + Span::from_us(us), &ends(7));
            assert_eq!(u64::from(later.wrapping_sub(first)), (us / 4) & 0xffff_ffff);
        }
    }

    // MUST-9.
    #[test]
    fn numbers_of_other_ends_and_seeds_are_unrelated() {
        let (one, two) = (InitialNumbers::new(Seed(1)), InitialNumbers::new(Seed(2)));
        let at = Instant::ORIGIN;
        let distances: std::collections::BTreeSet<u32> = (1_000..1_256)
            .map(|port| one.number(at, &ends(port + 1)).wrapping_sub(one.number(at, &ends(port))))
            .collect();
        assert_eq!(distances.len(), 256);
        assert_ne!(one.number(at, &ends(7)), two.number(at, &ends(7)));
        assert_ne!(one.clock(&ends(7)), one.clock(&ends(8)));
    }
}
