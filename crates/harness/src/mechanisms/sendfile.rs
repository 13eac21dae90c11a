//! sendfile(2): from a file in memory to a TCP socket; the receiver copies.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use plumb_sys::fd;

use super::stream::{SocketCalls, StreamEnd};
use super::tcp::OverTcp;
use crate::channel::{ChannelEnd, ChannelError, ChannelSetup, IoResultExt, OpenError};
use crate::spec::MESSAGE_SIZE_MAX;

/// One end.
#[derive(Debug)]
pub(crate) struct SendfileEnd {
    stream: StreamEnd<SocketCalls>,
    file: OwnedFd,
    short_writes: u64,
}

impl OverTcp for SendfileEnd {
    fn over(setup: &ChannelSetup<'_>, fd: OwnedFd) -> Result<Self, OpenError> {
        let file =
            fd::memory_file(c"plumb-sendfile", MESSAGE_SIZE_MAX).attempt("make a memory file")?;
        Ok(Self { stream: StreamEnd::new(setup, fd, None)?, file, short_writes: 0 })
    }
}

impl ChannelEnd for SendfileEnd {
    const SENDS_GIVEN_BYTES: bool = false;

    fn prepare(&mut self, tx: &[u8], _rx: &mut [u8]) -> Result<(), ChannelError> {
        let mut written = 0;
        while written < tx.len() {
            match fd::write_at(self.file.as_fd(), &tx[written..], written as u64)? {
                0 => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                n => written += n,
            }
        }
        Ok(())
    }

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        self.stream.watch.begin();
        let mut sent = 0;
        while sent < message.len() {
            let left = message.len() - sent;
            match fd::sendfile(self.stream.tx(), self.file.as_fd(), sent as u64, left) {
                Ok(n) => {
                    sent += n;
                    self.short_writes += u64::from(sent < message.len());
                }
                Err(error) => self.stream.watch.retry_or_fail(error)?,
            }
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        self.stream.receive(buffer, len)
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        let mut tally = self.stream.take_counters();
        tally.push(("short_moves", std::mem::take(&mut self.short_writes)));
        tally
    }
}
