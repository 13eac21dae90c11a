//! Sockets: opening, connecting, sending, receiving, options, and passing descriptors.
//!
//! The steps of an internet socket are apart, for connections that are made without blocking and for sockets handed
//! over from another network namespace.
//!
//! TCP_INFO is read by offset, by the names of `linux/tcp.h`, because the kernel's structure grows at its end: what an older
//! kernel does not say is zero, and [`TcpInfo::len`] tells how much was said.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recvmsg, sendmsg, sockopt,
};

use crate::{check_len, message_of, part_of, read_option};

pub use crate::errno::is_in_progress;

/// The kind of a Unix socket pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnixSocketKind {
    /// SOCK_STREAM.
    Stream,
    /// SOCK_DGRAM.
    Datagram,
    /// SOCK_SEQPACKET.
    SeqPacket,
}

/// socketpair(2) in AF_UNIX, close-on-exec.
pub fn pair(kind: UnixSocketKind) -> io::Result<(OwnedFd, OwnedFd)> {
    let kind = match kind {
        UnixSocketKind::Stream => SocketType::STREAM,
        UnixSocketKind::Datagram => SocketType::DGRAM,
        UnixSocketKind::SeqPacket => SocketType::SEQPACKET,
    };
    Ok(rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?)
}

/// The protocol of an internet socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InetSocketKind {
    /// TCP.
    Stream,
    /// UDP.
    Datagram,
}

/// socket(2) in AF_INET or AF_INET6, close-on-exec and non-blocking; IPV6_V6ONLY in the latter.
pub fn open(v6: bool, kind: InetSocketKind) -> io::Result<OwnedFd> {
    let family = if v6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let kind = match kind {
        InetSocketKind::Stream => SocketType::STREAM,
        InetSocketKind::Datagram => SocketType::DGRAM,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, kind, flags, None)?;
    if v6 {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    Ok(fd)
}

/// The name of an interface of this network namespace.
pub fn interface_name(index: u32) -> io::Result<String> {
    let any = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    Ok(rustix::net::netdevice::index_to_name(any, index)?)
}

/// SO_REUSEADDR, then bind(2).
pub fn bind(fd: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    sockopt::set_socket_reuseaddr(fd, true)?;
    Ok(rustix::net::bind(fd, &address)?)
}

/// listen(2).
pub fn listen(fd: &OwnedFd, backlog: i32) -> io::Result<()> {
    Ok(rustix::net::listen(fd, backlog)?)
}

/// connect(2).
///
/// # Errors
/// EINPROGRESS of a TCP socket, which is writable once it is decided.
pub fn connect(fd: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    Ok(rustix::net::connect(fd, &address)?)
}

/// SO_LINGER of no time: close(2) then resets the connection.
pub fn reset_on_close(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(fd, Some(Duration::ZERO))?)
}

/// shutdown(2) of both directions, which wakes every thread that waits in this socket.
///
/// # Errors
/// ENOTCONN of a datagram socket that is not connected; its waiters are woken all the same.
pub fn shut_down(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::shutdown(fd, Shutdown::Both)?)
}

/// send(2); never raises SIGPIPE.
#[inline]
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: `bytes` is readable for its length.
    check_len(unsafe {
        libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL)
    })
}

/// send(2) with MSG_ZEROCOPY.
///
/// The kernel holds the pages themselves and only reads them: whoever changes or frees the bytes before the completion
/// is read changes what arrives, and nothing else.
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

/// recv(2) with MSG_TRUNC: up to `len` bytes of a TCP stream are received and not copied.
#[inline]
pub fn discard(fd: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
    // SAFETY: TCP with MSG_TRUNC writes nothing to the buffer (tcp(7)), so there need not be one.
    check_len(unsafe { libc::recv(fd.as_raw_fd(), std::ptr::null_mut(), len, libc::MSG_TRUNC) })
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
    let mut message = message_of(&mut [], &mut control);
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
    /// TCP_NOTSENT_LOWAT: bytes not yet sent from which on a sender waits.
    UnsentMax,
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
    const fn id(self) -> (libc::c_int, libc::c_int) {
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
            Self::UnsentMax => (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
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
    crate::set_option(fd, option.id(), &value)
}

/// getsockopt(2) of an integer.
pub fn option(fd: BorrowedFd<'_>, option: IntOption) -> io::Result<i32> {
    let mut value = 0_i32;
    read_option(fd, option.id(), &mut value)?;
    Ok(value)
}

/// setsockopt(2) TCP_CONGESTION: before connect(2), or on the listener, whose connections inherit it.
///
/// A connection that began with bbr is paced for as long as it lives, whatever it is told afterwards: Linux never takes
/// `sk_pacing_status` back.
pub fn set_congestion(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    Ok(sockopt::set_tcp_congestion(fd, name)?)
}

/// getsockopt(2) TCP_CONGESTION.
pub fn congestion(fd: BorrowedFd<'_>) -> io::Result<String> {
    Ok(sockopt::tcp_congestion(fd)?)
}

/// Datagrams dropped because the receive buffer was full: the last word of SO_MEMINFO.
pub fn receive_drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // linux/sock_diag.h: SK_MEMINFO_DROPS is word 8 of 9.
    let mut words = [0_u32; 9];
    read_option(fd, (libc::SOL_SOCKET, libc::SO_MEMINFO), &mut words)?;
    Ok(words[8])
}

/// getsockopt(2) TCP_MAXSEG.
pub fn max_segment(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut value = 0_i32;
    read_option(fd, (libc::IPPROTO_TCP, libc::TCP_MAXSEG), &mut value)?;
    Ok(value.unsigned_abs())
}

/// setsockopt(2) TCP_MAXSEG: before connecting, what is offered; afterwards, the most that is sent.
pub fn set_max_segment(fd: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    crate::set_option(fd, (libc::IPPROTO_TCP, libc::TCP_MAXSEG), &bytes)
}

/// setsockopt(2) IP_TOS or IPV6_TCLASS.
pub fn set_traffic_class(fd: BorrowedFd<'_>, v6: bool, octet: u8) -> io::Result<()> {
    let set = if v6 {
        sockopt::set_ipv6_tclass(fd, octet.into())
    } else {
        sockopt::set_ip_tos(fd, octet)
    };
    Ok(set?)
}

/// setsockopt(2) IP_MTU_DISCOVER or IPV6_MTU_DISCOVER: packets are never fragmented.
pub fn forbid_fragmentation(fd: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    let set = if v6 {
        sockopt::set_ipv6_mtu_discover(fd, sockopt::Ipv6PathMtuDiscovery::DO)
    } else {
        sockopt::set_ip_mtu_discover(fd, sockopt::Ipv4PathMtuDiscovery::DO)
    };
    Ok(set?)
}

/// setsockopt(2) SO_MAX_PACING_RATE in bytes a second: by TCP itself, or by the queueing
/// discipline fq.
pub fn set_pacing_rate(fd: BorrowedFd<'_>, bytes_per_second: u64) -> io::Result<()> {
    // Eight bytes since Linux 4.20.
    crate::set_option(fd, (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE), &bytes_per_second)
}

/// sendmsg(2) of a header and a body as one datagram.
#[inline]
pub fn send_parts(fd: BorrowedFd<'_>, header: &[u8], body: &[u8]) -> io::Result<usize> {
    let mut parts = [
        libc::iovec { iov_base: header.as_ptr().cast_mut().cast(), iov_len: header.len() },
        libc::iovec { iov_base: body.as_ptr().cast_mut().cast(), iov_len: body.len() },
    ];
    let message = message_of(&mut parts, &mut []);
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
    let mut parts = [part_of(header), part_of(body)];
    let mut message = message_of(&mut parts, &mut []);
    let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: `message` describes two writable ranges.
    check_len(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) })
}

/// Most descriptors of one message.
pub const FDS_MAX: usize = 8;

const CONTROL_LEN: usize = rustix::cmsg_space!(ScmRights(FDS_MAX));

/// sendmsg(2) of bytes and descriptors (unix(7), SCM_RIGHTS) as one message; never raises SIGPIPE.
///
/// # Errors
/// EINVAL for more than [`FDS_MAX`] descriptors.
pub fn send_fds(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); CONTROL_LEN];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// recvmsg(2): bytes, and the descriptors that came with them, close-on-exec; a length of zero is the end.
pub fn receive_fds(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); CONTROL_LEN];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(bytes)];
    let received = recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok((received.bytes, rights.flatten().collect()))
}

/// A sockaddr as an address; `None` for other families.
pub(crate) fn from_storage(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(name.ss_family) {
        libc::AF_INET => {
            let raw = (&raw const *name).cast::<libc::sockaddr_in>();
            // SAFETY: an address of AF_INET is a sockaddr_in, for which the storage has room.
            let raw = unsafe { std::ptr::read(raw) };
            let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(ip.into(), u16::from_be(raw.sin_port)))
        }
        libc::AF_INET6 => {
            let raw = (&raw const *name).cast::<libc::sockaddr_in6>();
            // SAFETY: an address of AF_INET6 is a sockaddr_in6, for which the storage has room.
            let raw = unsafe { std::ptr::read(raw) };
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            let port = u16::from_be(raw.sin6_port);
            Some(SocketAddrV6::new(ip, port, raw.sin6_flowinfo, raw.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Room for more than any kernel says today (6.x: 248 bytes).
const TCP_INFO_ROOM: usize = 512;

/// The fields of a `struct tcp_info` that say how a connection fares.
///
/// Times are microseconds unless a name says otherwise; counts are since the connection was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Bytes of the structure that the kernel filled in.
    pub len: usize,
    /// TCP_ESTABLISHED is 1, TCP_CLOSE 7 (`net/tcp_states.h`).
    pub state: u8,
    /// State of the congestion control: open 0, disorder 1, CWR 2, recovery 3, loss 4.
    pub congestion_state: u8,
    /// Whether the last delivery rate was measured while the application had nothing to send.
    pub is_rate_app_limited: bool,
    /// Retransmission timeout.
    pub rto_us: u32,
    /// Largest segment that is sent.
    pub snd_mss: u32,
    /// Largest segment that was received.
    pub rcv_mss: u32,
    /// Segments sent and not yet acknowledged.
    pub unacked: u32,
    /// Segments held to be lost at this moment.
    pub lost: u32,
    /// Segments retransmitted and not yet acknowledged.
    pub retrans: u32,
    /// Path MTU in bytes.
    pub pmtu: u32,
    /// Smoothed round trip.
    pub rtt_us: u32,
    /// Its variation.
    pub rttvar_us: u32,
    /// Slow start threshold, in segments.
    pub snd_ssthresh: u32,
    /// Congestion window, in segments.
    pub snd_cwnd: u32,
    /// How far segments were seen out of order.
    pub reordering: u32,
    /// Round trip as the receiver estimates it.
    pub rcv_rtt_us: u32,
    /// Bytes that the application took in a round trip, by which the receive buffer grows.
    pub rcv_space: u32,
    /// Segments ever retransmitted.
    pub total_retrans: u32,
    /// Pacing rate in bytes a second; all ones without pacing.
    pub pacing_rate: u64,
    /// Bytes acknowledged.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Segments sent.
    pub segs_out: u32,
    /// Segments received.
    pub segs_in: u32,
    /// Bytes in the send buffer that were never sent.
    pub notsent_bytes: u32,
    /// Smallest round trip of the last minutes.
    pub min_rtt_us: u32,
    /// The latest delivery rate, in bytes a second.
    pub delivery_rate: u64,
    /// Time during which there was something to send.
    pub busy_us: u64,
    /// Of it, the time during which the receiver's window was full.
    pub rwnd_limited_us: u64,
    /// Of it, the time during which the send buffer was full.
    pub sndbuf_limited_us: u64,
    /// Segments delivered.
    pub delivered: u32,
    /// Of them, those that came with a congestion mark.
    pub delivered_ce: u32,
    /// Bytes sent, with those sent again.
    pub bytes_sent: u64,
    /// Bytes sent again.
    pub bytes_retrans: u64,
    /// Segments that the other side says it had already.
    pub dsack_dups: u32,
    /// Times that segments were seen out of order.
    pub reord_seen: u32,
    /// Segments received out of order.
    pub rcv_ooopack: u32,
    /// The window that the other side offers, in bytes.
    pub snd_wnd: u32,
}

/// getsockopt(2) TCP_INFO.
///
/// # Errors
/// The kernel's; EOPNOTSUPP on a socket that is not of TCP.
pub fn tcp_info(fd: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    let mut bytes = [0_u8; TCP_INFO_ROOM];
    let len = read_option(fd, (libc::IPPROTO_TCP, libc::TCP_INFO), &mut bytes)?;
    Ok(parse_tcp_info(&bytes, len))
}

/// Offsets as `pahole` shows them of `struct tcp_info`.
fn parse_tcp_info(bytes: &[u8; TCP_INFO_ROOM], len: usize) -> TcpInfo {
    let word = |at: usize| {
        bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_ne_bytes)
    };
    let long = |at: usize| {
        bytes.get(at..at + 8).and_then(|long| long.try_into().ok()).map_or(0, u64::from_ne_bytes)
    };
    TcpInfo {
        len,
        state: bytes[0],
        congestion_state: bytes[1],
        is_rate_app_limited: bytes[7] & 1 == 1,
        rto_us: word(8),
        snd_mss: word(16),
        rcv_mss: word(20),
        unacked: word(24),
        lost: word(32),
        retrans: word(36),
        pmtu: word(60),
        rtt_us: word(68),
        rttvar_us: word(72),
        snd_ssthresh: word(76),
        snd_cwnd: word(80),
        reordering: word(88),
        rcv_rtt_us: word(92),
        rcv_space: word(96),
        total_retrans: word(100),
        pacing_rate: long(104),
        bytes_acked: long(120),
        bytes_received: long(128),
        segs_out: word(136),
        segs_in: word(140),
        notsent_bytes: word(144),
        min_rtt_us: word(148),
        delivery_rate: long(160),
        busy_us: long(168),
        rwnd_limited_us: long(176),
        sndbuf_limited_us: long(184),
        delivered: word(192),
        delivered_ce: word(196),
        bytes_sent: long(200),
        bytes_retrans: long(208),
        dsack_dups: word(216),
        reord_seen: word(220),
        rcv_ooopack: word(224),
        snd_wnd: word(228),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_connection_keeps_within_the_segment_announced() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // An MSS set on the listener holds from the first segment on.
        set_max_segment(listener.as_fd(), 1_000).unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        assert!(max_segment(near.as_fd()).unwrap() <= 1_000);
        set_traffic_class(near.as_fd(), false, 0x10).unwrap();
        set_option(far.as_fd(), IntOption::LowWater, 1_000).unwrap();
        set_pacing_rate(near.as_fd(), 100_000_000).unwrap();
        near.write_all(&[7; 1000]).unwrap();
        assert_eq!(discard(far.as_fd(), 1000).unwrap(), 1000);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a deadline of this test")]
    fn both_ends_count_the_bytes_that_passed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let sent = vec![7_u8; 100_000];
        std::thread::scope(|scope| {
            scope.spawn(|| sender.write_all(&sent).unwrap());
            receiver.read_exact(&mut vec![0; sent.len()]).unwrap();
        });
        let there = tcp_info(receiver.as_fd()).unwrap();
        assert_eq!((there.state, there.bytes_received), (1, 100_000));
        let begun = std::time::Instant::now();
        let here = loop {
            let here = tcp_info(sender.as_fd()).unwrap();
            assert!(begun.elapsed().as_secs() < 60, "never acknowledged: {here:?}");
            if here.unacked == 0 && here.notsent_bytes == 0 {
                break here;
            }
            std::thread::yield_now();
        };
        assert!(here.len >= 192, "{here:?}");
        // The SYN counts as one.
        assert!((100_000..=100_001).contains(&here.bytes_acked), "{here:?}");
        assert!(here.snd_mss > 500 && here.snd_cwnd > 0 && here.pmtu > 500, "{here:?}");
    }

    #[test]
    fn a_socket_of_another_protocol_is_refused() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(tcp_info(socket.as_fd()).is_err());
    }
}
