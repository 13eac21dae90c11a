//! Where a round trip goes inside Linux, seen from outside: tracepoints, read through perf rings.
//!
//! A [`Recorder`] writes what the kernel does for two processes into rings mapped before; they are
//! decoded after a block into a [`Timeline`], and a [`Breakdown`] cuts each round trip at its events
//! into consecutive parts and an explicit *unexplained* rest, which together are the whole
//! (rule 18). [`ProbeCost`] is what looking costs. Left out: BPF, probes of our own in the kernel,
//! and any tracer outside this program.

mod breakdown;
mod cost;
mod part;
mod path;
mod recorder;
mod timeline;
mod tracepoint;

pub use breakdown::{Breakdown, Corrected, PartTimes};
pub use cost::ProbeCost;
pub use part::{Leg, Part};
pub use path::{RoundTrip, Shape};
pub use recorder::{Recorder, TraceUnavailable};
pub use timeline::{Call, Event, Gap, Kind, Timeline};
pub use tracepoint::{EventSet, Tracepoint};
