//! Making one direction of one hop from its description, and changing it while it runs.
//!
//! What a change does not touch keeps its state; frames stay where they are. Left out: whether the
//! description can be made, which `spec::check` has found out.

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_wire::medium::Medium;
use plumb_wire::packet::Pool;

use super::{Account, Hop};
use crate::line::Line;
use crate::queue::{self, Limit};
use crate::rate;
use crate::rate::bucket::Bucket;
use crate::spec::DirectionSpec;
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
}

impl Hop {
    /// A hop that is empty.
    pub fn new(spec: &DirectionSpec, surroundings: Surroundings, now: Instant) -> Self {
        let limit = spec.limit(surroundings.round_trip);
        Self {
            policer: spec.policer.map(|bucket| Bucket::new(bucket, now)),
            queue: make_queue(spec, limit, surroundings.seed),
            server: rate::make(&spec.rate, now),
            sending: None,
            held: Line::default(),
            faults: make_faults(spec, now, surroundings.seed),
            struck: [Vec::new(), Vec::new()],
            delay: make_delay(spec, surroundings.seed),
            least_delay: spec.delay.least(),
            in_order: !spec.delay.may_overtake,
            line: Line::default(),
            last_due: Instant::ORIGIN,
            next: Instant::NEVER,
            account: Account::new(surroundings.medium, now),
            made: Made { spec: spec.clone(), limit },
        }
    }

    /// Becomes what `spec` says from `now` on.
    ///
    /// What is left of a frame that is being sent goes at the new rate. Frames that wait move to a
    /// queue of another kind or limit in their order, and what finds no room there is dropped.
    pub fn set(
        &mut self,
        now: Instant,
        spec: &DirectionSpec,
        surroundings: Surroundings,
        pool: &mut Pool,
    ) {
        let limit = spec.limit(surroundings.round_trip);
        let old = std::mem::replace(&mut self.made, Made { spec: spec.clone(), limit });
        if old.spec.rate != spec.rate {
            let old_server = std::mem::replace(&mut self.server, rate::make(&spec.rate, now));
            if let Some(sending) = &mut self.sending {
                let bits = u64::from(sending.frame.wire_len) * 8;
                let left = old_server.remaining(now, sending.finish, bits);
                sending.finish = self.server.finish(now, left);
            }
        }
        if old.spec.policer != spec.policer {
            self.policer = spec.policer.map(|bucket| Bucket::new(bucket, now));
        }
        if old.spec.queue != spec.queue || old.limit != limit {
            self.move_queue(now, make_queue(spec, limit, surroundings.seed), pool);
        }
        if old.spec.faults != spec.faults {
            self.faults = make_faults(spec, now, surroundings.seed);
        }
        if old.spec.delay != spec.delay {
            self.delay = make_delay(spec, surroundings.seed);
            self.least_delay = spec.delay.least();
            self.in_order = !spec.delay.may_overtake;
        }
        self.reckon();
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

fn make_queue(spec: &DirectionSpec, limit: Limit, seed: Seed) -> Box<dyn queue::Queue> {
    queue::make(&spec.queue, limit, seed.stream("queue"))
}

fn make_faults(spec: &DirectionSpec, now: Instant, seed: Seed) -> Vec<Box<dyn fault::Fault>> {
    let make = |(i, one)| fault::make(one, now, seed.stream(&format!("fault {i}")));
    spec.faults.iter().enumerate().map(make).collect()
}

fn make_delay(spec: &DirectionSpec, seed: Seed) -> delay::Delay {
    delay::make(&spec.delay, seed.stream("delay"))
}
