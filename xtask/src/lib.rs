//! The project's own chores, as a library so that tests can call them.
//!
//! Left out: anything a user of plumb needs; that is the `plumb` binary.
#![forbid(unsafe_code)]

pub mod race;
pub mod tidy;
