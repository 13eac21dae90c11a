//! What this host can and cannot measure, why, and the exact command that would change it.
//!
//! Each check asks one question, by reading a file or by trying the thing itself and undoing it.

use crate::environment::KernelFiles;
use crate::topology::CpuTopology;

mod access;
mod network;
mod noise;
mod processor;
mod tracing;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckStatus {
    /// As good as it gets.
    Ok,
    /// Works, but something about the figures must be known.
    Limited,
    /// Not possible here, or not allowed.
    Missing,
}

impl CheckStatus {
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCheck {
    /// Stable, dotted: `clock.tsc`.
    pub id: &'static str,
    /// What was asked, in a few words.
    pub what: &'static str,
    /// How it came out.
    pub status: CheckStatus,
    /// What was found.
    pub finding: String,
    /// Why it matters to a measurement; empty when all is well.
    pub why: String,
    /// The command that would change it, or that nothing can; empty when all is well.
    pub fix: String,
}

impl HostCheck {
    fn ok(question: CheckQuestion, finding: impl Into<String>) -> Self {
        question.answer(CheckStatus::Ok, finding, "", "")
    }

    fn limited(
        question: CheckQuestion,
        finding: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        question.answer(CheckStatus::Limited, finding, why, fix)
    }

    fn missing(
        question: CheckQuestion,
        finding: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        question.answer(CheckStatus::Missing, finding, why, fix)
    }
}

/// The part of a check that is known before it is made.
#[derive(Clone, Copy, Debug)]
struct CheckQuestion {
    id: &'static str,
    what: &'static str,
}

impl CheckQuestion {
    fn answer(
        self,
        status: CheckStatus,
        finding: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> HostCheck {
        let Self { id, what } = self;
        HostCheck { id, what, status, finding: finding.into(), why: why.into(), fix: fix.into() }
    }
}

/// Makes every check; takes about a quarter of a second, in which it keeps one CPU busy.
///
/// Ask before binding to a CPU: what is found then is about that CPU alone.
pub fn examine() -> Vec<HostCheck> {
    let tree = KernelFiles::machine();
    let topology = CpuTopology::machine();
    let mut checks = Vec::new();
    checks.extend(processor::clocks(&tree));
    checks.extend(processor::examine(&tree, &topology));
    checks.extend(noise::examine(&tree));
    checks.extend(access::examine(&tree));
    checks.extend(access::queues(&tree));
    checks.extend(network::examine(&tree));
    checks.extend(network::stack(&tree));
    checks.extend(tracing::examine(&tree));
    checks
}

/// The error of a system call by what it means for a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RefusalKind {
    /// Not in this kernel, or a filter pretends so.
    Unsupported,
    /// Not for this user, or a filter says so.
    Forbidden,
    /// A limit is reached, or anything else.
    Other,
}

impl From<&std::io::Error> for RefusalKind {
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
    fn ids_are_unique_and_each_trouble_has_a_fix() {
        let checks = examine();
        let ids: std::collections::BTreeSet<_> = checks.iter().map(|check| check.id).collect();
        assert_eq!(ids.len(), checks.len());
        for check in &checks {
            assert!(!check.finding.is_empty(), "{check:?}");
            let well = check.status == CheckStatus::Ok;
            assert_eq!(check.why.is_empty(), well, "{check:?}");
            assert_eq!(check.fix.is_empty(), well, "{check:?}");
        }
    }
}
