//! The account that a hop keeps of one direction: enough to check that no byte is lost and that
//! Little's law holds, exactly.

use plumb_base::stats::sparse_histogram::SparseHistogram;
use plumb_base::time::{Instant, Span};
use plumb_wire::machine::Medium;
use plumb_wire::packet::Pool;

use crate::frame::{
    CountedFrame, DiscardCounts, FrameSums, FrameTotals, HopContext, ImpairmentCounts,
};
use crate::hop::{HopConfig, HopDirection};
use crate::report::{DirectionReport, LittlesLaw};

/// Counters of one direction of one hop. Those that every frame changes come first: networks have thousands of hops, and where they fill
/// caches, each line that a frame touches counts.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct HopAccount {
    /// Frame-picoseconds: the queue's length over time, and the time that frames spent in it.
    pub length_integral: u128,
    pub waited: u128,
    /// What the queue took, and gave or dropped.
    pub queue_in: FrameSums,
    pub queue_out: FrameSums,
    pub entered: FrameTotals,
    pub left: FrameTotals,
    queue_at: Instant,
    pub lengths: SparseHistogram,
    pub sojourns: SparseHistogram,
    pub since: Instant,
    medium: Medium,
    pub discards: DiscardCounts,
    pub marked: u64,
    pub changes: ImpairmentCounts,
    /// Bits sent while the rate was limited, and what it offered until it last changed: bits times picoseconds in a second.
    pub used: u64,
    pub offered: u128,
    pub offered_until: Instant,
}

impl HopAccount {
    pub fn new(medium: Medium, now: Instant) -> Self {
        Self {
            medium,
            entered: FrameTotals::default(),
            left: FrameTotals::default(),
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
            lengths: SparseHistogram::new(),
            sojourns: SparseHistogram::new(),
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
    pub fn on_arrival(&mut self, now: Instant, frames: u64, frame: CountedFrame) {
        self.on_queue(now, frames);
        self.lengths.record(frames);
        self.queue_in.add(frame);
    }

    /// A frame left the queue to be sent.
    #[inline]
    pub fn on_departure(&mut self, now: Instant, frame: CountedFrame) {
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
        let mut report = self.config.empty_report(name, lengths.clone(), sojourns.clone());
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

    /// Everything that is counted.
    fn fill(&self, now: Instant, report: &mut DirectionReport) {
        let sending = self.sending.as_ref();
        let sending =
            sending.map(|one| (CountedFrame::from(&one.frame), one.bits, one.started, one.finish));
        let in_flight = self.held.frames().chain(self.propagating.frames()).map(CountedFrame::from);
        self.account.fill(now, &self.config, self.queue.backlog(), sending, in_flight, report);
    }
}

impl HopConfig {
    /// One of nothing.
    pub fn empty_report(
        &self,
        name: String,
        queue_lengths: SparseHistogram,
        sojourns: SparseHistogram,
    ) -> DirectionReport {
        DirectionReport {
            name,
            text: self.spec.to_string(),
            elapsed: Span::ZERO,
            entered: FrameTotals::default(),
            left: FrameTotals::default(),
            discards: DiscardCounts::default(),
            marked: 0,
            changes: ImpairmentCounts::default(),
            limit: self.limit,
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
}

impl HopAccount {
    /// Everything that is counted, of a hop in which `backlog` waits, a frame is being sent, of so many bits from one moment
    /// to another, and others travel.
    pub fn fill(
        &self,
        now: Instant,
        config: &HopConfig,
        backlog: FrameTotals,
        sending: Option<(CountedFrame, u64, Instant, Instant)>,
        in_flight: impl Iterator<Item = CountedFrame>,
        report: &mut DirectionReport,
    ) {
        let under_way = sending.map_or(0.0, |(_, bits, started, finish)| {
            let span = |to: Instant| to.saturating_since(started).as_ps() as f64;
            bits as f64 * span(now.min(finish)) / span(finish).max(1.0)
        });
        let offered = self.offered + self.offered_since(now, config.mean);
        report.elapsed = now.saturating_since(self.since);
        report.entered = self.entered;
        report.left = self.left;
        report.discards = self.discards;
        report.marked = self.marked;
        report.changes = self.changes;
        report.limit = config.limit;
        report.waiting = backlog;
        report.sending =
            sending.map_or(FrameTotals::default(), |(frame, ..)| totals_of_frame(frame));
        report.in_flight = in_flight.map(totals_of_frame).sum();
        report.used_bits = self.used as f64 + under_way;
        report.offered_bits = offered as f64 / crate::rate::SECOND as f64;
        report.law = self.littles_law(now, backlog.frames);
    }
}

fn totals_of_frame(frame: CountedFrame) -> FrameTotals {
    FrameTotals { frames: frame.count.into(), bytes: frame.wire_len.into() }
}
