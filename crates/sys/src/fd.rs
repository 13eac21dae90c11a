//! File descriptors: making, moving bytes, waiting.
//!
//! What mechanisms call inside their timed regions goes through libc, as in the programs they stand for; everything
//! else is rustix, which makes its system calls itself.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll};
use rustix::fs::{MemfdFlags, Mode, OFlags, ResolveFlags};
use rustix::io::FdFlags;
use rustix::pipe::PipeFlags;
use rustix::pty::OpenptFlags;

use crate::{check, check_len};

/// Takes ownership of an inherited descriptor by number, once.
///
/// What was inherited is not close-on-exec, what this process opened is: by that the two are told apart. An adopted
/// descriptor becomes close-on-exec, so that nobody adopts it again.
///
/// # Errors
/// EBADF when there is no such descriptor, or it is one of the standard three, opened here or adopted already.
pub fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    static ADOPTING: Mutex<()> = Mutex::new(());
    let _alone = ADOPTING.lock();
    // SAFETY: F_GETFD only asks for the flags of a number.
    let flags = check(unsafe { libc::fcntl(fd, libc::F_GETFD) })?;
    if fd <= libc::STDERR_FILENO || flags & libc::FD_CLOEXEC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: F_SETFD changes a flag of an open descriptor.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: it is open, was inherited, and is adopted for the first time: nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// pipe2(2): (read end, write end), both close-on-exec.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?)
}

/// fcntl(2) F_SETPIPE_SZ; the capacity that the kernel chose.
///
/// # Errors
/// EPERM above /proc/sys/fs/pipe-max-size without CAP_SYS_RESOURCE.
pub fn set_pipe_size(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<usize> {
    Ok(rustix::pipe::fcntl_setpipe_size(fd, bytes)?)
}

/// mkfifo(3) with mode 0600.
pub fn mkfifo(path: &CStr) -> io::Result<()> {
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0)?)
}

/// openat2(2) for reading, close-on-exec: a file of `directory`, never one outside of it, whatever links lie on the way. A FIFO is not
/// waited for.
///
/// # Errors
/// EXDEV where `path` leaves the directory, and open(2)'s.
pub fn open_beneath(directory: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(directory, path, flags, Mode::empty(), resolve)?)
}

/// A pseudoterminal in raw mode, which changes and echoes nothing (pty(7)): the side of whoever emulates the terminal, and the program's.
///
/// # Errors
/// The kernel has none left.
pub fn raw_terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let emulator = rustix::pty::openpt(flags)?;
    rustix::pty::grantpt(&emulator)?;
    rustix::pty::unlockpt(&emulator)?;
    let program = rustix::pty::ioctl_tiocgptpeer(&emulator, flags)?;
    let mut settings = rustix::termios::tcgetattr(&program)?;
    settings.make_raw();
    rustix::termios::tcsetattr(&program, rustix::termios::OptionalActions::Now, &settings)?;
    Ok((emulator, program))
}

/// eventfd(2), counting from zero, close-on-exec.
pub fn eventfd() -> io::Result<OwnedFd> {
    Ok(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?)
}

/// memfd_create(2) of a given size, close-on-exec.
pub fn memory_file(name: &CStr, size: u64) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&fd, size)?;
    Ok(fd)
}

/// Sets or clears close-on-exec.
pub fn set_inheritable(fd: BorrowedFd<'_>, inheritable: bool) -> io::Result<()> {
    let flags = if inheritable { FdFlags::empty() } else { FdFlags::CLOEXEC };
    Ok(rustix::io::fcntl_setfd(fd, flags)?)
}

/// Sets or clears O_NONBLOCK of the open file behind a descriptor.
pub fn set_nonblocking(fd: BorrowedFd<'_>, nonblocking: bool) -> io::Result<()> {
    let mut flags = rustix::fs::fcntl_getfl(fd)?;
    flags.set(OFlags::NONBLOCK, nonblocking);
    Ok(rustix::fs::fcntl_setfl(fd, flags)?)
}

/// read(2).
#[inline]
pub fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `buffer` is writable for its length.
    check_len(unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) })
}

/// write(2).
#[inline]
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: `bytes` is readable for its length.
    check_len(unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) })
}

/// pwrite(2).
pub fn write_at(fd: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::pwrite(fd, bytes, offset)?)
}

/// poll(2) until a descriptor is readable or hung up; `timeout_ms` −1 waits for ever. Returns whether it is.
#[inline]
pub fn poll_readable(fd: BorrowedFd<'_>, timeout_ms: i32) -> io::Result<bool> {
    poll_one(fd, libc::POLLIN, timeout_ms)
}

/// poll(2) until a descriptor is writable or has failed; `timeout_ms` −1 waits for ever. Returns whether it is.
#[inline]
pub fn poll_writable(fd: BorrowedFd<'_>, timeout_ms: i32) -> io::Result<bool> {
    poll_one(fd, libc::POLLOUT, timeout_ms)
}

#[inline]
fn poll_one(fd: BorrowedFd<'_>, events: libc::c_short, timeout_ms: i32) -> io::Result<bool> {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    // SAFETY: one valid entry.
    Ok(check(unsafe { libc::poll(&raw mut entry, 1, timeout_ms) })? > 0)
}

/// ppoll(2) for any of the descriptors to become readable or fail; `timeout_ns` absent waits for
/// ever. Sets `ready` at the index of each that did; how many.
///
/// # Errors
/// EINTR when a signal was handled first.
pub fn wait_readable(
    fds: &[BorrowedFd<'_>],
    ready: &mut [bool],
    timeout_ns: Option<u64>,
) -> io::Result<usize> {
    const FEW: usize = 8;
    let entry =
        |fd: &BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut few = [libc::pollfd { fd: -1, events: 0, revents: 0 }; FEW];
    let mut many: Vec<libc::pollfd> = Vec::new();
    let entries = if let Some(entries) = few.get_mut(..fds.len()) {
        for (slot, fd) in entries.iter_mut().zip(fds) {
            *slot = entry(fd);
        }
        entries
    } else {
        many.extend(fds.iter().map(entry));
        &mut many[..]
    };
    let timeout = timeout_ns.map(crate::timer::timespec);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let count = entries.len() as libc::nfds_t;
    // SAFETY: `entries` holds `count` entries, and `timeout` is null or valid; no signal mask.
    let found =
        check(unsafe { libc::ppoll(entries.as_mut_ptr(), count, timeout, std::ptr::null()) })?;
    for (ready, entry) in ready.iter_mut().zip(entries.iter()) {
        *ready = entry.revents != 0;
    }
    Ok(usize::try_from(found).unwrap_or(0))
}

/// Whether the peer of a descriptor is gone: POLLHUP, POLLRDHUP or POLLERR, without waiting.
pub fn is_hung_up(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut entry = [PollFd::from_borrowed_fd(fd, PollFlags::RDHUP)];
    rustix::event::poll(&mut entry, Some(&Timespec::default()))?;
    Ok(entry[0].revents().intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR))
}

/// epoll_create1(2) watching one descriptor for input, level-triggered.
pub fn epoll_readable(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    Ok(epoll)
}

/// epoll_wait(2) for one event; `timeout_ms` −1 waits for ever. Returns whether there was one.
#[inline]
pub fn epoll_wait(epoll: BorrowedFd<'_>, timeout_ms: i32) -> io::Result<bool> {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: room for one event.
    Ok(check(unsafe { libc::epoll_wait(epoll.as_raw_fd(), &raw mut event, 1, timeout_ms) })? > 0)
}

/// splice(2) between two descriptors, at least one a pipe.
#[inline]
pub fn splice(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    len: usize,
    wait: bool,
) -> io::Result<usize> {
    let flags = libc::SPLICE_F_MOVE | if wait { 0 } else { libc::SPLICE_F_NONBLOCK };
    let (from, to, own) = (from.as_raw_fd(), to.as_raw_fd(), std::ptr::null_mut());
    // SAFETY: null offsets mean the files' own.
    check_len(unsafe { libc::splice(from, own, to, own, len, flags) })
}

/// vmsplice(2): lends the pages under `bytes` to a pipe.
///
/// The kernel holds the pages themselves and only reads them: whoever changes or frees the bytes before they are read
/// changes what arrives, and nothing else.
#[inline]
pub fn vmsplice(pipe: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: `part` describes readable memory, which vmsplice into a pipe does not write.
    check_len(unsafe { libc::vmsplice(pipe.as_raw_fd(), &raw const part, 1, 0) })
}

/// sendfile(2) from an offset.
#[inline]
pub fn sendfile(
    to: BorrowedFd<'_>,
    from: BorrowedFd<'_>,
    offset: u64,
    len: usize,
) -> io::Result<usize> {
    let mut offset =
        libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: `offset` is valid to read and write.
    check_len(unsafe { libc::sendfile(to.as_raw_fd(), from.as_raw_fd(), &raw mut offset, len) })
}

/// The readiness an [`Epoll`] waits for; an error or hang-up is always reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EpollInterest {
    /// Readable, or the peer has shut down its sending side.
    pub read: bool,
    /// Writable, or a connect(2) is decided.
    pub write: bool,
}

/// The readiness of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpollEvent {
    /// The number it was added with.
    pub token: u64,
    /// Something to read, or an end.
    pub readable: bool,
    /// Room to write, or a connection that is made or failed.
    pub writable: bool,
    /// An error, or both directions ended.
    pub failed: bool,
}

/// epoll(7), level-triggered.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
}

impl Epoll {
    /// epoll_create1(2), close-on-exec.
    pub fn new() -> io::Result<Self> {
        Ok(Self { fd: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// EPOLL_CTL_ADD.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64, interest: EpollInterest) -> io::Result<()> {
        Ok(epoll::add(&self.fd, fd, epoll::EventData::new_u64(token), event_flags(interest))?)
    }

    /// EPOLL_CTL_MOD.
    pub fn modify(
        &self,
        fd: BorrowedFd<'_>,
        token: u64,
        interest: EpollInterest,
    ) -> io::Result<()> {
        Ok(epoll::modify(&self.fd, fd, epoll::EventData::new_u64(token), event_flags(interest))?)
    }

    /// EPOLL_CTL_DEL; closing the last descriptor of an open file removes it too.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.fd, fd)?)
    }

    /// epoll_wait(2): fills `events` anew; `timeout_ms` −1 waits for ever.
    ///
    /// # Errors
    /// EINTR when a signal was handled first.
    pub fn wait(&self, events: &mut Vec<EpollEvent>, timeout_ms: i32) -> io::Result<()> {
        let mut raw = [libc::epoll_event { events: 0, u64: 0 }; 64];
        events.clear();
        // SAFETY: room for 64 events.
        let count = check(unsafe {
            libc::epoll_wait(self.fd.as_raw_fd(), raw.as_mut_ptr(), 64, timeout_ms)
        })?;
        events.extend(raw.iter().take(usize::try_from(count).unwrap_or(0)).map(|event| {
            let has = |flags: libc::c_int| event.events.cast_signed() & flags != 0;
            EpollEvent {
                token: event.u64,
                readable: has(libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP),
                writable: has(libc::EPOLLOUT),
                failed: has(libc::EPOLLERR | libc::EPOLLHUP),
            }
        }));
        Ok(())
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn event_flags(interest: EpollInterest) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::empty();
    flags.set(epoll::EventFlags::IN | epoll::EventFlags::RDHUP, interest.read);
    flags.set(epoll::EventFlags::OUT, interest.write);
    flags
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd as _;

    use super::*;

    #[test]
    fn only_what_was_inherited_is_adopted_and_only_once() {
        let (own, inherited) = pipe().unwrap();
        let refused = |fd| adopt(fd).unwrap_err().raw_os_error();
        assert_eq!(refused(own.as_raw_fd()), Some(libc::EBADF), "it was opened here");
        set_inheritable(inherited.as_fd(), true).unwrap();
        let number = inherited.into_raw_fd();
        let adopted = adopt(number).unwrap();
        assert_eq!(refused(number), Some(libc::EBADF), "it has an owner");
        drop(adopted);
        for standard in 0..=2 {
            assert_eq!(refused(standard), Some(libc::EBADF));
        }
    }
}
