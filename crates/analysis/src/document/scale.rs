//! Whether communication keeps up with processors over many machines, `plumb.scale/1`, and the processor index of one,
//! `plumb.index/1`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::list::ClaimRow;

/// The name of this document's shape.
pub const SCALE_SCHEMA: &str = "plumb.scale/1";

/// Machines, how their quantities follow their speed, and what that says about published claims.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScaleDocument {
    /// Always `plumb.scale/1`.
    pub schema: String,
    /// What stands for the speed of a processor: `index`, `spec`, `integer` or `clock`.
    pub speed: String,
    /// The same in words.
    pub speed_label: String,
    /// Every machine.
    pub machines: Vec<ScaleMachine>,
    /// A line for each quantity over all machines, and for each class of them.
    pub lines: Vec<ScaleLine>,
    /// Processor and memory together against the processor alone.
    pub models: Vec<TwoTermModel>,
    /// How fast speed and quantities grow over the years.
    pub growth: Vec<GrowthRate>,
    /// Published claims that several machines decide.
    pub claims: Vec<ClaimRow>,
    /// What was noticed while the machines were read.
    pub notes: Vec<String>,
}

/// One machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScaleMachine {
    /// Its name.
    pub name: String,
    /// Its architecture; empty where it is not known.
    pub class: String,
    /// The run or archive that it is from.
    pub basis: String,
    /// When it was measured, in years; null where that is not known.
    pub year: Option<f64>,
    /// Its speed by kind, in Hz, operations a second, or as a figure.
    pub speed: BTreeMap<String, f64>,
    /// Its quantities, times in ns and rates in B/s.
    pub values: BTreeMap<String, f64>,
}

/// How one quantity follows the speed of processors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScaleLine {
    /// The quantity.
    pub metric: String,
    /// The same in words.
    pub label: String,
    /// The class of machines; empty for all of them.
    pub class: String,
    /// Machines that have speed and quantity.
    pub machines: u64,
    /// Machines that lack one of them.
    pub without: u64,
    /// The machine with the slowest processor, which the others are multiples of.
    pub base: String,
    /// How much faster the fastest processor is.
    pub speed_most: Option<f64>,
    /// The greatest improvement of the quantity.
    pub improvement_most: Option<f64>,
    /// Slope of the weighted line on logarithmic axes: the share of the processor's improvement that arrives. Null with
    /// fewer than four machines.
    pub slope: Option<f64>,
    /// Its 95 % interval over machines.
    pub slope_ci95: Option<[f64; 2]>,
    /// Natural logarithm of the line's improvement at the base machine's speed.
    pub intercept: Option<f64>,
    /// Slope by Theil and Sen, which outliers do not move.
    pub theil_sen: Option<f64>,
    /// Its 95 % interval.
    pub theil_sen_ci95: Option<[f64; 2]>,
    /// Speed and improvement of each machine as multiples of the base's.
    pub points: Vec<[f64; 2]>,
    /// The machines of these points.
    pub names: Vec<String>,
}

/// A quantity by processor and memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TwoTermModel {
    /// The quantity.
    pub metric: String,
    /// The same in words.
    pub label: String,
    /// The quantity of memory: `memory-load` or `memory-copy`.
    pub memory: String,
    /// Machines that have all three.
    pub machines: u64,
    /// Exponent of the processor's speed.
    pub processor_slope: f64,
    /// Its 95 % interval.
    pub processor_ci95: [f64; 2],
    /// Exponent of memory.
    pub memory_slope: f64,
    /// Its 95 % interval.
    pub memory_ci95: [f64; 2],
    /// Typical factor by which the processor alone misses a machine that was left out.
    pub error_one: f64,
    /// The same with memory beside it.
    pub error_two: f64,
    /// Whether memory makes the prediction of machines that were left out better.
    pub is_better: bool,
}

/// How fast something grows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GrowthRate {
    /// What.
    pub label: String,
    /// Dated machines.
    pub machines: u64,
    /// Year of the first.
    pub from_year: f64,
    /// Year of the last.
    pub to_year: f64,
    /// Doublings a year.
    pub doublings_a_year: f64,
    /// Their 95 % interval.
    pub doublings_ci95: [f64; 2],
    /// Months in which it doubles; null where it does not grow.
    pub doubling_months: Option<f64>,
}

/// The name of this document's shape.
pub const INDEX_SCHEMA: &str = "plumb.index/1";

/// The index, its kernels, and memory beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IndexDocument {
    /// Always `plumb.index/1`.
    pub schema: String,
    /// The set of kernels: `plumb-index/1`.
    pub version: String,
    /// The machine whose index is 1.
    pub reference: String,
    /// The run that it was measured in.
    pub run: String,
    /// Geometric mean over kernels of reference time to time: 2 is twice as fast as the reference.
    pub index: f64,
    /// Its 95 % interval over launches; null with fewer than six.
    pub ci95: Option<[f64; 2]>,
    /// Geometric standard deviation of the ratios over kernels: 1 where all agree.
    pub geometric_sd: f64,
    /// Every kernel.
    pub kernels: Vec<IndexedKernel>,
    /// Memory, which is no part of the index.
    pub memory: Vec<MemoryFigure>,
}

/// One kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IndexedKernel {
    /// Its name.
    pub kernel: String,
    /// Nanoseconds of one pass, median.
    pub time_ns: f64,
    /// 95 % interval of that over launches.
    pub ci95: Option<[f64; 2]>,
    /// Reference time over time.
    pub ratio: f64,
}

/// One figure of memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryFigure {
    /// `load`: time of a load that depends on the last; `read`, `copy`: bytes a second.
    pub response: String,
    /// Bytes that are walked over.
    pub size: u64,
    /// `ns` or `B/s`.
    pub unit: String,
    /// Median.
    pub value: f64,
    /// 95 % interval of that over launches.
    pub ci95: Option<[f64; 2]>,
}
