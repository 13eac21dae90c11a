//! Whose turn is next: a heap with one entry an entity, its next moment.
//!
//! Entities are links, hosts and sources, by number; of those that are due at the same moment the lowest comes first, so that an order
//! never depends on when an entry was made. A moment that changes moves its entry.

use plumb_base::time::Instant;

/// Children of a node.
const ARITY: usize = 4;
/// The place of an entity that waits for nothing.
const ABSENT: u32 = u32::MAX;

/// The next moments of entities.
#[derive(Clone, Debug)]
pub struct EventQueue {
    /// By time, then by entity.
    heap: Vec<(Instant, u32)>,
    places: Vec<u32>,
}

impl EventQueue {
    /// For entities below `count`, none of which waits for anything.
    pub fn new(count: usize) -> Self {
        Self { heap: Vec::with_capacity(count), places: vec![ABSENT; count] }
    }

    /// The first moment, and whose it is.
    #[inline]
    pub fn first(&self) -> Option<(Instant, u32)> {
        self.heap.first().copied()
    }

    /// An entity's next moment is `at`; [`Instant::NEVER`] when it waits for nothing.
    #[inline]
    pub fn set(&mut self, entity: u32, at: Instant) {
        let place = self.places[entity as usize];
        if place == ABSENT {
            if at < Instant::NEVER {
                self.heap.push((at, entity));
                self.rise(self.heap.len() - 1, (at, entity));
            }
            return;
        }
        let place = place as usize;
        let before = self.heap[place].0;
        if at == Instant::NEVER {
            self.remove(place, entity);
        } else if at < before {
            self.rise(place, (at, entity));
        } else if at > before {
            self.sink(place, (at, entity));
        }
    }

    fn remove(&mut self, place: usize, entity: u32) {
        self.places[entity as usize] = ABSENT;
        let Some(last) = self.heap.pop() else { return };
        if place < self.heap.len() {
            if place > 0 && last < self.heap[(place - 1) / ARITY] {
                self.rise(place, last);
            } else {
                self.sink(place, last);
            }
        }
    }

    /// Puts an entry at `place` or above.
    fn rise(&mut self, mut place: usize, entry: (Instant, u32)) {
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.heap[parent] <= entry {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    /// Puts an entry at `place` or below.
    fn sink(&mut self, mut place: usize, entry: (Instant, u32)) {
        loop {
            let first = place * ARITY + 1;
            let children = first.min(self.heap.len())..(first + ARITY).min(self.heap.len());
            let Some(least) = children.min_by_key(|child| self.heap[*child]) else { break };
            if entry <= self.heap[least] {
                break;
            }
            self.put(place, self.heap[least]);
            place = least;
        }
        self.put(place, entry);
    }

    #[inline]
    fn put(&mut self, place: usize, entry: (Instant, u32)) {
        self.heap[place] = entry;
        self.places[entry.1 as usize] = u32::try_from(place).expect("fewer than 2^32 entities");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plumb_base::time::Span;
    use proptest::prelude::*;

    fn at(ps: u64) -> Instant {
        if ps == 0 { Instant::NEVER } else { Instant::after_origin(Span::from_ps(ps)) }
    }

    proptest! {
        #[test]
        fn the_first_is_the_least_of_time_and_entity(
            changes in prop::collection::vec((0_u32..40, 0_u64..30), 1..300),
        ) {
            let mut queue = EventQueue::new(40);
            let mut moments = [Instant::NEVER; 40];
            for (entity, ps) in changes {
                queue.set(entity, at(ps));
                moments[entity as usize] = at(ps);
                let waiting = (0..).zip(moments).filter(|(_, at)| *at < Instant::NEVER);
                let least = waiting.map(|(entity, at)| (at, entity)).min();
                prop_assert_eq!(queue.first(), least);
            }
        }
    }
}
