//! A process that a worker starts and speaks with over a control socket: how it begins, and how it ends.
//!
//! Left out: what they say to each other.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::Child;

use plumb_sys::socket::{self, Kind};
use plumb_sys::{affinity, fd, process, signal, timer};

use super::control::Control;
use super::page::Page;
use super::worker::{SELF, TICK_US, start_peer};
use crate::lab::adopt;
use crate::local::{Attempt as _, OpenError};

/// The process as the worker knows it; killed when forgotten.
#[derive(Debug)]
pub(super) struct Subordinate {
    child: Child,
    /// It ends when this is closed.
    pub(super) control: Control,
}

impl Subordinate {
    /// Starts this program again by a hidden subcommand; `what` it is, for who is told that it cannot.
    pub(super) fn start(word: &str, what: &'static str) -> Result<Self, OpenError> {
        let (own, theirs) = socket::pair(Kind::Stream).attempt("make a control socket")?;
        fd::set_inheritable(theirs.as_fd(), true).attempt("hand a descriptor over")?;
        let child = start_peer(Path::new(SELF), word, &theirs).attempt(what)?;
        Ok(Self { child, control: Control::new(own) })
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Subordinate {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is reaped here.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

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
