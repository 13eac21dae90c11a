//! What this host can and cannot measure, why, and the exact command that would change it.
//!
//! Each check asks one question, by reading a file or by trying the thing itself and undoing it.

use std::io;

use crate::environment::KernelFiles;
use crate::topology::CpuTopology;

mod access;
mod network;
mod noise;
mod processor;

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

names!(CheckStatus { Ok = "ok", Limited = "limited", Missing = "missing" });

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

/// What a check found.
#[derive(Debug)]
struct CheckFinding {
    status: CheckStatus,
    finding: String,
    why: String,
    fix: String,
}

impl CheckFinding {
    /// The check that had this question: its id, and what was asked.
    fn of(self, id: &'static str, what: &'static str) -> HostCheck {
        let Self { status, finding, why, fix } = self;
        HostCheck { id, what, status, finding, why, fix }
    }
}

fn ok(finding: impl Into<String>) -> CheckFinding {
    let (why, fix) = (String::new(), String::new());
    CheckFinding { status: CheckStatus::Ok, finding: finding.into(), why, fix }
}

fn limited(
    finding: impl Into<String>,
    why: impl Into<String>,
    fix: impl Into<String>,
) -> CheckFinding {
    let (finding, why, fix) = (finding.into(), why.into(), fix.into());
    CheckFinding { status: CheckStatus::Limited, finding, why, fix }
}

fn missing(
    finding: impl Into<String>,
    why: impl Into<String>,
    fix: impl Into<String>,
) -> CheckFinding {
    CheckFinding { status: CheckStatus::Missing, ..limited(finding, why, fix) }
}

/// A call that was refused, and with it something to measure.
fn refused(error: &io::Error, why: &str, fix: impl Into<String>) -> CheckFinding {
    missing(format!("refused: {error}"), why, fix)
}

/// Makes every check; takes about a quarter of a second, in which it keeps one CPU busy.
///
/// Ask before binding to a CPU: what is found then is about that CPU alone.
pub fn examine() -> Vec<HostCheck> {
    let tree = KernelFiles::machine();
    let topology = CpuTopology::machine();
    [
        processor::clocks(&tree),
        processor::examine(&tree, &topology),
        noise::examine(&tree),
        access::examine(&tree),
        access::queues(&tree),
        network::examine(&tree),
        network::stack(&tree),
        access::tracing(&tree),
    ]
    .concat()
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

impl From<&io::Error> for RefusalKind {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::Unsupported | io::ErrorKind::NotFound => Self::Unsupported,
            io::ErrorKind::PermissionDenied => Self::Forbidden,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each check came out so, and its finding and fix say this.
    pub fn each_says<const N: usize>(checks: [(CheckFinding, CheckStatus, &str); N]) {
        for (check, status, said) in checks {
            let text = format!("{}; {}", check.finding, check.fix);
            assert!(check.status == status && text.contains(said), "{status:?} {said}: {check:?}");
        }
    }

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
