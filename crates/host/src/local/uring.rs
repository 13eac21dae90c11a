//! TCP through io_uring(7): one send or receive in flight on a ring of its own.

use std::os::fd::{AsFd, OwnedFd};

use plumb_sys::uring::Ring;

use super::end::{Attempt, Channel, End, Fault, Handover, OpenError, Setup, Watch};
use super::mechanism::Wake;
use super::tcp::connected_pair;

/// TCP over 127.0.0.1, driven by io_uring.
#[derive(Debug)]
pub(crate) struct Uring;

impl Channel for Uring {
    type Local = UringEnd;
    type Peer = UringEnd;

    fn open(setup: &Setup<'_>) -> Result<(Self::Local, Handover), OpenError> {
        let (here, handover) = connected_pair(setup, false)?;
        Ok((UringEnd::new(setup, here)?, handover))
    }

    fn attach(setup: &Setup<'_>, mut handover: Handover) -> Result<Self::Peer, OpenError> {
        let [fd] = handover.take()?;
        UringEnd::new(setup, fd)
    }
}

/// One end.
#[derive(Debug)]
pub(crate) struct UringEnd {
    fd: OwnedFd,
    ring: Ring,
    sleep: bool,
    watch: Watch,
    short_reads: u64,
}

impl UringEnd {
    fn new(setup: &Setup<'_>, fd: OwnedFd) -> Result<Self, OpenError> {
        let ring = Ring::new().attempt("set up io_uring (see kernel.io_uring_disabled)")?;
        let sleep = setup.wake() != Wake::Spin;
        Ok(Self { fd, ring, sleep, watch: setup.watch.clone(), short_reads: 0 })
    }
}

impl End for UringEnd {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), Fault> {
        self.watch.begin();
        let mut sent = 0;
        while sent < message.len() {
            match self.ring.send(self.fd.as_fd(), &message[sent..]) {
                Ok(n) => sent += n,
                Err(error) => self.watch.excuse(error)?,
            }
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), Fault> {
        self.watch.begin();
        let mut filled = 0;
        let mut fault = None;
        while filled < len {
            let watch = &mut self.watch;
            let result = self.ring.receive(
                self.fd.as_fd(),
                &mut buffer[filled..len],
                self.sleep,
                &mut || {
                    watch.spinning().map_err(|trouble| {
                        fault = Some(trouble);
                        std::io::Error::from(std::io::ErrorKind::Other)
                    })
                },
            );
            match result {
                Ok(0) => return Err(Fault::Closed),
                Ok(n) => {
                    filled += n;
                    self.short_reads += u64::from(filled < len);
                }
                Err(error) => match fault.take() {
                    Some(trouble) => return Err(trouble),
                    None => self.watch.excuse(error)?,
                },
            }
        }
        Ok(())
    }

    fn tally(&mut self) -> Vec<(&'static str, u64)> {
        vec![("short_reads", std::mem::take(&mut self.short_reads))]
    }
}
