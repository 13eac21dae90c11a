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
