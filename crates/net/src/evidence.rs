//! What could explain a result: read at every interval, on both sides, while the test runs.
//!
//! Left out: what it explains.

pub mod counters;
pub mod host;
pub mod tcp;
