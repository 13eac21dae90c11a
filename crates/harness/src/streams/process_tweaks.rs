//! What a process asks of the kernel to be disturbed less, and where its messages lie.
//!
//! Left out: the CPU that it is bound to, which is the launch's.

use std::fs;
use std::io;
use std::thread::Builder;

use plumb_sys::memory::HugePages;
use plumb_sys::memory::PageAlignedBuffer;
use plumb_sys::{process, sched};

use crate::spec::ProcessTweaks;

/// Priority of the threads that send and receive: the least of real time.
const STREAM_THREAD_PRIORITY: i32 = 1;
/// Priority of the thread that times them, which must have its turn.
const TIMING_THREAD_PRIORITY: i32 = 2;

impl ProcessTweaks {
    /// Takes what concerns the process and this thread, which is the one that times or is told to stop.
    ///
    /// # Errors
    /// What this host does not allow, and what would.
    pub(super) fn apply(self) -> Result<(), String> {
        if self.locked {
            process::lock_memory().map_err(|error| {
                format!(
                    "this user may not keep a process in memory ({error}): run as root, or raise \
                     'ulimit -l'"
                )
            })?;
        }
        if self.huge_pages {
            check_huge_pages()?;
        }
        if self.real_time {
            sched::set_real_time(TIMING_THREAD_PRIORITY).map_err(|error| {
                format!(
                    "this user may not have a real-time priority ({error}): run as root, or raise \
                     'ulimit -r'"
                )
            })?;
        }
        Ok(())
    }

    /// Takes what concerns a thread that sends or receives.
    pub(super) fn apply_to_thread(self) -> io::Result<()> {
        if self.real_time { sched::set_real_time(STREAM_THREAD_PRIORITY) } else { Ok(()) }
    }
}

/// Whether the kernel gives huge pages at all, found by touching one.
fn check_huge_pages() -> Result<(), String> {
    let lack = |why: &str| {
        format!(
            "the kernel gives no huge page ({why}): see /sys/kernel/mm/transparent_hugepage/enabled, \
             which must be madvise or always"
        )
    };
    let mut pages = HugePages::new(1).map_err(|error| lack(&error.to_string()))?;
    pages.bytes_mut().fill(1);
    let rollup = fs::read_to_string("/proc/self/smaps_rollup")
        .map_err(|error| lack(&format!("/proc/self/smaps_rollup cannot be read: {error}")))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    match line.and_then(|line| line.split_whitespace().next()) {
        Some("0") | None => Err(lack("it gave pages of the base size")),
        Some(_) => Ok(()),
    }
}

/// A thread for one stream. Its stack is small, for one that locks its memory has all of it at once.
pub(super) fn stream_thread(name: &str) -> Builder {
    Builder::new().name(name.to_owned()).stack_size(THREAD_STACK_BYTES)
}

/// Bytes: plenty for a loop around one call.
const THREAD_STACK_BYTES: usize = 128 << 10;

/// Memory for one message, touched.
#[derive(Debug)]
pub(super) enum MessageBuffer {
    /// At the beginning of a page.
    Plain(PageAlignedBuffer),
    /// At the beginning of a huge page.
    Huge(HugePages),
}

impl MessageBuffer {
    /// Memory for a message of this size.
    pub(super) fn new(size: usize, tweaks: ProcessTweaks) -> io::Result<Self> {
        if !tweaks.huge_pages {
            return Ok(Self::Plain(PageAlignedBuffer::filled(1, size)));
        }
        let mut pages = HugePages::new(size)?;
        pages.bytes_mut().fill(1);
        Ok(Self::Huge(pages))
    }

    /// The message.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Huge(pages) => pages.bytes(),
        }
    }

    /// The message, to write.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Huge(pages) => pages.bytes_mut(),
        }
    }
}
