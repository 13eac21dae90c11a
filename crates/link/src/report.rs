//! What a network really did: of each direction of each hop what came, went, waited and was lost.
//!
//! Every report checks itself: no frame and no byte is lost or made, and Little's law holds, both to the last
//! picosecond. Left out: how late the driver was, which the driver knows.

use std::fmt;
use std::ops::AddAssign;

use plumb_base::stats::histogram::Histogram;
use plumb_base::time::{Instant, Span};

use crate::context::{Changes, Discards, Reason};
use crate::queue::Limit;

/// Frames, and bytes as the rate counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames on the wire: a super-segment counts as those that it stands for.
    pub frames: u64,
    /// Bytes, overhead included.
    pub bytes: u64,
}

/// What a network did since it began.
#[derive(Clone, Debug)]
pub struct NetworkReport {
    /// Up to when.
    pub at: Instant,
    /// Each direction of each hop.
    pub directions: Vec<DirectionReport>,
    /// What routers did beside passing frames on.
    pub routers: Routers,
    /// Copies of frames for several ports of a switch that were not made for want of memory.
    pub starved: u64,
    /// Laws that do not hold: always empty, or there is a fault in plumb.
    pub violations: Vec<Violation>,
}

/// What routers did beside passing frames on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Routers {
    /// Errors sent to who sent a frame that could not go on.
    pub errors_sent: u64,
    /// Errors that were not sent, by their rate limit or because nobody may be told.
    pub errors_withheld: u64,
    /// Packets cut into fragments.
    pub fragmented: u64,
    /// Fragments made of them.
    pub fragments: u64,
}

impl AddAssign for Routers {
    fn add_assign(&mut self, other: Self) {
        self.errors_sent += other.errors_sent;
        self.errors_withheld += other.errors_withheld;
        self.fragmented += other.fragmented;
        self.fragments += other.fragments;
    }
}

/// What one direction of one hop did.
#[derive(Clone, Debug)]
pub struct DirectionReport {
    /// Which: `hop 1 up`.
    pub name: String,
    /// What was asked for, as text.
    pub text: String,
    /// How long it has been.
    pub elapsed: Span,
    /// What came.
    pub entered: Tally,
    /// What went.
    pub left: Tally,
    /// What went no further, by reason.
    pub discards: Discards,
    /// Frames marked "congestion experienced".
    pub marked: u64,
    /// What the wire did to frames that it delivered.
    pub changes: Changes,
    /// How much may wait.
    pub limit: Limit,
    /// What waits.
    pub waiting: Tally,
    /// What is being sent.
    pub sending: Tally,
    /// What was sent and has not arrived.
    pub in_flight: Tally,
    /// Frames that waited when another one came.
    pub queue_lengths: Histogram,
    /// Nanoseconds that frames waited which were then sent.
    pub sojourns: Histogram,
    /// Bits that were sent while the rate was limited.
    pub used_bits: f64,
    /// Those that it would have let through in this time.
    pub offered_bits: f64,
    pub(crate) law: Law,
}

/// Both sides of Little's law for a queue, and what it took and gave, counted outside of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Law {
    /// Frames in the queue, integrated over time: frame-picoseconds.
    pub length_integral: u128,
    /// Time that frames spent in it, those that still wait included: frame-picoseconds.
    pub time_spent: u128,
    /// What should wait.
    pub expected: Tally,
}

/// A law that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// What came, and copies, are not what went, was lost, waits and is under way.
    Conservation {
        /// Where.
        name: String,
        /// What came and was copied.
        came: Tally,
        /// What is known of it.
        known: Tally,
    },
    /// The queue does not hold what it was given and did not give back.
    Queue {
        /// Where.
        name: String,
        /// What it says it holds.
        holds: Tally,
        /// What it should.
        should: Tally,
    },
    /// The mean length is not the rate of arrivals times the mean wait.
    Little {
        /// Where.
        name: String,
        /// Frame-picoseconds by length.
        by_length: u128,
        /// Frame-picoseconds by wait.
        by_wait: u128,
    },
}

impl DirectionReport {
    /// The share that was used of what the rate offered; `None` where it was never limited.
    pub fn utilisation(&self) -> Option<f64> {
        // A bucket that was full lets more through at first than its rate does.
        (self.offered_bits > 0.0).then(|| (self.used_bits / self.offered_bits).min(1.0))
    }

    /// Frames that waited on average, over time.
    pub fn mean_queue(&self) -> f64 {
        self.law.length_integral as f64 / (self.elapsed.as_ps() as f64).max(1.0)
    }

    /// The laws that do not hold.
    fn violations(&self) -> impl Iterator<Item = Violation> {
        let Self { law, changes, .. } = self;
        let (lost_frames, lost_bytes) = self.discards.total();
        let came = Tally {
            frames: self.entered.frames + changes.duplicated,
            bytes: self.entered.bytes + changes.duplicated_bytes,
        };
        let parts = [self.left, self.waiting, self.sending, self.in_flight];
        let known = Tally {
            frames: lost_frames + parts.iter().map(|part| part.frames).sum::<u64>(),
            bytes: lost_bytes + parts.iter().map(|part| part.bytes).sum::<u64>(),
        };
        let name = || self.name.clone();
        let conservation =
            (came != known).then(|| Violation::Conservation { name: name(), came, known });
        let queue = (self.waiting != law.expected).then(|| Violation::Queue {
            name: name(),
            holds: self.waiting,
            should: law.expected,
        });
        let little = (law.length_integral != law.time_spent).then(|| Violation::Little {
            name: name(),
            by_length: law.length_integral,
            by_wait: law.time_spent,
        });
        [conservation, queue, little].into_iter().flatten()
    }
}

impl NetworkReport {
    /// A report that has checked itself.
    pub(crate) fn new(at: Instant, directions: Vec<DirectionReport>, routers: Routers) -> Self {
        let mut report = Self { at, directions, routers, starved: 0, violations: Vec::new() };
        report.check();
        report
    }

    /// Finds the laws that do not hold.
    pub(crate) fn check(&mut self) {
        self.violations.clear();
        self.violations.extend(self.directions.iter().flat_map(DirectionReport::violations));
    }

    /// The same with empty distributions, for [`crate::network::Network::hand_over`].
    #[must_use]
    pub fn form(&self) -> Self {
        let mut form = self.clone();
        for direction in &mut form.directions {
            direction.queue_lengths = direction.queue_lengths.empty_like();
            direction.sojourns = direction.sojourns.empty_like();
        }
        form
    }

    /// Adds the distributions of an earlier report to those of what happened since.
    pub fn add_earlier(&mut self, earlier: &Self) {
        for (direction, earlier) in self.directions.iter_mut().zip(&earlier.directions) {
            direction.queue_lengths.merge(&earlier.queue_lengths);
            direction.sojourns.merge(&earlier.sojourns);
        }
    }

    /// Frames that were lost inside because there was no memory for them, which no model asked for.
    pub fn no_memory(&self) -> u64 {
        let lost = self.directions.iter().map(|one| one.discards.of(Reason::NoMemory).0);
        self.starved + lost.sum::<u64>()
    }

    /// What went no further anywhere, in all.
    pub fn discarded(&self) -> Tally {
        let mut all = Tally::default();
        for direction in &self.directions {
            let (frames, bytes) = direction.discards.total();
            all.frames += frames;
            all.bytes += bytes;
        }
        all
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frames of {} bytes", self.frames, self.bytes)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conservation { name, came, known } => {
                write!(f, "{name}: {came} came, of which {known} are accounted for")
            }
            Self::Queue { name, holds, should } => {
                write!(f, "{name}: the queue holds {holds}, and should hold {should}")
            }
            Self::Little { name, by_length, by_wait } => write!(
                f,
                "{name}: frames spent {by_wait} ps in the queue, whose length says {by_length} ps"
            ),
        }
    }
}
