//! A hop whose queue is FIFO, whose rate and delay are constant and whose wire has no faults: what becomes of a frame is known when it
//! comes, so that nothing has to happen in between.
//!
//! It gives what [`HopDirection`] gives, to the picosecond and in every count; `one_way` tests that.

use std::collections::VecDeque;

use plumb_base::time::{Instant, Span};
use plumb_wire::packet::{Packet, Pool};

use super::account::HopAccount;
use super::{HopConfig, HopDirection, LinkParameters};
use crate::frame::{DiscardReason, FrameTotals, LinkFrame};
use crate::rate::{self, RateServer};
use crate::report::DirectionReport;
use crate::spec::{DelayDistribution, DirectionSpec, QueueLimit, QueueSpec, RateSpec};

/// One direction of one hop. No two are in one cache line, as different threads may use them.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct FifoHop {
    config: HopConfig,
    server: RateServer,
    delay: Span,
    /// In the order in which they came: those that travel, the one that is being sent, those that wait.
    frames: VecDeque<ScheduledFrame>,
    /// How many of them do not wait.
    begun: usize,
    backlog: FrameTotals,
    /// Bits of those that came out.
    left_bits: u64,
    /// When the last of them is sent.
    free_at: Instant,
    /// When the first comes out, and the first that waits begins to be sent; [`Instant::NEVER`] where there is none. What was
    /// just written to `frames` is not read back: that would wait for the write.
    next_out: Instant,
    next_begin: Instant,
    account: HopAccount,
}

#[derive(Debug)]
struct ScheduledFrame {
    frame: LinkFrame,
    begins: Instant,
    departs: Instant,
}

impl FifoHop {
    /// The delay of a hop of this kind; `None` where one is of another.
    pub fn constant_delay(spec: &DirectionSpec) -> Option<Span> {
        let is_fifo = matches!(spec.queue, QueueSpec::DropTail { .. });
        let is_constant = matches!(spec.rate, RateSpec::Constant(_));
        let DelayDistribution::Constant(delay) = spec.delay.distribution else { return None };
        let is_plain = spec.faults.is_empty() && spec.policer.is_none();
        (is_fifo && is_constant && is_plain).then_some(delay)
    }

    /// An empty one; `None` where a hop is not of this kind.
    pub fn new(spec: &DirectionSpec, parameters: LinkParameters, now: Instant) -> Option<Self> {
        Some(Self {
            server: rate::make(&spec.rate, now),
            delay: Self::constant_delay(spec)?,
            frames: VecDeque::new(),
            begun: 0,
            backlog: FrameTotals::default(),
            left_bits: 0,
            free_at: Instant::ORIGIN,
            next_out: Instant::NEVER,
            next_begin: Instant::NEVER,
            account: HopAccount::new(parameters.medium, now),
            config: HopConfig::new(spec, parameters, now),
        })
    }

    pub fn spec(&self) -> &DirectionSpec {
        &self.config.spec
    }

    pub fn limit(&self) -> QueueLimit {
        self.config.limit
    }

    #[inline]
    pub fn backlog(&self) -> FrameTotals {
        self.backlog
    }

    /// Takes a frame that arrives at `now`.
    #[inline]
    pub fn arrive(&mut self, now: Instant, mut frame: LinkFrame, pool: &mut Pool) {
        self.settle(now);
        frame.arrived = now;
        self.account.entered.add(&frame);
        self.account.on_arrival(now, self.backlog.frames, &frame);
        if !self.config.limit.takes(self.backlog, &frame) {
            let before = self.account.discarded();
            self.account.context(pool).discard(frame, DiscardReason::Full);
            self.account.on_queue_discards(now, before);
            return;
        }
        let begins = now.max(self.free_at);
        let departs = self.server.finish(begins, self.config.bits(&frame));
        self.free_at = departs;
        if begins > now {
            self.backlog.add(&frame);
            self.next_begin = self.next_begin.min(begins);
        } else {
            self.account.on_departure(now, &frame);
            self.begun += 1;
        }
        self.next_out = self.next_out.min(departs + self.delay);
        self.frames.push_back(ScheduledFrame { frame, begins, departs });
        self.frames.back().into_iter().for_each(plumb_copy::prefetch_after);
    }

    /// Counts what has begun to be sent by `now`.
    #[inline]
    pub fn settle(&mut self, now: Instant) {
        if self.next_begin <= now {
            self.count_until(now);
        }
    }

    fn count_until(&mut self, now: Instant) {
        while let Some(next) = self.frames.get(self.begun).filter(|next| next.begins <= now) {
            self.account.on_queue(next.begins, self.backlog.frames);
            self.account.on_departure(next.begins, &next.frame);
            self.backlog.remove(&next.frame);
            self.begun += 1;
        }
        self.next_begin = self.frames.get(self.begun).map_or(Instant::NEVER, |next| next.begins);
        self.prefetch(self.begun + 1);
    }

    /// When the first comes out; [`Instant::NEVER`] when there is none.
    #[inline]
    pub fn next_arrival(&self) -> Instant {
        self.next_out
    }

    /// When the first comes out, or the first that waits begins to be sent.
    #[inline]
    pub fn next_change(&self) -> Instant {
        self.next_out.min(self.next_begin)
    }

    /// Appends the first packet to `out` if it comes out by `now`: when it does, when it came, and its length on the wire.
    #[inline]
    pub fn pop(&mut self, now: Instant, out: &mut Vec<Packet>) -> Option<(Instant, Instant, u32)> {
        let at = self.next_out;
        if at > now || at == Instant::NEVER {
            return None;
        }
        if self.begun == 0 {
            // No further: packets that entered since may come yet.
            self.count_until(self.frames.front()?.begins);
        }
        let first = &self.frames.front()?.frame;
        self.account.left.add(first);
        self.left_bits += self.config.bits(first);
        let (entered, wire_len) = (first.entered, first.wire_len);
        if let Some(first) = self.frames.pop_front() {
            out.push(first.frame.packet);
        }
        if self.frames.is_empty() {
            // What comes next is written where memory is cached.
            self.frames.clear();
        }
        let second = self.frames.front();
        self.next_out = second.map_or(Instant::NEVER, |second| second.departs + self.delay);
        self.prefetch(2);
        self.begun -= 1;
        Some((at, entered, wire_len))
    }

    /// A frame that will be looked at soon, of a ring that may be longer than caches.
    #[inline]
    fn prefetch(&self, index: usize) {
        if let Some(later) = self.frames.get(index) {
            plumb_copy::prefetch_value(&later.frame);
            plumb_copy::prefetch_value(&later.frame.packet);
            plumb_copy::prefetch_value(&later.departs);
        }
    }

    /// A frame by its place in the order in which they come out.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&LinkFrame> {
        self.frames.get(index).map(|one| &one.frame)
    }

    pub fn delay(&self) -> Span {
        self.delay
    }

    pub fn frames_inside(&self) -> u64 {
        self.frames.len() as u64
    }

    /// What it did up to `now`, under this name.
    pub fn report(&mut self, now: Instant, name: String) -> DirectionReport {
        self.settle(now);
        let (lengths, sojourns) = (self.account.lengths.clone(), self.account.sojourns.clone());
        let mut report = self.config.empty_report(name, lengths, sojourns);
        self.fill(now, &mut report);
        report
    }

    /// The same into a form, whose empty distributions are exchanged for those of what happened since the last time.
    pub fn exchange_report(&mut self, now: Instant, form: &mut DirectionReport) {
        self.settle(now);
        std::mem::swap(&mut self.account.lengths, &mut form.queue_lengths);
        std::mem::swap(&mut self.account.sojourns, &mut form.sojourns);
        self.fill(now, form);
    }

    fn fill(&mut self, now: Instant, report: &mut DirectionReport) {
        let bits = |one: &ScheduledFrame| self.config.bits(&one.frame);
        let travelling = self.frames.partition_point(|one| one.departs <= now);
        let sent = self.frames.range(..travelling);
        self.account.used = self.left_bits + sent.clone().map(bits).sum::<u64>();
        let sending = self.frames.range(travelling..self.begun).next();
        let sending = sending.map(|one| (&one.frame, bits(one), one.begins, one.departs));
        let travelling = sent.map(|one| &one.frame);
        self.account.fill(now, &self.config, self.backlog, sending, travelling, report);
    }

    /// Gives every frame back.
    pub fn clear(&mut self, pool: &mut Pool) {
        for one in self.frames.drain(..) {
            pool.free(one.frame.packet);
        }
        (self.begun, self.backlog) = (0, FrameTotals::default());
        (self.next_out, self.next_begin) = (Instant::NEVER, Instant::NEVER);
    }
}

impl HopDirection {
    /// How many frames wait, are sent, or travel.
    pub fn frames_inside(&self) -> u64 {
        let travel = self.held.frames().chain(self.propagating.frames()).count() as u64;
        self.queue.backlog().frames + u64::from(self.sending.is_some()) + travel
    }
}
