//! `call.kernel`: what it costs to enter the kernel and come back.

use plumb_base::units::Unit;
use plumb_host::harness::spec::{Subject, Task};
use plumb_host::topology::Placement;
use plumb_store::record::{Better, Level};

use super::factor::{Domain, Factor, always, keep, words};
use super::{Experiment, Form, LaunchGroup, Response};

/// Small system calls, raw and through libc, and one that stays outside the kernel.
pub static KERNEL: Experiment = Experiment {
    id: "call.kernel",
    study: "ipc",
    question: "What does the smallest kernel call cost?",
    hypothesis: "All trivial calls cost the same within a few nanoseconds, raw or through libc; \
                 a clock read through the vDSO, which stays outside the kernel, costs less.",
    factors: &[
        Factor {
            name: "call",
            meaning: "which call",
            domain: Domain::Words(&CALLS),
            levels: |_| words(&CALLS),
            applies: always,
            fit: keep,
        },
        Factor {
            name: "via",
            meaning: "how it is made",
            domain: Domain::Words(&["syscall", "libc", "vdso"]),
            levels: |_| words(&["syscall", "libc", "vdso"]),
            applies: always,
            fit: |first, levels| {
                // libc's clock_gettime is the vDSO's.
                let unfit = if has_vdso(first.text("call")) { "libc" } else { "vdso" };
                levels.into_iter().filter(|level| *level != Level::from(unfit)).collect()
            },
        },
    ],
    responses: &[Response {
        name: "call",
        unit: Unit::Nanoseconds,
        better: Better::Lower,
        meaning: "time of one call, from a batch of them",
    }],
    form: |setting| {
        let call = setting.factors.text("call").unwrap_or_default().to_owned();
        let via = setting.factors.text("via").unwrap_or_default().to_owned();
        if via == "vdso" && !has_vdso(Some(&call)) {
            return Form::impossible(format!("the vDSO has no '{call}': it enters the kernel"));
        }
        let group =
            LaunchGroup { subject: Subject::Alone, placement: Placement::SameCpu, cpu: None };
        Form::Measure { group, task: Task::Call { call, via } }
    },
};

/// The calls by name.
const CALLS: [&str; 6] = ["getpid", "getppid", "getuid", "invalid", "read-zero", "clock-gettime"];

/// Whether the vDSO (vdso(7)) has it.
fn has_vdso(call: Option<&str>) -> bool {
    call == Some("clock-gettime")
}
