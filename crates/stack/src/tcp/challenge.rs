//! The limit of challenge acknowledgements (RFC 5961 §7), which an observer cannot count.

use plumb_base::seed::{RandomStream, Seed};
use plumb_base::time::{Instant, Span};
use rand::Rng;

/// How many more may be sent until when.
#[derive(Debug)]
pub(super) struct ChallengeLimit {
    left: u32,
    until: Instant,
    random: RandomStream,
}

impl ChallengeLimit {
    pub fn new(seed: Seed) -> Self {
        Self { left: 0, until: Instant::ORIGIN, random: seed.stream("challenge acknowledgements") }
    }

    /// Whether one may be sent now, of `rate` a second on average. How many they are in one second is random, between half and one and a
    /// half times as many: a fixed number tells an attacker whether somebody else's connection used some of it (CVE-2016-5696).
    pub fn take(&mut self, now: Instant, rate: u32) -> bool {
        if now >= self.until {
            self.until = now + Span::from_secs(1);
            let drawn = (u64::from(self.random.next_u32()) * (u64::from(rate) + 1)) >> 32;
            self.left = rate / 2 + u32::try_from(drawn).expect("at most the rate");
        }
        let may = self.left > 0;
        self.left -= u32::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn challenges_a_second_are_random_around_their_rate() {
        let mut limit = ChallengeLimit::new(Seed(1));
        let mut seen = BTreeSet::new();
        let mut sum = 0;
        for second in 1..=400 {
            let at = Instant::ORIGIN + Span::from_secs(second);
            let sent = (0..1_000).filter(|_| limit.take(at, 100)).count();
            assert!((50..=150).contains(&sent), "{sent}");
            seen.insert(sent);
            sum += sent;
        }
        assert!(seen.len() > 60, "{seen:?}");
        assert!((38_000..42_000).contains(&sum), "{sum}");
        assert!(!ChallengeLimit::new(Seed(1)).take(Instant::ORIGIN, 0));
    }
}
