//! Making one direction of one hop from its description, and changing it while it runs.
//!
//! What a change does not touch keeps its state; frames stay where they are.

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_wire::ethernet;
use plumb_wire::medium::Medium;
use plumb_wire::packet::Pool;

use super::{HopAccount, HopDirection};
use crate::delay::{self, DelayLine};
use crate::fault;
use crate::frame::LinkFrame;
use crate::queue::{self, QueueLimit};
use crate::rate::{self, GcraBucket};
use crate::spec::{DirectionSpec, FaultSpec, RateSpec};
use crate::trace::TUN_HEADER_LEN;

/// What a hop must know of the link around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkParameters {
    /// What the link carries.
    pub medium: Medium,
    /// What every random draw of the hop comes from.
    pub seed: Seed,
    /// The link's delay, there and back: a limit in products of rate and delay is resolved with it.
    pub round_trip: Span,
}

/// What a hop was made from.
#[derive(Clone, Debug)]
pub(crate) struct HopConfig {
    pub spec: DirectionSpec,
    pub limit: QueueLimit,
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
            config: HopConfig {
                spec: spec.clone(),
                limit,
                medium: surroundings.medium,
                mean: mean(spec),
                start: now,
                faults: spec.faults.len(),
                queues: 1,
            },
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
        if old.queue.with_limit(spec.queue.limit()) != spec.queue {
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
                if left.as_mut().is_some_and(|left| left.reconfigure(spec)) {
                    *fault = left.take();
                    break;
                }
            }
        }
        for (fault, spec) in faults.into_iter().zip(new) {
            let fault = fault.unwrap_or_else(|| {
                self.config.faults += 1;
                make_fault(spec, self.config.faults - 1, self.config.start, seed)
            });
            self.faults.push(fault);
        }
    }

    fn move_queue(
        &mut self,
        now: Instant,
        queue: Box<dyn queue::QueueDiscipline>,
        pool: &mut Pool,
    ) {
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
    spec.rate.mean().map_or(0, plumb_base::units::rate::Rate::bits_per_second)
}

fn make_queue(
    spec: &DirectionSpec,
    limit: QueueLimit,
    number: usize,
    seed: Seed,
) -> Box<dyn queue::QueueDiscipline> {
    queue::make(&spec.queue, limit, seed.stream(&label("queue", number)))
}

fn make_fault(spec: &FaultSpec, number: usize, start: Instant, seed: Seed) -> fault::WireFault {
    fault::make(spec, start, seed.stream(&format!("fault {number}")))
}

/// Draws of one that took the place of another are not those of the first.
fn label(name: &str, number: usize) -> String {
    if number == 0 { name.to_owned() } else { format!("{name} {number}") }
}
