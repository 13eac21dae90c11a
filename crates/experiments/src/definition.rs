//! What an experiment is: what it asks, varies and measures, and the cells it makes.

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
    /// The form of one cell.
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

/// One combination of levels, about to become a cell.
#[derive(Debug)]
pub(crate) struct DesignPoint<'a> {
    pub(crate) factors: &'a Factors,
    pub(crate) response: &'a str,
    pub(crate) topology: &'a CpuTopology,
    pub(crate) surroundings: &'a Surroundings,
}

/// What becomes of a combination of levels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CellDecision {
    /// It can be tried.
    Measure { group: LaunchGroup, task: BlockTask },
    /// It cannot, and why.
    Excluded(Exclusion),
    /// The response says nothing at these levels; there is no such cell.
    NotApplicable,
}

/// Why a combination of levels cannot be measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Exclusion {
    /// It cannot be done anywhere: the levels exclude each other.
    Impossible(String),
    /// It cannot be done on this host.
    Unavailable(String),
}

impl CellDecision {
    /// A task in a launch of its group, unless the group is excluded.
    pub(crate) fn measure(group: Result<LaunchGroup, Exclusion>, task: BlockTask) -> Self {
        match group {
            Ok(group) => Self::Measure { group, task },
            Err(exclusion) => Self::Excluded(exclusion),
        }
    }

    /// What cannot be done anywhere.
    pub(crate) fn impossible(why: impl Into<String>) -> Self {
        Self::Excluded(Exclusion::Impossible(why.into()))
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
