//! Signals: requests to stop and to report, Ctrl-C and its like, counted instead of obeyed at once; and
//! the limit on the size of files, which is an error of the write.

use std::io;

use plumb_base::time::Span;
use plumb_sys::{signal, timer};

/// Counts SIGINT, SIGTERM and SIGHUP from now on, instead of dying of them.
pub fn count_stop_requests() -> io::Result<()> {
    signal::count_stop_requests()
}

/// Requests so far: one means to stop after the block under way, two to stop at once.
pub fn stop_requests() -> u32 {
    signal::stop_requests()
}

/// Has a write beyond the limit on the size of files fail instead of ending this process; programs
/// that it starts are not concerned.
pub fn ignore_file_size_signal() -> io::Result<()> {
    signal::handle_file_size_limit()
}

/// Counts SIGUSR1 from now on: a request to say how things stand.
pub fn count_status_requests() -> io::Result<()> {
    signal::count_status_requests()
}

/// Requests for the state of things so far.
pub fn status_requests() -> u32 {
    signal::status_requests()
}

/// Interrupts whatever this process blocks in, again and again, so that a request that came just
/// before it blocked is seen after this long.
///
/// # Errors
/// The kernel's.
pub fn interrupt_every(period: Span) -> io::Result<()> {
    let us = u32::try_from(period.as_ns() / 1_000).unwrap_or(u32::MAX).max(1);
    timer::start_periodic_tick(us)
}
