//! pipe(2): one pipe each way.

use plumb_sys::fd;

use super::end::{Attempt, Channel, Handover, OpenError, Setup};
use super::stream::{FileCalls, StreamEnd};

/// Two pipes.
#[derive(Debug)]
pub(crate) struct Pipe;

impl Channel for Pipe {
    type Local = StreamEnd<FileCalls>;
    type Peer = StreamEnd<FileCalls>;

    fn open(setup: &Setup<'_>) -> Result<(Self::Local, Handover), OpenError> {
        let (there_rx, here_tx) = fd::pipe().attempt("make a pipe")?;
        let (here_rx, there_tx) = fd::pipe().attempt("make a pipe")?;
        let local = StreamEnd::new(setup, here_rx, Some(here_tx))?;
        Ok((local, Handover::of([there_rx, there_tx])))
    }

    fn attach(setup: &Setup<'_>, mut handover: Handover) -> Result<Self::Peer, OpenError> {
        let [rx, tx] = handover.take()?;
        StreamEnd::new(setup, rx, Some(tx))
    }
}
