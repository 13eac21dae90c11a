//! A link as text: the one form in which it is given, stored, sent to a running link, and printed.
//!
//! `[seed=N;]HOP[;HOP]…`, a hop being `DIRECTION`, the same both ways, or `UP|DOWN`; a direction is
//! `key=value,key=value,…`, or `plain` for a wire that does nothing. The name of a preset stands for its
//! text. `Display` and `FromStr` are inverse to each other.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_base::units::quantity::QuantityError;

use crate::preset::LinkPreset;
use crate::spec::{DirectionSpec, HopSpec, LinkSpec, RateTrace, SpecError};
use crate::trace::{TraceError, parse_delays};

mod change;
pub mod direction;
mod fault;
mod queue;
mod value;

#[cfg(test)]
mod tests;

pub use change::{NamedFile, files_of};
pub use value::FileContents;

#[cfg(test)]
pub(crate) use tests::any_link;

/// Whoever reads the files that a text names.
pub trait LinkTextFiles {
    /// The whole file.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn read(&self, name: &str) -> Result<String, String>;

    /// The opportunities to send that a file contains.
    ///
    /// # Errors
    /// It cannot be read, or is no trace.
    fn trace(&self, name: &str) -> Result<RateTrace, TextError> {
        let content = self.read(name).map_err(|why| unread("rate", name, why))?;
        Ok(RateTrace::parse(name, &content)?)
    }

    /// The delays that a file contains.
    ///
    /// # Errors
    /// It cannot be read, or has no delays.
    fn delays(&self, name: &str) -> Result<Arc<[Span]>, TextError> {
        let content = self.read(name).map_err(|why| unread("delay", name, why))?;
        Ok(parse_delays(name, &content)?)
    }
}

fn unread(key: &'static str, file: &str, why: String) -> TextError {
    TextError::File { key, file: file.to_owned(), why }
}

/// For texts that name no files.
#[derive(Clone, Copy, Debug)]
pub struct NoFiles;

impl LinkTextFiles for NoFiles {
    fn read(&self, _: &str) -> Result<String, String> {
        Err("no files are read here".to_owned())
    }
}

/// Why a text is no link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// A key that there is not.
    #[error("there is no '{key}' in a link{hint}; there are: {keys}", keys = direction::key_list())]
    Key {
        /// What was written.
        key: String,
        /// What was perhaps meant.
        hint: String,
    },
    /// A part without a value.
    #[error("'{part}' says nothing; write key=value, as in rate=10mbit,delay=25ms")]
    MissingValue {
        /// What was written.
        part: String,
    },
    /// A key twice where once is all.
    #[error("'{key}' is given twice; give it once")]
    DuplicateKey {
        /// Which.
        key: &'static str,
    },
    /// A quantity that cannot be read.
    #[error("{key}: {error}")]
    Quantity {
        /// Of what.
        key: &'static str,
        /// Why not.
        error: QuantityError,
    },
    /// A value of another form than the key takes.
    #[error("{key}: '{value}' cannot be used; write {forms}")]
    Value {
        /// Of what.
        key: &'static str,
        /// What was written.
        value: String,
        /// What could have been.
        forms: &'static str,
    },
    /// A key that means nothing beside the others.
    #[error("{key}= {why}")]
    Conflict {
        /// Which.
        key: &'static str,
        /// Why.
        why: String,
    },
    /// A file that cannot be read.
    #[error(
        "{key}: '{file}' cannot be read: {why}; name a file of text that exists and may be read"
    )]
    File {
        /// Of what.
        key: &'static str,
        /// Its name.
        file: String,
        /// Why not.
        why: String,
    },
    /// A file that is no trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A hop, or a direction of one, of which nothing is said.
    #[error("a hop or a direction of one is empty; write 'plain' for a wire that does nothing")]
    Empty,
    /// More than two directions in a hop.
    #[error("'{hop}' has more than two directions; a hop is DIRECTION, or UP|DOWN")]
    Directions {
        /// What was written.
        hop: String,
    },
    /// A link that cannot be.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

impl LinkSpec {
    /// The link that a text describes, or the preset that it names, as it can be made.
    ///
    /// # Errors
    /// [`TextError`] says which part is wrong and what could have been written.
    pub fn parse(text: &str, files: &dyn LinkTextFiles) -> Result<Self, TextError> {
        let text = text.trim();
        let text = LinkPreset::named(text).map_or(text, |preset| preset.text);
        let (seed, hops) = match text.strip_prefix("seed=") {
            Some(rest) => {
                let (seed, hops) = rest.split_once(';').unwrap_or((rest, ""));
                let number = seed.trim().parse().map_err(|_| TextError::Value {
                    key: "seed",
                    value: seed.to_owned(),
                    forms: "a whole number",
                })?;
                (Seed(number), hops)
            }
            None => (Seed(0), text),
        };
        let hops =
            hops.split(';').map(|hop| HopSpec::parse(hop, files)).collect::<Result<_, _>>()?;
        let spec = Self { hops, seed };
        spec.check()?;
        Ok(spec)
    }
}

impl HopSpec {
    /// The hop that `DIRECTION` or `UP|DOWN` describes.
    ///
    /// # Errors
    /// [`TextError`] says which part is wrong and what could have been written.
    pub fn parse(text: &str, files: &dyn LinkTextFiles) -> Result<Self, TextError> {
        if text.split('|').any(|direction| direction.trim().is_empty()) {
            return Err(TextError::Empty);
        }
        match text.split('|').collect::<Vec<_>>()[..] {
            [both] => {
                let both = DirectionSpec::parse(both, files)?;
                Ok(Self { up: both.clone(), down: both })
            }
            [up, down] => Ok(Self {
                up: DirectionSpec::parse(up, files)?,
                down: DirectionSpec::parse(down, files)?,
            }),
            _ => Err(TextError::Directions { hop: text.trim().to_owned() }),
        }
    }
}

impl FromStr for LinkSpec {
    type Err = TextError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text, &NoFiles)
    }
}

impl FromStr for DirectionSpec {
    type Err = TextError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text, &NoFiles)
    }
}

impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.seed != Seed(0) {
            write!(f, "seed={};", self.seed.0)?;
        }
        for (index, hop) in self.hops.iter().enumerate() {
            write!(f, "{}{hop}", if index > 0 { ";" } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for HopSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.up == self.down {
            return self.up.fmt(f);
        }
        write!(f, "{}|{}", self.up, self.down)
    }
}
