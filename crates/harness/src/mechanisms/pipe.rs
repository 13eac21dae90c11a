//! pipe(2): one pipe each way.

use plumb_sys::fd;

use super::stream::{FileCalls, StreamEnd};
use crate::channel::{ChannelMechanism, ChannelSetup, IoResultExt, OpenError, PeerHandover};

/// Two pipes.
#[derive(Debug)]
pub(crate) struct PipeChannel;

impl ChannelMechanism for PipeChannel {
    type Local = StreamEnd<FileCalls>;
    type Peer = StreamEnd<FileCalls>;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), OpenError> {
        let (there_rx, here_tx) = fd::pipe().attempt("make a pipe")?;
        let (here_rx, there_tx) = fd::pipe().attempt("make a pipe")?;
        let local = StreamEnd::new(setup, here_rx, Some(here_tx))?;
        Ok((local, PeerHandover::of([there_rx, there_tx])))
    }

    fn attach(
        setup: &ChannelSetup<'_>,
        mut handover: PeerHandover,
    ) -> Result<Self::Peer, OpenError> {
        let [rx, tx] = handover.take()?;
        StreamEnd::new(setup, rx, Some(tx))
    }
}
