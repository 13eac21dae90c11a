//! The notes of a run about the other host that it was measured against.
//!
//! Left out: what they say about it, which is whatever that host has told.

/// What the names of all of them begin with.
pub const PREFIX: &str = "host.";
/// What the host was called.
pub const NAME: &str = "host.name";
/// The addresses that data went to.
pub const ADDRESS: &str = "host.address";
/// The version of plumb there.
pub const VERSION: &str = "host.plumb";
/// How long a connection to it took when the run began, in nanoseconds: a condition of the moment.
pub const ROUND_TRIP: &str = "host.round_trip_ns";
/// The options that reached it.
pub const OPTIONS: &str = "host.options";
/// Its kernel.
pub const KERNEL: &str = "host.kernel.release";
/// Its processor.
pub const PROCESSOR: &str = "host.cpu.model";
/// The congestion control that its sockets have unless told otherwise.
pub const CONGESTION: &str = "host.net.ipv4.tcp_congestion_control";
/// The command that measured a run without a plan, and does so again.
pub const COMMAND: &str = "net.command";
/// Why the run ended early, where the host was no longer reached.
pub const LOST: &str = "host.lost";

/// Whether a note is a setting of the host, which could be another one next time.
pub fn is_setting(name: &str) -> bool {
    name.starts_with(PREFIX) && ![ROUND_TRIP, OPTIONS, LOST].contains(&name)
}
