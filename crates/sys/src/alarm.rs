//! A timer that is a descriptor, for who waits in an event loop: as exact as the kernel's own.
//!
//! Left out: the loop.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::check;
use crate::fd::adopt;

/// A timer of CLOCK_MONOTONIC, readable once its time has come.
#[derive(Debug)]
pub struct Alarm {
    fd: OwnedFd,
}

impl Alarm {
    /// timerfd_create(2), close-on-exec and without waiting; it is not set.
    pub fn new() -> io::Result<Self> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: takes plain numbers.
        let fd = check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        Ok(Self { fd: adopt(fd)? })
    }

    /// timerfd_settime(2): once, `ns` from now. What it had come to before is forgotten; 0 unsets it.
    pub fn set(&self, ns: u64) -> io::Result<()> {
        let value = libc::timespec {
            tv_sec: libc::time_t::try_from(ns / 1_000_000_000).unwrap_or(libc::time_t::MAX),
            // Less than 1e9, which every c_long holds.
            tv_nsec: libc::c_long::try_from(ns % 1_000_000_000).unwrap_or(0),
        };
        let once = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: value,
        };
        let (fd, old) = (self.fd.as_raw_fd(), std::ptr::null_mut());
        // SAFETY: the descriptor is open, `once` is valid, and the old value is not asked for.
        check(unsafe { libc::timerfd_settime(fd, 0, &raw const once, old) })?;
        Ok(())
    }
}

impl AsRawFd for Alarm {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, read_ns};
    use crate::fd::poll_readable;

    #[test]
    fn an_alarm_comes_when_its_time_has_come_and_no_sooner_and_again_when_set_again() {
        let alarm = Alarm::new().unwrap();
        assert!(!poll_readable(alarm.as_fd(), 0).unwrap(), "it is not set");
        for ns in [3_000_000, 300_000] {
            let began = read_ns(Clock::Monotonic);
            alarm.set(ns).unwrap();
            assert!(poll_readable(alarm.as_fd(), 60_000).unwrap());
            assert!(read_ns(Clock::Monotonic) - began >= ns);
        }
        alarm.set(3_600_000_000_000).unwrap();
        assert!(!poll_readable(alarm.as_fd(), 0).unwrap(), "what it had come to is forgotten");
    }
}
