//! What this process is allowed: its CPUs, other processes' memory, rings, namespaces, locked pages, message queues; and
//! performance counters and tracepoints, which explain figures, but no figure needs them.

use std::ffi::CString;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use plumb_base::units::format_bytes;
use plumb_clock::Stopwatch;
use plumb_sys::probe::{self, PerfCounter, ProbedNamespace, ResourceLimit};
use plumb_sys::{process, sched};

use super::{CheckFinding, HostCheck, RefusalKind, limited, missing, ok, refused};
use crate::environment::{KernelFiles, field};
use crate::trace::{TraceRecorder, TraceUnavailable, TracepointSet};

/// Locked pages that zero-copy sends of the largest messages want in flight.
const LOCKED_BYTES: u64 = 64 << 20;
/// Bits of the effective capabilities (capabilities(7)).
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_PTRACE: u32 = 19;

pub(super) fn examine(tree: &KernelFiles) -> Vec<HostCheck> {
    vec![
        pinning(rebind_to_allowed_cpus()).of("process.affinity", "binding to a CPU"),
        filter(tree).of("process.seccomp", "system call filter"),
        other_memory(tree, write_own_memory()).of("ipc.process_vm", "process_vm_writev"),
        ring(tree, plumb_sys::uring::SingleOpRing::new().map(drop)).of("ipc.io_uring", "io_uring"),
        locked_memory(tree, Ok(probe::limit(ResourceLimit::Memlock).0))
            .of("process.memlock", "locked memory"),
        namespaces(
            tree,
            probe::namespace(ProbedNamespace::User),
            probe::namespace(ProbedNamespace::Ipc),
        )
        .of("process.namespaces", "user and IPC namespaces"),
    ]
}

/// Asks for the CPUs that this thread has already.
fn rebind_to_allowed_cpus() -> io::Result<()> {
    sched::bind(&sched::allowed_cpus()?)
}

fn pinning(answer: io::Result<()>) -> CheckFinding {
    match answer {
        Ok(()) => ok("allowed"),
        Err(error) => refused(
            &error,
            "only the scheduler placement can be measured: every figure depends on its choices",
            "docker run --security-opt seccomp=unconfined …   (where a filter refuses \
             sched_setaffinity)",
        ),
    }
}

fn filter(tree: &KernelFiles) -> CheckFinding {
    let status = tree.text("proc/self/status").unwrap_or_default();
    match field(&status, "Seccomp") {
        Some("0") => ok("none"),
        Some(mode) => {
            let count = field(&status, "Seccomp_filters").unwrap_or("some");
            limited(
                format!("seccomp mode {mode}, {count} filter(s)"),
                "every system call runs the filter first: kernel calls look dearer than they are",
                "docker run --security-opt seccomp=unconfined …   (or outside the sandbox)",
            )
        }
        None => ok("the kernel has none"),
    }
}

fn other_memory(tree: &KernelFiles, answer: io::Result<()>) -> CheckFinding {
    let why = "the vm-writev mechanism cannot be measured";
    if let Err(error) = answer {
        let fix = match RefusalKind::from(&error) {
            RefusalKind::Unsupported => {
                "nothing can: the kernel is built without CROSS_MEMORY_ATTACH"
            }
            _ => "docker run --cap-add SYS_PTRACE …   (a filter refuses it)",
        };
        return refused(&error, why, fix);
    }
    // Linux's Documentation/admin-guide/LSM/Yama.rst.
    match tree.number::<u8>("proc/sys/kernel/yama/ptrace_scope") {
        None | Some(0) => ok("allowed between processes of one user"),
        Some(1) => ok("allowed, as plumb's processes permit one another"),
        Some(_) if has_capability(tree, CAP_SYS_PTRACE) => ok("allowed by CAP_SYS_PTRACE"),
        Some(2) => missing(
            "for administrators only (kernel.yama.ptrace_scope = 2)",
            why,
            "sudo sysctl -w kernel.yama.ptrace_scope=1",
        ),
        Some(scope) => missing(
            format!("switched off until the next boot (kernel.yama.ptrace_scope = {scope})"),
            why,
            "remove kernel.yama.ptrace_scope from /etc/sysctl.d and reboot",
        ),
    }
}

/// Tries the call on memory of our own, which every rule but a filter permits.
fn write_own_memory() -> io::Result<()> {
    let target = AtomicU64::new(0);
    let value = 0x706c_756d_6221_u64;
    let address = std::ptr::from_ref(&target).addr() as u64;
    process::write_memory(std::process::id(), address, &value.to_ne_bytes())?;
    let arrived = target.load(Ordering::SeqCst) == value;
    if arrived { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

fn ring(tree: &KernelFiles, answer: io::Result<()>) -> CheckFinding {
    let Err(error) = answer else { return ok("allowed") };
    let switch = tree.number::<u8>("proc/sys/kernel/io_uring_disabled");
    let fix = match (RefusalKind::from(&error), switch) {
        (_, Some(1 | 2)) => "sudo sysctl -w kernel.io_uring_disabled=0",
        (RefusalKind::Unsupported, _) => {
            "docker run --security-opt seccomp=unconfined …   (if a filter hides it; otherwise \
             nothing can: the kernel is built without)"
        }
        (RefusalKind::Forbidden, _) => "docker run --security-opt seccomp=unconfined …",
        (RefusalKind::Other, _) => {
            "ulimit -l unlimited   (rings need locked memory before Linux 5.12)"
        }
    };
    refused(&error, "the uring mechanism cannot be measured", fix)
}

fn locked_memory(tree: &KernelFiles, limit: io::Result<Option<u64>>) -> CheckFinding {
    if has_capability(tree, CAP_IPC_LOCK) {
        return ok("unlimited by CAP_IPC_LOCK");
    }
    let why =
        "zero-copy sends pin their pages: with more in flight they are refused and sent again";
    let fix = "sudo prlimit --memlock=unlimited --pid $$";
    match limit {
        Ok(None) => ok("unlimited"),
        Ok(Some(bytes)) if bytes >= LOCKED_BYTES => ok(format!("{} MiB", bytes >> 20)),
        Ok(Some(bytes)) => limited(format!("{} KiB", bytes >> 10), why, fix),
        Err(error) => limited(format!("unknown: {error}"), why, fix),
    }
}

fn namespaces(tree: &KernelFiles, user: io::Result<()>, ipc: io::Result<()>) -> CheckFinding {
    let (finding, error) = match (user, ipc) {
        (Ok(()), Ok(())) => return ok("allowed"),
        (Err(error), _) => (format!("no user namespace: {error}"), error),
        (Ok(()), Err(error)) => (format!("a user namespace, but no IPC namespace: {error}"), error),
    };
    let fix = namespace_fix(tree, &error);
    limited(
        finding,
        "message queues are made beside those of other programs, within the limits of all: a killed \
         run may leave a System V queue behind for the next to remove",
        fix,
    )
}

/// The switch that forbids user namespaces, or those inside them, and how to turn it.
pub(super) fn namespace_fix(tree: &KernelFiles, error: &io::Error) -> &'static str {
    let zero = |path: &str| tree.number::<u64>(path) == Some(0);
    if zero("proc/sys/user/max_user_namespaces") {
        "sudo sysctl -w user.max_user_namespaces=10000"
    } else if zero("proc/sys/kernel/unprivileged_userns_clone") {
        "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    } else if tree.number("proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1_u8) {
        "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    } else if RefusalKind::from(error) == RefusalKind::Forbidden {
        "docker run --security-opt seccomp=unconfined …   (or as root)"
    } else {
        "nothing can: the kernel is built without USER_NS or IPC_NS, or a limit is reached"
    }
}

/// Whether an effective capability is held; on the safe side where it cannot be read.
fn has_capability(tree: &KernelFiles, bit: u32) -> bool {
    let status = tree.text("proc/self/status").unwrap_or_default();
    field(&status, "CapEff")
        .and_then(|text| u64::from_str_radix(text, 16).ok())
        .is_some_and(|held| held >> bit & 1 == 1)
}

/// What both kinds of queue take by default on Linux.
const MESSAGE_BYTES: u64 = 8192;
const MESSAGES: i64 = 10;

pub(super) fn queues(tree: &KernelFiles) -> Vec<HostCheck> {
    vec![
        posix(tree, try_posix(tree)).of("ipc.posix_queue", "POSIX message queues"),
        system_v(tree, try_system_v()).of("ipc.sysv_queue", "System V message queues"),
    ]
}

fn posix(tree: &KernelFiles, answer: io::Result<()>) -> CheckFinding {
    let why = "the mq-posix mechanism cannot be measured";
    // EMFILE, ENOSPC, ENOMEM, EINVAL: mq_open(3).
    let if_full = "sudo prlimit --msgqueue=819200 --pid $$ && sudo sysctl -w fs.mqueue.queues_max=256 \
                   fs.mqueue.msg_max=10";
    match answer {
        Ok(()) => size(tree, "fs.mqueue.msgsize_max"),
        Err(error) => refused(&error, why, queue_fix(&error, "POSIX_MQUEUE", if_full)),
    }
}

fn system_v(tree: &KernelFiles, answer: io::Result<()>) -> CheckFinding {
    let why = "the mq-sysv mechanism cannot be measured";
    let if_full = "ipcs -q   (shows the queues that use up kernel.msgmni; ipcrm -q ID)";
    match answer {
        Ok(()) => size(tree, "kernel.msgmax"),
        Err(error) => refused(&error, why, queue_fix(&error, "SYSVIPC", if_full)),
    }
}

fn queue_fix(error: &io::Error, option: &str, if_full: &str) -> String {
    match RefusalKind::from(error) {
        RefusalKind::Unsupported => format!("nothing can: the kernel is built without {option}"),
        RefusalKind::Forbidden => "docker run --security-opt seccomp=unconfined …".to_owned(),
        RefusalKind::Other => if_full.to_owned(),
    }
}

fn size(tree: &KernelFiles, sysctl: &str) -> CheckFinding {
    let path = format!("proc/sys/{}", sysctl.replace('.', "/"));
    let limit = tree.number(&path).unwrap_or(MESSAGE_BYTES);
    let finding = format!("messages up to {}, longer ones in parts", format_bytes(limit));
    if limit >= MESSAGE_BYTES {
        return ok(finding);
    }
    limited(
        finding,
        "parts are shorter than on most machines, so long messages take more calls than elsewhere",
        format!("sudo sysctl -w {sysctl}={MESSAGE_BYTES}"),
    )
}

/// Makes a queue of the default size and lets it go.
fn try_posix(tree: &KernelFiles) -> io::Result<()> {
    let limit = |name: &str, most: i64| {
        tree.number(&format!("proc/sys/fs/mqueue/{name}")).unwrap_or(most).clamp(1, most)
    };
    let bytes = i64::try_from(MESSAGE_BYTES).unwrap_or(i64::MAX);
    let name = CString::new(format!("/plumb-doctor-{}", std::process::id()))?;
    let (messages, bytes) = (limit("msg_max", MESSAGES), limit("msgsize_max", bytes));
    plumb_sys::ipc::posix_queue(&name, messages, bytes).map(drop)
}

/// Makes a private queue and removes it.
fn try_system_v() -> io::Result<()> {
    // IPC_PRIVATE: a queue that no key finds.
    const PRIVATE: i32 = 0;
    plumb_sys::ipc::sysv_remove(plumb_sys::ipc::sysv_create(PRIVATE)?)
}

pub(super) fn tracing(tree: &KernelFiles) -> Vec<HostCheck> {
    vec![
        hardware(
            tree,
            probe::perf_event(PerfCounter::Cycles { kernel: false }),
            probe::perf_event(PerfCounter::Cycles { kernel: true }),
        )
        .of("perf.hardware", "hardware performance counters"),
        software(tree, probe::perf_event(PerfCounter::ContextSwitches { kernel: false }))
            .of("perf.software", "software performance events"),
        tracepoints(record()).of("trace.points", "kernel tracepoints"),
    ]
}

fn hardware(tree: &KernelFiles, user: io::Result<()>, kernel: io::Result<()>) -> CheckFinding {
    let why = "cycles, instructions and cache misses cannot be counted; times are not affected";
    match (user, kernel) {
        (_, Ok(())) => ok("present, kernel included"),
        (Ok(()), Err(_)) => limited(
            "present, for user code only",
            "the kernel's share of cycles and cache misses cannot be counted",
            paranoid_fix(),
        ),
        (Err(error), _) if RefusalKind::from(&error) == RefusalKind::Forbidden => {
            missing(refused_by_level(tree, &error), why, paranoid_fix())
        }
        (Err(error), _) => missing(
            match RefusalKind::from(&error) {
                RefusalKind::Unsupported => "none: the kernel sees no counters".to_owned(),
                _ => format!("refused: {error}"),
            },
            why,
            "nothing can on this machine; a hypervisor may pass them on (QEMU: -cpu host,pmu=on)",
        ),
    }
}

fn software(tree: &KernelFiles, answer: io::Result<()>) -> CheckFinding {
    let why = "switches, migrations and faults are counted by getrusage only";
    match answer {
        Ok(()) => ok("allowed"),
        Err(error) if RefusalKind::from(&error) == RefusalKind::Forbidden => {
            limited(refused_by_level(tree, &error), why, paranoid_fix())
        }
        Err(error) => limited(
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

fn tracepoints(answer: Result<(), TraceUnavailable>) -> CheckFinding {
    let Err(error) = answer else { return ok("readable") };
    let error = error.to_string();
    let (finding, fix) = error.split_once("; ").unwrap_or((&error, "no setting helps"));
    limited(
        finding,
        "the path of a message through the kernel cannot be timed; figures are not affected",
        fix,
    )
}

fn refused_by_level(tree: &KernelFiles, error: &io::Error) -> String {
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
    use crate::doctor::CheckStatus::{Limited, Missing, Ok as Well};
    use crate::doctor::tests::each_says;
    use crate::environment::tests::MachineFixture;
    use std::io::ErrorKind::{NotFound, PermissionDenied, Unsupported};

    fn denied() -> io::Result<()> {
        Err(PermissionDenied.into())
    }

    fn absent() -> io::Result<()> {
        Err(NotFound.into())
    }

    fn sys(path: &str, value: &str) -> MachineFixture {
        MachineFixture::with(&format!("proc/sys/{path}"), value)
    }

    fn status(text: &str) -> MachineFixture {
        MachineFixture::with("proc/self/status", text)
    }

    #[test]
    fn each_hindrance_of_memory_and_rings_has_its_own_fix() {
        let none = MachineFixture::new();
        let scope = |level: &str| sys("kernel/yama/ptrace_scope", level);
        let rings = |disabled: &str| sys("kernel/io_uring_disabled", disabled);
        let root = scope("2").file("proc/self/status", "CapEff:\t000001fffeffffff\n");
        let plain = status("CapEff:\t0000000000000000\n");
        let may_lock = status("CapEff:\t0000000000004000\n");
        each_says([
            (other_memory(&none, Ok(())), Well, ""),
            (other_memory(&scope("1"), Ok(())), Well, ""),
            (other_memory(&scope("2"), Ok(())), Missing, "; sudo sysctl"),
            (other_memory(&scope("3"), Ok(())), Missing, "reboot"),
            (other_memory(&root, Ok(())), Well, ""),
            (other_memory(&scope("0"), denied()), Missing, ""),
            (ring(&rings("2"), denied()), Missing, "sudo sysctl -w kernel.io_uring_disabled=0"),
            (ring(&rings("0"), denied()), Missing, "seccomp"),
            (ring(&none, Err(Unsupported.into())), Missing, "built without"),
            (ring(&rings("0"), Ok(())), Well, ""),
            (locked_memory(&plain, Ok(Some(8 << 20))), Limited, ""),
            (locked_memory(&plain, Ok(Some(64 << 20))), Well, ""),
            (locked_memory(&plain, Ok(None)), Well, ""),
            (locked_memory(&may_lock, Ok(Some(0))), Well, ""),
        ]);
    }

    #[test]
    fn each_restriction_of_namespaces_and_calls_is_found() {
        let refused = |path, value| namespaces(&sys(path, value), Ok(()), denied());
        let apparmor = "kernel/apparmor_restrict_unprivileged_userns";
        let filtered = status("Name:\tplumb\nSeccomp:\t2\nSeccomp_filters:\t1\n");
        let clone = "kernel/unprivileged_userns_clone";
        each_says([
            (refused("user/max_user_namespaces", "0"), Limited, "max_user_namespaces=10000"),
            (refused(clone, "0"), Limited, "unprivileged_userns_clone=1"),
            (refused(apparmor, "1"), Limited, "unprivileged_userns=0"),
            (namespaces(&MachineFixture::new(), Ok(()), Ok(())), Well, ""),
            (filter(&filtered), Limited, "seccomp mode 2, 1 filter(s)"),
            (filter(&status("Seccomp:\t0\nSeccomp_filters:\t0\n")), Well, ""),
        ]);
    }

    #[test]
    fn queue_limits_are_named() {
        let tree = sys("fs/mqueue/msgsize_max", "65536").file("proc/sys/kernel/msgmax", "4096");
        each_says([
            (posix(&tree, Ok(())), Well, "messages up to 64Ki, longer ones in parts"),
            (system_v(&tree, Ok(())), Limited, "sudo sysctl -w kernel.msgmax=8192"),
            (posix(&tree, Err(io::Error::from_raw_os_error(24))), Missing, "--msgqueue"),
            (system_v(&tree, Err(Unsupported.into())), Missing, "SYSVIPC"),
        ]);
    }

    #[test]
    fn trying_leaves_no_queue_behind() {
        let queues = || std::fs::read_to_string("/proc/sysvipc/msg").unwrap_or_default();
        let mine = |text: &str| {
            let id = std::process::id().to_string();
            text.lines().filter(|line| line.split_whitespace().any(|word| word == id)).count()
        };
        let _ = try_system_v();
        assert_eq!(mine(&queues()), 0);
        // A second queue of the same name would be refused if the first were still there.
        let tree = KernelFiles::machine();
        if try_posix(&tree).is_ok() {
            try_posix(&tree).unwrap();
        }
    }

    #[test]
    fn absent_and_forbidden_counters_and_traces_differ() {
        let tree = sys("kernel/perf_event_paranoid", "4\n");
        let untraced = |reason: fn(io::Error) -> TraceUnavailable| {
            tracepoints(Err(reason(PermissionDenied.into())))
        };
        each_says([
            (hardware(&tree, absent(), absent()), Missing, "; nothing can"),
            (hardware(&tree, denied(), denied()), Missing, "paranoid = 4"),
            (hardware(&tree, denied(), denied()), Missing, "; sudo sysctl"),
            (hardware(&tree, Ok(()), denied()), Limited, ""),
            (hardware(&tree, Ok(()), Ok(())), Well, ""),
            (software(&tree, denied()), Limited, ""),
            (untraced(TraceUnavailable::NoTracefs), Limited, "cannot be found"),
            (untraced(TraceUnavailable::NoTracefs), Limited, "mount -t tracefs"),
            (untraced(TraceUnavailable::Unreadable), Limited, "remount,mode=750,gid="),
            (untraced(TraceUnavailable::Refused), Limited, "perf_event_paranoid=-1"),
            (tracepoints(Ok(())), Well, ""),
        ]);
    }
}
