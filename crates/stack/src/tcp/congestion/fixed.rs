//! A window that never changes, whatever happens: for experiments, and for paths that are known.

use plumb_base::time::Instant;

use super::{AckEvent, CongestionControl, CongestionSignal, CongestionWindow};

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

#[cfg(test)]
mod tests {
    use super::super::bottleneck::ack_of;
    use super::*;

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
