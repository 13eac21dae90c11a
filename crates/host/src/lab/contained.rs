//! A tree of processes that ends as one: whichever way its keeper or its root ends, the kernel kills
//! everything below.
//!
//! The root is process 1 of a process namespace, and dies with the keeper. Left out: what runs
//! inside.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::process::{Command, ExitStatus};

use plumb_sys::{fd, namespace, process, signal};

use super::{LabError, become_root};

/// Runs this program again as the root of a tree of processes and waits until it ends; the keeper.
///
/// `arguments` makes its arguments from the number of a descriptor, which the root must give to
/// [`Contained::begin`]. Needs a process of one thread, and leaves it one that cannot start any.
/// The keyboard's interrupt is left to whatever runs inside.
///
/// # Errors
/// As [`become_root`]; the kernel refuses a process namespace; the program cannot be started.
pub fn contain(arguments: impl FnOnce(RawFd) -> Vec<OsString>) -> Result<ExitStatus, LabError> {
    become_root()?;
    namespace::leave_processes_and_mounts()
        .map_err(|error| LabError::refused("make a process namespace", error))?;
    let refused = |error| LabError::refused("start the test bed's own process", error);
    let (lifeline, _held) = fd::pipe().map_err(refused)?;
    fd::set_inheritable(lifeline.as_fd(), true).map_err(refused)?;
    signal::count_keyboard_requests().map_err(refused)?;
    let program = std::env::current_exe().map_err(refused)?;
    let mut root =
        Command::new(program).args(arguments(lifeline.as_raw_fd())).spawn().map_err(refused)?;
    drop(lifeline);
    let status = root.wait().map_err(refused)?;
    // A shell inside could not give the terminal back to a group that it does not see.
    let terminal = io::stdin();
    if terminal.is_terminal() {
        signal::take_terminal(terminal.as_fd()).ok();
    }
    Ok(status)
}

/// The root of a tree of processes that ends as one.
#[derive(Debug)]
pub struct Contained {
    _lifeline: OwnedFd,
    /// Its number outside, where it is 1 inside.
    pub process_outside: u32,
    /// Whether /proc shows the processes inside, and not those outside.
    pub has_own_proc: bool,
    /// Whether root inside is another user outside.
    pub in_user_namespace: bool,
}

impl Contained {
    /// Becomes it, with the descriptor that [`contain`] gave.
    ///
    /// # Errors
    /// [`LabError::Orphaned`] when the keeper has ended already.
    pub fn begin(lifeline: RawFd) -> Result<Self, LabError> {
        let refused = |error| LabError::refused("join the process that started this one", error);
        process::die_with_parent().map_err(refused)?;
        let lifeline = fd::adopt(lifeline).map_err(refused)?;
        // The keeper may have ended before the kernel was asked to tell.
        if fd::is_hung_up(lifeline.as_fd()).map_err(refused)? {
            return Err(LabError::Orphaned);
        }
        fd::set_inheritable(lifeline.as_fd(), false).map_err(refused)?;
        signal::count_keyboard_requests().map_err(refused)?;
        let process_outside = fs::read_link("/proc/self")
            .ok()
            .and_then(|name| name.to_str()?.parse().ok())
            .unwrap_or_else(std::process::id);
        namespace::keep_mounts_private().map_err(refused)?;
        // Refused in containers that hide parts of /proc: tools inside then see the outer numbers.
        let has_own_proc = namespace::mount_proc().is_ok();
        // user_namespaces(7): the first namespace maps every user to itself.
        let in_user_namespace = fs::read_to_string("/proc/self/uid_map")
            .is_ok_and(|map| !map.split_whitespace().eq(["0", "0", "4294967295"]));
        Ok(Self { _lifeline: lifeline, process_outside, has_own_proc, in_user_namespace })
    }
}
