//! Datagrams with what the kernel says about each: when it came, how, and what was dropped before it.
//!
//! Left out: hardware time stamps.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::{check, check_len};

mod batch;

pub use batch::{Arrival, ReceiveBatch, SendBatch, send_from};

/// What the kernel is asked to say about each datagram received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// When it came: SO_TIMESTAMPNS.
    Time,
    /// Datagrams dropped for want of room: SO_RXQ_OVFL.
    Overflow,
    /// Several of one size may be joined, and their size said: UDP_GRO.
    Joined,
    /// Its time to live or hop limit: IP_RECVTTL, IPV6_RECVHOPLIMIT.
    Ttl,
    /// The address that it was sent to: IP_PKTINFO, IPV6_RECVPKTINFO.
    Destination,
    /// What became of those sent before, so that a datagram that this machine's own queue drops is an error
    /// of its call (ENOBUFS): IP_RECVERR, IPV6_RECVERR.
    Errors,
}

/// Asks the kernel to say something about each datagram of a socket of either family.
///
/// # Errors
/// ENOPROTOOPT where the kernel does not know it.
pub fn notice(fd: BorrowedFd<'_>, v6: bool, notice: Notice) -> io::Result<()> {
    let (level, name) = match (notice, v6) {
        (Notice::Time, _) => (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
        (Notice::Overflow, _) => (libc::SOL_SOCKET, libc::SO_RXQ_OVFL),
        (Notice::Joined, _) => (libc::SOL_UDP, libc::UDP_GRO),
        (Notice::Ttl, false) => (libc::IPPROTO_IP, libc::IP_RECVTTL),
        (Notice::Ttl, true) => (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
        (Notice::Destination, false) => (libc::IPPROTO_IP, libc::IP_PKTINFO),
        (Notice::Destination, true) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
        (Notice::Errors, false) => (libc::IPPROTO_IP, libc::IP_RECVERR),
        (Notice::Errors, true) => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    };
    set_int(fd, level, name, 1)
}

/// Never fragments, and sends whatever the interface takes, whatever is known of the path:
/// IP_MTU_DISCOVER or IPV6_MTU_DISCOVER of PROBE.
pub fn probe_path_mtu(fd: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    if v6 {
        let probe = libc::IPV6_PMTUDISC_PROBE;
        set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, probe)
    } else {
        set_int(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)
    }
}

/// Bytes of the longest IP packet that the kernel believes the path of a connected socket to take: IP_MTU, IPV6_MTU.
pub fn path_mtu(fd: BorrowedFd<'_>, v6: bool) -> io::Result<u32> {
    let (level, name) =
        if v6 { (libc::IPPROTO_IPV6, libc::IPV6_MTU) } else { (libc::IPPROTO_IP, libc::IP_MTU) };
    let mut bytes: libc::c_int = 0;
    let mut len: libc::socklen_t = 4;
    let value = (&raw mut bytes).cast();
    // SAFETY: `value` points to a writable int, of which `len` is the size.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value, &raw mut len) })?;
    Ok(bytes.unsigned_abs())
}

/// Time to live, or hop limit, of what a socket sends: IP_TTL, IPV6_UNICAST_HOPS.
pub fn set_ttl(fd: BorrowedFd<'_>, v6: bool, ttl: u8) -> io::Result<()> {
    if v6 {
        set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, i32::from(ttl))
    } else {
        set_int(fd, libc::IPPROTO_IP, libc::IP_TTL, i32::from(ttl))
    }
}

/// Bytes of a connected socket that are sent and not yet out of this machine's queues: ioctl(2) SIOCOUTQ.
pub fn unsent_bytes(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: `bytes` is a writable int, which is what TIOCOUTQ, the same number as SIOCOUTQ, fills in.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(bytes.unsigned_abs())
}

/// recvmsg(2) of the error queue, without waiting: takes one error off it; false when there is none.
pub fn discard_error(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: a msghdr is plain data; without room for anything the rest is cut off.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: `message` describes no memory at all.
    match check_len(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) }) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

fn set_int(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    let value = (&raw const value).cast();
    // SAFETY: `value` points to an int, of which the size is given.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value, 4) })?;
    Ok(())
}

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
    set_int(fd, libc::SOL_SOCKET, name, value)
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
