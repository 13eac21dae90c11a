//! A ring of bytes each way in shared memory, with three ways to wake the reader.
//!
//! One producer, one consumer, free-running positions (Lamport 1983). A side that sleeps says so
//! first and looks again; a side that moves its position wakes the other only when it had said so.
//! Positions and sleep words are sequentially consistent, or one could miss the other.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use plumb_sys::memory::SharedMap;
use plumb_sys::{fd, ipc};

use super::{map_memory, shared_memory};
use crate::channel::{
    ChannelEnd, ChannelError, ChannelMechanism, ChannelSetup, IoResultExt, PeerHandover,
    PeerWatchdog, ReadinessWaiter,
};
use crate::report::LaunchFault;

/// Bytes a ring holds.
const CAPACITY: usize = 1 << 20;
/// Offsets in a ring, each on a pair of cache lines of its own.
const WRITTEN: usize = 0;
const READ: usize = 128;
const READER_SLEEPS: usize = 256;
const WRITER_SLEEPS: usize = 384;
const DATA: usize = 4096;
const RING: usize = DATA + CAPACITY;

/// How a sleeping side is woken.
pub(crate) trait RingNotifier: Sized {
    /// Descriptors it needs: for reader and writer of each of two rings.
    const FDS: usize;
    /// From its descriptors, the reader's first.
    fn new(setup: &ChannelSetup<'_>, fds: Vec<OwnedFd>) -> Result<Self, LaunchFault>;
    /// Whether sides ever sleep.
    const SLEEPS: bool;
    /// Sleeps until notified; `word` is 1 as long as nobody did.
    fn sleep(
        &self,
        map: &SharedMap,
        word: usize,
        which: NotifierRole,
        watch: &mut PeerWatchdog,
    ) -> Result<(), ChannelError>;
    /// Notifies a side that sleeps.
    fn notify(&self, map: &SharedMap, word: usize, which: NotifierRole)
    -> Result<(), ChannelError>;
}

/// Whose notification.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NotifierRole {
    /// Whoever reads what this side writes.
    OtherReader,
    /// This side as a reader.
    OwnReader,
    /// This side as a writer waiting for room.
    OwnWriter,
    /// Whoever writes what this side reads.
    OtherWriter,
}

/// Nobody sleeps.
pub(crate) struct SpinNotifier;

impl RingNotifier for SpinNotifier {
    const FDS: usize = 0;
    const SLEEPS: bool = false;

    fn new(_setup: &ChannelSetup<'_>, _fds: Vec<OwnedFd>) -> Result<Self, LaunchFault> {
        Ok(Self)
    }

    #[inline]
    fn sleep(
        &self,
        _: &SharedMap,
        _: usize,
        _: NotifierRole,
        watch: &mut PeerWatchdog,
    ) -> Result<(), ChannelError> {
        watch.on_spin()
    }

    #[inline]
    fn notify(&self, _: &SharedMap, _: usize, _: NotifierRole) -> Result<(), ChannelError> {
        Ok(())
    }
}

/// The sleep word itself is a futex.
pub(crate) struct FutexNotifier;

impl RingNotifier for FutexNotifier {
    const FDS: usize = 0;
    const SLEEPS: bool = true;

    fn new(_setup: &ChannelSetup<'_>, _fds: Vec<OwnedFd>) -> Result<Self, LaunchFault> {
        Ok(Self)
    }

    #[inline]
    fn sleep(
        &self,
        map: &SharedMap,
        word: usize,
        _: NotifierRole,
        watch: &mut PeerWatchdog,
    ) -> Result<(), ChannelError> {
        ipc::futex_wait(map.word(word), 1).or_else(|error| watch.retry_or_fail(error))
    }

    #[inline]
    fn notify(&self, map: &SharedMap, word: usize, _: NotifierRole) -> Result<(), ChannelError> {
        Ok(ipc::futex_wake_one(map.word(word))?)
    }
}

/// An eventfd for each.
#[derive(Debug)]
pub(crate) struct EventfdNotifier {
    other_reader: OwnedFd,
    own_reader: OwnedFd,
    own_writer: OwnedFd,
    other_writer: OwnedFd,
    waiter: ReadinessWaiter,
}

impl EventfdNotifier {
    fn fd(&self, which: NotifierRole) -> &OwnedFd {
        match which {
            NotifierRole::OtherReader => &self.other_reader,
            NotifierRole::OwnReader => &self.own_reader,
            NotifierRole::OwnWriter => &self.own_writer,
            NotifierRole::OtherWriter => &self.other_writer,
        }
    }
}

impl RingNotifier for EventfdNotifier {
    const FDS: usize = 4;
    const SLEEPS: bool = true;

    fn new(setup: &ChannelSetup<'_>, fds: Vec<OwnedFd>) -> Result<Self, LaunchFault> {
        let [other_reader, own_reader, own_writer, other_writer] = PeerHandover::of(fds).take()?;
        if setup.wake() == crate::spec::WakeMode::Spin {
            fd::set_nonblocking(own_reader.as_fd(), true)
                .attempt("make an eventfd non-blocking")?;
        }
        let waiter =
            ReadinessWaiter::new(setup.wake(), own_reader.as_fd()).attempt("watch an eventfd")?;
        Ok(Self { other_reader, own_reader, own_writer, other_writer, waiter })
    }

    #[inline]
    fn sleep(
        &self,
        _: &SharedMap,
        _: usize,
        which: NotifierRole,
        watch: &mut PeerWatchdog,
    ) -> Result<(), ChannelError> {
        let fd = self.fd(which).as_fd();
        if matches!(which, NotifierRole::OwnReader) {
            self.waiter.ready(fd, watch)?;
        }
        fd::read(fd, &mut [0; 8]).map(drop).or_else(|error| watch.retry_or_fail(error))
    }

    #[inline]
    fn notify(&self, _: &SharedMap, _: usize, which: NotifierRole) -> Result<(), ChannelError> {
        fd::write(self.fd(which).as_fd(), &1_u64.to_le_bytes())?;
        Ok(())
    }
}

/// A ring each way.
pub(crate) struct ShmChannel<B>(std::marker::PhantomData<B>);

impl<B: RingNotifier> ChannelMechanism for ShmChannel<B> {
    type Local = ShmRingEnd<B>;
    type Peer = ShmRingEnd<B>;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), LaunchFault> {
        let (map, file) = shared_memory(c"plumb-ring", 2 * RING)?;
        let eventfds = (0..B::FDS).map(|_| fd::eventfd()).collect::<Result<Vec<_>, _>>();
        let eventfds = eventfds.attempt("make an eventfd")?;
        let copies = eventfds.iter().map(OwnedFd::try_clone).collect::<Result<Vec<_>, _>>();
        let mut copies = copies.attempt("duplicate an eventfd")?;
        // "Other" on this side is "own" on that side.
        if let [a, b, c, d] = &mut copies[..] {
            std::mem::swap(a, b);
            std::mem::swap(c, d);
        }
        let local = ShmRingEnd::new(setup, map, B::new(setup, eventfds)?, RING, 0);
        let mut handover = PeerHandover::of([file]);
        handover.fds.extend(copies);
        Ok((local, handover))
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, LaunchFault> {
        let mut fds = handover.fds;
        let eventfds = fds.split_off(1.min(fds.len()));
        let [file] = PeerHandover::of(fds).take()?;
        let map = map_memory(&file, 2 * RING)?;
        Ok(ShmRingEnd::new(setup, map, B::new(setup, eventfds)?, 0, RING))
    }
}

/// One end: it reads one ring and writes the other.
#[derive(Debug)]
pub(crate) struct ShmRingEnd<B> {
    map: Arc<SharedMap>,
    notifier: B,
    rx: usize,
    tx: usize,
    watch: PeerWatchdog,
    sleeps: u64,
}

impl<B: RingNotifier> ShmRingEnd<B> {
    fn new(setup: &ChannelSetup<'_>, map: SharedMap, notifier: B, rx: usize, tx: usize) -> Self {
        Self { map: Arc::new(map), notifier, rx, tx, watch: setup.watchdog.clone(), sleeps: 0 }
    }

    /// Bytes of the ring at `base` that are written and not yet read, and the reader's position.
    #[inline]
    fn filled(&self, base: usize) -> (usize, u64) {
        let read = self.map.double_word(base + READ).load(SeqCst);
        let written = self.map.double_word(base + WRITTEN).load(SeqCst);
        (usize::try_from(written.wrapping_sub(read)).unwrap_or(0), read)
    }

    /// Sleeps, or spins once, until `ready`.
    #[inline]
    fn wait(
        &mut self,
        word: usize,
        which: NotifierRole,
        ready: impl Fn(&Self) -> bool,
    ) -> Result<(), ChannelError> {
        if B::SLEEPS {
            self.map.word(word).store(1, SeqCst);
            if ready(self) {
                self.map.word(word).store(0, Relaxed);
                return Ok(());
            }
            self.sleeps += 1;
        }
        self.notifier.sleep(&self.map, word, which, &mut self.watch)
    }

    #[inline]
    fn wake(&self, word: usize, which: NotifierRole) -> Result<(), ChannelError> {
        if B::SLEEPS && self.map.word(word).swap(0, SeqCst) == 1 {
            self.notifier.notify(&self.map, word, which)?;
        }
        Ok(())
    }
}

impl<B: RingNotifier> ChannelEnd for ShmRingEnd<B> {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        self.watch.begin();
        let base = self.tx;
        let mut rest = message;
        while !rest.is_empty() {
            let (filled, _) = self.filled(base);
            let room = CAPACITY - filled;
            if room == 0 {
                self.wait(base + WRITER_SLEEPS, NotifierRole::OwnWriter, |end| {
                    end.filled(base).0 < CAPACITY
                })?;
                continue;
            }
            let written = self.map.double_word(base + WRITTEN).load(Relaxed);
            let at = usize::try_from(written % CAPACITY as u64).unwrap_or(0);
            let n = rest.len().min(room).min(CAPACITY - at);
            self.map.copy_in(base + DATA + at, &rest[..n]);
            self.map.double_word(base + WRITTEN).store(written + n as u64, SeqCst);
            self.wake(base + READER_SLEEPS, NotifierRole::OtherReader)?;
            rest = &rest[n..];
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        self.watch.begin();
        let base = self.rx;
        let mut got = 0;
        while got < len {
            let (filled, read) = self.filled(base);
            if filled == 0 {
                self.wait(base + READER_SLEEPS, NotifierRole::OwnReader, |end| {
                    end.filled(base).0 > 0
                })?;
                continue;
            }
            let at = usize::try_from(read % CAPACITY as u64).unwrap_or(0);
            let n = (len - got).min(filled).min(CAPACITY - at);
            self.map.copy_out(base + DATA + at, &mut buffer[got..got + n]);
            self.map.double_word(base + READ).store(read + n as u64, SeqCst);
            self.wake(base + WRITER_SLEEPS, NotifierRole::OtherWriter)?;
            got += n;
        }
        Ok(())
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        vec![("sleeps", std::mem::take(&mut self.sleeps))]
    }
}
