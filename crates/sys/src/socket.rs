//! Sockets: pairs, sending, receiving, and options by name.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::{check, check_len};

/// The kind of a Unix socket pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SOCK_STREAM.
    Stream,
    /// SOCK_DGRAM.
    Datagram,
    /// SOCK_SEQPACKET.
    SeqPacket,
}

/// socketpair(2) in AF_UNIX, close-on-exec.
pub fn pair(kind: Kind) -> io::Result<(OwnedFd, OwnedFd)> {
    let kind = match kind {
        Kind::Stream => libc::SOCK_STREAM,
        Kind::Datagram => libc::SOCK_DGRAM,
        Kind::SeqPacket => libc::SOCK_SEQPACKET,
    };
    let mut fds = [0; 2];
    // SAFETY: `fds` holds two descriptors.
    check(unsafe {
        libc::socketpair(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr())
    })?;
    // SAFETY: just created for the caller alone.
    let first = unsafe { OwnedFd::from_raw_fd(fds[0]) };
    // SAFETY: just created for the caller alone.
    let second = unsafe { OwnedFd::from_raw_fd(fds[1]) };
    Ok((first, second))
}

/// send(2); never raises SIGPIPE.
#[inline]
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: `bytes` is readable for its length.
    check_len(unsafe {
        libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL)
    })
}

/// send(2) with MSG_ZEROCOPY: the pages must not change until the completion is read.
#[inline]
pub fn send_zerocopy(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: `bytes` is readable for its length.
    check_len(unsafe {
        libc::send(
            fd.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_NOSIGNAL | libc::MSG_ZEROCOPY,
        )
    })
}

/// recv(2), waiting for the first byte unless `wait` is false.
#[inline]
pub fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
    let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: `buffer` is writable for its length.
    check_len(unsafe {
        libc::recv(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), flags)
    })
}

/// One completion of zero-copy sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZerocopyCompletion {
    /// Sends completed.
    pub sends: u32,
    /// Whether the kernel copied after all, as it does on loopback.
    pub copied: bool,
}

/// Reads one completion of zero-copy sends from the error queue, without waiting.
///
/// # Errors
/// EAGAIN when there is none.
pub fn zerocopy_completion(fd: BorrowedFd<'_>) -> io::Result<ZerocopyCompletion> {
    let mut control = [0_u64; 16];
    // SAFETY: a msghdr is plain data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: `message` describes valid memory.
    check_len(unsafe {
        libc::recvmsg(fd.as_raw_fd(), &raw mut message, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
    })?;
    // SAFETY: the kernel filled in `message`.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    if header.is_null() {
        return Err(io::Error::from_raw_os_error(libc::EAGAIN));
    }
    // SAFETY: a non-null header's data follows it.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: on the error queue of an IP socket the data is a sock_extended_err.
    let error: libc::sock_extended_err = unsafe { std::ptr::read_unaligned(data.cast()) };
    // ee_info and ee_data are the first and last send completed (msg_zerocopy.rst).
    let sends = error.ee_data.wrapping_sub(error.ee_info).wrapping_add(1);
    Ok(ZerocopyCompletion { sends, copied: error.ee_code == 1 })
}

/// Options whose value is an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntOption {
    /// TCP_NODELAY.
    NoDelay,
    /// TCP_QUICKACK.
    QuickAck,
    /// SO_SNDBUF.
    SendBuffer,
    /// SO_RCVBUF.
    ReceiveBuffer,
    /// SO_RCVBUFFORCE: whatever net.core.rmem_max says, with CAP_NET_ADMIN.
    ReceiveBufferForce,
    /// IP_MTU_DISCOVER.
    MtuDiscover,
    /// SO_ZEROCOPY.
    Zerocopy,
    /// UDP_SEGMENT: bytes of each datagram that one sending call is cut into.
    UdpSegment,
    /// TCP_WINDOW_CLAMP: the largest window that is offered.
    WindowClamp,
    /// SO_MAX_PACING_RATE: bytes a second at which TCP sends at most.
    MaxPacingRate,
    /// SO_SNDBUFFORCE: whatever net.core.wmem_max says, with CAP_NET_ADMIN.
    SendBufferForce,
    /// SO_BUSY_POLL: microseconds that a blocking receive asks the device before it sleeps.
    BusyPoll,
    /// SO_RCVLOWAT: bytes that must wait before a receiver is woken.
    LowWater,
    /// SO_INCOMING_CPU: the CPU on which the kernel last took in a packet of this flow; −1 before.
    IncomingCpu,
    /// SO_INCOMING_NAPI_ID: the kernel's number of the receive queue by which a packet of this flow last came; 0
    /// where no queue of a device is polled for it, as on a loopback.
    IncomingQueue,
    /// SO_KEEPALIVE: whether a silent connection is asked for a sign of life.
    KeepAlive,
    /// TCP_KEEPIDLE: seconds of silence before that.
    KeepAliveIdle,
    /// TCP_KEEPINTVL: seconds between two such questions.
    KeepAliveInterval,
    /// TCP_KEEPCNT: questions without an answer after which the connection is broken.
    KeepAliveCount,
    /// TCP_USER_TIMEOUT: milliseconds after which what nobody acknowledged breaks the connection.
    UserTimeout,
}

impl IntOption {
    const fn names(self) -> (libc::c_int, libc::c_int) {
        match self {
            Self::NoDelay => (libc::IPPROTO_TCP, libc::TCP_NODELAY),
            Self::QuickAck => (libc::IPPROTO_TCP, libc::TCP_QUICKACK),
            Self::SendBuffer => (libc::SOL_SOCKET, libc::SO_SNDBUF),
            Self::ReceiveBuffer => (libc::SOL_SOCKET, libc::SO_RCVBUF),
            Self::ReceiveBufferForce => (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE),
            Self::MtuDiscover => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
            Self::Zerocopy => (libc::SOL_SOCKET, libc::SO_ZEROCOPY),
            Self::UdpSegment => (libc::SOL_UDP, libc::UDP_SEGMENT),
            Self::WindowClamp => (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP),
            Self::MaxPacingRate => (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE),
            Self::SendBufferForce => (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE),
            Self::BusyPoll => (libc::SOL_SOCKET, libc::SO_BUSY_POLL),
            Self::LowWater => (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
            Self::IncomingCpu => (libc::SOL_SOCKET, libc::SO_INCOMING_CPU),
            Self::IncomingQueue => (libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID),
            Self::KeepAlive => (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
            Self::KeepAliveIdle => (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
            Self::KeepAliveInterval => (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
            Self::KeepAliveCount => (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
            Self::UserTimeout => (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
        }
    }
}

/// setsockopt(2) of an integer.
#[inline]
pub fn set_option(fd: BorrowedFd<'_>, option: IntOption, value: i32) -> io::Result<()> {
    let (level, name) = option.names();
    // SAFETY: `value` is a readable int of the size given.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), 4) })?;
    Ok(())
}

/// getsockopt(2) of an integer.
pub fn option(fd: BorrowedFd<'_>, option: IntOption) -> io::Result<i32> {
    let (level, name) = option.names();
    let mut value = 0_i32;
    let mut len: libc::socklen_t = 4;
    // SAFETY: `value` is a writable int of the size given.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len)
    })?;
    Ok(value)
}

/// setsockopt(2) TCP_CONGESTION.
pub fn set_congestion(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let len = libc::socklen_t::try_from(name.len())
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: `name` is readable for its length.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            len,
        )
    })?;
    Ok(())
}

/// getsockopt(2) TCP_CONGESTION.
pub fn congestion(fd: BorrowedFd<'_>) -> io::Result<String> {
    let mut name = [0_u8; 16];
    let mut len: libc::socklen_t = 16;
    // SAFETY: `name` is writable for `len` bytes.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_mut_ptr().cast(),
            &raw mut len,
        )
    })?;
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

/// Datagrams that the socket's receive buffer had no room for: SO_MEMINFO, its last word.
pub fn receive_drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // linux/sock_diag.h: SK_MEMINFO_DROPS is word 8 of 9.
    let mut words = [0_u32; 9];
    let mut len = libc::socklen_t::try_from(size_of_val(&words)).unwrap_or(36);
    // SAFETY: `words` is writable for `len` bytes.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            words.as_mut_ptr().cast(),
            &raw mut len,
        )
    })?;
    Ok(words[8])
}

/// sendmsg(2) of a header and a body as one datagram.
#[inline]
pub fn send_parts(fd: BorrowedFd<'_>, header: &[u8], body: &[u8]) -> io::Result<usize> {
    let mut parts = [
        libc::iovec { iov_base: header.as_ptr().cast_mut().cast(), iov_len: header.len() },
        libc::iovec { iov_base: body.as_ptr().cast_mut().cast(), iov_len: body.len() },
    ];
    // SAFETY: a msghdr is plain data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = 2;
    // SAFETY: `message` describes two readable ranges, which sendmsg does not write.
    check_len(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) })
}

/// recvmsg(2) of one datagram into a header and a body.
#[inline]
pub fn receive_parts(
    fd: BorrowedFd<'_>,
    header: &mut [u8],
    body: &mut [u8],
    wait: bool,
) -> io::Result<usize> {
    let mut parts = [
        libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() },
        libc::iovec { iov_base: body.as_mut_ptr().cast(), iov_len: body.len() },
    ];
    // SAFETY: a msghdr is plain data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = 2;
    let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: `message` describes two writable ranges.
    check_len(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) })
}
