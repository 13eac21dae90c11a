//! What happens at times known from the start: connections opened and aborted, the end of the warm-up, samples.

use plumb_base::time::{Instant, Span};

use super::{START, Simulation, narrow};
use crate::flow::SimulatedFlow;
use crate::scenario::Scenario;

/// Samples where no time between two is asked for.
const SAMPLES: u64 = 200;
/// The same of very many connections.
const SAMPLES_OF_MANY: u64 = 20;
/// What very many are.
const MANY: usize = 2_000;

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ScheduledEvent {
    /// A connection is opened.
    Open(u32),
    /// A connection is aborted.
    Abort(u32),
    /// The warm-up ends.
    EndWarmup,
    /// Figures are sampled.
    Sample,
}

/// The entries that are left.
#[derive(Debug)]
pub(super) struct EventSchedule {
    /// The last is the next.
    entries: Vec<(Instant, ScheduledEvent)>,
    next_sample: Instant,
    sample_every: Span,
}

impl EventSchedule {
    pub fn new(scenario: &Scenario, flows: &[SimulatedFlow]) -> Self {
        let mut entries = Vec::new();
        if scenario.warmup > Span::ZERO {
            entries.push((START + scenario.warmup, ScheduledEvent::EndWarmup));
        }
        for (index, flow) in (0..).zip(flows) {
            entries.push((START + flow.spec.start, ScheduledEvent::Open(index)));
            entries.extend(flow.spec.stop.map(|stop| (START + stop, ScheduledEvent::Abort(index))));
        }
        entries.sort_unstable();
        entries.reverse();
        let samples = if flows.len() > MANY { SAMPLES_OF_MANY } else { SAMPLES };
        let sample_every = scenario.sample_every.unwrap_or(scenario.duration / samples);
        let sample_every = sample_every.max(Span::from_ps(1));
        Self { entries, next_sample: START + sample_every, sample_every }
    }

    fn next(&self) -> Instant {
        self.entries.last().map_or(self.next_sample, |(at, _)| self.next_sample.min(*at))
    }

    fn pop(&mut self, now: Instant) -> Option<ScheduledEvent> {
        if let Some((_, entry)) = self.entries.pop_if(|(at, _)| *at <= now) {
            return Some(entry);
        }
        if self.next_sample > now {
            return None;
        }
        self.next_sample += self.sample_every;
        Some(ScheduledEvent::Sample)
    }
}

impl Simulation {
    pub(super) fn arm_schedule(&mut self) {
        let entity = self.directed_links.len()
            + self.hosts.len()
            + self.sources.len()
            + self.processors.len();
        self.queue.set(narrow(entity), self.schedule.next());
    }

    pub(super) fn run_schedule(&mut self) {
        while let Some(entry) = self.schedule.pop(self.now) {
            match entry {
                ScheduledEvent::Open(index) => self.open_flow(index),
                ScheduledEvent::Abort(index) => self.abort_flow(index),
                ScheduledEvent::EndWarmup => self.end_warmup(),
                ScheduledEvent::Sample => self.sample(),
            }
        }
        self.arm_schedule();
    }

    fn open_flow(&mut self, index: u32) {
        let host = self.host_at(self.flows[index as usize].spec.from);
        let flow = &mut self.flows[index as usize];
        let config = &self.scenario.groups[flow.group as usize].client;
        self.hosts[host].connect(self.now, index, flow, config, &self.pool);
        self.take_turn(host);
    }

    fn abort_flow(&mut self, index: u32) {
        self.observe_flow(index as usize);
        let flow = &mut self.flows[index as usize];
        if !flow.end(self.now) {
            return;
        }
        self.flows_left -= 1;
        let (client, from) = (flow.client, flow.spec.from);
        if let Some(id) = client {
            let host = self.host_at(from);
            self.hosts[host].abort(self.now, id);
            self.take_turn(host);
        }
    }

    /// Whether every connection has ended and nothing else sends.
    pub(super) fn is_over(&self) -> bool {
        !self.flows.is_empty()
            && self.sources.is_empty()
            && self.schedule.entries.is_empty()
            && self.flows_left == 0
    }
}
