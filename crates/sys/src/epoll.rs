//! epoll(7): waiting for many descriptors at once.
//!
//! Level-triggered. Left out: edges, and who is woken when several wait.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::check;

/// What is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Something to read, or an end.
    pub read: bool,
    /// Room to write, or a connection that is made.
    pub write: bool,
}

/// What happened to one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The number it was added with.
    pub token: u64,
    /// Something to read, or an end.
    pub readable: bool,
    /// Room to write, or a connection that is made or failed.
    pub writable: bool,
    /// An error, or both directions ended.
    pub failed: bool,
}

/// A set of descriptors that are waited for.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
}

impl Epoll {
    /// epoll_create1(2), close-on-exec.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes a plain number.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: just created for the caller alone.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// EPOLL_CTL_ADD.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, interest)
    }

    /// EPOLL_CTL_MOD.
    pub fn change(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest)
    }

    /// EPOLL_CTL_DEL; a descriptor whose file is closed leaves by itself.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, Interest::default())
    }

    fn control(
        &self,
        operation: libc::c_int,
        fd: BorrowedFd<'_>,
        token: u64,
        interest: Interest,
    ) -> io::Result<()> {
        let read = if interest.read { libc::EPOLLIN | libc::EPOLLRDHUP } else { 0 };
        let write = if interest.write { libc::EPOLLOUT } else { 0 };
        let mut event = libc::epoll_event { events: (read | write).cast_unsigned(), u64: token };
        // SAFETY: both descriptors are open and `event` is valid.
        check(unsafe {
            libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd.as_raw_fd(), &raw mut event)
        })?;
        Ok(())
    }

    /// epoll_wait(2): fills `events` anew; `timeout_ms` −1 waits for ever.
    ///
    /// # Errors
    /// EINTR when a signal was handled first.
    pub fn wait(&self, events: &mut Vec<Event>, timeout_ms: i32) -> io::Result<()> {
        const MANY: usize = 64;
        let mut raw = [libc::epoll_event { events: 0, u64: 0 }; MANY];
        events.clear();
        // SAFETY: room for as many events as are said.
        let count = check(unsafe {
            libc::epoll_wait(self.fd.as_raw_fd(), raw.as_mut_ptr(), 64, timeout_ms)
        })?;
        for event in raw.iter().take(usize::try_from(count).unwrap_or(0)) {
            let bits = event.events.cast_signed();
            events.push(Event {
                token: event.u64,
                readable: bits & (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP) != 0,
                writable: bits & libc::EPOLLOUT != 0,
                failed: bits & (libc::EPOLLERR | libc::EPOLLHUP) != 0,
            });
        }
        Ok(())
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
