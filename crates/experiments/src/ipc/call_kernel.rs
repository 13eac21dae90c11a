//! `call.kernel`: what it costs to enter the kernel and come back.

use crate::claims::{MILLER, ZHAO};
use crate::prelude::*;

/// Small system calls, raw and through libc, and one that stays outside the kernel.
pub static EXPERIMENT: Experiment = Experiment {
    id: "call.kernel",
    study: "ipc",
    question: "What does the smallest kernel call cost?",
    hypothesis: "All trivial calls cost the same within a few nanoseconds, raw or through libc; \
                 a clock read through the vDSO, which stays outside the kernel, costs less.",
    factors: &[
        Factor::of_words("call", "which call", &CALLS),
        Factor {
            fit: |first, levels| {
                // libc's clock_gettime is the vDSO's.
                let unfit = if has_vdso(first.text("call")) { "libc" } else { "vdso" };
                levels.into_iter().filter(|level| *level != FactorLevel::from(unfit)).collect()
            },
            ..Factor::of_words("via", "how it is made", &["syscall", "libc", "vdso"])
        },
    ],
    responses: &[CALL],
    plan_cell: |point| {
        let call = point.text("call").unwrap_or_default().to_owned();
        let via = point.text("via").unwrap_or_default().to_owned();
        if via == "vdso" && !has_vdso(Some(&call)) {
            let why = format!("the vDSO has no '{call}': it enters the kernel");
            return Err(Exclusion::impossible(why));
        }
        Ok((LaunchGroup::alone(), BlockTask::Call { call, via }))
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, rung: Some(rung), ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage { title: "Kernel calls", ..ExperimentPage::PLAIN },
};

/// One call.
pub(crate) const CALL: ResponseVariable =
    ResponseVariable::time("call", "time of one call, from a batch of them");

/// The calls by name.
const CALLS: [&str; 6] = ["getpid", "getppid", "getuid", "invalid", "read-zero", "clock-gettime"];

/// Whether the vDSO (vdso(7)) has it.
fn has_vdso(call: Option<&str>) -> bool {
    call == Some("clock-gettime")
}

/// A call as a rung; the cheapest that does nothing in the kernel is the unit of the others.
#[expect(clippy::unnecessary_wraps, reason = "the signature of every rung")]
fn rung(result: &CellResult) -> Option<RungLabel> {
    const EMPTY: [&str; 3] = ["getpid", "getppid", "getuid"];
    let call = result.text("call").unwrap_or("unnamed");
    let via = result.text("via");
    let text = match via {
        Some("vdso") => format!("{call}, vDSO"),
        Some("syscall") => format!("{call}, system call"),
        Some(via) => format!("{call}, {via}"),
        None => call.to_owned(),
    };
    let preference = (0..).zip(EMPTY).find(|(_, name)| *name == call && via == Some("syscall"));
    Some(RungLabel {
        empty_call: preference.map(|(preference, _)| preference),
        ..RungLabel::local(text)
    })
}

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "ipc.call.getpid-25ns",
        claim: "getpid() takes 25 to 27 ns.",
        historical: Some(
            "25 ns (§IV) and 27 ns (§V), i5-4570 at 3.2 GHz; glibc cached the process id until \
             2.25 (2017)",
        ),
        figures: &[
            PublishedFigure::comparable("getpid()", 25.0, Unit::Nanoseconds, "§IV"),
            PublishedFigure::comparable("getpid()", 27.0, Unit::Nanoseconds, "§V"),
        ],
        judge: |evidence| published_time(evidence, "getpid", (25.0, 27.0)),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.call.getuid-59ns",
        claim: "getuid() takes 59 ns.",
        historical: Some("59 ns (§IV), i5-4570 at 3.2 GHz"),
        figures: &[PublishedFigure::comparable("getuid()", 59.0, Unit::Nanoseconds, "§IV")],
        judge: |evidence| published_time(evidence, "getuid", (58.5, 59.5)),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.call.getuid-slower-than-getpid",
        claim: "getuid() is slower than getpid().",
        historical: Some("59 ns against 25 ns (§IV) or 27 ns (§V), i5-4570 at 3.2 GHz"),
        figures: &[
            PublishedFigure::ratio("getuid() to getpid()", 59.0 / 25.0, "§IV"),
            PublishedFigure::ratio("getuid() to getpid()", 59.0 / 27.0, "§V"),
        ],
        judge: |evidence| {
            let [getpid, getuid] = ["getpid", "getuid"].map(|call| cell(evidence, call, "libc"));
            let label = "getuid/getpid".to_owned();
            let cases = getpid.zip(getuid).map(|(a, b)| ClaimCase::order("", label, a, b));
            judge_all(cases.into_iter().collect(), NEEDS)
        },
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.call.favourite-is-fast",
        claim: "Kernels have the favourite call of benchmarks made faster than other simple calls.",
        judge: favourite,
        ..PublishedClaim::of(MILLER)
    },
];

const NEEDS: &str = "plumb run call.kernel";

/// A call is favoured when it costs less than every other call that does as little.
///
/// Not an invalid call, which does nothing: it is the floor that no call can undercut.
const OTHERS: [&str; 2] = ["getppid", "getuid"];

fn cell<'a>(evidence: &ClaimEvidence<'a>, call: &str, via: &str) -> Option<&'a MeasuredCell<'a>> {
    let mut cells = evidence.cells(EXPERIMENT.id, CALL.name);
    cells.find(|cell| cell.is("call", call) && cell.is("via", via))
}

fn published_time(evidence: &ClaimEvidence<'_>, call: &str, bounds: (f64, f64)) -> ClaimJudgment {
    let found = cell(evidence, call, "libc");
    let case = |cell| ClaimCase::median_within("", format!("{call}()"), cell, bounds);
    judge_all(found.map(case).into_iter().collect(), NEEDS)
}

fn favourite(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let mut found = ClaimCases::default();
    if let Some(getpid) = cell(evidence, "getpid", "syscall") {
        for call in OTHERS {
            match cell(evidence, call, "syscall") {
                Some(other) => {
                    let label = format!("{call}/getpid");
                    found.cases.push(ClaimCase::order("", label, getpid, other));
                }
                None => found.missing.push(format!("{call} as a system call")),
            }
        }
    }
    judge_all(found, NEEDS)
}
