//! Predicates on the errors of system calls.

use std::io::{self, ErrorKind};

/// Whether trying again later may succeed: EAGAIN, EINTR, or a socket's timeout.
pub fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Whether the peer of a connection is gone: end of file, reset, abort, or a broken pipe.
pub fn is_disconnect(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
    )
}

/// Whether connect(2) is under way and will be decided later: EINPROGRESS.
pub fn is_in_progress(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINPROGRESS)
}

/// Whether a datagram's call may be made again: as [`is_transient`], or what was refused is an earlier datagram.
pub fn is_transient_datagram(error: &io::Error) -> bool {
    is_transient(error)
        || matches!(
            error.kind(),
            ErrorKind::ConnectionRefused
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
        )
}

/// Whether the queue of a device dropped a datagram: ENOBUFS.
pub fn is_queue_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Whether a datagram is too long for the path or a device: EMSGSIZE.
pub fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

/// Whether a router, the far host or the routing table refused a datagram, as ICMP has it.
pub fn is_remote_refusal(error: &io::Error) -> bool {
    let kinds =
        [ErrorKind::ConnectionRefused, ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable];
    kinds.contains(&error.kind())
        || error.raw_os_error() == Some(libc::EHOSTDOWN)
        || is_too_long(error)
}
