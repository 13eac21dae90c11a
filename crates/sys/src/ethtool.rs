//! What a network device does by itself, asked and changed by the SIOCETHTOOL ioctl.
//!
//! Left out: everything that ethtool answers with more than one word.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use crate::check;

/// A feature of a network device that the ethtool ioctl answers with one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Receive checksum (ETHTOOL_GRXCSUM).
    RxChecksum,
    /// Transmit checksum (ETHTOOL_GTXCSUM).
    TxChecksum,
    /// Scatter-gather (ETHTOOL_GSG).
    ScatterGather,
    /// TCP segmentation (ETHTOOL_GTSO).
    Tso,
    /// Generic segmentation (ETHTOOL_GGSO).
    Gso,
    /// Generic receive offload (ETHTOOL_GGRO).
    Gro,
}

impl Offload {
    /// The command that asks; the one that sets is the next number (linux/ethtool.h).
    const fn command(self) -> u32 {
        match self {
            Self::RxChecksum => 0x14,
            Self::TxChecksum => 0x16,
            Self::ScatterGather => 0x18,
            Self::Tso => 0x1e,
            Self::Gso => 0x23,
            Self::Gro => 0x2b,
        }
    }
}

/// Whether a device has an offload switched on, by the SIOCETHTOOL ioctl on any socket.
///
/// # Errors
/// `ENODEV` without such a device in the socket's network namespace, `EOPNOTSUPP` where it does not
/// answer, `EINVAL` for a name that does not fit.
pub fn offload(socket: BorrowedFd<'_>, device: &CStr, which: Offload) -> io::Result<bool> {
    Ok(ask(socket, device, [which.command(), 0])? != 0)
}

/// Switches an offload of a device on or off.
///
/// # Errors
/// As [`offload`]; `EPERM` without CAP_NET_ADMIN, `EOPNOTSUPP` where it cannot be changed.
pub fn set_offload(
    socket: BorrowedFd<'_>,
    device: &CStr,
    which: Offload,
    on: bool,
) -> io::Result<()> {
    ask(socket, device, [which.command() + 1, u32::from(on)]).map(drop)
}

/// The ioctl with a struct ethtool_value: a command and its argument or answer.
fn ask(socket: BorrowedFd<'_>, device: &CStr, mut value: [u32; 2]) -> io::Result<u32> {
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    /// struct ifreq, as far as SIOCETHTOOL uses it, at its full length of 40 bytes.
    #[repr(C)]
    struct Request {
        name: [u8; libc::IFNAMSIZ],
        data: *mut u32,
        rest: [u64; 2],
    }
    let bytes = device.to_bytes_with_nul();
    let mut name = [0; libc::IFNAMSIZ];
    let Some(target) = name.get_mut(..bytes.len()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    target.copy_from_slice(bytes);
    let mut request = Request { name, data: value.as_mut_ptr(), rest: [0; 2] };
    // SAFETY: the request names a live buffer of the two words that these commands use.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) })?;
    // SAFETY: `value` is a live array; volatile because the kernel wrote it through a pointer.
    let answer = unsafe { ptr::read_volatile(&raw const value) };
    Ok(answer[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_device_that_does_not_exist_has_no_offloads() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(offload(socket.as_fd(), c"no-such-dev", Offload::Gro).is_err());
        let long = c"a-name-that-is-longer-than-a-device-may-have";
        let error = offload(socket.as_fd(), long, Offload::Gro).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn the_loopback_says_whether_it_segments() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(offload(socket.as_fd(), c"lo", Offload::Gso).is_ok());
    }
}
