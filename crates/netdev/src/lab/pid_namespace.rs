//! A tree of processes that ends as one: whichever way its keeper or its root ends, the kernel kills
//! everything below.
//!
//! The root is process 1 of a process namespace, and dies with the keeper; both may pass signals on to
//! the command inside.

use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use plumb_sys::namespace::{self, NamespaceKind};
use plumb_sys::{fd, process, sched, signal, socket};

use crate::lab::{LabError, NetNamespace, become_root};

/// What the keeper and the root do about requests to end or to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalPolicy {
    /// Die of them, and with them everything inside; the keyboard's are left to whatever runs inside.
    Die,
    /// Pass them on to the command, whose end is then everybody's.
    Forward,
}

impl SignalPolicy {
    fn install(self) -> io::Result<()> {
        match self {
            Self::Die => signal::count_keyboard_requests(),
            Self::Forward => signal::forward_signals(),
        }
    }
}

/// Runs this program again as the root of a tree of processes and waits until it ends; the keeper.
///
/// `arguments` makes its arguments from the number of a descriptor, which the root must give to
/// `PidNamespaceInit::begin`. Needs a process of one thread, and leaves it one that cannot start any.
///
/// # Errors
/// As [`become_root`]; the kernel refuses a process namespace; the program cannot be started.
pub fn run_in_pid_namespace(
    signals: SignalPolicy,
    arguments: impl FnOnce(RawFd) -> Vec<OsString>,
) -> Result<ExitStatus, LabError> {
    become_root()?;
    namespace::unshare_processes_and_mounts().map_err(LabError::from_pidns_error)?;
    let refused = |error| LabError::refused("start the test bed's own process", error);
    let (lifeline, _held) = fd::pipe().map_err(refused)?;
    fd::set_inheritable(lifeline.as_fd(), true).map_err(refused)?;
    signals.install().map_err(refused)?;
    let program = std::env::current_exe().map_err(refused)?;
    let mut root =
        Command::new(program).args(arguments(lifeline.as_raw_fd())).spawn().map_err(refused)?;
    drop(lifeline);
    signal::set_forward_target(root.id());
    let status = root.wait().map_err(refused)?;
    // A shell inside could not give the terminal back to a group that it does not see.
    let terminal = io::stdin();
    if terminal.is_terminal() {
        signal::set_foreground_group(terminal.as_fd()).ok();
    }
    Ok(status)
}

/// The root of a tree of processes that ends as one.
#[derive(Debug)]
pub struct PidNamespaceInit {
    _lifeline: OwnedFd,
    /// Its number outside, where it is 1 inside.
    pub outer_pid: u32,
    /// Whether /proc shows the processes inside, and not those outside.
    pub has_own_proc: bool,
    /// Whether root inside is another user outside.
    pub in_user_namespace: bool,
}

impl PidNamespaceInit {
    /// Becomes it, with the descriptor that [`run_in_pid_namespace`] gave.
    ///
    /// # Errors
    /// [`LabError::Orphaned`] when the keeper has ended already.
    pub fn become_init(lifeline: RawFd, signals: SignalPolicy) -> Result<Self, LabError> {
        let refused = |error| LabError::refused("join the process that started this one", error);
        let lifeline = fd::adopt(lifeline).map_err(refused)?;
        process::set_parent_death_signal(lifeline.as_fd()).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => LabError::Orphaned,
            _ => refused(error),
        })?;
        signals.install().map_err(refused)?;
        let process_outside = fs::read_link("/proc/self")
            .ok()
            .and_then(|name| name.to_str()?.parse().ok())
            .unwrap_or_else(std::process::id);
        namespace::make_mounts_private().map_err(refused)?;
        // Refused in containers that hide parts of /proc: tools inside then see the outer numbers.
        let has_own_proc = namespace::mount_proc().is_ok();
        // user_namespaces(7): the first namespace maps every user to itself.
        let in_user_namespace = fs::read_to_string("/proc/self/uid_map")
            .is_ok_and(|map| !map.split_whitespace().eq(["0", "0", "4294967295"]));
        Ok(Self {
            _lifeline: lifeline,
            outer_pid: process_outside,
            has_own_proc,
            in_user_namespace,
        })
    }

    /// Starts a command, and waits until it has ended, as process 1 must: whatever has lost its parent
    /// is taken note of too. What the command has left running is ended then, and counted.
    ///
    /// # Errors
    /// What `start` says; the kernel's.
    pub fn run(&self, start: impl FnOnce() -> io::Result<u32>) -> io::Result<InitExit> {
        let command = start()?;
        signal::set_forward_target(command);
        let status = loop {
            match process::wait_any(true) {
                Ok(Some((child, status))) if child == command => break status,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        signal::set_forward_target(0);
        Ok(InitExit { status: ExitStatus::from_raw(status), killed: kill_and_reap_others() })
    }

    /// Waits until `stop` says something or nobody can any more, as process 1 must; then ends every other
    /// process.
    pub fn reap_until(&self, stop: &Receiver<()>) {
        /// How long a process that has ended may stay in the list of processes.
        const LOOK_EVERY: Duration = Duration::from_millis(200);
        while stop.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            while let Ok(Some(_)) = process::wait_any(false) {}
        }
        kill_and_reap_others();
    }
}

/// Asks the command that [`PidNamespaceInit::run`] waits for, or will, to end: SIGTERM.
pub fn terminate_command() {
    signal::terminate_forward_target();
}

/// Ends every process of the tree but its root, which this is one of, as one does that obeys nobody:
/// SIGKILL.
pub fn kill_others() {
    process::kill_all_others().ok();
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitExit {
    /// Its own end.
    pub status: ExitStatus,
    /// Processes that it left running, which were ended.
    pub killed: u64,
}

/// Ends every other process of the tree, and counts those that had not ended by themselves.
fn kill_and_reap_others() -> u64 {
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

/// What the kinds are called under /proc/self/ns, in the order in which they are entered: rights
/// first.
const KINDS: [(&str, NamespaceKind); 3] = [
    ("user", NamespaceKind::User),
    ("mnt", NamespaceKind::Mount),
    ("pid", NamespaceKind::ProcessID),
];

/// Descriptors of the namespaces of one host of a lab.
#[derive(Debug)]
pub struct NamespaceFds {
    fds: Vec<OwnedFd>,
}

impl NamespaceFds {
    /// Those of this process, with the network of a host.
    ///
    /// # Errors
    /// /proc is not mounted.
    pub fn of_this_process(network: &NetNamespace) -> Result<Self, LabError> {
        let refused = |error| LabError::refused("open the namespaces of this process", error);
        let mut fds: Vec<OwnedFd> = Vec::new();
        for (name, _) in KINDS {
            fds.push(File::open(format!("/proc/self/ns/{name}")).map_err(refused)?.into());
        }
        fds.push(network.as_fd().try_clone_to_owned().map_err(refused)?);
        Ok(Self { fds })
    }

    /// Hands them to whoever is at the other end.
    ///
    /// # Errors
    /// The kernel's.
    pub fn send(&self, socket: &UnixStream) -> io::Result<()> {
        let fds: Vec<_> = self.fds.iter().map(AsFd::as_fd).collect();
        socket::send_fds(socket.as_fd(), b"\n", &fds)?;
        Ok(())
    }

    /// Takes them.
    ///
    /// # Errors
    /// The other end has none, or is gone.
    pub fn receive(socket: &UnixStream) -> io::Result<Self> {
        let (_, fds) = socket::receive_fds(socket.as_fd(), &mut [0; 1])?;
        if fds.len() == KINDS.len() + 1 {
            Ok(Self { fds })
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    /// Goes in, runs a command there, and waits until it has ended; signals that ask this process to end are
    /// passed on to it, and where this process is killed, so is it. Needs a process of one thread, which stays
    /// inside.
    ///
    /// # Errors
    /// The kernel does not let this process in; the inner result is that of starting the command.
    pub fn run_inside(&self, command: &mut Command) -> Result<io::Result<ExitStatus>, LabError> {
        let refused = |error| LabError::refused("enter the lab", error);
        let place = std::env::current_dir().ok();
        let kinds = KINDS.iter().map(|&(_, kind)| kind).chain([NamespaceKind::Network]);
        for (fd, kind) in self.fds.iter().zip(kinds) {
            // The kernel refuses to enter the users that one is of already.
            if kind == NamespaceKind::User && is_own(fd).map_err(refused)? {
                continue;
            }
            namespace::enter(fd.as_fd(), kind).map_err(refused)?;
        }
        // Entering mounts leads to their root.
        if let Some(place) = place {
            command.current_dir(place);
        }
        signal::forward_signals().map_err(refused)?;
        process::kill_child_with_parent(command);
        Ok(command.spawn().and_then(|mut child| {
            signal::set_forward_target(child.id());
            child.wait()
        }))
    }
}

/// Whether a descriptor is of the user namespace that this process is in.
fn is_own(fd: &OwnedFd) -> io::Result<bool> {
    let own = fs::metadata("/proc/self/ns/user")?;
    let other = File::from(fd.try_clone()?).metadata()?;
    Ok((own.dev(), own.ino()) == (other.dev(), other.ino()))
}

/// Leaves the terminal and the session of whoever started this process.
///
/// # Errors
/// This process leads a group of its own.
pub fn leave_session() -> io::Result<()> {
    process::start_session()
}

/// Directories over which a file may be made for a moment.
const SCRATCH_MOUNT_POINTS: [&str; 4] = ["/mnt", "/srv", "/opt", "/var/tmp"];

/// Shows text at the place of a file that exists; of a symbolic link, at the place of what it leads
/// to. To be called in a tree of its own mounts: see `crate::lab::PidNamespaceInit::begin`.
///
/// # Errors
/// There is no such file; the kernel refuses a mount.
pub fn mount_text_over(place: &Path, text: &str) -> Result<(), LabError> {
    let refused = |error| LabError::refused(format!("show another {}", place.display()), error);
    let place = fs::canonicalize(place).map_err(refused)?;
    let directory = scratch_mount_point().map_err(refused)?;
    let directory_words = to_c_string(&directory).map_err(refused)?;
    namespace::mount_tmpfs(&directory_words).map_err(refused)?;
    let shown = || -> io::Result<()> {
        let file = directory.join("shown");
        fs::write(&file, text)?;
        namespace::bind_mount(&to_c_string(&file)?, &to_c_string(&place)?)
    };
    let outcome = shown();
    // The bind mount keeps the tmpfs alive.
    namespace::unmount(&directory_words).map_err(refused)?;
    outcome.map_err(refused)
}

/// Hides what is in a directory; nothing where there is none.
///
/// # Errors
/// The kernel refuses a mount.
pub fn hide_directory(place: &Path) -> Result<(), LabError> {
    let refused = |error| LabError::refused(format!("hide {}", place.display()), error);
    if !place.is_dir() {
        return Ok(());
    }
    namespace::mount_tmpfs(&to_c_string(place).map_err(refused)?).map_err(refused)
}

fn scratch_mount_point() -> io::Result<PathBuf> {
    let found = SCRATCH_MOUNT_POINTS.iter().map(PathBuf::from).find(|place| place.is_dir());
    found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

fn to_c_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)
}

/// The companion, and this side's socket; dropping it ends both.
#[derive(Debug)]
pub struct OutsideProcess {
    socket: Option<OwnedFd>,
    child: Child,
}

impl OutsideProcess {
    /// Starts it: this program with the arguments for the number of its descriptor.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(arguments: impl FnOnce(RawFd) -> Vec<String>) -> io::Result<Self> {
        let (own, its) = socket::pair(socket::UnixSocketKind::SeqPacket)?;
        fd::set_inheritable(its.as_fd(), true)?;
        let child = Command::new(std::env::current_exe()?)
            .args(arguments(its.as_raw_fd()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { socket: Some(own), child })
    }

    /// Lets the next process that this one starts have the socket; by which number.
    ///
    /// # Errors
    /// The kernel's.
    pub fn make_inheritable(&self) -> io::Result<RawFd> {
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        fd::set_inheritable(socket.as_fd(), true)?;
        Ok(socket.as_raw_fd())
    }
}

impl Drop for OutsideProcess {
    fn drop(&mut self) {
        // It ends when nobody holds the other end of its socket.
        drop(self.socket.take());
        self.child.wait().ok();
    }
}

/// A descriptor that this process was started with, which its children shall not have.
///
/// # Errors
/// It is not open.
pub fn adopt_fd(number: RawFd) -> io::Result<OwnedFd> {
    fd::adopt(number)
}

/// A division of the CPUs that this process may run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverPlacement {
    /// For the driver.
    pub driver_cpu: u32,
    other_cpus: Vec<u32>,
}

impl DriverPlacement {
    /// The last CPU for the driver; `None` where there is only one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn reserve_last_cpu() -> io::Result<Option<Self>> {
        let mut others = sched::allowed_cpus()?;
        let own = others.pop();
        Ok(own
            .filter(|_| !others.is_empty())
            .map(|own| Self { driver_cpu: own, other_cpus: others }))
    }

    /// Puts this thread, and what it starts from now on, on the CPUs that are not the driver's.
    ///
    /// # Errors
    /// The kernel's.
    pub fn bind_to_others(&self) -> io::Result<()> {
        sched::bind(&self.other_cpus)
    }

    /// Puts this thread on the driver's CPU.
    ///
    /// # Errors
    /// The kernel's.
    pub fn bind_to_driver_cpu(&self) -> io::Result<()> {
        sched::bind(&[self.driver_cpu])
    }
}
