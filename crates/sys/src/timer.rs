//! A periodic tick that interrupts blocking calls, so that nothing waits for ever.
//!
//! SIGALRM is handled without SA_RESTART: a blocked call returns EINTR, and a spinning loop sees
//! the tick count move. Nothing is added to the path that is measured.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::check;

static TICKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_alarm(_signal: libc::c_int) {
    TICKS.fetch_add(1, Ordering::Relaxed);
}

/// Starts the tick.
pub fn start_ticking(period_us: u32) -> io::Result<()> {
    // SAFETY: a sigaction is plain data; all zeroes means no flags and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int) = on_alarm;
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: the handler only adds to an atomic, which is async-signal-safe.
    check(unsafe { libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) })?;
    let period = libc::timeval {
        tv_sec: i64::from(period_us / 1_000_000),
        tv_usec: i64::from(period_us % 1_000_000),
    };
    let timer = libc::itimerval { it_interval: period, it_value: period };
    // SAFETY: `timer` is valid; the old value is not asked for.
    check(unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) })?;
    Ok(())
}

/// clock_nanosleep(2) on CLOCK_MONOTONIC; false when a signal was handled first.
pub fn sleep_ns(ns: u64) -> bool {
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(ns / 1_000_000_000).unwrap_or(libc::time_t::MAX),
        // Less than 1e9, which every c_long holds.
        tv_nsec: libc::c_long::try_from(ns % 1_000_000_000).unwrap_or(0),
    };
    // SAFETY: `time` is valid; what is left is not asked for.
    let error = unsafe {
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &raw const time, std::ptr::null_mut())
    };
    error == 0
}

/// prctl(2) PR_SET_TIMERSLACK: by how much the kernel may prolong this thread's sleeps, in nanoseconds;
/// 50 µs unless somebody said so.
pub fn set_slack_ns(ns: u32) -> io::Result<()> {
    // SAFETY: takes plain numbers.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, libc::c_ulong::from(ns)) })?;
    Ok(())
}

/// Ticks so far; wraps.
#[inline]
pub fn ticks() -> u32 {
    TICKS.load(Ordering::Relaxed)
}
