//! The processor index of this machine, `plumb.index/1`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
