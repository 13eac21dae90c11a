//! Reports that wait for a client that went away: by token, each until its deadline.
//!
//! Bounded in number and in bytes: beyond, the oldest go first. Left out: who asks for them.

use std::collections::BTreeMap;

use plumb_base::time::{Instant, Span};

use super::token::TestToken;

/// Most reports that are kept.
pub const REPORTS_MAX: usize = 64;
/// Most bytes of all of them together, as they would be sent.
pub const REPORT_BYTES_MAX: usize = 128 << 20;

/// What is kept under a token.
#[derive(Clone, Debug, PartialEq)]
pub enum ReportLookup {
    /// The report; it stays until the client says that it has it.
    Report(Vec<u8>),
    /// The test is not over.
    Running,
    /// Nothing.
    Missing,
}

#[derive(Clone, Debug)]
struct CachedReport {
    until: Instant,
    /// As it would be sent, which is the least that it takes.
    report: Option<Vec<u8>>,
}

/// The reports of one agent.
#[derive(Clone, Debug, Default)]
pub struct ReportCache {
    reports: BTreeMap<TestToken, CachedReport>,
}

impl ReportCache {
    /// Makes room for the report of a test that begins, which must have come by `until`.
    pub fn begin(&mut self, now: Instant, token: TestToken, until: Instant) {
        self.expire(now);
        while self.reports.len() >= REPORTS_MAX {
            let oldest = self.reports.iter().min_by_key(|(_, kept)| kept.until);
            let Some(oldest) = oldest.map(|(token, _)| *token) else { break };
            self.reports.remove(&oldest);
        }
        self.reports.insert(token, CachedReport { until, report: None });
    }

    /// Keeps the report of a test for so long from now.
    pub fn finish(&mut self, now: Instant, token: TestToken, report: Vec<u8>, kept_for: Span) {
        self.expire(now);
        // A test whose place was given away has none any more.
        if let Some(kept) = self.reports.get_mut(&token) {
            *kept = CachedReport { until: now + kept_for, report: Some(report) };
        }
        while self.bytes() > REPORT_BYTES_MAX {
            let reports = self.reports.iter().filter(|(_, kept)| kept.report.is_some());
            let oldest = reports.min_by_key(|(_, kept)| kept.until).map(|(token, _)| *token);
            let Some(oldest) = oldest else { break };
            self.reports.remove(&oldest);
        }
    }

    /// Bytes of all reports that are kept.
    pub fn bytes(&self) -> usize {
        self.reports.values().filter_map(|kept| kept.report.as_ref()).map(Vec::len).sum()
    }

    /// What is kept under a token.
    pub fn find(&mut self, now: Instant, token: TestToken) -> ReportLookup {
        self.expire(now);
        match self.reports.get(&token) {
            None => ReportLookup::Missing,
            Some(CachedReport { report: None, .. }) => ReportLookup::Running,
            Some(CachedReport { report: Some(bytes), .. }) => ReportLookup::Report(bytes.clone()),
        }
    }

    /// Forgets a test.
    pub fn forget(&mut self, token: TestToken) {
        self.reports.remove(&token);
    }

    fn expire(&mut self, now: Instant) {
        self.reports.retain(|_, kept| now < kept.until);
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
        let mut cache = ReportCache::default();
        let (one, two) = (TestToken([1; 16]), TestToken([2; 16]));
        cache.begin(at(0), one, at(20));
        cache.begin(at(0), two, at(20));
        assert_eq!(cache.find(at(1), one), ReportLookup::Running);
        cache.finish(at(10), one, vec![1], Span::from_secs(60));
        assert!(matches!(cache.find(at(69), one), ReportLookup::Report(_)));
        assert!(matches!(cache.find(at(69), one), ReportLookup::Report(_)));
        assert_eq!(cache.find(at(70), one), ReportLookup::Missing);
        assert_eq!(cache.find(at(20), two), ReportLookup::Missing);
        cache.begin(at(80), one, at(100));
        cache.forget(one);
        assert!(cache.reports.is_empty());
    }

    #[test]
    fn reports_beyond_the_bytes_that_are_kept_send_the_oldest_away() {
        let mut cache = ReportCache::default();
        for n in 1..=3 {
            let token = TestToken([n; 16]);
            cache.begin(at(0), token, at(20));
            let report = vec![0; REPORT_BYTES_MAX / 2 - 1_000];
            cache.finish(at(u64::from(n)), token, report, Span::from_secs(60));
            assert!(cache.bytes() <= REPORT_BYTES_MAX);
        }
        assert_eq!(cache.find(at(4), TestToken([1; 16])), ReportLookup::Missing);
        for kept in [2, 3] {
            assert!(matches!(cache.find(at(4), TestToken([kept; 16])), ReportLookup::Report(_)));
        }
    }

    #[test]
    fn the_cache_stays_within_its_limit() {
        let mut cache = ReportCache::default();
        for n in 0..=u8::MAX {
            cache.begin(at(0), TestToken([n; 16]), at(100 + u64::from(n)));
        }
        assert_eq!(cache.reports.len(), REPORTS_MAX);
        assert_eq!(cache.find(at(1), TestToken([255; 16])), ReportLookup::Running);
        assert_eq!(cache.find(at(1), TestToken([0; 16])), ReportLookup::Missing);
    }
}
