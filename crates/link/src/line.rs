//! Frames on their way, each due at a moment: a wire's length, or what a fault holds back.
//!
//! A ring where frames come due in the order in which they were put in, which costs nothing; a heap beside it
//! for the ones that overtake. Left out: when a frame is due.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use plumb_base::time::Instant;

use crate::frame::Frame;

/// Frames by the moment at which they are due; of the same moment, the one that came first.
#[derive(Debug, Default)]
pub(crate) struct Line {
    ring: VecDeque<Entry>,
    heap: BinaryHeap<Reverse<Entry>>,
    number: u64,
}

#[derive(Debug)]
struct Entry {
    due: Instant,
    number: u64,
    frame: Frame,
}

impl Line {
    /// Puts a frame in.
    #[inline]
    pub fn push(&mut self, due: Instant, frame: Frame) {
        self.number += 1;
        let entry = Entry { due, number: self.number, frame };
        if self.ring.back().is_none_or(|last| last.due <= due) {
            self.ring.push_back(entry);
        } else {
            self.heap.push(Reverse(entry));
        }
    }

    /// When the first is due; [`Instant::NEVER`] when there is none.
    #[inline]
    pub fn due(&self) -> Instant {
        let ring = self.ring.front().map_or(Instant::NEVER, |entry| entry.due);
        if self.heap.is_empty() {
            return ring;
        }
        ring.min(self.heap.peek().map_or(Instant::NEVER, |entry| entry.0.due))
    }

    /// Takes out the first, if it is due at `now`.
    #[inline]
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, Frame)> {
        let ring = self.ring.front().map(Entry::key).filter(|(due, _)| *due <= now);
        let heap = if self.heap.is_empty() {
            None
        } else {
            self.heap.peek().map(|entry| entry.0.key()).filter(|(due, _)| *due <= now)
        };
        let entry = match (ring, heap) {
            (None, None) => return None,
            (Some(ring), Some(heap)) if heap < ring => self.heap.pop()?.0,
            (Some(_), _) => self.ring.pop_front()?,
            (None, Some(_)) => self.heap.pop()?.0,
        };
        Some((entry.due, entry.frame))
    }

    /// The frames in it.
    pub fn frames(&self) -> impl Iterator<Item = &Frame> {
        let heap = self.heap.iter().map(|entry| &entry.0.frame);
        self.ring.iter().map(|entry| &entry.frame).chain(heap)
    }
}

impl Entry {
    fn key(&self) -> (Instant, u64) {
        (self.due, self.number)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}
