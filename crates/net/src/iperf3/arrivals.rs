//! Which of a stream's numbered datagrams came: lost, late and doubled ones told apart, exactly.
//!
//! iperf3 takes every number that is not above the highest for one that was lost and is found again,
//! so that each duplicate hides a loss. Here each of the last quarter of a million numbers is
//! remembered by itself. Left out: what came later than that, which counts as late.

/// Numbers remembered behind the highest; a power of two.
const REMEMBERED: u64 = 1 << 18;

/// What came of one stream.
#[derive(Clone, Debug)]
pub struct Arrivals {
    seen: Box<[u64]>,
    highest: u64,
    distinct: u64,
    late: u64,
    duplicates: u64,
}

impl Default for Arrivals {
    fn default() -> Self {
        let words = usize::try_from(REMEMBERED / 64).expect("a few thousand");
        Self { seen: vec![0; words].into(), highest: 0, distinct: 0, late: 0, duplicates: 0 }
    }
}

impl Arrivals {
    /// The whole number of which the lower 32 bits came: the one next to the highest so far.
    pub fn widened(&self, low: u32) -> u64 {
        let [.., a, b, c, d] = self.highest.to_be_bytes();
        let ahead = low.wrapping_sub(u32::from_be_bytes([a, b, c, d])).cast_signed();
        self.highest.saturating_add_signed(ahead.into())
    }

    /// A datagram with this number came; numbers begin with 1, and 0 is none.
    #[inline]
    pub fn add(&mut self, number: u64) {
        if number == 0 {
            return;
        }
        if number > self.highest {
            self.forget(number);
            self.highest = number;
            self.distinct += 1;
            self.mark(number);
        } else if self.highest - number >= REMEMBERED {
            self.late += 1;
            self.distinct = (self.distinct + 1).min(self.highest);
        } else if self.is_marked(number) {
            self.duplicates += 1;
        } else {
            self.mark(number);
            self.distinct += 1;
            self.late += 1;
        }
    }

    /// Makes room for the numbers up to a new highest.
    fn forget(&mut self, highest: u64) {
        if highest - self.highest == 1 {
            let (word, bit) = Self::place(highest);
            self.seen[word] &= !bit;
        } else if highest - self.highest >= REMEMBERED {
            self.seen.fill(0);
        } else {
            for number in self.highest + 1..=highest {
                let (word, bit) = Self::place(number);
                self.seen[word] &= !bit;
            }
        }
    }

    fn place(number: u64) -> (usize, u64) {
        let slot = number % REMEMBERED;
        (usize::try_from(slot / 64).expect("a few thousand"), 1 << (slot % 64))
    }

    fn mark(&mut self, number: u64) {
        let (word, bit) = Self::place(number);
        self.seen[word] |= bit;
    }

    fn is_marked(&self, number: u64) -> bool {
        let (word, bit) = Self::place(number);
        self.seen[word] & bit != 0
    }

    /// The highest number that came.
    pub const fn highest(&self) -> u64 {
        self.highest
    }

    /// Numbers below the highest that never came.
    pub const fn lost(&self) -> u64 {
        self.highest.saturating_sub(self.distinct)
    }

    /// Datagrams that came after one with a higher number, for the first time.
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// Datagrams that had come before.
    pub const fn duplicates(&self) -> u64 {
        self.duplicates
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use plumb_base::seed::Seed;
    use rand::RngExt;

    use super::*;

    fn counts(numbers: &[u64]) -> (u64, u64, u64, u64) {
        let mut arrivals = Arrivals::default();
        for number in numbers {
            arrivals.add(*number);
        }
        (arrivals.highest(), arrivals.lost(), arrivals.late(), arrivals.duplicates())
    }

    #[test]
    fn a_duplicate_hides_no_loss() {
        assert_eq!(counts(&[1, 2, 2, 4]), (4, 1, 0, 1));
        assert_eq!(counts(&[1, 3, 2]), (3, 0, 1, 0));
        assert_eq!(counts(&[5]), (5, 4, 0, 0));
        assert_eq!(counts(&[0]), (0, 0, 0, 0));
    }

    #[test]
    fn any_order_with_any_losses_and_copies_is_counted_as_it_was() {
        let seed = Seed(11);
        let mut chance = seed.stream("arrivals");
        for _ in 0..50 {
            let sent = chance.random_range(1..3_000_u64);
            let mut numbers: Vec<u64> = (1..=sent).filter(|_| !chance.random_bool(0.1)).collect();
            let copies: Vec<u64> =
                numbers.iter().copied().filter(|_| chance.random_bool(0.05)).collect();
            numbers.extend(&copies);
            for index in 1..numbers.len() {
                let other = index.saturating_sub(chance.random_range(0..50));
                numbers.swap(index, other);
            }
            let distinct: BTreeSet<u64> = numbers.iter().copied().collect();
            let highest = distinct.last().copied().unwrap_or(0);
            let (found, lost, _, duplicates) = counts(&numbers);
            let expected = (highest, highest - distinct.len() as u64, copies.len() as u64);
            assert_eq!((found, lost, duplicates), expected, "{seed:?}");
        }
    }

    #[test]
    fn a_jump_beyond_memory_counts_what_it_skipped_and_what_comes_later_still() {
        assert_eq!(counts(&[1, 10_000_000, 2]), (10_000_000, 9_999_997, 1, 0));
    }

    #[test]
    fn numbers_of_32_bits_go_on_after_the_last() {
        let mut arrivals = Arrivals::default();
        let first = u64::from(u32::MAX) - 1;
        arrivals.add(first);
        for low in [u32::MAX, 0, 1] {
            let whole = arrivals.widened(low);
            arrivals.add(whole);
        }
        assert_eq!(arrivals.highest(), first + 3);
        assert_eq!(arrivals.widened(u32::MAX), first + 1);
    }
}
