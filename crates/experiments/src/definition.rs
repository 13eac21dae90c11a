//! What an experiment is: what it asks, varies and measures, and the cells it makes.

use std::num::NonZero;

use plumb_analysis::registry::ExperimentAnalysis;
use plumb_base::time::Span;
use plumb_base::units::Unit;
use plumb_harness::spec::{BlockTask, LaunchSubject};
use plumb_harness::topology::{CpuPlacement, CpuTopology};
use plumb_report::registry::ExperimentPage;
use plumb_store::record::{Better, Factors};

use crate::factor::Factor;
use crate::surroundings::Surroundings;

/// What an experiment asks, varies and measures.
#[derive(Debug)]
pub struct Experiment {
    /// Stable id: `latency.local`.
    pub id: &'static str,
    /// The study it belongs to.
    pub study: &'static str,
    /// What it asks, in one sentence.
    pub question: &'static str,
    /// What is expected, in terms of its factors and responses, stated before measuring.
    pub hypothesis: &'static str,
    /// What is varied; the first one decides which levels suit the others.
    pub factors: &'static [Factor],
    /// What is measured.
    pub responses: &'static [ResponseVariable],
    /// How one cell is measured, or why it is not.
    pub(crate) plan_cell: fn(&DesignPoint<'_>) -> CellDecision,
    /// Its claims, ratios and ranks.
    pub analysis: ExperimentAnalysis,
    /// Its title, figures and sentences.
    pub page: ExperimentPage,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseVariable {
    /// Its name in results: `latency`.
    pub name: &'static str,
    /// The unit of its values.
    pub unit: Unit,
    /// Which direction is good.
    pub better: Better,
    /// What it is, in a few words.
    pub meaning: &'static str,
}

impl ResponseVariable {
    /// A variable.
    pub(crate) const fn new(
        name: &'static str,
        unit: Unit,
        better: Better,
        meaning: &'static str,
    ) -> Self {
        Self { name, unit, better, meaning }
    }

    /// A time in nanoseconds.
    pub(crate) const fn time(name: &'static str, meaning: &'static str) -> Self {
        Self::new(name, Unit::Nanoseconds, Better::Lower, meaning)
    }

    /// A share of something.
    pub(crate) const fn share(name: &'static str, better: Better, meaning: &'static str) -> Self {
        Self::new(name, Unit::Share, better, meaning)
    }

    /// Bytes a second.
    pub(crate) const fn rate(name: &'static str, meaning: &'static str) -> Self {
        Self::new(name, Unit::BytesPerSecond, Better::Higher, meaning)
    }
}

/// One combination of levels, about to become a cell.
#[derive(Debug)]
pub(crate) struct DesignPoint<'a> {
    pub(crate) factors: &'a Factors,
    pub(crate) response: &'a str,
    pub(crate) topology: &'a CpuTopology,
    pub(crate) surroundings: &'a Surroundings,
}

impl<'a> DesignPoint<'a> {
    /// The level of a factor that is a word.
    pub(crate) fn text(&self, factor: &str) -> Option<&'a str> {
        self.factors.text(factor)
    }
}

/// The launch and the task of a cell, or why there is none.
pub(crate) type CellDecision = Result<(LaunchGroup, BlockTask), Exclusion>;

/// Why a combination of levels is not measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Exclusion {
    /// It cannot be done anywhere: the levels exclude each other.
    Impossible(String),
    /// It cannot be done on this host.
    Unavailable(String),
    /// The response says nothing at these levels; there is no such cell.
    NotApplicable,
}

impl Exclusion {
    pub(crate) fn impossible(why: impl Into<String>) -> Self {
        Self::Impossible(why.into())
    }

    pub(crate) fn unavailable(why: impl Into<String>) -> Self {
        Self::Unavailable(why.into())
    }
}

/// One experiment at one setting of its factors with one response, and what to do about it.
#[derive(Clone, Debug, PartialEq)]
pub struct CellPlan {
    /// Id of the experiment.
    pub experiment: String,
    /// Every factor and its level.
    pub factors: Factors,
    /// What is measured.
    pub response: String,
    /// The unit of its values.
    pub unit: Unit,
    /// Which direction is good.
    pub better: Better,
    /// How.
    pub action: CellAction,
}

/// What to do about a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum CellAction {
    /// Measure it in a launch of its group.
    Measure {
        /// What the launch holds constant.
        group: LaunchGroup,
        /// What a block measures.
        task: BlockTask,
        /// A spin added to each operation, to prove that a known delay is found.
        injected: Span,
    },
    /// Do not: it cannot be done here, and why.
    Unavailable(String),
}

/// What a launch holds constant; cells with equal groups share launches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaunchGroup {
    /// What stands between worker and peer.
    pub subject: LaunchSubject,
    /// Where worker and peer run.
    pub placement: CpuPlacement,
    /// The CPU of the worker where the cell names one, instead of the placement's.
    pub cpu: Option<u32>,
}

impl LaunchGroup {
    /// A launch of this subject on the CPUs of a placement.
    pub(crate) const fn new(subject: LaunchSubject, placement: CpuPlacement) -> Self {
        Self { subject, placement, cpu: None }
    }

    /// A single process.
    pub(crate) const fn alone() -> Self {
        Self::new(LaunchSubject::Alone, CpuPlacement::SameCpu)
    }

    /// A single process in virtual time, on any CPU.
    pub(crate) const fn virtual_time() -> Self {
        Self::new(LaunchSubject::VirtualTime, CpuPlacement::Scheduler)
    }

    /// How many launches are made at once: of what is simulated one for each CPU, as none disturbs another.
    pub(crate) fn launches_at_once(&self) -> u32 {
        /// Each may take a gigabyte.
        const SIMULATED_MAX: usize = 4;
        if self.subject != LaunchSubject::VirtualTime {
            return 1;
        }
        let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
        u32::try_from(cpus.min(SIMULATED_MAX)).unwrap_or(1)
    }
}

impl CellPlan {
    /// One line for people: `latency.local mechanism=pipe size=64 … [latency]`.
    pub fn label(&self) -> String {
        format!("{} {} [{}]", self.experiment, self.factors, self.response)
    }
}

impl Experiment {
    /// The factor of a name.
    pub fn factor(&self, name: &str) -> Option<&'static Factor> {
        self.factors.iter().find(|factor| factor.name == name)
    }
}
