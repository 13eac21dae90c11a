//! File descriptors: making, reading, writing and waiting for them.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::{check, check_len};

/// Takes ownership of a descriptor that the kernel has just returned.
fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: callers pass a descriptor that was just created for them alone.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Takes ownership of an inherited descriptor by number; fails when it is not open.
pub fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD only asks whether the number is open.
    check(unsafe { libc::fcntl(fd, libc::F_GETFD) })?;
    Ok(own(fd))
}

/// pipe2(2): (read end, write end), both close-on-exec.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `fds` holds two descriptors.
    check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) })?;
    Ok((own(fds[0]), own(fds[1])))
}

/// fcntl(2) F_SETPIPE_SZ; the capacity the kernel gave.
///
/// # Errors
/// EPERM above /proc/sys/fs/pipe-max-size without CAP_SYS_RESOURCE.
pub fn set_pipe_size(fd: BorrowedFd<'_>, bytes: i32) -> io::Result<i32> {
    // SAFETY: the descriptor is open.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) })
}

/// mkfifo(3) with mode 0600.
pub fn mkfifo(path: &CStr) -> io::Result<()> {
    // SAFETY: `path` is a C string.
    check(unsafe { libc::mkfifo(path.as_ptr(), 0o600) })?;
    Ok(())
}

/// eventfd(2), counting from zero, close-on-exec.
pub fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: takes plain numbers.
    check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) }).map(own)
}

/// memfd_create(2) of a given size, close-on-exec: memory that vanishes with its last holder.
pub fn memory_file(name: &CStr, size: u64) -> io::Result<OwnedFd> {
    // SAFETY: `name` is a C string.
    let fd = check(unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) }).map(own)?;
    let size =
        libc::off_t::try_from(size).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the descriptor is open.
    check(unsafe { libc::ftruncate(fd.as_raw_fd(), size) })?;
    Ok(fd)
}

/// Sets or clears close-on-exec.
pub fn set_inheritable(fd: BorrowedFd<'_>, inheritable: bool) -> io::Result<()> {
    let flags = if inheritable { 0 } else { libc::FD_CLOEXEC };
    // SAFETY: the descriptor is open.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, flags) })?;
    Ok(())
}

/// Sets or clears O_NONBLOCK of the open file behind a descriptor.
pub fn set_nonblocking(fd: BorrowedFd<'_>, nonblocking: bool) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    let wanted = if nonblocking { flags | libc::O_NONBLOCK } else { flags & !libc::O_NONBLOCK };
    // SAFETY: the descriptor is open.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, wanted) })?;
    Ok(())
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
    let offset =
        libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: `bytes` is readable for its length.
    check_len(unsafe { libc::pwrite(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), offset) })
}

/// poll(2) for one descriptor to become readable (or hung up); `timeout_ms` −1 waits for ever.
///
/// Returns whether it is readable or hung up.
#[inline]
pub fn poll_readable(fd: BorrowedFd<'_>, timeout_ms: i32) -> io::Result<bool> {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    Ok(check(unsafe { libc::poll(&raw mut entry, 1, timeout_ms) })? > 0)
}

/// poll(2) for one descriptor to take more (or to have failed); `timeout_ms` −1 waits for ever.
///
/// Returns whether it does.
#[inline]
pub fn poll_writable(fd: BorrowedFd<'_>, timeout_ms: i32) -> io::Result<bool> {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one valid entry.
    Ok(check(unsafe { libc::poll(&raw mut entry, 1, timeout_ms) })? > 0)
}

/// Whether the far end of a descriptor has gone: POLLHUP, POLLRDHUP or POLLERR, without waiting.
pub fn is_hung_up(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one valid entry.
    check(unsafe { libc::poll(&raw mut entry, 1, 0) })?;
    Ok(entry.revents & (libc::POLLHUP | libc::POLLRDHUP | libc::POLLERR) != 0)
}

/// epoll_create1(2) watching one descriptor for input, level-triggered.
pub fn epoll_readable(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: takes a plain number.
    let epoll = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(own)?;
    let mut event = libc::epoll_event { events: libc::EPOLLIN.cast_unsigned(), u64: 0 };
    // SAFETY: both descriptors are open and `event` is valid.
    check(unsafe {
        libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &raw mut event)
    })?;
    Ok(epoll)
}

/// epoll_wait(2) for one event; `timeout_ms` −1 waits for ever. Returns whether there was one.
#[inline]
pub fn epoll_wait(epoll: BorrowedFd<'_>, timeout_ms: i32) -> io::Result<bool> {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: room for one event.
    Ok(check(unsafe { libc::epoll_wait(epoll.as_raw_fd(), &raw mut event, 1, timeout_ms) })? > 0)
}
