//! Reno (RFC 5681) and NewReno (RFC 6582), counting bytes (RFC 3465): a segment more each round trip, half after loss.

use plumb_base::time::Instant;

use super::hystart::SlowStart;
use super::{AckEvent, CongestionControl, CongestionSignal, CongestionWindow};

/// Additive increase, multiplicative decrease.
#[derive(Clone, Copy, Debug)]
pub struct Reno {
    slow_start: SlowStart,
    /// Bytes acknowledged since the window last grew by a segment.
    acked: u64,
    is_new_reno: bool,
}

impl Reno {
    /// Reno: the first acknowledgement of new data ends recovery; no HyStart++.
    pub const fn classic() -> Self {
        Self { slow_start: SlowStart::new(false), acked: 0, is_new_reno: false }
    }

    /// NewReno: partial acknowledgements do not end recovery.
    pub const fn new_reno(hystart: bool) -> Self {
        Self { slow_start: SlowStart::new(hystart), acked: 0, is_new_reno: true }
    }
}

/// Congestion avoidance: a segment for each window of bytes acknowledged (RFC 3465 §2.1). `counted` is kept between calls.
pub(super) fn additive_increase(window: &mut CongestionWindow, counted: &mut u64, acked: u64) {
    *counted += acked;
    while *counted >= window.cwnd {
        *counted -= window.cwnd;
        window.cwnd += u64::from(window.mss);
    }
}

/// The part of the window that was used. Limited transmit may have more in flight, which does not count (RFC 5681 §3.2); what
/// lacks less than a segment was used up.
pub(super) fn used_window(window: &CongestionWindow, flight: u64) -> u64 {
    if flight.saturating_add(u64::from(window.mss)) > window.cwnd { window.cwnd } else { flight }
}

/// Half of what was in flight, two segments at least (RFC 5681 eqn. 4).
pub(super) fn half_of_flight(window: &CongestionWindow, flight: u64) -> u64 {
    (used_window(window, flight) / 2).max(window.floor())
}

impl CongestionControl for Reno {
    fn name(&self) -> &'static str {
        if self.is_new_reno { "newreno" } else { "reno" }
    }

    fn on_ack(&mut self, window: &mut CongestionWindow, ack: &AckEvent) {
        let acked = self.slow_start.grow(window, ack);
        if ack.is_cwnd_limited && !window.in_slow_start() {
            additive_increase(window, &mut self.acked, acked);
        }
    }

    fn on_congestion(
        &mut self,
        window: &mut CongestionWindow,
        _now: Instant,
        flight: u64,
        _signal: CongestionSignal,
    ) {
        window.ssthresh = half_of_flight(window, flight);
        self.acked = 0;
    }

    fn on_timeout(
        &mut self,
        window: &mut CongestionWindow,
        _now: Instant,
        flight: u64,
        first: bool,
    ) {
        if first {
            window.ssthresh = half_of_flight(window, flight);
        }
        self.acked = 0;
        self.slow_start.on_timeout();
    }

    fn ends_recovery_at_once(&self) -> bool {
        !self.is_new_reno
    }
}

#[cfg(test)]
mod tests {
    use plumb_base::time::Span;

    use super::super::CongestionChoice;
    use super::super::bottleneck::{PathUnderTest, ack_of};
    use super::*;

    const MSS: u64 = 1_000;

    fn window(segments: u64, ssthresh: u64) -> CongestionWindow {
        CongestionWindow {
            cwnd: segments * MSS,
            ssthresh: ssthresh * MSS,
            mss: 1_000,
            initial: 10 * MSS,
        }
    }

    #[test]
    fn congestion_avoidance_adds_one_segment_a_round_trip() {
        for stretch in [1, 2, 5, 20] {
            let mut reno = Reno::classic();
            let mut window = window(20, 2);
            for round in 1..=5 {
                let mut left = window.cwnd;
                while left > 0 {
                    let acked = left.min(stretch * MSS);
                    reno.on_ack(&mut window, &ack_of(acked));
                    left -= acked;
                }
                assert_eq!(
                    window.cwnd,
                    (20 + round) * MSS,
                    "{stretch} segments an acknowledgement"
                );
            }
        }
    }

    #[test]
    fn a_window_that_the_application_leaves_unused_does_not_grow() {
        let mut reno = Reno::new_reno(true);
        let mut window = window(20, 2);
        for _ in 0..100 {
            reno.on_ack(&mut window, &AckEvent { is_cwnd_limited: false, ..ack_of(MSS) });
        }
        assert_eq!(window.cwnd, 20 * MSS);
    }

    #[test]
    fn loss_halves_what_was_in_flight_but_leaves_two_segments() {
        let mut reno = Reno::new_reno(true);
        let mut window = window(20, 1_000);
        reno.on_congestion(&mut window, Instant::ORIGIN, 16 * MSS, CongestionSignal::Loss);
        assert_eq!(window.ssthresh, 8 * MSS);
        reno.on_congestion(&mut window, Instant::ORIGIN, 22 * MSS, CongestionSignal::Mark);
        assert_eq!(window.ssthresh, 10 * MSS, "limited transmit does not count");
        window.cwnd = 20_800;
        reno.on_congestion(&mut window, Instant::ORIGIN, 20 * MSS, CongestionSignal::Loss);
        assert_eq!(window.ssthresh, 10_400, "the window was used up");
        reno.on_congestion(&mut window, Instant::ORIGIN, MSS, CongestionSignal::Loss);
        assert_eq!(window.ssthresh, 2 * MSS);
    }

    #[test]
    fn only_the_first_timeout_sets_the_threshold() {
        let mut reno = Reno::new_reno(true);
        let mut window = window(20, 1_000);
        reno.on_timeout(&mut window, Instant::ORIGIN, 20 * MSS, true);
        window.cwnd = MSS;
        reno.on_timeout(&mut window, Instant::ORIGIN, MSS, false);
        assert_eq!(window.ssthresh, 10 * MSS);
    }

    /// Mathis, Semke, Mahdavi and Ott 1997, with the round trip of recovery: a cycle has rounds of h, h, h + 1 … 2h segments,
    /// which for rare loss is their √(3/2) / √p.
    #[test]
    fn periodic_loss_gives_the_window_of_the_square_root_law() {
        for period in [400_u64, 2_500, 10_000] {
            let path = PathUnderTest { loss_period: Some(period), ..PathUnderTest::wide() };
            let outcome = path.run(CongestionChoice::NewReno, Span::from_secs(600));
            let segments = period as f64;
            let half = ((6.25 + 6.0 * segments).sqrt() - 2.5) / 3.0;
            let expected = segments / (half + 2.0);
            let ratio = outcome.segments_in_flight / expected;
            assert!(
                (0.96..1.04).contains(&ratio),
                "one in {period}: {ratio} of {expected} segments"
            );
        }
    }
}
