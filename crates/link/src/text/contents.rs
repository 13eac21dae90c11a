//! What files contain, kept: for a text that is understood later, or by another process, than where its files are.
//!
//! Left out: reading them, which [`Files`] does.

use std::collections::BTreeMap;
use std::sync::Arc;

use plumb_base::time::Span;

use super::change::{Named, files_of};
use super::{Files, TextError};
use crate::spec::Trace;

/// Traces and delays by the names of their files, ready for use: nothing is parsed when one is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    traces: BTreeMap<String, Trace>,
    delays: BTreeMap<String, Arc<[Span]>>,
}

impl Contents {
    /// What the files contain that changes name.
    ///
    /// # Errors
    /// A change or a file that cannot be read.
    pub fn of<'a>(
        changes: impl IntoIterator<Item = &'a str>,
        files: &dyn Files,
    ) -> Result<Self, TextError> {
        let mut contents = Self::default();
        for change in changes {
            contents.add(change, files)?;
        }
        Ok(contents)
    }

    /// And those that this change names.
    ///
    /// # Errors
    /// As [`Contents::of`].
    pub fn add(&mut self, change: &str, files: &dyn Files) -> Result<(), TextError> {
        for named in files_of(change)? {
            match named {
                Named::Trace(name) => {
                    let trace = files.trace(&name)?;
                    self.traces.insert(name, trace);
                }
                Named::Delays(name) => {
                    let delays = files.delays(&name)?;
                    self.delays.insert(name, delays);
                }
            }
        }
        Ok(())
    }
}

impl Files for Contents {
    fn read(&self, _: &str) -> Result<String, String> {
        Err("it was not read before".to_owned())
    }

    fn trace(&self, name: &str) -> Result<Trace, TextError> {
        let known = self.traces.get(name).cloned();
        known.ok_or_else(|| super::unread("rate", name, "it was not read before".to_owned()))
    }

    fn delays(&self, name: &str) -> Result<Arc<[Span]>, TextError> {
        let known = self.delays.get(name).cloned();
        known.ok_or_else(|| super::unread("delay", name, "it was not read before".to_owned()))
    }
}
