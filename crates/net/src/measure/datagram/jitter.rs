//! Interarrival jitter as RFC 3550 §6.4.1 defines it, in nanoseconds.
//!
//! Left out: what its smoothing hides, for which there is the whole distribution ([`super::transit`]).

/// The running estimate: a sixteenth of each new difference of transit times.
#[derive(Clone, Copy, Debug, Default)]
pub struct InterarrivalJitter {
    estimate_ns: f64,
    transit_ns: Option<i64>,
}

impl InterarrivalJitter {
    /// Enters a datagram by how long it took: arrival less departure, by whatever clocks.
    ///
    /// The first has nothing to differ from, and changes nothing.
    #[inline]
    pub fn record(&mut self, transit_ns: i64) {
        if let Some(before) = self.transit_ns.replace(transit_ns) {
            let difference = transit_ns.wrapping_sub(before).unsigned_abs() as f64;
            self.estimate_ns += (difference - self.estimate_ns) / 16.0;
        }
    }

    /// The estimate.
    pub const fn estimate_ns(self) -> f64 {
        self.estimate_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_transit_has_no_jitter_whatever_the_clocks_are_apart() {
        let mut jitter = InterarrivalJitter::default();
        (0..100).for_each(|_| jitter.record(-7_000_000_000));
        assert!(jitter.estimate_ns().abs() < 1e-9);
    }

    #[test]
    fn an_alternating_transit_comes_to_its_difference_by_sixteenths() {
        let mut jitter = InterarrivalJitter::default();
        jitter.record(0);
        jitter.record(1600);
        assert!((jitter.estimate_ns() - 100.0).abs() < 1e-9);
        (0..500).for_each(|i| jitter.record(if i % 2 == 0 { 0 } else { 1600 }));
        assert!((jitter.estimate_ns() - 1600.0).abs() < 1.0, "{}", jitter.estimate_ns());
    }
}
