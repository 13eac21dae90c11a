//! Moving pages instead of bytes: splice(2), vmsplice(2), sendfile(2).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::check_len;

/// splice(2) between two descriptors, at least one a pipe.
#[inline]
pub fn splice(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    len: usize,
    wait: bool,
) -> io::Result<usize> {
    let flags = if wait { 0 } else { libc::SPLICE_F_NONBLOCK };
    // SAFETY: null offsets mean the files' own.
    check_len(unsafe {
        libc::splice(
            from.as_raw_fd(),
            std::ptr::null_mut(),
            to.as_raw_fd(),
            std::ptr::null_mut(),
            len,
            flags | libc::SPLICE_F_MOVE,
        )
    })
}

/// vmsplice(2): lends the pages under `bytes` to a pipe; they must not change until read.
#[inline]
pub fn lend_pages(pipe: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
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
