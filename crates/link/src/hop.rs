//! One direction of one hop: policer, queue, rate, the wire's faults, delay.
//!
//! Everything happens at its logical moment, in the order of time; whoever owns a hop steps it through them.

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_wire::ethernet;
use plumb_wire::machine::Medium;
use plumb_wire::packet::Pool;

use crate::delay::{self, DelayLine, DelaySampler};
use crate::fault::WireFault;
use crate::frame::{DiscardReason, FrameTotals, LinkFrame};
use crate::queue::{self, QueueDiscipline};
use crate::rate::{self, GcraBucket, RateServer};
use crate::spec::{DirectionSpec, FaultSpec, QueueLimit, RateSpec};
use crate::trace::TUN_HEADER_LEN;

mod account;
mod fifo;

pub(crate) use account::HopAccount;
pub(crate) use fifo::FifoHop;

/// One direction of one hop.
#[derive(Debug)]
pub(crate) struct HopDirection {
    config: HopConfig,
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
    /// Its bits that count against the rate.
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

    /// What waits for the rate.
    #[inline]
    pub fn backlog(&self) -> FrameTotals {
        self.queue.backlog()
    }

    /// Bytes of memory that its queue takes to tell flows apart.
    pub fn flow_state(&self) -> usize {
        self.queue.flow_state()
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
        self.account.on_arrival(now, self.queue.backlog().frames, (&frame).into());
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
            self.account.on_departure(now, (&frame).into());
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

/// What a hop must know about the link around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkParameters {
    /// What the link carries.
    pub medium: Medium,
    /// What every random draw of the hop comes from.
    pub seed: Seed,
    /// The link's delay, there and back: a limit in products of rate and delay is resolved with it.
    pub round_trip: Span,
}

/// What a hop was made from; first what every frame needs.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct HopConfig {
    pub limit: QueueLimit,
    pub spec: DirectionSpec,
    medium: Medium,
    /// Bits a second that the rate offers in the long run; 0 where it is not limited.
    pub mean: u64,
    /// When the link began: what comes by the clock is counted from it.
    start: Instant,
    /// Faults and queues that there have been, each with random draws of its own.
    faults: usize,
    queues: usize,
}

impl HopConfig {
    fn new(spec: &DirectionSpec, parameters: LinkParameters, now: Instant) -> Self {
        Self {
            spec: spec.clone(),
            limit: spec.limit(parameters.round_trip),
            medium: parameters.medium,
            mean: mean(spec),
            start: now,
            faults: spec.faults.len(),
            queues: 1,
        }
    }

    /// Bits that the rate is spent on for a frame.
    #[inline]
    pub fn bits(&self, frame: &LinkFrame) -> u64 {
        let bytes = u64::from(frame.wire_len);
        8 * match &self.spec.rate {
            RateSpec::Trace(trace) if trace.counts_ip_packets => {
                let header = match self.medium {
                    Medium::Ethernet => ethernet::HEADER_LEN as u64,
                    Medium::Ip => 0,
                };
                let count = u64::from(frame.count);
                bytes.saturating_sub(header * count) + TUN_HEADER_LEN * count
            }
            _ => bytes,
        }
    }
}

impl HopDirection {
    /// A hop that is empty.
    pub fn new(spec: &DirectionSpec, surroundings: LinkParameters, now: Instant) -> Self {
        let limit = spec.limit(surroundings.round_trip);
        Self {
            policer: spec.policer.map(|bucket| GcraBucket::new(bucket, now)),
            queue: make_queue(spec, limit, 0, surroundings.seed),
            server: rate::make(&spec.rate, now),
            sending: None,
            held: DelayLine::default(),
            faults: spec
                .faults
                .iter()
                .enumerate()
                .map(|(number, one)| make_fault(one, number, now, surroundings.seed))
                .collect(),
            fault_buffers: [Vec::new(), Vec::new()],
            delay: delay::make(&spec.delay, surroundings.seed.stream("delay")),
            least_delay: spec.delay.least(),
            in_order: !spec.delay.may_overtake,
            propagating: DelayLine::default(),
            last_due: Instant::ORIGIN,
            next: Instant::NEVER,
            account: HopAccount::new(surroundings.medium, now),
            config: HopConfig::new(spec, surroundings, now),
        }
    }

    /// Becomes what `spec` says from `now` on.
    ///
    /// What is left of a frame that is being sent goes at the new rate. Frames that wait move to a
    /// queue of another kind in their order, and what finds no room is dropped. What comes by the clock keeps to the
    /// link's start, and what is drawn goes on among its draws.
    pub fn reconfigure(
        &mut self,
        now: Instant,
        spec: &DirectionSpec,
        surroundings: LinkParameters,
        pool: &mut Pool,
    ) {
        let limit = spec.limit(surroundings.round_trip);
        let bits_left_of = self.sending.as_ref().map(|sending| self.config.bits(&sending.frame));
        let old = std::mem::replace(&mut self.config.spec, spec.clone());
        let old_limit = std::mem::replace(&mut self.config.limit, limit);
        if old.rate != spec.rate {
            self.account.on_rate(now, self.config.mean);
            self.config.mean = mean(spec);
            self.queue.set_rate(self.config.mean);
            let start = match spec.rate {
                RateSpec::OnOff { .. } => self.config.start,
                _ => now,
            };
            let old_server = std::mem::replace(&mut self.server, rate::make(&spec.rate, start));
            if let (Some(sending), Some(bits)) = (&mut self.sending, bits_left_of) {
                let left = old_server.remaining(now, sending.finish, bits);
                sending.finish = self.server.finish(now, left);
            }
        }
        if old.policer != spec.policer {
            self.policer = spec.policer.map(|bucket| GcraBucket::new(bucket, now));
        }
        let mut same_kind = old.queue;
        *same_kind.limit_mut() = spec.queue.limit();
        if same_kind != spec.queue {
            let queue = make_queue(spec, limit, self.config.queues, surroundings.seed);
            self.config.queues += 1;
            self.move_queue(now, queue, pool);
        } else if old_limit != limit {
            self.account.on_queue(now, self.queue.backlog().frames);
            let before = self.account.discarded();
            self.queue.set_limit(limit, &mut self.account.context(pool));
            self.account.on_queue_discards(now, before);
        }
        if old.faults != spec.faults {
            self.change_faults(&old.faults, &spec.faults, surroundings.seed);
        }
        if old.delay != spec.delay {
            self.delay.reconfigure(&spec.delay);
            self.least_delay = spec.delay.least();
            self.in_order = !spec.delay.may_overtake;
        }
        self.update_next();
    }

    /// A fault that stays what it was, or of its kind, stays with all that it knows.
    fn change_faults(&mut self, old: &[FaultSpec], new: &[FaultSpec], seed: Seed) {
        let start = self.config.start;
        let mut former: Vec<_> = std::mem::take(&mut self.faults).into_iter().map(Some).collect();
        let mut faults: Vec<_> = new
            .iter()
            .map(|spec| {
                let mut same = old.iter().zip(&mut former);
                same.find(|(was, fault)| *was == spec && fault.is_some())?.1.take()
            })
            .collect();
        for (fault, spec) in faults.iter_mut().zip(new).filter(|(fault, _)| fault.is_none()) {
            for left in &mut former {
                if left.as_mut().is_some_and(|left| left.reconfigure(spec, start)) {
                    *fault = left.take();
                    break;
                }
            }
        }
        for (fault, spec) in faults.into_iter().zip(new) {
            let fault = fault.unwrap_or_else(|| {
                self.config.faults += 1;
                make_fault(spec, self.config.faults - 1, start, seed)
            });
            self.faults.push(fault);
        }
    }

    fn move_queue(&mut self, now: Instant, queue: Box<dyn QueueDiscipline>, pool: &mut Pool) {
        self.account.on_queue(now, self.queue.backlog().frames);
        let before = self.account.discarded();
        let mut old = std::mem::replace(&mut self.queue, queue);
        let mut context = self.account.context(pool);
        let mut waiting = Vec::new();
        old.drain(&mut waiting);
        for frame in waiting {
            self.queue.enqueue(now, frame, &mut context);
        }
        self.account.on_queue_discards(now, before);
    }
}

fn mean(spec: &DirectionSpec) -> u64 {
    spec.rate.mean().map_or(0, plumb_base::units::Rate::bits_per_second)
}

fn make_queue(
    spec: &DirectionSpec,
    limit: QueueLimit,
    number: usize,
    seed: Seed,
) -> Box<dyn QueueDiscipline> {
    queue::make(&spec.queue, limit, mean(spec), seed.stream(&label("queue", number)))
}

fn make_fault(spec: &FaultSpec, number: usize, start: Instant, seed: Seed) -> WireFault {
    WireFault::new(spec, start, seed.stream(&format!("fault {number}")))
}

/// Draws of one that took the place of another are not those of the first.
fn label(name: &str, number: usize) -> String {
    if number == 0 { name.to_owned() } else { format!("{name} {number}") }
}
