//! Descriptors passed from one process to another through a Unix socket (unix(7), SCM_RIGHTS).
//!
//! Left out: what the descriptors are.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::check_len;

/// Most descriptors of one message.
pub const MOST: usize = 8;

/// Room for the control message of [`MOST`] descriptors: a header of 16 bytes and 4 bytes each.
type Control = [u64; 8];

/// sendmsg(2) of bytes and descriptors as one message; never raises SIGPIPE.
///
/// # Errors
/// EINVAL for more than [`MOST`] descriptors; the kernel's.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    if fds.len() > MOST {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let numbers: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let len = u32::try_from(size_of_val(numbers.as_slice())).unwrap_or(0);
    let mut control: Control = [0; 8];
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: a msghdr is plain data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !numbers.is_empty() {
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: only computes a size.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(len) } as _;
        // SAFETY: `message` has room for one control message.
        let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        let cmsg = libc::cmsghdr {
            // SAFETY: only computes a size.
            cmsg_len: unsafe { libc::CMSG_LEN(len) } as _,
            cmsg_level: libc::SOL_SOCKET,
            cmsg_type: libc::SCM_RIGHTS,
        };
        // SAFETY: `header` points into `control`, which is aligned and large enough.
        unsafe { header.write(cmsg) };
        // SAFETY: the data follows its header.
        let data = unsafe { libc::CMSG_DATA(header) };
        // SAFETY: `control` has room for `MOST` numbers behind the header.
        unsafe { std::ptr::copy_nonoverlapping(numbers.as_ptr().cast(), data, len as usize) };
    }
    // SAFETY: `message` describes memory that lives on.
    check_len(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) })
}

/// recvmsg(2): bytes, and the descriptors that came with them, close-on-exec.
///
/// # Errors
/// The kernel's; a length of zero is the end.
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control: Control = [0; 8];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: a msghdr is plain data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: `message` describes memory that lives on.
    let len = check_len(unsafe {
        libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC)
    })?;
    let mut fds = Vec::new();
    // SAFETY: the kernel filled in `message`.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: a header that is not null is one that the kernel wrote.
        let cmsg = unsafe { header.read() };
        if cmsg.cmsg_level == libc::SOL_SOCKET && cmsg.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: only computes a size.
            let empty = unsafe { libc::CMSG_LEN(0) } as usize;
            // SAFETY: the data follows its header.
            let data: *const RawFd = unsafe { libc::CMSG_DATA(header) }.cast();
            #[expect(clippy::useless_conversion, reason = "the length's type differs by C library")]
            let len = usize::try_from(cmsg.cmsg_len).unwrap_or(empty);
            for index in 0..(len - empty) / size_of::<RawFd>() {
                // SAFETY: the kernel wrote that many numbers.
                let place = unsafe { data.add(index) };
                // SAFETY: as above; it may not be aligned.
                let number = unsafe { place.read_unaligned() };
                // SAFETY: the kernel opened it for this process alone.
                fds.push(unsafe { OwnedFd::from_raw_fd(number) });
            }
        }
        // SAFETY: both are of the message that the kernel filled in.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    Ok((len, fds))
}
