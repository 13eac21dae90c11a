//! The project's own chores, as a library so that tests can call them.
#![forbid(unsafe_code)]

mod files;
pub mod peer_bench;
pub mod stats;
pub mod tidy;
