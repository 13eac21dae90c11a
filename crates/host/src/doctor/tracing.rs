//! Whether counters and tracepoints can say where time goes.
//!
//! No figure of plumb needs them; they explain figures. Left out: using them.

use std::io;

use plumb_sys::probe::{self, PerfEvent};

use super::{Check, Question, Refusal};
use crate::environment::tree::{Missing, Tree};
use crate::trace;

const EVENT: &str = "events/sched/sched_switch/id";

pub(super) fn examine(tree: &Tree) -> Vec<Check> {
    let id = match trace_event(tree) {
        // Who records then attaches a tracefs of his own, which root may.
        Err(Missing::Absent) => trace::switch_id().map_err(|_| Missing::Absent),
        id => id,
    };
    let opened = id.as_ref().ok().map(|id| probe::perf_event(PerfEvent::Tracepoint(*id)));
    vec![
        hardware(
            tree,
            probe::perf_event(PerfEvent::Cycles { kernel: false }),
            probe::perf_event(PerfEvent::Cycles { kernel: true }),
        ),
        software(tree, probe::perf_event(PerfEvent::ContextSwitches { kernel: false })),
        tracepoints(id.map(drop), opened),
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

fn tracepoints(id: Result<(), Missing>, opened: Option<io::Result<()>>) -> Check {
    let question = Question { id: "trace.points", what: "kernel tracepoints" };
    let why = "the path of a message through the kernel cannot be timed; figures are not affected";
    match (id, opened) {
        (Ok(()), Some(Ok(()))) => Check::ok(question, "readable"),
        (Err(Missing::Absent), _) => Check::limited(
            question,
            "tracefs is not mounted, and may not be by this user",
            why,
            "sudo mount -t tracefs tracefs /sys/kernel/tracing",
        ),
        (Err(missing), _) => Check::limited(
            question,
            missing.to_string(),
            why,
            "run plumb as root: sudo plumb doctor",
        ),
        (Ok(()), Some(Err(error))) => {
            Check::limited(question, format!("refused: {error}"), why, paranoid_fix())
        }
        (Ok(()), None) => Check::limited(question, "not tried", why, paranoid_fix()),
    }
}

/// The number of a tracepoint that every kernel with tracing has.
fn trace_event(tree: &Tree) -> Result<u64, Missing> {
    let text = tree.text(&format!("sys/kernel/tracing/{EVENT}")).or_else(|first| {
        tree.text(&format!("sys/kernel/debug/tracing/{EVENT}")).map_err(|_| first)
    })?;
    text.parse().map_err(|_| Missing::Unreadable("its id is not a number".to_owned()))
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
    fn tracing_is_found_at_its_new_and_its_old_place() {
        let new = Fixture::new().file(&format!("sys/kernel/tracing/{EVENT}"), "312\n");
        assert_eq!(trace_event(&new.tree()), Ok(312));
        let old = Fixture::new().file(&format!("sys/kernel/debug/tracing/{EVENT}"), "7\n");
        assert_eq!(trace_event(&old.tree()), Ok(7));
        assert_eq!(trace_event(&Fixture::new().tree()), Err(Missing::Absent));
        let mount = tracepoints(Err(Missing::Absent), None);
        assert!(mount.fix.contains("mount -t tracefs"), "{}", mount.fix);
        assert_eq!(tracepoints(Ok(()), Some(Ok(()))).status, Status::Ok);
    }
}
