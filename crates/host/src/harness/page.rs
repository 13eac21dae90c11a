//! The page that worker and peer share: how the worker steers a peer in the middle of a task.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use plumb_sys::fd;
use plumb_sys::map::SharedMap;

use super::steward::word::Steer;
use crate::local::PAGE_STOP;

const PAGE: usize = 4096;
const COUNT: usize = 64;
const DELAY_NS: usize = 128;
const LAST: usize = 192;
const PROBING: usize = 256;

/// The page, mapped.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    map: Arc<SharedMap>,
}

impl Page {
    /// A new page, and the descriptor to inherit.
    pub(crate) fn create() -> io::Result<(Self, OwnedFd)> {
        let file = fd::memory_file(c"plumb-page", PAGE as u64)?;
        Ok((Self::open(&file)?, file))
    }

    /// The page behind an inherited descriptor.
    pub(crate) fn open(file: &OwnedFd) -> io::Result<Self> {
        Ok(Self { map: Arc::new(SharedMap::new(file.as_fd(), PAGE)?) })
    }

    /// The mapping, for a watch that obeys the stop flag.
    pub(crate) fn map(&self) -> Arc<SharedMap> {
        Arc::clone(&self.map)
    }

    /// The number of the task's last operation, counted from 1, once the worker has decided; 0
    /// before.
    ///
    /// A number and not a flag: a peer that looks late must not take the end of the next operation
    /// for the end of this one.
    #[inline]
    pub(crate) fn last(&self) -> u64 {
        self.map.double_word(LAST).load(Acquire)
    }

    /// Whether the peer of a lossy channel should leave its task.
    #[inline]
    pub(crate) fn stop(&self) -> bool {
        self.map.word(PAGE_STOP).load(Acquire) != 0
    }

    /// Whether a mirror should time packets at its edges.
    #[inline]
    pub(crate) fn probing(&self) -> bool {
        self.map.word(PROBING).load(Acquire) != 0
    }

    /// Switches a mirror's own clock reads on or off.
    #[inline]
    pub(crate) fn set_probing(&self, probing: bool) {
        self.map.word(PROBING).store(u32::from(probing), Release);
    }

    /// Messages in the transfer under way.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.map.double_word(COUNT).load(Acquire)
    }

    /// How long the peer spins after each message: an injected delay, or a slow receiver.
    #[inline]
    pub(crate) fn delay_ns(&self) -> u64 {
        self.map.double_word(DELAY_NS).load(Acquire)
    }

    /// Writes one of its words.
    #[inline]
    pub(crate) fn steer(&self, steer: Steer) {
        match steer {
            Steer::Last(last) => self.map.double_word(LAST).store(last, Release),
            Steer::Count(count) => self.map.double_word(COUNT).store(count, Release),
            Steer::Stop(stop) => self.map.word(PAGE_STOP).store(u32::from(stop), Release),
            Steer::DelayNs(ns) => self.map.double_word(DELAY_NS).store(ns, Release),
        }
    }
}
