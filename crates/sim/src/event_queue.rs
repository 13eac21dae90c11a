//! Whose turn is next: a tournament tree with one leaf an entity, its next moment (Knuth, The Art of Computer Programming 3, §5.4.1).
//!
//! Entities are links, hosts and sources, by number; of those that are due at the same moment the lowest comes first, so that an order
//! never depends on when an entry was made. When a moment changes, the matches between its leaf and the root are replayed, until one
//! has the same winner as before. Where these are is known beforehand, so that no match is waited for to find the next.

use std::hint::select_unpredictable;

use plumb_base::time::{Instant, Span};

/// An entity and its next moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DueEntity {
    at: Instant,
    entity: u32,
}

/// The next moments of entities.
#[derive(Clone, Debug)]
pub struct EventQueue {
    /// The root at 1, the children of `n` at 2n and 2n + 1, the leaves last.
    nodes: Vec<DueEntity>,
}

impl EventQueue {
    /// For entities below `count`, none of which waits for anything.
    pub fn new(count: usize) -> Self {
        let leaves = count.next_power_of_two();
        let never = DueEntity { at: Instant::NEVER, entity: 0 };
        let mut nodes = vec![never; 2 * leaves];
        for (leaf, entity) in nodes[leaves..].iter_mut().zip(0..) {
            leaf.entity = entity;
        }
        Self { nodes }
    }

    /// The first moment, and whose it is; [`Instant::NEVER`] where none waits for anything.
    #[inline]
    pub fn first(&self) -> (Instant, u32) {
        (self.nodes[1].at, self.nodes[1].entity)
    }

    /// An entity's next moment is `at`; [`Instant::NEVER`] when it waits for nothing.
    #[inline]
    pub fn set(&mut self, entity: u32, at: Instant) {
        let place = self.nodes.len() / 2 + entity as usize;
        if self.nodes[place].at != at {
            self.play(place, DueEntity { at, entity });
        }
    }

    /// The same if it is earlier than what was set. One that is not is found to be early at that moment, which is seldom: deadlines are put
    /// off again and again.
    #[inline]
    pub fn set_earlier(&mut self, entity: u32, at: Instant) {
        let place = self.nodes.len() / 2 + entity as usize;
        if at < self.nodes[place].at {
            self.play(place, DueEntity { at, entity });
        }
    }

    /// Replays the matches above `place`, where `winner` is now.
    fn play(&mut self, mut place: usize, mut winner: DueEntity) {
        self.nodes[place] = winner;
        while place > 1 {
            let other = self.nodes[place ^ 1];
            // Of equals the left one wins, whose number is lower: the right one counts as a picosecond later.
            let is_other = other.at < winner.at + Span::from_ps((place & 1) as u64);
            winner = DueEntity {
                at: select_unpredictable(is_other, other.at, winner.at),
                entity: select_unpredictable(is_other, other.entity, winner.entity),
            };
            place /= 2;
            if self.nodes[place] == winner {
                return;
            }
            self.nodes[place] = winner;
        }
    }
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
                let first = Some(queue.first()).filter(|(at, _)| *at < Instant::NEVER);
                prop_assert_eq!(first, least);
            }
        }
    }
}
