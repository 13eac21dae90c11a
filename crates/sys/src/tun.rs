//! TUN and TAP: network interfaces whose far side is a file descriptor (tun(4), the kernel's
//! Documentation/networking/tuntap.rst).

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use crate::interface::{ifreq, name_of};
use crate::{check, check_len};

/// Checksums may be left to the kernel, both ways.
pub const OFFLOAD_CHECKSUM: u32 = 0x01;
/// TCP over IPv4 may come as super-segments.
pub const OFFLOAD_TSO4: u32 = 0x02;
/// The same over IPv6.
pub const OFFLOAD_TSO6: u32 = 0x04;
/// Super-segments may carry congestion notification.
pub const OFFLOAD_TSO_ECN: u32 = 0x08;
/// UDP over IPv4 may come as super-segments; Linux 6.2.
pub const OFFLOAD_USO4: u32 = 0x20;
/// The same over IPv6; Linux 6.2.
pub const OFFLOAD_USO6: u32 = 0x40;

/// What kind of interface, and how its packets come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunMode {
    /// Ethernet frames (TAP) instead of IP packets (TUN).
    pub ethernet: bool,
    /// A virtio header before each packet.
    pub vnet_header: bool,
    /// More than one descriptor may be attached.
    pub multi_queue: bool,
}

/// Opens `/dev/net/tun`, close-on-exec.
///
/// # Errors
/// ENOENT or ENODEV without the driver, EACCES by the file's mode.
pub fn open() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(c"/dev/net/tun", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// TUNSETIFF: makes an interface, or attaches to one that exists; its name, in which a `%d` of the
/// wanted one is a number.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN, unless the interface exists and belongs to this user; EBUSY when
/// another process is attached; EINVAL when it exists and is of another kind, or the name is too
/// long.
pub fn attach(fd: BorrowedFd<'_>, name: &str, kind: TunMode) -> io::Result<String> {
    let mut request = ifreq(name).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let kind_flag = if kind.ethernet { libc::IFF_TAP } else { libc::IFF_TUN };
    let vnet = if kind.vnet_header { libc::IFF_VNET_HDR } else { 0 };
    let queues = if kind.multi_queue { libc::IFF_MULTI_QUEUE } else { 0 };
    request.ifr_ifru.ifru_flags = narrow(kind_flag | libc::IFF_NO_PI | vnet | queues);
    // SAFETY: `request` is a valid ifreq.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    Ok(name_of(&request))
}

/// TUNGETIFF: the name and kind of the interface behind an attached descriptor.
///
/// # Errors
/// EBADFD when none is attached, or it is gone; ENOTTY when the descriptor is no TUN.
pub fn attached(fd: BorrowedFd<'_>) -> io::Result<(String, TunMode)> {
    let mut request = ifreq("")?;
    // SAFETY: `request` is a valid ifreq.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNGETIFF, &raw mut request) })?;
    // SAFETY: TUNGETIFF filled the flags.
    let flags = i32::from(unsafe { request.ifr_ifru.ifru_flags });
    let has = |flag: i32| flags & flag != 0;
    let kind = TunMode {
        ethernet: has(libc::IFF_TAP),
        vnet_header: has(libc::IFF_VNET_HDR),
        multi_queue: has(libc::IFF_MULTI_QUEUE),
    };
    Ok((name_of(&request), kind))
}

/// Whether an error of reading or writing means that the interface was removed: EFAULT where a read
/// was asleep at that moment, EBADFD afterwards (the kernel's drivers/net/tun.c), or ENODEV.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EFAULT | libc::EBADFD | libc::ENODEV))
}

/// TUNSETOFFLOAD: which of the `OFFLOAD_` forms this side accepts.
///
/// # Errors
/// EINVAL for forms that the kernel does not know.
pub fn set_offload(fd: BorrowedFd<'_>, offloads: u32) -> io::Result<()> {
    set(fd, libc::TUNSETOFFLOAD, offloads)
}

/// TUNSETVNETHDRSZ: bytes of the virtio header before each packet.
pub fn set_vnet_header_size(fd: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    // SAFETY: the pointer is to an int, as this request wants.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const bytes) })?;
    Ok(())
}

/// TUNSETPERSIST: whether the interface outlives its descriptors.
pub fn set_persistent(fd: BorrowedFd<'_>, persistent: bool) -> io::Result<()> {
    set(fd, libc::TUNSETPERSIST, persistent)
}

/// preadv2(2) into two buffers, one behind the other, without waiting when `nowait` says so.
///
/// # Errors
/// EAGAIN when it would have to wait; EOPNOTSUPP before Linux 5.11 with `nowait`.
#[inline]
pub fn read_into(
    fd: BorrowedFd<'_>,
    buffers: &mut [IoSliceMut<'_>],
    nowait: bool,
) -> io::Result<usize> {
    let count = libc::c_int::try_from(buffers.len())
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let flags = if nowait { libc::RWF_NOWAIT } else { 0 };
    // SAFETY: IoSliceMut has the layout of an iovec, and each is writable for its length.
    check_len(unsafe {
        libc::preadv2(fd.as_raw_fd(), buffers.as_mut_ptr().cast(), count, -1, flags)
    })
}

/// writev(2) of buffers, one behind the other.
pub fn write_parts(fd: BorrowedFd<'_>, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
    let count = libc::c_int::try_from(parts.len())
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: IoSlice has the layout of an iovec, and each is readable for its length.
    check_len(unsafe { libc::writev(fd.as_raw_fd(), parts.as_ptr().cast(), count) })
}

/// An ioctl(2) whose argument is a plain number.
fn set(
    fd: BorrowedFd<'_>,
    request: libc::Ioctl,
    value: impl Into<libc::c_ulong>,
) -> io::Result<()> {
    // SAFETY: every request given here reads its argument as a number.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, value.into()) })?;
    Ok(())
}

/// Interface flags as the kernel's short.
#[expect(clippy::cast_possible_truncation, reason = "the flags used here are of the low 16 bits")]
fn narrow(flags: libc::c_int) -> libc::c_short {
    flags as libc::c_short
}
