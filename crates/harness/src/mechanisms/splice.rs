//! splice(2): pipes whose far side moves pages without touching them.
//!
//! The worker writes and reads; the peer sends messages back, or drops them into /dev/null, by
//! moving pages from one descriptor to another. A message that goes back is first gathered in a
//! pipe of the peer's own: a peer that returned it piece by piece would block a worker that is
//! still writing.

use std::fs::OpenOptions;
use std::os::fd::{AsFd, OwnedFd};

use plumb_sys::fd;

use super::pipe::PipeChannel;
use super::stream::{FileCalls, StreamEnd};
use crate::channel::{
    ChannelEnd, ChannelError, ChannelMechanism, ChannelSetup, IoResultExt, OpenError, PeerHandover,
    PeerWatchdog,
};
use crate::spec::WakeMode;

/// Two pipes; the peer splices.
#[derive(Debug)]
pub(crate) struct SpliceChannel;

impl ChannelMechanism for SpliceChannel {
    type Local = StreamEnd<FileCalls>;
    type Peer = SpliceEnd;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), OpenError> {
        PipeChannel::open(setup)
    }

    fn attach(
        setup: &ChannelSetup<'_>,
        mut handover: PeerHandover,
    ) -> Result<Self::Peer, OpenError> {
        let [rx, tx] = handover.take()?;
        let (store_rx, store_tx) = fd::pipe().attempt("make a pipe")?;
        fd::set_pipe_size(store_tx.as_fd(), STORE)
            .attempt("enlarge a pipe (see /proc/sys/fs/pipe-max-size)")?;
        let null = OpenOptions::new().write(true).open("/dev/null").attempt("open /dev/null")?;
        Ok(SpliceEnd {
            rx,
            tx,
            store_rx,
            store_tx,
            null: null.into(),
            sleep: setup.wake() != WakeMode::Spin,
            watch: setup.watchdog.clone(),
            short_moves: 0,
        })
    }
}

/// The peer's end.
#[derive(Debug)]
pub(crate) struct SpliceEnd {
    rx: OwnedFd,
    tx: OwnedFd,
    store_rx: OwnedFd,
    store_tx: OwnedFd,
    null: OwnedFd,
    sleep: bool,
    watch: PeerWatchdog,
    short_moves: u64,
}

/// Capacity of the pipe in which the peer gathers a message: what every user may have.
const STORE: usize = 1 << 20;

/// Moves `len` bytes; `sleep` says whether the kernel may wait for them.
#[inline]
fn move_pages(
    watch: &mut PeerWatchdog,
    from: &OwnedFd,
    to: &OwnedFd,
    len: usize,
    sleep: bool,
) -> Result<u64, ChannelError> {
    let mut moved = 0;
    let mut moves = 0;
    while moved < len {
        match fd::splice(from.as_fd(), to.as_fd(), len - moved, sleep) {
            Ok(0) => return Err(ChannelError::Closed),
            Ok(n) => {
                moved += n;
                moves += 1;
            }
            Err(error) => watch.retry_or_fail(error)?,
        }
    }
    Ok(moves - 1)
}

impl ChannelEnd for SpliceEnd {
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        self.watch.begin();
        let mut sent = 0;
        while sent < message.len() {
            match fd::write(self.tx.as_fd(), &message[sent..]) {
                Ok(n) => sent += n,
                Err(error) => self.watch.retry_or_fail(error)?,
            }
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        self.watch.begin();
        let mut filled = 0;
        while filled < len {
            match fd::read(self.rx.as_fd(), &mut buffer[filled..len]) {
                Ok(0) => return Err(ChannelError::Closed),
                Ok(n) => filled += n,
                Err(error) => self.watch.retry_or_fail(error)?,
            }
        }
        Ok(())
    }

    #[inline]
    fn echo(&mut self, _buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        self.watch.begin();
        let sleep = self.sleep;
        self.short_moves += move_pages(&mut self.watch, &self.rx, &self.store_tx, len, sleep)?;
        self.short_moves += move_pages(&mut self.watch, &self.store_rx, &self.tx, len, sleep)?;
        Ok(())
    }

    #[inline]
    fn discard(&mut self, _buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        self.watch.begin();
        self.short_moves += move_pages(&mut self.watch, &self.rx, &self.null, len, self.sleep)?;
        Ok(())
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        vec![("short_moves", std::mem::take(&mut self.short_moves))]
    }
}
