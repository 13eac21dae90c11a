//! The harness: fresh processes, one of which does all the timing.

pub mod spec;
