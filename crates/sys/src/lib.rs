//! Kernel facilities, one function each: the one crate with unsafe code.
//!
//! No policy and no unit conversion: arguments, results and errors are the kernel's own. Setting things up goes
//! through rustix; our own calls remain for what rustix lacks (BPF, perf, sendmmsg, message queues, rings) and for
//! what runs inside timed regions, which uses libc as the programs it stands for do.
#![expect(unsafe_code, reason = "every other crate forbids unsafe code")]

pub mod bpf;
pub mod clock;
pub mod datagram;
pub mod errno;
pub mod fd;
pub mod interface;
pub mod ipc;
pub mod memory;
pub mod namespace;
pub mod netlink;
pub mod packet_socket;
pub mod perf;
pub mod probe;
pub mod process;
pub mod sched;
pub mod signal;
pub mod socket;
pub mod timer;
pub mod tun;
pub mod uring;
pub mod xdp;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Turns a C return value into a result: −1 means look at errno.
fn check(value: libc::c_int) -> io::Result<libc::c_int> {
    if value == -1 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// The same for byte counts.
fn check_len(value: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(value).map_err(|_| io::Error::last_os_error())
}

/// Takes ownership of a descriptor that a call has just returned, or of its error.
fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(fd) {
        // SAFETY: the kernel has just given out this descriptor; nobody else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Bytes to be read or written by a call of many parts.
#[inline]
fn part_of(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

/// A message of these parts, with room for control data. It is as valid as what it points to.
#[inline]
fn message_of(parts: &mut [libc::iovec], control: &mut [u64]) -> libc::msghdr {
    // SAFETY: a msghdr is plain data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len() as _;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(control) as _;
    message
}

/// setsockopt(2) of plain data.
#[inline]
fn set_option<T: Copy>(
    fd: BorrowedFd<'_>,
    (level, name): (libc::c_int, libc::c_int),
    value: &T,
) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: `value` is readable for its size.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value, len) })?;
    Ok(())
}

/// getsockopt(2) of plain data, of which any bytes are valid; how many the kernel wrote.
#[inline]
fn read_option<T: Copy>(
    fd: BorrowedFd<'_>,
    (level, name): (libc::c_int, libc::c_int),
    value: &mut T,
) -> io::Result<usize> {
    let mut len = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    let value = std::ptr::from_mut(value).cast();
    // SAFETY: `value` is writable for `len` bytes.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value, &raw mut len) })?;
    Ok(len as usize)
}

/// getrandom(2): fills `bytes` from the kernel's generator.
///
/// # Errors
/// ENOSYS where a seccomp filter forbids it.
pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(len) => filled += len,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
