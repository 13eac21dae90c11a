//! Requests to stop: Ctrl-C and its like, counted instead of obeyed at once.

use std::io;

use plumb_sys::signal;

/// Counts SIGINT, SIGTERM and SIGHUP from now on, instead of dying of them.
pub fn listen() -> io::Result<()> {
    signal::count_stop_requests()
}

/// Requests so far: one means to stop after the block under way, two to stop at once.
pub fn requests() -> u32 {
    signal::stop_requests()
}
