//! Which datagrams came, which twice, which late, and which never: exactly, in bounded memory.
//!
//! A bitmap over the last [`WINDOW`] sequence numbers remembers each that came. What leaves the window without
//! having come is lost; what comes later than that could be either late or a copy, and is counted apart.
//! Reordering is RFC 4737's: a datagram is reordered when one with a greater number came before it
//! (§3.3), and its extent is how many came since the first of those (§4.2.1). A second copy is a
//! duplicate and nothing else.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Sequence numbers that are remembered, one bit each.
pub const WINDOW: u64 = 1 << 20;
const WORD: u64 = 64;
/// Jumps over missing numbers that are remembered; older ones give way.
const GAPS_MAX: usize = 1 << 14;
/// Classes of reordering extents: 1, 2, 3, then doubling: 4–7, 8–15 …, all above in the last.
pub const EXTENT_CLASSES: usize = 16;

/// What one datagram turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceStatus {
    /// Its number is the greatest so far.
    InOrder,
    /// It comes after this many others that were to come later.
    Late {
        /// RFC 4737's reordering extent.
        extent: u64,
    },
    /// It has come before.
    Duplicate,
    /// Its number is too old to tell a late one from a copy.
    BeyondWindow,
    /// Its number is none that was to be sent.
    OutOfRange,
}

impl SequenceStatus {
    /// Whether it is the first of its number.
    pub const fn is_new(self) -> bool {
        matches!(self, Self::InOrder | Self::Late { .. })
    }
}

/// What an account comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceCounts {
    /// Datagrams that came, copies included.
    pub received: u64,
    /// Different ones among them.
    pub unique: u64,
    /// Further copies of what had come.
    pub duplicates: u64,
    /// Those that came after one with a greater number.
    pub reordered: u64,
    /// The greatest reordering extent.
    pub extent_max: u64,
    /// How many were reordered by 1, 2, 3, 4–7, 8–15 and so on.
    pub extents: Vec<u64>,
    /// Those too old to tell a late one from a copy.
    pub beyond_window: u64,
    /// Those with a number that was never to be sent.
    pub impossible: u64,
    /// Numbers up to the last that were never seen.
    pub lost: u64,
    /// Runs of consecutive lost numbers.
    pub loss_runs: u64,
    /// The longest of these runs.
    pub loss_run_max: u64,
}

/// One jump over numbers that had not come.
#[derive(Clone, Copy, Debug)]
struct SequenceGap {
    /// The first number jumped over.
    from: u64,
    /// How many datagrams had come before the one that jumped.
    arrival: u64,
}

/// The account of one stream.
#[derive(Debug)]
pub struct SequenceTracker {
    words: Vec<u64>,
    /// Numbers below are final; a multiple of a word.
    finalized: u64,
    /// One more than the greatest number that came.
    next: u64,
    /// Numbers are below this.
    limit: u64,
    gaps: VecDeque<SequenceGap>,
    /// Length of the run of lost numbers that ends where the settled ones do.
    loss_run: u64,
    counts: SequenceCounts,
}

impl SequenceTracker {
    /// Of a stream whose numbers begin at zero and stay below `limit`.
    pub fn new(limit: u64) -> Self {
        let words = usize::try_from(WINDOW / WORD).unwrap_or(0);
        Self {
            words: vec![0; words],
            finalized: 0,
            next: 0,
            limit,
            gaps: VecDeque::new(),
            loss_run: 0,
            counts: SequenceCounts {
                extents: vec![0; EXTENT_CLASSES],
                ..SequenceCounts::default()
            },
        }
    }

    /// One more than the greatest number that came.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Different datagrams so far.
    pub const fn unique(&self) -> u64 {
        self.counts.unique
    }

    /// Datagrams so far, copies included.
    pub const fn received(&self) -> u64 {
        self.counts.received
    }

    /// Further copies of what had come, so far.
    pub const fn duplicates(&self) -> u64 {
        self.counts.duplicates
    }

    /// Those that came after one with a greater number, so far; what is too old to tell from a copy is among them.
    pub const fn late(&self) -> u64 {
        self.counts.reordered + self.counts.beyond_window
    }

    /// Numbers below the greatest that came which have not come so far.
    pub const fn missing(&self) -> u64 {
        self.next.saturating_sub(self.counts.unique).saturating_sub(self.counts.beyond_window)
    }

    /// The greatest number that is to come and has not, among those that are remembered.
    pub fn last_missing(&self) -> Option<u64> {
        let is_missing = |&number: &u64| !self.is_marked(number);
        let beyond = self.limit.checked_sub(1).filter(|&last| last >= self.next);
        beyond.or_else(|| (self.finalized..self.next).rev().find(is_missing))
    }

    /// Enters a datagram by the number that it carries, whatever times that has wrapped.
    #[inline]
    pub fn record(&mut self, sequence: u32) -> SequenceStatus {
        let Some(number) = self.unwrap(sequence) else {
            self.counts.impossible += 1;
            return SequenceStatus::OutOfRange;
        };
        let arrival = self.counts.received;
        self.counts.received += 1;
        if number >= self.next {
            if number > self.next {
                self.record_gap(number, arrival);
            }
            self.next = number + 1;
            if self.next > self.finalized + WINDOW {
                let surplus = self.next - WINDOW;
                self.finalize_below(surplus.div_ceil(WORD) * WORD);
            }
            self.mark(number);
            self.counts.unique += 1;
            return SequenceStatus::InOrder;
        }
        if number < self.finalized {
            self.counts.beyond_window += 1;
            return SequenceStatus::BeyondWindow;
        }
        if !self.mark(number) {
            self.counts.duplicates += 1;
            return SequenceStatus::Duplicate;
        }
        self.counts.unique += 1;
        let extent = self.extent(number, arrival);
        self.counts.reordered += 1;
        self.counts.extent_max = self.counts.extent_max.max(extent);
        self.counts.extents[class(extent)] += 1;
        SequenceStatus::Late { extent }
    }

    /// Closes the account: `count` is how many the sender says it sent, where that is known.
    pub fn finish(mut self, count: Option<u64>) -> SequenceCounts {
        let end = count.unwrap_or(self.next).clamp(self.next, self.limit.max(self.next));
        // All whole words that came, then the numbers of the last one by one.
        let whole = self.next / WORD * WORD;
        self.finalize_below(whole);
        for number in whole..self.next {
            let is_there = self.is_marked(number);
            self.extend_run(is_there, 1);
        }
        self.extend_run(false, end - self.next);
        self.extend_run(true, 0);
        self.counts
    }

    /// The number that is nearest to the next one expected among those that wrap to `sequence`.
    #[inline]
    fn unwrap(&self, sequence: u32) -> Option<u64> {
        const HALF: u32 = 1 << 31;
        let low = u32::try_from(self.next & u64::from(u32::MAX)).unwrap_or(0);
        let ahead = sequence.wrapping_sub(low);
        let number = if ahead < HALF {
            self.next.checked_add(u64::from(ahead))
        } else {
            self.next.checked_sub(u64::from(low.wrapping_sub(sequence)))
        };
        number.filter(|&number| number < self.limit)
    }

    fn record_gap(&mut self, number: u64, arrival: u64) {
        debug_assert!(number > self.next);
        if self.gaps.len() == GAPS_MAX {
            self.gaps.pop_front();
        }
        self.gaps.push_back(SequenceGap { from: self.next, arrival });
    }

    /// How many came since the first with a greater number: the one that jumped over this.
    fn extent(&self, number: u64, arrival: u64) -> u64 {
        let after = self.gaps.partition_point(|jump| jump.from <= number);
        let first = after.checked_sub(1).and_then(|index| self.gaps.get(index));
        first.or_else(|| self.gaps.front()).map_or(1, |jump| arrival - jump.arrival)
    }

    /// Sets the bit of a number; whether it was clear.
    #[inline]
    fn mark(&mut self, number: u64) -> bool {
        let (index, bit) = Self::place(number);
        let was_clear = self.words[index] & bit == 0;
        self.words[index] |= bit;
        was_clear
    }

    fn is_marked(&self, number: u64) -> bool {
        let (index, bit) = Self::place(number);
        self.words[index] & bit != 0
    }

    #[inline]
    fn place(number: u64) -> (usize, u64) {
        let slot = number / WORD % (WINDOW / WORD);
        (usize::try_from(slot).unwrap_or(0), 1 << (number % WORD))
    }

    /// Makes every number below `end`, a multiple of a word, final.
    fn finalize_below(&mut self, end: u64) {
        let in_window = end.min(self.finalized + WINDOW);
        while self.finalized < in_window {
            let (index, _) = Self::place(self.finalized);
            let word = std::mem::take(&mut self.words[index]);
            if word == u64::MAX {
                self.extend_run(true, 0);
            } else {
                for bit in 0..WORD {
                    self.extend_run(word >> bit & 1 == 1, 1);
                }
            }
            self.finalized += WORD;
        }
        if self.finalized < end {
            self.extend_run(false, end - self.finalized);
            self.finalized = end;
        }
        while self.gaps.len() > 1 && self.gaps[1].from <= self.finalized {
            self.gaps.pop_front();
        }
    }

    /// The next `count` numbers are all lost, or the next one is there.
    fn extend_run(&mut self, is_there: bool, count: u64) {
        if !is_there {
            self.loss_run += count;
            self.counts.lost += count;
        } else if self.loss_run > 0 {
            self.counts.loss_runs += 1;
            self.counts.loss_run_max = self.counts.loss_run_max.max(self.loss_run);
            self.loss_run = 0;
        }
    }
}

/// The class of an extent: 1, 2, 3, then doubling.
fn class(extent: u64) -> usize {
    let index = match extent {
        0..=3 => extent.saturating_sub(1),
        _ => u64::from(extent.ilog2()) + 1,
    };
    usize::try_from(index).unwrap_or(EXTENT_CLASSES).min(EXTENT_CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn tally(numbers: &[u64], count: u64) -> SequenceCounts {
        let mut account = SequenceTracker::new(u64::MAX);
        for &number in numbers {
            account.record(u32::try_from(number & 0xffff_ffff).unwrap());
        }
        account.finish(Some(count))
    }

    /// The definitions, written out over everything that came.
    fn expected(numbers: &[u64], count: u64) -> SequenceCounts {
        let mut expected =
            SequenceCounts { extents: vec![0; EXTENT_CLASSES], ..SequenceCounts::default() };
        let mut seen = BTreeSet::new();
        for (i, &number) in numbers.iter().enumerate() {
            expected.received += 1;
            if !seen.insert(number) {
                expected.duplicates += 1;
                continue;
            }
            expected.unique += 1;
            if let Some(j) = numbers[..i].iter().position(|&earlier| earlier > number) {
                let extent = u64::try_from(i - j).unwrap();
                expected.reordered += 1;
                expected.extent_max = expected.extent_max.max(extent);
                expected.extents[class(extent)] += 1;
            }
        }
        let mut run = 0;
        for number in 0..=count {
            if number < count && !seen.contains(&number) {
                run += 1;
                expected.lost += 1;
            } else if run > 0 {
                expected.loss_runs += 1;
                expected.loss_run_max = expected.loss_run_max.max(run);
                run = 0;
            }
        }
        expected
    }

    #[test]
    fn what_is_missing_late_and_doubled_so_far_is_told_on_the_way() {
        for (numbers, expected) in [
            (vec![0, 1, 1, 3], (4, 1, 0, 1)),
            (vec![0, 2, 1], (3, 0, 1, 0)),
            (vec![4], (5, 4, 0, 0)),
            (vec![0, 9_999_999, 1], (10_000_000, 9_999_997, 1, 0)),
        ] {
            let mut account = SequenceTracker::new(u64::MAX);
            for number in numbers {
                account.record(number);
            }
            let found = (account.next(), account.missing(), account.late(), account.duplicates());
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_number_that_wraps_goes_on_as_if_it_had_not() {
        let mut account = SequenceTracker::new(u64::MAX);
        account.next = (1 << 32) - 5;
        account.finalized = account.next / WORD * WORD;
        let start = account.next;
        let late = u32::MAX - 1;
        for offset in (0..40_u64).filter(|&offset| start + offset != u64::from(late)) {
            let sequence = u32::try_from((start + offset) & 0xffff_ffff).unwrap();
            assert_eq!(account.record(sequence), SequenceStatus::InOrder);
        }
        assert_eq!(account.next(), start + 40);
        assert_eq!(account.record(late), SequenceStatus::Late { extent: 36 });
        assert_eq!(account.record(late), SequenceStatus::Duplicate);
    }

    #[test]
    fn what_left_the_window_is_neither_late_nor_a_copy() {
        let mut account = SequenceTracker::new(u64::MAX);
        account.record(0);
        account.record(u32::try_from(3 * WINDOW).unwrap());
        assert_eq!(account.record(5), SequenceStatus::BeyondWindow);
        let tally = account.finish(None);
        assert_eq!(tally.lost, 3 * WINDOW - 1);
        assert_eq!((tally.unique, tally.beyond_window, tally.loss_runs), (2, 1, 1));
    }

    #[test]
    fn a_number_that_nobody_was_to_send_moves_nothing() {
        let mut account = SequenceTracker::new(100);
        account.record(3);
        assert_eq!(account.record(100), SequenceStatus::OutOfRange);
        assert_eq!(account.record(u32::MAX), SequenceStatus::OutOfRange);
        let tally = account.finish(Some(4));
        assert_eq!((tally.lost, tally.impossible, tally.received), (3, 2, 1));
    }

    proptest! {
        #[test]
        fn the_account_is_what_the_definitions_say(
            fates in prop::collection::vec((0..100_u8, 0..40_usize), 1..600)
        ) {
            // Each number is lost, delayed by some places, or sent twice, by its own draw.
            let mut arrivals: Vec<(usize, u64)> = Vec::new();
            for (number, &(fate, places)) in fates.iter().enumerate() {
                let value = u64::try_from(number).unwrap();
                match fate {
                    0..10 => {}
                    10..20 => arrivals.push((number + places, value)),
                    20..25 => arrivals.extend([(number, value), (number + places, value)]),
                    _ => arrivals.push((number, value)),
                }
            }
            arrivals.sort_unstable();
            let numbers: Vec<u64> = arrivals.into_iter().map(|(_, number)| number).collect();
            let count = u64::try_from(fates.len()).unwrap();
            prop_assert_eq!(tally(&numbers, count), expected(&numbers, count));
        }

        #[test]
        fn no_sequence_of_numbers_breaks_the_sum(
            sequences: Vec<u32>, limit in prop::option::of(0..5_000_000_000_u64)
        ) {
            let mut account = SequenceTracker::new(limit.unwrap_or(u64::MAX));
            for sequence in sequences {
                account.record(sequence);
            }
            let next = account.next();
            let tally = account.finish(None);
            prop_assert_eq!(tally.unique + tally.lost, next);
            prop_assert_eq!(
                tally.unique + tally.duplicates + tally.beyond_window, tally.received);
        }
    }
}
