//! `breakdown.local`: where the time of one round trip over a rung of the ladder goes.

use plumb_host::harness::spec::Task;
use plumb_host::local::mechanism::Mechanism;

use super::factor::{Domain, Factor, always, keep, numbers, words};
use super::local::{self, CONGESTION, PLACEMENT};
use super::stack_time::part;
use super::{Experiment, Form, Response};

/// The parts of a round trip between two processes that block, from the kernel's own tracepoints.
pub static LOCAL: Experiment = Experiment {
    id: "breakdown.local",
    study: "stack",
    question: "Where does the time of one round trip between two processes go?",
    hypothesis: "On one CPU the context switches and on two the wake-up take more time than the \
                 protocols do.",
    factors: &[
        Factor {
            name: "mechanism",
            meaning: "how the bytes cross",
            domain: Domain::Mechanisms(is_broken_down),
            levels: |_| words(&["pipe", "unix-stream", "udp4", "tcp4"]),
            applies: always,
            fit: keep,
        },
        PLACEMENT,
        Factor {
            name: "size",
            meaning: "message size in bytes",
            domain: Domain::Sizes,
            levels: |_| numbers(&[64]),
            applies: always,
            fit: keep,
        },
        CONGESTION,
    ],
    responses: &PARTS,
    form: |setting| {
        let size = local::size_of(setting.factors);
        Form::of(local::group(setting), Task::Breakdown { size })
    },
};

/// The rungs whose round trips the tracepoints explain.
fn is_broken_down(mechanism: Mechanism) -> bool {
    matches!(
        mechanism,
        Mechanism::Pipe
            | Mechanism::UnixStream
            | Mechanism::Udp4
            | Mechanism::Udp6
            | Mechanism::Tcp4
            | Mechanism::Tcp6
    )
}

/// Every part that a round trip may have, in the order in which they happen; the whole last.
const PARTS: [Response; 3] = [
    part("unexplained", "what no probe accounts for"),
    part("rtt", "round trip, probes off"),
    part("rtt-probed", "round trip of the same messages with the probes on"),
];
