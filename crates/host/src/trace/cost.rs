//! What the probes themselves cost: round trips with them against round trips without, in turn.
//!
//! Left out: taking turns, which the harness does.

/// The mean round trip with and without probes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbeCost {
    /// With them, in nanoseconds.
    pub with_ns: f64,
    /// Without any open, in nanoseconds: see [`super::Recorder`].
    pub without_ns: f64,
}

impl ProbeCost {
    /// Above this share of the round trip a breakdown is corrected for its probes.
    pub const SHARE_MAX: f64 = 0.03;

    /// The probes' cost as a share of the round trip without them.
    pub fn share(&self) -> f64 {
        (self.with_ns - self.without_ns) / self.without_ns
    }

    /// Whether a breakdown must be corrected for it.
    pub fn must_be_corrected(&self) -> bool {
        self.share() > Self::SHARE_MAX
    }

    /// The cost of one hit, in nanoseconds, when there are so many on a round trip.
    ///
    /// Every hit is taken to cost the same, half of it before its time is read and half after. The
    /// mean error of a part is then at most half a hit for each of its edges.
    pub fn per_event_ns(&self, events_per_trip: f64) -> f64 {
        if events_per_trip > 0.0 { (self.with_ns - self.without_ns) / events_per_trip } else { 0.0 }
    }
}
