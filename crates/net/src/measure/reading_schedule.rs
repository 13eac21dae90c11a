//! When one side of a test reads everything, when it looks whether the test is to end, and when it cuts what is left.
//!
//! Pure: moments of the steady clock in, moments out. Every number may be the client's choice, so all sums saturate.

use super::test_spec::{OVERRUN_NS, TestSpec};

/// Longest time between two looks at whether a test is to end.
pub(crate) const CHECK_INTERVAL_NS: u64 = 250_000_000;

/// The moments of one side of a test that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadingSchedule {
    began_ns: u64,
    interval_ns: u64,
    /// The beginning and the end of what counts, since the beginning of the test; both are read whatever the interval.
    edges_ns: [u64; 2],
    deadline_ns: u64,
    due_ns: u64,
}

impl ReadingSchedule {
    /// Of a test that began then; the first reading is due at once.
    pub(crate) fn new(spec: &TestSpec, began_ns: u64) -> Self {
        Self {
            began_ns,
            interval_ns: spec.interval_ns.max(1),
            edges_ns: [spec.warm_up_ns, spec.planned_ns()],
            deadline_ns: began_ns.saturating_add(cut_after_ns(spec)),
            due_ns: began_ns,
        }
    }

    /// Whether everything is to be read now.
    pub(crate) const fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    /// Everything was read now: when it is to be read next.
    pub(crate) fn on_reading(&mut self, now_ns: u64) {
        let at_ns = now_ns.saturating_sub(self.began_ns);
        let next_ns = (at_ns / self.interval_ns + 1).saturating_mul(self.interval_ns);
        let edge_ns = self.edges_ns.into_iter().filter(|&edge| edge > at_ns).min();
        self.due_ns = self.began_ns.saturating_add(next_ns.min(edge_ns.unwrap_or(u64::MAX)));
    }

    /// Whether what has not ended by itself is to be cut.
    pub(crate) const fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.deadline_ns
    }

    /// When to look again.
    pub(crate) fn wake_ns(&self, now_ns: u64) -> u64 {
        let cut_ns = if self.is_over(now_ns) { u64::MAX } else { self.deadline_ns };
        self.due_ns.min(cut_ns).min(now_ns.saturating_add(CHECK_INTERVAL_NS))
    }
}

/// From the beginning of a test to when everything is cut.
pub(crate) const fn cut_after_ns(spec: &TestSpec) -> u64 {
    spec.planned_ns().saturating_add(OVERRUN_NS).saturating_add(spec.drain_ns)
}
