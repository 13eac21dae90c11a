//! Sleeps, timers, and a periodic tick that interrupts blocking calls, so that nothing waits for ever.
//!
//! SIGALRM is handled without SA_RESTART: a blocked call returns EINTR, and a spinning loop sees
//! the tick count move. A tick costs what it interrupts some microseconds, so it is postponed while
//! something is timed.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::check;

static TICKS: AtomicU32 = AtomicU32::new(0);

/// Microseconds between two ticks; 0 while there are none.
static PERIOD_US: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_alarm(_signal: libc::c_int) {
    TICKS.fetch_add(1, Ordering::Relaxed);
}

/// Starts the tick.
pub fn start_periodic_tick(period_us: u32) -> io::Result<()> {
    crate::signal::handle(&[libc::SIGALRM], on_alarm)?;
    PERIOD_US.store(period_us, Ordering::Relaxed);
    postpone_tick(0)
}

/// Counts the end of a child process as a tick too.
pub fn tick_at_child_end() -> io::Result<()> {
    crate::signal::handle(&[libc::SIGCHLD], on_alarm)
}

/// Lets the next tick come after `ns`, and not before one period; nothing where none was started.
pub fn postpone_tick(ns: u64) -> io::Result<()> {
    let period_us = u64::from(PERIOD_US.load(Ordering::Relaxed));
    let time = |us: u64| libc::timeval {
        tv_sec: libc::time_t::try_from(us / 1_000_000).unwrap_or(libc::time_t::MAX),
        // Less than 1e6, which every suseconds_t holds.
        tv_usec: libc::suseconds_t::try_from(us % 1_000_000).unwrap_or(0),
    };
    if period_us == 0 {
        return Ok(());
    }
    let first = time(period_us.max(ns / 1_000));
    let timer = libc::itimerval { it_interval: time(period_us), it_value: first };
    // SAFETY: `timer` is valid; the old value is not asked for.
    check(unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) })?;
    Ok(())
}

extern "C" fn on_thread_alarm(_signal: libc::c_int) {}

/// A timer_create(2) timer of CLOCK_MONOTONIC whose signal, the first of the real-time ones, interrupts a blocking call of the thread that
/// made it. It is the thread's own: other threads are not interrupted.
#[derive(Debug)]
pub struct ThreadAlarm {
    timer: libc::timer_t,
}

impl ThreadAlarm {
    /// Not armed.
    pub fn new() -> io::Result<Self> {
        let signal = libc::SIGRTMIN();
        crate::signal::handle(&[signal], on_thread_alarm)?;
        // SAFETY: a sigevent is plain data; all zeroes is a valid one.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        // SAFETY: the call has no conditions.
        event.sigev_notify_thread_id = unsafe { libc::gettid() };
        let mut timer = std::ptr::null_mut();
        // SAFETY: `event` is valid, `timer` is written before it is used.
        check(unsafe {
            libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer)
        })?;
        Ok(Self { timer })
    }

    /// timer_settime(2): expires `ns` from now, then every `interval_ns`, as a signal may come just before the call that it is to
    /// interrupt; 0 disarms.
    pub fn set(&self, ns: u64, interval_ns: u64) -> io::Result<()> {
        let expiry =
            libc::itimerspec { it_interval: timespec(interval_ns), it_value: timespec(ns) };
        // SAFETY: the timer exists until it is dropped; the old value is not asked for.
        check(unsafe {
            libc::timer_settime(self.timer, 0, &raw const expiry, std::ptr::null_mut())
        })?;
        Ok(())
    }
}

impl Drop for ThreadAlarm {
    fn drop(&mut self) {
        // SAFETY: the timer exists, and is not used again.
        let _ = unsafe { libc::timer_delete(self.timer) };
    }
}

/// clock_nanosleep(2) on CLOCK_MONOTONIC; false when a signal was handled first.
pub fn sleep_ns(ns: u64) -> bool {
    let time = timespec(ns);
    // SAFETY: `time` is valid; what is left is not asked for.
    let error = unsafe {
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &raw const time, std::ptr::null_mut())
    };
    error == 0
}

/// PR_SET_TIMERSLACK: by how much the kernel may prolong this thread's sleeps, in nanoseconds; 50 µs by default.
pub fn set_timer_slack_ns(ns: u32) -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(NonZeroU64::new(ns.into()))?)
}

/// Nanoseconds as the kernel takes them.
pub(crate) fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(ns / 1_000_000_000).unwrap_or(libc::time_t::MAX),
        // Less than 1e9, which every c_long holds.
        tv_nsec: libc::c_long::try_from(ns % 1_000_000_000).unwrap_or(0),
    }
}

/// Ticks so far; wraps.
#[inline]
pub fn ticks() -> u32 {
    TICKS.load(Ordering::Relaxed)
}

/// A timerfd_create(2) timer of CLOCK_MONOTONIC, for an event loop; readable when it expires.
#[derive(Debug)]
pub struct TimerFd {
    fd: OwnedFd,
}

impl TimerFd {
    /// Close-on-exec and non-blocking; not armed.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self { fd: timerfd_create(TimerfdClockId::Monotonic, flags)? })
    }

    /// timerfd_settime(2): expires once, `ns` from now, and drops an earlier expiry; 0 disarms.
    pub fn set(&self, ns: u64) -> io::Result<()> {
        let expiry = Timespec::try_from(Duration::from_nanos(ns)).map_err(|_| Errno::INVAL)?;
        let once = Itimerspec { it_interval: Timespec::default(), it_value: expiry };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}

impl AsRawFd for TimerFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for TimerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{ClockId, read_ns};
    use crate::fd::poll_readable;

    #[test]
    fn a_postponed_tick_comes_after_its_time_and_then_again() {
        start_periodic_tick(1_000).unwrap();
        let began = read_ns(ClockId::Monotonic);
        postpone_tick(300_000_000).unwrap();
        let before = ticks();
        while ticks() == before {
            sleep_ns(1_000_000);
        }
        assert!(read_ns(ClockId::Monotonic) - began >= 300_000_000);
        let first = ticks();
        while ticks() == first {
            sleep_ns(1_000_000);
        }
        // Other tests of this process are not to be interrupted.
        postpone_tick(3_600_000_000_000).unwrap();
    }

    #[test]
    fn an_alarm_interrupts_its_own_thread_again_and_again() {
        let alarm = ThreadAlarm::new().unwrap();
        let sleeper = std::thread::spawn(|| sleep_ns(50_000_000));
        alarm.set(1_000_000, 1_000_000).unwrap();
        for _ in 0..3 {
            assert!(!sleep_ns(60_000_000_000));
        }
        alarm.set(0, 0).unwrap();
        assert!(sleep_ns(3_000_000), "it is disarmed");
        assert!(sleeper.join().unwrap(), "another thread sleeps on");
    }

    #[test]
    fn a_timer_expires_no_sooner_than_set() {
        let timer = TimerFd::new().unwrap();
        assert!(!poll_readable(timer.as_fd(), 0).unwrap(), "it is not armed");
        for ns in [3_000_000, 300_000] {
            let began = read_ns(ClockId::Monotonic);
            timer.set(ns).unwrap();
            assert!(poll_readable(timer.as_fd(), 60_000).unwrap());
            assert!(read_ns(ClockId::Monotonic) - began >= ns);
        }
        timer.set(3_600_000_000_000).unwrap();
        assert!(!poll_readable(timer.as_fd(), 0).unwrap(), "the earlier expiry is dropped");
    }
}
