//! The timers of a host, an indexed binary heap, and the token bucket that limits what it answers.
//!
//! A timer is created once and then armed, moved and cancelled in O(log n) without allocation.

use plumb_base::time::Instant;

/// The number of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId(u32);

/// Where a timer that is not armed stands in the heap.
const IDLE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct TimerSlot<K> {
    owner: Option<K>,
    position: u32,
}

/// Timers, each with an owner of type `K` that is named when it expires.
#[derive(Debug)]
pub struct TimerHeap<K> {
    slots: Vec<TimerSlot<K>>,
    vacant: Vec<u32>,
    heap: Vec<(Instant, u32)>,
}

impl<K> Default for TimerHeap<K> {
    fn default() -> Self {
        Self { slots: Vec::new(), vacant: Vec::new(), heap: Vec::new() }
    }
}

impl<K: Copy> TimerHeap<K> {
    /// A timer of `owner`, not armed.
    pub fn create(&mut self, owner: K) -> TimerId {
        let slot = TimerSlot { owner: Some(owner), position: IDLE };
        if let Some(index) = self.vacant.pop() {
            self.slots[index as usize] = slot;
            return TimerId(index);
        }
        let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 timers");
        self.slots.push(slot);
        TimerId(index)
    }

    /// Timers that exist.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Cancels a timer and forgets it; its number may be given out again.
    pub fn remove(&mut self, timer: TimerId) {
        self.cancel(timer);
        let slot = &mut self.slots[timer.0 as usize];
        debug_assert!(slot.owner.is_some(), "a timer is removed once");
        slot.owner = None;
        self.vacant.push(timer.0);
    }

    /// Lets a timer expire at `at`, and not when it would have before.
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
        let index = self.sift_up(index);
        self.sift_down(index);
    }

    /// Keeps a timer from going off; nothing where it was not armed.
    pub fn cancel(&mut self, timer: TimerId) {
        let position = self.slots[timer.0 as usize].position;
        if position != IDLE {
            self.take(position as usize);
        }
    }

    /// When a timer will expire, if it is armed.
    pub fn armed(&self, timer: TimerId) -> Option<Instant> {
        let position = self.slots[timer.0 as usize].position;
        (position != IDLE).then(|| self.heap[position as usize].0)
    }

    /// When the first timer expires.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        self.heap.first().map(|&(at, _)| at)
    }

    /// Disarms one timer that is due at `now` and names its owner; the earliest first.
    pub fn pop_due(&mut self, now: Instant) -> Option<K> {
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
            let index = self.sift_up(index);
            self.sift_down(index);
        }
    }

    fn place(&mut self, index: usize) {
        let position = u32::try_from(index).expect("fewer than 2^32 timers");
        self.slots[self.heap[index].1 as usize].position = position;
    }

    fn sift_up(&mut self, mut index: usize) -> usize {
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

    fn sift_down(&mut self, mut index: usize) {
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

/// A timer of a heap that is moved only when its deadline gets earlier: what expires too early is armed anew for what is due then, so
/// that a deadline which keeps moving away costs nothing.
#[derive(Debug)]
pub struct LazyTimer {
    timer: TimerId,
    /// When it expires; [`Instant::NEVER`] while it is not armed.
    armed: Instant,
}

impl LazyTimer {
    /// A timer of `owner`, not armed.
    pub fn new<K: Copy>(timers: &mut TimerHeap<K>, owner: K) -> Self {
        Self { timer: timers.create(owner), armed: Instant::NEVER }
    }

    /// Lets it expire at `deadline` or before.
    #[inline]
    pub fn ensure<K: Copy>(&mut self, timers: &mut TimerHeap<K>, deadline: Option<Instant>) {
        if let Some(deadline) = deadline
            && deadline < self.armed
        {
            self.armed = deadline;
            timers.arm(self.timer, deadline);
        }
    }

    /// It expired.
    #[inline]
    pub fn on_expired(&mut self) {
        self.armed = Instant::NEVER;
    }

    /// Gives it up.
    pub fn remove<K: Copy>(self, timers: &mut TimerHeap<K>) {
        timers.remove(self.timer);
    }
}

/// A token bucket: gains `rate` tokens a second, holds at most `burst` of them, and is full at the start.
///
/// Counts parts of a token in integers, so that nothing is lost to rounding however often it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    rate: u32,
    burst: u32,
    /// What was in it at `counted`; [`TOKEN`] parts are one token.
    parts: u128,
    counted: Instant,
}

/// Parts of a token: picoseconds a second, so that `rate` parts arrive in each picosecond.
const TOKEN: u128 = 1_000_000_000_000;

impl TokenBucket {
    /// A full bucket. A `burst` of zero refuses everything; a `rate` of zero never refills.
    pub fn new(rate: u32, burst: u32) -> Self {
        Self { rate, burst, parts: u128::from(burst) * TOKEN, counted: Instant::ORIGIN }
    }

    /// Takes a token, if there is one. A `now` earlier than the last one adds nothing.
    #[inline]
    pub fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        let Some(rest) = self.parts.checked_sub(TOKEN) else { return false };
        self.parts = rest;
        true
    }

    #[inline]
    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_since(self.counted).as_ps();
        self.counted = self.counted.max(now);
        let gained = u128::from(passed) * u128::from(self.rate);
        self.parts = (self.parts + gained).min(u128::from(self.burst) * TOKEN);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plumb_base::time::Span;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn heap_expires_timers_like_a_sorted_list(
            steps in prop::collection::vec((0_u8..4, 0_usize..20, 0_u64..50), 1..200)
        ) {
            let mut timers = TimerHeap::default();
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
                        while let Some(owner) = timers.pop_due(now) {
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

    fn at_ps(ps: u64) -> Instant {
        Instant::after_origin(Span::from_ps(ps))
    }

    #[test]
    fn full_bucket_passes_its_burst() {
        let mut bucket = TokenBucket::new(1_000, 50);
        assert_eq!((0..100).filter(|_| bucket.take(at_ps(5))).count(), 50);
    }

    #[test]
    fn rate_is_exact_whatever_the_polling() {
        // 7 a second, asked every 333,333,333 ps: no period of the asking divides a token.
        let mut bucket = TokenBucket::new(7, 1);
        let mut taken = 0_u64;
        let mut now = 0;
        while now < 1_000_000_000_000_000 {
            taken += u64::from(bucket.take(at_ps(now)));
            now += 333_333_333;
        }
        // Each token waits for the next question, at most 333 µs of its 143 ms, and none is lost.
        assert!((6_980..=7_001).contains(&taken), "{taken}");
        // Rounding must not eat parts: with a deep bucket exactly rate × time + burst get through.
        let mut deep = TokenBucket::new(7, 10_000);
        let mut step = 0;
        while step < 1_000_000_000_000 {
            deep.refill(at_ps(step));
            step += 999_999_937;
        }
        while deep.take(at_ps(0)) {}
        assert_eq!(deep.parts, 0);
        deep.refill(at_ps(10 * 1_000_000_000_000));
        let left = u128::from(10_000_000_000_000_u64 - (step - 999_999_937)) * 7;
        assert_eq!(deep.parts, left);
    }

    #[test]
    fn clock_going_back_adds_nothing() {
        let mut bucket = TokenBucket::new(u32::MAX, 1);
        assert!(bucket.take(at_ps(1_000_000)));
        assert!(!bucket.take(at_ps(0)));
        assert!(!bucket.take(at_ps(1_000_000)));
    }
}
