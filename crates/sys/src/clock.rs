//! Clocks: the time-stamp counter and the kernel's, read as cheaply as each allows.

use std::io;

use crate::check;

/// A clock of clock_gettime(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum ClockId {
    /// CLOCK_MONOTONIC.
    Monotonic = libc::CLOCK_MONOTONIC,
    /// CLOCK_MONOTONIC_RAW.
    MonotonicRaw = libc::CLOCK_MONOTONIC_RAW,
    /// CLOCK_MONOTONIC_COARSE.
    MonotonicCoarse = libc::CLOCK_MONOTONIC_COARSE,
    /// CLOCK_BOOTTIME: goes on while the machine is suspended.
    Boottime = libc::CLOCK_BOOTTIME,
    /// CLOCK_REALTIME.
    Realtime = libc::CLOCK_REALTIME,
    /// CLOCK_PROCESS_CPUTIME_ID.
    ProcessCpu = libc::CLOCK_PROCESS_CPUTIME_ID,
    /// CLOCK_THREAD_CPUTIME_ID.
    ThreadCpu = libc::CLOCK_THREAD_CPUTIME_ID,
}

/// Reads a clock through libc (the vDSO where the clock allows); nanoseconds.
#[inline]
pub fn read_ns(clock: ClockId) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write, and every id above exists on Linux.
    unsafe { libc::clock_gettime(clock as libc::clockid_t, &raw mut time) };
    nanoseconds(time)
}

#[inline]
#[expect(clippy::cast_sign_loss, reason = "none of these clocks is negative after 1970")]
fn nanoseconds(time: libc::timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Reads a clock that may not exist.
fn try_read_ns(id: libc::clockid_t) -> io::Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid to write.
    check(unsafe { libc::clock_gettime(id, &raw mut time) })?;
    Ok(nanoseconds(time))
}

/// CPU time that another process has used, all its threads together: clock_getcpuclockid(3); nanoseconds.
///
/// # Errors
/// ESRCH where there is no such process.
pub fn process_cpu_ns(pid: u32) -> io::Result<u64> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let mut id: libc::clockid_t = 0;
    // SAFETY: `id` is valid to write.
    let error = unsafe { libc::clock_getcpuclockid(pid, &raw mut id) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    try_read_ns(id)
}

/// CPU time that a thread of this process has used, by its number of gettid(2), as pthread_getcpuclockid(3) would read it
/// if the thread could not end meanwhile; nanoseconds.
///
/// # Errors
/// EINVAL where this process has no such thread.
pub fn thread_cpu_ns(thread: u32) -> io::Result<u64> {
    let unknown = || io::Error::from_raw_os_error(libc::EINVAL);
    let number = libc::clockid_t::try_from(thread).map_err(|_| unknown())?;
    // linux/posix-timers_types.h: the number's complement, one bit for a thread, two for the scheduler's clock.
    let id = (!number << 3) | 0b110;
    try_read_ns(id)
}

/// Reads a clock through the system call itself, never the vDSO; nanoseconds.
#[inline]
pub fn read_syscall_ns(clock: ClockId) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write, and every id above exists on Linux.
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock as libc::clockid_t, &raw mut time) };
    nanoseconds(time)
}

/// gettimeofday(2); microseconds.
#[inline]
#[expect(clippy::cast_sign_loss, reason = "not negative after 1970")]
pub fn gettimeofday_us() -> u64 {
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    // SAFETY: `time` is a valid timeval to write, and a null timezone is allowed.
    unsafe { libc::gettimeofday(&raw mut time, std::ptr::null_mut()) };
    time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64
}

/// Reads the time-stamp counter where a timed region begins: nothing after it starts before it.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn ticks_begin() -> u64 {
    use core::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_lfence() };
    // SAFETY: every x86-64 has a time-stamp counter that user code may read unless CR4.TSD is
    // set, which `ticks_usable` finds out from the kernel's clock source first.
    let ticks = unsafe { _rdtsc() };
    // SAFETY: as above.
    unsafe { _mm_lfence() };
    ticks
}

/// Reads the time-stamp counter where a timed region ends: everything before it has finished.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn ticks_end() -> u64 {
    use core::arch::x86_64::{__rdtscp, _mm_lfence};
    let mut aux = 0;
    // SAFETY: rdtscp is checked for by `ticks_usable`; `aux` is a valid u32.
    let ticks = unsafe { __rdtscp(&raw mut aux) };
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_lfence() };
    ticks
}

/// Reads the virtual counter where a timed region begins.
#[cfg(target_arch = "aarch64")]
#[inline]
pub fn ticks_begin() -> u64 {
    let ticks: u64;
    // SAFETY: reads a register that Linux lets user code read; the barrier orders it.
    unsafe { core::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks, options(nostack)) };
    ticks
}

/// Reads the virtual counter where a timed region ends.
#[cfg(target_arch = "aarch64")]
#[inline]
pub fn ticks_end() -> u64 {
    ticks_begin()
}

/// Where no counter is known the raw monotonic clock stands in: one tick is a nanosecond.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
pub fn ticks_begin() -> u64 {
    read_ns(ClockId::MonotonicRaw)
}

/// Where no counter is known the raw monotonic clock stands in: one tick is a nanosecond.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
pub fn ticks_end() -> u64 {
    read_ns(ClockId::MonotonicRaw)
}

/// Whether the counter is constant, never stops, and can be read with its own fence.
#[cfg(target_arch = "x86_64")]
pub fn ticks_usable() -> bool {
    use core::arch::x86_64::__cpuid;
    let extended_max = __cpuid(0x8000_0000).eax;
    if extended_max < 0x8000_0007 {
        return false;
    }
    // AMD APM vol. 3, E.4: 8000_0001h EDX bit 27 is RDTSCP, 8000_0007h EDX bit 8 InvariantTSC.
    let rdtscp = __cpuid(0x8000_0001).edx >> 27 & 1 == 1;
    let invariant = __cpuid(0x8000_0007).edx >> 8 & 1 == 1;
    rdtscp && invariant
}

/// The architecture's counter is constant by definition (Arm ARM D12.1); others have none.
#[cfg(not(target_arch = "x86_64"))]
pub fn ticks_usable() -> bool {
    cfg!(target_arch = "aarch64")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_of_a_process_is_that_of_its_own_clock() {
        let before = read_ns(ClockId::ProcessCpu);
        let asked = process_cpu_ns(std::process::id()).unwrap();
        assert!((before..=read_ns(ClockId::ProcessCpu)).contains(&asked));
        assert!(process_cpu_ns(u32::MAX).is_err());
    }

    #[test]
    fn the_cpu_time_of_a_thread_is_that_of_its_own_clock_whoever_asks() {
        let own = crate::process::thread_id();
        let before = read_ns(ClockId::ThreadCpu);
        let asked = thread_cpu_ns(own).unwrap();
        assert!((before..=read_ns(ClockId::ThreadCpu)).contains(&asked));
        // Another thread reads the same clock, not its own.
        let (elsewhere, its_own) = std::thread::spawn(move || {
            (thread_cpu_ns(own).unwrap(), thread_cpu_ns(crate::process::thread_id()).unwrap())
        })
        .join()
        .unwrap();
        assert!(elsewhere >= asked && its_own > 0);
        assert!(thread_cpu_ns(u32::MAX).is_err());
    }
}
