//! Ends of message queues that lose nothing: messages over the queue's limit are sent in parts.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use plumb_sys::{fd, ipc, socket};

use crate::channel::{
    ChannelEnd, ChannelError, ChannelSetup, IoResultExt, OpenError, PeerWatchdog, ReadinessWaiter,
};
use crate::spec::WakeMode;

/// The calls of one kind of queue.
pub(crate) trait MessageQueue {
    /// Sends one part.
    fn send(&mut self, part: &[u8]) -> io::Result<()>;
    /// Receives one part; `sleep` says whether the call may wait for it.
    fn receive(&mut self, buffer: &mut [u8], sleep: bool) -> io::Result<usize>;
    /// The descriptor to wait for, where there is one.
    fn rx(&self) -> Option<BorrowedFd<'_>>;
    /// Makes the receiving side fit for spinning.
    fn make_nonblocking(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Datagram and sequenced-packet sockets of the Unix family.
#[derive(Debug)]
pub(crate) struct UnixQueue(pub(crate) OwnedFd);

impl MessageQueue for UnixQueue {
    #[inline]
    fn send(&mut self, part: &[u8]) -> io::Result<()> {
        socket::send(self.0.as_fd(), part).map(drop)
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], sleep: bool) -> io::Result<usize> {
        socket::receive(self.0.as_fd(), buffer, sleep)
    }

    fn rx(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// A pair of POSIX queues.
#[derive(Debug)]
pub(crate) struct PosixQueues {
    pub(crate) rx: OwnedFd,
    pub(crate) tx: OwnedFd,
}

impl MessageQueue for PosixQueues {
    #[inline]
    fn send(&mut self, part: &[u8]) -> io::Result<()> {
        ipc::posix_send(self.tx.as_fd(), part)
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], _sleep: bool) -> io::Result<usize> {
        ipc::posix_receive(self.rx.as_fd(), buffer)
    }

    fn rx(&self) -> Option<BorrowedFd<'_>> {
        Some(self.rx.as_fd())
    }

    fn make_nonblocking(&self) -> io::Result<()> {
        fd::set_nonblocking(self.rx.as_fd(), true)
    }
}

/// One end of a message queue.
#[derive(Debug)]
pub(crate) struct MessageEnd<Q> {
    queue: Q,
    part_max: usize,
    waiter: ReadinessWaiter,
    watch: PeerWatchdog,
    parts: u64,
}

impl<Q: MessageQueue> MessageEnd<Q> {
    /// An end over a queue whose parts have at most `part_max` bytes.
    pub(crate) fn new(
        setup: &ChannelSetup<'_>,
        queue: Q,
        part_max: usize,
    ) -> Result<Self, OpenError> {
        if setup.wake() == WakeMode::Spin {
            queue.make_nonblocking().attempt("make the queue non-blocking")?;
        }
        let waiter = match (setup.wake(), queue.rx()) {
            (WakeMode::Spin, _) => ReadinessWaiter::Spin,
            (wake, Some(rx)) => {
                ReadinessWaiter::new(wake, rx).attempt("watch the queue with epoll")?
            }
            (_, None) => ReadinessWaiter::Block,
        };
        Ok(Self { queue, part_max, waiter, watch: setup.watchdog.clone(), parts: 0 })
    }
}

impl<Q: MessageQueue> ChannelEnd for MessageEnd<Q> {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        self.watch.begin();
        for part in message.chunks(self.part_max) {
            while let Err(error) = self.queue.send(part) {
                self.watch.retry_or_fail(error)?;
            }
            self.parts += 1;
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        self.watch.begin();
        let mut filled = 0;
        while filled < len {
            if let Some(rx) = self.queue.rx() {
                self.waiter.ready(rx, &mut self.watch)?;
            }
            match self.queue.receive(&mut buffer[filled..], self.waiter.may_sleep()) {
                Ok(0) => return Err(ChannelError::Closed),
                Ok(n) => filled += n,
                Err(error) => self.watch.retry_or_fail(error)?,
            }
        }
        Ok(())
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        vec![("parts", std::mem::take(&mut self.parts))]
    }
}
