//! Fuzz tests of the packet parsers and of a whole host: only a development dependency.
//!
//! Each body runs on stable Rust as an ordinary test, over frames from a [`mutator::FrameMutator`] or over random bytes,
//! and under libFuzzer (`make fuzz`) in `targets/`.
#![forbid(unsafe_code)]

pub mod host;
pub mod mutator;
pub mod parsers;
mod streams;
