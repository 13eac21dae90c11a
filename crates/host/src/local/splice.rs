//! splice(2): pipes whose far side moves pages without touching them.
//!
//! The worker writes and reads; the peer sends messages back, or drops them into /dev/null, by
//! moving pages from one descriptor to another.

use std::fs::OpenOptions;
use std::os::fd::{AsFd, OwnedFd};

use plumb_sys::{fd, splice};

use super::end::{Attempt, Channel, End, Fault, Handover, OpenError, Setup, Watch};
use super::mechanism::Wake;
use super::pipe::Pipe;
use super::stream::{FileCalls, StreamEnd};

/// Two pipes; the peer splices.
#[derive(Debug)]
pub(crate) struct Splice;

impl Channel for Splice {
    type Local = StreamEnd<FileCalls>;
    type Peer = SpliceEnd;

    fn open(setup: &Setup<'_>) -> Result<(Self::Local, Handover), OpenError> {
        Pipe::open(setup)
    }

    fn attach(setup: &Setup<'_>, mut handover: Handover) -> Result<Self::Peer, OpenError> {
        let [rx, tx] = handover.take()?;
        let null = OpenOptions::new().write(true).open("/dev/null").attempt("open /dev/null")?;
        Ok(SpliceEnd {
            rx,
            tx,
            null: null.into(),
            sleep: setup.wake() != Wake::Spin,
            watch: setup.watch.clone(),
            short_moves: 0,
        })
    }
}

/// The peer's end.
#[derive(Debug)]
pub(crate) struct SpliceEnd {
    rx: OwnedFd,
    tx: OwnedFd,
    null: OwnedFd,
    sleep: bool,
    watch: Watch,
    short_moves: u64,
}

impl SpliceEnd {
    #[inline]
    fn move_pages(&mut self, to_null: bool, len: usize) -> Result<(), Fault> {
        self.watch.begin();
        let mut moved = 0;
        while moved < len {
            let to = if to_null { &self.null } else { &self.tx };
            match splice::splice(self.rx.as_fd(), to.as_fd(), len - moved, self.sleep) {
                Ok(0) => return Err(Fault::Closed),
                Ok(n) => {
                    moved += n;
                    self.short_moves += u64::from(moved < len);
                }
                Err(error) => self.watch.excuse(error)?,
            }
        }
        Ok(())
    }
}

impl End for SpliceEnd {
    fn send(&mut self, message: &[u8]) -> Result<(), Fault> {
        self.watch.begin();
        let mut sent = 0;
        while sent < message.len() {
            match fd::write(self.tx.as_fd(), &message[sent..]) {
                Ok(n) => sent += n,
                Err(error) => self.watch.excuse(error)?,
            }
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), Fault> {
        self.watch.begin();
        let mut filled = 0;
        while filled < len {
            match fd::read(self.rx.as_fd(), &mut buffer[filled..len]) {
                Ok(0) => return Err(Fault::Closed),
                Ok(n) => filled += n,
                Err(error) => self.watch.excuse(error)?,
            }
        }
        Ok(())
    }

    #[inline]
    fn echo(&mut self, _buffer: &mut [u8], len: usize) -> Result<(), Fault> {
        self.move_pages(false, len)
    }

    #[inline]
    fn discard(&mut self, _buffer: &mut [u8], len: usize) -> Result<(), Fault> {
        self.move_pages(true, len)
    }

    fn tally(&mut self) -> Vec<(&'static str, u64)> {
        vec![("short_moves", std::mem::take(&mut self.short_moves))]
    }
}
