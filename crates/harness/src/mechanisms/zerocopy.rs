//! TCP with MSG_ZEROCOPY: pages are lent to the socket, completions read from its error queue.
//!
//! On loopback the kernel copies after all and says so in the completion
//! (Documentation/networking/msg_zerocopy.rst); both kinds are counted.

use std::os::fd::{AsFd, OwnedFd};

use plumb_sys::socket;
use plumb_sys::socket::IntOption;

use super::stream::{SocketCalls, StreamEnd};
use super::tcp::OverTcp;
use crate::channel::{ChannelEnd, ChannelError, ChannelSetup, IoResultExt};
use crate::report::LaunchFault;

/// Sends under way before completions are read: the kernel's notes of them are limited
/// (net.core.optmem_max).
const IN_FLIGHT_MAX: u32 = 64;

/// One end.
#[derive(Debug)]
pub(crate) struct ZerocopyEnd {
    stream: StreamEnd<SocketCalls>,
    in_flight: u32,
    copied: u64,
    lent: u64,
}

impl OverTcp for ZerocopyEnd {
    fn over(setup: &ChannelSetup<'_>, fd: OwnedFd) -> Result<Self, LaunchFault> {
        socket::set_option(fd.as_fd(), IntOption::Zerocopy, 1).attempt("set SO_ZEROCOPY")?;
        let stream = StreamEnd::new(setup, fd, None)?;
        Ok(Self { stream, in_flight: 0, copied: 0, lent: 0 })
    }
}

impl ZerocopyEnd {
    /// Reads completions until at most `left` sends are under way.
    #[inline]
    fn complete(&mut self, left: u32) -> Result<(), ChannelError> {
        while self.in_flight > left {
            match socket::zerocopy_completion(self.stream.tx()) {
                Ok(completion) => {
                    self.in_flight = self.in_flight.saturating_sub(completion.sends);
                    let count = u64::from(completion.sends);
                    *if completion.copied { &mut self.copied } else { &mut self.lent } += count;
                }
                Err(error) => self.stream.watch.retry_or_fail(error)?,
            }
        }
        Ok(())
    }
}

impl ChannelEnd for ZerocopyEnd {
    const LENDS_PAGES: bool = true;

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        self.stream.watch.begin();
        let mut sent = 0;
        while sent < message.len() {
            match socket::send_zerocopy(self.stream.tx(), &message[sent..]) {
                Ok(n) => {
                    sent += n;
                    self.in_flight += 1;
                    self.complete(IN_FLIGHT_MAX)?;
                }
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => self.complete(0)?,
                Err(error) => self.stream.watch.retry_or_fail(error)?,
            }
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        self.stream.receive(buffer, len)?;
        // A reply means that what was sent before has arrived: its pages are about to be free.
        self.complete(0)
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        let mut tally = self.stream.take_counters();
        tally.push(("zerocopy_copied", std::mem::take(&mut self.copied)));
        tally.push(("zerocopy_lent", std::mem::take(&mut self.lent)));
        tally
    }
}

const ENOBUFS: i32 = 105;
