//! A link as text: the one form in which it is given, stored, sent to a running link, and printed.
//!
//! `[seed=N;]HOP[;HOP]…`, a hop being `DIRECTION`, the same both ways, or `UP|DOWN`; a direction is
//! `key=value,key=value,…`, or `plain` for a wire that does nothing. The name of a preset stands for its
//! text. `Display` and `FromStr` are inverse to each other.
//! A change to a link is `[hop N] [up|down] key=value,…`, or `preset NAME` for all of it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use self::direction::{KeyValues, REPLAY, TRACE};
use plumb_base::seed::Seed;
use plumb_base::time::Span;

use crate::preset::LinkPreset;
use crate::spec::{DirectionSpec, HopSpec, LinkSpec, RateTrace, SpecError};
use crate::trace::parse_delays;

pub mod direction;
mod fault;
mod queue;
mod value;

pub use value::FileContents;

#[cfg(test)]
pub(crate) use tests::any_link;

/// Reads the files that a text names.
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
        let content = self.read(name).map_err(|why| TextError::unread("rate", name, &why))?;
        RateTrace::parse(name, &content).map_err(TextError::Message)
    }

    /// The delays that a file contains.
    ///
    /// # Errors
    /// It cannot be read, or has no delays.
    fn delays(&self, name: &str) -> Result<Arc<[Span]>, TextError> {
        let content = self.read(name).map_err(|why| TextError::unread("delay", name, &why))?;
        parse_delays(name, &content).map_err(TextError::Message)
    }
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
    /// It cannot be read: which part is wrong, and what could have been written.
    #[error("{0}")]
    Message(String),
    /// A link that cannot be.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

impl TextError {
    /// A file that cannot be read.
    pub fn unread(key: &str, file: &str, why: &str) -> Self {
        Self::Message(format!(
            "{key}: '{file}' cannot be read: {why}; name a file of text that exists and may be read"
        ))
    }

    /// A part without a value.
    fn says_nothing(part: &str) -> Self {
        Self::Message(format!(
            "'{part}' says nothing; write key=value, as in rate=10mbit,delay=25ms"
        ))
    }

    /// A key that means nothing beside the others.
    fn conflict(key: &str, why: &str) -> Self {
        Self::Message(format!("{key}= {why}"))
    }
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
                (Seed(value::whole_number("seed", seed.trim())?), hops)
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
            let why =
                "a hop or a direction of one is empty; write 'plain' for a wire that does nothing";
            return Err(TextError::Message(why.to_owned()));
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
            _ => Err(TextError::Message(format!(
                "'{}' has more than two directions; a hop is DIRECTION, or UP|DOWN",
                text.trim()
            ))),
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

/// A file that a change names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedFile {
    /// Of opportunities to send.
    Trace(String),
    /// Of delays.
    Delays(String),
}

/// The files that a change names.
///
/// # Errors
/// [`TextError`] when it is no change.
pub fn files_of(change: &str) -> Result<Vec<NamedFile>, TextError> {
    let ParsedChange::Of { given, .. } = ParsedChange::parse(change)? else {
        return Ok(Vec::new());
    };
    let given = KeyValues::read(&given)?;
    let trace = given.value_of("rate").and_then(|text| text.strip_prefix(TRACE));
    let trace = trace.map(|name| value::unescape_file_name("rate", name).map(NamedFile::Trace));
    let delays = given.value_of("delay").and_then(|text| text.strip_prefix(REPLAY));
    let delays = delays.map(|name| value::unescape_file_name("delay", name).map(NamedFile::Delays));
    trace.into_iter().chain(delays).collect()
}

/// A change, read as far as it can be without its link.
enum ParsedChange {
    Preset(&'static LinkPreset),
    Of { hop: Option<usize>, up: bool, down: bool, given: String },
}

impl ParsedChange {
    fn parse(text: &str) -> Result<Self, TextError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let mut rest = &words[..];
        if let ["preset", name] = rest {
            let unknown =
                || value::invalid_value("preset", name, "the name of a preset, as lossy or 4g");
            return LinkPreset::named(name).map(Self::Preset).ok_or_else(unknown);
        }
        let (mut hop, mut way) = (None, None);
        loop {
            match rest {
                ["hop", number, more @ ..] if hop.is_none() => {
                    let known = number.parse().ok().filter(|number| *number > 0);
                    hop = Some(known.ok_or_else(|| no_hop(number))?);
                    rest = more;
                }
                [name @ ("up" | "down"), more @ ..] if way.is_none() => {
                    way = Some(*name);
                    rest = more;
                }
                _ => break,
            }
        }
        let given = rest.join(" ");
        if given.is_empty() {
            return Err(TextError::says_nothing(text.trim()));
        }
        Ok(Self::Of { hop, up: way != Some("down"), down: way != Some("up"), given })
    }
}

fn no_hop(number: &str) -> TextError {
    value::invalid_value("hop", number, "the number of a hop that the link has, from 1")
}

impl LinkSpec {
    /// The link with a change: to every direction, or to those that the text names first; or a preset, whose random
    /// draws still come from this link's seed.
    ///
    /// # Errors
    /// [`TextError`] when it cannot be read, names a hop that there is not, or leaves no possible link.
    pub fn changed(&self, text: &str, files: &dyn LinkTextFiles) -> Result<Self, TextError> {
        let (hop, up, down, given) = match ParsedChange::parse(text)? {
            ParsedChange::Preset(preset) => {
                return Ok(Self { seed: self.seed, ..Self::parse(preset.text, &NoFiles)? });
            }
            ParsedChange::Of { hop, up, down, given } => (hop, up, down, given),
        };
        if let Some(hop) = hop.filter(|hop| *hop > self.hops.len()) {
            return Err(no_hop(&hop.to_string()));
        }
        let mut changed = self.clone();
        for (index, spec) in changed.hops.iter_mut().enumerate() {
            if hop.is_none_or(|hop| hop == index + 1) {
                if up {
                    spec.up.apply(&given, files)?;
                }
                if down {
                    spec.down.apply(&given, files)?;
                }
            }
        }
        changed.check()?;
        Ok(changed)
    }
}

#[cfg(test)]
mod tests;
