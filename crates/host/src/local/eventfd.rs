//! eventfd(2): an eight-byte counter each way, the message being the count.

use std::os::fd::{AsFd, OwnedFd};

use plumb_sys::fd;

use super::end::{Attempt, Channel, End, Fault, Handover, OpenError, Setup, Waiter, Watch};
use super::mechanism::Wake;

/// Two counters.
#[derive(Debug)]
pub(crate) struct Eventfd;

impl Channel for Eventfd {
    type Local = EventfdEnd;
    type Peer = EventfdEnd;

    fn open(setup: &Setup<'_>) -> Result<(Self::Local, Handover), OpenError> {
        let there = fd::eventfd().attempt("make an eventfd")?;
        let here = fd::eventfd().attempt("make an eventfd")?;
        let copy = |fd: &OwnedFd| fd.try_clone().attempt("duplicate an eventfd");
        let handover = Handover::of([copy(&there)?, copy(&here)?]);
        Ok((EventfdEnd::new(setup, here, there)?, handover))
    }

    fn attach(setup: &Setup<'_>, mut handover: Handover) -> Result<Self::Peer, OpenError> {
        let [rx, tx] = handover.take()?;
        EventfdEnd::new(setup, rx, tx)
    }
}

/// One end of a pair of counters.
#[derive(Debug)]
pub(crate) struct EventfdEnd {
    rx: OwnedFd,
    tx: OwnedFd,
    waiter: Waiter,
    watch: Watch,
}

impl EventfdEnd {
    fn new(setup: &Setup<'_>, rx: OwnedFd, tx: OwnedFd) -> Result<Self, OpenError> {
        if setup.wake() == Wake::Spin {
            fd::set_nonblocking(rx.as_fd(), true).attempt("make an eventfd non-blocking")?;
        }
        let waiter =
            Waiter::new(setup.wake(), rx.as_fd()).attempt("watch an eventfd with epoll")?;
        Ok(Self { rx, tx, waiter, watch: setup.watch.clone() })
    }
}

impl End for EventfdEnd {
    /// Counts add up: two messages become one.
    const QUEUES: bool = false;

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), Fault> {
        self.watch.begin();
        while let Err(error) = fd::write(self.tx.as_fd(), message) {
            self.watch.excuse(error)?;
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), Fault> {
        self.watch.begin();
        loop {
            self.waiter.ready(self.rx.as_fd(), &mut self.watch)?;
            match fd::read(self.rx.as_fd(), &mut buffer[..len]) {
                Ok(_) => return Ok(()),
                Err(error) => self.watch.excuse(error)?,
            }
        }
    }
}
