//! Many datagrams a call: sendmmsg(2) and recvmmsg(2), with what the kernel says about each that comes.
//!
//! Left out: what is in them, and when to call.

use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::check;

/// Words of eight bytes for the control messages of one datagram; all that are asked for take half.
const CONTROL_WORDS: usize = 32;

/// Bytes of one datagram, or of several of one size that the kernel joined, and what it says of them.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The bytes, cut off at the length of a slot.
    pub bytes: &'a [u8],
    /// Whether more came than a slot holds.
    pub cut_off: bool,
    /// Who sent it.
    pub from: Option<SocketAddr>,
    /// When the kernel received it, by the real-time clock, in nanoseconds.
    pub at_ns: Option<u64>,
    /// Datagrams dropped so far for want of room in this socket's buffer: SO_RXQ_OVFL.
    pub overflow: Option<u32>,
    /// Bytes of each datagram where several were joined: UDP_GRO.
    pub segment_bytes: Option<usize>,
    /// Time to live, or hop limit, as it came.
    pub ttl: Option<u8>,
    /// The address that it was sent to, and the index of the interface that it came by.
    pub to: Option<(IpAddr, u32)>,
}

/// Memory for receiving many datagrams by one call.
#[derive(Debug)]
pub struct ReceiveBatch {
    bytes: Vec<u8>,
    slot_bytes: usize,
    parts: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
    control: Vec<[u64; CONTROL_WORDS]>,
    names: Vec<libc::sockaddr_storage>,
}

// SAFETY: the pointers inside point to memory that the batch itself owns, and that never moves.
unsafe impl Send for ReceiveBatch {}

impl ReceiveBatch {
    /// Room for `slots` datagrams of `slot_bytes` each.
    pub fn new(slots: usize, slot_bytes: usize) -> Self {
        // SAFETY: a sockaddr_storage is plain data.
        let name: libc::sockaddr_storage = unsafe { zeroed() };
        // SAFETY: a mmsghdr is plain data.
        let header: libc::mmsghdr = unsafe { zeroed() };
        let mut batch = Self {
            bytes: vec![0; slots * slot_bytes],
            slot_bytes,
            parts: Vec::with_capacity(slots),
            headers: vec![header; slots],
            control: vec![[0; CONTROL_WORDS]; slots],
            names: vec![name; slots],
        };
        for slot in batch.bytes.chunks_exact_mut(slot_bytes.max(1)) {
            batch
                .parts
                .push(libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() });
        }
        for index in 0..batch.headers.len() {
            let header = &mut batch.headers[index].msg_hdr;
            header.msg_iov = &raw mut batch.parts[index];
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut batch.names[index]).cast();
            header.msg_control = batch.control[index].as_mut_ptr().cast();
        }
        batch
    }

    /// recvmmsg(2): how many came. Waits for the first unless `wait` is false, never for the others.
    #[inline]
    pub fn receive(&mut self, fd: BorrowedFd<'_>, wait: bool) -> io::Result<usize> {
        for header in &mut self.headers {
            header.msg_hdr.msg_namelen = socket_len::<libc::sockaddr_storage>();
            header.msg_hdr.msg_controllen = size_of::<[u64; CONTROL_WORDS]>() as _;
        }
        let flags = if wait { libc::MSG_WAITFORONE } else { libc::MSG_DONTWAIT };
        let count = libc::c_uint::try_from(self.headers.len()).unwrap_or(libc::c_uint::MAX);
        // SAFETY: `count` headers describe writable memory that this batch owns.
        let came = check(unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count,
                flags,
                std::ptr::null_mut(),
            )
        })?;
        Ok(usize::try_from(came).unwrap_or(0))
    }

    /// The `index`-th of those that the last call received.
    #[inline]
    pub fn arrival(&self, index: usize) -> Arrival<'_> {
        let header = &self.headers[index];
        let len = usize::try_from(header.msg_len).unwrap_or(0).min(self.slot_bytes);
        let start = index * self.slot_bytes;
        let mut arrival = Arrival {
            bytes: &self.bytes[start..start + len],
            cut_off: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            from: from_storage(&self.names[index]),
            at_ns: None,
            overflow: None,
            segment_bytes: None,
            ttl: None,
            to: None,
        };
        read_control(&header.msg_hdr, &mut arrival);
        arrival
    }
}

/// Goes through the control messages of one datagram.
fn read_control(message: &libc::msghdr, arrival: &mut Arrival<'_>) {
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
                arrival.at_ns = secs.ok().zip(ns.ok()).map(|(s, ns)| s * 1_000_000_000 + ns);
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                // SAFETY: the data of SO_RXQ_OVFL is a 32-bit count.
                arrival.overflow = Some(unsafe { std::ptr::read_unaligned(data.cast()) });
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

fn from_storage(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
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

fn socket_len<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0)
}

/// Memory for sending many datagrams by one call, each from a slot of its own; where one call is cut
/// into several by the kernel (UDP_SEGMENT), a slot holds them all.
#[derive(Debug)]
pub struct SendBatch {
    bytes: Vec<u8>,
    slot_bytes: usize,
    parts: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers inside point to memory that the batch itself owns, and that never moves.
unsafe impl Send for SendBatch {}

impl SendBatch {
    /// Room for `slots` datagrams of up to `slot_bytes` each, all zero.
    pub fn new(slots: usize, slot_bytes: usize) -> Self {
        // SAFETY: a mmsghdr is plain data.
        let header: libc::mmsghdr = unsafe { zeroed() };
        let mut batch = Self {
            bytes: vec![0; slots * slot_bytes],
            slot_bytes,
            parts: Vec::with_capacity(slots),
            headers: vec![header; slots],
        };
        for slot in batch.bytes.chunks_exact_mut(slot_bytes.max(1)) {
            batch
                .parts
                .push(libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() });
        }
        for index in 0..batch.headers.len() {
            let header = &mut batch.headers[index].msg_hdr;
            header.msg_iov = &raw mut batch.parts[index];
            header.msg_iovlen = 1;
        }
        batch
    }

    /// The bytes of one slot.
    #[inline]
    pub fn slot(&mut self, index: usize) -> &mut [u8] {
        &mut self.bytes[index * self.slot_bytes..][..self.slot_bytes]
    }

    /// How many bytes of a slot are sent.
    #[inline]
    pub fn set_len(&mut self, index: usize, len: usize) {
        self.parts[index].iov_len = len.min(self.slot_bytes);
    }

    /// sendmmsg(2) of slots `first` to `end` over a connected socket, without waiting: how many went. An
    /// error is of the first of them; one that others went before is told by the next call.
    #[inline]
    pub fn send(&mut self, fd: BorrowedFd<'_>, first: usize, end: usize) -> io::Result<usize> {
        let headers = &mut self.headers[first..end];
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
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = [0_u64; 8];
    // SAFETY: a sockaddr_storage is plain data.
    let mut name: libc::sockaddr_storage = unsafe { zeroed() };
    // SAFETY: a msghdr is plain data.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_namelen = to_storage(to, &mut name);
    message.msg_name = (&raw mut name).cast();
    if let Some((ip, interface)) = from {
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = write_source(&mut control, ip, interface) as _;
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `message` describes readable memory, which sendmsg does not write.
    crate::check_len(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, flags) })
}

fn to_storage(address: SocketAddr, storage: &mut libc::sockaddr_storage) -> libc::socklen_t {
    match address {
        SocketAddr::V4(v4) => {
            // SAFETY: a sockaddr_in is plain data.
            let mut raw: libc::sockaddr_in = unsafe { zeroed() };
            raw.sin_family = libc::sa_family_t::try_from(libc::AF_INET).unwrap_or(0);
            raw.sin_port = v4.port().to_be();
            raw.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
            // SAFETY: a sockaddr_storage has room for every address, and is aligned for it.
            unsafe { std::ptr::write((&raw mut *storage).cast(), raw) };
            socket_len::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            // SAFETY: a sockaddr_in6 is plain data.
            let mut raw: libc::sockaddr_in6 = unsafe { zeroed() };
            raw.sin6_family = libc::sa_family_t::try_from(libc::AF_INET6).unwrap_or(0);
            raw.sin6_port = v6.port().to_be();
            raw.sin6_flowinfo = v6.flowinfo();
            raw.sin6_addr.s6_addr = v6.ip().octets();
            raw.sin6_scope_id = v6.scope_id();
            // SAFETY: a sockaddr_storage has room for every address, and is aligned for it.
            unsafe { std::ptr::write((&raw mut *storage).cast(), raw) };
            socket_len::<libc::sockaddr_in6>()
        }
    }
}

/// Writes the control message that names the source address; its length in all.
fn write_source(control: &mut [u64; 8], ip: IpAddr, interface: u32) -> usize {
    /// A control message as it lies in memory: a header of sixteen bytes, then the data.
    #[repr(C)]
    struct Message<T> {
        len: usize,
        level: libc::c_int,
        kind: libc::c_int,
        data: T,
    }
    const {
        assert!(size_of::<Message<libc::in6_pktinfo>>() <= 64);
        assert!(size_of::<Message<[u8; 0]>>() == size_of::<libc::cmsghdr>());
    }
    let header = size_of::<libc::cmsghdr>();
    match ip {
        IpAddr::V4(ip) => {
            let address = libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) };
            let any = libc::in_addr { s_addr: 0 };
            // By the route's interface: an answer may leave by another than the question came by.
            let data = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: address, ipi_addr: any };
            let len = header + size_of_val(&data);
            let message = Message { len, level: libc::IPPROTO_IP, kind: libc::IP_PKTINFO, data };
            // SAFETY: the buffer is aligned to eight bytes and longer than the message.
            unsafe { std::ptr::write(control.as_mut_ptr().cast(), message) };
            len.next_multiple_of(8)
        }
        IpAddr::V6(ip) => {
            // Only an address of one link needs its interface named.
            let link_local = ip.is_unicast_link_local();
            let data = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr { s6_addr: ip.octets() },
                ipi6_ifindex: if link_local { interface } else { 0 },
            };
            let len = header + size_of_val(&data);
            let message =
                Message { len, level: libc::IPPROTO_IPV6, kind: libc::IPV6_PKTINFO, data };
            // SAFETY: the buffer is aligned to eight bytes and longer than the message.
            unsafe { std::ptr::write(control.as_mut_ptr().cast(), message) };
            len.next_multiple_of(8)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;
    use crate::datagram::{self, Notice};

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
            for notice in [Notice::Time, Notice::Ttl, Notice::Destination] {
                datagram::notice(to.as_fd(), v6, notice).unwrap();
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
                let arrival = receiving.arrival(index);
                assert_eq!(usize::from(arrival.bytes[0]), index);
                assert_eq!(arrival.cut_off, index == 2, "a slot holds 11 bytes");
                assert_eq!(arrival.from, Some(from.local_addr().unwrap()));
                assert!(arrival.at_ns.is_some());
                assert!(arrival.ttl.is_some_and(|ttl| ttl >= 64), "{:?}", arrival.ttl);
                assert_eq!(arrival.to.unwrap().0, to.local_addr().unwrap().ip());
            }
        }
    }

    #[test]
    fn segments_that_the_kernel_joined_say_how_long_each_is() {
        let (from, to) = pair("127.0.0.1:0");
        if datagram::notice(to.as_fd(), false, Notice::Joined).is_err() {
            eprintln!("skipped: this kernel has no UDP_GRO");
            return;
        }
        let segment = crate::socket::IntOption::UdpSegment;
        crate::socket::set_option(from.as_fd(), segment, 100).unwrap();
        let mut sending = SendBatch::new(1, 350);
        assert_eq!(sending.send(from.as_fd(), 0, 1).unwrap(), 1);
        let mut receiving = ReceiveBatch::new(8, 65_536);
        let came = receiving.receive(to.as_fd(), true).unwrap();
        let arrivals = (0..came).map(|index| receiving.arrival(index));
        let bytes: usize = arrivals.clone().map(|arrival| arrival.bytes.len()).sum();
        assert_eq!(bytes, 350);
        if came == 1 {
            assert_eq!(receiving.arrival(0).segment_bytes, Some(100));
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
