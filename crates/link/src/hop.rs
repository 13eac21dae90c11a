//! One direction of one hop: policer, queue, rate, the wire's faults, delay.
//!
//! Everything happens at its logical moment, in the order of time; whoever owns a hop steps it through them.

use plumb_base::time::{Instant, Span};
use plumb_wire::packet::Pool;

use crate::delay::{DelayLine, DelaySampler};
use crate::fault::WireFault;
use crate::frame::{DiscardReason, LinkFrame};
use crate::queue::{QueueDiscipline, QueueLimit};
use crate::rate::{GcraBucket, RateServer};
use crate::spec::DirectionSpec;

mod account;
mod config;

pub(crate) use account::HopAccount;
pub(crate) use config::LinkParameters;

/// One direction of one hop.
#[derive(Debug)]
pub(crate) struct HopDirection {
    config: config::HopConfig,
    policer: Option<GcraBucket>,
    queue: Box<dyn QueueDiscipline>,
    server: RateServer,
    sending: Option<FrameInService>,
    faults: Vec<WireFault>,
    /// What a fault holds back.
    held: DelayLine,
    fault_buffers: [Vec<(Instant, LinkFrame)>; 2],
    delay: DelaySampler,
    least_delay: Span,
    in_order: bool,
    propagating: DelayLine,
    last_due: Instant,
    next: Instant,
    account: HopAccount,
}

/// The frame that is being sent.
#[derive(Debug)]
struct FrameInService {
    frame: LinkFrame,
    /// What the rate is spent on for it.
    bits: u64,
    started: Instant,
    finish: Instant,
}

impl HopDirection {
    /// When [`HopDirection::step`] is due; [`Instant::NEVER`] when nothing is.
    #[inline]
    pub fn next(&self) -> Instant {
        self.next
    }

    /// The earliest moment at which a frame may come out, of all that is inside.
    #[inline]
    pub fn earliest_out(&self) -> Instant {
        // A queue's own deadline brings nothing out.
        let inside = self.finish().min(self.held.due());
        self.propagating.due().min(if inside == Instant::NEVER {
            inside
        } else {
            inside + self.least_delay
        })
    }

    /// The least time that a frame travels.
    pub fn least_delay(&self) -> Span {
        self.least_delay
    }

    /// What it is.
    #[inline]
    pub fn spec(&self) -> &DirectionSpec {
        &self.config.spec
    }

    /// How much may wait.
    pub fn limit(&self) -> QueueLimit {
        self.config.limit
    }

    /// Takes a frame that arrives at `now`.
    pub fn arrive(&mut self, now: Instant, mut frame: LinkFrame, pool: &mut Pool) {
        frame.arrived = now;
        self.account.entered.add(&frame);
        if let Some(policer) = &mut self.policer
            && !policer.conforms(now, u64::from(frame.wire_len) * 8)
        {
            self.account.context(pool).discard(frame, DiscardReason::Policed);
            return;
        }
        self.account.on_arrival(now, self.queue.backlog().frames, &frame);
        let before = self.account.discarded();
        self.queue.enqueue(now, frame, &mut self.account.context(pool));
        self.account.on_queue_discards(now, before);
        self.start_transmission(now, pool);
        self.update_next();
    }

    /// Ends a frame that would have entered.
    pub fn discard_on_entry(
        &mut self,
        now: Instant,
        mut frame: LinkFrame,
        reason: DiscardReason,
        pool: &mut Pool,
    ) {
        frame.arrived = now;
        self.account.entered.add(&frame);
        self.account.context(pool).discard(frame, reason);
    }

    /// Does what is due at `now`, and appends what comes out to `out`.
    ///
    /// To be called at [`HopDirection::next`], not later.
    pub fn step(&mut self, now: Instant, out: &mut Vec<LinkFrame>, pool: &mut Pool) {
        while let Some((at, frame)) = self.held.pop(now) {
            self.propagate(at, frame);
        }
        if self.queue.deadline().is_some_and(|due| due <= now) {
            self.account.on_queue(now, self.queue.backlog().frames);
            let before = self.account.discarded();
            self.queue.handle_deadline(now, &mut self.account.context(pool));
            self.account.on_queue_discards(now, before);
        }
        if let Some(sending) = self.sending.take_if(|sending| sending.finish <= now) {
            self.account.used += sending.bits;
            self.leave(sending.finish, sending.frame, pool);
        }
        self.start_transmission(now, pool);
        while let Some((_, frame)) = self.propagating.pop(now) {
            self.account.left.add(&frame);
            out.push(frame);
        }
        self.update_next();
    }

    /// Begins to send, where nothing is being sent and something waits.
    fn start_transmission(&mut self, now: Instant, pool: &mut Pool) {
        while self.sending.is_none() {
            let waiting = self.queue.backlog().frames;
            if waiting == 0 {
                return;
            }
            self.account.on_queue(now, waiting);
            let before = self.account.discarded();
            let frame = self.queue.dequeue(now, &mut self.account.context(pool));
            self.account.on_queue_discards(now, before);
            let Some(frame) = frame else { return };
            self.account.on_departure(now, &frame);
            let bits = self.config.bits(&frame);
            let finish = self.server.finish(now, bits);
            if finish <= now {
                self.account.used += if self.config.mean > 0 { bits } else { 0 };
                self.leave(now, frame, pool);
            } else {
                self.sending = Some(FrameInService { frame, bits, started: now, finish });
            }
        }
    }

    /// A frame's last bit leaves: the wire does to it what it does.
    #[inline]
    fn leave(&mut self, at: Instant, frame: LinkFrame, pool: &mut Pool) {
        if self.faults.is_empty() {
            self.propagate(at, frame);
        } else {
            self.apply_faults(at, frame, pool);
        }
    }

    fn apply_faults(&mut self, at: Instant, frame: LinkFrame, pool: &mut Pool) {
        let [mut struck, mut next] = std::mem::take(&mut self.fault_buffers);
        struck.push((at, frame));
        let mut context = self.account.context(pool);
        for fault in &mut self.faults {
            for (at, frame) in struck.drain(..) {
                fault.apply(at, frame, &mut next, &mut context);
            }
            std::mem::swap(&mut struck, &mut next);
        }
        for (leaves, frame) in struck.drain(..) {
            if leaves > at {
                self.held.push(leaves, frame);
            } else {
                self.propagate(at, frame);
            }
        }
        self.fault_buffers = [struck, next];
    }

    /// A frame begins to travel; moments of this do not go backwards.
    #[inline]
    fn propagate(&mut self, at: Instant, frame: LinkFrame) {
        let mut due = at + self.delay.sample();
        if self.in_order {
            due = due.max(self.last_due);
            self.last_due = due;
        }
        self.propagating.push(due, frame);
    }

    fn finish(&self) -> Instant {
        self.sending.as_ref().map_or(Instant::NEVER, |sending| sending.finish)
    }

    fn update_next(&mut self) {
        let queue = self.queue.deadline().unwrap_or(Instant::NEVER);
        self.next = self.finish().min(self.held.due()).min(queue).min(self.propagating.due());
    }

    /// Gives every frame back.
    pub fn clear(&mut self, pool: &mut Pool) {
        if let Some(sending) = self.sending.take() {
            pool.free(sending.frame.packet);
        }
        let mut waiting = Vec::new();
        self.queue.drain(&mut waiting);
        for frame in waiting {
            pool.free(frame.packet);
        }
        for line in [&mut self.held, &mut self.propagating] {
            while let Some((_, frame)) = line.pop(Instant::NEVER) {
                pool.free(frame.packet);
            }
        }
        self.update_next();
    }
}
