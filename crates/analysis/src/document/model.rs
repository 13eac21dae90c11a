//! What a message costs as a sum of terms, `plumb.model/1`; what that predicts, `plumb.predict/1`; and how much each factor
//! of a run matters, `plumb.sensitivity/1`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of the shape of fitted models.
pub const MODEL_SCHEMA: &str = "plumb.model/1";

/// The name of the shape of predictions.
pub const PREDICT_SCHEMA: &str = "plumb.predict/1";

/// The models of a run, one for each mechanism and setting that was measured at enough sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelDocument {
    /// Always `plumb.model/1`.
    pub schema: String,
    /// The run.
    pub run: String,
    /// Time of an empty kernel call in it, in ns; null where it was not measured.
    pub entry_ns: Option<f64>,
    /// The models.
    pub models: Vec<FittedModel>,
    /// Settings with too few sizes for a model.
    pub without: Vec<String>,
    /// How well sizes that were left out are predicted, over all models.
    pub score: PredictionScore,
}

/// One model: t = fixed + per byte · s + beyond caches · max(0, s − c) + per packet · ⌈s / mss⌉.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FittedModel {
    /// The experiment.
    pub experiment: String,
    /// `latency`, or a throughput, of which the time of a message is taken.
    pub response: String,
    /// Every factor but the size.
    pub factors: BTreeMap<String, serde_json::Value>,
    /// Its terms in ns: `fixed`, and as far as they help, `byte`, `byte-beyond-caches`, `packet`.
    pub terms: Vec<ModelTerm>,
    /// Of the fixed term, what this setting takes more than the same mechanism with both processes on one CPU, in ns:
    /// the wake-up. Null where that was not measured.
    pub wake_up_ns: Option<f64>,
    /// Bytes from which the caches no longer hold a message; null without such a term.
    pub cache_bytes: Option<u64>,
    /// Bytes of data in a packet; null without such a term.
    pub mss: Option<u64>,
    /// Smallest and largest size that was measured, in bytes.
    pub sizes: [u64; 2],
    /// Every size.
    pub residuals: Vec<ModelResidual>,
}

/// One term.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelTerm {
    /// Its name.
    pub name: String,
    /// Nanoseconds for each.
    pub ns: f64,
    /// 95 % interval over sizes.
    pub ci95: [f64; 2],
}

/// A size as measured, as fitted, and as predicted by the other sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelResidual {
    /// Bytes.
    pub size: u64,
    /// Nanoseconds, measured.
    pub measured_ns: f64,
    /// Nanoseconds, fitted.
    pub fitted_ns: f64,
    /// Nanoseconds by a model of the other sizes; null at the ends of the range and where there are too few.
    pub left_out_ns: Option<f64>,
    /// 95 % prediction interval of that.
    pub left_out_interval: Option<[f64; 2]>,
}

/// How well predictions match measurements.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionScore {
    /// Predictions that were compared.
    pub predictions: u64,
    /// Median of the relative error; null without any.
    pub error_median: Option<f64>,
    /// Its 90th percentile.
    pub error_p90: Option<f64>,
    /// Share of measurements inside the 95 % prediction interval.
    pub coverage: Option<f64>,
}

/// Predictions of one question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictDocument {
    /// Always `plumb.predict/1`.
    pub schema: String,
    /// The run that the models are fitted to.
    pub run: String,
    /// What was changed, in words; empty where nothing was.
    pub changes: Vec<String>,
    /// The predictions.
    pub predictions: Vec<CostPrediction>,
    /// What the predictions rest on.
    pub scope: Vec<String>,
    /// The score against another run or the sizes that were left out, where it was asked for.
    pub score: Option<PredictionScore>,
    /// The run that the score is against, or `parts`: mechanisms made of measured parts; null where it is against sizes that were left out.
    pub against: Option<String>,
}

/// One prediction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostPrediction {
    /// The experiment.
    pub experiment: String,
    /// The response.
    pub response: String,
    /// Every factor but the size.
    pub factors: BTreeMap<String, serde_json::Value>,
    /// Bytes.
    pub size: u64,
    /// Nanoseconds a message takes now, by the model.
    pub now_ns: f64,
    /// Nanoseconds with the changes.
    pub predicted_ns: f64,
    /// 95 % prediction interval of that.
    pub interval: [f64; 2],
    /// Whether the size lies outside of what was measured.
    pub is_extrapolated: bool,
}

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
