//! A hop whose queue is FIFO, whose rate and delay are constant and whose wire has no faults: what becomes of a frame is known when it
//! comes, so that nothing has to happen in between.
//!
//! It gives what [`HopDirection`] gives, to the picosecond and in every count; `one_way` tests that.

use std::collections::VecDeque;

use plumb_base::time::{Instant, Span};
use plumb_wire::packet::Pool;

use super::account::HopAccount;
use super::{HopConfig, HopDirection, LinkParameters};
use crate::frame::{DiscardReason, FrameTotals, LinkFrame};
use crate::rate::{self, RateServer};
use crate::report::DirectionReport;
use crate::spec::{DelayDistribution, DirectionSpec, QueueLimit, QueueSpec, RateSpec};

/// One direction of one hop.
#[derive(Debug)]
pub(crate) struct FifoHop {
    config: HopConfig,
    server: RateServer,
    delay: Span,
    /// In the order in which they came: those that travel, the one that is being sent, those that wait.
    frames: VecDeque<ScheduledFrame>,
    /// How many of them travel.
    travelling: usize,
    /// How many of them do not wait.
    begun: usize,
    backlog: FrameTotals,
    /// When the last of them is sent.
    free_at: Instant,
    /// When the first that waits begins to be sent, or the one that is being sent has been: before, there is nothing to count.
    next_count: Instant,
    account: HopAccount,
}

#[derive(Debug)]
struct ScheduledFrame {
    frame: LinkFrame,
    begins: Instant,
    departs: Instant,
}

impl FifoHop {
    /// An empty one; `None` where a hop is not of this kind.
    pub fn new(spec: &DirectionSpec, parameters: LinkParameters, now: Instant) -> Option<Self> {
        let is_fifo = matches!(spec.queue, QueueSpec::DropTail { .. });
        let is_constant = matches!(spec.rate, RateSpec::Constant(_));
        let DelayDistribution::Constant(delay) = spec.delay.distribution else { return None };
        if !is_fifo || !is_constant || !spec.faults.is_empty() || spec.policer.is_some() {
            return None;
        }
        Some(Self {
            server: rate::make(&spec.rate, now),
            delay,
            frames: VecDeque::new(),
            travelling: 0,
            begun: 0,
            backlog: FrameTotals::default(),
            free_at: Instant::ORIGIN,
            next_count: Instant::NEVER,
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
        self.backlog.add(&frame);
        self.frames.push_back(ScheduledFrame { frame, begins, departs });
        self.next_count = self.next_count.min(begins);
        self.settle(now);
    }

    /// Counts what has begun to be sent and what has been sent by `now`.
    #[inline]
    pub fn settle(&mut self, now: Instant) {
        if self.next_count <= now {
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
        while let Some(next) = self.frames.get(self.travelling).filter(|next| next.departs <= now) {
            self.account.used += self.config.bits(&next.frame);
            self.travelling += 1;
        }
        let begins = self.frames.get(self.begun).map_or(Instant::NEVER, |next| next.begins);
        let sent = self.frames.get(self.travelling).map_or(Instant::NEVER, |next| next.departs);
        self.next_count = begins.min(sent);
    }

    /// When the first comes out; [`Instant::NEVER`] when there is none.
    #[inline]
    pub fn next_arrival(&self) -> Instant {
        self.frames.front().map_or(Instant::NEVER, |first| first.departs + self.delay)
    }

    /// When the first comes out, or the first that waits begins to be sent.
    #[inline]
    pub fn next_change(&self) -> Instant {
        let begins = self.frames.get(self.begun).map_or(Instant::NEVER, |next| next.begins);
        self.next_arrival().min(begins)
    }

    /// Takes out the first that comes out by `now`, and when it does.
    #[inline]
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, LinkFrame)> {
        let at = self.next_arrival();
        if at > now || at == Instant::NEVER {
            return None;
        }
        self.settle(at);
        let first = self.frames.pop_front()?;
        self.begun -= 1;
        self.travelling -= 1;
        self.account.left.add(&first.frame);
        Some((at, first.frame))
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

    fn fill(&self, now: Instant, report: &mut DirectionReport) {
        let travelling = self.frames.range(..self.travelling).map(|one| &one.frame);
        let sending = self.frames.range(self.travelling..self.begun).next();
        let sending =
            sending.map(|one| (&one.frame, self.config.bits(&one.frame), one.begins, one.departs));
        self.account.fill(now, &self.config, self.backlog, sending, travelling, report);
    }

    /// Gives every frame back.
    pub fn clear(&mut self, pool: &mut Pool) {
        for one in self.frames.drain(..) {
            pool.free(one.frame.packet);
        }
        (self.travelling, self.begun, self.backlog) = (0, 0, FrameTotals::default());
        self.next_count = Instant::NEVER;
    }
}

impl HopDirection {
    /// How many frames wait, are sent, or travel.
    pub fn frames_inside(&self) -> u64 {
        let travel = self.held.frames().chain(self.propagating.frames()).count() as u64;
        self.queue.backlog().frames + u64::from(self.sending.is_some()) + travel
    }
}
