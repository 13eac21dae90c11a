//! How much each factor of a run matters: `plumb.sensitivity/1`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of the shape.
pub const SENSITIVITY_SCHEMA: &str = "plumb.sensitivity/1";

/// The factors of a run, ranked within each response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SensitivityDocument {
    /// Always `plumb.sensitivity/1`.
    pub schema: String,
    /// The run.
    pub run: String,
    /// Factors, by experiment and response; of these, first those with a sensitivity, strongest first, then the others by their ratio.
    pub factors: Vec<FactorSensitivity>,
    /// Settings of the extreme levels of a factor that had too few launches to be compared.
    pub undecided: u64,
}

/// What moving one factor does to one response, everything else being the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FactorSensitivity {
    /// The experiment.
    pub experiment: String,
    /// The response.
    pub response: String,
    /// The factor.
    pub factor: String,
    /// The lowest and the highest level where they are numbers, else the cheapest and the dearest.
    pub levels: [String; 2],
    /// The second level over the first; null where they are words.
    pub change: Option<f64>,
    /// Cost at the second level over cost at the first, in the setting with the median of them all; of rates too, above 1 costs more.
    pub ratio: f64,
    /// Its 95 % interval.
    pub ratio_ci95: [f64; 2],
    /// Relative change of the cost over that of the factor, ln(ratio) / ln(change): 1 is in proportion, 0 no effect, below 0 a larger
    /// level costs less. Null where levels are words.
    pub sensitivity: Option<f64>,
    /// Its 95 % interval.
    pub sensitivity_ci95: Option<[f64; 2]>,
    /// Lowest and highest ratio over all settings of the other factors.
    pub range: [f64; 2],
    /// Settings of the other factors.
    pub settings: u64,
}
