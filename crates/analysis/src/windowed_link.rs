//! A pipe: a link of a rate and a round trip, and the window that is to fill it.
//!
//! What a stream over it should get, for claims and pictures alike. Left out: queues and losses.

use plumb_base::units::quantity::{parse_rate, parse_span};

/// Of an Ethernet frame of 1,514 bytes, what is payload: 1,500 − 20 (RFC 791) − 20 (RFC 9293) − 12
/// (time stamps, RFC 7323).
const PAYLOAD_SHARE: f64 = 1_448.0 / 1_514.0;

/// A link and a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowedLink {
    /// Bytes a second of payload that the link can carry.
    pub capacity: f64,
    /// Seconds there and back.
    pub rtt: f64,
    /// Bytes; none where the kernel chooses.
    pub window: Option<f64>,
    /// Bytes of frames in one round trip at the link's rate.
    pub bdp: f64,
}

impl WindowedLink {
    /// The pipe of these levels: a rate such as `10mbit`, a round trip such as `20ms`; none where they
    /// cannot be read.
    pub fn parse(rate: &str, rtt: &str, window: Option<f64>) -> Option<Self> {
        let rate = parse_rate(rate).ok()?.bytes_per_second();
        let rtt = parse_span(rtt).ok()?.as_secs_f64();
        Some(Self { capacity: rate * PAYLOAD_SHARE, rtt, window, bdp: rate * rtt })
    }

    /// Bytes a second that one window a round trip is; none where the kernel chooses the window.
    pub fn window_rate(&self) -> Option<f64> {
        self.window.map(|window| window / self.rtt)
    }

    /// Bytes a second that a stream should get: the smaller of both.
    pub fn expected_rate(&self) -> f64 {
        self.window_rate().map_or(self.capacity, |rate| rate.min(self.capacity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_bounds_a_long_pipe_and_the_rate_a_short_one() {
        let expected =
            |rtt| WindowedLink::parse("100mbit", rtt, Some(65_536.0)).unwrap().expected_rate();
        assert!((expected("100ms") - 655_360.0).abs() < 1e-6);
        assert!((expected("1ms") - 12.5e6 * 1_448.0 / 1_514.0).abs() < 1e-6);
        let free = WindowedLink::parse("100mbit", "100ms", None).unwrap();
        assert!((free.expected_rate() - free.capacity).abs() < 1e-6);
        assert!((free.bdp - 1.25e6).abs() < 1e-6);
        assert_eq!(WindowedLink::parse("fast", "1ms", None), None);
    }
}
