//! packet(7): sockets of whole frames, their options, and PACKET_RX_RING: slots that the kernel fills and the process
//! gives back without a call (Documentation/networking/packet_mmap.rst).
//!
//! TPACKET_V2, because the blocks of V3 are handed over only when full or after a timer.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::memory::Mapping;
use crate::{check, check_len, message_of, part_of, read_option};

/// Frames that one [`send_many`] takes.
pub const SEND_BATCH: usize = 64;

/// socket(2) AF_PACKET, SOCK_RAW, close-on-exec: of no protocol, so that it receives nothing before
/// it is bound.
///
/// # Errors
/// EPERM without CAP_NET_RAW; EAFNOSUPPORT in a kernel without packet sockets.
pub fn open() -> io::Result<OwnedFd> {
    let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
    Ok(rustix::net::socket_with(AddressFamily::PACKET, kind, flags, None)?)
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
#[repr(i32)]
pub enum PacketOption {
    /// PACKET_VNET_HDR: a virtio network header before each frame, both ways.
    VnetHeader = libc::PACKET_VNET_HDR,
    /// PACKET_QDISC_BYPASS: straight to the driver.
    QdiscBypass = libc::PACKET_QDISC_BYPASS,
    /// PACKET_IGNORE_OUTGOING: do not receive what this machine sends.
    IgnoreOutgoing = libc::PACKET_IGNORE_OUTGOING,
    /// PACKET_COPY_THRESH: queue for recv(2) what is too long for a ring's slot.
    CopyThreshold = libc::PACKET_COPY_THRESH,
    /// PACKET_VERSION: the shape of a ring's slots.
    Version = libc::PACKET_VERSION,
}

/// setsockopt(2) of an integer.
pub fn set_option(fd: BorrowedFd<'_>, option: PacketOption, value: i32) -> io::Result<()> {
    set(fd, option as libc::c_int, &value)
}

fn set<T: Copy>(fd: BorrowedFd<'_>, name: libc::c_int, value: &T) -> io::Result<()> {
    crate::set_option(fd, (libc::SOL_PACKET, name), value)
}

/// What an interface shall accept beside frames to its own address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum PacketMembership {
    /// PACKET_MR_ALLMULTI: to any group.
    AllMulticast = libc::PACKET_MR_ALLMULTI,
    /// PACKET_MR_PROMISC: to anybody.
    Promiscuous = libc::PACKET_MR_PROMISC,
}

/// PACKET_ADD_MEMBERSHIP: until the socket is closed.
pub fn join(fd: BorrowedFd<'_>, index: u32, membership: PacketMembership) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: i32::try_from(index).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?,
        mr_type: libc::c_ushort::try_from(membership as libc::c_int).expect("a small number"),
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(fd, libc::PACKET_ADD_MEMBERSHIP, &request)
}

/// PACKET_STATISTICS: frames dropped for want of room since the last call.
pub fn take_drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // struct tpacket_stats: packets, drops.
    let mut words = [0_u32; 2];
    read_option(fd, (libc::SOL_PACKET, libc::PACKET_STATISTICS), &mut words)?;
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
    let timeout = Duration::from_micros(micros);
    let timeout = Some(timeout).filter(|timeout| !timeout.is_zero());
    Ok(sockopt::set_socket_timeout(fd, sockopt::Timeout::Recv, timeout)?)
}

/// SO_ERROR: what has happened to a socket since it was last asked; reset by asking.
pub fn take_error(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::socket_error(fd)??)
}

/// A received frame's VLAN tag, which the kernel keeps beside the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrippedVlanTag {
    /// The tag protocol identifier: 0x8100, or 0x88a8 for a service tag.
    pub protocol: u16,
    /// Priority, drop eligibility and VLAN number.
    pub control: u16,
}

/// Whether a frame's status says that there is a tag, and which.
fn vlan_tag(status: u32, protocol: u16, control: u16) -> Option<StrippedVlanTag> {
    let with_protocol = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    (status & libc::TP_STATUS_VLAN_VALID != 0).then_some(StrippedVlanTag {
        protocol: if with_protocol { protocol } else { 0x8100 },
        control,
    })
}

/// One frame read by [`receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedFrame {
    /// Bytes read, the virtio header included.
    pub len: usize,
    /// A tag that was taken out of it.
    pub vlan: Option<StrippedVlanTag>,
}

/// PACKET_AUXDATA: say about each received frame what [`ReceivedFrame::vlan`] tells.
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
) -> io::Result<ReceivedFrame> {
    let mut parts = [part_of(first), part_of(second)];
    let mut control = [0_u64; 8];
    let mut message = message_of(&mut parts, &mut control);
    let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: `message` describes two writable ranges and writable room for control data.
    let len = check_len(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) })?;
    Ok(ReceivedFrame { len, vlan: auxiliary_data(&message) })
}

#[inline]
fn auxiliary_data(message: &libc::msghdr) -> Option<StrippedVlanTag> {
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

/// How large a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingShape {
    /// Bytes of a slot: a power of two, header included.
    pub slot_size: u32,
    /// Slots of a block: a block is whole pages.
    pub block_slots: u32,
    /// Blocks.
    pub blocks: u32,
}

/// The mapped slots of one packet socket, and which is next.
#[derive(Debug)]
pub struct ReceiveRing {
    map: Mapping,
    shape: RingShape,
    next: usize,
}

impl ReceiveRing {
    /// Makes the ring of an unbound socket and maps it.
    ///
    /// # Errors
    /// EINVAL for a shape that the kernel does not take; EBUSY when there is a ring already.
    pub fn new(fd: BorrowedFd<'_>, shape: RingShape) -> io::Result<Self> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let block = shape.slot_size.checked_mul(shape.block_slots).ok_or_else(invalid)?;
        let slots = shape.block_slots.checked_mul(shape.blocks).ok_or_else(invalid)?;
        if slots == 0 || (shape.slot_size as usize) < SLOT_HEADER {
            return Err(invalid());
        }
        set_option(fd, PacketOption::Version, TPACKET_V2)?;
        let request = libc::tpacket_req {
            tp_block_size: block,
            tp_block_nr: shape.blocks,
            tp_frame_size: shape.slot_size,
            tp_frame_nr: slots,
        };
        set(fd, libc::PACKET_RX_RING, &request)?;
        let map = Mapping::shared(fd, block as usize * shape.blocks as usize, 0)?;
        Ok(Self { map, shape, next: 0 })
    }

    fn slots(&self) -> usize {
        self.shape.block_slots as usize * self.shape.blocks as usize
    }

    /// Whether the next slot is filled: one load, no call.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.status(self.next).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// The next slot, if it is filled; it goes back to the kernel when dropped.
    #[inline]
    pub fn next_slot(&mut self) -> Option<RingSlot<'_>> {
        let status = self.status(self.next).load(Ordering::Acquire);
        (status & libc::TP_STATUS_USER != 0).then(|| RingSlot { ring: self, status })
    }

    #[inline]
    fn slot(&self, index: usize) -> *mut u8 {
        // SAFETY: `index` is below the number of slots, so the address lies in the mapping; slots
        // of power-of-two size leave no gap at a block's end.
        unsafe { self.map.base().add(index * self.shape.slot_size as usize) }
    }

    #[inline]
    fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: tp_status is the first word of a slot, aligned, and mapped as long as `self`; the
        // process only accesses it atomically.
        unsafe { AtomicU32::from_ptr(self.slot(index).cast()) }
    }
}

const TPACKET_V2: i32 = 1;
const SLOT_HEADER: usize = size_of::<libc::tpacket2_hdr>();

/// What the kernel says about a filled slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotStatus {
    /// The frame was too long: the whole of it waits for a receiving call.
    pub is_queued: bool,
    /// Frames have been lost since the statistics were last asked.
    pub is_losing: bool,
}

/// A filled slot: the process's own until it is dropped.
#[derive(Debug)]
pub struct RingSlot<'a> {
    ring: &'a mut ReceiveRing,
    status: u32,
}

impl RingSlot<'_> {
    /// What the kernel says about it.
    #[inline]
    pub fn status(&self) -> SlotStatus {
        SlotStatus {
            is_queued: self.status & libc::TP_STATUS_COPY != 0,
            is_losing: self.status & libc::TP_STATUS_LOSING != 0,
        }
    }

    #[inline]
    fn header(&self) -> libc::tpacket2_hdr {
        // SAFETY: the slot begins with its header, which the kernel does not write while the slot
        // is ours.
        unsafe { std::ptr::read(self.ring.slot(self.ring.next).cast()) }
    }

    /// Bytes of the whole frame, of which the slot may hold fewer.
    #[inline]
    pub fn frame_len(&self) -> usize {
        self.header().tp_len as usize
    }

    /// A tag that was taken out of the frame.
    #[inline]
    pub fn vlan(&self) -> Option<StrippedVlanTag> {
        let header = self.header();
        vlan_tag(self.status, header.tp_vlan_tpid, header.tp_vlan_tci)
    }

    /// `before` bytes before the frame (a virtio header, where one is asked for) and as much of the
    /// frame as there is.
    #[inline]
    pub fn bytes(&self, before: usize) -> &[u8] {
        let header = self.header();
        let size = self.ring.shape.slot_size as usize;
        let start = (header.tp_mac as usize).saturating_sub(before).min(size);
        let len = (header.tp_snaplen as usize + before).min(size - start);
        // SAFETY: `start` is at most the slot's size.
        let data = unsafe { self.ring.slot(self.ring.next).add(start) };
        // SAFETY: the range lies in the slot, which the kernel does not write while it is ours.
        unsafe { std::slice::from_raw_parts(data, len) }
    }
}

impl Drop for RingSlot<'_> {
    #[inline]
    fn drop(&mut self) {
        let index = self.ring.next;
        self.ring.status(index).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.ring.next = if index + 1 == self.ring.slots() { 0 } else { index + 1 };
    }
}
