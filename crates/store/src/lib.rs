//! Runs on disk: records, the SQLite store, import from other tools and export to them.
//!
//! Left out: what the numbers mean (`plumb-analysis`) and how they are made (`plumb-harness`).
//! Nothing here reads a clock or draws a random number: both are arguments.
#![forbid(unsafe_code)]

pub mod export;
pub mod import;
pub mod lock;
pub mod record;
pub mod sqlite;
