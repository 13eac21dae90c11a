//! A drawing on a structured display: what is drawn, how, and over what.

use serde::{Deserialize, Serialize};

/// A drawing, which is repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisplaySpec {
    /// Its name.
    pub drawing: String,
    /// The name of the mode that it is drawn in.
    pub mode: String,
    /// What lies between client and display.
    pub path: DisplayPath,
}

/// What lies between a client and a display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DisplayPath {
    /// In real time on this host: the name of a local path.
    Local(String),
    /// None: what the drawing takes of the display's memory.
    Memory,
    /// In virtual time, a link of this text.
    Virtual {
        /// The link.
        link: String,
        /// How long the processors of client and display take, in percent of this one.
        slower_percent: [u64; 2],
        /// Whether both share the client's processor.
        is_shared: bool,
        /// Nanoseconds of this processor that the client computes for each item that it adds.
        #[serde(default)]
        item_ns: u32,
    },
}
