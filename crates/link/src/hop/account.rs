//! The account that a hop keeps of one direction: enough to check that no byte is lost and that
//! Little's law holds, exactly.
//!
//! Left out: the checks ([`crate::report`]).

use plumb_base::stats::histogram::Histogram;
use plumb_base::time::Instant;
use plumb_wire::medium::Medium;
use plumb_wire::packet::Pool;

use crate::context::{Changes, Context, Discards, Sums};
use crate::frame::Frame;
use crate::report::{Law, Tally};

/// Counters of one direction of one hop.
#[derive(Debug)]
pub(crate) struct Account {
    medium: Medium,
    pub entered: Sums,
    pub left: Sums,
    pub discards: Discards,
    pub marked: u64,
    pub changes: Changes,
    /// Bits sent while the rate was limited, and what it offered until it last changed: bits times picoseconds in a second.
    pub used: u64,
    pub offered: u128,
    pub offered_until: Instant,
    /// What the queue took, and gave or dropped.
    pub queue_in: Sums,
    pub queue_out: Sums,
    /// Frame-picoseconds: the queue's length over time, and the time that frames spent in it.
    pub length_integral: u128,
    pub waited: u128,
    pub since: Instant,
    queue_at: Instant,
    pub lengths: Histogram,
    pub sojourns: Histogram,
}

impl Account {
    pub fn new(medium: Medium, now: Instant) -> Self {
        Self {
            medium,
            entered: Sums::default(),
            left: Sums::default(),
            discards: Discards::default(),
            marked: 0,
            changes: Changes::default(),
            used: 0,
            offered: 0,
            offered_until: now,
            queue_in: Sums::default(),
            queue_out: Sums::default(),
            length_integral: 0,
            waited: 0,
            since: now,
            queue_at: now,
            lengths: Histogram::new(),
            sojourns: Histogram::new(),
        }
    }

    #[inline]
    pub fn context<'a>(&'a mut self, pool: &'a mut Pool) -> Context<'a> {
        Context {
            pool,
            medium: self.medium,
            discards: &mut self.discards,
            marked: &mut self.marked,
            changes: &mut self.changes,
        }
    }

    /// A rate of so many bits a second, 0 where it was not limited, has been there until `now`.
    pub fn on_rate(&mut self, now: Instant, mean: u64) {
        self.offered += self.offered_since(now, mean);
        self.offered_until = now;
    }

    /// What that rate has offered since it was made.
    pub fn offered_since(&self, now: Instant, mean: u64) -> u128 {
        u128::from(now.saturating_since(self.offered_until).as_ps()) * u128::from(mean)
    }

    #[inline]
    pub fn discarded(&self) -> Sums {
        self.discards.all()
    }

    /// The queue, which holds `frames`, is about to change.
    #[inline]
    pub fn on_queue(&mut self, now: Instant, frames: u64) {
        let span = now.saturating_since(self.queue_at).as_ps();
        self.length_integral += u128::from(frames) * u128::from(span);
        self.queue_at = now;
    }

    /// A frame is about to enter the queue, which holds `frames`.
    #[inline]
    pub fn on_arrival(&mut self, now: Instant, frames: u64, frame: &Frame) {
        self.on_queue(now, frames);
        self.lengths.record(frames);
        self.queue_in.add(frame);
    }

    /// A frame left the queue to be sent.
    #[inline]
    pub fn on_departure(&mut self, now: Instant, frame: &Frame) {
        let sojourn = now.saturating_since(frame.arrived);
        self.sojourns.record_n(sojourn.as_ns(), frame.count.into());
        self.waited += u128::from(sojourn.as_ps()) * u128::from(frame.count);
        self.queue_out.add(frame);
    }

    /// Both sides of Little's law at `now`, of a queue that holds `frames`.
    pub fn law(&self, now: Instant, frames: u64) -> Law {
        let span = u128::from(now.saturating_since(self.queue_at).as_ps());
        let expected = Tally {
            frames: self.queue_in.frames - self.queue_out.frames,
            bytes: self.queue_in.bytes - self.queue_out.bytes,
        };
        let waiting = u128::from(expected.frames) * u128::from(now.since_origin().as_ps());
        let arrived = self.queue_in.arrived - self.queue_out.arrived;
        Law {
            length_integral: self.length_integral + u128::from(frames) * span,
            time_spent: self.waited + waiting.saturating_sub(arrived),
            expected,
        }
    }

    /// The queue dropped what was discarded since `before`.
    #[inline]
    pub fn on_queue_discards(&mut self, now: Instant, before: Sums) {
        let after = self.discards.all();
        if after.frames == before.frames {
            return;
        }
        let (frames, arrived) = (after.frames - before.frames, after.arrived - before.arrived);
        let left = u128::from(frames) * u128::from(now.since_origin().as_ps());
        self.waited += left.saturating_sub(arrived);
        self.queue_out.frames += frames;
        self.queue_out.bytes += after.bytes - before.bytes;
        self.queue_out.arrived += arrived;
    }
}
