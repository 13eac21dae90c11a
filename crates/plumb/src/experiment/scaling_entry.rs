//! `scaling.entry`: what it costs to enter the kernel and leave it, as a machine's measure of its kernel.
//!
//! The empty call of lmbench is a write of one byte to /dev/null, or getppid; here it is getppid, which no
//! library answers by itself. Left out: every other call (`super::call`).

use plumb_base::units::Unit;
use plumb_host::harness::spec::{Subject, Task};
use plumb_host::topology::Placement;
use plumb_store::record::Better;

use super::factor::{Domain, Factor, always, keep, words};
use super::{Experiment, Form, LaunchGroup, Response};

/// The empty call.
pub static SCALING_ENTRY: Experiment = Experiment {
    id: "scaling.entry",
    study: "scaling",
    question: "What does it cost to enter the kernel and leave it?",
    hypothesis: "Faster processors make it cheaper, but by less than they are faster.",
    factors: &[Factor {
        name: "call",
        meaning: "an empty call",
        domain: Domain::Words(&["getppid", "read-zero", "invalid"]),
        levels: |_| words(&["getppid"]),
        applies: always,
        fit: keep,
    }],
    responses: &[Response {
        name: "call",
        unit: Unit::Nanoseconds,
        better: Better::Lower,
        meaning: "time of one call, from a batch of them",
    }],
    form: |setting| {
        let call = setting.factors.text("call").unwrap_or_default().to_owned();
        let group =
            LaunchGroup { subject: Subject::Alone, placement: Placement::SameCpu, cpu: None };
        Form::Measure { group, task: Task::Call { call, via: "syscall".to_owned() } }
    },
};
