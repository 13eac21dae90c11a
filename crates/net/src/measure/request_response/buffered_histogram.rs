//! Times as they are taken: memory that is there before the first of them, emptied into a histogram.
//!
//! Left out: what they are of.

use plumb_base::stats::histogram::Histogram;

/// Samples between two emptyings, where nobody knows how many there will be.
const ROOM: usize = 1 << 16;
/// Most samples that wait at all.
const ROOM_MAX: u64 = 4_000_000;

/// A histogram with a buffer before it, so that taking a sample is one write.
#[derive(Debug)]
pub(in super::super) struct BufferedHistogram {
    waiting: Vec<u64>,
    histogram: Histogram,
}

impl BufferedHistogram {
    /// For any number of them.
    pub(in super::super) fn new() -> Self {
        Self::with_room(ROOM)
    }

    /// For a loop that must not stop to empty its buffer before so many.
    pub(in super::super) fn with_capacity_for(count: u64) -> Self {
        Self::with_room(usize::try_from(count.clamp(1, ROOM_MAX)).unwrap_or(ROOM))
    }

    fn with_room(room: usize) -> Self {
        // Written once, so that the kernel gives the pages now.
        let mut waiting = vec![1; room];
        waiting.clear();
        Self { waiting, histogram: Histogram::new() }
    }

    #[inline]
    pub(in super::super) fn record(&mut self, ns: u64) {
        if self.waiting.len() == self.waiting.capacity() {
            self.flush();
        }
        self.waiting.push(ns);
    }

    fn flush(&mut self) {
        for ns in self.waiting.drain(..) {
            self.histogram.record(ns);
        }
    }

    /// All of them, encoded; nothing where there are none.
    pub(in super::super) fn encode(mut self) -> Vec<u8> {
        self.flush();
        if self.histogram.is_empty() { Vec::new() } else { self.histogram.encode() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sample_is_lost_however_many_come() {
        let mut samples = BufferedHistogram::with_room(16);
        (1..=1_000).for_each(|ns| samples.record(ns));
        let histogram = Histogram::decode(&samples.encode()).unwrap();
        assert_eq!((histogram.len(), histogram.min(), histogram.quantile(0.5)), (1_000, 1, 500));
        assert!(BufferedHistogram::new().encode().is_empty());
    }
}
