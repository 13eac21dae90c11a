//! The report crate from outside: whole pages and terminal texts made from a synthetic document.
//!
//! The pages are also written to `target/tmp/`, to be looked at. Left out: real results.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test may stop at what it did not expect, and says aloud what it skips"
)]

mod chromium;
mod drawn;
mod fixture;
mod hosts;
mod network;
mod page;
mod stack;
mod text;
