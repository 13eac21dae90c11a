//! Congestion control: how much may be in flight. What is lost is decided by `recovery`, when to send by `pacing`.
//!
//! Windows and counts are bytes (RFC 3465), rates bytes a second, arithmetic is of integers. An algorithm changes the
//! [`CongestionWindow`] that it is lent and keeps whatever else it needs.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use bbr::Bbr;
use cubic::Cubic;
use plumb_base::time::{Instant, Span};
use reno::Reno;
use thiserror::Error;
use vegas::Vegas;

use crate::tcp::seq::SeqNum;

pub mod bbr;
#[cfg(test)]
mod bottleneck;
pub mod cubic;
pub mod hystart;
pub mod reno;
pub mod vegas;

/// The window that algorithms change, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CongestionWindow {
    /// Bytes that may be in flight.
    pub cwnd: u64,
    /// Slow start below it.
    pub ssthresh: u64,
    /// Largest payload of a segment.
    pub mss: u32,
    /// Window at the start, and after a long silence.
    pub initial: u64,
}

impl CongestionWindow {
    /// Never less than this many segments may be in flight.
    pub const SEGMENTS_MIN: u64 = 2;

    /// Whether the window grows by slow start.
    #[inline]
    pub const fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// The smallest threshold: two segments (RFC 5681 eqn. 4).
    #[inline]
    pub const fn floor(&self) -> u64 {
        Self::SEGMENTS_MIN * self.mss as u64
    }
}

/// What is known when an acknowledgement has been processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckEvent {
    /// The time.
    pub now: Instant,
    /// When the device received the segment: queueing within the host is no part of the path.
    pub received: Instant,
    /// Bytes that it newly acknowledged in sequence.
    pub acked: u64,
    /// Bytes that it newly said to have been delivered, in sequence or not (SACK).
    pub delivered: u64,
    /// Bytes newly marked as lost.
    pub lost: u64,
    /// Bytes in flight after it.
    pub flight: u64,
    /// Bytes in flight before it.
    pub flight_before: u64,
    /// Round-trip time measured with it.
    pub rtt: Option<Span>,
    /// Smoothed round-trip time, `None` before the first sample.
    pub srtt: Option<Span>,
    /// Whether the window, not the application or the peer, limited what was sent since the last one (RFC 7661).
    pub is_cwnd_limited: bool,
    /// Whether loss recovery is under way.
    pub in_recovery: bool,
    /// The receiver echoed a congestion mark with it.
    pub ecn_echo: bool,
    /// Delivery rate, where one could be sampled.
    pub rate: Option<RateSample>,
    /// `snd_una` and `snd_nxt` as counts of bytes since the connection began: rounds are told by them.
    pub una: u64,
    /// See `una`.
    pub nxt: u64,
}

/// A sample of the delivery rate (draft-ietf-ccwg-bbr §4.1, Linux's `rate_sample`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSample {
    /// Bytes delivered in `interval`.
    pub delivered: u64,
    /// The longer of the time to send them and the time to have them acknowledged.
    pub interval: Span,
    /// Bytes that had been delivered when the newest segment acknowledged was sent.
    pub delivered_before: u64,
    /// Bytes delivered in all.
    pub delivered_total: u64,
    /// Whether the application had nothing more to send when that segment was sent.
    pub is_app_limited: bool,
}

impl RateSample {
    /// Bytes a second; 0 for no interval.
    #[inline]
    pub fn bytes_per_second(&self) -> u64 {
        bytes_per_second(self.delivered, self.interval)
    }
}

/// Bytes that `rate`, in bytes a second, carries in `span`, rounded down: to the nanosecond.
#[inline]
pub fn bytes_in(rate: u64, span: Span) -> u64 {
    let ns = span.as_ns();
    match rate.checked_mul(ns) {
        Some(product) => product / 1_000_000_000,
        None => {
            u64::try_from(u128::from(rate) * u128::from(ns) / 1_000_000_000).unwrap_or(u64::MAX)
        }
    }
}

/// `bytes` in `span` as a rate, rounded down; 0 for an empty span.
#[inline]
pub fn bytes_per_second(bytes: u64, span: Span) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000_000 / u128::from(span.as_ps()).max(1);
    if span == Span::ZERO { 0 } else { u64::try_from(rate).unwrap_or(u64::MAX) }
}

/// Why the window has to become smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionSignal {
    /// Segments were lost, and recovery begins.
    Loss,
    /// The receiver echoed a mark (RFC 3168 §6.1.2).
    Mark,
}

/// An algorithm.
pub trait CongestionControl: fmt::Debug + Send {
    /// Its name in options and output: lower case.
    fn name(&self) -> &'static str;

    /// The connection is established: `window` is the initial one, which it may change.
    fn on_start(&mut self, _window: &mut CongestionWindow) {}

    /// An acknowledgement came; outside of recovery, or in it where [`CongestionControl::governs_recovery`].
    fn on_ack(&mut self, window: &mut CongestionWindow, ack: &AckEvent);

    /// A signal of congestion, at most once a window of data: sets `ssthresh`. `flight` is what was sent and not acknowledged
    /// in sequence before the acknowledgement that told about it (FlightSize of RFC 5681), SACKed or lost bytes included.
    ///
    /// The window itself is brought down to `ssthresh` by proportional rate reduction (RFC 9937) unless [`CongestionControl::governs_recovery`].
    fn on_congestion(
        &mut self,
        window: &mut CongestionWindow,
        now: Instant,
        flight: u64,
        signal: CongestionSignal,
    );

    /// The retransmission timer expired: sets `ssthresh` where this is the `first` time since `snd_una` moved; the
    /// window is then set to one segment (RFC 5681 §3.1) by the caller.
    fn on_timeout(&mut self, window: &mut CongestionWindow, now: Instant, flight: u64, first: bool);

    /// Recovery ended, after loss or a timeout.
    fn on_recovered(&mut self, _window: &mut CongestionWindow, _now: Instant) {}

    /// The last signal was none: nothing had been lost. Window and threshold have been put back already.
    fn on_spurious(&mut self, _window: &mut CongestionWindow) {}

    /// Nothing was sent for `idle`, longer than a retransmission timeout; the window has been adjusted (RFC 7661) unless
    /// [`CongestionControl::governs_recovery`].
    fn on_idle(&mut self, _window: &mut CongestionWindow, _now: Instant, _idle: Span) {}

    /// A segment of `len` bytes leaves; `flight` counts it.
    fn on_sent(&mut self, _window: &CongestionWindow, _now: Instant, _len: u64, _flight: u64) {}

    /// Bytes a second to send at; `None`: not paced by the algorithm.
    fn pacing_rate(&self, _window: &CongestionWindow, _srtt: Option<Span>) -> Option<u64> {
        None
    }

    /// Whether it sets the window in recovery too, as BBR does.
    fn governs_recovery(&self) -> bool {
        false
    }

    /// Whether, without SACK, the first acknowledgement of new data ends recovery, as before RFC 6582.
    fn ends_recovery_at_once(&self) -> bool {
        false
    }
}

/// The congestion control that a user names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CongestionChoice {
    /// A window that never changes.
    Fixed {
        /// Its bytes.
        bytes: u64,
    },
    /// RFC 5681: the first acknowledgement of new data ends recovery.
    Reno,
    /// RFC 5681 with RFC 6582, and HyStart++.
    NewReno,
    /// Brakmo and Peterson 1995.
    Vegas,
    /// RFC 9438, with HyStart++.
    #[default]
    Cubic,
    /// BBR version 1.
    Bbr,
    /// One of the user's own.
    Custom(CustomCongestion),
}

/// A congestion control that is no part of the stack. Two of one name are the same.
#[derive(Clone, Copy, Debug)]
pub struct CustomCongestion {
    /// Its name in output: lower case.
    pub name: &'static str,
    /// Makes the one of a connection, from a seed of that.
    pub build: fn(u64) -> Box<dyn CongestionControl>,
}

impl PartialEq for CustomCongestion {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for CustomCongestion {}

impl Hash for CustomCongestion {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl CongestionChoice {
    /// The algorithm at its start. `hystart`: where it has slow start by RFC 9406, whether that is used; `seed`: of the
    /// phases of BBR, which makes connections that start together differ.
    pub fn build(self, hystart: bool, seed: u64) -> CongestionAlgorithm {
        match self {
            Self::Fixed { bytes } => CongestionAlgorithm::Fixed(FixedWindow::new(bytes)),
            Self::Reno => CongestionAlgorithm::Reno(Reno::classic()),
            Self::NewReno => CongestionAlgorithm::Reno(Reno::new_reno(hystart)),
            Self::Vegas => CongestionAlgorithm::Vegas(Vegas::new()),
            Self::Cubic => CongestionAlgorithm::Cubic(Box::new(Cubic::new(hystart))),
            Self::Bbr => CongestionAlgorithm::Bbr(Box::new(Bbr::new(seed))),
            Self::Custom(custom) => CongestionAlgorithm::Custom((custom.build)(seed)),
        }
    }
}

impl fmt::Display for CongestionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed { bytes } => write!(f, "fixed:{bytes}"),
            Self::Reno => f.pad("reno"),
            Self::NewReno => f.pad("newreno"),
            Self::Vegas => f.pad("vegas"),
            Self::Cubic => f.pad("cubic"),
            Self::Bbr => f.pad("bbr"),
            Self::Custom(custom) => f.pad(custom.name),
        }
    }
}

/// A name that is of no congestion control.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "there is no congestion control {0:?}; give one of fixed:BYTES (such as fixed:65536), reno, newreno, vegas, cubic, bbr"
)]
pub struct CongestionChoiceError(String);

impl FromStr for CongestionChoice {
    type Err = CongestionChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "reno" => return Ok(Self::Reno),
            "newreno" => return Ok(Self::NewReno),
            "vegas" => return Ok(Self::Vegas),
            "cubic" => return Ok(Self::Cubic),
            "bbr" => return Ok(Self::Bbr),
            _ => {}
        }
        let bytes = text.strip_prefix("fixed:").and_then(|bytes| bytes.parse().ok());
        match bytes {
            Some(bytes) if bytes > 0 => Ok(Self::Fixed { bytes }),
            _ => Err(CongestionChoiceError(text.to_owned())),
        }
    }
}

/// The algorithm of a connection: those of the stack without a call through a pointer, a user's own boxed.
#[derive(Debug)]
pub enum CongestionAlgorithm {
    /// A window that never changes.
    Fixed(FixedWindow),
    /// Reno and NewReno.
    Reno(Reno),
    /// Vegas.
    Vegas(Vegas),
    /// CUBIC.
    Cubic(Box<Cubic>),
    /// BBR.
    Bbr(Box<Bbr>),
    /// A user's own.
    Custom(Box<dyn CongestionControl>),
}

/// Calls a method on the algorithm, whichever it is.
macro_rules! dispatch {
    ($self:expr, $algorithm:ident => $call:expr) => {
        match $self {
            CongestionAlgorithm::Fixed($algorithm) => $call,
            CongestionAlgorithm::Reno($algorithm) => $call,
            CongestionAlgorithm::Vegas($algorithm) => $call,
            CongestionAlgorithm::Cubic($algorithm) => $call,
            CongestionAlgorithm::Bbr($algorithm) => $call,
            CongestionAlgorithm::Custom($algorithm) => $call,
        }
    };
}

impl CongestionControl for CongestionAlgorithm {
    fn name(&self) -> &'static str {
        dispatch!(self, algorithm => algorithm.name())
    }

    fn on_start(&mut self, window: &mut CongestionWindow) {
        dispatch!(self, algorithm => algorithm.on_start(window));
    }

    #[inline]
    fn on_ack(&mut self, window: &mut CongestionWindow, ack: &AckEvent) {
        dispatch!(self, algorithm => algorithm.on_ack(window, ack));
    }

    fn on_congestion(
        &mut self,
        window: &mut CongestionWindow,
        now: Instant,
        flight: u64,
        signal: CongestionSignal,
    ) {
        dispatch!(self, algorithm => algorithm.on_congestion(window, now, flight, signal));
    }

    fn on_timeout(
        &mut self,
        window: &mut CongestionWindow,
        now: Instant,
        flight: u64,
        first: bool,
    ) {
        dispatch!(self, algorithm => algorithm.on_timeout(window, now, flight, first));
    }

    fn on_recovered(&mut self, window: &mut CongestionWindow, now: Instant) {
        dispatch!(self, algorithm => algorithm.on_recovered(window, now));
    }

    fn on_spurious(&mut self, window: &mut CongestionWindow) {
        dispatch!(self, algorithm => algorithm.on_spurious(window));
    }

    fn on_idle(&mut self, window: &mut CongestionWindow, now: Instant, idle: Span) {
        dispatch!(self, algorithm => algorithm.on_idle(window, now, idle));
    }

    #[inline]
    fn on_sent(&mut self, window: &CongestionWindow, now: Instant, len: u64, flight: u64) {
        dispatch!(self, algorithm => algorithm.on_sent(window, now, len, flight));
    }

    #[inline]
    fn pacing_rate(&self, window: &CongestionWindow, srtt: Option<Span>) -> Option<u64> {
        dispatch!(self, algorithm => algorithm.pacing_rate(window, srtt))
    }

    fn governs_recovery(&self) -> bool {
        dispatch!(self, algorithm => algorithm.governs_recovery())
    }

    fn ends_recovery_at_once(&self) -> bool {
        dispatch!(self, algorithm => algorithm.ends_recovery_at_once())
    }
}

/// A congestion window of so many bytes, one segment at least.
#[derive(Clone, Copy, Debug)]
pub struct FixedWindow {
    bytes: u64,
}

impl FixedWindow {
    /// A window of `bytes`.
    pub const fn new(bytes: u64) -> Self {
        Self { bytes }
    }

    fn apply(self, window: &mut CongestionWindow) {
        window.cwnd = self.bytes.max(u64::from(window.mss));
        window.ssthresh = window.cwnd;
    }
}

impl CongestionControl for FixedWindow {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn on_start(&mut self, window: &mut CongestionWindow) {
        self.apply(window);
    }

    /// Puts back what the caller changed after a timeout, or because the path's MTU changed.
    fn on_ack(&mut self, window: &mut CongestionWindow, _ack: &AckEvent) {
        self.apply(window);
    }

    fn on_congestion(
        &mut self,
        _window: &mut CongestionWindow,
        _now: Instant,
        _flight: u64,
        _signal: CongestionSignal,
    ) {
    }

    fn on_timeout(
        &mut self,
        _window: &mut CongestionWindow,
        _now: Instant,
        _flight: u64,
        _first: bool,
    ) {
    }

    /// So that recovery does not reduce the window.
    fn governs_recovery(&self) -> bool {
        true
    }
}

/// A window and the algorithm that moves it.
#[derive(Debug)]
pub(in crate::tcp) struct CongestionState {
    pub window: CongestionWindow,
    pub algorithm: CongestionAlgorithm,
    /// Most bytes in flight in the round that ends at `round_end`.
    flight_max: u64,
    round_end: SeqNum,
    /// Whether the window held something back in that round.
    is_limited: bool,
    /// When the window was used up last.
    used_up: Instant,
}

impl CongestionState {
    pub fn new(
        mut algorithm: CongestionAlgorithm,
        mut window: CongestionWindow,
        start: SeqNum,
        now: Instant,
    ) -> Self {
        algorithm.on_start(&mut window);
        Self { window, algorithm, flight_max: 0, round_end: start, is_limited: false, used_up: now }
    }

    /// Begins anew with a window: the handshake told the size of segments.
    pub fn restart(&mut self, window: CongestionWindow) {
        self.window = window;
        self.algorithm.on_start(&mut self.window);
    }

    /// Notes how much is in flight after something was sent, or that the window held the next segment back.
    #[inline]
    pub fn on_sent(
        &mut self,
        now: Instant,
        una: SeqNum,
        nxt: SeqNum,
        flight: u64,
        is_limited: bool,
    ) {
        if una >= self.round_end || is_limited || flight > self.flight_max {
            if una >= self.round_end {
                self.round_end = nxt;
                self.flight_max = 0;
                self.is_limited = false;
            }
            self.flight_max = self.flight_max.max(flight);
            self.is_limited |= is_limited;
        }
        if self.is_cwnd_limited() {
            self.used_up = now;
        }
    }

    /// Whether the window, not the application, limits what is sent (Linux's `tcp_is_cwnd_limited`).
    #[inline]
    pub fn is_cwnd_limited(&self) -> bool {
        self.is_limited || (self.window.in_slow_start() && self.window.cwnd < 2 * self.flight_max)
    }

    /// What the path carried when it lost something, with `outstanding` bytes unacknowledged: the window, where that was used up, because
    /// segments that acknowledgements of one batch allow have not been sent yet (RFC 9438 §4.6 allows it, Linux does it).
    pub fn load(&self, outstanding: u64) -> u64 {
        if self.is_cwnd_limited() { outstanding.max(self.window.cwnd) } else { outstanding }
    }

    /// Nothing was in flight for `idle`: the window decays towards the initial one (RFC 7661 §4.4.3, as Linux does it).
    pub fn on_idle(&mut self, now: Instant, idle: Span, rto: Span) {
        if !self.algorithm.governs_recovery() {
            let restart = self.window.initial.min(self.window.cwnd);
            self.window.ssthresh = self.window.ssthresh.max(self.window.cwnd / 4 * 3);
            let mut left = idle;
            while left > rto && self.window.cwnd > restart {
                self.window.cwnd /= 2;
                left = left.saturating_sub(rto);
            }
            self.window.cwnd = self.window.cwnd.max(restart);
        }
        self.algorithm.on_idle(&mut self.window, now, idle);
    }
}

#[cfg(test)]
mod tests {
    use super::bottleneck::ack_of;
    use super::*;

    #[test]
    fn every_name_is_read_as_it_is_printed() {
        let fixed = CongestionChoice::Fixed { bytes: 65_536 };
        let all = [
            fixed,
            CongestionChoice::Reno,
            CongestionChoice::NewReno,
            CongestionChoice::Vegas,
            CongestionChoice::Cubic,
            CongestionChoice::Bbr,
        ];
        for choice in all {
            assert_eq!(choice.to_string().parse(), Ok(choice));
            let name = choice.build(true, 1).name();
            assert!(choice.to_string().starts_with(name), "{choice}: {name}");
        }
        assert_eq!("fixed:65536".parse(), Ok(fixed));
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_names() {
        for text in ["cubik", "", "fixed", "fixed:", "fixed:0", "fixed:-1", "Reno"] {
            let error = text.parse::<CongestionChoice>().unwrap_err().to_string();
            for name in ["fixed:", "reno", "newreno", "vegas", "cubic", "bbr"] {
                assert!(error.contains(name), "{error}");
            }
        }
    }

    #[test]
    fn an_algorithm_is_one_cache_line_at_most() {
        assert!(size_of::<CongestionAlgorithm>() <= 64, "{}", size_of::<CongestionAlgorithm>());
    }

    #[test]
    fn rates_and_bytes_neither_overflow_nor_divide_by_nothing() {
        assert_eq!(bytes_per_second(1_250, Span::from_us(1)), 1_250_000_000);
        assert_eq!(bytes_per_second(1, Span::ZERO), 0);
        assert_eq!(bytes_per_second(u64::MAX, Span::from_ps(1)), u64::MAX);
        assert_eq!(bytes_in(1_250_000_000, Span::from_us(1)), 1_250);
        assert_eq!(bytes_in(u64::MAX, Span::from_secs(1)), u64::MAX);
        assert_eq!(bytes_in(u64::MAX, Span::from_ms(1)), u64::MAX / 1_000);
        assert_eq!(bytes_in(u64::MAX, Span::from_secs(2)), u64::MAX);
    }

    #[test]
    fn neither_loss_nor_a_timeout_changes_the_window() {
        let mut fixed = FixedWindow::new(65_536);
        let mut window =
            CongestionWindow { cwnd: 14_600, ssthresh: u64::MAX, mss: 1_460, initial: 14_600 };
        fixed.on_start(&mut window);
        assert_eq!(window.cwnd, 65_536);
        fixed.on_congestion(&mut window, Instant::ORIGIN, 65_536, CongestionSignal::Loss);
        fixed.on_ack(&mut window, &ack_of(1_460));
        assert_eq!(window.cwnd, 65_536);
        fixed.on_timeout(&mut window, Instant::ORIGIN, 65_536, true);
        window.cwnd = 1_460;
        fixed.on_ack(&mut window, &ack_of(1_460));
        assert_eq!(window.cwnd, 65_536);
    }

    #[test]
    fn a_window_smaller_than_a_segment_still_lets_one_out() {
        let mut window =
            CongestionWindow { cwnd: 14_600, ssthresh: u64::MAX, mss: 1_460, initial: 14_600 };
        FixedWindow::new(100).on_start(&mut window);
        assert_eq!(window.cwnd, 1_460);
    }
}
