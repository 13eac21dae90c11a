//! plumb's vocabulary: time, units, seeds and statistics.
//!
//! Pure: nothing here reads a clock, asks the operating system anything, or keeps a global.
//! Deliberately left out: anything that knows what is measured, or where.
#![forbid(unsafe_code)]

pub mod cpu_list;
pub mod seed;
pub mod stats;
pub mod time;
pub mod units;
