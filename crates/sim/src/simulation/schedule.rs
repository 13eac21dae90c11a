//! What happens at times known from the start: connections opened and aborted, the end of the warm-up, samples.

use plumb_base::time::{Instant, Span};

use super::threads::ends_early;
use super::{START, Simulation};
use crate::scenario::Scenario;

/// Samples where no time between two is asked for.
const SAMPLES: u64 = 200;
/// The same of very many connections.
const SAMPLES_OF_MANY: u64 = 20;
/// A simulation of more connections than this takes fewer samples.
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
    /// Whether the simulation ends with its last connection.
    ends_early: bool,
}

impl EventSchedule {
    pub fn new(scenario: &Scenario) -> Self {
        let mut entries = Vec::new();
        if scenario.warmup > Span::ZERO {
            entries.push((START + scenario.warmup, ScheduledEvent::EndWarmup));
        }
        let flows = scenario.groups.iter().flat_map(|group| &group.flows);
        for (index, flow) in (0..).zip(flows) {
            entries.push((START + flow.start, ScheduledEvent::Open(index)));
            entries.extend(flow.stop.map(|stop| (START + stop, ScheduledEvent::Abort(index))));
        }
        entries.sort_unstable();
        entries.reverse();
        let samples = if scenario.flow_count() > MANY { SAMPLES_OF_MANY } else { SAMPLES };
        let sample_every = scenario.sample_every.unwrap_or(scenario.duration / samples);
        let sample_every = sample_every.max(Span::from_ps(1));
        Self {
            entries,
            next_sample: START + sample_every,
            sample_every,
            ends_early: ends_early(scenario),
        }
    }

    /// When the next is.
    pub fn next(&self) -> Instant {
        self.entries.last().map_or(self.next_sample, |(at, _)| self.next_sample.min(*at))
    }

    /// Whether the simulation ends once every connection has.
    pub fn lets_end(&self) -> bool {
        self.ends_early && self.entries.is_empty()
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
    /// What is due at `now`, which it is in every process.
    pub(super) fn run_schedule(&mut self, now: Instant) {
        while let Some(entry) = self.schedule.pop(now) {
            match entry {
                ScheduledEvent::Open(index) => self.open_flow(now, index),
                ScheduledEvent::Abort(index) => self.abort_flow(now, index),
                ScheduledEvent::EndWarmup => self.end_warmup(),
                ScheduledEvent::Sample => self.sample(),
            }
        }
    }

    fn open_flow(&mut self, now: Instant, index: u32) {
        let [place, _] = self.flows[index as usize];
        let process = &mut self.processes[place.process as usize];
        let flow = &mut process.flows[place.number as usize];
        let config = &self.world.scenario.groups[flow.group as usize].client;
        let host = self.world.host_at(flow.spec.from).number as usize;
        process.hosts[host].connect(now, place.number, flow, config, &process.pool);
        process.take_turn(&self.world, host);
    }

    fn abort_flow(&mut self, now: Instant, index: u32) {
        self.observe_flow(index as usize);
        let [place, _] = self.flows[index as usize];
        let process = &mut self.processes[place.process as usize];
        let flow = &mut process.flows[place.number as usize];
        if !flow.end(now) {
            return;
        }
        process.flows_left -= 1;
        if let Some(id) = flow.client {
            let host = self.world.host_at(flow.spec.from).number as usize;
            process.hosts[host].abort(now, id);
            process.take_turn(&self.world, host);
        }
    }

    /// Whether every connection has ended and nothing else sends.
    pub(super) fn is_over(&self) -> bool {
        self.schedule.lets_end() && self.processes.iter().all(|process| process.flows_left == 0)
    }
}
