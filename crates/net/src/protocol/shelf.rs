//! Reports that wait for a client that went away: by token, each until its deadline.
//!
//! Bounded in number and in bytes: beyond, the oldest go first. Left out: who asks for them.

use std::collections::BTreeMap;

use plumb_base::time::{Instant, Span};

use super::token::Token;
use crate::measure::report::TestReport;

/// Most reports that are kept.
pub const KEPT_MAX: usize = 64;
/// Most bytes of all of them together, as they would be sent.
pub const KEPT_BYTES_MAX: usize = 128 << 20;

/// What is kept under a token.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// The report; it stays until the client says that it has it.
    Report(Box<TestReport>),
    /// The test is not over.
    Running,
    /// Nothing.
    Nothing,
}

#[derive(Clone, Debug)]
struct Kept {
    until: Instant,
    /// As it would be sent, which is the least that it takes.
    report: Option<Vec<u8>>,
}

/// The reports of one agent.
#[derive(Clone, Debug, Default)]
pub struct Shelf {
    kept: BTreeMap<Token, Kept>,
}

impl Shelf {
    /// Makes room for the report of a test that begins, which must have come by `until`.
    pub fn begin(&mut self, now: Instant, token: Token, until: Instant) {
        self.expire(now);
        while self.kept.len() >= KEPT_MAX {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.until);
            let Some(oldest) = oldest.map(|(token, _)| *token) else { break };
            self.kept.remove(&oldest);
        }
        self.kept.insert(token, Kept { until, report: None });
    }

    /// Keeps the report of a test for so long from now.
    pub fn finish(&mut self, now: Instant, token: Token, report: &TestReport, kept_for: Span) {
        self.expire(now);
        // A test whose place was given away has none any more.
        if let Some(kept) = self.kept.get_mut(&token) {
            let bytes = postcard::to_stdvec(report).expect("every report is plain data");
            *kept = Kept { until: now + kept_for, report: Some(bytes) };
        }
        while self.bytes() > KEPT_BYTES_MAX {
            let reports = self.kept.iter().filter(|(_, kept)| kept.report.is_some());
            let oldest = reports.min_by_key(|(_, kept)| kept.until).map(|(token, _)| *token);
            let Some(oldest) = oldest else { break };
            self.kept.remove(&oldest);
        }
    }

    /// Bytes of all reports that are kept.
    pub fn bytes(&self) -> usize {
        self.kept.values().filter_map(|kept| kept.report.as_ref()).map(Vec::len).sum()
    }

    /// What is kept under a token.
    pub fn find(&mut self, now: Instant, token: Token) -> Found {
        self.expire(now);
        match self.kept.get(&token) {
            None => Found::Nothing,
            Some(Kept { report: None, .. }) => Found::Running,
            Some(Kept { report: Some(bytes), .. }) => {
                let report = postcard::from_bytes(bytes).expect("it was written here");
                Found::Report(Box::new(report))
            }
        }
    }

    /// Forgets a test.
    pub fn forget(&mut self, token: Token) {
        self.kept.remove(&token);
    }

    /// How many are kept or awaited.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether nothing is kept or awaited.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    fn expire(&mut self, now: Instant) {
        self.kept.retain(|_, kept| now < kept.until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::report::Ended;

    fn at(secs: u64) -> Instant {
        Instant::after_origin(Span::from_secs(secs))
    }

    #[test]
    fn a_report_is_there_until_it_was_received_or_its_deadline() {
        let mut shelf = Shelf::default();
        let (one, two) = (Token([1; 16]), Token([2; 16]));
        shelf.begin(at(0), one, at(20));
        shelf.begin(at(0), two, at(20));
        assert_eq!(shelf.find(at(1), one), Found::Running);
        shelf.finish(at(10), one, &TestReport::default(), Span::from_secs(60));
        assert!(matches!(shelf.find(at(69), one), Found::Report(_)));
        assert!(matches!(shelf.find(at(69), one), Found::Report(_)));
        assert_eq!(shelf.find(at(70), one), Found::Nothing);
        assert_eq!(shelf.find(at(20), two), Found::Nothing);
        shelf.begin(at(80), one, at(100));
        shelf.forget(one);
        assert!(shelf.is_empty());
    }

    #[test]
    fn reports_beyond_the_bytes_that_are_kept_send_the_oldest_away() {
        let mut shelf = Shelf::default();
        let why = "x".repeat(KEPT_BYTES_MAX / 2 - 1_000);
        for n in 1..=3 {
            let token = Token([n; 16]);
            shelf.begin(at(0), token, at(20));
            let ended = Ended::Broken(why.clone());
            let report = TestReport { ended, ..TestReport::default() };
            shelf.finish(at(u64::from(n)), token, &report, Span::from_secs(60));
            assert!(shelf.bytes() <= KEPT_BYTES_MAX);
        }
        assert_eq!(shelf.find(at(4), Token([1; 16])), Found::Nothing);
        for kept in [2, 3] {
            assert!(matches!(shelf.find(at(4), Token([kept; 16])), Found::Report(_)));
        }
    }

    #[test]
    fn the_shelf_is_never_fuller_than_its_limit() {
        let mut shelf = Shelf::default();
        for n in 0..=u8::MAX {
            shelf.begin(at(0), Token([n; 16]), at(100 + u64::from(n)));
        }
        assert_eq!(shelf.len(), KEPT_MAX);
        assert_eq!(shelf.find(at(1), Token([255; 16])), Found::Running);
        assert_eq!(shelf.find(at(1), Token([0; 16])), Found::Nothing);
    }
}
