//! What every mechanism is to the harness: one end of an open channel, in each of two processes.
//!
//! Left out: timing, which is the harness's; and setting channels up, which each mechanism's own
//! file does.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use plumb_sys::map::SharedMap;
use plumb_sys::{fd, timer};

use super::ground::Ground;
use super::mechanism::Wake;
use crate::harness::spec::ChannelSpec;

/// Room that every receive buffer has beyond the message: some queues insist on space for their
/// largest message whatever is in it.
pub(crate) const SLACK: usize = 1 << 16;

/// Why an operation did not happen.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The kernel refused.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The other process is gone.
    #[error("the other process closed the channel or died")]
    Closed,
    /// Nothing came for longer than this end waits: a lost datagram, or a hung peer.
    #[error("nothing arrived before the deadline")]
    TimedOut,
    /// The worker asked the peer to stop.
    #[error("stopped")]
    Stopped,
}

/// One end of an open channel.
pub(crate) trait End {
    /// Whether messages may vanish without an error.
    const LOSSY: bool = false;
    /// Whether `send` sends the bytes it is given; otherwise those that `prepare` saw.
    const STAMPED: bool = true;
    /// Whether `send` may lend the message's pages: they must not change until it is answered.
    const LENDS: bool = false;
    /// Whether messages sent before the first is received stay apart.
    const QUEUES: bool = true;

    /// Called before each task with the buffers that it will use, outside any timed region.
    fn prepare(&mut self, _tx: &[u8], _rx: &mut [u8]) -> Result<(), Fault> {
        Ok(())
    }

    /// Called once, when the other process is known.
    fn meet(&mut self, _other: u32) {}

    /// Sends one whole message.
    fn send(&mut self, message: &[u8]) -> Result<(), Fault>;

    /// Receives one whole message of `len` bytes into the front of `buffer`, which is
    /// [`SLACK`] bytes longer.
    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), Fault>;

    /// Sends back the next message.
    #[inline]
    fn echo(&mut self, buffer: &mut [u8], len: usize) -> Result<(), Fault> {
        self.receive(buffer, len)?;
        self.send(&buffer[..len])
    }

    /// Takes the next message and forgets it.
    #[inline]
    fn discard(&mut self, buffer: &mut [u8], len: usize) -> Result<(), Fault> {
        self.receive(buffer, len)
    }

    /// Sends a mark that cannot be taken for a message; lossy channels only.
    fn send_mark(&mut self, _mark: Mark) -> Result<(), Fault> {
        Err(io::Error::from(io::ErrorKind::Unsupported).into())
    }

    /// Receives a message or a mark; lossy channels only.
    fn receive_any(&mut self, _buffer: &mut [u8], _len: usize) -> Result<Received, Fault> {
        Err(io::Error::from(io::ErrorKind::Unsupported).into())
    }

    /// Waits some milliseconds for anything to arrive; lossy channels only.
    fn wait_readable(&mut self, _timeout_ms: i32) -> Result<bool, Fault> {
        Err(io::Error::from(io::ErrorKind::Unsupported).into())
    }

    /// Throws away whatever waits; lossy channels only.
    fn drain(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Things counted since the last call: short reads and writes, parts, drops, copies.
    fn tally(&mut self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// What came over a lossy channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A whole message, in the buffer.
    Message,
    /// A mark.
    Mark(Mark),
}

/// A mark on a lossy channel: a question or its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// A number that tells questions apart; in an answer also a count.
    pub(crate) value: u64,
    /// In an answer: the counter when the last of the messages counted arrived.
    pub(crate) at: u64,
}

/// Why a channel cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// The host lacks it or forbids it: a result, not a failure.
    #[error("{0}")]
    Unavailable(String),
    /// The kernel refused.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Names what was tried when the kernel refuses; absence and prohibition become results.
pub(crate) trait Attempt<T> {
    /// Says what was tried.
    fn attempt(self, what: &'static str) -> Result<T, OpenError>;
}

impl<T> Attempt<T> for io::Result<T> {
    fn attempt(self, what: &'static str) -> Result<T, OpenError> {
        self.map_err(|source| match source.raw_os_error() {
            // ENOSYS, EOPNOTSUPP, EPROTONOSUPPORT, EAFNOSUPPORT, EADDRNOTAVAIL, ENODEV, EACCES, EPERM
            Some(38 | 95 | 93 | 97 | 99 | 19 | 13 | 1) => {
                OpenError::Unavailable(format!("this host refuses to {what}: {source}"))
            }
            _ => OpenError::Io { what, source },
        })
    }
}

/// One way of communicating: how its two ends come to be.
pub(crate) trait Channel {
    /// The worker's end.
    type Local: End;
    /// The peer's end.
    type Peer: End;

    /// Makes both ends in the worker, and hands over what the peer needs.
    fn open(setup: &Setup<'_>) -> Result<(Self::Local, Handover), OpenError>;

    /// Makes the peer's end from what was handed over.
    fn attach(setup: &Setup<'_>, handover: Handover) -> Result<Self::Peer, OpenError>;
}

/// What the worker hands to the peer: descriptors by inheritance, numbers by message.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    /// Descriptors, in the order that the mechanism's `attach` takes them.
    pub(crate) fds: Vec<OwnedFd>,
    /// Numbers: queue ids, sizes.
    pub(crate) numbers: Vec<i64>,
    /// What was set up and what the kernel made of it, for the record.
    pub(crate) facts: Vec<(&'static str, String)>,
}

impl Handover {
    /// A handover of descriptors alone.
    pub(crate) fn of(fds: impl Into<Vec<OwnedFd>>) -> Self {
        Self { fds: fds.into(), ..Self::default() }
    }

    /// Takes exactly `N` descriptors.
    pub(crate) fn take<const N: usize>(&mut self) -> Result<[OwnedFd; N], OpenError> {
        std::mem::take(&mut self.fds).try_into().map_err(|_| OpenError::Io {
            what: "take over the channel's descriptors",
            source: io::Error::from(io::ErrorKind::InvalidData),
        })
    }
}

/// What both sides know when a channel is made.
pub(crate) struct Setup<'a> {
    /// The channel wanted.
    pub(crate) channel: &'a ChannelSpec,
    /// How this side notices trouble.
    pub(crate) watch: &'a Watch,
    /// Where sockets are opened.
    pub(crate) ground: &'a Ground,
    /// For names that must be this launch's alone.
    pub(crate) seed: u64,
}

impl Setup<'_> {
    /// How receivers wait.
    pub(crate) fn wake(&self) -> Wake {
        self.channel.wake
    }
}

/// How an end notices that the other side is gone, that it took too long, or that it should stop.
///
/// Blocking calls return EINTR at every tick of the process's timer, and spinning loops see the
/// tick count move; only then is any of this looked at, so it costs the measured path nothing.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    control: Arc<OwnedFd>,
    /// The page shared with the other side, when its stop flag is to be obeyed at a tick.
    stop: Option<Arc<SharedMap>>,
    patience_ticks: u32,
    since: u32,
    seen: u32,
}

/// Byte offset of the stop flag in the page shared by worker and peer.
pub(crate) const PAGE_STOP: usize = 0;

impl Watch {
    /// A watch over a control socket that waits `patience_ticks` for any one operation.
    pub(crate) fn new(
        control: Arc<OwnedFd>,
        patience_ticks: u32,
        stop: Option<Arc<SharedMap>>,
    ) -> Self {
        Self { control, stop, patience_ticks, since: timer::ticks(), seen: timer::ticks() }
    }

    /// Starts the patience for one operation.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.since = timer::ticks();
    }

    /// To be called whenever a blocking call returned EINTR.
    #[cold]
    pub(crate) fn interrupted(&mut self) -> Result<(), Fault> {
        let now = timer::ticks();
        self.seen = now;
        match fd::is_hung_up(self.control.as_fd()) {
            Ok(true) => return Err(Fault::Closed),
            Ok(false) => {}
            // The next tick came already: it will be asked again.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(page) = &self.stop
            && page.word(PAGE_STOP).load(std::sync::atomic::Ordering::Acquire) != 0
        {
            return Err(Fault::Stopped);
        }
        if now.wrapping_sub(self.since) > self.patience_ticks {
            return Err(Fault::TimedOut);
        }
        Ok(())
    }

    /// To be called in every turn of a spinning loop.
    #[inline]
    pub(crate) fn spinning(&mut self) -> Result<(), Fault> {
        std::hint::spin_loop();
        if timer::ticks() == self.seen { Ok(()) } else { self.interrupted() }
    }

    /// What to do about an error of a call that moves data: carry on, or give up.
    #[inline]
    pub(crate) fn excuse(&mut self, error: io::Error) -> Result<(), Fault> {
        match error.kind() {
            io::ErrorKind::WouldBlock => self.spinning(),
            io::ErrorKind::Interrupted => self.interrupted(),
            io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused => Err(Fault::Closed),
            _ => Err(Fault::Io(error)),
        }
    }
}

/// How a descriptor is waited for.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// In the receiving call itself.
    Block,
    /// In poll(2).
    Poll,
    /// In epoll_wait(2).
    Epoll(OwnedFd),
    /// Not at all.
    Spin,
}

impl Waiter {
    /// The waiter of a wake mode.
    pub(crate) fn new(wake: Wake, rx: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(match wake {
            Wake::Block => Self::Block,
            Wake::Poll => Self::Poll,
            Wake::Epoll => Self::Epoll(fd::epoll_readable(rx)?),
            Wake::Spin => Self::Spin,
        })
    }

    /// Whether the receiving call itself may sleep.
    #[inline]
    pub(crate) fn may_sleep(&self) -> bool {
        !matches!(self, Self::Spin)
    }

    /// Waits until `rx` is worth reading, where that is a call of its own.
    #[inline]
    pub(crate) fn ready(&self, rx: BorrowedFd<'_>, watch: &mut Watch) -> Result<(), Fault> {
        loop {
            let outcome = match self {
                Self::Block | Self::Spin => return Ok(()),
                Self::Poll => fd::poll_readable(rx, -1),
                Self::Epoll(epoll) => fd::epoll_wait(epoll.as_fd(), -1),
            };
            match outcome {
                Ok(_) => return Ok(()),
                Err(error) => watch.excuse(error)?,
            }
        }
    }
}
