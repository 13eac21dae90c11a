//! Whether refusals by the far host, or by routers on the way, mean that nobody is there any more.
//!
//! One refusal speaks of one datagram, and a host says so about once a second, however many it refuses. Left out: which
//! errors are refusals, which the sender knows.

/// So many in a row mean that nobody is there.
const STREAK_MAX: u32 = 64;
/// A silence as long ends a row: hosts refuse the same one once a second at least (icmp_ratelimit, icmp(7)).
const QUIET_NS: u64 = 2_000_000_000;

/// Refusals so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnreachableStreak {
    count: u32,
    last_ns: u64,
}

impl UnreachableStreak {
    /// Notes one; whether nobody is there.
    pub(super) const fn record(&mut self, now_ns: u64) -> bool {
        let is_of_row = now_ns.saturating_sub(self.last_ns) < QUIET_NS;
        self.count = if is_of_row { self.count.saturating_add(1) } else { 1 };
        self.last_ns = now_ns;
        self.count >= STREAK_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_now_and_then_are_never_too_many_and_a_row_is() {
        const SECOND: u64 = 1_000_000_000;
        let mut refusals = UnreachableStreak::default();
        // Ten at a time, every ten seconds of two hours.
        for number in 0..7_200_u64 {
            let now_ns = (number / 10) * 10 * SECOND + (number % 10) * 1_000;
            assert!(!refusals.record(now_ns), "after {number}");
        }
        let mut in_a_row = |every_ns: u64| {
            (0..100).position(|number| refusals.record(90_000 * SECOND + number * every_ns))
        };
        assert_eq!(in_a_row(SECOND), Some(63));
        assert_eq!(in_a_row(0), Some(0), "the same row");
    }
}
