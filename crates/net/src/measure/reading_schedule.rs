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
        // A rate over a small part of an interval would say more of when it was read than of the path.
        let part_ns = self.interval_ns / 4;
        let from_ns = at_ns.saturating_add(part_ns);
        let next_ns = (from_ns / self.interval_ns + 1).saturating_mul(self.interval_ns);
        let edge_ns = self.edges_ns.into_iter().filter(|&edge| edge > at_ns).min();
        let due_ns = match edge_ns {
            Some(edge) if edge <= next_ns.saturating_add(part_ns) => edge,
            _ => next_ns,
        };
        self.due_ns = self.began_ns.saturating_add(due_ns);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(warm_up_ns: u64, duration_ns: u64, late_ns: u64) -> Vec<u64> {
        let spec =
            TestSpec { warm_up_ns, duration_ns, interval_ns: 100, drain_ns: 0, parts: Vec::new() };
        let mut schedule = ReadingSchedule::new(&spec, 0);
        let mut read = Vec::new();
        while schedule.due_ns <= spec.planned_ns() {
            read.push(schedule.due_ns + late_ns);
            schedule.on_reading(schedule.due_ns + late_ns);
        }
        read
    }

    #[test]
    fn both_edges_are_read_and_no_interval_is_short() {
        assert_eq!(readings(202, 396, 0), [0, 100, 202, 300, 400, 500, 598]);
        assert_eq!(readings(190, 400, 0), [0, 100, 190, 300, 400, 500, 590]);
        assert_eq!(readings(150, 200, 0), [0, 100, 150, 200, 300, 350]);
        assert_eq!(readings(200, 300, 80), [80, 280, 480, 580]);
    }
}
