//! The one timer structure of a host: exact arming and cancelling, and the next deadline.
//!
//! An indexed binary heap. Whoever needs time creates its timer once and then arms, moves and
//! cancels it in O(log n) without allocation; an idle host has none armed and so no deadline. Left
//! out: clocks, and what is done when a timer goes off.

use plumb_base::time::Instant;

/// The number of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId(u32);

/// Where a timer that is not armed stands in the heap.
const IDLE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot<K> {
    owner: Option<K>,
    position: u32,
}

/// Timers, each with an owner of type `K` that is named when it goes off.
#[derive(Debug)]
pub struct Timers<K> {
    slots: Vec<Slot<K>>,
    vacant: Vec<u32>,
    heap: Vec<(Instant, u32)>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self { slots: Vec::new(), vacant: Vec::new(), heap: Vec::new() }
    }
}

impl<K: Copy> Timers<K> {
    /// A timer of `owner`, not armed.
    pub fn create(&mut self, owner: K) -> TimerId {
        let slot = Slot { owner: Some(owner), position: IDLE };
        if let Some(index) = self.vacant.pop() {
            self.slots[index as usize] = slot;
            return TimerId(index);
        }
        let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 timers");
        self.slots.push(slot);
        TimerId(index)
    }

    /// Cancels a timer and forgets it; its number may be given out again.
    pub fn remove(&mut self, timer: TimerId) {
        self.cancel(timer);
        let slot = &mut self.slots[timer.0 as usize];
        debug_assert!(slot.owner.is_some(), "a timer is removed once");
        slot.owner = None;
        self.vacant.push(timer.0);
    }

    /// Lets a timer go off at `at`, and not when it would have before.
    pub fn arm(&mut self, timer: TimerId, at: Instant) {
        debug_assert!(self.slots[timer.0 as usize].owner.is_some(), "a timer that exists");
        let position = self.slots[timer.0 as usize].position;
        let index = if position == IDLE {
            self.heap.push((at, timer.0));
            self.heap.len() - 1
        } else {
            self.heap[position as usize].0 = at;
            position as usize
        };
        let index = self.rise(index);
        self.sink(index);
    }

    /// Keeps a timer from going off; nothing where it was not armed.
    pub fn cancel(&mut self, timer: TimerId) {
        let position = self.slots[timer.0 as usize].position;
        if position != IDLE {
            self.take(position as usize);
        }
    }

    /// When a timer will go off, if it is armed.
    pub fn armed(&self, timer: TimerId) -> Option<Instant> {
        let position = self.slots[timer.0 as usize].position;
        (position != IDLE).then(|| self.heap[position as usize].0)
    }

    /// When the first timer goes off.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        self.heap.first().map(|&(at, _)| at)
    }

    /// Disarms one timer that is due at `now` and names its owner; the earliest first.
    pub fn expire(&mut self, now: Instant) -> Option<K> {
        let &(at, index) = self.heap.first()?;
        if at > now {
            return None;
        }
        self.take(0);
        self.slots[index as usize].owner
    }

    fn take(&mut self, index: usize) {
        let (_, timer) = self.heap.swap_remove(index);
        self.slots[timer as usize].position = IDLE;
        if index < self.heap.len() {
            let index = self.rise(index);
            self.sink(index);
        }
    }

    fn place(&mut self, index: usize) {
        let position = u32::try_from(index).expect("fewer than 2^32 timers");
        self.slots[self.heap[index].1 as usize].position = position;
    }

    fn rise(&mut self, mut index: usize) -> usize {
        while index > 0 {
            let parent = (index - 1) / 2;
            if self.heap[parent] <= self.heap[index] {
                break;
            }
            self.heap.swap(parent, index);
            self.place(index);
            index = parent;
        }
        self.place(index);
        index
    }

    fn sink(&mut self, mut index: usize) {
        loop {
            let left = 2 * index + 1;
            let Some(mut child) = (left < self.heap.len()).then_some(left) else { break };
            if left + 1 < self.heap.len() && self.heap[left + 1] < self.heap[left] {
                child = left + 1;
            }
            if self.heap[index] <= self.heap[child] {
                break;
            }
            self.heap.swap(index, child);
            self.place(index);
            index = child;
        }
        self.place(index);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plumb_base::time::Span;
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ORIGIN + Span::from_ms(ms)
    }

    #[test]
    fn an_idle_set_of_timers_has_no_deadline() {
        let mut timers = Timers::default();
        let timer = timers.create("one");
        assert_eq!(timers.next(), None);
        timers.arm(timer, at(5));
        assert_eq!(timers.armed(timer), Some(at(5)));
        timers.cancel(timer);
        assert_eq!((timers.next(), timers.armed(timer)), (None, None));
        timers.remove(timer);
        assert_eq!(timers.create("two"), timer);
    }

    #[test]
    fn a_timer_goes_off_once_when_due_and_names_its_owner() {
        let mut timers = Timers::default();
        let timer = timers.create("one");
        timers.arm(timer, at(5));
        assert_eq!(timers.expire(at(4)), None);
        assert_eq!(timers.expire(at(5)), Some("one"));
        assert_eq!(timers.expire(at(9)), None);
    }

    proptest! {
        #[test]
        fn timers_go_off_as_a_sorted_list_would(
            steps in prop::collection::vec((0_u8..4, 0_usize..20, 0_u64..50), 1..200)
        ) {
            let mut timers = Timers::default();
            let ids: Vec<TimerId> = (0..20).map(|owner| timers.create(owner)).collect();
            let mut model: BTreeMap<usize, Instant> = BTreeMap::new();
            let mut now = Instant::ORIGIN;
            for (step, which, ms) in steps {
                match step {
                    0 | 1 => {
                        timers.arm(ids[which], now + Span::from_ms(ms));
                        model.insert(which, now + Span::from_ms(ms));
                    }
                    2 => {
                        timers.cancel(ids[which]);
                        model.remove(&which);
                    }
                    _ => {
                        now += Span::from_ms(ms);
                        while let Some(owner) = timers.expire(now) {
                            let due = model.remove(&owner);
                            prop_assert!(due.is_some_and(|due| due <= now));
                        }
                        prop_assert!(model.values().all(|&due| due > now));
                    }
                }
                prop_assert_eq!(timers.next(), model.values().min().copied());
                for (which, id) in ids.iter().enumerate() {
                    prop_assert_eq!(timers.armed(*id), model.get(&which).copied());
                }
            }
        }
    }
}
