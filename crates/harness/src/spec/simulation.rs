//! A simulated cell: what an experiment simulates is known to the program alone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An experiment at one setting, to be simulated with a seed of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimulationSpec {
    /// Id of the experiment.
    pub experiment: String,
    /// The level of each factor, as text.
    pub levels: BTreeMap<String, String>,
}

impl SimulationSpec {
    /// The level of a factor; empty where it has none.
    pub fn level(&self, factor: &str) -> &str {
        self.levels.get(factor).map_or("", String::as_str)
    }
}
