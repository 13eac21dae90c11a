//! vmsplice(2): pipes filled by lending the writer's pages; the reader copies.
//!
//! The pages must not change until they are read, so this end waits for replies before its caller
//! may change the message; in a stream of equal messages nothing changes.

use plumb_sys::splice;

use super::end::{Channel, End, Fault, Handover, OpenError, Setup};
use super::pipe::Pipe;
use super::stream::{FileCalls, StreamEnd};

/// Two pipes, both filled by vmsplice.
#[derive(Debug)]
pub(crate) struct Vmsplice;

impl Channel for Vmsplice {
    type Local = VmspliceEnd;
    type Peer = VmspliceEnd;

    fn open(setup: &Setup<'_>) -> Result<(Self::Local, Handover), OpenError> {
        let (stream, handover) = Pipe::open(setup)?;
        Ok((VmspliceEnd { stream }, handover))
    }

    fn attach(setup: &Setup<'_>, handover: Handover) -> Result<Self::Peer, OpenError> {
        Ok(VmspliceEnd { stream: Pipe::attach(setup, handover)? })
    }
}

/// One end.
#[derive(Debug)]
pub(crate) struct VmspliceEnd {
    stream: StreamEnd<FileCalls>,
}

impl End for VmspliceEnd {
    const LENDS: bool = true;

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), Fault> {
        self.stream.watch.begin();
        let mut sent = 0;
        while sent < message.len() {
            match splice::lend_pages(self.stream.tx(), &message[sent..]) {
                Ok(n) => sent += n,
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
        self.stream.tally()
    }
}
