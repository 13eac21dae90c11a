//! Datagrams with the moment at which the kernel received each.
//!
//! Left out: hardware time stamps.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::{check, check_len};

/// Has the kernel note when each datagram came: setsockopt(2) SO_TIMESTAMPNS.
pub fn stamp_receptions(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_socket_option(fd, libc::SO_TIMESTAMPNS, 1)
}

/// Room for datagrams beyond what the system allows others: SO_RCVBUFFORCE, which whoever owns the
/// namespace may do.
pub fn force_receive_buffer(fd: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    set_socket_option(fd, libc::SO_RCVBUFFORCE, bytes)
}

fn set_socket_option(fd: BorrowedFd<'_>, name: libc::c_int, value: i32) -> io::Result<()> {
    let value = (&raw const value).cast();
    // SAFETY: `value` points to an int, of which the size is given.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, name, value, 4) })?;
    Ok(())
}

/// recvmsg(2): bytes received, and when by the real-time clock, in nanoseconds, where the kernel says.
pub fn receive_stamped(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
    let mut control = [0_u64; 8];
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: a msghdr is plain data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: `message` describes writable memory.
    let len = check_len(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, 0) })?;
    // SAFETY: the kernel filled in `message`.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    if header.is_null() {
        return Ok((len, None));
    }
    // SAFETY: a non-null header of this message is readable.
    let kind = unsafe { (*header).cmsg_type };
    if kind != libc::SCM_TIMESTAMPNS {
        return Ok((len, None));
    }
    // SAFETY: a non-null header's data follows it.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: the data of SCM_TIMESTAMPNS is a timespec.
    let time: libc::timespec = unsafe { std::ptr::read_unaligned(data.cast()) };
    let (secs, ns) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    Ok((len, secs.ok().zip(ns.ok()).map(|(secs, ns)| secs * 1_000_000_000 + ns)))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;
    use crate::clock::{Clock, read_ns};

    #[test]
    fn a_datagram_carries_the_moment_of_its_reception() {
        let (from, to) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        stamp_receptions(to.as_fd()).unwrap();
        let before = read_ns(Clock::Realtime);
        from.send_to(b"when", to.local_addr().unwrap()).unwrap();
        let mut buffer = [0; 16];
        let (len, at) = receive_stamped(to.as_fd(), &mut buffer).unwrap();
        let after = read_ns(Clock::Realtime);
        assert_eq!(&buffer[..len], b"when");
        assert!((before..=after).contains(&at.unwrap()));
    }
}
