//! CPU affinity, nice values and real-time priority of threads: sched(7).

use std::io;

use rustix::process::{Resource, getpriority_process, getrlimit, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::check;

/// The lowest nice value, which is the highest priority.
pub const LEAST_NICE: i32 = -20;

/// The CPUs that the calling thread may run on, ascending: sched_getaffinity(2).
pub fn allowed_cpus() -> io::Result<Vec<u32>> {
    let set = sched_getaffinity(None)?;
    let allowed = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu));
    Ok(allowed.filter_map(|cpu| u32::try_from(cpu).ok()).collect())
}

/// Binds the calling thread to these CPUs: sched_setaffinity(2).
pub fn bind(cpus: &[u32]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu as usize >= CpuSet::MAX_CPU {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        set.set(cpu as usize);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// The CPU that the calling thread runs on: sched_getcpu(3).
pub fn current_cpu() -> io::Result<u32> {
    // Through libc, whose vDSO call does not enter the kernel.
    // SAFETY: takes no arguments.
    let cpu = check(unsafe { libc::sched_getcpu() })?;
    Ok(cpu.unsigned_abs())
}

/// The calling thread's nice value, −20 to 19: getpriority(2), which on Linux is of one thread.
///
/// # Errors
/// None are expected; a seccomp filter may make up one.
pub fn nice() -> io::Result<i32> {
    Ok(getpriority_process(None)?)
}

/// Sets the calling thread's nice value: setpriority(2).
///
/// # Errors
/// EACCES below what RLIMIT_NICE allows, without CAP_SYS_NICE in the first user namespace.
pub fn set_nice(nice: i32) -> io::Result<()> {
    Ok(setpriority_process(None, nice)?)
}

/// The lowest nice value that RLIMIT_NICE allows without privileges; the limit counts down from 20.
pub fn nice_allowed() -> i32 {
    let steps = getrlimit(Resource::Nice).current.unwrap_or(40).min(40);
    (20 - i32::try_from(steps).unwrap_or(40)).clamp(LEAST_NICE, 19)
}

/// Gives the calling thread, and threads it starts, this SCHED_FIFO priority: sched_setscheduler(2).
///
/// # Errors
/// EPERM above RLIMIT_RTPRIO, without CAP_SYS_NICE in the first user namespace.
pub fn set_real_time(priority: i32) -> io::Result<()> {
    // SAFETY: a sched_param is plain numbers.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    // SAFETY: `parameters` is readable; 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nice_value_is_of_one_thread() {
        let before = nice().unwrap();
        let set = std::thread::spawn(move || {
            set_nice((before + 1).min(19)).unwrap();
            nice().unwrap()
        });
        assert_eq!(set.join().unwrap(), (before + 1).min(19));
        assert_eq!(nice().unwrap(), before);
        assert!((LEAST_NICE..=19).contains(&nice_allowed()));
    }
}
