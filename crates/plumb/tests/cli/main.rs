//! The built binary as a user meets it: words in, pages and exit codes out.
//!
//! Left out: what the numbers are; only that they are there, and that trouble is told.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod documents;
mod explanation;
mod interruption;
mod pages;
mod program;
mod trouble;
mod usage;
