//! The size of segments: what the peer takes, what the path carries, and what probing finds out about it.
//!
//! ICMP tells a smaller path MTU (RFC 1191, RFC 8201). Where it does not, and only full segments are lost, they
//! are made smaller until they arrive (RFC 4821 §7.7); a larger size is tried again later.

use plumb_base::time::{Instant, Span};

/// Timeouts in a row of full segments after which the path is taken for a black hole (Linux's `tcp_retries1`).
const BLACK_HOLE_TIMEOUTS: u8 = 3;
/// MTUs that are tried, largest first, where full segments vanish (RFC 1191 §7.1, shortened).
const PLATEAUS: [u32; 5] = [4_352, 1_492, 1_280, 1_024, 576];
/// How long a size that was found by black-hole detection is kept before the path's own is tried again (RFC 1981 §4).
const RETRY_AFTER: Span = Span::from_secs(600);

/// Sizes of segments of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentSize {
    /// Bytes of IP and TCP header without options.
    headers: u32,
    /// Bytes of options that every segment has.
    options: u16,
    /// Largest segment that the peer takes (its MSS option), or that we are told to send.
    peer: u16,
    /// MTU of the path as it is known from routing and ICMP.
    path: u32,
    /// MTU found by black-hole detection, and when.
    found: Option<(u32, Instant)>,
    timeouts: u8,
    payload: u16,
}

impl SegmentSize {
    /// Sizes for a path of `mtu` bytes, and a peer that takes segments of `peer`.
    pub fn new(mtu: u32, is_v6: bool, peer: u16, options: u16) -> Self {
        let headers = if is_v6 { 60 } else { 40 };
        let mut size =
            Self { headers, options, peer, path: mtu, found: None, timeouts: 0, payload: 0 };
        size.settle();
        size
    }

    fn settle(&mut self) {
        let mtu = self.found.map_or(self.path, |(found, _)| found.min(self.path));
        let fits = mtu.saturating_sub(self.headers).min(self.peer.into());
        let payload = fits.saturating_sub(self.options.into()).max(8);
        self.payload = u16::try_from(payload).unwrap_or(u16::MAX);
    }

    /// Most payload of a segment with the usual options.
    #[inline]
    pub const fn payload(&self) -> u16 {
        self.payload
    }

    /// The MTU in use.
    pub fn mtu(&self) -> u32 {
        self.found.map_or(self.path, |(found, _)| found.min(self.path))
    }

    /// Routing or ICMP told the path's MTU; whether segments become smaller.
    pub fn on_path_mtu(&mut self, mtu: u32) -> bool {
        let before = self.payload;
        self.path = mtu;
        self.settle();
        self.payload < before
    }

    /// The retransmission timer expired while a segment of `len` bytes was unacknowledged; whether segments become smaller.
    pub fn on_timeout(&mut self, now: Instant, len: u64, least_mtu: u32) -> bool {
        let overhead = self.headers + u32::from(self.options);
        let lost = u32::try_from(len).unwrap_or(u32::MAX).saturating_add(overhead).min(self.mtu());
        let smaller = PLATEAUS.into_iter().find(|mtu| *mtu < lost && *mtu >= least_mtu);
        let Some(smaller) = smaller else { return false };
        self.timeouts = self.timeouts.saturating_add(1);
        if self.timeouts < BLACK_HOLE_TIMEOUTS {
            return false;
        }
        self.found = Some((smaller, now));
        self.settle();
        true
    }

    /// A full segment arrived; after some time at a reduced size the path's own is tried again. Whether segments become larger.
    #[inline]
    pub fn on_delivered(&mut self, now: Instant) -> bool {
        self.timeouts = 0;
        let Some((_, since)) = self.found else { return false };
        if now.saturating_since(since) < RETRY_AFTER {
            return false;
        }
        self.found = None;
        self.settle();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::after_origin(Span::from_secs(1));

    #[test]
    fn segments_shrink_when_full_ones_vanish() {
        let mut size = SegmentSize::new(1_500, false, 1_460, 12);
        assert_eq!(size.payload(), 1_448);
        assert!(!size.on_timeout(NOW, 100, 576), "a small segment proves nothing");
        let shrunk: Vec<bool> = (0..4).map(|_| size.on_timeout(NOW, 1_448, 576)).collect();
        assert_eq!(shrunk, [false, false, true, true]);
        assert_eq!(size.mtu(), 1_280);
        assert!(!size.on_timeout(NOW, 500, 576), "smaller ones were lost before");
        assert!(!size.on_delivered(NOW + Span::from_secs(1)));
        assert!(size.on_delivered(NOW + RETRY_AFTER));
        assert_eq!(size.payload(), 1_448);
    }

    // MUST-16.
    #[test]
    fn peer_bounds_the_size_without_options() {
        assert_eq!(SegmentSize::new(9_000, false, 1_460, 12).payload(), 1_448);
        assert_eq!(SegmentSize::new(1_500, true, 9_000, 0).payload(), 1_440);
    }
}
