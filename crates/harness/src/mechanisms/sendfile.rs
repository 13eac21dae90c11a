//! sendfile(2): from a file in memory to a TCP socket; the receiver copies.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use plumb_sys::fd;

use super::stream::{SocketCalls, StreamEnd};
use super::tcp::OverTcp;
use crate::channel::{ChannelEnd, ChannelError, ChannelSetup, IoResultExt};
use crate::report::LaunchFault;
use crate::spec::MESSAGE_SIZE_MAX;

/// One end.
#[derive(Debug)]
pub(crate) struct SendfileEnd {
    stream: StreamEnd<SocketCalls>,
    file: OwnedFd,
    short_writes: u64,
}

impl OverTcp for SendfileEnd {
    fn over(setup: &ChannelSetup<'_>, fd: OwnedFd) -> Result<Self, LaunchFault> {
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
        let StreamEnd { rx, tx, watch, .. } = &mut self.stream;
        let (tx, file) = (tx.as_ref().unwrap_or(rx).as_fd(), self.file.as_fd());
        watch.begin();
        let send = |sent: usize| fd::sendfile(tx, file, sent as u64, message.len() - sent);
        self.short_writes += watch.move_all(message.len(), send)?;
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
