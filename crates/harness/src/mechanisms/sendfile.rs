//! sendfile(2): from a file in memory to a TCP socket; the receiver copies.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use plumb_sys::fd;

use super::stream::{SocketCalls, StreamEnd};
use super::tcp::connected_pair;
use crate::channel::{
    ChannelEnd, ChannelError, ChannelMechanism, ChannelSetup, IoResultExt, OpenError, PeerHandover,
};
use crate::spec::MESSAGE_SIZE_MAX;

/// TCP over 127.0.0.1, fed from a file in memory.
#[derive(Debug)]
pub(crate) struct SendfileChannel;

impl ChannelMechanism for SendfileChannel {
    type Local = SendfileEnd;
    type Peer = SendfileEnd;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), OpenError> {
        let (here, handover) = connected_pair(setup, false)?;
        Ok((SendfileEnd::new(setup, here)?, handover))
    }

    fn attach(
        setup: &ChannelSetup<'_>,
        mut handover: PeerHandover,
    ) -> Result<Self::Peer, OpenError> {
        let [fd] = handover.take()?;
        SendfileEnd::new(setup, fd)
    }
}

/// One end.
#[derive(Debug)]
pub(crate) struct SendfileEnd {
    stream: StreamEnd<SocketCalls>,
    file: OwnedFd,
    short_writes: u64,
}

impl SendfileEnd {
    fn new(setup: &ChannelSetup<'_>, fd: OwnedFd) -> Result<Self, OpenError> {
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
