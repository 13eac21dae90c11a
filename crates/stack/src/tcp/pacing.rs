//! When segments leave: at a rate, in quanta that fill a super-segment or a batch of a device.
//!
//! A timer per segment would undo what batches save, so the pacer waits until its last quantum has been paid for at the rate, then
//! lets the next one out at once.

use plumb_base::time::{Instant, Span};

use super::congestion::{CongestionWindow, bytes_per_second};

const PS_PER_SECOND: u64 = 1_000_000_000_000;
/// Bytes that leave at once at most.
const QUANTUM_MAX: u64 = 65_536;
/// Segments that leave before anything is paced, as in Linux.
const UNPACED_SEGMENTS: u64 = 10;

/// Bytes that may leave at once at `rate` bytes a second: whole segments of about a millisecond, at least two, at most 64 KiB.
#[inline]
pub fn quantum(rate: u64, mss: u32) -> u64 {
    let mss = u64::from(mss);
    // A 1,024th of a second: Linux's sk_pacing_shift.
    let bytes = (rate >> 10).min(QUANTUM_MAX);
    (bytes / mss).max(2) * mss
}

/// Bytes a second for a congestion control that sets none: twice the window each round trip in slow start, a fifth more than
/// the window after it, as Linux (`tcp_pacing_ss_ratio`, `tcp_pacing_ca_ratio`); `None` before the first measurement.
pub fn window_rate(window: &CongestionWindow, srtt: Option<Span>) -> Option<u64> {
    let srtt = srtt.filter(|srtt| *srtt != Span::ZERO)?;
    // The last round of slow start is paced as what follows it.
    let percent = if window.cwnd < window.ssthresh / 2 { 200 } else { 120 };
    Some(bytes_per_second(window.cwnd.saturating_mul(percent) / 100, srtt))
}

/// The pacer of a connection.
#[derive(Clone, Copy, Debug)]
pub struct SegmentPacer {
    /// When what has left is paid for at the rate.
    paid_at: Instant,
    /// The part of a picosecond that `paid_at` lacks, in 1/`rate`.
    remainder: u64,
    /// The rate of `remainder`.
    rate: u64,
    /// Bytes of the current quantum that have not left.
    quantum_left: u64,
    /// Bytes that leave before anything is paced.
    unpaced_left: u64,
}

impl SegmentPacer {
    /// A pacer of a new connection: its first ten segments of `mss` bytes are not held up.
    pub const fn new(mss: u32) -> Self {
        Self {
            paid_at: Instant::ORIGIN,
            remainder: 0,
            rate: 0,
            quantum_left: 0,
            unpaced_left: UNPACED_SEGMENTS * mss as u64,
        }
    }

    /// Bytes that may leave now at `rate` bytes a second; 0 before [`SegmentPacer::ready_at`]. A segment may exceed it, and
    /// what it exceeds it by is paid for.
    #[inline]
    pub fn allowance(&mut self, now: Instant, rate: u64, mss: u32) -> u64 {
        if self.unpaced_left > 0 {
            return self.unpaced_left;
        }
        if now >= self.paid_at {
            self.quantum_left = quantum(rate, mss);
        }
        self.quantum_left
    }

    /// `len` bytes leave at `now`.
    ///
    /// Where they leave later than they might, the next ones leave that much earlier, but by the time of one quantum at
    /// most: late timers do not lower the rate, and an idle connection saves up no burst.
    #[inline]
    pub fn on_sent(&mut self, now: Instant, len: u64, rate: u64) {
        if self.unpaced_left > 0 {
            self.unpaced_left = self.unpaced_left.saturating_sub(len);
            return;
        }
        let rate = rate.max(1);
        if rate != self.rate {
            // Less than a picosecond is forgotten.
            self.rate = rate;
            self.remainder = 0;
        }
        let late = now.saturating_since(self.paid_at);
        if late > Span::ZERO {
            self.paid_at += late.saturating_sub(credit(rate));
        }
        self.quantum_left = self.quantum_left.saturating_sub(len);
        let (time, remainder) = time_of(len, rate, self.remainder);
        self.paid_at += time;
        self.remainder = remainder;
    }

    /// When the next segment may leave; in the past where it may at once.
    #[inline]
    pub const fn ready_at(&self) -> Instant {
        if self.unpaced_left > 0 || self.quantum_left > 0 { Instant::ORIGIN } else { self.paid_at }
    }
}

/// By how much later than it might a segment may leave and delay nothing: the time of the largest quantum.
fn credit(rate: u64) -> Span {
    time_of(QUANTUM_MAX, rate, 0).0.min(Span::from_ms(1))
}

/// How long `len` bytes take, and what is left of a picosecond, in 1/`rate`.
fn time_of(len: u64, rate: u64, remainder: u64) -> (Span, u64) {
    let product = u128::from(len) * u128::from(PS_PER_SECOND) + u128::from(remainder);
    let rate = u128::from(rate);
    let ps = u64::try_from(product / rate).unwrap_or(u64::MAX);
    (Span::from_ps(ps), u64::try_from(product % rate).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1_460;

    /// A pacer whose first segments have left.
    fn begun() -> SegmentPacer {
        let mut pacer = SegmentPacer::new(MSS);
        pacer.on_sent(Instant::ORIGIN, 10 * u64::from(MSS), 1);
        pacer
    }

    /// Sends `segments` as soon as the pacer lets them, each quantum `late` after that. Returns when the last one left.
    fn send(pacer: &mut SegmentPacer, segments: u64, rate: u64, late: Span) -> Instant {
        let mut now = Instant::ORIGIN;
        for _ in 0..segments {
            if pacer.allowance(now, rate, MSS) == 0 {
                now = pacer.ready_at() + late;
                assert!(pacer.allowance(now, rate, MSS) > 0);
            }
            pacer.on_sent(now, u64::from(MSS), rate);
        }
        now
    }

    #[test]
    fn a_million_segments_keep_the_rate_to_the_picosecond() {
        for rate in [125_003, 12_345_679, 1_250_000_001, 50_000_000_003] {
            let mut pacer = begun();
            pacer.paid_at = Instant::ORIGIN + Span::from_ms(5);
            let segments = 1_000_000;
            send(&mut pacer, segments, rate, Span::ZERO);
            let exact =
                u128::from(segments) * u128::from(MSS) * 1_000_000_000_000 / u128::from(rate);
            let paid = u128::from((pacer.paid_at - Instant::ORIGIN).as_ps()) - 5_000_000_000;
            assert_eq!(paid, exact, "{rate}");
        }
    }

    #[test]
    fn late_timers_do_not_lower_the_rate() {
        let rate = 125_000_000;
        let on_time = send(&mut begun(), 100_000, rate, Span::ZERO);
        let late = send(&mut begun(), 100_000, rate, Span::from_us(300));
        assert!(late - on_time <= Span::from_us(300), "{late:?} against {on_time:?}");
        let too_late = send(&mut begun(), 100_000, rate, Span::from_ms(2));
        assert!(too_late > on_time + Span::from_secs(1), "only so much is made up for");
    }

    #[test]
    fn an_idle_connection_saves_up_two_quanta_at_most() {
        for rate in [100_000, 12_500_000, 10_000_000_000] {
            let mut pacer = begun();
            let now = Instant::ORIGIN + Span::from_secs(100);
            let mut sent = 0;
            while pacer.allowance(now, rate, MSS) > 0 {
                pacer.on_sent(now, u64::from(MSS), rate);
                sent += u64::from(MSS);
            }
            assert!(sent >= quantum(rate, MSS));
            assert!(sent <= quantum(rate, MSS) + QUANTUM_MAX + u64::from(MSS), "{sent} at {rate}");
            assert!(pacer.ready_at() > now);
        }
    }

    #[test]
    fn a_quantum_is_a_millisecond_within_two_segments_and_64_kib() {
        let mss = u64::from(MSS);
        assert_eq!(quantum(1_000, MSS), 2 * mss);
        assert_eq!(quantum(10_240_000, MSS), 10_000 / mss * mss);
        assert_eq!(quantum(10_000_000_000, MSS), 65_536 / mss * mss);
        assert_eq!(quantum(10_000_000_000, 65_000), 130_000);
        let mut pacer = begun();
        let now = Instant::ORIGIN;
        assert_eq!(pacer.allowance(now, 10_240_000, MSS), quantum(10_240_000, MSS));
    }

    #[test]
    fn ten_segments_leave_before_anything_is_paced() {
        let mut pacer = SegmentPacer::new(MSS);
        for _ in 0..10 {
            assert!(pacer.allowance(Instant::ORIGIN, 1_000, MSS) > 0);
            assert_eq!(pacer.ready_at(), Instant::ORIGIN);
            pacer.on_sent(Instant::ORIGIN, u64::from(MSS), 1_000);
        }
        for _ in 0..2 {
            assert!(pacer.allowance(Instant::ORIGIN, 1_000, MSS) > 0);
            pacer.on_sent(Instant::ORIGIN, u64::from(MSS), 1_000);
        }
        assert_eq!(pacer.allowance(Instant::ORIGIN, 1_000, MSS), 0);
        // The two of the first quantum take 2.92 s.
        assert_eq!(pacer.ready_at(), Instant::ORIGIN + Span::from_ms(2_920));
    }

    #[test]
    fn a_window_is_paced_faster_than_it_is_acknowledged() {
        let mut window =
            CongestionWindow { cwnd: 100_000, ssthresh: u64::MAX, mss: MSS, initial: 14_600 };
        let srtt = Some(Span::from_ms(100));
        assert_eq!(window_rate(&window, srtt), Some(2_000_000));
        window.ssthresh = 150_000;
        assert_eq!(window_rate(&window, srtt), Some(1_200_000));
        assert_eq!(window_rate(&window, None), None);
    }
}
