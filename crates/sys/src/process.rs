//! Processes: signals, children, resource usage, and the trivial system calls that are measured.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Pid, Signal, WaitOptions};

use crate::{check, check_len};

/// PR_SET_PDEATHSIG: the kernel kills this process when the thread that started it dies. `lifeline` is a pipe or
/// socket whose other end the parent holds: by it a parent is seen that died before the kernel was asked.
///
/// # Errors
/// EPIPE when the parent is gone.
pub fn set_parent_death_signal(lifeline: BorrowedFd<'_>) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if crate::fd::is_hung_up(lifeline)? {
        return Err(Errno::PIPE.into());
    }
    Ok(())
}

/// The same for what `command` starts, but not for what that starts in turn. The thread that calls this starts it.
pub fn kill_child_with_parent(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: between fork and exec the call makes two system calls and takes no lock; an error is a plain number.
    unsafe { command.pre_exec(move || die_with(parent)) };
}

/// PR_SET_PDEATHSIG in a child of `parent`.
///
/// # Errors
/// ESRCH when the parent died before the kernel was asked.
fn die_with(parent: u32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent outside the PID namespace has no number, before its death and after.
    if ![parent, 0].contains(&parent_id()) {
        return Err(Errno::SRCH.into());
    }
    Ok(())
}

/// PR_SET_PTRACER: lets any process of the same user trace this one, where the Yama module restricts it.
///
/// # Errors
/// EINVAL without Yama, and so without restriction.
pub fn allow_tracing() -> io::Result<()> {
    Ok(rustix::process::set_ptracer(rustix::process::PTracer::Any)?)
}

/// getppid(2); 0 where the parent is outside this process's PID namespace.
pub fn parent_id() -> u32 {
    // Not by rustix: rustc 1.95 compiles `map_or(0, …)` of a nonzero number's `unsigned_abs` so that the result never equals 0.
    // SAFETY: takes no arguments.
    unsafe { libc::getppid() }.unsigned_abs()
}

/// gettid(2).
pub fn thread_id() -> u32 {
    number(rustix::thread::gettid())
}

fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

/// # Errors
/// ESRCH for what is no process's number; 0 and negative numbers would address groups.
fn pid(number: u32) -> io::Result<Pid> {
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
}

/// geteuid(2).
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// getegid(2).
pub fn effective_group() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Whether a process exists: kill(2) with signal 0.
pub fn exists(process: u32) -> bool {
    pid(process).is_ok_and(|pid| {
        matches!(rustix::process::test_kill_process(pid), Ok(()) | Err(Errno::PERM))
    })
}

/// setsid(2): a new session without a controlling terminal.
///
/// # Errors
/// EPERM for the leader of a process group.
pub fn start_session() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// kill(2).
///
/// # Errors
/// ESRCH where there is no such process, EPERM where it is another user's.
pub fn signal(process: u32, signal: i32) -> io::Result<()> {
    // SAFETY: takes plain numbers.
    check(unsafe { libc::kill(pid(process)?.as_raw_nonzero().get(), signal) })?;
    Ok(())
}

/// SIGKILL to a process group whose leader has not been waited for.
///
/// # Errors
/// ESRCH where there is no such group.
pub fn kill_group(leader: u32) -> io::Result<()> {
    // Group 1 would be everybody.
    let group = pid(leader)
        .and_then(|group| if group.is_init() { Err(Errno::SRCH.into()) } else { Ok(group) });
    Ok(rustix::process::kill_process_group(group?, Signal::KILL)?)
}

/// SIGKILL to every other process of the PID namespace whose PID 1 this is.
///
/// # Errors
/// ESRCH where there is none; EPERM for any process but PID 1.
pub fn kill_all_others() -> io::Result<()> {
    if std::process::id() != 1 {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    // SAFETY: takes plain numbers.
    check(unsafe { libc::kill(-1, libc::SIGKILL) })?;
    Ok(())
}

/// waitpid(2) for any child: its number, and its status as of wait(2). With `wait`, blocks until one has ended.
///
/// # Errors
/// ECHILD without children, EINTR when a signal was handled first.
pub fn wait_any(wait: bool) -> io::Result<Option<(u32, i32)>> {
    let options = if wait { WaitOptions::empty() } else { WaitOptions::NOHANG };
    let ended = rustix::process::wait(options)?;
    Ok(ended.map(|(pid, status)| (number(pid), status.as_raw())))
}

/// mlockall(2) of all present and future pages.
///
/// # Errors
/// EPERM or ENOMEM above RLIMIT_MEMLOCK, without CAP_IPC_LOCK.
pub fn lock_memory() -> io::Result<()> {
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE)?)
}

/// What getrusage(2) says about the calling process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceUsage {
    /// User time in nanoseconds (of microsecond grain).
    pub user_ns: u64,
    /// System time in nanoseconds (of microsecond grain).
    pub system_ns: u64,
    /// Voluntary context switches.
    pub switches_voluntary: u64,
    /// Involuntary context switches.
    pub switches_involuntary: u64,
    /// Minor and major page faults.
    pub page_faults: u64,
}

/// getrusage(2) of the calling process.
#[expect(clippy::cast_sign_loss, reason = "the kernel counts upwards from zero")]
pub fn usage() -> io::Result<ResourceUsage> {
    // SAFETY: a rusage is plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid to write.
    check(unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) })?;
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    Ok(ResourceUsage {
        user_ns: ns(usage.ru_utime),
        system_ns: ns(usage.ru_stime),
        switches_voluntary: usage.ru_nvcsw as u64,
        switches_involuntary: usage.ru_nivcsw as u64,
        page_faults: usage.ru_minflt as u64 + usage.ru_majflt as u64,
    })
}

/// process_vm_writev(2): copies bytes to an address in another process.
#[inline]
pub fn write_memory(pid: u32, address: u64, bytes: &[u8]) -> io::Result<usize> {
    let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let address = usize::try_from(address).map_err(|_| invalid())?;
    let remote =
        libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: bytes.len() };
    let pid = libc::pid_t::try_from(pid).map_err(|_| invalid())?;
    // SAFETY: `local` describes readable bytes, which are not written; the kernel checks `remote`.
    check_len(unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) })
}

/// The trivial kernel calls that are measured, each through the raw `syscall` instruction of
/// libc's syscall(2) and through libc's own wrapper.
pub mod call {
    use super::{AsRawFd, BorrowedFd};

    /// getpid by number.
    #[inline]
    pub fn getpid_raw() -> i64 {
        // SAFETY: takes no arguments.
        unsafe { libc::syscall(libc::SYS_getpid) }
    }

    /// getpid(2).
    #[inline]
    pub fn getpid_libc() -> i64 {
        // SAFETY: takes no arguments.
        i64::from(unsafe { libc::getpid() })
    }

    /// getppid by number.
    #[inline]
    pub fn getppid_raw() -> i64 {
        // SAFETY: takes no arguments.
        unsafe { libc::syscall(libc::SYS_getppid) }
    }

    /// getppid(2).
    #[inline]
    pub fn getppid_libc() -> i64 {
        // SAFETY: takes no arguments.
        i64::from(unsafe { libc::getppid() })
    }

    /// getuid by number.
    #[inline]
    pub fn getuid_raw() -> i64 {
        // SAFETY: takes no arguments.
        unsafe { libc::syscall(libc::SYS_getuid) }
    }

    /// getuid(2).
    #[inline]
    pub fn getuid_libc() -> i64 {
        // SAFETY: takes no arguments.
        i64::from(unsafe { libc::getuid() })
    }

    /// A call number that no kernel has: entry and exit, and nothing between.
    #[inline]
    pub fn invalid_raw() -> i64 {
        // SAFETY: the kernel answers ENOSYS to an unknown number.
        unsafe { libc::syscall(0xFFFF) }
    }

    /// read of no bytes by number.
    #[inline]
    pub fn read_zero_raw(fd: BorrowedFd<'_>) -> i64 {
        // SAFETY: zero bytes are written to a null buffer.
        unsafe {
            libc::syscall(libc::SYS_read, fd.as_raw_fd(), std::ptr::null_mut::<u8>(), 0_usize)
        }
    }

    /// read(2) of no bytes.
    #[inline]
    pub fn read_zero_libc(fd: BorrowedFd<'_>) -> i64 {
        // SAFETY: zero bytes are written to a null buffer.
        i64::try_from(unsafe { libc::read(fd.as_raw_fd(), std::ptr::null_mut(), 0) }).unwrap_or(-1)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_child_whose_parent_is_gone_already_does_not_start() {
        let (reader, writer) = crate::fd::pipe().unwrap();
        let start = |lifeline: BorrowedFd<'static>| {
            let mut command = Command::new("true");
            // SAFETY: makes two system calls.
            unsafe { command.pre_exec(move || set_parent_death_signal(lifeline)) };
            command.spawn().map(|mut child| child.wait().unwrap().success())
        };
        // SAFETY: the descriptor is open until the end of the test.
        let lifeline = unsafe { BorrowedFd::borrow_raw(reader.as_fd().as_raw_fd()) };
        assert!(start(lifeline).unwrap());
        drop(writer);
        // A child that another test has forked holds a copy of the writer until its exec.
        let error = (0..1_000).find_map(|_| start(lifeline).err());
        assert_eq!(error.and_then(|error| error.raw_os_error()), Some(libc::EPIPE));

        for (parent, expected) in [(std::process::id(), None), (1_u32 << 30, Some(libc::ESRCH))] {
            let mut command = Command::new("true");
            // SAFETY: makes two system calls.
            unsafe { command.pre_exec(move || die_with(parent)) };
            let error = command.spawn().map(|mut child| child.wait()).err();
            assert_eq!(error.and_then(|error| error.raw_os_error()), expected);
        }
    }
}
