//! Devices on real interfaces, with Linux at the other end.
//!
//! Needs root; says `skipped:` without, and fails for that under CI=true.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "test code beside its tests")]

#[path = "support/allowed.rs"]
mod allowed;
#[path = "devices/bed.rs"]
mod bed;
#[path = "devices/mirror.rs"]
mod mirror;
#[path = "devices/packet.rs"]
mod packet;
#[path = "devices/xdp.rs"]
mod xdp;
