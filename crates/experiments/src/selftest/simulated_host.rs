//! A simulated host: launches whose blocks take simulated time and whose samples have a known truth. All else of a run
//! is the code that measures real processes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use plumb_base::seed::{RandomStream, Seed};
use plumb_base::stats::simulation::{BurstySamples, LaunchEffect, normal};
use plumb_base::time::Span;
use plumb_harness::launcher::LaunchError;
use plumb_harness::report::{BlockReport, EffortReport, LaunchFacts, summarize};
use plumb_harness::spec::{BlockSpec, BlockTask, LaunchSubject, Mechanism};
use rand::RngExt as _;

use crate::definition::LaunchGroup;
use crate::run::block::{LaunchSource, OpenLaunch};

/// The true median of the first level, in nanoseconds.
pub(super) const MEDIAN_NS: f64 = 1_000.0;

/// Samples of a block: too few to look for a warm-up among them, enough for a median within 0.3 %.
const SAMPLES: usize = 24;

/// Samples of a block whose tail is looked at.
const SAMPLES_BURSTY: usize = 6_000;

/// Standard deviation of the samples of a block, as a share of the median.
const SAMPLE_SD: f64 = 0.01;

/// Mean length of a spell of disturbance, and of the time between two, in blocks.
const SPELL_BLOCKS: f64 = 20.0;

/// By how much a spell slows the host: anything between these shares.
const SPELL_SLOWDOWN: [f64; 2] = [0.1, 0.5];

/// What the host itself does to every block, whatever is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum HostNoise {
    /// Nothing.
    Quiet,
    /// A factor that drifts: the standard deviation of its logarithm, and the time in which its correlation falls
    /// to 1/e.
    Drift(f64, Span),
    /// Half of the time in spells of about twenty blocks, which the canary shows.
    Spells,
}

/// What is true of the simulated host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SimulatedTruth {
    /// By what launches differ, each cell for itself.
    pub(super) effect: LaunchEffect,
    /// What happens to all of them.
    pub(super) noise: HostNoise,
    /// What the second level costs, with the first at 1.
    pub(super) second: f64,
    /// Share of the second level's blocks that are half as slow again.
    pub(super) second_slow: f64,
    /// Whether samples come in bursts.
    pub(super) is_bursty: bool,
}

impl SimulatedTruth {
    /// Two equal levels whose launches differ so.
    pub(super) const fn equal(effect: LaunchEffect) -> Self {
        let noise = HostNoise::Quiet;
        Self { effect, noise, second: 1.0, second_slow: 0.0, is_bursty: false }
    }
}

/// The mechanisms that stand for the two levels.
pub(super) const LEVELS: [Mechanism; 2] = [Mechanism::Pipe, Mechanism::Fifo];

/// A host with a clock of its own.
pub(super) struct SimulatedHost(Rc<RefCell<HostState>>);

struct HostState {
    truth: SimulatedTruth,
    now: Span,
    stream: RandomStream,
    drift: f64,
    spell: Option<f64>,
}

impl SimulatedHost {
    /// A host at time zero.
    pub(super) fn new(truth: SimulatedTruth, seed: Seed) -> Self {
        let mut stream = seed.stream("simulated host");
        let drift = normal(&mut stream);
        Self(Rc::new(RefCell::new(HostState {
            truth,
            now: Span::ZERO,
            stream,
            drift,
            spell: None,
        })))
    }
}

impl HostState {
    /// Lets a block's time pass; the factor on its samples and on its canary.
    fn pass(&mut self, block: Span) -> (f64, f64) {
        self.now += block;
        match self.truth.noise {
            HostNoise::Quiet => (1.0, 1.0),
            HostNoise::Drift(sd, time) => {
                let kept = (-block.as_secs_f64() / time.as_secs_f64()).exp();
                let fresh = (1.0 - kept * kept).sqrt();
                self.drift = kept * self.drift + fresh * normal(&mut self.stream);
                ((sd * self.drift).exp(), 1.0)
            }
            HostNoise::Spells => {
                if self.stream.random::<f64>() < 1.0 / SPELL_BLOCKS {
                    let [least, most] = SPELL_SLOWDOWN;
                    let slowdown = least + (most - least) * self.stream.random::<f64>();
                    self.spell = if self.spell.is_none() { Some(1.0 + slowdown) } else { None };
                }
                let factor = self.spell.unwrap_or(1.0);
                (factor, factor)
            }
        }
    }
}

impl LaunchSource for SimulatedHost {
    fn elapsed(&self) -> Span {
        self.0.borrow().now
    }

    fn start(
        &mut self,
        group: &LaunchGroup,
        seed: u64,
        _deadline: Span,
    ) -> Result<Box<dyn OpenLaunch>, LaunchError> {
        let is_second = matches!(&group.subject, LaunchSubject::Channel(channel)
            if channel.mechanism == LEVELS[1]);
        Ok(Box::new(SimulatedLaunch {
            host: Rc::clone(&self.0),
            is_second,
            stream: Seed(seed).stream("simulated launch"),
            effects: BTreeMap::new(),
            facts: LaunchFacts::default(),
        }))
    }
}

struct SimulatedLaunch {
    host: Rc<RefCell<HostState>>,
    is_second: bool,
    stream: RandomStream,
    /// What this launch is off by, for each size of message.
    effects: BTreeMap<u64, f64>,
    facts: LaunchFacts,
}

impl OpenLaunch for SimulatedLaunch {
    fn facts(&self) -> &LaunchFacts {
        &self.facts
    }

    fn request(&mut self, _spec: &BlockSpec) -> Result<(), LaunchError> {
        Ok(())
    }

    fn answer(&mut self, spec: &BlockSpec, _deadline: Span) -> Result<BlockReport, LaunchError> {
        let BlockTask::Latency { size } = spec.task else {
            return Err(LaunchError::Unavailable("only latencies are simulated".to_owned()));
        };
        let mut host = self.host.borrow_mut();
        let (host_factor, canary) = host.pass(Span::from_ns(spec.duration_ns));
        let truth = host.truth;
        drop(host);
        let stream = &mut self.stream;
        let effect =
            *self.effects.entry(size).or_insert_with(|| truth.effect.factors(1, stream)[0]);
        let mut factor = MEDIAN_NS * effect * host_factor;
        if self.is_second {
            let is_slow = stream.random::<f64>() < truth.second_slow;
            factor *= truth.second * if is_slow { 1.5 } else { 1.0 };
        }
        let values: Vec<f64> = if truth.is_bursty {
            let samples = BurstySamples::TYPICAL.block(SAMPLES_BURSTY, stream);
            samples.into_iter().map(|sample| sample * factor).collect()
        } else {
            (0..SAMPLES).map(|_| factor * (1.0 + SAMPLE_SD * normal(stream))).collect()
        };
        let effort = EffortReport {
            canary_ns: 1_000.0 * canary,
            wall_ns: spec.duration_ns,
            operations: values.len() as u64,
            ..EffortReport::default()
        };
        let mut report = BlockReport { batch: 1, effort, ..BlockReport::default() };
        summarize(&values, 0.001, spec, &mut report);
        Ok(report)
    }

    fn finish(self: Box<Self>) {}
}
