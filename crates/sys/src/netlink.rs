//! Netlink sockets to the kernel's routing tables.
//!
//! Messages are sent and received as on any socket (`crate::socket`). Left out: what they say.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::check;

/// socket(2) for rtnetlink(7) of this thread's network namespace, close-on-exec; it keeps that
/// namespace whatever thread uses it.
pub fn route_socket() -> io::Result<OwnedFd> {
    // SAFETY: takes plain numbers.
    let fd = check(unsafe {
        libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE)
    })?;
    // SAFETY: just created for the caller alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// setsockopt(2) NETLINK_EXT_ACK: errors come with the kernel's own words.
///
/// # Errors
/// ENOPROTOOPT before Linux 4.12.
pub fn explain_errors(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on = 1_i32;
    // SAFETY: `on` is a readable int of the size given.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_NETLINK,
            libc::NETLINK_EXT_ACK,
            (&raw const on).cast(),
            4,
        )
    })?;
    Ok(())
}
