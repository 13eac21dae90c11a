//! Plans: what to measure, how often and for how long, as a value and as TOML.
//!
//! A plan is complete in itself: it is stored with its run, and `plumb rerun` needs nothing else but the
//! other host, where there was one.
//! Left out: what the factors mean and which cells they make (`crate::experiment`).

use std::collections::BTreeMap;

use plumb_base::time::Span;
use plumb_store::record::Level;

pub mod duration;
pub mod estimate;
pub mod preset;
mod read;
pub mod request;
mod write;

pub use estimate::Estimate;
pub use preset::Preset;
pub use request::Chosen;

/// What to measure, how often and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What people call it: a study, an experiment, or a name of their own.
    pub title: String,
    /// The seed of every random choice; drawn when the run begins if absent.
    pub seed: Option<u64>,
    /// How much of it.
    pub limits: Limits,
    /// What of; an experiment may occur more than once, with different levels.
    pub experiments: Vec<PlannedExperiment>,
}

/// How often and how long to measure each cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Wall time after which no block begins, and no round that would not end within it; none for no such limit.
    pub budget: Option<Span>,
    /// Launches that every cell gets, however precise it is already.
    pub launches_min: u32,
    /// Launches after which a cell is done, however imprecise it is still.
    pub launches_max: u32,
    /// Blocks of each cell in one launch.
    pub passes: u32,
    /// Wall time of the timed region of one block.
    pub block: Span,
    /// Most samples in one block.
    pub samples_max: u32,
    /// Half width of the 95 % interval of the median, as a share of it, at which a cell is done.
    pub precision: f64,
}

/// Blocks in place of one, where two levels are compared in turns.
const TURNS: u32 = 4;

impl Limits {
    /// The same time in shorter blocks, each after one of the other level: what disturbs the machine for
    /// some milliseconds then falls on both.
    #[must_use]
    pub fn in_turns(self) -> Self {
        Self { passes: self.passes * TURNS, block: self.block / u64::from(TURNS), ..self }
    }
}

/// One experiment with the levels of its factors.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedExperiment {
    /// `latency.local`, `call.kernel`, …
    pub id: String,
    /// Levels by factor; cells are their product. `response` selects responses.
    pub factors: BTreeMap<String, Vec<Level>>,
}

impl PlannedExperiment {
    /// An experiment with every factor left to its preset.
    pub fn bare(id: &str) -> Self {
        Self { id: id.to_owned(), factors: BTreeMap::new() }
    }

    /// The same with the levels of one factor chosen.
    #[must_use]
    pub fn with<L: Into<Level>>(
        mut self,
        factor: &str,
        levels: impl IntoIterator<Item = L>,
    ) -> Self {
        self.factors.insert(factor.to_owned(), levels.into_iter().map(Into::into).collect());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_take_the_time_of_the_blocks_they_stand_for() {
        for preset in Preset::ALL {
            let limits = preset.limits();
            let turns = limits.clone().in_turns();
            assert!(turns.passes > limits.passes && turns.block < limits.block);
            assert_eq!(
                turns.block * u64::from(turns.passes),
                limits.block * u64::from(limits.passes)
            );
        }
    }
}
