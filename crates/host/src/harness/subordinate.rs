//! How every process begins that a worker starts and speaks with over a control socket.
//!
//! Left out: what they say to each other.

use std::io;
use std::os::fd::OwnedFd;

use plumb_sys::{affinity, fd, process, signal, timer};

use super::page::Page;
use super::worker::TICK_US;
use crate::lab::adopt;

/// Serves over the inherited control socket that the second argument names; the exit code of it.
pub(super) fn main(serve: impl FnOnce(OwnedFd) -> io::Result<()>) -> u8 {
    match control_fd().and_then(serve) {
        Ok(()) => 0,
        // The worker sees the closed control socket and says what it was doing.
        Err(_) => 1,
    }
}

fn control_fd() -> io::Result<OwnedFd> {
    let number = std::env::args().nth(2).and_then(|number| number.parse().ok());
    let number = number.ok_or(io::ErrorKind::InvalidInput)?;
    process::die_with_parent()?;
    signal::ignore_keyboard_interrupt()?;
    adopt(number)
}

/// Takes its place on a CPU, lets its clock tick, and opens the page that it shares with the worker.
pub(super) fn settle(cpu: Option<u32>, page_fd: i32) -> io::Result<Page> {
    if let Some(cpu) = cpu {
        affinity::bind(&[cpu])?;
    }
    timer::start_ticking(TICK_US)?;
    Page::open(&fd::adopt(page_fd)?)
}
