//! Why an experiment, a plan or a run failed, and what to do about it.

use std::fmt;

use plumb_store::sqlite::StoreError;

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request cannot be met as it stands.
    Usage,
    /// A measurement or the store failed.
    Failure,
    /// The user stopped it.
    Interrupted,
}

/// What failed, why, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExperimentError {
    /// Whose fault it is.
    pub kind: ErrorKind,
    /// What happened, in one line.
    pub what: String,
    /// Why, where that is not plain already.
    pub why: Option<String>,
    /// What to do about it.
    pub fix: Option<String>,
}

impl ExperimentError {
    /// A request that cannot be met as it stands.
    pub fn usage(what: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Usage, what: what.into(), why: None, fix: None }
    }

    /// A failed measurement, or a failure of the store.
    pub fn failure(what: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Failure, ..Self::usage(what) }
    }

    /// The same with its reason.
    #[must_use]
    pub fn because(mut self, why: impl fmt::Display) -> Self {
        self.why = Some(why.to_string());
        self
    }

    /// The same with a fix.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// The same with the nearest of `known` names as its fix, or all of them where none is near.
    #[must_use]
    pub fn suggest<'a>(self, text: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        match nearest(text, known.iter().copied()) {
            Some(name) => self.fix(format!("did you mean '{name}'?")),
            None if known.is_empty() => self,
            None => self.fix(format!("choose from: {}", known.join(", "))),
        }
    }

    /// A message that states the fix after its first semicolon.
    pub fn from_message(kind: ErrorKind, message: &str) -> Self {
        let (what, fix) = message.split_once("; ").map_or((message, None), |(a, b)| (a, Some(b)));
        Self { kind, what: what.to_owned(), why: None, fix: fix.map(str::to_owned) }
    }
}

impl From<StoreError> for ExperimentError {
    fn from(error: StoreError) -> Self {
        let kind = match error {
            StoreError::NoRun { .. }
            | StoreError::TooFewRuns { .. }
            | StoreError::Ambiguous { .. } => ErrorKind::Usage,
            _ => ErrorKind::Failure,
        };
        Self::from_message(kind, &error.to_string())
    }
}

impl std::error::Error for ExperimentError {}

impl fmt::Display for ExperimentError {
    /// Up to three lines: `what`, `  why: …`, `  fix: …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(why) = &self.why {
            write!(f, "\n  why: {why}")?;
        }
        if let Some(fix) = &self.fix {
            write!(f, "\n  fix: {fix}")?;
        }
        Ok(())
    }
}

/// The known name that `text` was most likely meant to be.
///
/// Case is ignored; up to a third of the letters may be wrong, dropped, added or swapped
/// (Damerau–Levenshtein distance). The first word of a dotted name stands for the whole of it.
pub fn nearest<'a>(text: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let text = text.to_lowercase();
    let allowed = (text.chars().count() / 3).max(2);
    let distance = |name: &str| {
        let name = name.to_lowercase();
        let whole = strsim::damerau_levenshtein(&text, &name);
        let first = name.split_once('.').map(|(first, _)| 1 + distance_if_long(&text, first));
        first.map_or(whole, |first| whole.min(first))
    };
    known
        .into_iter()
        .map(|name| (distance(name), name))
        .filter(|(distance, name)| *distance <= allowed && *distance < name.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// The distance to a word that is long enough to be recognised by itself.
fn distance_if_long(text: &str, word: &str) -> usize {
    if word.len() < 4 { usize::MAX - 1 } else { strsim::damerau_levenshtein(text, word) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_finds_its_neighbour_and_a_strange_one_finds_none() {
        let known = ["latency.local", "throughput.local", "tcp.options"];
        assert_eq!(nearest("latancy.lokal", known), Some("latency.local"));
        assert_eq!(nearest("tcp.optoins", known), Some("tcp.options"));
        assert_eq!(nearest("latncy", known), Some("latency.local"));
        assert_eq!(nearest("zebra", known), None);
    }
}
