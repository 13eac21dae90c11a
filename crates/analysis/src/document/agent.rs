//! What an agent is known by, `plumb.agent/1` and `plumb.pair/1`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of an agent's shape.
pub const AGENT_SCHEMA: &str = "plumb.agent/1";
/// The name of a pairing's shape.
pub const PAIR_SCHEMA: &str = "plumb.pair/1";

/// An agent that listens: what a program that starts one needs to know.
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

/// Two hosts that got to know each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PairDocument {
    /// Always `plumb.pair/1`.
    pub schema: String,
    /// The agent, with its port.
    pub agent: String,
    /// What its certificate is known by.
    pub fingerprint: String,
}
