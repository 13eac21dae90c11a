//! Runs on disk.
#![forbid(unsafe_code)]

pub mod record;
