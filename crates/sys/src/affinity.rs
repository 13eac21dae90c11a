//! Which CPUs a thread may run on, and which it runs on.

use std::io;

use crate::check;

/// The CPUs that the calling thread may run on, ascending: sched_getaffinity(2).
pub fn allowed_cpus() -> io::Result<Vec<u32>> {
    // SAFETY: a cpu_set_t is plain bits; all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a valid set of the size given; 0 is the calling thread.
    check(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) })?;
    let count = usize::try_from(libc::CPU_SETSIZE).unwrap_or(1024);
    let allowed = (0..count).filter(|&cpu| {
        // SAFETY: `cpu` is below CPU_SETSIZE, the size of the set.
        unsafe { libc::CPU_ISSET(cpu, &set) }
    });
    Ok(allowed.filter_map(|cpu| u32::try_from(cpu).ok()).collect())
}

/// Binds the calling thread to these CPUs: sched_setaffinity(2).
pub fn bind(cpus: &[u32]) -> io::Result<()> {
    // SAFETY: a cpu_set_t is plain bits; all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus {
        if i64::from(cpu) >= i64::from(libc::CPU_SETSIZE) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: `cpu` is below CPU_SETSIZE, the size of the set.
        unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    }
    // SAFETY: `set` is a valid set of the size given; 0 is the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) })?;
    Ok(())
}

/// The CPU the calling thread runs on at this moment: sched_getcpu(3).
pub fn current_cpu() -> io::Result<u32> {
    // SAFETY: takes no arguments.
    let cpu = check(unsafe { libc::sched_getcpu() })?;
    Ok(cpu.unsigned_abs())
}
