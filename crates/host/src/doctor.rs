//! What this host can and cannot measure, why, and the exact command that would change it.
//!
//! Each check asks one question, by reading a file or by trying the thing itself and undoing it.
//! Left out: whether a store can be written to (the command line knows where it is), and anything
//! that takes longer than a fraction of a second.

use serde::Serialize;

use crate::environment::tree::Tree;
use crate::topology::Topology;

mod access;
mod clock;
mod network;
mod noise;
mod processor;
mod queue;
mod stack;
mod tracing;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// As good as it gets.
    Ok,
    /// Works, but something about the figures must be known.
    Limited,
    /// Not possible here, or not allowed.
    Missing,
}

impl Status {
    /// The word used in JSON and on pages: `ok`, `limited`, `missing`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Limited => "limited",
            Self::Missing => "missing",
        }
    }
}

/// One question about the host, and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Stable, dotted: `clock.tsc`.
    pub id: &'static str,
    /// What was asked, in a few words.
    pub what: &'static str,
    /// How it came out.
    pub status: Status,
    /// What was found.
    pub finding: String,
    /// Why it matters to a measurement; empty when all is well.
    pub why: String,
    /// The command that would change it, or that nothing can; empty when all is well.
    pub fix: String,
}

impl Check {
    fn ok(question: Question, finding: impl Into<String>) -> Self {
        question.answer(Status::Ok, finding, "", "")
    }

    fn limited(
        question: Question,
        finding: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        question.answer(Status::Limited, finding, why, fix)
    }

    fn missing(
        question: Question,
        finding: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        question.answer(Status::Missing, finding, why, fix)
    }
}

/// The part of a check that is known before it is made.
#[derive(Clone, Copy, Debug)]
struct Question {
    id: &'static str,
    what: &'static str,
}

impl Question {
    fn answer(
        self,
        status: Status,
        finding: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Check {
        let Self { id, what } = self;
        Check { id, what, status, finding: finding.into(), why: why.into(), fix: fix.into() }
    }
}

/// Makes every check; takes about a quarter of a second, in which it keeps one CPU busy.
///
/// Ask before binding to a CPU: what is found then is about that CPU alone.
pub fn examine() -> Vec<Check> {
    let tree = Tree::machine();
    let topology = Topology::machine();
    let mut checks = Vec::new();
    checks.extend(clock::examine(&tree));
    checks.extend(processor::examine(&tree, &topology));
    checks.extend(noise::examine(&tree));
    checks.extend(access::examine(&tree));
    checks.extend(queue::examine(&tree));
    checks.extend(network::examine(&tree));
    checks.extend(stack::examine(&tree));
    checks.extend(tracing::examine(&tree));
    checks
}

/// The error of a system call by what it means for a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// Not in this kernel, or a filter pretends so.
    Unsupported,
    /// Not for this user, or a filter says so.
    Forbidden,
    /// A limit is reached, or anything else.
    Other,
}

impl From<&std::io::Error> for Refusal {
    fn from(error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::Unsupported | std::io::ErrorKind::NotFound => Self::Unsupported,
            std::io::ErrorKind::PermissionDenied => Self::Forbidden,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_its_own_id_and_every_trouble_its_reason_and_its_fix() {
        let checks = examine();
        let ids: std::collections::BTreeSet<_> = checks.iter().map(|check| check.id).collect();
        assert_eq!(ids.len(), checks.len());
        for check in &checks {
            assert!(!check.finding.is_empty(), "{check:?}");
            let well = check.status == Status::Ok;
            assert_eq!(check.why.is_empty(), well, "{check:?}");
            assert_eq!(check.fix.is_empty(), well, "{check:?}");
        }
    }

    #[test]
    fn the_names_of_a_status_are_those_of_its_json() {
        for status in [Status::Ok, Status::Limited, Status::Missing] {
            assert_eq!(format!("{status:?}").to_lowercase(), status.name());
        }
    }
}
