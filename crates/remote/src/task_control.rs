//! When a test begins and whether it is to end: shared by all of its threads.
//!
//! Left out: who decides.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use plumb_clock::monotonic_ns;

/// How much later than the end of its connections the word may come that a test is to end.
const STOP_GRACE_NS: u64 = 2_000_000_000;

/// Begins and ends a test, and wakes whoever waits for either.
#[derive(Debug, Default)]
pub struct TestControl {
    /// When it began by the steady clock; 0 before.
    began_ns: AtomicU64,
    halted: AtomicBool,
    abandoned: AtomicBool,
    /// Whether a part has something to look at.
    is_notified: Mutex<bool>,
    condvar: Condvar,
}

impl TestControl {
    /// Begins the test now.
    pub fn begin(&self) {
        self.begin_at(monotonic_ns());
    }

    /// Begins the test at this moment of the steady clock.
    pub fn begin_at(&self, began_ns: u64) {
        self.began_ns.store(began_ns.max(1), Ordering::Release);
        self.notify();
    }

    /// When it began by the steady clock, if it has.
    pub fn began_ns(&self) -> Option<u64> {
        Some(self.began_ns.load(Ordering::Acquire)).filter(|&began| began > 0)
    }

    /// Ends the test, begun or not.
    pub fn halt(&self) {
        self.halted.store(true, Ordering::Release);
        self.notify();
    }

    /// Whether it is to end.
    #[inline]
    pub fn is_halted(&self) -> bool {
        self.halted.load(Ordering::Relaxed)
    }

    /// Notes that the client has lost its session.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Whether the client has lost its session.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// The same, for who looks at a flag.
    pub const fn stop_flag(&self) -> &AtomicBool {
        &self.halted
    }

    /// Wakes who waits.
    pub fn notify(&self) {
        *self.is_notified.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.condvar.notify_all();
    }

    /// Waits until something happens or the steady clock shows `until_ns`.
    pub fn wait_until(&self, until_ns: u64) {
        let mut rung = self.is_notified.lock().unwrap_or_else(PoisonError::into_inner);
        while !*rung {
            let left = until_ns.saturating_sub(monotonic_ns());
            if left == 0 {
                return;
            }
            rung = match self.condvar.wait_timeout(rung, Duration::from_nanos(left)) {
                Ok((rung, _)) => rung,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        *rung = false;
    }

    /// Whether whoever closed the connections of the test ended it on purpose. Who `is_told` of that by another
    /// waits for the word, as it may come after.
    pub fn is_stop_requested(&self, is_told: bool) -> bool {
        let until_ns = monotonic_ns() + if is_told { STOP_GRACE_NS } else { 0 };
        while !self.is_halted() && monotonic_ns() < until_ns {
            self.wait_until(until_ns);
        }
        self.is_halted()
    }

    /// Waits for the beginning until the steady clock shows `until_ns`; when it was, if it came.
    pub fn wait_for_begin(&self, until_ns: u64) -> Option<u64> {
        loop {
            if self.is_halted() {
                return None;
            }
            if let Some(began) = self.began_ns() {
                return Some(began);
            }
            if monotonic_ns() >= until_ns {
                return None;
            }
            self.wait_until(until_ns);
        }
    }
}
