//! Claims about trivial kernel calls (Zhao 2014, Figure 2 and §V; Miller 2014, part 2).
//!
//! The paper calls through libc, so its figures are set against that; what the kernel does is told
//! by raw system calls.

use plumb_base::units::Unit;

use super::Claim;
use super::evidence::{Evidence, Pairs};
use super::finding::{Case, Finding, every};
use super::published::{MILLER, ZHAO};
use crate::contrast;
use crate::summary::Measured;

const EXPERIMENT: &str = "call.kernel";
const NEEDS: &str = "plumb run call.kernel";

/// A call is favoured when it costs less than every other call that does as little.
///
/// Not an invalid call, which does nothing: it is the floor that no call can undercut.
const OTHERS: [&str; 2] = ["getppid", "getuid"];

/// The claims of `call.kernel`.
pub const CLAIMS: &[Claim] = &[
    Claim {
        id: "ipc.call.getpid-25ns",
        experiment: EXPERIMENT,
        claim: "getpid() takes 25 to 27 ns.",
        source: ZHAO,
        historical: Some(
            "25 ns (§IV) and 27 ns (§V), i5-4570 at 3.2 GHz; glibc cached the process id until \
             2.25 (2017)",
        ),
        judge: |evidence| published_time(evidence, "getpid", (25.0, 27.0)),
    },
    Claim {
        id: "ipc.call.getuid-59ns",
        experiment: EXPERIMENT,
        claim: "getuid() takes 59 ns.",
        source: ZHAO,
        historical: Some("59 ns (§IV), i5-4570 at 3.2 GHz"),
        judge: |evidence| published_time(evidence, "getuid", (58.5, 59.5)),
    },
    Claim {
        id: "ipc.call.getuid-slower-than-getpid",
        experiment: EXPERIMENT,
        claim: "getuid() is slower than getpid(), because it needs translation tables.",
        source: ZHAO,
        historical: Some("59 ns against 25 ns: 2.4 times, i5-4570 at 3.2 GHz"),
        judge: getuid_slower,
    },
    Claim {
        id: "ipc.call.favourite-is-fast",
        experiment: EXPERIMENT,
        claim: "Kernels have the favourite call of benchmarks made faster than other simple calls.",
        source: MILLER,
        historical: None,
        judge: favourite,
    },
];

fn cell<'a>(evidence: &Evidence<'a>, call: &str, via: &str) -> Option<&'a Measured<'a>> {
    evidence.cells(EXPERIMENT, "call").find(|measured| {
        let factors = &measured.cell.factors;
        factors.text("call") == Some(call) && factors.text("via") == Some(via)
    })
}

fn published_time(evidence: &Evidence<'_>, call: &str, bounds: (f64, f64)) -> Finding {
    let mut pairs = Pairs::default();
    if let Some(found) = cell(evidence, call, "libc") {
        let ends = found.interval().map(|interval| [interval.lo, interval.hi]);
        let label = format!("{call}()");
        let unit = Unit::Nanoseconds;
        pairs.cases.push(Case::quantity("", label, found.median(), ends, bounds, unit));
    }
    every(pairs, NEEDS)
}

fn getuid_slower(evidence: &Evidence<'_>) -> Finding {
    let mut pairs = Pairs::default();
    if let (Some(getpid), Some(getuid)) =
        (cell(evidence, "getpid", "libc"), cell(evidence, "getuid", "libc"))
    {
        let contrast = contrast::within_run(getpid, getuid);
        pairs.cases.push(Case::order("", "getuid/getpid".to_owned(), contrast));
    }
    every(pairs, NEEDS)
}

fn favourite(evidence: &Evidence<'_>) -> Finding {
    let mut pairs = Pairs::default();
    if let Some(getpid) = cell(evidence, "getpid", "syscall") {
        for call in OTHERS {
            match cell(evidence, call, "syscall") {
                Some(other) => {
                    let contrast = contrast::within_run(getpid, other);
                    pairs.cases.push(Case::order("", format!("{call}/getpid"), contrast));
                }
                None => pairs.missing.push(format!("{call} as a system call")),
            }
        }
    }
    every(pairs, NEEDS)
}
