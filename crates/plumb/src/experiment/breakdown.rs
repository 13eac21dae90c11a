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
            name: "wake",
            meaning: "how a receiver waits for the next message: who spins never switches",
            domain: Domain::Words(&["block"]),
            levels: |_| words(&["block"]),
            applies: always,
            fit: keep,
        },
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

/// Every part that a round trip may have, in the order of its path; the whole last.
const PARTS: [Response; 21] = [
    part("call-entry", "from the worker's clock read into its sending call"),
    part("send-path", "the sending call, to the device or to the receiver's queue"),
    part("device", "from the driver's taking a frame to the start of the receive path"),
    part("receive-path", "from the start of the receive path to the socket's queue"),
    part("wake-up", "waking the receiver, until its CPU turns to it"),
    part("wake-up-and-switch", "waking an idle CPU and switching to the receiver there"),
    part("send-returns", "the rest of the sending call, where the receiver waits for its CPU"),
    part("user-space-between-calls", "a process in user space between two of its calls"),
    part("receive-call-sleeps", "the sender's next call, until its CPU turns to the receiver"),
    part("idle", "a CPU with nothing to run"),
    part("context-switch", "the switch, and the return from waiting"),
    part("receive-call", "a receiving call that need not sleep"),
    part("copy-and-return", "copying the message to the receiver, and the rest of its call"),
    part("needless-wake-up", "waking somebody who has nothing to do"),
    part("other-tasks", "other tasks on the same CPU"),
    part("peer-in-user-space", "the peer between receiving and answering"),
    part("peer-other-calls", "the peer's other calls between receiving and answering"),
    part("call-exit", "from the end of the worker's receiving call to its clock read"),
    part("unexplained", "what no probe accounts for"),
    part("rtt", "round trip, with no probe there"),
    part("rtt-probed", "round trip of the same messages with the probes on"),
];

#[cfg(test)]
mod tests {
    use plumb_host::trace::Part;

    use super::*;

    #[test]
    fn every_part_that_the_tracepoints_tell_apart_is_a_response() {
        let named: Vec<&str> = PARTS.iter().map(|response| response.name).collect();
        let known: Vec<&str> = Part::ALL.iter().map(|part| part.slug()).collect();
        assert_eq!(named[..known.len()], known);
        assert_eq!(named[known.len()..], ["rtt", "rtt-probed"]);
    }
}
