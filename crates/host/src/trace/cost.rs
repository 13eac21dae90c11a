//! What the probes themselves cost: round trips with them against round trips without, in turn.
//!
//! Left out: taking turns, which the harness does.

use plumb_base::stats::quantile;
use plumb_sys::process::{call, thread_id};

use super::recorder::{Recorder, TraceUnavailable};
use super::tracepoint::EventSet;
use crate::clock::Stopwatch;

/// The round trip with and without probes, and what one hit costs by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbeCost {
    /// The mean round trip with them, in nanoseconds.
    pub with_ns: f64,
    /// The mean round trip without any open, in nanoseconds: see [`Recorder`].
    pub without_ns: f64,
    /// One hit, in nanoseconds, by [`Self::measure_hit_ns`].
    pub hit_ns: f64,
}

/// Calls timed at once, and how often.
const CALLS: u32 = 200;
const TRIALS: u32 = 50;

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

    /// The cost of a hit on this CPU, in nanoseconds: a trivial system call with its entry and exit
    /// recorded, against the same with no probe open. The calling thread must stay on `cpu`.
    ///
    /// # Errors
    /// As [`Recorder::open`].
    pub fn measure_hit_ns(cpu: u32, watch: Stopwatch) -> Result<f64, TraceUnavailable> {
        let median = || {
            let times: Vec<f64> = (0..TRIALS)
                .map(|_| {
                    let start = watch.begin();
                    for _ in 0..CALLS {
                        call::getppid_raw();
                    }
                    watch.ns(watch.end().wrapping_sub(start)) / f64::from(CALLS)
                })
                .collect();
            quantile::of_sorted(&quantile::sorted(&times), 0.5)
        };
        let without = median();
        let recorder = Recorder::open(&[thread_id()], &[cpu], EventSet::pipe(), watch)?;
        let what = "raw_syscalls";
        recorder.enable().map_err(|source| TraceUnavailable::Failed { what, source })?;
        let with = median();
        Ok(((with - without) / 2.0).max(0.0))
    }
}
