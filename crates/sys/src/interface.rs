//! Network interfaces as ioctl(2) on a socket sees them: in the namespace of the socket, which need
//! not be the caller's own.
//!
//! Left out: making, moving and addressing interfaces, which takes netlink.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::check;

/// An empty request about the interface of this name.
fn request(name: &str) -> io::Result<libc::ifreq> {
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    // SAFETY: an ifreq is plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, &from) in request.ifr_name.iter_mut().zip(name.as_bytes()) {
        *to = from.cast_signed();
    }
    Ok(request)
}

fn ioctl(fd: BorrowedFd<'_>, number: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: every number used here reads and writes one ifreq.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), number as _, std::ptr::from_mut(request)) })?;
    Ok(())
}

/// SIOCGIFINDEX: the number of an interface.
///
/// # Errors
/// ENODEV when there is none of this name.
pub fn index(socket: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFINDEX, &mut request)?;
    // SAFETY: the kernel filled in the number.
    let index = unsafe { request.ifr_ifru.ifru_ifindex };
    u32::try_from(index).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))
}

/// SIOCGIFNAME: the name of an interface.
///
/// # Errors
/// ENODEV when it is gone.
pub fn name(socket: BorrowedFd<'_>, index: u32) -> io::Result<String> {
    // SAFETY: an ifreq is plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_ifru.ifru_ifindex =
        i32::try_from(index).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    ioctl(socket, libc::SIOCGIFNAME, &mut request)?;
    let bytes: Vec<u8> = request
        .ifr_name
        .iter()
        .map(|byte| byte.cast_unsigned())
        .take_while(|&byte| byte != 0)
        .collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// SIOCGIFMTU: the largest packet of an interface, in bytes without the link header.
pub fn mtu(socket: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: the kernel filled in the MTU.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).map_err(|_| io::Error::from_raw_os_error(libc::ERANGE))
}

/// SIOCGIFFLAGS: whether an interface is up.
pub fn is_up(socket: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the kernel filled in the flags.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(libc::c_int::from(flags) & libc::IFF_UP != 0)
}

/// What kind of link an interface is, and its address there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// ARPHRD_…: 1 is Ethernet, 772 the loopback (Ethernet framing too).
    pub kind: u16,
    /// The first six bytes of its address.
    pub address: [u8; 6],
}

/// SIOCGIFHWADDR: the link address of an interface.
pub fn hardware(socket: BorrowedFd<'_>, name: &str) -> io::Result<Hardware> {
    let mut request = request(name)?;
    ioctl(socket, libc::SIOCGIFHWADDR, &mut request)?;
    // SAFETY: the kernel filled in the address.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    let mut bytes = [0; 6];
    for (to, from) in bytes.iter_mut().zip(address.sa_data) {
        *to = from.cast_unsigned();
    }
    Ok(Hardware { kind: address.sa_family, address: bytes })
}

/// struct ethtool_channels (linux/ethtool.h).
#[repr(C)]
#[derive(Default)]
struct EthtoolChannels {
    command: u32,
    maximum: [u32; 4],
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// ETHTOOL_GCHANNELS: how many queues of an interface receive.
///
/// # Errors
/// EOPNOTSUPP from drivers that have no answer: they have one.
pub fn rx_queues(socket: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    let mut channels = EthtoolChannels { command: ETHTOOL_GCHANNELS, ..EthtoolChannels::default() };
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    ioctl(socket, libc::SIOCETHTOOL, &mut request)?;
    Ok((channels.rx + channels.combined).max(1))
}
