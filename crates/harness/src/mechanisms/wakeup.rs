//! Wake-ups that carry a number and nothing else: eventfd(2) counters, futex(2) words, and real-time signals.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use plumb_sys::memory::SharedMap;
use plumb_sys::{fd, ipc, process, signal};

use super::{map_memory, shared_memory};
use crate::channel::{
    ChannelEnd, ChannelError, ChannelMechanism, ChannelSetup, IoResultExt, PeerHandover,
    PeerWatchdog, ReadinessWaiter,
};
use crate::report::LaunchFault;
use crate::spec::WakeMode;

/// Two counters.
pub(crate) struct EventfdChannel;

impl ChannelMechanism for EventfdChannel {
    type Local = EventfdEnd;
    type Peer = EventfdEnd;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), LaunchFault> {
        let there = fd::eventfd().attempt("make an eventfd")?;
        let here = fd::eventfd().attempt("make an eventfd")?;
        let copy = |fd: &OwnedFd| fd.try_clone().attempt("duplicate an eventfd");
        let handover = PeerHandover::of([copy(&there)?, copy(&here)?]);
        Ok((EventfdEnd::new(setup, here, there)?, handover))
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, LaunchFault> {
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
    fn new(setup: &ChannelSetup<'_>, rx: OwnedFd, tx: OwnedFd) -> Result<Self, LaunchFault> {
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

/// Two words in one page of shared memory.
pub(crate) struct FutexChannel;

const PAGE: usize = 4096;
/// Byte offsets of the words, on cache lines of their own.
const OUT: usize = 0;
const IN: usize = 128;

impl ChannelMechanism for FutexChannel {
    type Local = FutexEnd;
    type Peer = FutexEnd;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), LaunchFault> {
        let (map, file) = shared_memory(c"plumb-futex", PAGE)?;
        Ok((FutexEnd::new(setup, map, IN, OUT), PeerHandover::of([file])))
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, LaunchFault> {
        let [file] = handover.take()?;
        let map = map_memory(&file, PAGE)?;
        Ok(FutexEnd::new(setup, map, OUT, IN))
    }
}

/// One end: the word it watches, the word it changes.
#[derive(Debug)]
pub(crate) struct FutexEnd {
    map: Arc<SharedMap>,
    rx: usize,
    tx: usize,
    last: u32,
    watch: PeerWatchdog,
}

impl FutexEnd {
    fn new(setup: &ChannelSetup<'_>, map: SharedMap, rx: usize, tx: usize) -> Self {
        Self { map: Arc::new(map), rx, tx, last: 0, watch: setup.watchdog.clone() }
    }
}

impl ChannelEnd for FutexEnd {
    /// A word holds one message.
    const QUEUES: bool = false;

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        let value = message.try_into().map_or(1, u32::from_le_bytes);
        let word = self.map.word(self.tx);
        word.store(value, Ordering::Release);
        ipc::futex_wake_one(word)?;
        Ok(())
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        self.watch.begin();
        loop {
            let word = self.map.word(self.rx);
            let value = word.load(Ordering::Acquire);
            if value != self.last {
                self.last = value;
                buffer[..len].copy_from_slice(&value.to_le_bytes()[..len]);
                return Ok(());
            }
            if let Err(error) = ipc::futex_wait(word, value) {
                self.watch.retry_or_fail(error)?;
            }
        }
    }
}

/// A queued signal each way: sigqueue(3) with a value, sigwaitinfo(2) to receive it.
pub(crate) struct SignalChannel;

impl ChannelMechanism for SignalChannel {
    type Local = SignalEnd;
    type Peer = SignalEnd;

    /// The mask is set before the peer is started, which inherits it: no signal can come too soon.
    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), LaunchFault> {
        signal::block_message_signal().attempt("block a real-time signal")?;
        Ok((SignalEnd { other: None, watch: setup.watchdog.clone() }, PeerHandover::default()))
    }

    fn attach(
        setup: &ChannelSetup<'_>,
        _handover: PeerHandover,
    ) -> Result<Self::Peer, LaunchFault> {
        signal::block_message_signal().attempt("block a real-time signal")?;
        Ok(SignalEnd { other: Some(process::parent_id()), watch: setup.watchdog.clone() })
    }
}

/// One end: who to signal.
#[derive(Debug)]
pub(crate) struct SignalEnd {
    other: Option<u32>,
    watch: PeerWatchdog,
}

impl ChannelEnd for SignalEnd {
    fn set_peer_pid(&mut self, other: u32) {
        self.other = Some(other);
    }

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        self.watch.begin();
        let value = message.try_into().map_or(1, u64::from_le_bytes);
        let other = self.other.ok_or(ChannelError::Closed)?;
        // EAGAIN means that the receiver's queue is full (RLIMIT_SIGPENDING).
        while let Err(error) = signal::queue_message(other, value) {
            self.watch.retry_or_fail(error)?;
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        self.watch.begin();
        loop {
            match signal::wait_message() {
                Ok(value) => {
                    buffer[..len].copy_from_slice(&value.to_le_bytes()[..len]);
                    return Ok(());
                }
                Err(error) => self.watch.retry_or_fail(error)?,
            }
        }
    }
}
