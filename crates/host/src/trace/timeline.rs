//! What the kernel did, in order, by the worker's own clock.
//!
//! Left out: how records are read (`super::recorder`) and what they mean for a round trip
//! (`super::path`).

use plumb_sys::perf::call;

use crate::clock::Stopwatch;

/// What a system call does for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// It can send one.
    Send,
    /// It can receive one.
    Receive,
    /// Anything else: waiting in poll or a futex, say.
    Other,
}

impl Call {
    /// The kind of the system call with this number.
    pub fn of(number: i64) -> Self {
        if call::SENDS.contains(&number) {
            Self::Send
        } else if call::RECEIVES.contains(&number) {
            Self::Receive
        } else {
            Self::Other
        }
    }
}

/// What happened at a tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A thread entered the kernel.
    Enter(Call),
    /// It is about to leave it.
    Exit(Call),
    /// This thread is being woken.
    Waking(u32),
    /// This thread is runnable.
    Woken(u32),
    /// The CPU turns from one thread to another; 0 is the idle task.
    Switch {
        /// The thread that stops.
        from: u32,
        /// The thread that goes on.
        to: u32,
    },
    /// A frame reached a device's queue.
    DeviceQueue,
    /// A frame went to the driver.
    DeviceTransmit,
    /// A driver handed a frame over.
    DeviceReceive,
    /// The protocols' receive path began.
    StackReceive,
    /// A message is in the socket's queue.
    DataReady,
    /// A message is about to be copied to the receiver.
    Copy,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// In ticks of the worker's stopwatch.
    pub at: u64,
    /// The CPU it happened on.
    pub cpu: u32,
    /// The thread that was running there.
    pub thread: u32,
    /// What happened.
    pub kind: Kind,
}

/// A time in which a ring had no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The last event before, in ticks.
    pub from: u64,
    /// When there was room again, in ticks.
    pub to: u64,
    /// Events that are missing; 0 where a later gap counts them.
    pub lost: u64,
}

/// Every event of a block, merged over its CPUs.
#[derive(Clone, Debug)]
pub struct Timeline {
    watch: Stopwatch,
    events: Vec<Event>,
    gaps: Vec<Gap>,
}

impl Timeline {
    /// Merges events of several CPUs by time; those of one CPU keep their order.
    pub fn new(watch: Stopwatch, mut events: Vec<Event>, gaps: Vec<Gap>) -> Self {
        events.sort_by_key(|event| event.at);
        Self { watch, events, gaps }
    }

    /// The events, in order of time.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Times in which events were lost.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Events that were lost.
    pub fn lost(&self) -> u64 {
        self.gaps.iter().map(|gap| gap.lost).sum()
    }

    /// The clock in whose ticks it is written.
    pub fn stopwatch(&self) -> Stopwatch {
        self.watch
    }

    /// The events from `start` to `end`.
    pub(super) fn between(&self, start: u64, end: u64) -> &[Event] {
        let first = self.events.partition_point(|event| event.at < start);
        let after = self.events.partition_point(|event| event.at <= end);
        self.events.get(first..after).unwrap_or(&[])
    }

    /// Whether events may be missing from `start` to `end`.
    pub(super) fn is_torn(&self, start: u64, end: u64) -> bool {
        self.gaps.iter().any(|gap| gap.from <= end && start <= gap.to)
    }
}
