//! The XDP program that steers a queue's packets to its socket: six instructions, no compiler.
//!
//! Left out: choosing among packets. What arrives at a queue without a socket goes to the kernel's
//! stack.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use plumb_sys::bpf::{self, Instruction};

/// `return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS)`.
pub(super) fn load(sockets: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    bpf::load_xdp(&redirect(sockets.as_fd().as_raw_fd()))
}

/// RFC 9669's encoding, and the numbers of linux/bpf.h.
const fn redirect(map: i32) -> [Instruction; 6] {
    /// Offset of rx_queue_index in struct xdp_md.
    const QUEUE: i16 = 16;
    const XDP_PASS: i32 = 2;
    const REDIRECT_MAP: i32 = 51;
    const fn op(operation: u8, registers: u8, offset: i16, immediate: i32) -> Instruction {
        Instruction { operation, registers, offset, immediate }
    }
    [
        // r2 = *(u32 *)(r1 + 16)
        op(0x61, 0x12, QUEUE, 0),
        // r1 = map: two slots; source register 1 says that the constant is a map's descriptor
        op(0x18, 0x11, 0, map),
        op(0, 0, 0, 0),
        // r3 = XDP_PASS: the verdict where the map has no socket
        op(0xb7, 0x03, 0, XDP_PASS),
        // r0 = bpf_redirect_map(r1, r2, r3)
        op(0x85, 0, 0, REDIRECT_MAP),
        // return r0
        op(0x95, 0, 0, 0),
    ]
}
