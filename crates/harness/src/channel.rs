//! What every mechanism is to the harness: one end of an open channel, in each of two processes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use plumb_netdev::lab::{LabError, NetNamespace};
use plumb_sys::memory::SharedMap;
use plumb_sys::{fd, timer};

use crate::report::{BlockError, LaunchFault};
use crate::spec::{ChannelSpec, WakeMode};

/// Room that every receive buffer has beyond the message: some queues insist on space for their
/// largest message whatever is in it.
pub(crate) const RECEIVE_SLACK: usize = 1 << 16;

/// Why an operation did not happen.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
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

impl From<ChannelError> for io::Error {
    fn from(fault: ChannelError) -> Self {
        match fault {
            ChannelError::Io(error) => error,
            fault => Self::other(fault),
        }
    }
}

impl ChannelError {
    /// The fault that went through a library's reader or writer as an error of its own.
    pub(crate) fn of_io(error: io::Error) -> Self {
        error.downcast().unwrap_or_else(Self::Io)
    }

    /// What a protocol's library says.
    pub(crate) fn protocol(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Io(io::Error::other(error))
    }
}

impl From<ChannelError> for BlockError {
    fn from(fault: ChannelError) -> Self {
        Self::Failed(fault.to_string())
    }
}

/// One end of an open channel.
pub(crate) trait ChannelEnd {
    /// Whether messages may vanish without an error.
    const LOSSY: bool = false;
    /// Whether `send` sends the bytes it is given; otherwise those that `prepare` saw.
    const SENDS_GIVEN_BYTES: bool = true;
    /// Whether `send` may lend the message's pages: they must not change until it is answered.
    const LENDS_PAGES: bool = false;
    /// Whether messages sent before the first is received stay apart.
    const QUEUES: bool = true;

    /// Called before each task with the buffers that it will use, outside any timed region.
    fn prepare(&mut self, _tx: &[u8], _rx: &mut [u8]) -> Result<(), ChannelError> {
        Ok(())
    }

    /// Called while this end waits for the other process to say something on `control`, until that is readable: for what
    /// a protocol in this process has to send and acknowledge meanwhile.
    fn keep_going(&mut self, _control: BorrowedFd<'_>) -> Result<(), ChannelError> {
        Ok(())
    }

    /// Called once, when the other process is known.
    fn set_peer_pid(&mut self, _other: u32) {}

    /// Sends one whole message.
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError>;

    /// Receives one whole message of `len` bytes into the front of `buffer`, which is
    /// [`RECEIVE_SLACK`] bytes longer.
    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError>;

    /// Sends back the next message.
    #[inline]
    fn echo(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        self.receive(buffer, len)?;
        self.send(&buffer[..len])
    }

    /// Takes the next message and forgets it.
    #[inline]
    fn discard(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        self.receive(buffer, len)
    }

    /// Sends a mark that cannot be taken for a message; lossy channels only.
    fn send_marker(&mut self, _mark: LossMarker) -> Result<(), ChannelError> {
        Err(io::Error::from(io::ErrorKind::Unsupported).into())
    }

    /// Receives a message or a mark; lossy channels only.
    fn receive_any(
        &mut self,
        _buffer: &mut [u8],
        _len: usize,
    ) -> Result<MessageOrMarker, ChannelError> {
        Err(io::Error::from(io::ErrorKind::Unsupported).into())
    }

    /// Waits some milliseconds for anything to arrive; lossy channels only.
    fn wait_readable(&mut self, _timeout_ms: i32) -> Result<bool, ChannelError> {
        Err(io::Error::from(io::ErrorKind::Unsupported).into())
    }

    /// Throws away whatever waits; lossy channels only.
    fn drain(&mut self) -> Result<(), ChannelError> {
        Ok(())
    }

    /// Things counted since the last call: short reads and writes, parts, drops, copies.
    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// What came over a lossy channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageOrMarker {
    /// A whole message, in the buffer.
    Message,
    /// A mark.
    Marker(LossMarker),
}

/// A mark on a lossy channel: a question or its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LossMarker {
    /// A number that tells questions apart; in an answer also a count.
    pub(crate) value: u64,
    /// In an answer: the counter when the last of the messages counted arrived.
    pub(crate) at: u64,
}

/// Names what was tried when the kernel refuses; absence and prohibition become results.
pub(crate) trait IoResultExt<T> {
    /// Says what was tried.
    fn attempt(self, what: &'static str) -> Result<T, LaunchFault>;
}

impl<T> IoResultExt<T> for io::Result<T> {
    fn attempt(self, what: &'static str) -> Result<T, LaunchFault> {
        self.map_err(|source| match source.raw_os_error() {
            // ENOSYS, EOPNOTSUPP, EPROTONOSUPPORT, EAFNOSUPPORT, EADDRNOTAVAIL, ENODEV, EACCES, EPERM
            Some(38 | 95 | 93 | 97 | 99 | 19 | 13 | 1) => {
                LaunchFault::Unavailable(format!("this host refuses to {what}: {source}"))
            }
            _ => LaunchFault::failed(what, source),
        })
    }
}

/// One way of communicating: how its two ends come to be.
pub(crate) trait ChannelMechanism {
    /// The worker's end.
    type Local: ChannelEnd;
    /// The peer's end.
    type Peer: ChannelEnd;

    /// Makes both ends in the worker, and hands over what the peer needs.
    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), LaunchFault>;

    /// Makes the peer's end from what was handed over.
    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, LaunchFault>;
}

/// What the worker hands to the peer: descriptors by inheritance, numbers by message.
#[derive(Debug, Default)]
pub(crate) struct PeerHandover {
    /// Descriptors, in the order that the mechanism's `attach` takes them.
    pub(crate) fds: Vec<OwnedFd>,
    /// Numbers: queue ids, sizes.
    pub(crate) numbers: Vec<i64>,
    /// What was set up and what the kernel made of it, for the record.
    pub(crate) facts: Vec<(&'static str, String)>,
}

impl PeerHandover {
    /// A handover of descriptors alone.
    pub(crate) fn of(fds: impl Into<Vec<OwnedFd>>) -> Self {
        Self { fds: fds.into(), ..Self::default() }
    }

    /// Its descriptors, which must be exactly `N`.
    pub(crate) fn take<const N: usize>(self) -> Result<[OwnedFd; N], LaunchFault> {
        let mismatch = io::Error::from(io::ErrorKind::InvalidData);
        let wrong = LaunchFault::failed("take over the channel's descriptors", mismatch);
        self.fds.try_into().map_err(|_| wrong)
    }
}

/// What both sides know when a channel is made.
pub(crate) struct ChannelSetup<'a> {
    /// The channel wanted.
    pub(crate) channel: &'a ChannelSpec,
    /// How this side detects that the other failed.
    pub(crate) watchdog: &'a PeerWatchdog,
    /// Where sockets are opened.
    pub(crate) location: &'a EndpointLocation,
    /// For names that must be this launch's alone.
    pub(crate) seed: u64,
}

impl ChannelSetup<'_> {
    /// How receivers wait.
    pub(crate) fn wake(&self) -> WakeMode {
        self.channel.wake
    }
}

/// How often blocking calls are interrupted, for [`PeerWatchdog`] to look around.
pub(crate) const TICK_US: u32 = 20_000;
/// Ticks after which a datagram counts as lost.
pub(crate) const LOSS_TIMEOUT_TICKS: u32 = 3;

/// How an end notices that the other side is gone, that it took too long, or that it should stop.
///
/// Blocking calls return EINTR at every tick of the process's timer, and spinning loops see the
/// tick count move; only then is any of this looked at, so it costs the measured path nothing. While
/// a block is timed there is no tick, unless messages were lost on this channel before: a peer that
/// dies ticks by itself, and one that hangs is the orchestrator's business.
#[derive(Clone, Debug)]
pub(crate) struct PeerWatchdog {
    control: Arc<OwnedFd>,
    /// The page shared with the other side, when its stop flag is to be obeyed at a tick.
    stop: Option<Arc<SharedMap>>,
    timeout_ticks: u32,
    began_tick: u32,
    last_tick: u32,
}

/// Byte offset of the stop flag in the page shared by worker and peer.
pub(crate) const STOP_FLAG_OFFSET: usize = 0;

impl PeerWatchdog {
    /// A watch over a control socket that waits `patience_ticks` for any one operation.
    pub(crate) fn new(
        control: Arc<OwnedFd>,
        patience_ticks: u32,
        stop: Option<Arc<SharedMap>>,
    ) -> Self {
        Self {
            control,
            stop,
            timeout_ticks: patience_ticks,
            began_tick: timer::ticks(),
            last_tick: timer::ticks(),
        }
    }

    /// Starts the patience for one operation.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.began_tick = timer::ticks();
    }

    /// To be called whenever a blocking call returned EINTR.
    #[cold]
    pub(crate) fn on_interrupt(&mut self) -> Result<(), ChannelError> {
        let now = timer::ticks();
        self.last_tick = now;
        match fd::is_hung_up(self.control.as_fd()) {
            Ok(true) => return Err(ChannelError::Closed),
            Ok(false) => {}
            // The next tick came already: it will be asked again.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(page) = &self.stop
            && page.word(STOP_FLAG_OFFSET).load(std::sync::atomic::Ordering::Acquire) != 0
        {
            return Err(ChannelError::Stopped);
        }
        if now.wrapping_sub(self.began_tick) > self.timeout_ticks {
            return Err(ChannelError::TimedOut);
        }
        Ok(())
    }

    /// To be called in every turn of a spinning loop.
    #[inline]
    pub(crate) fn on_spin(&mut self) -> Result<(), ChannelError> {
        std::hint::spin_loop();
        if timer::ticks() == self.last_tick { Ok(()) } else { self.on_interrupt() }
    }

    /// Makes a call again and again until it did not have to wait.
    #[inline]
    pub(crate) fn retry<T>(
        &mut self,
        mut call: impl FnMut() -> io::Result<T>,
    ) -> Result<T, ChannelError> {
        loop {
            match call() {
                Ok(value) => return Ok(value),
                Err(error) => self.retry_or_fail(error)?,
            }
        }
    }

    /// Moves so many bytes by calls that are told how many are moved already and move some more; how many calls did not
    /// move the rest.
    #[inline]
    pub(crate) fn move_all(
        &mut self,
        len: usize,
        mut call: impl FnMut(usize) -> io::Result<usize>,
    ) -> Result<u64, ChannelError> {
        let (mut moved, mut short) = (0, 0);
        while moved < len {
            match self.retry(|| call(moved))? {
                0 => return Err(ChannelError::Closed),
                n => moved += n,
            }
            short += u64::from(moved < len);
        }
        Ok(short)
    }

    /// What to do about an error of a call that moves data: carry on, or give up.
    #[inline]
    pub(crate) fn retry_or_fail(&mut self, error: io::Error) -> Result<(), ChannelError> {
        match error.kind() {
            io::ErrorKind::WouldBlock => self.on_spin(),
            io::ErrorKind::Interrupted => self.on_interrupt(),
            io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused => Err(ChannelError::Closed),
            _ => Err(ChannelError::Io(error)),
        }
    }
}

/// How a descriptor is waited for.
#[derive(Debug)]
pub(crate) enum ReadinessWaiter {
    /// In the receiving call itself.
    Block,
    /// In poll(2).
    Poll,
    /// In epoll_wait(2).
    Epoll(OwnedFd),
    /// Not at all.
    Spin,
}

impl ReadinessWaiter {
    /// The waiter of a wake mode.
    pub(crate) fn new(wake: WakeMode, rx: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(match wake {
            WakeMode::Block => Self::Block,
            WakeMode::Poll => Self::Poll,
            WakeMode::Epoll => Self::Epoll(fd::epoll_readable(rx)?),
            WakeMode::Spin => Self::Spin,
        })
    }

    /// Whether the receiving call itself may sleep.
    #[inline]
    pub(crate) fn may_sleep(&self) -> bool {
        !matches!(self, Self::Spin)
    }

    /// Waits until `rx` is worth reading, where that is a call of its own.
    #[inline]
    pub(crate) fn ready(
        &self,
        rx: BorrowedFd<'_>,
        watch: &mut PeerWatchdog,
    ) -> Result<(), ChannelError> {
        match self {
            Self::Block | Self::Spin => Ok(()),
            Self::Poll => watch.retry(|| fd::poll_readable(rx, -1)).map(drop),
            Self::Epoll(epoll) => watch.retry(|| fd::epoll_wait(epoll.as_fd(), -1)).map(drop),
        }
    }
}

/// Where both ends of a channel stand.
#[derive(Debug, Default)]
pub(crate) enum EndpointLocation {
    /// On the loopback of the namespace that this process is in.
    #[default]
    Loopback,
    /// In two namespaces.
    Namespaces(NamespacePair),
    /// The peer's on another host.
    RemoteHost(Box<dyn RemoteOpener>),
}

/// Opens channels to a peer on another host.
pub(crate) trait RemoteOpener: std::fmt::Debug {
    /// The host's name, for messages.
    fn name(&self) -> &str;
    /// Where its sockets of a version of IP are reached.
    fn address(&self, ipv6: bool) -> Result<SocketAddr, LaunchFault>;
    /// Opens both ends of a channel, and returns the near one.
    fn open(&self, setup: &ChannelSetup<'_>, ipv6: bool) -> Result<OwnedFd, LaunchFault>;
}

/// Two namespaces between which packets travel.
#[derive(Debug)]
pub(crate) struct NamespacePair {
    /// Where the worker's end is; the process' own when absent.
    pub(crate) near: Option<NetNamespace>,
    /// Where the peer's end is.
    pub(crate) far: NetNamespace,
    /// The far side's address of version 4.
    pub(crate) far_v4: Option<Ipv4Addr>,
    /// The same of version 6.
    pub(crate) far_v6: Option<Ipv6Addr>,
}

impl EndpointLocation {
    /// Opens something at the worker's end.
    pub(crate) fn in_near<R>(&self, open: impl FnOnce() -> R) -> Result<R, LaunchFault> {
        match self {
            Self::Namespaces(NamespacePair { near: Some(near), .. }) => {
                near.enter(open).map_err(unavailable)
            }
            _ => Ok(open()),
        }
    }

    /// Opens something at the peer's end.
    pub(crate) fn in_far<R>(&self, open: impl FnOnce() -> R) -> Result<R, LaunchFault> {
        match self {
            Self::Namespaces(apart) => apart.far.enter(open).map_err(unavailable),
            Self::Loopback => Ok(open()),
            Self::RemoteHost(host) => Err(LaunchFault::Unavailable(format!(
                "this is measured with both ends on one machine: choose another link than the host {}",
                host.name()
            ))),
        }
    }

    /// Where the peer's end is reached, at a port that the kernel chooses.
    pub(crate) fn far_address(&self, ipv6: bool) -> Result<SocketAddr, LaunchFault> {
        if let Self::RemoteHost(host) = self {
            return host.address(ipv6);
        }
        let address: Option<IpAddr> = match (self, ipv6) {
            (Self::Loopback, false) => Some(Ipv4Addr::LOCALHOST.into()),
            (Self::Loopback, true) => Some(Ipv6Addr::LOCALHOST.into()),
            (Self::Namespaces(apart), false) => apart.far_v4.map(IpAddr::from),
            (Self::Namespaces(apart), true) => apart.far_v6.map(IpAddr::from),
            (Self::RemoteHost(_), _) => None,
        };
        let version = if ipv6 { 6 } else { 4 };
        address.map(|address| SocketAddr::new(address, 0)).ok_or_else(|| {
            LaunchFault::Unavailable(format!(
                "the far side has no IPv{version} address: IPv{version} is switched off there"
            ))
        })
    }
}

/// Namespaces that cannot be made or entered are a result with its reason.
#[expect(clippy::needless_pass_by_value, reason = "what map_err hands over")]
pub(crate) fn unavailable(error: LabError) -> LaunchFault {
    LaunchFault::Unavailable(error.to_string())
}
