//! futex(2): a word each way in shared memory; the message is the word's new value.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use plumb_sys::memory::SharedMap;
use plumb_sys::{fd, ipc};

use crate::channel::{
    ChannelEnd, ChannelError, ChannelMechanism, ChannelSetup, IoResultExt, OpenError, PeerHandover,
    PeerWatchdog,
};

/// Two words in one page of shared memory.
#[derive(Debug)]
pub(crate) struct FutexChannel;

const PAGE: usize = 4096;
/// Byte offsets of the words, on cache lines of their own.
const OUT: usize = 0;
const IN: usize = 128;

impl ChannelMechanism for FutexChannel {
    type Local = FutexEnd;
    type Peer = FutexEnd;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), OpenError> {
        let file = fd::memory_file(c"plumb-futex", PAGE as u64).attempt("make shared memory")?;
        let map = SharedMap::new(file.as_fd(), PAGE).attempt("map shared memory")?;
        Ok((FutexEnd::new(setup, map, IN, OUT), PeerHandover::of([file])))
    }

    fn attach(
        setup: &ChannelSetup<'_>,
        mut handover: PeerHandover,
    ) -> Result<Self::Peer, OpenError> {
        let [file] = handover.take()?;
        let map = SharedMap::new(file.as_fd(), PAGE).attempt("map shared memory")?;
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
