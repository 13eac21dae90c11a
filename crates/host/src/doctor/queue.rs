//! Whether message queues exist, and how long a message they take.
//!
//! Left out: what happens to longer messages, which are sent in parts.

use std::ffi::CString;
use std::io;

use plumb_base::units::format_bytes;

use super::{Check, Question, Refusal};
use crate::environment::tree::Tree;

/// What both kinds of queue take by default on Linux.
const MESSAGE_BYTES: u64 = 8192;
const MESSAGES: i64 = 10;

pub(super) fn examine(tree: &Tree) -> Vec<Check> {
    vec![posix(tree, try_posix(tree)), system_v(tree, try_system_v())]
}

fn posix(tree: &Tree, answer: io::Result<()>) -> Check {
    let question = Question { id: "ipc.posix_queue", what: "POSIX message queues" };
    let why = "the mq-posix mechanism cannot be measured";
    let Err(error) = answer else {
        let limit = tree.number("proc/sys/fs/mqueue/msgsize_max").unwrap_or(MESSAGE_BYTES);
        return size(question, limit, "fs.mqueue.msgsize_max");
    };
    let fix = match Refusal::from(&error) {
        Refusal::Unsupported => "nothing can: the kernel is built without POSIX_MQUEUE",
        Refusal::Forbidden => "docker run --security-opt seccomp=unconfined …",
        // EMFILE, ENOSPC, ENOMEM, EINVAL: mq_open(3).
        Refusal::Other => {
            "sudo prlimit --msgqueue=819200 --pid $$ && sudo sysctl -w fs.mqueue.queues_max=256 \
             fs.mqueue.msg_max=10"
        }
    };
    Check::missing(question, format!("refused: {error}"), why, fix)
}

fn system_v(tree: &Tree, answer: io::Result<()>) -> Check {
    let question = Question { id: "ipc.sysv_queue", what: "System V message queues" };
    let why = "the mq-sysv mechanism cannot be measured";
    let Err(error) = answer else {
        let limit = tree.number("proc/sys/kernel/msgmax").unwrap_or(MESSAGE_BYTES);
        return size(question, limit, "kernel.msgmax");
    };
    let fix = match Refusal::from(&error) {
        Refusal::Unsupported => "nothing can: the kernel is built without SYSVIPC",
        Refusal::Forbidden => "docker run --security-opt seccomp=unconfined …",
        Refusal::Other => "ipcs -q   (shows the queues that use up kernel.msgmni; ipcrm -q ID)",
    };
    Check::missing(question, format!("refused: {error}"), why, fix)
}

fn size(question: Question, limit: u64, sysctl: &str) -> Check {
    let finding = format!("messages up to {}, longer ones in parts", format_bytes(limit));
    if limit >= MESSAGE_BYTES {
        return Check::ok(question, finding);
    }
    Check::limited(
        question,
        finding,
        "parts are shorter than on most machines, so long messages take more calls than elsewhere",
        format!("sudo sysctl -w {sysctl}={MESSAGE_BYTES}"),
    )
}

/// Makes a queue of the default size and lets it go.
fn try_posix(tree: &Tree) -> io::Result<()> {
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
    use crate::doctor::Status;
    use crate::environment::fixture::Fixture;

    #[test]
    fn the_longest_message_is_told_and_a_short_one_is_a_limit() {
        let fixture = Fixture::new()
            .file("proc/sys/fs/mqueue/msgsize_max", "65536")
            .file("proc/sys/kernel/msgmax", "4096");
        let tree = fixture.tree();
        assert_eq!(posix(&tree, Ok(())).finding, "messages up to 64Ki, longer ones in parts");
        let check = system_v(&tree, Ok(()));
        assert_eq!(check.status, Status::Limited);
        assert_eq!(check.fix, "sudo sysctl -w kernel.msgmax=8192");
    }

    #[test]
    fn a_refused_queue_is_missing_with_the_limit_to_raise() {
        let tree = Fixture::new().tree();
        let check = posix(&tree, Err(io::Error::from_raw_os_error(24)));
        assert_eq!(check.status, Status::Missing);
        assert!(check.fix.contains("--msgqueue"), "{}", check.fix);
        let check = system_v(&tree, Err(io::ErrorKind::Unsupported.into()));
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
        let tree = Tree::machine();
        if try_posix(&tree).is_ok() {
            try_posix(&tree).unwrap();
        }
    }
}
