//! What this process is allowed: its CPUs, other processes' memory, rings, namespaces, locked pages.
//!
//! Left out: message queues and sockets, which have files of their own.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use plumb_sys::probe::{self, Limit, Namespace};

use super::{Check, Question, Refusal};
use crate::environment::field;
use crate::environment::tree::Tree;

/// Locked pages that zero-copy sends of the largest messages want in flight.
const LOCKED_BYTES: u64 = 64 << 20;
/// Bits of the effective capabilities (capabilities(7)).
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_PTRACE: u32 = 19;

pub(super) fn examine(tree: &Tree) -> Vec<Check> {
    vec![
        pinning(rebind()),
        filter(tree),
        other_memory(tree, write_own_memory()),
        ring(tree, plumb_sys::uring::Ring::new().map(drop)),
        locked_memory(tree, probe::limit(Limit::LockedMemory).map(|(soft, _)| soft)),
        namespaces(tree, probe::namespace(Namespace::User), probe::namespace(Namespace::Ipc)),
    ]
}

/// Asks for the CPUs that this thread has already.
fn rebind() -> io::Result<()> {
    plumb_sys::affinity::bind(&plumb_sys::affinity::allowed_cpus()?)
}

fn pinning(answer: io::Result<()>) -> Check {
    let question = Question { id: "process.affinity", what: "binding to a CPU" };
    match answer {
        Ok(()) => Check::ok(question, "allowed"),
        Err(error) => Check::missing(
            question,
            format!("refused: {error}"),
            "only the scheduler placement can be measured: every figure depends on its choices",
            "docker run --security-opt seccomp=unconfined …   (where a filter refuses \
             sched_setaffinity)",
        ),
    }
}

fn filter(tree: &Tree) -> Check {
    let question = Question { id: "process.seccomp", what: "system call filter" };
    let status = tree.text("proc/self/status").unwrap_or_default();
    match field(&status, "Seccomp") {
        Some("0") => Check::ok(question, "none"),
        Some(mode) => {
            let count = field(&status, "Seccomp_filters").unwrap_or("some");
            Check::limited(
                question,
                format!("seccomp mode {mode}, {count} filter(s)"),
                "every system call runs the filter first: kernel calls look dearer than they are",
                "docker run --security-opt seccomp=unconfined …   (or outside the sandbox)",
            )
        }
        None => Check::ok(question, "the kernel has none"),
    }
}

fn other_memory(tree: &Tree, answer: io::Result<()>) -> Check {
    let question = Question { id: "ipc.process_vm", what: "process_vm_writev" };
    let why = "the vm-writev mechanism cannot be measured";
    if let Err(error) = answer {
        let fix = match Refusal::from(&error) {
            Refusal::Unsupported => "nothing can: the kernel is built without CROSS_MEMORY_ATTACH",
            _ => "docker run --cap-add SYS_PTRACE …   (a filter refuses it)",
        };
        return Check::missing(question, format!("refused: {error}"), why, fix);
    }
    // Linux's Documentation/admin-guide/LSM/Yama.rst.
    match tree.number::<u8>("proc/sys/kernel/yama/ptrace_scope") {
        None | Some(0) => Check::ok(question, "allowed between processes of one user"),
        Some(1) => Check::ok(question, "allowed, as plumb's processes permit one another"),
        Some(_) if has_capability(tree, CAP_SYS_PTRACE) => {
            Check::ok(question, "allowed by CAP_SYS_PTRACE")
        }
        Some(2) => Check::missing(
            question,
            "for administrators only (kernel.yama.ptrace_scope = 2)",
            why,
            "sudo sysctl -w kernel.yama.ptrace_scope=1",
        ),
        Some(scope) => Check::missing(
            question,
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
    plumb_sys::process::write_memory(std::process::id(), address, &value.to_ne_bytes())?;
    let arrived = target.load(Ordering::SeqCst) == value;
    if arrived { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

fn ring(tree: &Tree, answer: io::Result<()>) -> Check {
    let question = Question { id: "ipc.io_uring", what: "io_uring" };
    let Err(error) = answer else { return Check::ok(question, "allowed") };
    let switch = tree.number::<u8>("proc/sys/kernel/io_uring_disabled");
    let fix = match (Refusal::from(&error), switch) {
        (_, Some(1 | 2)) => "sudo sysctl -w kernel.io_uring_disabled=0",
        (Refusal::Unsupported, _) => {
            "docker run --security-opt seccomp=unconfined …   (if a filter hides it; otherwise \
             nothing can: the kernel is built without)"
        }
        (Refusal::Forbidden, _) => "docker run --security-opt seccomp=unconfined …",
        (Refusal::Other, _) => "ulimit -l unlimited   (rings need locked memory before Linux 5.12)",
    };
    Check::missing(
        question,
        format!("refused: {error}"),
        "the uring mechanism cannot be measured",
        fix,
    )
}

fn locked_memory(tree: &Tree, limit: io::Result<Option<u64>>) -> Check {
    let question = Question { id: "process.memlock", what: "locked memory" };
    if has_capability(tree, CAP_IPC_LOCK) {
        return Check::ok(question, "unlimited by CAP_IPC_LOCK");
    }
    let why =
        "zero-copy sends pin their pages: with more in flight they are refused and sent again";
    let fix = "sudo prlimit --memlock=unlimited --pid $$";
    match limit {
        Ok(None) => Check::ok(question, "unlimited"),
        Ok(Some(bytes)) if bytes >= LOCKED_BYTES => {
            Check::ok(question, format!("{} MiB", bytes >> 20))
        }
        Ok(Some(bytes)) => Check::limited(question, format!("{} KiB", bytes >> 10), why, fix),
        Err(error) => Check::limited(question, format!("unknown: {error}"), why, fix),
    }
}

fn namespaces(tree: &Tree, user: io::Result<()>, ipc: io::Result<()>) -> Check {
    let question = Question { id: "process.namespaces", what: "user and IPC namespaces" };
    let (finding, error) = match (user, ipc) {
        (Ok(()), Ok(())) => return Check::ok(question, "allowed"),
        (Err(error), _) => (format!("no user namespace: {error}"), error),
        (Ok(()), Err(error)) => (format!("a user namespace, but no IPC namespace: {error}"), error),
    };
    let fix = namespace_fix(tree, &error);
    Check::limited(
        question,
        finding,
        "message queues are made beside those of other programs, within the limits of all: a killed \
         run may leave a System V queue behind for the next to remove",
        fix,
    )
}

/// The switch that forbids user namespaces, or those inside them, and how to turn it.
pub(super) fn namespace_fix(tree: &Tree, error: &io::Error) -> &'static str {
    let zero = |path: &str| tree.number::<u64>(path) == Some(0);
    if zero("proc/sys/user/max_user_namespaces") {
        "sudo sysctl -w user.max_user_namespaces=10000"
    } else if zero("proc/sys/kernel/unprivileged_userns_clone") {
        "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    } else if tree.number("proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1_u8) {
        "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    } else if Refusal::from(error) == Refusal::Forbidden {
        "docker run --security-opt seccomp=unconfined …   (or as root)"
    } else {
        "nothing can: the kernel is built without USER_NS or IPC_NS, or a limit is reached"
    }
}

/// Whether an effective capability is held; on the safe side where it cannot be read.
fn has_capability(tree: &Tree, bit: u32) -> bool {
    let status = tree.text("proc/self/status").unwrap_or_default();
    field(&status, "CapEff")
        .and_then(|text| u64::from_str_radix(text, 16).ok())
        .is_some_and(|held| held >> bit & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;
    use crate::environment::fixture::Fixture;
    use std::io::ErrorKind::{PermissionDenied, Unsupported};

    fn refused(kind: io::ErrorKind) -> io::Result<()> {
        Err(kind.into())
    }

    #[test]
    fn memory_of_our_own_can_be_written_where_the_call_exists() {
        match write_own_memory() {
            Ok(()) => {}
            Err(error) => assert_ne!(error.kind(), io::ErrorKind::WriteZero),
        }
    }

    #[test]
    fn yama_decides_who_may_write_to_a_process() {
        let scope = |n: &str| Fixture::new().file("proc/sys/kernel/yama/ptrace_scope", n);
        assert_eq!(other_memory(&Fixture::new().tree(), Ok(())).status, Status::Ok);
        assert_eq!(other_memory(&scope("1").tree(), Ok(())).status, Status::Ok);
        assert!(other_memory(&scope("2").tree(), Ok(())).fix.starts_with("sudo sysctl"));
        assert!(other_memory(&scope("3").tree(), Ok(())).fix.contains("reboot"));
        let root = scope("2").file("proc/self/status", "CapEff:\t000001fffeffffff\n");
        assert_eq!(other_memory(&root.tree(), Ok(())).status, Status::Ok);
        let filtered = other_memory(&scope("0").tree(), refused(PermissionDenied));
        assert_eq!(filtered.status, Status::Missing);
    }

    #[test]
    fn a_refused_ring_names_the_switch_that_is_off() {
        let off = Fixture::new().file("proc/sys/kernel/io_uring_disabled", "2");
        let check = ring(&off.tree(), refused(PermissionDenied));
        assert_eq!(check.fix, "sudo sysctl -w kernel.io_uring_disabled=0");
        let on = Fixture::new().file("proc/sys/kernel/io_uring_disabled", "0");
        assert!(ring(&on.tree(), refused(PermissionDenied)).fix.contains("seccomp"));
        assert!(ring(&Fixture::new().tree(), refused(Unsupported)).fix.contains("built without"));
        assert_eq!(ring(&on.tree(), Ok(())).status, Status::Ok);
    }

    #[test]
    fn little_locked_memory_is_a_limit_unless_a_capability_lifts_it() {
        let plain = Fixture::new().file("proc/self/status", "CapEff:\t0000000000000000\n");
        assert_eq!(locked_memory(&plain.tree(), Ok(Some(8 << 20))).status, Status::Limited);
        assert_eq!(locked_memory(&plain.tree(), Ok(Some(64 << 20))).status, Status::Ok);
        assert_eq!(locked_memory(&plain.tree(), Ok(None)).status, Status::Ok);
        let root = Fixture::new().file("proc/self/status", "CapEff:\t0000000000004000\n");
        assert_eq!(locked_memory(&root.tree(), Ok(Some(0))).status, Status::Ok);
    }

    #[test]
    fn each_way_of_forbidding_namespaces_has_its_own_remedy() {
        for (path, value, remedy) in [
            ("user/max_user_namespaces", "0", "max_user_namespaces=10000"),
            ("kernel/unprivileged_userns_clone", "0", "unprivileged_userns_clone=1"),
            ("kernel/apparmor_restrict_unprivileged_userns", "1", "unprivileged_userns=0"),
        ] {
            let fixture = Fixture::new().file(&format!("proc/sys/{path}"), value);
            let check = namespaces(&fixture.tree(), Ok(()), refused(PermissionDenied));
            assert!(check.fix.ends_with(remedy), "{}", check.fix);
        }
        assert_eq!(namespaces(&Fixture::new().tree(), Ok(()), Ok(())).status, Status::Ok);
    }

    #[test]
    fn a_filter_is_a_limit_on_every_call() {
        let status = "Name:\tplumb\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        let check = filter(&Fixture::new().file("proc/self/status", status).tree());
        assert_eq!(check.status, Status::Limited);
        assert_eq!(check.finding, "seccomp mode 2, 1 filter(s)");
        let status = "Seccomp:\t0\nSeccomp_filters:\t0\n";
        let check = filter(&Fixture::new().file("proc/self/status", status).tree());
        assert_eq!(check.status, Status::Ok);
    }
}
