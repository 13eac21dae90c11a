//! Fuzz tests of the packet parsers, of a whole host and of a display: only a development dependency.
//!
//! Each body runs on stable Rust as an ordinary test, over frames from a [`mutator::FrameMutator`] or over random bytes,
//! and under libFuzzer (`make fuzz`) in `targets/`.
#![forbid(unsafe_code)]

pub mod display;
pub mod host;
pub mod mutator;
pub mod parsers;
mod streams;
