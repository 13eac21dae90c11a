//! What a network really did: of each direction of each hop what came, went, waited and was lost.
//!
//! Every report checks itself: no frame and no byte is lost or made, and Little's law holds, both to the last
//! picosecond.

use std::fmt;
use std::ops::AddAssign;

use plumb_base::stats::sparse_histogram::SparseHistogram;
use plumb_base::time::{Instant, Span};
use plumb_wire::machine::{DuePacket, Machine, PortId, TimedMachine};
use plumb_wire::packet::Pool;

use crate::frame::{DiscardCounts, DiscardReason, FrameTotals, ImpairmentCounts};
use crate::spec::{LinkSpec, QueueLimit, SpecError};

/// What a network did since it began.
#[derive(Clone, Debug)]
pub struct NetworkReport {
    /// Up to when.
    pub at: Instant,
    /// Each direction of each hop.
    pub directions: Vec<DirectionReport>,
    /// What routers did beside passing frames on.
    pub routers: RouterCounts,
    /// Copies of frames for several ports of a switch that were not made for want of memory.
    pub copies_without_memory: u64,
    /// Laws that do not hold: always empty, or there is a fault in plumb.
    pub violations: Vec<InvariantViolation>,
}

/// What routers did beside passing frames on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterCounts {
    /// Errors sent to who sent a frame that could not go on.
    pub errors_sent: u64,
    /// Errors that were not sent, by their rate limit or because nobody may be told.
    pub errors_withheld: u64,
    /// Packets cut into fragments.
    pub fragmented: u64,
    /// Fragments made of them.
    pub fragments: u64,
}

impl AddAssign for RouterCounts {
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
    pub entered: FrameTotals,
    /// What went.
    pub left: FrameTotals,
    /// What went no further, by reason.
    pub discards: DiscardCounts,
    /// Frames marked "congestion experienced".
    pub marked: u64,
    /// What the wire did to frames that it delivered.
    pub changes: ImpairmentCounts,
    /// How much may wait.
    pub limit: QueueLimit,
    /// What waits.
    pub waiting: FrameTotals,
    /// What is being sent.
    pub sending: FrameTotals,
    /// What was sent and has not arrived.
    pub in_flight: FrameTotals,
    /// Frames that waited when another one came.
    pub queue_lengths: SparseHistogram,
    /// Nanoseconds that frames waited which were then sent.
    pub sojourns: SparseHistogram,
    /// Bits that were sent while the rate was limited.
    pub used_bits: f64,
    /// Those that it would have let through in this time.
    pub offered_bits: f64,
    pub(crate) law: LittlesLaw,
}

/// Both sides of Little's law for a queue, and what it took and gave, counted outside of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LittlesLaw {
    /// Frames in the queue, integrated over time: frame-picoseconds.
    pub length_integral: u128,
    /// Time that frames spent in it, those that still wait included: frame-picoseconds.
    pub time_spent: u128,
    /// What should wait.
    pub expected: FrameTotals,
}

/// A law that does not hold, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvariantViolation(String);

impl DirectionReport {
    /// The share that was used of what the rate offered; `None` where it was never limited.
    pub fn utilization(&self) -> Option<f64> {
        // A bucket that was full lets more through at first than its rate does.
        (self.offered_bits > 0.0).then(|| (self.used_bits / self.offered_bits).min(1.0))
    }

    /// Frames that waited on average, over time.
    pub fn mean_queue(&self) -> f64 {
        self.law.length_integral as f64 / (self.elapsed.as_ps() as f64).max(1.0)
    }

    /// The laws that do not hold.
    pub fn violations(&self) -> impl Iterator<Item = InvariantViolation> {
        let Self { law, changes, .. } = self;
        let (lost_frames, lost_bytes) = self.discards.total();
        let came = FrameTotals {
            frames: self.entered.frames + changes.duplicated,
            bytes: self.entered.bytes + changes.duplicated_bytes,
        };
        let lost = FrameTotals { frames: lost_frames, bytes: lost_bytes };
        let parts = [lost, self.left, self.waiting, self.sending, self.in_flight];
        let known: FrameTotals = parts.into_iter().sum();
        let (name, holds, should) = (&self.name, self.waiting, law.expected);
        let (by_length, by_wait) = (law.length_integral, law.time_spent);
        let conservation = (came != known)
            .then(|| format!("{name}: {came} came, of which {known} are accounted for"));
        let queue = (holds != should)
            .then(|| format!("{name}: the queue holds {holds}, and should hold {should}"));
        let little = (by_length != by_wait).then(|| {
            format!(
                "{name}: frames spent {by_wait} ps in the queue, whose length says {by_length} ps"
            )
        });
        [conservation, queue, little].into_iter().flatten().map(InvariantViolation)
    }
}

impl NetworkReport {
    /// A report that has checked itself.
    pub(crate) fn new(
        at: Instant,
        directions: Vec<DirectionReport>,
        routers: RouterCounts,
    ) -> Self {
        let mut report =
            Self { at, directions, routers, copies_without_memory: 0, violations: Vec::new() };
        report.check();
        report
    }

    /// Finds the laws that do not hold.
    pub(crate) fn check(&mut self) {
        self.violations.clear();
        self.violations.extend(self.directions.iter().flat_map(DirectionReport::violations));
    }

    /// The same with empty distributions, for `Network::hand_over`.
    #[must_use]
    pub fn with_empty_histograms(&self) -> Self {
        let mut form = self.clone();
        for direction in &mut form.directions {
            direction.queue_lengths = direction.queue_lengths.empty_like();
            direction.sojourns = direction.sojourns.empty_like();
        }
        form
    }

    /// Adds the distributions of an earlier report to those of what happened since.
    pub fn merge_earlier(&mut self, earlier: &Self) {
        for (direction, earlier) in self.directions.iter_mut().zip(&earlier.directions) {
            direction.queue_lengths.merge(&earlier.queue_lengths);
            direction.sojourns.merge(&earlier.sojourns);
        }
    }

    /// Frames that were lost inside because there was no memory for them, which no model asked for.
    pub fn no_memory(&self) -> u64 {
        let lost = self.directions.iter().map(|one| one.discards.of(DiscardReason::NoMemory).0);
        self.copies_without_memory + lost.sum::<u64>()
    }

    /// What went no further anywhere, in all.
    pub fn discarded(&self) -> FrameTotals {
        let of = |direction: &DirectionReport| {
            let (frames, bytes) = direction.discards.total();
            FrameTotals { frames, bytes }
        };
        self.directions.iter().map(of).sum()
    }
}

impl fmt::Display for InvariantViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A machine of several ports whose frames know when they were due.
pub trait Network: TimedMachine + Machine {
    /// How many ports it has: from 0 on.
    fn ports(&self) -> u16;

    /// As [`Machine::poll_packets`], with the moment at which each is due: not later than `now`, in order.
    fn poll_due(
        &mut self,
        now: Instant,
        port: PortId,
        out: &mut Vec<DuePacket>,
        max: usize,
        pool: &mut Pool,
    ) {
        self.advance(now, pool);
        let egress = self.egress(port);
        let count = max.min(egress.len());
        out.extend(egress.drain(..count));
    }

    /// Becomes what `spec` says; what is in flight stays so.
    ///
    /// # Errors
    /// Refuses, unchanged, what could not have been made in the first place, and another number of hops.
    fn reconfigure(
        &mut self,
        now: Instant,
        spec: &LinkSpec,
        pool: &mut Pool,
    ) -> Result<(), SpecError>;

    /// What it did up to the last moment that it was told about, with the laws checked.
    fn report(&self, now: Instant) -> NetworkReport;

    /// The same into a `NetworkReport::form` of an earlier report, without a copy of what may be long: its empty
    /// distributions are exchanged for those of what happened since it was last done. Those of every report after that
    /// begin there too. Its texts are made anew where the network `is_changed` since.
    fn exchange_report(&mut self, now: Instant, is_changed: bool, form: &mut NetworkReport);

    /// Gives every frame inside back to the pool, unaccounted: the end.
    fn clear(&mut self, pool: &mut Pool);
}
