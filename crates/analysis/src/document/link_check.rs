//! A link measured from outside, `plumb.link-check/1`.
//!
//! Left out: how it is measured; sockets and a driver do that.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::link::LinkDriver;

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.link-check/1";

/// One link, as it was asked for and as it was found to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkCheckDocument {
    /// Always `plumb.link-check/1`.
    pub schema: String,
    /// The link as text.
    pub link: String,
    /// How long the check took, in seconds.
    pub seconds: f64,
    /// Whether no property is off.
    pub ok: bool,
    /// Whether the link's driver was in time and lost nothing: where not, what is off may be the
    /// machine's doing.
    pub faithful: bool,
    /// One entry a way and property.
    pub properties: Vec<LinkProperty>,
    /// How punctual the link's driver was.
    pub driver: LinkDriver,
}

/// One property of one way through a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkProperty {
    /// `up`, from the near side to the far one, or `down`.
    pub way: String,
    /// `delay`, `rate`, `jitter`, `loss` or `order`.
    pub property: String,
    /// `ok`, `off`, or `untested` where it cannot be told from outside or in this time, or where the link's driver counted
    /// lateness that explains as much: `late_frames` and `late_ns_worst` are among the numbers then.
    pub status: String,
    /// What was asked for.
    pub asked: String,
    /// What was got; empty where nothing can be told.
    pub got: String,
    /// By what that is judged, or why it is untested.
    pub note: String,
    /// The numbers behind it; each name ends in its unit, or is a count or a share.
    pub numbers: BTreeMap<String, f64>,
}
