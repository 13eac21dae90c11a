//! Whose turn is next: a heap with one entry an entity, its next moment.
//!
//! Entities are links, hosts and sources, by number; of those that are due at the same moment the lowest comes first, so that an order
//! never depends on when an entry was made. A moment that changes moves its entry.

use plumb_base::time::{Instant, Span};

/// Children of a node.
const ARITY: usize = 4;
/// The place of an entity that waits for nothing.
const ABSENT: u32 = u32::MAX;

/// The next moments of entities.
#[derive(Clone, Debug)]
pub struct EventQueue {
    /// Picoseconds above the entity in one number each: two are compared without a branch.
    heap: Vec<u128>,
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
        let first = *self.heap.first()?;
        Some((moment_of(first), entity_of(first)))
    }

    /// An entity's next moment is `at`; [`Instant::NEVER`] when it waits for nothing.
    #[inline]
    pub fn set(&mut self, entity: u32, at: Instant) {
        let place = self.places[entity as usize];
        if place == ABSENT {
            if at < Instant::NEVER {
                self.heap.push(entry_of(at, entity));
                self.rise(self.heap.len() - 1, entry_of(at, entity));
            }
            return;
        }
        let place = place as usize;
        let (before, entry) = (self.heap[place], entry_of(at, entity));
        if at == Instant::NEVER {
            self.remove(place, entity);
        } else if entry < before {
            self.rise(place, entry);
        } else if entry > before {
            self.sink(place, entry);
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
    fn rise(&mut self, mut place: usize, entry: u128) {
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
    fn sink(&mut self, mut place: usize, entry: u128) {
        loop {
            let first = place * ARITY + 1;
            let Some((least, child)) = self.least_of(first) else { break };
            if entry <= child {
                break;
            }
            self.put(place, child);
            place = least;
        }
        self.put(place, entry);
    }

    /// The least of the siblings from `first` on, and where it is.
    #[inline]
    fn least_of(&self, first: usize) -> Option<(usize, u128)> {
        let siblings = self.heap.get(first..)?;
        if let Some(&[a, b, c, d]) = siblings.first_chunk::<ARITY>() {
            let least = |one: (usize, u128), other: (usize, u128)| {
                if other.1 < one.1 { other } else { one }
            };
            let pairs = [least((first, a), (first + 1, b)), least((first + 2, c), (first + 3, d))];
            return Some(least(pairs[0], pairs[1]));
        }
        (first..).zip(siblings.iter().copied()).min_by_key(|(_, entry)| *entry)
    }

    #[inline]
    fn put(&mut self, place: usize, entry: u128) {
        self.heap[place] = entry;
        self.places[entity_of(entry) as usize] =
            u32::try_from(place).expect("fewer than 2^32 entities");
    }
}

#[inline]
fn entry_of(at: Instant, entity: u32) -> u128 {
    (u128::from(at.since_origin().as_ps()) << u32::BITS) | u128::from(entity)
}

#[inline]
fn moment_of(entry: u128) -> Instant {
    let ps = u64::try_from(entry >> u32::BITS).expect("a moment and an entity");
    Instant::after_origin(Span::from_ps(ps))
}

#[inline]
fn entity_of(entry: u128) -> u32 {
    u32::try_from(entry & u128::from(u32::MAX)).expect("masked")
}

#[cfg(test)]
mod tests {
    use super::*;
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
