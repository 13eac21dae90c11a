//! What a socket of TCP or UDP is told beyond the integers of [`crate::socket`]: segment size, type of
//! service, pacing, fragmentation.
//!
//! Left out: congestion control by name ([`crate::socket`]), and TCP_INFO ([`crate::tcp_info`]).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::{check, check_len};

/// getsockopt(2) TCP_MAXSEG.
pub fn max_segment(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut value = 0_i32;
    let mut len: libc::socklen_t = 4;
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_MAXSEG);
    // SAFETY: `value` is a writable int of the size given.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len)
    })?;
    Ok(value.unsigned_abs())
}

/// setsockopt(2) TCP_MAXSEG: before connecting, what is offered; afterwards, the most that is sent.
pub fn set_max_segment(fd: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, bytes)
}

/// setsockopt(2) IP_TOS or IPV6_TCLASS.
pub fn set_service(fd: BorrowedFd<'_>, v6: bool, octet: u8) -> io::Result<()> {
    let (level, name) =
        if v6 { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) } else { (libc::IPPROTO_IP, libc::IP_TOS) };
    set_int(fd, level, name, i32::from(octet))
}

/// setsockopt(2) IP_MTU_DISCOVER or IPV6_MTU_DISCOVER: packets are never fragmented.
pub fn forbid_fragments(fd: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    let (level, name, value) = if v6 {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)
    } else {
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)
    };
    set_int(fd, level, name, value)
}

/// setsockopt(2) SO_RCVLOWAT: a waiting reader sleeps until so many bytes have come.
pub fn set_low_water(fd: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)
}

/// setsockopt(2) SO_MAX_PACING_RATE in bytes a second: by TCP itself, or by the queueing
/// discipline fq.
pub fn set_pacing_rate(fd: BorrowedFd<'_>, bytes_per_second: u64) -> io::Result<()> {
    let value = (&raw const bytes_per_second).cast();
    let (level, name) = (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE);
    // SAFETY: `value` points to eight readable bytes, which Linux takes since 4.20.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value, 8) })?;
    Ok(())
}

/// recv(2) with MSG_TRUNC: up to `len` bytes of a TCP stream are received and not copied.
#[inline]
pub fn discard(fd: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
    // SAFETY: TCP with MSG_TRUNC writes nothing to the buffer (tcp(7)), so there need not be one.
    check_len(unsafe { libc::recv(fd.as_raw_fd(), std::ptr::null_mut(), len, libc::MSG_TRUNC) })
}

fn set_int(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: i32,
) -> io::Result<()> {
    // SAFETY: `value` is a readable int of the size given.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), 4) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_connection_takes_what_it_is_told_and_keeps_within_its_segment() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // What the listener announces is in force from the first segment on.
        set_max_segment(listener.as_fd(), 1_000).unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        assert!(max_segment(near.as_fd()).unwrap() <= 1_000);
        set_service(near.as_fd(), false, 0x10).unwrap();
        set_low_water(far.as_fd(), 1_000).unwrap();
        set_pacing_rate(near.as_fd(), 100_000_000).unwrap();
        near.write_all(&[7; 1000]).unwrap();
        assert_eq!(discard(far.as_fd(), 1000).unwrap(), 1000);
    }
}
