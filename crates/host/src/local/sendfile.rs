//! sendfile(2): from a file in memory to a TCP socket; the receiver copies.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use plumb_sys::{fd, splice};

use super::end::{Attempt, Channel, End, Fault, Handover, OpenError, Setup};
use super::mechanism::SIZE_MAX;
use super::stream::{SocketCalls, StreamEnd};
use super::tcp::connected_pair;

/// TCP over 127.0.0.1, fed from a file in memory.
#[derive(Debug)]
pub(crate) struct Sendfile;

impl Channel for Sendfile {
    type Local = SendfileEnd;
    type Peer = SendfileEnd;

    fn open(setup: &Setup<'_>) -> Result<(Self::Local, Handover), OpenError> {
        let (here, handover) = connected_pair(setup, false)?;
        Ok((SendfileEnd::new(setup, here)?, handover))
    }

    fn attach(setup: &Setup<'_>, mut handover: Handover) -> Result<Self::Peer, OpenError> {
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
    fn new(setup: &Setup<'_>, fd: OwnedFd) -> Result<Self, OpenError> {
        let file = fd::memory_file(c"plumb-sendfile", SIZE_MAX).attempt("make a memory file")?;
        Ok(Self { stream: StreamEnd::new(setup, fd, None)?, file, short_writes: 0 })
    }
}

impl End for SendfileEnd {
    const STAMPED: bool = false;

    fn prepare(&mut self, tx: &[u8], _rx: &mut [u8]) -> Result<(), Fault> {
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
    fn send(&mut self, message: &[u8]) -> Result<(), Fault> {
        self.stream.watch.begin();
        let mut sent = 0;
        while sent < message.len() {
            let left = message.len() - sent;
            match splice::sendfile(self.stream.tx(), self.file.as_fd(), sent as u64, left) {
                Ok(n) => {
                    sent += n;
                    self.short_writes += u64::from(sent < message.len());
                }
                Err(error) => self.stream.watch.excuse(error)?,
            }
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), Fault> {
        self.stream.receive(buffer, len)
    }

    fn tally(&mut self) -> Vec<(&'static str, u64)> {
        let mut tally = self.stream.tally();
        tally.push(("short_moves", std::mem::take(&mut self.short_writes)));
        tally
    }
}
