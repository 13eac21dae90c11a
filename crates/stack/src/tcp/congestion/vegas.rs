//! Stand-in until merged.
use super::*;
#[derive(Debug)]
pub struct Vegas(Reno);
impl Vegas {
    pub fn new() -> Self {
        Self(Reno::new_reno(false))
    }
}
impl CongestionControl for Vegas {
    fn name(&self) -> &'static str {
        "Vegas"
    }
    fn on_start(&mut self, w: &mut CongestionWindow) {
        self.0.on_start(w)
    }
    fn on_ack(&mut self, w: &mut CongestionWindow, a: &AckEvent) {
        self.0.on_ack(w, a)
    }
    fn on_congestion(&mut self, w: &mut CongestionWindow, n: Instant, f: u64, s: CongestionSignal) {
        self.0.on_congestion(w, n, f, s)
    }
    fn on_timeout(&mut self, w: &mut CongestionWindow, n: Instant, f: u64, x: bool) {
        self.0.on_timeout(w, n, f, x)
    }
    fn pacing_rate(&self, w: &CongestionWindow, s: Option<Span>) -> Option<u64> {
        self.0.pacing_rate(w, s)
    }
}
