//! `call.kernel`: what it costs to enter the kernel and come back.

use plumb_base::units::Unit;
use plumb_harness::spec::{BlockTask, LaunchSubject};
use plumb_harness::topology::CpuPlacement;
use plumb_store::record::{Better, FactorLevel};

use crate::definition::{CellDecision, Experiment, LaunchGroup, ResponseVariable};
use crate::factor::{Factor, FactorDomain, always, keep_levels, words};
use plumb_analysis::document::CellResult;
use plumb_analysis::registry::ExperimentAnalysis;
use plumb_analysis::registry::RungLabel;
use plumb_report::registry::ExperimentPage;

/// Small system calls, raw and through libc, and one that stays outside the kernel.
pub static EXPERIMENT: Experiment = Experiment {
    id: "call.kernel",
    study: "ipc",
    question: "What does the smallest kernel call cost?",
    hypothesis: "All trivial calls cost the same within a few nanoseconds, raw or through libc; \
                 a clock read through the vDSO, which stays outside the kernel, costs less.",
    factors: &[
        Factor {
            name: "call",
            meaning: "which call",
            domain: FactorDomain::Words(&CALLS),
            levels: |_| words(&CALLS),
            applies: always,
            fit: keep_levels,
            labels: &[],
        },
        Factor {
            name: "via",
            meaning: "how it is made",
            domain: FactorDomain::Words(&["syscall", "libc", "vdso"]),
            levels: |_| words(&["syscall", "libc", "vdso"]),
            applies: always,
            fit: |first, levels| {
                // libc's clock_gettime is the vDSO's.
                let unfit = if has_vdso(first.text("call")) { "libc" } else { "vdso" };
                levels.into_iter().filter(|level| *level != FactorLevel::from(unfit)).collect()
            },
            labels: &[],
        },
    ],
    responses: &[ResponseVariable {
        name: "call",
        unit: Unit::Nanoseconds,
        better: Better::Lower,
        meaning: "time of one call, from a batch of them",
    }],
    plan_cell: |setting| {
        let call = setting.factors.text("call").unwrap_or_default().to_owned();
        let via = setting.factors.text("via").unwrap_or_default().to_owned();
        if via == "vdso" && !has_vdso(Some(&call)) {
            return CellDecision::impossible(format!(
                "the vDSO has no '{call}': it enters the kernel"
            ));
        }
        let group = LaunchGroup {
            subject: LaunchSubject::Alone,
            placement: CpuPlacement::SameCpu,
            cpu: None,
        };
        CellDecision::Measure { group, task: BlockTask::Call { call, via } }
    },
    analysis: ExperimentAnalysis {
        claims: claims::CLAIMS,
        rung: Some(rung),
        ..ExperimentAnalysis::PLAIN
    },
    page: ExperimentPage { title: "Kernel calls", ..ExperimentPage::PLAIN },
};

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

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::ipc::*;
    use plumb_analysis::claim::{
        ClaimCase, ClaimCases, ClaimEvidence, ClaimJudgment, PublishedClaim, PublishedFigure,
        judge_all,
    };
    use plumb_analysis::cost_ratio::{self};
    use plumb_analysis::summary::MeasuredCell;
    use plumb_base::units::Unit;

    pub(super) const CLAIMS: &[PublishedClaim] = &[
        PublishedClaim {
            id: "ipc.call.getpid-25ns",
            claim: "getpid() takes 25 to 27 ns.",
            source: ZHAO,
            historical: Some(
                "25 ns (§IV) and 27 ns (§V), i5-4570 at 3.2 GHz; glibc cached the process id until \
             2.25 (2017)",
            ),
            figures: &[PublishedFigure::comparable(
                "getpid()",
                26.0,
                Unit::Nanoseconds,
                "§IV and §V (25 and 27 ns)",
            )],
            judge: |evidence| published_time(evidence, "getpid", (25.0, 27.0)),
        },
        PublishedClaim {
            id: "ipc.call.getuid-59ns",
            claim: "getuid() takes 59 ns.",
            source: ZHAO,
            historical: Some("59 ns (§IV), i5-4570 at 3.2 GHz"),
            figures: &[PublishedFigure::comparable("getuid()", 59.0, Unit::Nanoseconds, "§IV")],
            judge: |evidence| published_time(evidence, "getuid", (58.5, 59.5)),
        },
        PublishedClaim {
            id: "ipc.call.getuid-slower-than-getpid",
            claim: "getuid() is slower than getpid(), because it needs translation tables.",
            source: ZHAO,
            historical: Some("59 ns against 25 ns: 2.4 times, i5-4570 at 3.2 GHz"),
            figures: &[PublishedFigure::comparable(
                "getuid() to getpid()",
                2.36,
                Unit::Count,
                "§IV",
            )],
            judge: getuid_slower,
        },
        PublishedClaim {
            id: "ipc.call.favourite-is-fast",
            claim: "Kernels have the favourite call of benchmarks made faster than other simple calls.",
            source: MILLER,
            historical: None,
            figures: &[],
            judge: favourite,
        },
    ];

    const EXPERIMENT: &str = "call.kernel";

    const NEEDS: &str = "plumb run call.kernel";

    /// A call is favoured when it costs less than every other call that does as little.
    ///
    /// Not an invalid call, which does nothing: it is the floor that no call can undercut.
    const OTHERS: [&str; 2] = ["getppid", "getuid"];

    fn cell<'a>(
        evidence: &ClaimEvidence<'a>,
        call: &str,
        via: &str,
    ) -> Option<&'a MeasuredCell<'a>> {
        evidence.cells(EXPERIMENT, "call").find(|measured| {
            let factors = &measured.cell.factors;
            factors.text("call") == Some(call) && factors.text("via") == Some(via)
        })
    }

    fn published_time(
        evidence: &ClaimEvidence<'_>,
        call: &str,
        bounds: (f64, f64),
    ) -> ClaimJudgment {
        let mut pairs = ClaimCases::default();
        if let Some(found) = cell(evidence, call, "libc") {
            let ends = found.interval().map(|interval| [interval.lo, interval.hi]);
            let label = format!("{call}()");
            let unit = Unit::Nanoseconds;
            pairs.cases.push(ClaimCase::quantity("", label, found.median(), ends, bounds, unit));
        }
        judge_all(pairs, NEEDS)
    }

    fn getuid_slower(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let mut pairs = ClaimCases::default();
        if let (Some(getpid), Some(getuid)) =
            (cell(evidence, "getpid", "libc"), cell(evidence, "getuid", "libc"))
        {
            let contrast = cost_ratio::within_run(getpid, getuid);
            pairs.cases.push(ClaimCase::order("", "getuid/getpid".to_owned(), contrast));
        }
        judge_all(pairs, NEEDS)
    }

    fn favourite(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let mut pairs = ClaimCases::default();
        if let Some(getpid) = cell(evidence, "getpid", "syscall") {
            for call in OTHERS {
                match cell(evidence, call, "syscall") {
                    Some(other) => {
                        let contrast = cost_ratio::within_run(getpid, other);
                        pairs.cases.push(ClaimCase::order("", format!("{call}/getpid"), contrast));
                    }
                    None => pairs.missing.push(format!("{call} as a system call")),
                }
            }
        }
        judge_all(pairs, NEEDS)
    }
}
