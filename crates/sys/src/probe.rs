//! What the kernel allows this process: each function tries one thing and undoes it.

use std::ffi::CStr;
use std::io;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, WaitOptions};

use crate::check;
use crate::perf::{
    FLAG_DISABLED, FLAG_EXCLUDE_HYPERVISOR, FLAG_EXCLUDE_KERNEL, PerfEventAttributes,
    TYPE_HARDWARE, TYPE_SOFTWARE,
};

pub use rustix::process::Resource as ResourceLimit;

/// The soft and the hard value of a limit, getrlimit(2); `None` is unlimited.
pub fn limit(which: ResourceLimit) -> (Option<u64>, Option<u64>) {
    let limit = rustix::process::getrlimit(which);
    (limit.current, limit.maximum)
}

/// The scheduling policy of this thread as its number, sched_getscheduler(2).
///
/// # Errors
/// None are expected; a filter may make up one.
pub fn scheduler_policy() -> io::Result<i32> {
    // SAFETY: no pointers are passed.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    if policy < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(i32::try_from(policy).unwrap_or(0))
    }
}

/// Nanoseconds between two ticks of CLOCK_MONOTONIC_COARSE, clock_getres(2).
///
/// This clock moves with the timer interrupt, so the answer is one over the kernel's HZ.
pub fn tick_ns() -> u64 {
    let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(tick.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(tick.tv_nsec))
}

/// Ticks a second of the times in /proc/stat: USER_HZ.
pub fn user_ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second().max(1)
}

/// What adjtimex(2) says about the kernel's real-time clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockDiscipline {
    /// The state that the call returns: 0 synchronized … 5 not synchronized.
    pub state: i32,
    /// The frequency correction, in parts per million × 65,536.
    pub frequency: i64,
    /// Whether anything disciplines it: neither STA_UNSYNC nor TIME_ERROR.
    pub is_synchronized: bool,
    /// The likely error, in microseconds.
    pub estimated_us: u64,
    /// The largest possible error, in microseconds; it grows while nothing disciplines the clock.
    pub maximum_us: u64,
}

/// adjtimex(2), reading only.
///
/// # Errors
/// EPERM where a seccomp filter forbids even reading.
pub fn clock_discipline() -> io::Result<ClockDiscipline> {
    // SAFETY: every field is an integer, and no `modes` ask for a change.
    let mut value: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `value` is a whole timex.
    let state = check(unsafe { libc::adjtimex(&raw mut value) })?;
    Ok(ClockDiscipline {
        state,
        frequency: value.freq,
        is_synchronized: state != libc::TIME_ERROR && value.status & libc::STA_UNSYNC == 0,
        estimated_us: u64::try_from(value.esterror).unwrap_or(u64::MAX),
        maximum_us: u64::try_from(value.maxerror).unwrap_or(u64::MAX),
    })
}

/// The C library and its version: `glibc 2.36`, or the name alone where it does not tell.
pub fn libc_version() -> (&'static str, Option<&'static CStr>) {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: no arguments.
        let version = unsafe { libc::gnu_get_libc_version() };
        // SAFETY: glibc returns a pointer to a static, NUL-terminated string.
        ("glibc", Some(unsafe { CStr::from_ptr(version) }))
    }
    #[cfg(not(target_env = "gnu"))]
    {
        (if cfg!(target_env = "musl") { "musl" } else { "other" }, None)
    }
}

/// Twelve bytes by which a hypervisor names itself, or `None` where the CPU says there is none.
///
/// CPUID leaf 1, ECX bit 31, then leaf 0x4000_0000 (the range that processors leave to
/// hypervisors). Always `None` off x86-64.
pub fn hypervisor_signature() -> Option<[u8; 12]> {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        if __cpuid(1).ecx & (1 << 31) == 0 {
            return None;
        }
        let leaf = __cpuid(0x4000_0000);
        let mut name = [0; 12];
        for (part, word) in name.chunks_exact_mut(4).zip([leaf.ebx, leaf.ecx, leaf.edx]) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        Some(name)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        None
    }
}

/// A kind of event that perf_event_open(2) counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerfCounter {
    /// CPU cycles, from the hardware's counters; user space only when `kernel` is false.
    Cycles {
        /// Whether cycles in the kernel are asked for as well.
        kernel: bool,
    },
    /// Context switches, counted by software; kernel included when `kernel` is true.
    ContextSwitches {
        /// Whether the kernel's part is asked for as well.
        kernel: bool,
    },
}

/// Opens a counter for this thread and closes it again.
///
/// # Errors
/// perf_event_open(2): `ENOENT` or `EOPNOTSUPP` where there is no such counter, `EACCES` or `EPERM` where it
/// is not allowed, `ENOSYS` where the kernel is built without.
pub fn perf_event(event: PerfCounter) -> io::Result<()> {
    const HARDWARE_CYCLES: u64 = 0;
    const SOFTWARE_CONTEXT_SWITCHES: u64 = 3;
    let (kind, config, kernel) = match event {
        PerfCounter::Cycles { kernel } => (TYPE_HARDWARE, HARDWARE_CYCLES, kernel),
        PerfCounter::ContextSwitches { kernel } => {
            (TYPE_SOFTWARE, SOFTWARE_CONTEXT_SWITCHES, kernel)
        }
    };
    let scope = if kernel { 0 } else { FLAG_EXCLUDE_KERNEL | FLAG_EXCLUDE_HYPERVISOR };
    let flags = FLAG_DISABLED | scope;
    let (this_thread, any_cpu, no_group) = (0, -1, -1);
    let attributes = PerfEventAttributes { kind, config, flags, ..PerfEventAttributes::default() };
    attributes.open(this_thread, any_cpu, no_group).map(drop)
}

/// Namespaces that a child may be put into at its birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbedNamespace {
    /// A user namespace alone.
    User,
    /// An IPC namespace inside a new user namespace.
    Ipc,
    /// A network namespace inside a new user namespace.
    Network,
}

/// Makes a child in new namespaces; the child exits at once and is reaped.
///
/// # Errors
/// clone(2): `EPERM` where user namespaces are not allowed to this user, `ENOSPC` at
/// user.max_user_namespaces, `EINVAL` where the kernel is built without.
pub fn namespace(which: ProbedNamespace) -> io::Result<()> {
    let user = libc::CLONE_NEWUSER;
    let flags = match which {
        ProbedNamespace::User => user,
        ProbedNamespace::Ipc => user | libc::CLONE_NEWIPC,
        ProbedNamespace::Network => user | libc::CLONE_NEWNET,
    } | libc::SIGCHLD;
    // SAFETY: without CLONE_VM this is fork(2): the child has its own copy of everything, and does
    // nothing but exit, which is safe even when other threads held locks.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::c_long::from(flags), 0, 0, 0, 0) };
    if child == 0 {
        // SAFETY: no pointers; _exit runs no handlers of the copied process.
        unsafe { libc::_exit(0) };
    }
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    let child = libc::c_int::try_from(child).ok().and_then(Pid::from_raw);
    while rustix::process::waitpid(child, WaitOptions::empty()).err() == Some(Errno::INTR) {}
    Ok(())
}

/// A family of sockets that carry whole frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketFamily {
    /// AF_PACKET, packet(7).
    Packet,
    /// AF_XDP, the kernel's Documentation/networking/af_xdp.rst.
    Xdp,
}

/// Opens a socket that receives nothing, and closes it.
///
/// # Errors
/// socket(2): `EPERM` without CAP_NET_RAW, `EAFNOSUPPORT` where the kernel has no such family.
pub fn packet_socket(family: PacketFamily) -> io::Result<()> {
    let family = match family {
        PacketFamily::Packet => AddressFamily::PACKET,
        PacketFamily::Xdp => AddressFamily::XDP,
    };
    rustix::net::socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_priorities_agree_with_what_the_kernel_prints() {
        let text = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = text.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let soft = line.split_whitespace().nth(3).unwrap();
        assert_eq!(limit(ResourceLimit::Nofile).0, soft.parse().ok());
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        assert_eq!(crate::sched::nice().unwrap().to_string(), fields[16]);
        assert_eq!(scheduler_policy().unwrap().to_string(), fields[38]);
    }

    #[test]
    fn the_tick_is_a_whole_fraction_of_a_second() {
        let hz = (1_000_000_000.0 / tick_ns() as f64).round();
        assert!((24.0..=1200.0).contains(&hz), "{hz}");
        assert!(user_ticks_per_second() >= 1);
    }

    #[test]
    fn probes_leave_no_descriptor_behind() {
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let ask_all = || {
            let _ = perf_event(PerfCounter::Cycles { kernel: false });
            let _ = perf_event(PerfCounter::ContextSwitches { kernel: false });
            let _ = namespace(ProbedNamespace::User);
            let _ = clock_discipline();
        };
        // Other tests of this process open and close a few files at the same time; a leak would
        // leave one for each round.
        let rounds = 50;
        let before = open();
        (0..rounds).for_each(|_| ask_all());
        assert!(open() < before + rounds / 2);
    }
}
