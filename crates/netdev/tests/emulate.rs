//! The emulator between two namespaces of Linux: delay, lateness that is told, and nothing lost.
//!
//! Needs root; says `skipped:` without, and fails for that under CI=true.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "test code beside its tests")]

#[path = "emulate/bed.rs"]
mod bed;
#[path = "emulate/overload.rs"]
mod overload;
#[path = "emulate/punctual.rs"]
mod punctual;
