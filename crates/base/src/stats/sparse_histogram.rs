//! The histogram of [`Histogram`](super::histogram::Histogram), slot for slot, which has memory only for ranges in which there are samples.
//!
//! A network of thousands of queues has two of each, and most of those queues are mostly empty: whole ones take 130 KiB up to 20 ms,
//! and the first write to each of their pages takes longer than the packet that is counted.

/// Values below this are exact; above it, as many slots for each power of two.
const SLOTS: u64 = 1_024;
/// Counters that get memory together.
const PAGE: usize = 64;

/// A histogram of whole numbers with a relative error of at most 0.1 %.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SparseHistogram {
    pages: Vec<Option<Box<[u64; PAGE]>>>,
    /// Samples of nothing, which have no slot: most of those of a queue that is mostly empty.
    zeros: u64,
    count: u64,
}

impl SparseHistogram {
    /// An empty one, without memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one sample.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Adds `n` samples of one value.
    #[inline]
    pub fn record_n(&mut self, value: u64, n: u64) {
        self.count += n;
        if value == 0 {
            self.zeros += n;
            return;
        }
        let slot = slot_of(value);
        match self.pages.get_mut(slot / PAGE) {
            Some(Some(page)) => page[slot % PAGE] += n,
            _ => self.add_page(slot / PAGE)[slot % PAGE] += n,
        }
    }

    #[cold]
    fn add_page(&mut self, number: usize) -> &mut [u64; PAGE] {
        if number >= self.pages.len() {
            self.pages.resize_with(number + 1, || None);
        }
        self.pages[number].get_or_insert_with(|| Box::new([0; PAGE]))
    }

    /// Adds every sample of another.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.zeros += other.zeros;
        for (number, from) in other.pages.iter().enumerate() {
            let Some(from) = from else { continue };
            let to = self.add_page(number);
            to.iter_mut().zip(from.iter()).for_each(|(to, from)| *to += from);
        }
    }

    /// An empty one that takes every value that this one has without more memory.
    #[must_use]
    pub fn empty_like(&self) -> Self {
        let empty = |page: &Option<_>| page.as_ref().map(|_| Box::new([0; PAGE]));
        Self { pages: self.pages.iter().map(empty).collect(), ..Self::new() }
    }

    /// Number of samples.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The value at or below which the share `p` of the samples lies; 0 when empty.
    pub fn quantile(&self, p: f64) -> u64 {
        let p = p.clamp(0.0, 1.0);
        let (wanted, mut seen) = (p * self.count as f64, 0);
        for (slot, count) in self.slots() {
            seen += count;
            if seen as f64 >= wanted {
                let range = ValueRange::of(slot);
                return if p == 0.0 { range.first } else { range.last() };
            }
        }
        self.max()
    }

    /// The largest sample, rounded up to three digits; 0 when empty.
    pub fn max(&self) -> u64 {
        self.slots().last().map_or(0, |(slot, _)| ValueRange::of(slot).last())
    }

    /// Each value that was recorded, ascending, with how often: the middle of its counter's range.
    pub fn iter_recorded(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.slots().map(|(slot, count)| (ValueRange::of(slot).middle(), count))
    }

    /// Slots that have samples, with how many.
    fn slots(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let pages = self.pages.iter().enumerate();
        let pages = pages.filter_map(|(number, page)| Some((number, page.as_ref()?)));
        let counted = pages.flat_map(|(number, page)| (number * PAGE..).zip(page.iter().copied()));
        let all = std::iter::once((0, self.zeros)).chain(counted);
        all.filter(|(_, count)| *count > 0)
    }
}

#[inline]
fn slot_of(value: u64) -> usize {
    // Bits that the value has more than a number of two times SLOTS; those are lost.
    let shift = (2 * SLOTS - 1).leading_zeros() - (value | (2 * SLOTS - 1)).leading_zeros();
    let slot = u64::from(shift) * SLOTS + (value >> shift);
    usize::try_from(slot).expect("some ten thousand")
}

/// Values that are counted together.
#[derive(Clone, Copy, Debug)]
struct ValueRange {
    first: u64,
    shift: u32,
}

impl ValueRange {
    fn of(slot: usize) -> Self {
        let slot = slot as u64;
        let shift = (slot / SLOTS).saturating_sub(1);
        let first = (slot - shift * SLOTS) << shift;
        Self { first, shift: u32::try_from(shift).expect("below 64") }
    }

    fn middle(self) -> u64 {
        self.first + ((1 << self.shift) >> 1)
    }

    fn last(self) -> u64 {
        self.first + ((1 << self.shift) - 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::histogram::Histogram;
    use super::*;

    fn value() -> impl Strategy<Value = u64> {
        prop_oneof![0_u64..5_000, any::<u32>().prop_map(u64::from), any::<u64>()]
    }

    proptest! {
        #[test]
        fn it_has_the_slots_of_a_whole_histogram(
            samples in prop::collection::vec((value(), 1_u64..1_000), 1..50), p in 0.0_f64..=1.0,
        ) {
            let (mut sparse, mut whole) = (SparseHistogram::new(), Histogram::new());
            let mut others = (SparseHistogram::new(), Histogram::new());
            for (number, (value, n)) in samples.into_iter().enumerate() {
                let (sparse, whole) =
                    if number % 3 == 0 { (&mut others.0, &mut others.1) } else { (&mut sparse, &mut whole) };
                sparse.record_n(value, n);
                whole.record_n(value, n);
            }
            sparse.merge(&others.0);
            whole.merge(&others.1);
            prop_assert_eq!(sparse.len(), whole.len());
            prop_assert_eq!(sparse.max(), whole.max());
            for p in [0.0, p, 0.5, 1.0] {
                prop_assert_eq!(sparse.quantile(p), whole.quantile(p), "{}", p);
            }
            prop_assert!(sparse.iter_recorded().eq(whole.iter_recorded()));
            let empty = sparse.empty_like();
            prop_assert_eq!((empty.is_empty(), empty.quantile(0.5), empty.max()), (true, 0, 0));
        }
    }

    #[test]
    fn an_empty_queue_takes_no_memory() {
        let mut sparse = SparseHistogram::new();
        (0..1_000).for_each(|_| sparse.record(0));
        assert_eq!((sparse.pages.capacity(), sparse.len()), (0, 1_000));
    }
}
