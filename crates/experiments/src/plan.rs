//! Plans: what to measure, how often and for how long, as a value and as TOML.
//!
//! A plan is complete in itself: it is stored with its run, and `plumb rerun` needs nothing else but the
//! other host, where there was one.

use std::collections::BTreeMap;

use plumb_store::record::FactorLevel;

use crate::preset::RunLimits;

pub mod choose;
pub mod estimate;
pub mod expand;
pub mod resolve;
mod toml;

pub use choose::ChosenLevels;
pub use estimate::RunEstimate;
pub use expand::expand;

/// What to measure, how often and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct RunPlan {
    /// Its title: a study, an experiment, or a name of the user's own.
    pub title: String,
    /// The seed of every random choice; drawn when the run begins if absent.
    pub seed: Option<u64>,
    /// How much of it.
    pub limits: RunLimits,
    /// The factor whose levels take turns block by block, each in a launch of its own that is held open meanwhile.
    pub interleave: Option<String>,
    /// The experiments; one may occur more than once, with different levels.
    pub experiments: Vec<PlannedExperiment>,
}

/// One experiment with the levels of its factors.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedExperiment {
    /// `latency.local`, `call.kernel`, …
    pub id: String,
    /// Levels by factor; cells are their product. `response` selects responses.
    pub factors: BTreeMap<String, Vec<FactorLevel>>,
}

impl PlannedExperiment {
    /// An experiment with every factor left to its preset.
    pub fn bare(id: &str) -> Self {
        Self { id: id.to_owned(), factors: BTreeMap::new() }
    }

    /// The same with the levels of one factor chosen.
    #[must_use]
    pub fn with<L: Into<FactorLevel>>(
        mut self,
        factor: &str,
        levels: impl IntoIterator<Item = L>,
    ) -> Self {
        self.factors.insert(factor.to_owned(), levels.into_iter().map(Into::into).collect());
        self
    }
}
