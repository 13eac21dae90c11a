//! Whether counters and tracepoints can say where time goes.
//!
//! No figure of plumb needs them; they explain figures. Left out: using them.

use std::io;

use plumb_sys::probe::{self, PerfEvent};
use plumb_sys::{affinity, process};

use super::{Check, Question, Refusal};
use crate::clock::Stopwatch;
use crate::environment::tree::Tree;
use crate::trace::{EventSet, Recorder, TraceUnavailable};

pub(super) fn examine(tree: &Tree) -> Vec<Check> {
    vec![
        hardware(
            tree,
            probe::perf_event(PerfEvent::Cycles { kernel: false }),
            probe::perf_event(PerfEvent::Cycles { kernel: true }),
        ),
        software(tree, probe::perf_event(PerfEvent::ContextSwitches { kernel: false })),
        tracepoints(record()),
    ]
}

fn hardware(tree: &Tree, user: io::Result<()>, kernel: io::Result<()>) -> Check {
    let question = Question { id: "perf.hardware", what: "hardware performance counters" };
    let why = "cycles, instructions and cache misses cannot be counted; times are not affected";
    match (user, kernel) {
        (_, Ok(())) => Check::ok(question, "present, kernel included"),
        (Ok(()), Err(_)) => Check::limited(
            question,
            "present, for user code only",
            "the kernel's share of cycles and cache misses cannot be counted",
            paranoid_fix(),
        ),
        (Err(error), _) if Refusal::from(&error) == Refusal::Forbidden => {
            Check::missing(question, refused(tree, &error), why, paranoid_fix())
        }
        (Err(error), _) => Check::missing(
            question,
            match Refusal::from(&error) {
                Refusal::Unsupported => "none: the kernel sees no counters".to_owned(),
                _ => format!("refused: {error}"),
            },
            why,
            "nothing can on this machine; a hypervisor may pass them on (QEMU: -cpu host,pmu=on)",
        ),
    }
}

fn software(tree: &Tree, answer: io::Result<()>) -> Check {
    let question = Question { id: "perf.software", what: "software performance events" };
    let why = "switches, migrations and faults are counted by getrusage only";
    match answer {
        Ok(()) => Check::ok(question, "allowed"),
        Err(error) if Refusal::from(&error) == Refusal::Forbidden => {
            Check::limited(question, refused(tree, &error), why, paranoid_fix())
        }
        Err(error) => Check::limited(
            question,
            format!("none ({error})"),
            why,
            "nothing can: the kernel is built without PERF_EVENTS, or a filter hides it",
        ),
    }
}

/// What a breakdown does, of this thread on its own CPU: the kernel refuses more of it than one event.
fn record() -> Result<(), TraceUnavailable> {
    let cpu = affinity::current_cpu().unwrap_or(0);
    Recorder::open(&[process::thread_id()], &[cpu], EventSet::pipe(), Stopwatch::new(None))
        .map(drop)
}

fn tracepoints(answer: Result<(), TraceUnavailable>) -> Check {
    let question = Question { id: "trace.points", what: "kernel tracepoints" };
    let Err(error) = answer else { return Check::ok(question, "readable") };
    let finding = error.to_string();
    // The fix has a place of its own.
    let finding = finding.split("; ").next().unwrap_or_default();
    Check::limited(
        question,
        finding,
        "the path of a message through the kernel cannot be timed; figures are not affected",
        error.fix(),
    )
}

fn refused(tree: &Tree, error: &io::Error) -> String {
    let level = tree.text_or_reason("proc/sys/kernel/perf_event_paranoid");
    format!("refused: {error} (kernel.perf_event_paranoid = {level})")
}

/// Level 1 lets a user count the kernel's part in his own processes (perf-security.rst).
fn paranoid_fix() -> &'static str {
    "sudo sysctl -w kernel.perf_event_paranoid=1   (or as root; in a container also --cap-add PERFMON)"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;
    use crate::environment::fixture::Fixture;
    use std::io::ErrorKind::{NotFound, PermissionDenied};

    #[test]
    fn no_counters_and_forbidden_counters_are_different_answers() {
        let fixture = Fixture::new().file("proc/sys/kernel/perf_event_paranoid", "4\n");
        let tree = fixture.tree();
        let none = hardware(&tree, Err(NotFound.into()), Err(NotFound.into()));
        assert_eq!(none.status, Status::Missing);
        assert!(none.fix.starts_with("nothing can"), "{}", none.fix);
        let denied = hardware(&tree, Err(PermissionDenied.into()), Err(PermissionDenied.into()));
        assert!(denied.finding.contains("paranoid = 4"), "{}", denied.finding);
        assert!(denied.fix.starts_with("sudo sysctl"), "{}", denied.fix);
        let half = hardware(&tree, Ok(()), Err(PermissionDenied.into()));
        assert_eq!(half.status, Status::Limited);
        assert_eq!(hardware(&tree, Ok(()), Ok(())).status, Status::Ok);
        assert_eq!(software(&tree, Err(PermissionDenied.into())).status, Status::Limited);
    }

    #[test]
    fn tracepoints_that_cannot_be_recorded_bear_the_reason_and_its_own_remedy() {
        type Reason = fn(io::Error) -> TraceUnavailable;
        let reasons: [(Reason, &str, &str); 3] = [
            (TraceUnavailable::NoTracefs, "cannot be found", "mount -t tracefs"),
            (TraceUnavailable::Unreadable, "may not read", "remount,mode=750,gid="),
            (TraceUnavailable::Refused, "refuses to record", "perf_event_paranoid=-1"),
        ];
        for (reason, finding, fix) in reasons {
            let check = tracepoints(Err(reason(PermissionDenied.into())));
            assert_eq!(check.status, Status::Limited);
            assert!(check.finding.contains(finding), "{}", check.finding);
            assert!(check.fix.contains(fix) && !check.finding.contains(fix), "{check:?}");
        }
        assert_eq!(tracepoints(Ok(())).status, Status::Ok);
    }
}
