//! TCP through io_uring(7): one send or receive in flight on a ring of its own.

use std::os::fd::{AsFd, OwnedFd};

use plumb_sys::uring::SingleOpRing;

use super::tcp::OverTcp;
use crate::channel::{ChannelEnd, ChannelError, ChannelSetup, IoResultExt, PeerWatchdog};
use crate::report::LaunchFault;
use crate::spec::WakeMode;

/// One end.
#[derive(Debug)]
pub(crate) struct UringEnd {
    fd: OwnedFd,
    ring: SingleOpRing,
    sleep: bool,
    watch: PeerWatchdog,
    short_reads: u64,
}

impl OverTcp for UringEnd {
    fn over(setup: &ChannelSetup<'_>, fd: OwnedFd) -> Result<Self, LaunchFault> {
        let ring = SingleOpRing::new().attempt("set up io_uring (see kernel.io_uring_disabled)")?;
        let sleep = setup.wake() != WakeMode::Spin;
        Ok(Self { fd, ring, sleep, watch: setup.watchdog.clone(), short_reads: 0 })
    }
}

impl ChannelEnd for UringEnd {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        self.watch.begin();
        let (fd, ring) = (self.fd.as_fd(), &mut self.ring);
        self.watch.move_all(message.len(), |sent| ring.send(fd, &message[sent..]))?;
        Ok(())
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
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
                    watch.on_spin().map_err(|error| {
                        fault = Some(error);
                        std::io::Error::from(std::io::ErrorKind::Other)
                    })
                },
            );
            match result {
                Ok(0) => return Err(ChannelError::Closed),
                Ok(n) => {
                    filled += n;
                    self.short_reads += u64::from(filled < len);
                }
                Err(error) => match fault.take() {
                    Some(error) => return Err(error),
                    None => self.watch.retry_or_fail(error)?,
                },
            }
        }
        Ok(())
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        vec![("short_reads", std::mem::take(&mut self.short_reads))]
    }
}
