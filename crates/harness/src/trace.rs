//! Where a round trip goes inside Linux, seen from outside: tracepoints, read through perf rings.
//!
//! A [`TraceRecorder`] writes what the kernel does for two processes into rings mapped before; they are decoded after
//! a block into a [`TraceTimeline`], and a [`TraceBreakdown`] cuts each round trip at its events into consecutive parts
//! and an explicit *unexplained* rest, which together are the whole (rule 18). [`ProbeCost`] is what tracing costs.

mod breakdown;
mod path;
mod recorder;
mod tracepoint;

pub(crate) use breakdown::mean;
pub use breakdown::{CorrectedBreakdown, PartTimes, ProbeCost, TraceBreakdown};
pub use path::{PathPart, RoundTrip, RoundTripLeg, TracedThreads};
pub use recorder::{TraceGap, TraceRecorder, TraceTimeline};
pub use tracepoint::{
    SyscallKind, TraceEvent, TraceEventKind, TraceUnavailable, Tracepoint, TracepointSet,
};
