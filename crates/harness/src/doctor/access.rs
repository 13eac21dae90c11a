//! What this process is allowed: its CPUs, other processes' memory, rings, namespaces, locked pages, message queues.

use std::ffi::CString;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use plumb_base::units::format_bytes;
use plumb_sys::probe::{self, ProbedNamespace, ResourceLimit};

use super::{CheckQuestion, HostCheck, RefusalKind};
use crate::environment::{KernelFiles, field};

/// Locked pages that zero-copy sends of the largest messages want in flight.
const LOCKED_BYTES: u64 = 64 << 20;
/// Bits of the effective capabilities (capabilities(7)).
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_PTRACE: u32 = 19;

pub(super) fn examine(tree: &KernelFiles) -> Vec<HostCheck> {
    vec![
        pinning(rebind_to_allowed_cpus()),
        filter(tree),
        other_memory(tree, write_own_memory()),
        ring(tree, plumb_sys::uring::SingleOpRing::new().map(drop)),
        locked_memory(tree, Ok(probe::limit(ResourceLimit::Memlock).0)),
        namespaces(
            tree,
            probe::namespace(ProbedNamespace::User),
            probe::namespace(ProbedNamespace::Ipc),
        ),
    ]
}

/// Asks for the CPUs that this thread has already.
fn rebind_to_allowed_cpus() -> io::Result<()> {
    plumb_sys::sched::bind(&plumb_sys::sched::allowed_cpus()?)
}

fn pinning(answer: io::Result<()>) -> HostCheck {
    let question = CheckQuestion { id: "process.affinity", what: "binding to a CPU" };
    match answer {
        Ok(()) => HostCheck::ok(question, "allowed"),
        Err(error) => HostCheck::missing(
            question,
            format!("refused: {error}"),
            "only the scheduler placement can be measured: every figure depends on its choices",
            "docker run --security-opt seccomp=unconfined …   (where a filter refuses \
             sched_setaffinity)",
        ),
    }
}

fn filter(tree: &KernelFiles) -> HostCheck {
    let question = CheckQuestion { id: "process.seccomp", what: "system call filter" };
    let status = tree.text("proc/self/status").unwrap_or_default();
    match field(&status, "Seccomp") {
        Some("0") => HostCheck::ok(question, "none"),
        Some(mode) => {
            let count = field(&status, "Seccomp_filters").unwrap_or("some");
            HostCheck::limited(
                question,
                format!("seccomp mode {mode}, {count} filter(s)"),
                "every system call runs the filter first: kernel calls look dearer than they are",
                "docker run --security-opt seccomp=unconfined …   (or outside the sandbox)",
            )
        }
        None => HostCheck::ok(question, "the kernel has none"),
    }
}

fn other_memory(tree: &KernelFiles, answer: io::Result<()>) -> HostCheck {
    let question = CheckQuestion { id: "ipc.process_vm", what: "process_vm_writev" };
    let why = "the vm-writev mechanism cannot be measured";
    if let Err(error) = answer {
        let fix = match RefusalKind::from(&error) {
            RefusalKind::Unsupported => {
                "nothing can: the kernel is built without CROSS_MEMORY_ATTACH"
            }
            _ => "docker run --cap-add SYS_PTRACE …   (a filter refuses it)",
        };
        return HostCheck::missing(question, format!("refused: {error}"), why, fix);
    }
    // Linux's Documentation/admin-guide/LSM/Yama.rst.
    match tree.number::<u8>("proc/sys/kernel/yama/ptrace_scope") {
        None | Some(0) => HostCheck::ok(question, "allowed between processes of one user"),
        Some(1) => HostCheck::ok(question, "allowed, as plumb's processes permit one another"),
        Some(_) if has_capability(tree, CAP_SYS_PTRACE) => {
            HostCheck::ok(question, "allowed by CAP_SYS_PTRACE")
        }
        Some(2) => HostCheck::missing(
            question,
            "for administrators only (kernel.yama.ptrace_scope = 2)",
            why,
            "sudo sysctl -w kernel.yama.ptrace_scope=1",
        ),
        Some(scope) => HostCheck::missing(
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

fn ring(tree: &KernelFiles, answer: io::Result<()>) -> HostCheck {
    let question = CheckQuestion { id: "ipc.io_uring", what: "io_uring" };
    let Err(error) = answer else { return HostCheck::ok(question, "allowed") };
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
    HostCheck::missing(
        question,
        format!("refused: {error}"),
        "the uring mechanism cannot be measured",
        fix,
    )
}

fn locked_memory(tree: &KernelFiles, limit: io::Result<Option<u64>>) -> HostCheck {
    let question = CheckQuestion { id: "process.memlock", what: "locked memory" };
    if has_capability(tree, CAP_IPC_LOCK) {
        return HostCheck::ok(question, "unlimited by CAP_IPC_LOCK");
    }
    let why =
        "zero-copy sends pin their pages: with more in flight they are refused and sent again";
    let fix = "sudo prlimit --memlock=unlimited --pid $$";
    match limit {
        Ok(None) => HostCheck::ok(question, "unlimited"),
        Ok(Some(bytes)) if bytes >= LOCKED_BYTES => {
            HostCheck::ok(question, format!("{} MiB", bytes >> 20))
        }
        Ok(Some(bytes)) => HostCheck::limited(question, format!("{} KiB", bytes >> 10), why, fix),
        Err(error) => HostCheck::limited(question, format!("unknown: {error}"), why, fix),
    }
}

fn namespaces(tree: &KernelFiles, user: io::Result<()>, ipc: io::Result<()>) -> HostCheck {
    let question = CheckQuestion { id: "process.namespaces", what: "user and IPC namespaces" };
    let (finding, error) = match (user, ipc) {
        (Ok(()), Ok(())) => return HostCheck::ok(question, "allowed"),
        (Err(error), _) => (format!("no user namespace: {error}"), error),
        (Ok(()), Err(error)) => (format!("a user namespace, but no IPC namespace: {error}"), error),
    };
    let fix = namespace_fix(tree, &error);
    HostCheck::limited(
        question,
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
    vec![posix(tree, try_posix(tree)), system_v(tree, try_system_v())]
}

fn posix(tree: &KernelFiles, answer: io::Result<()>) -> HostCheck {
    let question = CheckQuestion { id: "ipc.posix_queue", what: "POSIX message queues" };
    let why = "the mq-posix mechanism cannot be measured";
    let Err(error) = answer else {
        let limit = tree.number("proc/sys/fs/mqueue/msgsize_max").unwrap_or(MESSAGE_BYTES);
        return size(question, limit, "fs.mqueue.msgsize_max");
    };
    let fix = match RefusalKind::from(&error) {
        RefusalKind::Unsupported => "nothing can: the kernel is built without POSIX_MQUEUE",
        RefusalKind::Forbidden => "docker run --security-opt seccomp=unconfined …",
        // EMFILE, ENOSPC, ENOMEM, EINVAL: mq_open(3).
        RefusalKind::Other => {
            "sudo prlimit --msgqueue=819200 --pid $$ && sudo sysctl -w fs.mqueue.queues_max=256 \
             fs.mqueue.msg_max=10"
        }
    };
    HostCheck::missing(question, format!("refused: {error}"), why, fix)
}

fn system_v(tree: &KernelFiles, answer: io::Result<()>) -> HostCheck {
    let question = CheckQuestion { id: "ipc.sysv_queue", what: "System V message queues" };
    let why = "the mq-sysv mechanism cannot be measured";
    let Err(error) = answer else {
        let limit = tree.number("proc/sys/kernel/msgmax").unwrap_or(MESSAGE_BYTES);
        return size(question, limit, "kernel.msgmax");
    };
    let fix = match RefusalKind::from(&error) {
        RefusalKind::Unsupported => "nothing can: the kernel is built without SYSVIPC",
        RefusalKind::Forbidden => "docker run --security-opt seccomp=unconfined …",
        RefusalKind::Other => "ipcs -q   (shows the queues that use up kernel.msgmni; ipcrm -q ID)",
    };
    HostCheck::missing(question, format!("refused: {error}"), why, fix)
}

fn size(question: CheckQuestion, limit: u64, sysctl: &str) -> HostCheck {
    let finding = format!("messages up to {}, longer ones in parts", format_bytes(limit));
    if limit >= MESSAGE_BYTES {
        return HostCheck::ok(question, finding);
    }
    HostCheck::limited(
        question,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::CheckStatus;
    use crate::environment::tests::MachineFixture;
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
        let scope = |n: &str| MachineFixture::new().file("proc/sys/kernel/yama/ptrace_scope", n);
        assert_eq!(other_memory(&MachineFixture::new().tree(), Ok(())).status, CheckStatus::Ok);
        assert_eq!(other_memory(&scope("1").tree(), Ok(())).status, CheckStatus::Ok);
        assert!(other_memory(&scope("2").tree(), Ok(())).fix.starts_with("sudo sysctl"));
        assert!(other_memory(&scope("3").tree(), Ok(())).fix.contains("reboot"));
        let root = scope("2").file("proc/self/status", "CapEff:\t000001fffeffffff\n");
        assert_eq!(other_memory(&root.tree(), Ok(())).status, CheckStatus::Ok);
        let filtered = other_memory(&scope("0").tree(), refused(PermissionDenied));
        assert_eq!(filtered.status, CheckStatus::Missing);
    }

    #[test]
    fn a_refused_ring_names_the_switch_that_is_off() {
        let off = MachineFixture::new().file("proc/sys/kernel/io_uring_disabled", "2");
        let check = ring(&off.tree(), refused(PermissionDenied));
        assert_eq!(check.fix, "sudo sysctl -w kernel.io_uring_disabled=0");
        let on = MachineFixture::new().file("proc/sys/kernel/io_uring_disabled", "0");
        assert!(ring(&on.tree(), refused(PermissionDenied)).fix.contains("seccomp"));
        assert!(
            ring(&MachineFixture::new().tree(), refused(Unsupported)).fix.contains("built without")
        );
        assert_eq!(ring(&on.tree(), Ok(())).status, CheckStatus::Ok);
    }

    #[test]
    fn little_locked_memory_is_a_limit_without_the_capability() {
        let plain = MachineFixture::new().file("proc/self/status", "CapEff:\t0000000000000000\n");
        assert_eq!(locked_memory(&plain.tree(), Ok(Some(8 << 20))).status, CheckStatus::Limited);
        assert_eq!(locked_memory(&plain.tree(), Ok(Some(64 << 20))).status, CheckStatus::Ok);
        assert_eq!(locked_memory(&plain.tree(), Ok(None)).status, CheckStatus::Ok);
        let root = MachineFixture::new().file("proc/self/status", "CapEff:\t0000000000004000\n");
        assert_eq!(locked_memory(&root.tree(), Ok(Some(0))).status, CheckStatus::Ok);
    }

    #[test]
    fn each_namespace_restriction_has_its_own_fix() {
        for (path, value, remedy) in [
            ("user/max_user_namespaces", "0", "max_user_namespaces=10000"),
            ("kernel/unprivileged_userns_clone", "0", "unprivileged_userns_clone=1"),
            ("kernel/apparmor_restrict_unprivileged_userns", "1", "unprivileged_userns=0"),
        ] {
            let fixture = MachineFixture::new().file(&format!("proc/sys/{path}"), value);
            let check = namespaces(&fixture.tree(), Ok(()), refused(PermissionDenied));
            assert!(check.fix.ends_with(remedy), "{}", check.fix);
        }
        assert_eq!(
            namespaces(&MachineFixture::new().tree(), Ok(()), Ok(())).status,
            CheckStatus::Ok
        );
    }

    #[test]
    fn a_filter_is_a_limit_on_every_call() {
        let status = "Name:\tplumb\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        let check = filter(&MachineFixture::new().file("proc/self/status", status).tree());
        assert_eq!(check.status, CheckStatus::Limited);
        assert_eq!(check.finding, "seccomp mode 2, 1 filter(s)");
        let status = "Seccomp:\t0\nSeccomp_filters:\t0\n";
        let check = filter(&MachineFixture::new().file("proc/self/status", status).tree());
        assert_eq!(check.status, CheckStatus::Ok);
    }

    #[test]
    fn short_queue_messages_are_a_limit() {
        let fixture = MachineFixture::new()
            .file("proc/sys/fs/mqueue/msgsize_max", "65536")
            .file("proc/sys/kernel/msgmax", "4096");
        let tree = fixture.tree();
        assert_eq!(posix(&tree, Ok(())).finding, "messages up to 64Ki, longer ones in parts");
        let check = system_v(&tree, Ok(()));
        assert_eq!(check.status, CheckStatus::Limited);
        assert_eq!(check.fix, "sudo sysctl -w kernel.msgmax=8192");
    }

    #[test]
    fn a_refused_queue_names_the_limit_to_raise() {
        let tree = MachineFixture::new().tree();
        let check = posix(&tree, Err(io::Error::from_raw_os_error(24)));
        assert_eq!(check.status, CheckStatus::Missing);
        assert!(check.fix.contains("--msgqueue"), "{}", check.fix);
        let check = system_v(&tree, Err(Unsupported.into()));
        assert!(check.fix.contains("SYSVIPC"), "{}", check.fix);
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
}
