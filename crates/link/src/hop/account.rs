//! The account that a hop keeps of one direction: enough to check that no byte is lost and that
//! Little's law holds, exactly.

use plumb_base::stats::histogram::Histogram;
use plumb_base::time::{Instant, Span};
use plumb_wire::machine::Medium;
use plumb_wire::packet::Pool;

use crate::frame::{
    DiscardCounts, FrameSums, FrameTotals, HopContext, ImpairmentCounts, LinkFrame,
};
use crate::hop::HopDirection;
use crate::report::{DirectionReport, LittlesLaw};

/// Counters of one direction of one hop.
#[derive(Debug)]
pub(crate) struct HopAccount {
    medium: Medium,
    pub entered: FrameSums,
    pub left: FrameSums,
    pub discards: DiscardCounts,
    pub marked: u64,
    pub changes: ImpairmentCounts,
    /// Bits sent while the rate was limited, and what it offered until it last changed: bits times picoseconds in a second.
    pub used: u64,
    pub offered: u128,
    pub offered_until: Instant,
    /// What the queue took, and gave or dropped.
    pub queue_in: FrameSums,
    pub queue_out: FrameSums,
    /// Frame-picoseconds: the queue's length over time, and the time that frames spent in it.
    pub length_integral: u128,
    pub waited: u128,
    pub since: Instant,
    queue_at: Instant,
    pub lengths: Histogram,
    pub sojourns: Histogram,
}

impl HopAccount {
    pub fn new(medium: Medium, now: Instant) -> Self {
        Self {
            medium,
            entered: FrameSums::default(),
            left: FrameSums::default(),
            discards: DiscardCounts::default(),
            marked: 0,
            changes: ImpairmentCounts::default(),
            used: 0,
            offered: 0,
            offered_until: now,
            queue_in: FrameSums::default(),
            queue_out: FrameSums::default(),
            length_integral: 0,
            waited: 0,
            since: now,
            queue_at: now,
            lengths: Histogram::new(),
            sojourns: Histogram::new(),
        }
    }

    #[inline]
    pub fn context<'a>(&'a mut self, pool: &'a mut Pool) -> HopContext<'a> {
        HopContext {
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
    pub fn discarded(&self) -> FrameSums {
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
    pub fn on_arrival(&mut self, now: Instant, frames: u64, frame: &LinkFrame) {
        self.on_queue(now, frames);
        self.lengths.record(frames);
        self.queue_in.add(frame);
    }

    /// A frame left the queue to be sent.
    #[inline]
    pub fn on_departure(&mut self, now: Instant, frame: &LinkFrame) {
        let sojourn = now.saturating_since(frame.arrived);
        self.sojourns.record_n(sojourn.as_ns(), frame.count.into());
        self.waited += u128::from(sojourn.as_ps()) * u128::from(frame.count);
        self.queue_out.add(frame);
    }

    /// Both sides of Little's law at `now`, of a queue that holds `frames`.
    pub fn littles_law(&self, now: Instant, frames: u64) -> LittlesLaw {
        let span = u128::from(now.saturating_since(self.queue_at).as_ps());
        let expected = FrameTotals {
            frames: self.queue_in.frames - self.queue_out.frames,
            bytes: self.queue_in.bytes - self.queue_out.bytes,
        };
        let waiting = u128::from(expected.frames) * u128::from(now.since_origin().as_ps());
        let arrived = self.queue_in.arrived - self.queue_out.arrived;
        LittlesLaw {
            length_integral: self.length_integral + u128::from(frames) * span,
            time_spent: self.waited + waiting.saturating_sub(arrived),
            expected,
        }
    }

    /// The queue dropped what was discarded since `before`.
    #[inline]
    pub fn on_queue_discards(&mut self, now: Instant, before: FrameSums) {
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

impl HopDirection {
    /// What it did up to `now`, under this name.
    pub fn report(&self, now: Instant, name: String) -> DirectionReport {
        let HopAccount { lengths, sojourns, .. } = &self.account;
        let mut report = self.empty_report(name, lengths.clone(), sojourns.clone());
        self.fill(now, &mut report);
        report
    }

    /// The same into a form, whose empty distributions are exchanged for those of what happened since the last time.
    pub fn exchange_report(&mut self, now: Instant, is_changed: bool, form: &mut DirectionReport) {
        std::mem::swap(&mut self.account.lengths, &mut form.queue_lengths);
        std::mem::swap(&mut self.account.sojourns, &mut form.sojourns);
        if is_changed {
            form.text = self.config.spec.to_string();
        }
        self.fill(now, form);
    }

    fn empty_report(
        &self,
        name: String,
        queue_lengths: Histogram,
        sojourns: Histogram,
    ) -> DirectionReport {
        DirectionReport {
            name,
            text: self.config.spec.to_string(),
            elapsed: Span::ZERO,
            entered: FrameTotals::default(),
            left: FrameTotals::default(),
            discards: DiscardCounts::default(),
            marked: 0,
            changes: ImpairmentCounts::default(),
            limit: self.config.limit,
            waiting: FrameTotals::default(),
            sending: FrameTotals::default(),
            in_flight: FrameTotals::default(),
            queue_lengths,
            sojourns,
            used_bits: 0.0,
            offered_bits: 0.0,
            law: LittlesLaw::default(),
        }
    }

    /// Everything that is counted.
    fn fill(&self, now: Instant, report: &mut DirectionReport) {
        let account = &self.account;
        let backlog = self.queue.backlog();
        let sending = self.sending.as_ref();
        let under_way = sending.map_or(0.0, |sending| {
            let span = |to: Instant| to.saturating_since(sending.started).as_ps() as f64;
            sending.bits as f64 * span(now.min(sending.finish)) / span(sending.finish).max(1.0)
        });
        let offered = account.offered + account.offered_since(now, self.config.mean);
        report.elapsed = now.saturating_since(account.since);
        report.entered = totals_of_sums(account.entered);
        report.left = totals_of_sums(account.left);
        report.discards = account.discards;
        report.marked = account.marked;
        report.changes = account.changes;
        report.limit = self.config.limit;
        report.waiting = backlog;
        report.sending =
            sending.map_or(FrameTotals::default(), |sending| totals_of_frame(&sending.frame));
        let in_flight = self.held.frames().chain(self.propagating.frames());
        report.in_flight = in_flight.map(totals_of_frame).sum();
        report.used_bits = account.used as f64 + under_way;
        report.offered_bits = offered as f64 / crate::rate::SECOND as f64;
        report.law = account.littles_law(now, backlog.frames);
    }
}

fn totals_of_sums(sums: FrameSums) -> FrameTotals {
    FrameTotals { frames: sums.frames, bytes: sums.bytes }
}

fn totals_of_frame(frame: &LinkFrame) -> FrameTotals {
    FrameTotals { frames: frame.count.into(), bytes: frame.wire_len.into() }
}
