//! Which tests ran at the same time: recorded when they end, because no one test knows of another.
//!
//! A test is noted when it ends, and looks for those that ended before it and for those that still run. Left out:
//! what that did to their results.

use serde::{Deserialize, Serialize};

/// Other tests that the agent ran at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestOverlap {
    /// How many there were.
    pub tests: u32,
    /// Time during which there was at least one.
    pub during_ns: u64,
}

/// The times of tests, as far as they may still matter.
#[derive(Clone, Debug, Default)]
pub(super) struct OverlapTracker {
    /// When each that runs began; several may begin at once.
    running: Vec<u64>,
    /// Beginning and end of those that are over.
    finished: Vec<(u64, u64)>,
}

impl OverlapTracker {
    /// Notes that a test has begun.
    pub(super) fn begin(&mut self, began_ns: u64) {
        self.running.push(began_ns);
    }

    /// Notes that a test has ended, and says with which others it overlapped: these of other agents among them.
    pub(super) fn finish(
        &mut self,
        began_ns: u64,
        ended_ns: u64,
        elsewhere: &[(u64, u64)],
    ) -> TestOverlap {
        if let Some(place) = self.running.iter().position(|&began| began == began_ns) {
            self.running.swap_remove(place);
        }
        let running = self.running.iter().map(|&began| (began, ended_ns));
        let mut others: Vec<(u64, u64)> = self
            .finished
            .iter()
            .copied()
            .chain(running)
            .chain(elsewhere.iter().copied())
            .map(|(from, to)| (from.max(began_ns), to.min(ended_ns)))
            .filter(|(from, to)| from < to)
            .collect();
        others.sort_unstable();
        let (mut during_ns, mut covered) = (0, began_ns);
        for &(from, to) in &others {
            during_ns += to.saturating_sub(from.max(covered));
            covered = covered.max(to);
        }
        self.finished.push((began_ns, ended_ns));
        let earliest = self.running.iter().copied().min().unwrap_or(u64::MAX);
        self.finished.retain(|&(_, to)| to > earliest);
        TestOverlap { tests: u32::try_from(others.len()).unwrap_or(u32::MAX), during_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_shared_with_others_counts_once_however_many_there_are() {
        let mut ledger = OverlapTracker::default();
        for began in [0, 40, 50] {
            ledger.begin(began);
        }
        assert_eq!(ledger.finish(40, 60, &[]), TestOverlap { tests: 2, during_ns: 20 });
        assert_eq!(ledger.finish(50, 90, &[]), TestOverlap { tests: 2, during_ns: 40 });
        assert_eq!(ledger.finish(0, 100, &[]), TestOverlap { tests: 2, during_ns: 50 });
        assert!(ledger.running.is_empty() && ledger.finished.is_empty());
    }

    #[test]
    fn a_test_alone_overlaps_with_nothing() {
        let mut ledger = OverlapTracker::default();
        ledger.begin(5);
        assert_eq!(ledger.finish(5, 10, &[]), TestOverlap::default());
        ledger.begin(11);
        assert_eq!(ledger.finish(11, 20, &[]), TestOverlap::default());
    }

    #[test]
    fn tests_of_other_agents_count_as_far_as_they_ran_beside_it() {
        let mut ledger = OverlapTracker::default();
        ledger.begin(10);
        let elsewhere = [(0, 5), (0, 15), (12, 20), (30, 99)];
        assert_eq!(ledger.finish(10, 40, &elsewhere), TestOverlap { tests: 3, during_ns: 20 });
    }
}
