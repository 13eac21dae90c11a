//! Whether performance counters and tracepoints can show where time goes. They explain figures; no figure needs them.

use std::io;

use plumb_clock::Stopwatch;
use plumb_sys::probe::{self, PerfCounter};
use plumb_sys::{process, sched};

use super::{CheckQuestion, HostCheck, RefusalKind};
use crate::environment::KernelFiles;
use crate::trace::{TraceRecorder, TraceUnavailable, TracepointSet};

pub(super) fn examine(tree: &KernelFiles) -> Vec<HostCheck> {
    vec![
        hardware(
            tree,
            probe::perf_event(PerfCounter::Cycles { kernel: false }),
            probe::perf_event(PerfCounter::Cycles { kernel: true }),
        ),
        software(tree, probe::perf_event(PerfCounter::ContextSwitches { kernel: false })),
        tracepoints(record()),
    ]
}

fn hardware(tree: &KernelFiles, user: io::Result<()>, kernel: io::Result<()>) -> HostCheck {
    let question = CheckQuestion { id: "perf.hardware", what: "hardware performance counters" };
    let why = "cycles, instructions and cache misses cannot be counted; times are not affected";
    match (user, kernel) {
        (_, Ok(())) => HostCheck::ok(question, "present, kernel included"),
        (Ok(()), Err(_)) => HostCheck::limited(
            question,
            "present, for user code only",
            "the kernel's share of cycles and cache misses cannot be counted",
            paranoid_fix(),
        ),
        (Err(error), _) if RefusalKind::from(&error) == RefusalKind::Forbidden => {
            HostCheck::missing(question, refused(tree, &error), why, paranoid_fix())
        }
        (Err(error), _) => HostCheck::missing(
            question,
            match RefusalKind::from(&error) {
                RefusalKind::Unsupported => "none: the kernel sees no counters".to_owned(),
                _ => format!("refused: {error}"),
            },
            why,
            "nothing can on this machine; a hypervisor may pass them on (QEMU: -cpu host,pmu=on)",
        ),
    }
}

fn software(tree: &KernelFiles, answer: io::Result<()>) -> HostCheck {
    let question = CheckQuestion { id: "perf.software", what: "software performance events" };
    let why = "switches, migrations and faults are counted by getrusage only";
    match answer {
        Ok(()) => HostCheck::ok(question, "allowed"),
        Err(error) if RefusalKind::from(&error) == RefusalKind::Forbidden => {
            HostCheck::limited(question, refused(tree, &error), why, paranoid_fix())
        }
        Err(error) => HostCheck::limited(
            question,
            format!("none ({error})"),
            why,
            "nothing can: the kernel is built without PERF_EVENTS, or a filter hides it",
        ),
    }
}

/// What a breakdown does, of this thread on its own CPU: the kernel refuses more of it than one event.
fn record() -> Result<(), TraceUnavailable> {
    let cpu = sched::current_cpu().unwrap_or(0);
    TraceRecorder::open(
        &[process::thread_id()],
        &[cpu],
        TracepointSet::pipe(),
        Stopwatch::new(None),
    )
    .map(drop)
}

fn tracepoints(answer: Result<(), TraceUnavailable>) -> HostCheck {
    let question = CheckQuestion { id: "trace.points", what: "kernel tracepoints" };
    let Err(error) = answer else { return HostCheck::ok(question, "readable") };
    let finding = error.to_string();
    // The fix has a place of its own.
    let finding = finding.split("; ").next().unwrap_or_default();
    HostCheck::limited(
        question,
        finding,
        "the path of a message through the kernel cannot be timed; figures are not affected",
        error.fix(),
    )
}

fn refused(tree: &KernelFiles, error: &io::Error) -> String {
    let level = tree.line_or_reason("proc/sys/kernel/perf_event_paranoid");
    format!("refused: {error} (kernel.perf_event_paranoid = {level})")
}

/// Level 1 lets a user count the kernel's part in his own processes (perf-security.rst).
fn paranoid_fix() -> &'static str {
    "sudo sysctl -w kernel.perf_event_paranoid=1   (or as root; in a container also --cap-add PERFMON)"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::CheckStatus;
    use crate::environment::tests::MachineFixture;
    use std::io::ErrorKind::{NotFound, PermissionDenied};

    #[test]
    fn absent_and_forbidden_counters_differ() {
        let fixture = MachineFixture::new().file("proc/sys/kernel/perf_event_paranoid", "4\n");
        let tree = fixture.tree();
        let none = hardware(&tree, Err(NotFound.into()), Err(NotFound.into()));
        assert_eq!(none.status, CheckStatus::Missing);
        assert!(none.fix.starts_with("nothing can"), "{}", none.fix);
        let denied = hardware(&tree, Err(PermissionDenied.into()), Err(PermissionDenied.into()));
        assert!(denied.finding.contains("paranoid = 4"), "{}", denied.finding);
        assert!(denied.fix.starts_with("sudo sysctl"), "{}", denied.fix);
        let half = hardware(&tree, Ok(()), Err(PermissionDenied.into()));
        assert_eq!(half.status, CheckStatus::Limited);
        assert_eq!(hardware(&tree, Ok(()), Ok(())).status, CheckStatus::Ok);
        assert_eq!(software(&tree, Err(PermissionDenied.into())).status, CheckStatus::Limited);
    }

    #[test]
    fn each_tracing_failure_has_its_own_fix() {
        type Reason = fn(io::Error) -> TraceUnavailable;
        let reasons: [(Reason, &str, &str); 3] = [
            (TraceUnavailable::NoTracefs, "cannot be found", "mount -t tracefs"),
            (TraceUnavailable::Unreadable, "may not read", "remount,mode=750,gid="),
            (TraceUnavailable::Refused, "refuses to record", "perf_event_paranoid=-1"),
        ];
        for (reason, finding, fix) in reasons {
            let check = tracepoints(Err(reason(PermissionDenied.into())));
            assert_eq!(check.status, CheckStatus::Limited);
            assert!(check.finding.contains(finding), "{}", check.finding);
            assert!(check.fix.contains(fix) && !check.finding.contains(fix), "{check:?}");
        }
        assert_eq!(tracepoints(Ok(())).status, CheckStatus::Ok);
    }
}
