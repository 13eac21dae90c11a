//! Two hosts that got to know each other, `plumb.pair/1`.
//!
//! Left out: their proofs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.pair/1";

/// A pairing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PairDocument {
    /// Always `plumb.pair/1`.
    pub schema: String,
    /// The agent, with its port.
    pub agent: String,
    /// What its certificate is known by.
    pub fingerprint: String,
}
