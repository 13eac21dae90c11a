//! Round-trip time and retransmission timeout (RFC 6298), with a windowed minimum.

use plumb_base::time::{Instant, Span};

use super::config::{Personality, RtoFloor};

/// How long the minimum is remembered (Linux's `tcp_min_rtt_wlen`).
const MINIMUM_WINDOW: Span = Span::from_secs(300);
/// Largest exponent of the back-off.
const BACKOFF_MAX: u8 = 20;

/// Smoothed round-trip time of a connection and what follows from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RttEstimator {
    srtt: Option<Span>,
    variance: Span,
    minimum: Option<(Span, Instant)>,
    backoff: u8,
    bounds: RtoBounds,
}

/// Bounds of the timeout.
#[derive(Clone, Copy, Debug)]
struct RtoBounds {
    initial: Span,
    min: Span,
    max: Span,
    floor: RtoFloor,
    fixed: Option<Span>,
}

impl RttEstimator {
    pub fn new(personality: &Personality, fixed: Option<Span>) -> Self {
        let Personality { rto_initial, rto_min, rto_max, rto_floor, .. } = *personality;
        let bounds =
            RtoBounds { initial: rto_initial, min: rto_min, max: rto_max, floor: rto_floor, fixed };
        Self { srtt: None, variance: Span::ZERO, minimum: None, backoff: 0, bounds }
    }

    /// Takes a measurement (RFC 6298 §2).
    #[inline]
    pub fn on_sample(&mut self, now: Instant, rtt: Span) {
        match self.minimum {
            Some((least, since)) if least < rtt && now.saturating_since(since) < MINIMUM_WINDOW => {
            }
            _ => self.minimum = Some((rtt, now)),
        }
        match self.srtt {
            None => {
                self.srtt = Some(rtt);
                self.variance = rtt / 2;
            }
            Some(srtt) => {
                let deviation = if srtt > rtt { srtt - rtt } else { rtt - srtt };
                self.variance =
                    Span::from_ps((self.variance.as_ps() / 4) * 3 + deviation.as_ps() / 4);
                self.srtt = Some(Span::from_ps((srtt.as_ps() / 8) * 7 + rtt.as_ps() / 8));
            }
        }
    }

    /// Smoothed round-trip time.
    #[inline]
    pub const fn srtt(&self) -> Option<Span> {
        self.srtt
    }

    /// Mean deviation.
    pub const fn variance(&self) -> Span {
        self.variance
    }

    /// Least round-trip time of the last five minutes.
    #[inline]
    pub fn minimum(&self) -> Option<Span> {
        self.minimum.map(|(rtt, _)| rtt)
    }

    /// The retransmission timeout, backed off.
    #[inline]
    pub fn rto(&self) -> Span {
        let RtoBounds { min, max, fixed, .. } = self.bounds;
        if let Some(fixed) = fixed {
            return fixed;
        }
        let base = self.rto_base();
        let backed_off = Span::from_ps(base.as_ps().saturating_mul(1 << self.backoff));
        backed_off.max(min).min(max)
    }

    fn rto_base(&self) -> Span {
        let RtoBounds { initial, min, floor, .. } = self.bounds;
        let Some(srtt) = self.srtt else { return initial };
        // RFC 6298 §2.4: a granularity of 1 ms, that of the timestamps.
        let deviation = (self.variance * 4).max(Span::from_ms(1));
        match floor {
            RtoFloor::Total => (srtt + deviation).max(min),
            RtoFloor::Deviation => srtt + deviation.max(min),
        }
    }

    /// Doubles the timeout (RFC 6298 §5.5).
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }

    /// An acknowledgement of new data ends the back-off.
    #[inline]
    pub fn reset_backoff(&mut self) {
        self.backoff = 0;
    }

    /// Times that the timeout has been doubled.
    pub const fn backoff(&self) -> u8 {
        self.backoff
    }

    /// The SYN was retransmitted and never measured: the timeout begins with 3 s (RFC 6298 §5.7).
    pub fn on_repeated_handshake(&mut self) {
        if self.srtt.is_none() {
            self.bounds.initial = self.bounds.initial.max(Span::from_secs(3));
        }
        self.backoff = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimator(personality: &Personality) -> RttEstimator {
        RttEstimator::new(personality, None)
    }

    const NOW: Instant = Instant::after_origin(Span::from_secs(1));

    #[test]
    fn first_sample_sets_three_times_itself() {
        // RFC 6298 §2.2: SRTT = R, RTTVAR = R/2, RTO = R + 4 · R/2.
        let mut rtt = estimator(&Personality::plain());
        assert_eq!(rtt.rto(), Span::from_secs(1));
        rtt.on_sample(NOW, Span::from_secs(2));
        assert_eq!(rtt.rto(), Span::from_secs(6));
    }

    #[test]
    fn steady_samples_bring_the_timeout_to_its_floor() {
        let (mut plain, mut linux) =
            (estimator(&Personality::plain()), estimator(&Personality::linux()));
        for _ in 0..200 {
            plain.on_sample(NOW, Span::from_ms(50));
            linux.on_sample(NOW, Span::from_ms(50));
        }
        assert_eq!(plain.rto(), Span::from_secs(1));
        assert!(linux.rto().as_ns().abs_diff(250_000_000) < 1_000, "{:?}", linux.rto());
    }

    // MUST-19.
    #[test]
    fn back_off_doubles_up_to_the_largest() {
        let mut rtt = estimator(&Personality::plain());
        rtt.on_sample(NOW, Span::from_ms(10));
        let timeouts: Vec<u64> = (0..8)
            .map(|_| {
                rtt.back_off();
                rtt.rto().as_ns() / 1_000_000_000
            })
            .collect();
        assert_eq!(timeouts, [2, 4, 8, 16, 32, 60, 60, 60]);
        rtt.reset_backoff();
        assert_eq!(rtt.rto(), Span::from_secs(1));
    }
}
