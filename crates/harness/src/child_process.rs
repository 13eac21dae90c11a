//! A process that a worker starts and speaks with over a control socket: how it begins, and how it ends.
//!
//! Left out: what they say to each other.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use plumb_netdev::lab::adopt_fd;
use plumb_sys::socket::{self, UnixSocketKind};
use plumb_sys::{fd, process, sched, signal, timer};

use crate::channel::{IoResultExt as _, OpenError, TICK_US};
use crate::control_page::ControlPage;
use crate::control_socket::ControlSocket;

/// This same binary.
pub(super) const SELF_EXE: &str = "/proc/self/exe";

/// Starts a program as the peer, its control socket inherited by number.
pub(super) fn start_peer(program: &Path, word: &str, control: &OwnedFd) -> io::Result<Child> {
    Command::new(program)
        .arg(word)
        .arg(control.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
}

/// The process as the worker knows it; killed when forgotten.
#[derive(Debug)]
pub(super) struct ChildProcess {
    child: Child,
    /// It ends when this is closed.
    pub(super) control: ControlSocket,
}

impl ChildProcess {
    /// Starts this program again by a hidden subcommand; `what` it is, for who is told that it cannot.
    pub(super) fn start(word: &str, what: &'static str) -> Result<Self, OpenError> {
        let (own, theirs) =
            socket::pair(UnixSocketKind::Stream).attempt("make a control socket")?;
        fd::set_inheritable(theirs.as_fd(), true).attempt("hand a descriptor over")?;
        let child = start_peer(Path::new(SELF_EXE), word, &theirs).attempt(what)?;
        Ok(Self { child, control: ControlSocket::new(own) })
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for ChildProcess {
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
    process::set_parent_death_signal()?;
    signal::ignore_keyboard_interrupt()?;
    adopt_fd(number)
}

/// Takes its place on a CPU, lets its clock tick, and opens the page that it shares with the worker.
pub(super) fn set_up_process(cpu: Option<u32>, page_fd: i32) -> io::Result<ControlPage> {
    if let Some(cpu) = cpu {
        sched::bind(&[cpu])?;
    }
    timer::start_periodic_tick(TICK_US)?;
    ControlPage::open(&fd::adopt(page_fd)?)
}
