//! The socket between a worker and a process that it started.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use plumb_remote::message;
use plumb_sys::fd;
use serde::{Deserialize, Serialize};

/// One side of the control socket.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    file: File,
}

impl ControlSocket {
    /// Over a connected stream socket.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { file: File::from(fd) }
    }

    /// Whether something is said, or the other side is gone, within some milliseconds.
    pub(crate) fn is_readable_within(&self, timeout_ms: i32) -> io::Result<bool> {
        fd::poll_readable(self.file.as_fd(), timeout_ms)
    }

    /// The same socket once more.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()? })
    }

    /// Says something.
    pub(crate) fn send<T: Serialize>(&mut self, message: &T) -> io::Result<()> {
        message::write(&mut self.file, message)
    }

    /// Hears something; an error when the other side is gone.
    pub(crate) fn receive<T: for<'de> Deserialize<'de>>(&mut self) -> io::Result<T> {
        message::read(&mut self.file)?
            .ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "the other process died"))
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
