//! A tree of processes that ends as one: whichever way its keeper or its root ends, the kernel kills
//! everything below.
//!
//! The root is process 1 of a process namespace, and dies with the keeper; both may pass signals on to
//! the command inside. Left out: what runs inside.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use plumb_sys::{fd, namespace, process, signal};

use super::{LabError, become_root};

/// What the keeper and the root do about requests to end or to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signals {
    /// Die of them, and with them everything inside; the keyboard's are left to whatever runs inside.
    Obey,
    /// Pass them on to the command, whose end is then everybody's.
    PassOn,
}

impl Signals {
    fn listen(self) -> io::Result<()> {
        match self {
            Self::Obey => signal::count_keyboard_requests(),
            Self::PassOn => signal::pass_on(),
        }
    }
}

/// Runs this program again as the root of a tree of processes and waits until it ends; the keeper.
///
/// `arguments` makes its arguments from the number of a descriptor, which the root must give to
/// [`Contained::begin`]. Needs a process of one thread, and leaves it one that cannot start any.
///
/// # Errors
/// As [`become_root`]; the kernel refuses a process namespace; the program cannot be started.
pub fn contain(
    signals: Signals,
    arguments: impl FnOnce(RawFd) -> Vec<OsString>,
) -> Result<ExitStatus, LabError> {
    become_root()?;
    namespace::leave_processes_and_mounts().map_err(LabError::no_tree)?;
    let refused = |error| LabError::refused("start the test bed's own process", error);
    let (lifeline, _held) = fd::pipe().map_err(refused)?;
    fd::set_inheritable(lifeline.as_fd(), true).map_err(refused)?;
    signals.listen().map_err(refused)?;
    let program = std::env::current_exe().map_err(refused)?;
    let mut root =
        Command::new(program).args(arguments(lifeline.as_raw_fd())).spawn().map_err(refused)?;
    drop(lifeline);
    signal::set_heir(root.id());
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
    pub fn begin(lifeline: RawFd, signals: Signals) -> Result<Self, LabError> {
        let refused = |error| LabError::refused("join the process that started this one", error);
        process::die_with_parent().map_err(refused)?;
        let lifeline = fd::adopt(lifeline).map_err(refused)?;
        // The keeper may have ended before the kernel was asked to tell.
        if fd::is_hung_up(lifeline.as_fd()).map_err(refused)? {
            return Err(LabError::Orphaned);
        }
        fd::set_inheritable(lifeline.as_fd(), false).map_err(refused)?;
        signals.listen().map_err(refused)?;
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

    /// Starts a command, and waits until it has ended, as process 1 must: whatever has lost its parent
    /// is taken note of too. What the command has left running is ended then, and counted.
    ///
    /// # Errors
    /// What `start` says; the kernel's.
    pub fn run(&self, start: impl FnOnce() -> io::Result<u32>) -> io::Result<Ended> {
        let command = start()?;
        signal::set_heir(command);
        let status = loop {
            match process::wait_any(true) {
                Ok(Some((child, status))) if child == command => break status,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        signal::set_heir(0);
        Ok(Ended { status: ExitStatus::from_raw(status), left: end_all_others() })
    }

    /// Waits until `stop` says something or nobody can any more, as process 1 must; then ends every other
    /// process.
    pub fn stay(&self, stop: &Receiver<()>) {
        /// How long a process that has ended may stay in the list of processes.
        const LOOK_EVERY: Duration = Duration::from_millis(200);
        while stop.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            while let Ok(Some(_)) = process::wait_any(false) {}
        }
        end_all_others();
    }
}

/// Asks the command that [`Contained::run`] waits for, or will, to end: SIGTERM.
pub fn end_heir() {
    signal::end_heir();
}

/// Ends every process of the tree but its root, which this is one of, as one does that obeys nobody:
/// SIGKILL.
pub fn end_others() {
    process::kill_all_others().ok();
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its own end.
    pub status: ExitStatus,
    /// Processes that it left running, which were ended.
    pub left: u64,
}

/// Ends every other process of the tree, and counts those that had not ended by themselves.
fn end_all_others() -> u64 {
    while let Ok(Some(_)) = process::wait_any(false) {}
    if process::kill_all_others().is_err() {
        return 0;
    }
    let mut count = 0;
    loop {
        match process::wait_any(true) {
            Ok(_) => count += 1,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return count,
        }
    }
}
