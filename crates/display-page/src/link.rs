//! A slower way to the display, for the page's own connection: bytes leave one after the other at a rate and arrive later.

use std::time::Duration;

use serde::Deserialize;

/// Longest delay each way.
const DELAY_MAX_NS: u64 = 2_000_000_000;
/// Slowest rate, in bits a second.
const RATE_MIN: f64 = 1_200.0;

/// What the page asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageLink {
    /// Milliseconds each way.
    delay_ms: f64,
    /// Bits a second each way; none is as fast as it goes.
    rate: Option<f64>,
}

/// One direction, by the steady clock.
#[derive(Debug, Default)]
pub(crate) struct LinkDirection {
    free_ns: u64,
    last_ns: u64,
}

impl LinkDirection {
    /// When so many bytes that are sent now arrive, after all that were sent before.
    pub(crate) fn arrival_ns(&mut self, link: PageLink, now_ns: u64, bytes: usize) -> u64 {
        let sending = link.rate.map_or(0.0, |rate| bytes as f64 * 8.0 / rate.max(RATE_MIN));
        self.free_ns = self.free_ns.max(now_ns).saturating_add(nanoseconds(sending));
        let delay_ns = nanoseconds(link.delay_ms / 1e3).min(DELAY_MAX_NS);
        self.last_ns = self.last_ns.max(self.free_ns.saturating_add(delay_ns));
        self.last_ns
    }
}

/// Of seconds; none of what is no time.
fn nanoseconds(seconds: f64) -> u64 {
    let span = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn bytes_take_their_time_and_keep_their_order() {
        let mut link = LinkDirection::default();
        let slow = PageLink { delay_ms: 50.0, rate: Some(8_000.0) };
        // A thousand bytes a second.
        assert_eq!(link.arrival_ns(slow, 0, 1_000), 1_050 * MS);
        assert_eq!(link.arrival_ns(slow, 0, 500), 1_550 * MS);
        // What is sent over a faster link does not overtake.
        let fast = PageLink::default();
        assert_eq!(link.arrival_ns(fast, 0, 500), 1_550 * MS);
        assert_eq!(link.arrival_ns(fast, 2_000 * MS, 500), 2_000 * MS);
    }

    #[test]
    fn settings_without_meaning_do_no_harm() {
        for (delay_ms, rate) in [(f64::NAN, Some(f64::NAN)), (-1.0, Some(-1.0)), (1e300, None)] {
            let mut link = LinkDirection::default();
            assert!(link.arrival_ns(PageLink { delay_ms, rate }, 0, 100) <= 2 * DELAY_MAX_NS);
        }
    }
}
