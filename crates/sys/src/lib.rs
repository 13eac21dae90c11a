//! Kernel facilities, one function each: plumb's fence of unsafe code.
//!
//! No policy and no unit conversion: arguments and results are the kernel's own. Errors are the
//! kernel's, as [`std::io::Error`]. Left out: retries, fallbacks and anything that decides.
#![expect(unsafe_code, reason = "this crate is the fence: every other crate forbids unsafe code")]

pub mod affinity;
pub mod alarm;
pub mod bpf;
pub mod clock;
pub mod datagram;
pub mod epoll;
pub mod ethtool;
pub mod fd;
pub mod futex;
pub mod heap;
pub mod huge;
pub mod inet;
pub mod interface;
pub mod ipc;
pub mod map;
pub mod namespace;
pub mod netlink;
pub mod packet_socket;
pub mod pages;
pub mod pass;
pub mod perf;
pub mod priority;
pub mod probe;
pub mod process;
pub mod signal;
pub mod socket;
pub mod splice;
pub mod tcp_info;
pub mod timer;
pub mod transport;
pub mod tun;
pub mod uring;
pub mod xdp;

use std::io;

/// Turns a C return value into a result: −1 means look at errno.
fn check(value: libc::c_int) -> io::Result<libc::c_int> {
    if value == -1 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// The same for byte counts.
fn check_len(value: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(value).map_err(|_| io::Error::last_os_error())
}
