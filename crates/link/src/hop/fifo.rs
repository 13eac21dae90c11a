//! A hop whose queue is FIFO, whose rate and delay are constant and whose wire has no faults: what happens to a frame is known when it
//! comes, so that nothing has to happen in between.
//!
//! It gives what [`HopDirection`] gives, to the picosecond and in every count; `one_way` tests that.

use std::collections::VecDeque;

use plumb_base::time::{Instant, Span};
use plumb_wire::packet::{Packet, Pool};

use super::account::HopAccount;
use super::{HopConfig, HopDirection, LinkParameters};
use crate::frame::{CountedFrame, DiscardReason, FrameTotals, LinkFrame};
use crate::rate::ConstantRate;
use crate::report::DirectionReport;
use crate::spec::{DelayDistribution, DirectionSpec, QueueLimit, QueueSpec, RateSpec};

/// One direction of one hop. No two are in one cache line, as different threads may use them, and what every frame changes is in few.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct FifoHop {
    /// When the first frame comes out, and the first that waits begins to be sent; [`Instant::NEVER`] where there is none. What was
    /// just written to `frames` is not read back: that would wait for the write.
    next_out: Instant,
    next_begin: Instant,
    delay: Span,
    /// In the order in which they came: those that travel, the one that is being sent, those that wait.
    frames: VecDeque<ScheduledFrame>,
    /// How many of them do not wait.
    begun: usize,
    /// When the last of these has been sent.
    begun_until: Instant,
    /// When the last that came out had been sent.
    left_until: Instant,
    backlog: FrameTotals,
    server: ConstantRate,
    account: HopAccount,
    config: HopConfig,
}

/// A packet inside, in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
struct ScheduledFrame {
    /// Its metadata say when it entered.
    packet: Packet,
    departs: Instant,
    wire_len: u32,
}

impl ScheduledFrame {
    #[inline]
    fn counted(&self) -> CountedFrame {
        CountedFrame { count: 1, wire_len: self.wire_len, arrived: self.packet.meta.received }
    }
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
        let RateSpec::Constant(rate) = spec.rate else { return None };
        Some(Self {
            next_out: Instant::NEVER,
            next_begin: Instant::NEVER,
            delay: Self::constant_delay(spec)?,
            frames: VecDeque::new(),
            begun: 0,
            begun_until: Instant::ORIGIN,
            left_until: Instant::ORIGIN,
            backlog: FrameTotals::default(),
            server: ConstantRate::new(rate),
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

    /// Takes a packet that arrives at `now`.
    #[inline]
    pub fn arrive(&mut self, now: Instant, packet: Packet, wire_len: u32, pool: &mut Pool) {
        self.settle(now);
        let counted = CountedFrame { count: 1, wire_len, arrived: now };
        self.account.entered.add(counted);
        self.account.on_arrival(now, self.backlog.frames, counted);
        if !self.config.limit.takes(self.backlog, counted) {
            return self.discard(now, packet, wire_len, pool);
        }
        let begins = now.max(self.server.finished());
        let departs = self.server.finish(begins, 8 * u64::from(wire_len));
        if begins > now {
            self.backlog.add(counted);
            self.next_begin = self.next_begin.min(begins);
        } else {
            self.account.on_departure(now, counted);
            self.begun += 1;
            self.begun_until = departs;
        }
        self.next_out = self.next_out.min(departs + self.delay);
        self.frames.push_back(ScheduledFrame { packet, departs, wire_len });
        if let Some(last) = self.frames.back_mut() {
            // In its place: a change before it is moved there would be waited for.
            last.packet.meta.received = now;
            plumb_copy::prefetch_after(last);
        }
    }

    #[cold]
    fn discard(&mut self, now: Instant, packet: Packet, wire_len: u32, pool: &mut Pool) {
        let before = self.account.discarded();
        let frame = LinkFrame { packet, wire_len, count: 1, flow: 0, entered: now, arrived: now };
        self.account.context(pool).discard(frame, DiscardReason::Full);
        self.account.on_queue_discards(now, before);
    }

    /// Counts what has begun to be sent by `now`.
    #[inline]
    pub fn settle(&mut self, now: Instant) {
        if self.next_begin <= now {
            self.count_until(now);
        }
    }

    fn count_until(&mut self, now: Instant) {
        // A frame begins when the one before it has been sent.
        while let Some(next) = self.frames.get(self.begun).filter(|_| self.begun_until <= now) {
            let counted = next.counted();
            self.account.on_queue(self.begun_until, self.backlog.frames);
            self.account.on_departure(self.begun_until, counted);
            self.backlog.remove(counted);
            self.begun += 1;
            self.begun_until = next.departs;
        }
        let waits = self.backlog.frames > 0;
        self.next_begin = if waits { self.begun_until } else { Instant::NEVER };
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
            self.count_until(self.begun_until);
        }
        let first = self.frames.pop_front()?;
        let counted = first.counted();
        self.account.left.add(counted);
        self.left_until = first.departs;
        self.begun -= 1;
        out.push(first.packet);
        if self.frames.is_empty() {
            // The next frame is then written to memory that is cached.
            self.frames.clear();
        }
        let second = self.frames.front();
        self.next_out = second.map_or(Instant::NEVER, |second| second.departs + self.delay);
        self.prefetch(2);
        Some((at, counted.arrived, counted.wire_len))
    }

    /// What every frame changes is fetched into caches.
    #[inline]
    pub fn prefetch_hot(&self) {
        plumb_copy::prefetch_value(&self.next_out);
        plumb_copy::prefetch_value(&self.server);
        plumb_copy::prefetch_value(&self.account.waited);
        plumb_copy::prefetch_value(&self.account.left);
    }

    /// A frame that will be looked at soon, of a ring that may be longer than caches.
    #[inline]
    fn prefetch(&self, index: usize) {
        self.frames.get(index).into_iter().for_each(plumb_copy::prefetch_value);
    }

    /// A packet by its place in the order in which they come out.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&Packet> {
        self.frames.get(index).map(|one| &one.packet)
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
        let bits = |frame: CountedFrame| 8 * u64::from(frame.wire_len);
        let travelling = self.frames.partition_point(|one| one.departs <= now);
        let sent = self.frames.range(..travelling);
        let before = sent.clone().next_back().map_or(self.left_until, |last| last.departs);
        let sent = sent.map(ScheduledFrame::counted);
        self.account.used = 8 * self.account.left.bytes + sent.clone().map(bits).sum::<u64>();
        let sending = self.frames.range(travelling..self.begun).next().map(|one| {
            let counted = one.counted();
            (counted, bits(counted), counted.arrived.max(before), one.departs)
        });
        self.account.fill(now, &self.config, self.backlog, sending, sent, report);
    }

    /// Gives every frame back.
    pub fn clear(&mut self, pool: &mut Pool) {
        for one in self.frames.drain(..) {
            pool.free(one.packet);
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
