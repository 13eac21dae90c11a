//! Vegas (Brakmo and Peterson 1995), as Linux's `tcp_vegas.c`: as many segments wait on the path as are allowed to.

use plumb_base::time::{Instant, Span};

use super::hystart::plain_slow_start;
use super::reno::{additive_increase, half_of_flight};
use super::{AckEvent, CongestionControl, CongestionSignal, CongestionWindow};

/// Fewer segments than this wait: the window grows by one each round trip.
const ALPHA: u64 = 2;
/// More wait: it shrinks by one.
const BETA: u64 = 4;
/// More wait in slow start: that ends.
const GAMMA: u64 = 1;
/// A round with no more samples is not judged: all of them may be of delayed acknowledgements.
const SAMPLES_MIN: u32 = 2;

/// No round-trip time yet.
const NO_RTT: Span = Span::from_ps(u64::MAX);

/// Keeps between two and four segments waiting.
#[derive(Clone, Copy, Debug)]
pub struct Vegas {
    /// Least round-trip time of the connection: that of an empty path.
    rtt_base: Span,
    /// Least one of this round, which no single delayed acknowledgement raises.
    rtt_round: Span,
    samples: u32,
    /// The round ends when this is acknowledged, as a count of bytes; `None`: it begins with the next acknowledgement.
    round_end: Option<u64>,
    /// Bytes counted where it grows as Reno.
    acked: u64,
}

impl Vegas {
    /// Vegas at its start.
    pub const fn new() -> Self {
        Self { rtt_base: NO_RTT, rtt_round: NO_RTT, samples: 0, round_end: None, acked: 0 }
    }

    fn begin_round(&mut self, end: Option<u64>) {
        self.rtt_round = NO_RTT;
        self.samples = 0;
        self.round_end = end;
    }

    /// Growth of Reno, where there is nothing to judge by.
    fn grow(&mut self, window: &mut CongestionWindow, ack: &AckEvent) {
        if ack.is_cwnd_limited {
            let left = plain_slow_start(window, ack.acked);
            if !window.in_slow_start() {
                additive_increase(window, &mut self.acked, left);
            }
        }
    }

    /// Once each round trip.
    fn judge(&self, window: &mut CongestionWindow, ack: &AckEvent) {
        let mss = u64::from(window.mss);
        let base = u128::from(self.rtt_base.as_ps()).max(1);
        let rtt = u128::from(self.rtt_round.as_ps()).max(base);
        let cwnd = u128::from(window.cwnd);
        // Data in flight beyond what an empty path holds at this rate, scaled by rtt / base as in Linux.
        let waiting = u64::try_from(cwnd * (rtt - base) / base).unwrap_or(u64::MAX);
        if window.in_slow_start() {
            if waiting > GAMMA * mss {
                let target = u64::try_from(cwnd * base / rtt).unwrap_or(u64::MAX);
                window.cwnd = window.cwnd.min(target + mss);
                window.ssthresh = below(window);
            } else if ack.is_cwnd_limited {
                plain_slow_start(window, ack.acked);
            }
        } else if waiting > BETA * mss {
            window.cwnd = window.cwnd.saturating_sub(mss);
            window.ssthresh = below(window);
        } else if waiting < ALPHA * mss && ack.is_cwnd_limited {
            window.cwnd += mss;
        }
        window.cwnd = window.cwnd.max(window.floor());
        window.ssthresh = window.ssthresh.max(window.cwnd / 4 * 3);
    }
}

/// A threshold below the window, so that slow start does not follow.
fn below(window: &CongestionWindow) -> u64 {
    window.ssthresh.min(window.cwnd.saturating_sub(u64::from(window.mss))).max(window.floor())
}

impl Default for Vegas {
    fn default() -> Self {
        Self::new()
    }
}

impl CongestionControl for Vegas {
    fn name(&self) -> &'static str {
        "vegas"
    }

    fn on_ack(&mut self, window: &mut CongestionWindow, ack: &AckEvent) {
        if let Some(rtt) = ack.rtt {
            self.rtt_base = self.rtt_base.min(rtt);
            self.rtt_round = self.rtt_round.min(rtt);
            self.samples += 1;
        }
        match self.round_end {
            Some(end) if ack.una < end => {
                if window.in_slow_start() && ack.is_cwnd_limited {
                    plain_slow_start(window, ack.acked);
                }
            }
            Some(_) => {
                if self.samples > SAMPLES_MIN {
                    self.judge(window, ack);
                } else {
                    self.grow(window, ack);
                }
                self.begin_round(Some(ack.nxt));
            }
            None => {
                self.grow(window, ack);
                self.begin_round(Some(ack.nxt));
            }
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
        self.begin_round(None);
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
        self.begin_round(None);
    }

    fn on_recovered(&mut self, _window: &mut CongestionWindow, _now: Instant) {
        self.begin_round(None);
    }

    /// The path may have changed meanwhile.
    fn on_idle(&mut self, _window: &mut CongestionWindow, _now: Instant, _idle: Span) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::super::CongestionChoice;
    use super::super::bottleneck::{PathUnderTest, ack_of};
    use super::*;

    const MSS: u64 = 1_000;

    /// A round of 20 acknowledgements with this round-trip time.
    fn round(vegas: &mut Vegas, window: &mut CongestionWindow, una: &mut u64, rtt_ms: u64) {
        for _ in 0..20 {
            *una += MSS;
            let ack = AckEvent {
                una: *una,
                nxt: *una + 20 * MSS,
                rtt: Some(Span::from_ms(rtt_ms)),
                ..ack_of(MSS)
            };
            vegas.on_ack(window, &ack);
        }
    }

    #[test]
    fn the_window_moves_by_a_segment_a_round_toward_two_to_four_waiting() {
        // A window of 20 segments of which 1.8, 2, 4 and 4.2 wait: (rtt - base) / base = 9, 10, 20, 21 %.
        for (rtt, change) in [(109, 1), (110, 0), (120, 0), (121, -1)] {
            let mut vegas = Vegas::new();
            let mut window = CongestionWindow {
                cwnd: 20 * MSS,
                ssthresh: 2 * MSS,
                mss: 1_000,
                initial: 10 * MSS,
            };
            let mut una = 0;
            round(&mut vegas, &mut window, &mut una, 100);
            round(&mut vegas, &mut window, &mut una, 100);
            let before = window.cwnd;
            window.cwnd = 20 * MSS;
            assert!(before > 20 * MSS, "nothing waits");
            vegas.begin_round(Some(una + 20 * MSS));
            round(&mut vegas, &mut window, &mut una, rtt);
            let moved = window.cwnd.cast_signed() - 20 * MSS.cast_signed();
            assert_eq!(moved, change * MSS.cast_signed(), "{rtt} ms");
        }
    }

    #[test]
    fn slow_start_ends_when_more_than_one_segment_waits() {
        let mut vegas = Vegas::new();
        let mut window =
            CongestionWindow { cwnd: 20 * MSS, ssthresh: u64::MAX, mss: 1_000, initial: 10 * MSS };
        let mut una = 0;
        for _ in 0..2 {
            round(&mut vegas, &mut window, &mut una, 100);
        }
        assert!(window.in_slow_start());
        for _ in 0..2 {
            round(&mut vegas, &mut window, &mut una, 110);
        }
        assert!(!window.in_slow_start());
    }

    #[test]
    fn a_bottleneck_is_filled_with_a_queue_of_a_few_segments() {
        // 50 segments: it shrinks by a segment a round trip only, and slow start leaves it twice as large as that.
        let path = PathUnderTest { rate: 1_250_000, ..PathUnderTest::long() };
        let outcome = path.run(CongestionChoice::Vegas, Span::from_secs(60));
        assert!(outcome.goodput > 0.98 * path.rate as f64, "{outcome:?}");
        let waiting = outcome.queue_mean * path.rate as f64 / MSS as f64;
        assert!((1.0..6.0).contains(&waiting), "{waiting} segments wait");
        assert_eq!(outcome.signals, 0);
    }
}
