//! Processes: their CPU time, their parents, and trivial kernel calls.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::{check, check_len};

/// Asks the kernel to kill this process when its parent's thread dies: prctl(2).
pub fn die_with_parent() -> io::Result<()> {
    // SAFETY: takes plain numbers.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
    Ok(())
}

/// Has the kernel kill what `command` starts when the thread that starts it dies: prctl(2). What that one
/// starts in turn is not concerned.
pub fn end_with_starter(command: &mut Command) {
    let ask = || die_with_parent();
    // SAFETY: between fork and exec `ask` makes one system call and takes no lock; an error is a plain number.
    unsafe { command.pre_exec(ask) };
}

/// Lets any process of the same user trace this one, where the Yama module restricts it.
///
/// # Errors
/// EINVAL where there is no Yama, and so no restriction.
pub fn allow_tracing() -> io::Result<()> {
    // SAFETY: takes plain numbers.
    check(unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) })?;
    Ok(())
}

/// getppid(2).
pub fn parent_id() -> u32 {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::getppid() }.unsigned_abs()
}

/// gettid(2).
pub fn thread_id() -> u32 {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::gettid() }.unsigned_abs()
}

/// The effective user.
pub fn effective_user() -> u32 {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// The effective group.
pub fn effective_group() -> u32 {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::getegid() }
}

/// Whether a process exists: kill(2) with signal 0.
pub fn exists(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    // SAFETY: signal 0 only checks.
    match check(unsafe { libc::kill(pid, 0) }) {
        Ok(_) => true,
        Err(error) => error.raw_os_error() == Some(libc::EPERM),
    }
}

/// setsid(2): this process leaves its terminal, and leads a session of its own.
///
/// # Errors
/// EPERM where it leads a group already.
pub fn leave_session() -> io::Result<()> {
    // SAFETY: takes no arguments.
    check(unsafe { libc::setsid() })?;
    Ok(())
}

/// kill(2).
///
/// # Errors
/// ESRCH where there is no such process, EPERM where it is another's.
pub fn signal(pid: u32, signal: i32) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    // SAFETY: takes plain numbers.
    check(unsafe { libc::kill(pid, signal) })?;
    Ok(())
}

/// killpg(3) with SIGKILL: every process of the group that `leader`, which is not waited for yet, has begun.
///
/// # Errors
/// ESRCH where there is no such group.
pub fn kill_group(leader: u32) -> io::Result<()> {
    let unknown = || io::Error::from_raw_os_error(libc::ESRCH);
    // 0 and 1 would be this process's own group, and everybody.
    let group = libc::pid_t::try_from(leader).ok().filter(|&group| group > 1);
    // SAFETY: takes plain numbers.
    check(unsafe { libc::killpg(group.ok_or_else(unknown)?, libc::SIGKILL) })?;
    Ok(())
}

/// kill(2) of every process that this one may end, itself excepted: of process 1 of a process namespace,
/// of all that are in it.
///
/// # Errors
/// ESRCH where there is none. Refused with EPERM for any process but number 1.
pub fn kill_all_others() -> io::Result<()> {
    if std::process::id() != 1 {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    // SAFETY: takes plain numbers.
    check(unsafe { libc::kill(-1, libc::SIGKILL) })?;
    Ok(())
}

/// waitpid(2) for any child: which has ended, and how, as wait(2) puts it. With `wait`, until one has.
///
/// # Errors
/// ECHILD without children, EINTR when a signal was handled first.
pub fn wait_any(wait: bool) -> io::Result<Option<(u32, i32)>> {
    let mut status = 0;
    let flags = if wait { 0 } else { libc::WNOHANG };
    // SAFETY: `status` is valid to write.
    let pid = check(unsafe { libc::waitpid(-1, &raw mut status, flags) })?;
    Ok(u32::try_from(pid).ok().filter(|&pid| pid > 0).map(|pid| (pid, status)))
}

/// mlockall(2): every page that this process has, and will have, stays in memory.
///
/// # Errors
/// EPERM or ENOMEM for more than RLIMIT_MEMLOCK allows, without CAP_IPC_LOCK.
pub fn lock_memory() -> io::Result<()> {
    // SAFETY: takes plain numbers.
    check(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) })?;
    Ok(())
}

/// What getrusage(2) says of the calling process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
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
pub fn usage() -> io::Result<Usage> {
    // SAFETY: a rusage is plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid to write.
    check(unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) })?;
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    Ok(Usage {
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

/// unshare(2) of the System V and POSIX message queue namespace, first with rights as they are.
pub fn leave_ipc_namespace() -> io::Result<()> {
    // SAFETY: takes plain numbers.
    check(unsafe { libc::unshare(libc::CLONE_NEWIPC) })?;
    Ok(())
}

/// unshare(2) of the user and the IPC namespace together: works without root where allowed.
pub fn leave_user_and_ipc_namespace() -> io::Result<()> {
    // SAFETY: takes plain numbers.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWIPC) })?;
    Ok(())
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
