//! The emulator between two namespaces of Linux: delay, lateness that is told, and nothing lost.
//!
//! Needs root; says `skipped:` without, and fails for that under CI=true. Left out: what models do to
//! frames, which `plumb_link` tests in virtual time.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "test code beside its tests")]

#[path = "emulate/bed.rs"]
mod bed;
#[path = "emulate/punctual.rs"]
mod punctual;
#[path = "emulate/trouble.rs"]
mod trouble;
