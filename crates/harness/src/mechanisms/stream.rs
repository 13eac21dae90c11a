//! Ends of byte streams: pipes and stream sockets differ only in the two calls that move bytes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use plumb_sys::fd;
use plumb_sys::socket::{self, IntOption, set_option};

use crate::channel::{
    ChannelEnd, ChannelError, ChannelSetup, IoResultExt, PeerWatchdog, ReadinessWaiter,
};
use crate::report::LaunchFault;
use crate::spec::{SocketOptions, WakeMode};

/// The pair of calls that moves bytes.
pub(crate) trait StreamCalls {
    /// Receives some bytes; `sleep` says whether the call may wait for them.
    fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8], sleep: bool) -> io::Result<usize>;
    /// Sends some bytes.
    fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize>;
    /// Makes a descriptor fit for spinning.
    fn make_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()>;
}

/// read(2) and write(2).
#[derive(Debug)]
pub(crate) struct FileCalls;

impl StreamCalls for FileCalls {
    #[inline]
    fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8], _sleep: bool) -> io::Result<usize> {
        fd::read(fd, buffer)
    }

    #[inline]
    fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
        fd::write(fd, bytes)
    }

    fn make_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
        fd::set_nonblocking(fd, true)
    }
}

/// recv(2) and send(2).
#[derive(Debug)]
pub(crate) struct SocketCalls;

impl StreamCalls for SocketCalls {
    #[inline]
    fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8], sleep: bool) -> io::Result<usize> {
        socket::receive(fd, buffer, sleep)
    }

    #[inline]
    fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
        socket::send(fd, bytes)
    }

    fn make_nonblocking(_fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// One end of a byte stream.
#[derive(Debug)]
pub(crate) struct StreamEnd<C> {
    pub(crate) rx: OwnedFd,
    /// Where to send, when that is another descriptor.
    pub(crate) tx: Option<OwnedFd>,
    waiter: ReadinessWaiter,
    pub(crate) watch: PeerWatchdog,
    quickack: bool,
    window: Option<i32>,
    short_reads: u64,
    short_writes: u64,
    calls: std::marker::PhantomData<C>,
}

impl<C: StreamCalls> StreamEnd<C> {
    /// An end that receives from one descriptor and sends to another.
    pub(crate) fn new(
        setup: &ChannelSetup<'_>,
        rx: OwnedFd,
        tx: Option<OwnedFd>,
    ) -> Result<Self, LaunchFault> {
        if setup.wake() == WakeMode::Spin {
            C::make_nonblocking(rx.as_fd()).attempt("make the channel non-blocking")?;
        }
        let waiter = ReadinessWaiter::new(setup.wake(), rx.as_fd())
            .attempt("watch the channel with epoll")?;
        Ok(Self {
            rx,
            tx,
            waiter,
            watch: setup.watchdog.clone(),
            quickack: false,
            window: None,
            short_reads: 0,
            short_writes: 0,
            calls: std::marker::PhantomData,
        })
    }

    /// The same with what TCP forgets and must be told before every receive: immediate acknowledgements, and the bound
    /// of its window, which the kernel widens whenever it learns how much memory the segments take
    /// (`tcp_measure_rcv_mss` in net/ipv4/tcp_input.c).
    pub(crate) fn with_options(mut self, options: &SocketOptions) -> Self {
        self.quickack = options.quickack;
        self.window = options.window.map(|bytes| i32::try_from(bytes).unwrap_or(i32::MAX));
        self
    }

    /// Receives some bytes, at least one.
    #[inline]
    pub(crate) fn receive_some(&mut self, buffer: &mut [u8]) -> Result<usize, ChannelError> {
        loop {
            if self.quickack {
                set_option(self.rx.as_fd(), IntOption::QuickAck, 1)?;
            }
            if let Some(window) = self.window {
                set_option(self.rx.as_fd(), IntOption::WindowClamp, window)?;
            }
            self.waiter.ready(self.rx.as_fd(), &mut self.watch)?;
            match C::receive(self.rx.as_fd(), buffer, self.waiter.may_sleep()) {
                Ok(0) => return Err(ChannelError::Closed),
                Ok(n) => return Ok(n),
                Err(error) => self.watch.retry_or_fail(error)?,
            }
        }
    }

    /// Where to send.
    #[inline]
    pub(crate) fn tx(&self) -> BorrowedFd<'_> {
        self.tx.as_ref().unwrap_or(&self.rx).as_fd()
    }
}

impl<C: StreamCalls> ChannelEnd for StreamEnd<C> {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        self.watch.begin();
        let tx = self.tx.as_ref().unwrap_or(&self.rx).as_fd();
        self.short_writes +=
            self.watch.move_all(message.len(), |sent| C::send(tx, &message[sent..]))?;
        Ok(())
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        self.watch.begin();
        let mut filled = 0;
        while filled < len {
            filled += self.receive_some(&mut buffer[filled..len])?;
            self.short_reads += u64::from(filled < len);
        }
        Ok(())
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        vec![
            ("short_reads", std::mem::take(&mut self.short_reads)),
            ("short_writes", std::mem::take(&mut self.short_writes)),
        ]
    }
}
