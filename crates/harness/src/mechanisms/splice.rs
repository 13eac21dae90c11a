//! splice(2) and vmsplice(2): pipes whose far side moves pages without touching them, or whose writer lends its own.
//!
//! The worker writes and reads; the peer sends messages back, or drops them into /dev/null, by
//! moving pages from one descriptor to another. A message that goes back is first gathered in a
//! pipe of the peer's own: a peer that returned it piece by piece would block a worker that is
//! still writing.
//!
//! Lent pages must not change until they are read, so that end waits for replies before its caller may change the
//! message; in a stream of equal messages nothing changes.

use std::fs::OpenOptions;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use plumb_sys::fd;

use super::pipe::PipeChannel;
use super::stream::{FileCalls, StreamEnd};
use crate::channel::{
    ChannelEnd, ChannelError, ChannelMechanism, ChannelSetup, IoResultExt, PeerHandover,
    PeerWatchdog,
};
use crate::report::LaunchFault;
use crate::spec::WakeMode;

/// Two pipes; the peer splices.
pub(crate) struct SpliceChannel;

impl ChannelMechanism for SpliceChannel {
    type Local = StreamEnd<FileCalls>;
    type Peer = SpliceEnd;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), LaunchFault> {
        PipeChannel::open(setup)
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, LaunchFault> {
        let [rx, tx] = handover.take()?;
        let (store_rx, store_tx) = fd::pipe().attempt("make a pipe")?;
        fd::set_pipe_size(store_tx.as_fd(), STORE)
            .attempt("enlarge a pipe (see /proc/sys/fs/pipe-max-size)")?;
        let null = OpenOptions::new().write(true).open("/dev/null").attempt("open /dev/null")?;
        Ok(SpliceEnd {
            stream: StreamEnd::new(setup, rx, Some(tx))?,
            store_rx,
            store_tx,
            null: null.into(),
            sleep: setup.wake() != WakeMode::Spin,
            short_moves: 0,
        })
    }
}

/// The peer's end.
#[derive(Debug)]
pub(crate) struct SpliceEnd {
    stream: StreamEnd<FileCalls>,
    store_rx: OwnedFd,
    store_tx: OwnedFd,
    null: OwnedFd,
    sleep: bool,
    short_moves: u64,
}

/// Capacity of the pipe in which the peer gathers a message: what every user may have.
const STORE: usize = 1 << 20;

/// Moves `len` bytes; `sleep` says whether the kernel may wait for them. How many moves were short.
#[inline]
fn move_pages(
    watch: &mut PeerWatchdog,
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    len: usize,
    sleep: bool,
) -> Result<u64, ChannelError> {
    watch.move_all(len, |moved| fd::splice(from, to, len - moved, sleep))
}

impl ChannelEnd for SpliceEnd {
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        self.stream.send(message)
    }

    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        self.stream.receive(buffer, len)
    }

    #[inline]
    fn echo(&mut self, _buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        let StreamEnd { rx, tx, watch, .. } = &mut self.stream;
        watch.begin();
        self.short_moves += move_pages(watch, rx.as_fd(), self.store_tx.as_fd(), len, self.sleep)?;
        let tx = tx.as_ref().unwrap_or(rx).as_fd();
        self.short_moves += move_pages(watch, self.store_rx.as_fd(), tx, len, self.sleep)?;
        Ok(())
    }

    #[inline]
    fn discard(&mut self, _buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        let StreamEnd { rx, watch, .. } = &mut self.stream;
        watch.begin();
        self.short_moves += move_pages(watch, rx.as_fd(), self.null.as_fd(), len, self.sleep)?;
        Ok(())
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        vec![("short_moves", std::mem::take(&mut self.short_moves))]
    }
}

/// Two pipes, both filled by vmsplice.
pub(crate) struct VmspliceChannel;

impl ChannelMechanism for VmspliceChannel {
    type Local = VmspliceEnd;
    type Peer = VmspliceEnd;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), LaunchFault> {
        let (stream, handover) = PipeChannel::open(setup)?;
        Ok((VmspliceEnd { stream }, handover))
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, LaunchFault> {
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
        let StreamEnd { rx, tx, watch, .. } = &mut self.stream;
        let tx = tx.as_ref().unwrap_or(rx).as_fd();
        watch.begin();
        watch.move_all(message.len(), |sent| fd::vmsplice(tx, &message[sent..]))?;
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
