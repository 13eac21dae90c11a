//! packet(7): sockets of whole frames, their options, and the ring that a kernel fills for them.
//!
//! Left out: TPACKET_V3, whose blocks are handed over only when full or after a timer, and the
//! transmit ring.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::{check, check_len};

mod ring;

pub use ring::{ReceiveRing, RingShape, Slot, SlotStatus};

/// Frames that one [`send_many`] takes.
pub const SEND_BATCH: usize = 64;

/// socket(2) AF_PACKET, SOCK_RAW, close-on-exec: of no protocol, so that it receives nothing before
/// it is bound.
///
/// # Errors
/// EPERM without CAP_NET_RAW; EAFNOSUPPORT in a kernel without packet sockets.
pub fn open() -> io::Result<OwnedFd> {
    // SAFETY: takes plain numbers.
    let fd =
        check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: just created for the caller alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// bind(2) to one interface, for frames of every protocol.
pub fn bind(fd: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    // SAFETY: a sockaddr_ll is plain data.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = AF_PACKET;
    address.sll_protocol = ETH_P_ALL.to_be();
    address.sll_ifindex =
        i32::try_from(index).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    // SAFETY: `address` is readable for its size.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), ADDRESS_LEN) })?;
    Ok(())
}

const AF_PACKET: u16 = 17;
const ETH_P_ALL: u16 = 3;
const ADDRESS_LEN: libc::socklen_t = 20;
const _: () = assert!(size_of::<libc::sockaddr_ll>() == 20 && libc::AF_PACKET == 17);

/// getsockname(2): the interface that a packet socket is bound to; 0 for none.
///
/// # Errors
/// EINVAL when it is a socket of another kind; ENODEV when its interface is gone.
pub fn bound(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: a sockaddr_ll is plain data.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut len = ADDRESS_LEN;
    // SAFETY: `address` is writable for its size.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &raw mut len) })?;
    if address.sll_family != AF_PACKET {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    u32::try_from(address.sll_ifindex).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))
}

/// Options whose value is an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketOption {
    /// PACKET_VNET_HDR: a virtio network header before each frame, both ways.
    VnetHeader,
    /// PACKET_QDISC_BYPASS: straight to the driver.
    QdiscBypass,
    /// PACKET_IGNORE_OUTGOING: do not receive what this machine sends.
    IgnoreOutgoing,
    /// PACKET_COPY_THRESH: queue for recv(2) what is too long for a ring's slot.
    CopyThreshold,
    /// PACKET_VERSION: the shape of a ring's slots.
    Version,
}

/// setsockopt(2) of an integer.
pub fn set_option(fd: BorrowedFd<'_>, option: PacketOption, value: i32) -> io::Result<()> {
    let name = match option {
        PacketOption::VnetHeader => libc::PACKET_VNET_HDR,
        PacketOption::QdiscBypass => libc::PACKET_QDISC_BYPASS,
        PacketOption::IgnoreOutgoing => libc::PACKET_IGNORE_OUTGOING,
        PacketOption::CopyThreshold => libc::PACKET_COPY_THRESH,
        PacketOption::Version => libc::PACKET_VERSION,
    };
    set(fd, name, &value)
}

/// Sets a SOL_PACKET option whose value is plain data.
fn set<T: Copy>(fd: BorrowedFd<'_>, name: libc::c_int, value: &T) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of::<T>()).expect("an option is short");
    // SAFETY: `value` is readable for its size.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            name,
            std::ptr::from_ref(value).cast(),
            len,
        )
    })?;
    Ok(())
}

/// What an interface shall accept beside frames to its own address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// PACKET_MR_ALLMULTI: to any group.
    AllMulticast,
    /// PACKET_MR_PROMISC: to anybody.
    Promiscuous,
}

/// PACKET_ADD_MEMBERSHIP: until the socket is closed.
pub fn join(fd: BorrowedFd<'_>, index: u32, membership: Membership) -> io::Result<()> {
    let kind = match membership {
        Membership::AllMulticast => libc::PACKET_MR_ALLMULTI,
        Membership::Promiscuous => libc::PACKET_MR_PROMISC,
    };
    let request = libc::packet_mreq {
        mr_ifindex: i32::try_from(index).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?,
        mr_type: libc::c_ushort::try_from(kind).expect("a small number"),
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(fd, libc::PACKET_ADD_MEMBERSHIP, &request)
}

/// PACKET_STATISTICS: frames dropped for want of room since the last call.
pub fn take_drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // struct tpacket_stats: packets, drops.
    let mut words = [0_u32; 2];
    let mut len: libc::socklen_t = 8;
    // SAFETY: `words` is writable for `len` bytes.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            words.as_mut_ptr().cast(),
            &raw mut len,
        )
    })?;
    Ok(words[1])
}

/// send(2) of one frame, without waiting.
#[inline]
pub fn send(fd: BorrowedFd<'_>, frame: &[u8]) -> io::Result<usize> {
    // SAFETY: `frame` is readable for its length.
    check_len(unsafe {
        libc::send(fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), libc::MSG_DONTWAIT)
    })
}

/// sendmmsg(2) of up to [`SEND_BATCH`] frames, without waiting; how many the kernel took.
///
/// # Errors
/// Only when it took none: the kernel's reason for the first.
pub fn send_many(fd: BorrowedFd<'_>, frames: &[&[u8]]) -> io::Result<usize> {
    // SAFETY: an iovec is plain data.
    let mut parts: [libc::iovec; SEND_BATCH] = unsafe { std::mem::zeroed() };
    // SAFETY: an mmsghdr is plain data.
    let mut messages: [libc::mmsghdr; SEND_BATCH] = unsafe { std::mem::zeroed() };
    for ((frame, part), message) in frames.iter().zip(&mut parts).zip(&mut messages) {
        part.iov_base = frame.as_ptr().cast_mut().cast();
        part.iov_len = frame.len();
        message.msg_hdr.msg_iov = std::ptr::from_mut(part);
        message.msg_hdr.msg_iovlen = 1;
    }
    let count = libc::c_uint::try_from(frames.len().min(SEND_BATCH)).expect("at most a batch");
    // SAFETY: the first `count` messages describe readable ranges, which sendmmsg does not write.
    let sent = check(unsafe {
        libc::sendmmsg(fd.as_raw_fd(), messages.as_mut_ptr(), count, libc::MSG_DONTWAIT as _)
    })?;
    Ok(sent.unsigned_abs() as usize)
}

/// SO_RCVTIMEO: how long a receiving call waits, in microseconds; 0 for ever.
pub fn set_receive_timeout(fd: BorrowedFd<'_>, micros: u64) -> io::Result<()> {
    let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
    let value = libc::timeval {
        tv_sec: libc::time_t::try_from(micros / 1_000_000).map_err(invalid)?,
        tv_usec: libc::suseconds_t::try_from(micros % 1_000_000).map_err(invalid)?,
    };
    let len = libc::socklen_t::try_from(size_of::<libc::timeval>()).expect("a timeval is short");
    // SAFETY: `value` is readable for its size.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const value).cast(),
            len,
        )
    })?;
    Ok(())
}

/// SO_ERROR: what has happened to a socket since it was last asked; reset by asking.
pub fn take_error(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut code = 0_i32;
    let mut len: libc::socklen_t = 4;
    // SAFETY: `code` is a writable int of the size given.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut code).cast(),
            &raw mut len,
        )
    })?;
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// A received frame's VLAN tag, which the kernel keeps beside the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// The tag protocol identifier: 0x8100, or 0x88a8 for a service tag.
    pub protocol: u16,
    /// Priority, drop eligibility and VLAN number.
    pub control: u16,
}

/// Whether a frame's status says that there is a tag, and which.
fn vlan_tag(status: u32, protocol: u16, control: u16) -> Option<VlanTag> {
    let with_protocol = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    (status & libc::TP_STATUS_VLAN_VALID != 0)
        .then_some(VlanTag { protocol: if with_protocol { protocol } else { 0x8100 }, control })
}

/// One frame read by [`receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes read, the virtio header included.
    pub len: usize,
    /// A tag that was taken out of it.
    pub vlan: Option<VlanTag>,
}

/// PACKET_AUXDATA: say of each received frame what [`Received::vlan`] tells.
pub fn set_auxiliary_data(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::PACKET_AUXDATA, &1_i32)
}

/// struct tpacket_auxdata (linux/if_packet.h).
#[repr(C)]
#[derive(Clone, Copy)]
struct AuxiliaryData {
    status: u32,
    len: u32,
    snap_len: u32,
    mac: u16,
    net: u16,
    vlan_control: u16,
    vlan_protocol: u16,
}

/// recvmsg(2) of one frame into two ranges, waiting for one when `wait`.
///
/// What fits in neither is lost.
#[inline]
pub fn receive(
    fd: BorrowedFd<'_>,
    first: &mut [u8],
    second: &mut [u8],
    wait: bool,
) -> io::Result<Received> {
    let mut parts = [
        libc::iovec { iov_base: first.as_mut_ptr().cast(), iov_len: first.len() },
        libc::iovec { iov_base: second.as_mut_ptr().cast(), iov_len: second.len() },
    ];
    let mut control = [0_u64; 8];
    // SAFETY: a msghdr is plain data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = 2;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: `message` describes two writable ranges and writable room for control data.
    let len = check_len(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) })?;
    Ok(Received { len, vlan: auxiliary_data(&message) })
}

#[inline]
fn auxiliary_data(message: &libc::msghdr) -> Option<VlanTag> {
    // SAFETY: the kernel filled in `message`.
    let header = unsafe { libc::CMSG_FIRSTHDR(message) };
    if header.is_null() {
        return None;
    }
    // SAFETY: a non-null header lies in the control data, which is aligned for one.
    let kind = unsafe { std::ptr::read(header) };
    if kind.cmsg_level != libc::SOL_PACKET || kind.cmsg_type != libc::PACKET_AUXDATA {
        return None;
    }
    // SAFETY: a non-null header's data follows it.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: the data of PACKET_AUXDATA is one tpacket_auxdata.
    let data: AuxiliaryData = unsafe { std::ptr::read_unaligned(data.cast()) };
    vlan_tag(data.status, data.vlan_protocol, data.vlan_control)
}
