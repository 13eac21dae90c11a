//! Whether anything of a test still gets through: a test whose control connection is lost goes on for as long as it
//! does. Datagrams that are only sent are no sign of that, for a client that has vanished takes them as well.
//!
//! Pure: the moment is an argument. Left out: ending it.

use plumb_base::time::{Instant, Span};

use super::live::Progress;
use super::spec::TestSpec;

/// How long nothing may move.
const PATIENCE: Span = Span::from_secs(3);

/// What has shown that the other side is there, and since when nothing more has.
#[derive(Clone, Copy, Debug)]
pub struct Standstill {
    shown: u64,
    since: Instant,
    patience: Span,
}

impl Standstill {
    /// Of a test that begins now.
    pub fn new(now: Instant, spec: &TestSpec) -> Self {
        // Progress is told of at every interval only.
        let patience = PATIENCE.max(Span::from_ns(spec.interval_ns) * 2);
        Self { shown: 0, since: now, patience }
    }

    /// Takes in how far the test is.
    pub fn note(&mut self, now: Instant, progress: &Progress) {
        if progress.shown > self.shown {
            (self.shown, self.since) = (progress.shown, now);
        }
    }

    /// Whether nothing has got through for so long that nothing will.
    pub fn has_lasted(&self, now: Instant) -> bool {
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
        let mut quick = Standstill::new(at(0), &spec(Span::from_ms(200)));
        let mut slow = Standstill::new(at(0), &spec(Span::from_secs(10)));
        for standstill in [&mut quick, &mut slow] {
            standstill.note(at(5), &Progress { shown: 7, ..Progress::default() });
            standstill.note(at(8), &Progress { shown: 7, ..Progress::default() });
            assert!(!standstill.has_lasted(at(8)));
        }
        assert!(quick.has_lasted(at(9)) && !slow.has_lasted(at(25)) && slow.has_lasted(at(26)));
    }
}
