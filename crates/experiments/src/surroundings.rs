//! What a measurement depends on outside its own processes, as data.

use std::collections::BTreeMap;

use plumb_analysis::document::OUTER_LINK;
use plumb_base::time::Span;
use plumb_harness::spec::HostSpec;

/// The link that plumb runs behind and the other host, where there are any.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Text of the link that plumb runs behind.
    pub outer_link: Option<String>,
    /// Whether another host was requested, be it reached yet or not.
    pub is_host_requested: bool,
    /// The other host, once it was reached.
    pub other_host: Option<ReachedHost>,
}

/// Another host, as it was found.
#[derive(Clone, Debug)]
pub struct ReachedHost {
    /// What a launch needs to reach it.
    pub spec: HostSpec,
    /// How long a connection to it took.
    pub round_trip: Span,
    /// What a run records of it.
    pub notes: BTreeMap<String, String>,
}

impl Surroundings {
    /// No outer link, and no other host.
    pub const NONE: Self = Self { outer_link: None, is_host_requested: false, other_host: None };

    /// The notes of a run that is measured in them.
    pub fn notes(&self) -> BTreeMap<String, String> {
        let mut notes = BTreeMap::new();
        notes.extend(self.outer_link.clone().map(|link| (OUTER_LINK.to_owned(), link)));
        notes.extend(self.other_host.iter().flat_map(|host| host.notes.clone()));
        notes
    }
}

/// The surroundings of a run, and how to look at them again while it runs.
#[derive(Clone, Debug)]
pub struct RunSurroundings {
    /// As they were when the run began.
    pub at_start: Surroundings,
    /// The outer link's text, if it has changed since.
    pub changed_link: fn() -> Option<String>,
    /// Why the other host is no longer reached, if it is not.
    pub host_lost: fn() -> Option<String>,
}

impl RunSurroundings {
    /// No link and no other host.
    pub(crate) const NONE: Self =
        Self { at_start: Surroundings::NONE, changed_link: || None, host_lost: || None };
}
