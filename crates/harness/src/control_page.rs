//! The page that worker and peer share: how the worker steers a peer in the middle of a task.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use plumb_sys::fd;
use plumb_sys::memory::SharedMap;
use serde::{Deserialize, Serialize};

use crate::channel::STOP_FLAG_OFFSET;

const PAGE_SIZE: usize = 4096;
const COUNT_OFFSET: usize = 64;
const DELAY_OFFSET: usize = 128;
const LAST_OFFSET: usize = 192;
const PROBING_OFFSET: usize = 256;

/// The page, mapped.
#[derive(Clone, Debug)]
pub(crate) struct ControlPage {
    map: Arc<SharedMap>,
}

impl ControlPage {
    /// A new page, and the descriptor to inherit.
    pub(crate) fn create() -> io::Result<(Self, OwnedFd)> {
        let file = fd::memory_file(c"plumb-page", PAGE_SIZE as u64)?;
        Ok((Self::open(&file)?, file))
    }

    /// The page behind an inherited descriptor.
    pub(crate) fn open(file: &OwnedFd) -> io::Result<Self> {
        Ok(Self { map: Arc::new(SharedMap::new(file.as_fd(), PAGE_SIZE)?) })
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
        self.map.double_word(LAST_OFFSET).load(Acquire)
    }

    /// Whether the peer of a lossy channel should leave its task.
    #[inline]
    pub(crate) fn stop(&self) -> bool {
        self.map.word(STOP_FLAG_OFFSET).load(Acquire) != 0
    }

    /// Whether a mirror should time packets at its edges.
    #[inline]
    pub(crate) fn probing(&self) -> bool {
        self.map.word(PROBING_OFFSET).load(Acquire) != 0
    }

    /// Switches a mirror's own clock reads on or off.
    #[inline]
    pub(crate) fn set_probing(&self, probing: bool) {
        self.map.word(PROBING_OFFSET).store(u32::from(probing), Release);
    }

    /// Messages in the transfer under way.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.map.double_word(COUNT_OFFSET).load(Acquire)
    }

    /// How long the peer spins after each message: an injected delay, or a slow receiver.
    #[inline]
    pub(crate) fn delay_ns(&self) -> u64 {
        self.map.double_word(DELAY_OFFSET).load(Acquire)
    }

    /// Writes one of its words.
    #[inline]
    pub(crate) fn write(&self, steer: ControlPageWrite) {
        match steer {
            ControlPageWrite::Last(last) => self.map.double_word(LAST_OFFSET).store(last, Release),
            ControlPageWrite::Count(count) => {
                self.map.double_word(COUNT_OFFSET).store(count, Release);
            }
            ControlPageWrite::Stop(stop) => {
                self.map.word(STOP_FLAG_OFFSET).store(u32::from(stop), Release);
            }
            ControlPageWrite::DelayNs(ns) => self.map.double_word(DELAY_OFFSET).store(ns, Release),
        }
    }
}

/// A word of the page that the peer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ControlPageWrite {
    /// The number of the last operation.
    Last(u64),
    /// Messages of a transfer.
    Count(u64),
    /// Whether to leave the task.
    Stop(bool),
    /// A spin after each message.
    DelayNs(u64),
}
