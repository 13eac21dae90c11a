//! Internet sockets step by step: made, bound, connected and ended without waiting.
//!
//! The standard library makes and connects in one call that waits; whoever has many connections
//! under way, or is handed a socket of another network namespace, needs the steps. Left out:
//! reading and writing (`crate::socket`).

use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::check;

/// What a socket carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TCP.
    Stream,
    /// UDP.
    Datagram,
}

/// socket(2) in AF_INET or AF_INET6, close-on-exec, not waiting; of IPv6 only where it is that.
pub fn socket(v6: bool, kind: Kind) -> io::Result<OwnedFd> {
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    let kind = match kind {
        Kind::Stream => libc::SOCK_STREAM,
        Kind::Datagram => libc::SOCK_DGRAM,
    };
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes plain numbers.
    let fd = check(unsafe { libc::socket(family, kind | flags, 0) })?;
    // SAFETY: just created for the caller alone.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    if v6 {
        set(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    }
    Ok(fd)
}

/// if_indextoname(3): the name of an interface in this network namespace.
pub fn interface_name(index: u32) -> io::Result<String> {
    let mut name = [0_u8; libc::IF_NAMESIZE];
    // SAFETY: `name` has room for the longest name and its end.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr().cast()) };
    if found.is_null() {
        return Err(io::Error::last_os_error());
    }
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

/// SO_REUSEADDR, then bind(2).
pub fn bind(fd: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    with_address(address, |pointer, len| {
        // SAFETY: `pointer` is readable for `len` bytes.
        unsafe { libc::bind(fd.as_raw_fd(), pointer, len) }
    })
}

/// listen(2).
pub fn listen(fd: &OwnedFd, backlog: i32) -> io::Result<()> {
    // SAFETY: takes plain numbers.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) })?;
    Ok(())
}

/// connect(2).
///
/// # Errors
/// EINPROGRESS of a TCP socket, which is writable once it is decided; the kernel's.
pub fn connect(fd: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    with_address(address, |pointer, len| {
        // SAFETY: `pointer` is readable for `len` bytes.
        unsafe { libc::connect(fd.as_raw_fd(), pointer, len) }
    })
}

/// Whether connect(2) is under way and will be decided later.
pub fn is_in_progress(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINPROGRESS)
}

/// SO_LINGER of no time: closing then tells the other side by a reset, not by an end.
pub fn reset_on_close(fd: BorrowedFd<'_>) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let len = libc::socklen_t::try_from(size_of_val(&linger)).unwrap_or(8);
    let value = (&raw const linger).cast();
    // SAFETY: `linger` is readable for `len` bytes.
    check(unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, len)
    })?;
    Ok(())
}

/// shutdown(2) of both directions: whoever waits in this socket, in whatever thread, returns.
///
/// A datagram socket that is not connected says ENOTCONN, and wakes them all the same.
pub fn shut_down(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes plain numbers.
    check(unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_RDWR) })?;
    Ok(())
}

fn set(fd: &OwnedFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: `value` is a readable int of the size given.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), 4) })?;
    Ok(())
}

/// Gives `call` the kernel's form of an address.
fn with_address(
    address: SocketAddr,
    call: impl FnOnce(*const libc::sockaddr, libc::socklen_t) -> libc::c_int,
) -> io::Result<()> {
    let result = match address.ip() {
        IpAddr::V4(ip) => {
            // SAFETY: a sockaddr_in is plain data.
            let mut raw: libc::sockaddr_in = unsafe { zeroed() };
            raw.sin_family = libc::sa_family_t::try_from(libc::AF_INET).unwrap_or(0);
            raw.sin_port = address.port().to_be();
            raw.sin_addr.s_addr = u32::from_ne_bytes(ip.octets());
            call((&raw const raw).cast(), libc::socklen_t::try_from(size_of_val(&raw)).unwrap_or(0))
        }
        IpAddr::V6(ip) => {
            // SAFETY: a sockaddr_in6 is plain data.
            let mut raw: libc::sockaddr_in6 = unsafe { zeroed() };
            if let SocketAddr::V6(zoned) = address {
                raw.sin6_scope_id = zoned.scope_id();
                raw.sin6_flowinfo = zoned.flowinfo();
            }
            raw.sin6_family = libc::sa_family_t::try_from(libc::AF_INET6).unwrap_or(0);
            raw.sin6_port = address.port().to_be();
            raw.sin6_addr.s6_addr = ip.octets();
            call((&raw const raw).cast(), libc::socklen_t::try_from(size_of_val(&raw)).unwrap_or(0))
        }
    };
    check(result)?;
    Ok(())
}
