//! Whether anything of a test still gets through: a test whose control connection is lost goes on for as long as it
//! does. Datagrams that are only sent are no sign of that, for a client that has vanished takes them as well.
//!
//! Pure: the moment is an argument. Left out: ending it.

use plumb_base::time::{Instant, Span};

use super::progress::TestProgress;
use super::test_spec::TestSpec;

/// How long nothing may move.
const STALL_TIMEOUT: Span = Span::from_secs(3);

/// What has shown that the other side is there, and since when nothing more has.
#[derive(Clone, Copy, Debug)]
pub struct StallDetector {
    peer_activity: u64,
    since: Instant,
    patience: Span,
}

impl StallDetector {
    /// Of a test that begins now.
    pub fn new(now: Instant, spec: &TestSpec) -> Self {
        // Progress is told of at every interval only.
        let patience = STALL_TIMEOUT.max(Span::from_ns(spec.interval_ns) * 2);
        Self { peer_activity: 0, since: now, patience }
    }

    /// Takes in how far the test is.
    pub fn observe(&mut self, now: Instant, progress: &TestProgress) {
        if progress.peer_activity > self.peer_activity {
            (self.peer_activity, self.since) = (progress.peer_activity, now);
        }
    }

    /// Whether nothing has got through for so long that nothing will.
    pub fn is_stalled(&self, now: Instant) -> bool {
        now > self.since + self.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(interval: Span) -> TestSpec {
        TestSpec {
            warm_up_ns: 0,
            duration_ns: 60_000_000_000,
            interval_ns: interval.as_ns(),
            drain_ns: 0,
            parts: Vec::new(),
        }
    }

    #[test]
    fn a_test_stands_still_when_nothing_moved_for_longer_than_two_of_its_intervals() {
        let at = |seconds| Instant::after_origin(Span::from_secs(seconds));
        let mut quick = StallDetector::new(at(0), &spec(Span::from_ms(200)));
        let mut slow = StallDetector::new(at(0), &spec(Span::from_secs(10)));
        for standstill in [&mut quick, &mut slow] {
            standstill
                .observe(at(5), &TestProgress { peer_activity: 7, ..TestProgress::default() });
            standstill
                .observe(at(8), &TestProgress { peer_activity: 7, ..TestProgress::default() });
            assert!(!standstill.is_stalled(at(8)));
        }
        assert!(quick.is_stalled(at(9)) && !slow.is_stalled(at(25)) && slow.is_stalled(at(26)));
    }
}
