//! pipe(2) and mkfifo(3): a pipe each way, unnamed or named. A name is removed as soon as both ends are open.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use plumb_sys::fd;

use super::scratch_directory::ScratchDirectory;
use super::stream::{FileCalls, StreamEnd};
use crate::channel::{ChannelMechanism, ChannelSetup, IoResultExt, PeerHandover};
use crate::report::LaunchFault;
use crate::spec::Mechanism;

/// Two pipes, named or not.
pub(crate) struct PipeChannel;

impl ChannelMechanism for PipeChannel {
    type Local = StreamEnd<FileCalls>;
    type Peer = StreamEnd<FileCalls>;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), LaunchFault> {
        let named = setup.channel.mechanism == Mechanism::Fifo;
        let scratch = named.then(|| ScratchDirectory::new(setup.seed)).transpose();
        let scratch = scratch.attempt("make a directory for a named pipe")?;
        let pipe = |name: &str| match &scratch {
            Some(scratch) => named_pipe(scratch, name).attempt("make a named pipe"),
            None => fd::pipe().attempt("make a pipe"),
        };
        let (there_rx, here_tx) = pipe("out")?;
        let (here_rx, there_tx) = pipe("in")?;
        let local = StreamEnd::new(setup, here_rx, Some(here_tx))?;
        Ok((local, PeerHandover::of([there_rx, there_tx])))
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, LaunchFault> {
        let [rx, tx] = handover.take()?;
        StreamEnd::new(setup, rx, Some(tx))
    }
}

/// fcntl.h: the same number on every architecture that plumb knows.
const O_NONBLOCK: i32 = 0o4000;

/// Opens both ends of a new named pipe: the reader first and without waiting for a writer.
fn named_pipe(scratch: &ScratchDirectory, name: &str) -> io::Result<(OwnedFd, OwnedFd)> {
    let path = scratch.path(name);
    fd::mkfifo(&scratch.c_path(name)?)?;
    let rx: OwnedFd = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(&path)?.into();
    let tx: OwnedFd = OpenOptions::new().write(true).open(&path)?.into();
    fd::set_nonblocking(rx.as_fd(), false)?;
    Ok((rx, tx))
}
