//! Network interfaces through ioctl(2) on a socket: of the socket's namespace, which need not be the caller's own.
//! What takes netlink is in [`crate::netlink`].

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::check;

/// An ifreq about the interface of this name.
pub(crate) fn ifreq(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: an ifreq is plain data; all zeroes is an empty name and nothing asked.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, &from) in request.ifr_name.iter_mut().zip(name.as_bytes()) {
        *to = from.cast_signed();
    }
    Ok(request)
}

pub(crate) fn name_of(request: &libc::ifreq) -> String {
    let bytes = request.ifr_name.map(i8::cast_unsigned);
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn ioctl(fd: BorrowedFd<'_>, number: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: every number used here reads and writes one ifreq.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), number as _, std::ptr::from_mut(request)) })?;
    Ok(())
}

/// The answer to a question about the interface of this name.
fn query(fd: BorrowedFd<'_>, number: libc::c_ulong, name: &str) -> io::Result<libc::ifreq> {
    let mut request = ifreq(name)?;
    ioctl(fd, number, &mut request)?;
    Ok(request)
}

/// SIOCGIFINDEX: the index of an interface.
///
/// # Errors
/// ENODEV when there is none of this name.
pub fn index(socket: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    Ok(rustix::net::netdevice::name_to_index(socket, name)?)
}

/// SIOCGIFNAME: the name of an interface.
///
/// # Errors
/// ENODEV when it is gone.
pub fn name(socket: BorrowedFd<'_>, index: u32) -> io::Result<String> {
    Ok(rustix::net::netdevice::index_to_name(socket, index)?)
}

/// SIOCGIFMTU: the largest packet of an interface, in bytes without the link header.
pub fn mtu(socket: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    let request = query(socket, libc::SIOCGIFMTU, name)?;
    // SAFETY: the kernel filled in the MTU.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).map_err(|_| io::Error::from_raw_os_error(libc::ERANGE))
}

/// SIOCGIFFLAGS: whether an interface is up.
pub fn is_up(socket: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    let request = query(socket, libc::SIOCGIFFLAGS, name)?;
    // SAFETY: the kernel filled in the flags.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(libc::c_int::from(flags) & libc::IFF_UP != 0)
}

/// The link type and address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardwareAddress {
    /// ARPHRD_…: 1 is Ethernet, 772 the loopback (Ethernet framing too).
    pub kind: u16,
    /// The first six bytes of its address.
    pub address: [u8; 6],
}

/// SIOCGIFHWADDR: the link address of an interface.
pub fn hardware_address(socket: BorrowedFd<'_>, name: &str) -> io::Result<HardwareAddress> {
    let request = query(socket, libc::SIOCGIFHWADDR, name)?;
    // SAFETY: the kernel filled in the address.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    let octets = address.sa_data.map(i8::cast_unsigned);
    Ok(HardwareAddress { kind: address.sa_family, address: std::array::from_fn(|at| octets[at]) })
}

/// SIOCETHTOOL with a structure of linux/ethtool.h that begins with its command; the kernel fills in the rest.
fn ethtool<const WORDS: usize>(
    socket: BorrowedFd<'_>,
    name: &str,
    mut words: [u32; WORDS],
) -> io::Result<[u32; WORDS]> {
    let mut request = ifreq(name)?;
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    ioctl(socket, libc::SIOCETHTOOL, &mut request)?;
    // SAFETY: `words` is a live array; volatile because the kernel wrote it through a pointer.
    Ok(unsafe { std::ptr::read_volatile(&raw const words) })
}

/// ETHTOOL_GCHANNELS: how many queues of an interface receive.
///
/// # Errors
/// EOPNOTSUPP from drivers that do not say, which have one queue.
pub fn rx_queues(socket: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    // struct ethtool_channels: command, four maxima, rx, tx, other, combined.
    let [.., rx, _, _, combined] = ethtool(socket, name, [0x3c, 0, 0, 0, 0, 0, 0, 0, 0])?;
    Ok((rx + combined).max(1))
}

/// An offload of a device that ethtool reads and sets as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EthtoolOffload {
    // The command that reads it; the one that sets it is the next number (linux/ethtool.h).
    /// Receive checksum (ETHTOOL_GRXCSUM).
    RxChecksum = 0x14,
    /// Transmit checksum (ETHTOOL_GTXCSUM).
    TxChecksum = 0x16,
    /// Scatter-gather (ETHTOOL_GSG).
    ScatterGather = 0x18,
    /// TCP segmentation (ETHTOOL_GTSO).
    Tso = 0x1e,
    /// Generic segmentation (ETHTOOL_GGSO).
    Gso = 0x23,
    /// Generic receive offload (ETHTOOL_GGRO).
    Gro = 0x2b,
}

/// Whether an offload of a device is on.
///
/// # Errors
/// ENODEV without such a device in the socket's network namespace, EOPNOTSUPP where it has no such offload.
pub fn offload(socket: BorrowedFd<'_>, device: &str, which: EthtoolOffload) -> io::Result<bool> {
    let [_, value] = ethtool(socket, device, [which as u32, 0])?;
    Ok(value != 0)
}

/// Switches an offload of a device on or off.
///
/// # Errors
/// As [`offload`]; EPERM without CAP_NET_ADMIN, EOPNOTSUPP where it cannot be changed.
pub fn set_offload(
    socket: BorrowedFd<'_>,
    device: &str,
    which: EthtoolOffload,
    on: bool,
) -> io::Result<()> {
    ethtool(socket, device, [which as u32 + 1, u32::from(on)]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn an_unknown_device_has_no_offloads() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for name in ["no-such-dev", "a-name-that-is-longer-than-a-device-may-have", "a\0b"] {
            let error = offload(socket.as_fd(), name, EthtoolOffload::Gro).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{name:?}");
        }
    }
}
