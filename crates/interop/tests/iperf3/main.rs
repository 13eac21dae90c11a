//! iperf3's protocol over real sockets: plumb with plumb, plumb with iperf3 itself, and with clients that
//! mean no good.
//!
//! Interoperation needs iperf3; says `skipped:` without, and fails for that under CI=true.
//! `PLUMB_IPERF3` is the program, `PLUMB_IPERF3_RUNS` how many tests each way. Left out: how fast it is,
//! which is a race, and the command line.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops where it fails and says what it skips; so do its helpers"
)]

mod fixture;
mod hostile;
mod interoperation;
mod modes;
