//! Datagrams with what the kernel says about each: when it came, how, and what was dropped before it.

use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::net::addr::{SocketAddrArg as _, SocketAddrOpaque};
use rustix::net::sockopt;

use crate::socket::from_storage;
use crate::{check, check_len, message_of, part_of, set_option};

/// What the kernel is asked to say about each datagram received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramOption {
    /// When it came: SO_TIMESTAMPNS.
    ReceiveTimestamp,
    /// Datagrams dropped for want of room: SO_RXQ_OVFL.
    DropCount,
    /// Several of one size may be joined, and their size said: UDP_GRO.
    ReceiveOffload,
    /// Its time to live or hop limit: IP_RECVTTL, IPV6_RECVHOPLIMIT.
    Ttl,
    /// The address that it was sent to: IP_PKTINFO, IPV6_RECVPKTINFO.
    PacketInfo,
    /// What happened to those sent before, so that a datagram that this machine's own queue drops is an error
    /// of its call (ENOBUFS): IP_RECVERR, IPV6_RECVERR.
    ExtendedErrors,
}

/// Asks the kernel to say something about each datagram of a socket of either family.
///
/// # Errors
/// ENOPROTOOPT where the kernel does not know it.
pub fn enable_option(fd: BorrowedFd<'_>, v6: bool, notice: DatagramOption) -> io::Result<()> {
    let (level, name) = match (notice, v6) {
        (DatagramOption::ReceiveTimestamp, _) => (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
        (DatagramOption::DropCount, _) => (libc::SOL_SOCKET, libc::SO_RXQ_OVFL),
        (DatagramOption::ReceiveOffload, _) => (libc::SOL_UDP, libc::UDP_GRO),
        (DatagramOption::Ttl, false) => (libc::IPPROTO_IP, libc::IP_RECVTTL),
        (DatagramOption::Ttl, true) => (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
        (DatagramOption::PacketInfo, false) => (libc::IPPROTO_IP, libc::IP_PKTINFO),
        (DatagramOption::PacketInfo, true) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
        (DatagramOption::ExtendedErrors, false) => (libc::IPPROTO_IP, libc::IP_RECVERR),
        (DatagramOption::ExtendedErrors, true) => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    };
    set_option(fd, (level, name), &1_i32)
}

/// Never fragments, and sends whatever the interface takes, whatever is known about the path:
/// IP_MTU_DISCOVER or IPV6_MTU_DISCOVER of PROBE.
pub fn probe_path_mtu(fd: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    let set = if v6 {
        sockopt::set_ipv6_mtu_discover(fd, sockopt::Ipv6PathMtuDiscovery::PROBE)
    } else {
        sockopt::set_ip_mtu_discover(fd, sockopt::Ipv4PathMtuDiscovery::PROBE)
    };
    Ok(set?)
}

/// The path MTU, in bytes of an IP packet, that the kernel knows for a connected socket: IP_MTU, IPV6_MTU.
pub fn path_mtu(fd: BorrowedFd<'_>, v6: bool) -> io::Result<u32> {
    Ok(if v6 { sockopt::ipv6_mtu(fd) } else { sockopt::ip_mtu(fd) }?)
}

/// Time to live, or hop limit, of what a socket sends: IP_TTL, IPV6_UNICAST_HOPS.
pub fn set_ttl(fd: BorrowedFd<'_>, v6: bool, ttl: u8) -> io::Result<()> {
    let set = if v6 {
        sockopt::set_ipv6_unicast_hops(fd, Some(ttl))
    } else {
        sockopt::set_ip_ttl(fd, ttl.into())
    };
    Ok(set?)
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
    // Without room for anything the rest is cut off.
    let mut message = message_of(&mut [], &mut []);
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: `message` describes no memory at all.
    match check_len(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) }) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Has the kernel note when each datagram came: setsockopt(2) SO_TIMESTAMPNS.
pub fn enable_receive_timestamps(fd: BorrowedFd<'_>) -> io::Result<()> {
    enable_option(fd, false, DatagramOption::ReceiveTimestamp)
}

/// recvmsg(2): bytes received, and when by the real-time clock, in nanoseconds, where the kernel says.
pub fn receive_with_timestamp(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<(usize, Option<u64>)> {
    let mut control = [0_u64; 8];
    let mut parts = [part_of(buffer)];
    let mut message = message_of(&mut parts, &mut control);
    // SAFETY: `message` describes writable memory.
    let len = check_len(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, 0) })?;
    let mut datagram = ReceivedDatagram::default();
    read_control(&message, &mut datagram);
    Ok((len, datagram.received_ns))
}

/// Bytes of the longest address.
const ADDRESS_LEN_MAX: libc::socklen_t = 128;
const _: () = assert!(size_of::<libc::sockaddr_storage>() == 128);

/// Words of eight bytes for the control messages of one datagram; all that are asked for take half.
const CONTROL_WORDS: usize = 32;

/// Bytes of one datagram, or of several of one size that the kernel joined, and what it says about them.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceivedDatagram<'a> {
    /// The bytes, cut off at the length of a slot.
    pub bytes: &'a [u8],
    /// Whether more came than a slot holds.
    pub is_truncated: bool,
    /// Who sent it.
    pub from: Option<SocketAddr>,
    /// When the kernel received it, by the real-time clock, in nanoseconds.
    pub received_ns: Option<u64>,
    /// Datagrams dropped so far for want of room in this socket's buffer: SO_RXQ_OVFL.
    pub drops: Option<u32>,
    /// Bytes of each datagram where several were joined: UDP_GRO.
    pub segment_bytes: Option<usize>,
    /// Time to live, or hop limit, as it came.
    pub ttl: Option<u8>,
    /// The address that it was sent to, and the index of the interface that it came by.
    pub to: Option<(IpAddr, u32)>,
}

/// Memory for many datagrams of one call, each in a slot of its own.
#[derive(Debug)]
struct MessageSlots {
    bytes: Vec<u8>,
    slot_bytes: usize,
    parts: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers inside point to memory that the slots themselves own, and that never moves.
unsafe impl Send for MessageSlots {}

impl MessageSlots {
    /// `slots` slots of `slot_bytes` each, all zero.
    fn new(slots: usize, slot_bytes: usize) -> Self {
        let mut bytes = vec![0; slots * slot_bytes];
        let mut parts: Vec<_> = bytes.chunks_exact_mut(slot_bytes.max(1)).map(part_of).collect();
        let headers = parts
            .chunks_exact_mut(1)
            .map(|part| libc::mmsghdr { msg_hdr: message_of(part, &mut []), msg_len: 0 });
        Self { slot_bytes, headers: headers.collect(), parts, bytes }
    }
}

/// Memory for receiving many datagrams by one call.
#[derive(Debug)]
pub struct ReceiveBatch {
    slots: MessageSlots,
    control: Vec<[u64; CONTROL_WORDS]>,
    names: Vec<libc::sockaddr_storage>,
}

impl ReceiveBatch {
    /// Room for `slots` datagrams of `slot_bytes` each.
    pub fn new(slots: usize, slot_bytes: usize) -> Self {
        // SAFETY: a sockaddr_storage is plain data.
        let name: libc::sockaddr_storage = unsafe { zeroed() };
        let mut slots = MessageSlots::new(slots, slot_bytes);
        let mut control = vec![[0; CONTROL_WORDS]; slots.headers.len()];
        let mut names = vec![name; slots.headers.len()];
        for ((header, control), name) in slots.headers.iter_mut().zip(&mut control).zip(&mut names)
        {
            header.msg_hdr.msg_name = std::ptr::from_mut(name).cast();
            header.msg_hdr.msg_control = control.as_mut_ptr().cast();
        }
        Self { slots, control, names }
    }

    /// recvmmsg(2): how many came. Waits for the first unless `wait` is false, never for the others.
    #[inline]
    pub fn receive(&mut self, fd: BorrowedFd<'_>, wait: bool) -> io::Result<usize> {
        for (header, control) in self.slots.headers.iter_mut().zip(&self.control) {
            header.msg_hdr.msg_namelen = ADDRESS_LEN_MAX;
            header.msg_hdr.msg_controllen = size_of_val(control) as _;
        }
        let flags = if wait { libc::MSG_WAITFORONE } else { libc::MSG_DONTWAIT };
        let count = libc::c_uint::try_from(self.slots.headers.len()).unwrap_or(libc::c_uint::MAX);
        // SAFETY: `count` headers describe writable memory that this batch owns.
        let came = check(unsafe {
            let headers = self.slots.headers.as_mut_ptr();
            libc::recvmmsg(fd.as_raw_fd(), headers, count, flags, std::ptr::null_mut())
        })?;
        Ok(usize::try_from(came).unwrap_or(0))
    }

    /// The `index`-th of those that the last call received.
    #[inline]
    pub fn datagram(&self, index: usize) -> ReceivedDatagram<'_> {
        let header = &self.slots.headers[index];
        let len = usize::try_from(header.msg_len).unwrap_or(0).min(self.slots.slot_bytes);
        let start = index * self.slots.slot_bytes;
        let mut arrival = ReceivedDatagram {
            bytes: &self.slots.bytes[start..start + len],
            is_truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            from: from_storage(&self.names[index]),
            ..ReceivedDatagram::default()
        };
        read_control(&header.msg_hdr, &mut arrival);
        arrival
    }
}

/// Goes through the control messages of one datagram.
fn read_control(message: &libc::msghdr, arrival: &mut ReceivedDatagram<'_>) {
    // SAFETY: the kernel filled in `message`, of which the batch owns the memory.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: a non-null header of this message is readable.
        let cmsg = unsafe { std::ptr::read_unaligned(header) };
        // SAFETY: a non-null header's data follows it.
        let data = unsafe { libc::CMSG_DATA(header) };
        match (cmsg.cmsg_level, cmsg.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: the data of SCM_TIMESTAMPNS is a timespec.
                let time: libc::timespec = unsafe { std::ptr::read_unaligned(data.cast()) };
                let (secs, ns) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
                arrival.received_ns = secs.ok().zip(ns.ok()).map(|(s, ns)| s * 1_000_000_000 + ns);
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                // SAFETY: the data of SO_RXQ_OVFL is a 32-bit count.
                arrival.drops = Some(unsafe { std::ptr::read_unaligned(data.cast()) });
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                // SAFETY: the data of UDP_GRO is an int.
                let size: libc::c_int = unsafe { std::ptr::read_unaligned(data.cast()) };
                arrival.segment_bytes = usize::try_from(size).ok().filter(|&size| size > 0);
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                // SAFETY: the data of both is an int.
                let ttl: libc::c_int = unsafe { std::ptr::read_unaligned(data.cast()) };
                arrival.ttl = u8::try_from(ttl).ok();
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // SAFETY: the data of IP_PKTINFO is an in_pktinfo.
                let info: libc::in_pktinfo = unsafe { std::ptr::read_unaligned(data.cast()) };
                let ip = Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes());
                arrival.to = Some((ip.into(), info.ipi_ifindex.unsigned_abs()));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                // SAFETY: the data of IPV6_PKTINFO is an in6_pktinfo.
                let info: libc::in6_pktinfo = unsafe { std::ptr::read_unaligned(data.cast()) };
                let ip = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                arrival.to = Some((ip.into(), info.ipi6_ifindex));
            }
            _ => {}
        }
        // SAFETY: `header` is a header of `message`.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
}

/// Memory for sending many datagrams by one call, each from a slot of its own; where one call is cut
/// into several by the kernel (UDP_SEGMENT), a slot holds them all.
#[derive(Debug)]
pub struct SendBatch {
    slots: MessageSlots,
}

impl SendBatch {
    /// Room for `slots` datagrams of up to `slot_bytes` each, all zero.
    pub fn new(slots: usize, slot_bytes: usize) -> Self {
        Self { slots: MessageSlots::new(slots, slot_bytes) }
    }

    /// The bytes of one slot.
    #[inline]
    pub fn slot(&mut self, index: usize) -> &mut [u8] {
        let len = self.slots.slot_bytes;
        &mut self.slots.bytes[index * len..][..len]
    }

    /// How many bytes of a slot are sent.
    #[inline]
    pub fn set_len(&mut self, index: usize, len: usize) {
        self.slots.parts[index].iov_len = len.min(self.slots.slot_bytes);
    }

    /// sendmmsg(2) of slots `first` to `end` over a connected socket, without waiting: how many went. An
    /// error is of the first of them; one that others went before is told by the next call.
    #[inline]
    pub fn send(&mut self, fd: BorrowedFd<'_>, first: usize, end: usize) -> io::Result<usize> {
        let headers = &mut self.slots.headers[first..end];
        let count = libc::c_uint::try_from(headers.len()).unwrap_or(0);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: `count` headers describe readable memory that this batch owns.
        let sent =
            check(unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count, flags) })?;
        Ok(usize::try_from(sent).unwrap_or(0))
    }
}

/// sendmsg(2) of one datagram to an address, from the one that is given where there are several.
pub fn send_from(
    fd: BorrowedFd<'_>,
    bytes: &[u8],
    to: SocketAddr,
    from: Option<(IpAddr, u32)>,
) -> io::Result<usize> {
    let mut parts =
        [libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }];
    let mut control = [0_u64; 8];
    let control_len = from.map_or(0, |(ip, interface)| write_source(&mut control, ip, interface));
    let mut message = message_of(&mut parts, &mut control[..control_len / 8]);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let send = |name: *const SocketAddrOpaque, len| {
        message.msg_name = name.cast_mut().cast();
        message.msg_namelen = len;
        // SAFETY: `message` describes readable memory, which sendmsg does not write.
        unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, flags) }
    };
    // SAFETY: `send` uses the address within the call only.
    check_len(unsafe { to.with_sockaddr(send) })
}

/// Writes the control message that names the source address; its length in all.
fn write_source(control: &mut [u64; 8], ip: IpAddr, interface: u32) -> usize {
    match ip {
        IpAddr::V4(ip) => {
            let address = libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) };
            let any = libc::in_addr { s_addr: 0 };
            // By the route's interface: an answer may leave by another than the question came by.
            let data = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: address, ipi_addr: any };
            write_control(control, libc::IPPROTO_IP, libc::IP_PKTINFO, data)
        }
        IpAddr::V6(ip) => {
            // Only an address of one link needs its interface named.
            let data = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr { s6_addr: ip.octets() },
                ipi6_ifindex: if ip.is_unicast_link_local() { interface } else { 0 },
            };
            write_control(control, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, data)
        }
    }
}

/// Writes one control message; its length in all.
fn write_control<T>(
    control: &mut [u64; 8],
    level: libc::c_int,
    kind: libc::c_int,
    data: T,
) -> usize {
    /// A control message as it lies in memory: a header of sixteen bytes, then the data.
    #[repr(C)]
    struct AncillaryMessage<T> {
        len: usize,
        level: libc::c_int,
        kind: libc::c_int,
        data: T,
    }
    const {
        assert!(size_of::<AncillaryMessage<T>>() <= 64 && align_of::<AncillaryMessage<T>>() <= 8);
        assert!(size_of::<AncillaryMessage<[u8; 0]>>() == size_of::<libc::cmsghdr>());
    }
    let len = size_of::<libc::cmsghdr>() + size_of::<T>();
    // SAFETY: the buffer is aligned to eight bytes and no shorter than the message.
    unsafe {
        std::ptr::write(control.as_mut_ptr().cast(), AncillaryMessage { len, level, kind, data });
    }
    len.next_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;
    use crate::clock::{ClockId, read_ns};

    #[test]
    fn a_datagram_carries_the_moment_of_its_reception() {
        let (from, to) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        enable_receive_timestamps(to.as_fd()).unwrap();
        let before = read_ns(ClockId::Realtime);
        from.send_to(b"when", to.local_addr().unwrap()).unwrap();
        let mut buffer = [0; 16];
        let (len, at) = receive_with_timestamp(to.as_fd(), &mut buffer).unwrap();
        let after = read_ns(ClockId::Realtime);
        assert_eq!(&buffer[..len], b"when");
        assert!((before..=after).contains(&at.unwrap()));
    }

    fn pair(at: &str) -> (UdpSocket, UdpSocket) {
        let (from, to) = (UdpSocket::bind(at).unwrap(), UdpSocket::bind(at).unwrap());
        from.connect(to.local_addr().unwrap()).unwrap();
        to.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        (from, to)
    }

    #[test]
    fn a_batch_arrives_in_order_with_sender_time_and_hop_limit_in_both_families() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let (from, to) = pair(at);
            let v6 = at.starts_with('[');
            for notice in
                [DatagramOption::ReceiveTimestamp, DatagramOption::Ttl, DatagramOption::PacketInfo]
            {
                enable_option(to.as_fd(), v6, notice).unwrap();
            }
            let mut sending = SendBatch::new(3, 100);
            for index in 0..3 {
                sending.slot(index)[0] = u8::try_from(index).unwrap();
                sending.set_len(index, 10 + index);
            }
            assert_eq!(sending.send(from.as_fd(), 0, 3).unwrap(), 3);
            let mut receiving = ReceiveBatch::new(8, 11);
            let came = receiving.receive(to.as_fd(), true).unwrap();
            assert_eq!(came, 3, "loopback delivers before send returns");
            for index in 0..came {
                let arrival = receiving.datagram(index);
                assert_eq!(usize::from(arrival.bytes[0]), index);
                assert_eq!(arrival.is_truncated, index == 2, "a slot holds 11 bytes");
                assert_eq!(arrival.from, Some(from.local_addr().unwrap()));
                assert!(arrival.received_ns.is_some());
                assert!(arrival.ttl.is_some_and(|ttl| ttl >= 64), "{:?}", arrival.ttl);
                assert_eq!(arrival.to.unwrap().0, to.local_addr().unwrap().ip());
            }
        }
    }

    #[test]
    fn segments_that_the_kernel_joined_say_how_long_each_is() {
        let (from, to) = pair("127.0.0.1:0");
        if enable_option(to.as_fd(), false, DatagramOption::ReceiveOffload).is_err() {
            eprintln!("skipped: this kernel has no UDP_GRO");
            return;
        }
        let segment = crate::socket::IntOption::UdpSegment;
        crate::socket::set_option(from.as_fd(), segment, 100).unwrap();
        let mut sending = SendBatch::new(1, 350);
        assert_eq!(sending.send(from.as_fd(), 0, 1).unwrap(), 1);
        let mut receiving = ReceiveBatch::new(8, 65_536);
        let came = receiving.receive(to.as_fd(), true).unwrap();
        let arrivals = (0..came).map(|index| receiving.datagram(index));
        let bytes: usize = arrivals.clone().map(|arrival| arrival.bytes.len()).sum();
        assert_eq!(bytes, 350);
        if came == 1 {
            assert_eq!(receiving.datagram(0).segment_bytes, Some(100));
        }
    }

    #[test]
    fn an_answer_leaves_from_the_address_that_was_asked() {
        let asker = UdpSocket::bind("127.0.0.1:0").unwrap();
        let server = UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let second: IpAddr = "127.0.0.2".parse().unwrap();
        asker.connect((second, port)).unwrap();
        asker.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        let to = asker.local_addr().unwrap();
        send_from(server.as_fd(), b"from here", to, Some((second, 0))).unwrap();
        let mut buffer = [0; 16];
        // A connected socket takes nothing from another address.
        assert_eq!(asker.recv(&mut buffer).unwrap(), 9);
    }
}
