//! The harness: fresh processes, one of which does all the timing.
//!
//! `launcher` is the orchestrator's side, `worker` and `peer` the two processes of a launch; `subordinate` is how those begin that a worker starts;
//! `mirror` is a launch whose peer is a stack, `streams` one of many connections at once, `visits` one of a web page; `steward` starts the far process where that is on another host; `partner` is the peer, wherever it is; `bench`, `calls` and `clocks` are what is timed, `sampler` what becomes of the samples.

mod bench;
mod calls;
pub mod canary;
pub mod checksums;
mod clocks;
mod control;
mod effort;
mod frame;
pub mod launcher;
pub mod mirror;
mod page;
mod partner;
mod payload;
pub mod peer;
pub mod remote;
mod sampler;
pub mod spec;
pub mod steward;
pub mod streams;
mod subordinate;
pub mod visits;
pub mod worker;
