//! Which bytes of a datagram have arrived: a bounded, sorted list of spans.
//!
//! The complement of the hole descriptors of RFC 815. Left out: the bytes.

/// The most spans that lie apart: the fragments of the largest datagram over the smallest usual MTU
/// (576 bytes), in any order but the worst.
pub const SPANS_MAX: usize = 64;

/// What a new span is to those that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It is new from end to end, and has been added.
    Added,
    /// All of it is there.
    Inside,
    /// A part of it is there.
    Overlaps,
    /// It lies apart from too many others.
    TooMany,
}

/// Bytes that have arrived.
#[derive(Clone, Copy, Debug)]
pub struct Spans {
    spans: [(u16, u16); SPANS_MAX],
    len: usize,
}

impl Default for Spans {
    fn default() -> Self {
        Self { spans: [(0, 0); SPANS_MAX], len: 0 }
    }
}

impl Spans {
    /// Adds bytes `start..end`, which are not none, unless one of them is there.
    pub fn add(&mut self, start: u16, end: u16) -> Fit {
        debug_assert!(start < end, "a span has bytes");
        let spans = &self.spans[..self.len];
        // The first that ends at or behind our start: everything before lies apart from us.
        let at = spans.partition_point(|span| span.1 < start);
        let joins_left = spans.get(at).is_some_and(|span| span.1 == start);
        let right = at + usize::from(joins_left);
        if let Some(&(from, to)) = spans.get(right)
            && from < end
        {
            return if from <= start && end <= to { Fit::Inside } else { Fit::Overlaps };
        }
        let joins_right = spans.get(right).is_some_and(|span| span.0 == end);
        match (joins_left, joins_right) {
            (true, true) => {
                self.spans[at].1 = self.spans[right].1;
                self.spans.copy_within(right + 1..self.len, right);
                self.len -= 1;
            }
            (true, false) => self.spans[at].1 = end,
            (false, true) => self.spans[at].0 = start,
            (false, false) => {
                if self.len == SPANS_MAX {
                    return Fit::TooMany;
                }
                self.spans.copy_within(at..self.len, at + 1);
                self.spans[at] = (start, end);
                self.len += 1;
            }
        }
        Fit::Added
    }

    /// Whether bytes `0..total` have all arrived, and no others.
    pub fn is_whole(&self, total: u16) -> bool {
        self.spans[..self.len] == [(0, total)]
    }

    /// Behind the last byte that has arrived.
    pub fn end(&self) -> u16 {
        self.spans[..self.len].last().map_or(0, |span| span.1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spans_that_lie_apart_are_bounded_and_closing_a_gap_makes_room() {
        let mut spans = Spans::default();
        for n in 0..u16::try_from(SPANS_MAX).unwrap() {
            assert_eq!(spans.add(n * 16, n * 16 + 8), Fit::Added);
        }
        assert_eq!(spans.add(16 * 64, 16 * 64 + 8), Fit::TooMany);
        assert_eq!(spans.add(8, 16), Fit::Added);
        assert_eq!(spans.add(16 * 64, 16 * 64 + 8), Fit::Added);
        assert_eq!(spans.end(), 16 * 64 + 8);
    }

    proptest! {
        #[test]
        fn they_agree_with_a_map_of_every_byte(
            pieces in proptest::collection::vec((0..60_u16, 1..12_u16), 1..60)
        ) {
            let mut spans = Spans::default();
            let mut map = [false; 80];
            for (start, len) in pieces {
                let range = usize::from(start)..usize::from(start + len);
                let there = map[range.clone()].iter().filter(|byte| **byte).count();
                let expected = match there {
                    0 => Fit::Added,
                    n if n == range.len() => Fit::Inside,
                    _ => Fit::Overlaps,
                };
                prop_assert_eq!(spans.add(start, start + len), expected);
                if expected == Fit::Added {
                    map[range].fill(true);
                }
                let end = map.iter().rposition(|byte| *byte).map_or(0, |at| at + 1);
                prop_assert_eq!(usize::from(spans.end()), end);
                let whole = map[..end].iter().all(|byte| *byte);
                prop_assert_eq!(spans.is_whole(spans.end()), whole);
            }
        }
    }
}
