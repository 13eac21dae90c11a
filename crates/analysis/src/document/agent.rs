//! Where an agent listens and what it is known by, `plumb.agent/1`: what a program that starts one needs to know.
//!
//! Left out: what it does afterwards.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.agent/1";

/// An agent that listens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentDocument {
    /// Always `plumb.agent/1`.
    pub schema: String,
    /// `listen` for the daemon, `http` for the web server.
    pub mode: String,
    /// The address and port that it listens on.
    pub address: String,
    /// What its certificate is known by.
    pub fingerprint: String,
    /// The token of a pairing, where one was asked for.
    pub token: Option<String>,
}
