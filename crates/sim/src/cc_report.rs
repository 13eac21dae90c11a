//! The questions of RFC 9743 about a congestion control, answered by simulations beside NewReno and CUBIC.
//!
//! The RFC sets no thresholds. A finding is worth a look when it is worse by a quarter than the worse of the two standards.

use std::thread::ScopedJoinHandle;

use plumb_base::seed::Seed;
use plumb_link::text::NoFiles;
use plumb_stack::tcp::congestion::CongestionChoice;

use crate::report::SimulationReport;
use crate::scenario::{Scenario, SweepPoint};
use crate::simulation::Simulation;

mod trials;

/// Memory for the packets of a trial.
const MEMORY: u64 = 2 << 30;
/// By how much a finding must be worse than those of both standards to be worth a look.
const MARGIN: f64 = 1.25;

/// Which values of a measure are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BetterDirection {
    /// Higher ones.
    Higher,
    /// Lower ones.
    Lower,
}

/// One question and how it is answered.
#[derive(Clone, Copy, Debug)]
struct CongestionTrial {
    /// Section of RFC 9743.
    section: &'static str,
    topic: &'static str,
    measure: &'static str,
    unit: &'static str,
    better: BetterDirection,
    /// The scenario. Connections of groups whose names begin with `subject` have the congestion control that is asked about.
    scenario: fn() -> String,
    value: fn(&SimulationReport) -> f64,
}

/// One answer.
#[derive(Clone, Debug, PartialEq)]
pub struct CongestionFinding {
    /// Section of RFC 9743.
    pub section: &'static str,
    /// What it is about.
    pub topic: &'static str,
    /// What was measured.
    pub measure: &'static str,
    /// Its unit: `%`, `ms`, `Mb/s`, or none.
    pub unit: &'static str,
    /// Which values are better.
    pub better: BetterDirection,
    /// With the congestion control that was asked about.
    pub value: f64,
    /// With NewReno and with CUBIC in its place.
    pub standards: [f64; 2],
}

impl CongestionFinding {
    /// Whether it is worse by a quarter than with either standard.
    pub fn is_worth_a_look(&self) -> bool {
        let [a, b] = self.standards;
        match self.better {
            BetterDirection::Higher => self.value * MARGIN < a.min(b),
            BetterDirection::Lower => self.value > a.max(b) * MARGIN,
        }
    }
}

/// Questions of RFC 9743 that simulations do not answer, by section.
pub const UNANSWERED: [(&str, &str); 7] = [
    ("5.3.1", "differences with congestion control principles: a matter of argument"),
    ("5.3.2", "incremental deployment: a matter of argument"),
    ("6.2", "tunnels: not simulated"),
    ("7.2", "circuit breakers: not simulated"),
    ("7.6", "misbehaving nodes: not simulated"),
    ("7.9", "sudden changes in the path: links do not change while they run"),
    ("7.10", "multipath transport: not implemented"),
];

/// The standards that a congestion control is compared with.
pub const STANDARDS: [CongestionChoice; 2] = [CongestionChoice::NewReno, CongestionChoice::Cubic];

/// How many questions there are.
pub fn question_count() -> usize {
    trials::TRIALS.len()
}

/// Answers the question of this number; `None` behind the last.
///
/// Panics when a simulation breaks a law: a fault in plumb.
pub fn answer(number: usize, choice: CongestionChoice, seed: Seed) -> Option<CongestionFinding> {
    let trial = trials::TRIALS.get(number)?;
    let value = |choice| (trial.value)(&simulate(trial, choice, seed));
    let (value, standards) = std::thread::scope(|scope| {
        let standards = STANDARDS.map(|choice| scope.spawn(move || value(choice)));
        let finish = |standard: ScopedJoinHandle<'_, f64>| {
            standard.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        (value(choice), standards.map(finish))
    });
    Some(CongestionFinding {
        section: trial.section,
        topic: trial.topic,
        measure: trial.measure,
        unit: trial.unit,
        better: trial.better,
        value,
        standards,
    })
}

fn simulate(trial: &CongestionTrial, choice: CongestionChoice, seed: Seed) -> SimulationReport {
    let text = (trial.scenario)();
    let point = SweepPoint::default();
    let mut scenario = Scenario::from_toml(&text, trial.topic, &point, &NoFiles)
        .expect("scenarios of trials are valid");
    scenario.seed = seed;
    for group in scenario.groups.iter_mut().filter(|group| group.name.starts_with("subject")) {
        for config in [&mut group.client, &mut group.server] {
            std::sync::Arc::make_mut(config).congestion = choice;
        }
    }
    let mut simulation = Simulation::new(scenario, MEMORY).expect("scenarios of trials are small");
    simulation.run();
    let report = simulation.finish();
    assert!(report.violations.is_empty(), "{} (seed {})", report.violations.join("; "), seed.0);
    report
}
