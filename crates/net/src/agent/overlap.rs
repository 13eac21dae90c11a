//! Which tests ran at the same time: recorded when they end, because no one test knows of another.
//!
//! A test is noted when it ends, and looks for those that ended before it and for those that still run. Left out:
//! what that did to their results.

use crate::measure::report::Overlap;

/// The times of tests, as far as they may still matter.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    /// When each that runs began; several may begin at once.
    running: Vec<u64>,
    /// Beginning and end of those that are over.
    over: Vec<(u64, u64)>,
}

impl Ledger {
    /// Notes that a test has begun.
    pub(super) fn open(&mut self, began_ns: u64) {
        self.running.push(began_ns);
    }

    /// Notes that a test has ended, and says with which others it overlapped: these of other agents among them.
    pub(super) fn close(
        &mut self,
        began_ns: u64,
        ended_ns: u64,
        elsewhere: &[(u64, u64)],
    ) -> Overlap {
        if let Some(place) = self.running.iter().position(|&began| began == began_ns) {
            self.running.swap_remove(place);
        }
        let running = self.running.iter().map(|&began| (began, ended_ns));
        let mut others: Vec<(u64, u64)> = self
            .over
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
        self.over.push((began_ns, ended_ns));
        let earliest = self.running.iter().copied().min().unwrap_or(u64::MAX);
        self.over.retain(|&(_, to)| to > earliest);
        Overlap { tests: u32::try_from(others.len()).unwrap_or(u32::MAX), during_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_shared_with_others_counts_once_however_many_there_are() {
        let mut ledger = Ledger::default();
        for began in [0, 40, 50] {
            ledger.open(began);
        }
        assert_eq!(ledger.close(40, 60, &[]), Overlap { tests: 2, during_ns: 20 });
        assert_eq!(ledger.close(50, 90, &[]), Overlap { tests: 2, during_ns: 40 });
        assert_eq!(ledger.close(0, 100, &[]), Overlap { tests: 2, during_ns: 50 });
        assert!(ledger.running.is_empty() && ledger.over.is_empty());
    }

    #[test]
    fn a_test_alone_overlaps_with_nothing() {
        let mut ledger = Ledger::default();
        ledger.open(5);
        assert_eq!(ledger.close(5, 10, &[]), Overlap::default());
        ledger.open(11);
        assert_eq!(ledger.close(11, 20, &[]), Overlap::default());
    }

    #[test]
    fn tests_of_other_agents_count_as_far_as_they_ran_beside_it() {
        let mut ledger = Ledger::default();
        ledger.open(10);
        let elsewhere = [(0, 5), (0, 15), (12, 20), (30, 99)];
        assert_eq!(ledger.close(10, 40, &elsewhere), Overlap { tests: 3, during_ns: 20 });
    }
}
