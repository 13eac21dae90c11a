//! Making one direction of one hop from its description, and changing it while it runs.
//!
//! What a change does not touch keeps its state; frames stay where they are. Left out: whether the
//! description can be made, which `spec::check` has found out.

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_wire::ethernet;
use plumb_wire::medium::Medium;
use plumb_wire::packet::Pool;

use super::{Account, Hop};
use crate::frame::Frame;
use crate::line::Line;
use crate::queue::{self, Limit};
use crate::rate;
use crate::rate::bucket::Bucket;
use crate::spec::{DirectionSpec, FaultSpec, RateSpec};
use crate::trace::TUN;
use crate::{delay, fault};

/// What a hop must know of the link around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Surroundings {
    /// What the link carries.
    pub medium: Medium,
    /// What every random draw of the hop comes from.
    pub seed: Seed,
    /// The link's delay, there and back: a limit in products of rate and delay is resolved with it.
    pub round_trip: Span,
}

/// What a hop was made from.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub spec: DirectionSpec,
    pub limit: Limit,
    medium: Medium,
    /// Bits a second that the rate offers in the long run; 0 where it is not limited.
    pub mean: u64,
    /// When the link began: what comes by the clock is counted from it.
    start: Instant,
    /// Faults and queues that there have been, each with random draws of its own.
    faults: usize,
    queues: usize,
}

impl Made {
    /// Bits that the rate is spent on for a frame.
    #[inline]
    pub fn bits(&self, frame: &Frame) -> u64 {
        let bytes = u64::from(frame.wire_len);
        8 * match &self.spec.rate {
            RateSpec::Trace(trace) if trace.of_packets => {
                let header = match self.medium {
                    Medium::Ethernet => ethernet::HEADER_LEN as u64,
                    Medium::Ip => 0,
                };
                let count = u64::from(frame.count);
                bytes.saturating_sub(header * count) + TUN * count
            }
            _ => bytes,
        }
    }
}

impl Hop {
    /// A hop that is empty.
    pub fn new(spec: &DirectionSpec, surroundings: Surroundings, now: Instant) -> Self {
        let limit = spec.limit(surroundings.round_trip);
        Self {
            policer: spec.policer.map(|bucket| Bucket::new(bucket, now)),
            queue: make_queue(spec, limit, 0, surroundings.seed),
            server: rate::make(&spec.rate, now),
            sending: None,
            held: Line::default(),
            faults: spec
                .faults
                .iter()
                .enumerate()
                .map(|(number, one)| make_fault(one, number, now, surroundings.seed))
                .collect(),
            struck: [Vec::new(), Vec::new()],
            delay: delay::make(&spec.delay, surroundings.seed.stream("delay")),
            least_delay: spec.delay.least(),
            in_order: !spec.delay.may_overtake,
            line: Line::default(),
            last_due: Instant::ORIGIN,
            next: Instant::NEVER,
            account: Account::new(surroundings.medium, now),
            made: Made {
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
    pub fn set(
        &mut self,
        now: Instant,
        spec: &DirectionSpec,
        surroundings: Surroundings,
        pool: &mut Pool,
    ) {
        let limit = spec.limit(surroundings.round_trip);
        let bits_left_of = self.sending.as_ref().map(|sending| self.made.bits(&sending.frame));
        let old = std::mem::replace(&mut self.made.spec, spec.clone());
        let old_limit = std::mem::replace(&mut self.made.limit, limit);
        if old.rate != spec.rate {
            self.account.on_rate(now, self.made.mean);
            self.made.mean = mean(spec);
            let start = match spec.rate {
                RateSpec::OnOff { .. } => self.made.start,
                _ => now,
            };
            let old_server = std::mem::replace(&mut self.server, rate::make(&spec.rate, start));
            if let (Some(sending), Some(bits)) = (&mut self.sending, bits_left_of) {
                let left = old_server.remaining(now, sending.finish, bits);
                sending.finish = self.server.finish(now, left);
            }
        }
        if old.policer != spec.policer {
            self.policer = spec.policer.map(|bucket| Bucket::new(bucket, now));
        }
        if old.queue.with_limit(spec.queue.limit()) != spec.queue {
            let queue = make_queue(spec, limit, self.made.queues, surroundings.seed);
            self.made.queues += 1;
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
            self.delay.retune(&spec.delay);
            self.least_delay = spec.delay.least();
            self.in_order = !spec.delay.may_overtake;
        }
        self.reckon();
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
                if left.as_mut().is_some_and(|left| left.retune(spec)) {
                    *fault = left.take();
                    break;
                }
            }
        }
        for (fault, spec) in faults.into_iter().zip(new) {
            let fault = fault.unwrap_or_else(|| {
                self.made.faults += 1;
                make_fault(spec, self.made.faults - 1, self.made.start, seed)
            });
            self.faults.push(fault);
        }
    }

    fn move_queue(&mut self, now: Instant, queue: Box<dyn queue::Queue>, pool: &mut Pool) {
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
    limit: Limit,
    number: usize,
    seed: Seed,
) -> Box<dyn queue::Queue> {
    queue::make(&spec.queue, limit, seed.stream(&label("queue", number)))
}

fn make_fault(
    spec: &FaultSpec,
    number: usize,
    start: Instant,
    seed: Seed,
) -> Box<dyn fault::Fault> {
    fault::make(spec, start, seed.stream(&format!("fault {number}")))
}

/// Draws of one that took the place of another are not those of the first.
fn label(name: &str, number: usize) -> String {
    if number == 0 { name.to_owned() } else { format!("{name} {number}") }
}
