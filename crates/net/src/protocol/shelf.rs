//! Reports that wait for a client that went away: by token, each until its deadline.
//!
//! Bounded in number and in bytes: beyond, the oldest go first. Left out: who asks for them.

use std::collections::BTreeMap;

use plumb_base::time::{Instant, Span};

use super::token::Token;
use crate::measure::report::TestReport;

/// Most reports that are kept.
pub const KEPT_MAX: usize = 64;

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
    report: Option<Box<TestReport>>,
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
    pub fn finish(&mut self, now: Instant, token: Token, report: TestReport, kept_for: Span) {
        self.expire(now);
        // A test whose place was given away has none any more.
        if let Some(kept) = self.kept.get_mut(&token) {
            *kept = Kept { until: now + kept_for, report: Some(Box::new(report)) };
        }
    }

    /// What is kept under a token.
    pub fn find(&mut self, now: Instant, token: Token) -> Found {
        self.expire(now);
        match self.kept.get(&token) {
            None => Found::Nothing,
            Some(Kept { report: None, .. }) => Found::Running,
            Some(Kept { report: Some(report), .. }) => Found::Report(report.clone()),
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
        shelf.finish(at(10), one, TestReport::default(), Span::from_secs(60));
        assert!(matches!(shelf.find(at(69), one), Found::Report(_)));
        assert!(matches!(shelf.find(at(69), one), Found::Report(_)));
        assert_eq!(shelf.find(at(70), one), Found::Nothing);
        assert_eq!(shelf.find(at(20), two), Found::Nothing);
        shelf.begin(at(80), one, at(100));
        shelf.forget(one);
        assert!(shelf.is_empty());
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
