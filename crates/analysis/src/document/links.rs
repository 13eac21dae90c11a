//! The links and labs that run, `plumb.links/1`.
//!
//! Left out: what each of them does, which is a link's own document (`super::link`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::link::LinkDocument;

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.links/1";

/// Every link and lab of a user, by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinksDocument {
    /// Always `plumb.links/1`.
    pub schema: String,
    /// In the order of their names.
    pub links: Vec<LinkDocument>,
}
