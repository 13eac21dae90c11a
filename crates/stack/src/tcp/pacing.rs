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
    // Most rates are beyond the limit: no division for the segments of the common length would pay.
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
        let credit = self.quantum_time();
        let late = now.saturating_since(self.paid_at);
        if late > credit {
            self.paid_at += late - credit;
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

    fn quantum_time(&self) -> Span {
        time_of(QUANTUM_MAX, self.rate, 0).0.min(Span::from_ms(1))
    }
}

/// How long `len` bytes take, and what is left of a picosecond, in 1/`rate`.
fn time_of(len: u64, rate: u64, remainder: u64) -> (Span, u64) {
    let product = u128::from(len) * u128::from(PS_PER_SECOND) + u128::from(remainder);
    let rate = u128::from(rate);
    let ps = u64::try_from(product / rate).unwrap_or(u64::MAX);
    (Span::from_ps(ps), u64::try_from(product % rate).unwrap_or(0))
}
