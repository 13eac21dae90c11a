//! vmsplice(2): pipes filled by lending the writer's pages; the reader copies.
//!
//! The pages must not change until they are read, so this end waits for replies before its caller
//! may change the message; in a stream of equal messages nothing changes.

use plumb_sys::fd;

use super::pipe::PipeChannel;
use super::stream::{FileCalls, StreamEnd};
use crate::channel::{
    ChannelEnd, ChannelError, ChannelMechanism, ChannelSetup, OpenError, PeerHandover,
};

/// Two pipes, both filled by vmsplice.
#[derive(Debug)]
pub(crate) struct VmspliceChannel;

impl ChannelMechanism for VmspliceChannel {
    type Local = VmspliceEnd;
    type Peer = VmspliceEnd;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), OpenError> {
        let (stream, handover) = PipeChannel::open(setup)?;
        Ok((VmspliceEnd { stream }, handover))
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, OpenError> {
        Ok(VmspliceEnd { stream: PipeChannel::attach(setup, handover)? })
    }
}

/// One end.
#[derive(Debug)]
pub(crate) struct VmspliceEnd {
    stream: StreamEnd<FileCalls>,
}

impl ChannelEnd for VmspliceEnd {
    const LENDS_PAGES: bool = true;

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        self.stream.watch.begin();
        let mut sent = 0;
        while sent < message.len() {
            match fd::vmsplice(self.stream.tx(), &message[sent..]) {
                Ok(n) => sent += n,
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
        self.stream.take_counters()
    }
}
