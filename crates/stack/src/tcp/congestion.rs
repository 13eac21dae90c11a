//! Congestion control: how much may be in flight. What is lost is decided by `recovery`, when to send by `pacing`.
//!
//! Windows and counts are bytes (RFC 3465), rates bytes a second, arithmetic is of integers. An algorithm changes the
//! [`CongestionWindow`] that it is lent and keeps whatever else it needs.

use std::fmt;

use plumb_base::time::{Instant, Span};

pub mod bbr;
pub mod cubic;
pub mod fixed;
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

    /// An acknowledgement came; outside of recovery, or in it where [`CongestionControl::governs_recovery`].
    fn on_ack(&mut self, window: &mut CongestionWindow, ack: &AckEvent);

    /// A signal of congestion, at most once a window of data: sets `ssthresh`. The window itself is brought down to it by
    /// proportional rate reduction (RFC 9937) unless [`CongestionControl::governs_recovery`].
    fn on_congestion(&mut self, window: &mut CongestionWindow, now: Instant, flight: u64, signal: CongestionSignal);

    /// The retransmission timer expired: sets `ssthresh` where this is the `first` time since `snd_una` moved; the
    /// window is then set to one segment (RFC 5681 §3.1) by the caller.
    fn on_timeout(&mut self, window: &mut CongestionWindow, now: Instant, flight: u64, first: bool);

    /// Recovery ended, after loss or a timeout.
    fn on_recovered(&mut self, _window: &mut CongestionWindow, _now: Instant) {}

    /// The last signal was none: nothing had been lost. Window and threshold have been put back already.
    fn on_spurious(&mut self, _window: &mut CongestionWindow) {}

    /// Nothing was sent for `idle`, longer than a retransmission timeout; the window has been adjusted (RFC 7661).
    fn on_idle(&mut self, _window: &mut CongestionWindow, _now: Instant, _idle: Span) {}

    /// A segment of `len` bytes leaves; `flight` counts it.
    fn on_sent(&mut self, _window: &CongestionWindow, _now: Instant, _len: u64, _flight: u64) {}

    /// Bytes a second to send at; `None`: not paced by the algorithm.
    fn pacing_rate(&self, window: &CongestionWindow, srtt: Option<Span>) -> Option<u64>;

    /// Whether it sets the window in recovery too, as BBR does.
    fn governs_recovery(&self) -> bool {
        false
    }

    /// Whether, without SACK, the first acknowledgement of new data ends recovery, as before RFC 6582.
    fn ends_recovery_at_once(&self) -> bool {
        false
    }
}
