//! eventfd(2): an eight-byte counter each way, the message being the count.

use std::os::fd::{AsFd, OwnedFd};

use plumb_sys::fd;

use crate::channel::{
    ChannelEnd, ChannelError, ChannelMechanism, ChannelSetup, IoResultExt, OpenError, PeerHandover,
    PeerWatchdog, ReadinessWaiter,
};
use crate::spec::WakeMode;

/// Two counters.
#[derive(Debug)]
pub(crate) struct EventfdChannel;

impl ChannelMechanism for EventfdChannel {
    type Local = EventfdEnd;
    type Peer = EventfdEnd;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), OpenError> {
        let there = fd::eventfd().attempt("make an eventfd")?;
        let here = fd::eventfd().attempt("make an eventfd")?;
        let copy = |fd: &OwnedFd| fd.try_clone().attempt("duplicate an eventfd");
        let handover = PeerHandover::of([copy(&there)?, copy(&here)?]);
        Ok((EventfdEnd::new(setup, here, there)?, handover))
    }

    fn attach(
        setup: &ChannelSetup<'_>,
        mut handover: PeerHandover,
    ) -> Result<Self::Peer, OpenError> {
        let [rx, tx] = handover.take()?;
        EventfdEnd::new(setup, rx, tx)
    }
}

/// One end of a pair of counters.
#[derive(Debug)]
pub(crate) struct EventfdEnd {
    rx: OwnedFd,
    tx: OwnedFd,
    waiter: ReadinessWaiter,
    watch: PeerWatchdog,
}

impl EventfdEnd {
    fn new(setup: &ChannelSetup<'_>, rx: OwnedFd, tx: OwnedFd) -> Result<Self, OpenError> {
        if setup.wake() == WakeMode::Spin {
            fd::set_nonblocking(rx.as_fd(), true).attempt("make an eventfd non-blocking")?;
        }
        let waiter = ReadinessWaiter::new(setup.wake(), rx.as_fd())
            .attempt("watch an eventfd with epoll")?;
        Ok(Self { rx, tx, waiter, watch: setup.watchdog.clone() })
    }
}

impl ChannelEnd for EventfdEnd {
    /// Counts add up: two messages become one.
    const QUEUES: bool = false;

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        self.watch.begin();
        while let Err(error) = fd::write(self.tx.as_fd(), message) {
            self.watch.retry_or_fail(error)?;
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        self.watch.begin();
        loop {
            self.waiter.ready(self.rx.as_fd(), &mut self.watch)?;
            match fd::read(self.rx.as_fd(), &mut buffer[..len]) {
                Ok(_) => return Ok(()),
                Err(error) => self.watch.retry_or_fail(error)?,
            }
        }
    }
}
