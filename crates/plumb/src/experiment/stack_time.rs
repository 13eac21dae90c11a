//! `stack.time`: how long a packet is inside each stack, as the oscilloscope of 1997 saw it.

use plumb_base::units::Unit;
use plumb_host::harness::spec::{MirrorDevice, Subject, Task, Turn};
use plumb_host::local::mechanism::Wake;
use plumb_store::record::Better;

use super::factor::{Domain, Factor, always, words};
use super::local::PLACEMENT;
use super::mirror::{self, DEVICE, FRAME, STACK, WAKE};
use super::{Experiment, Form, LaunchGroup, Response};

/// The time in the stack, both ways and together, context switches apart.
pub static TIME: Experiment = Experiment {
    id: "stack.time",
    study: "stack",
    question: "How long is a packet inside the stack, on its way in and on its way out?",
    hypothesis: "The time in a user-level stack is half of Linux's or less at both frame sizes; \
                 leaving the UDP checksum out shortens it for long frames. In 1997 the two were \
                 equal but for long frames with a checksum.",
    factors: &[STACK, DEVICE, CHECKSUM, PLACEMENT, WAKE, FRAME],
    responses: &[
        part("stack", "time in the stack, both ways, context switches apart"),
        part("receive", "from the frame's arrival at the device to its socket"),
        part("send", "from the socket to the device"),
        part(
            "switch",
            "waking and switching to the mirror's process, which is no part of the stack",
        ),
        part("rtt", "round trip of the same datagrams, probes off"),
        part("rtt-probed", "round trip with the probes on"),
    ],
    form: |setting| {
        let unsummed = setting.factors.text("checksum") == Some("off");
        if setting.response == "switch" && setting.factors.text("stack") != Some("linux") {
            return Form::Meaningless;
        }
        let (mut mirror, placement) = match mirror::spec(setting) {
            Ok(found) => found,
            Err(form) => return *form,
        };
        // A process that spins never waits: its empty calls would be taken for its stack's time.
        let spins = mirror.wake == Wake::Spin;
        if spins || (unsummed && mirror.device == MirrorDevice::Xdp) {
            return Form::Meaningless;
        }
        if unsummed {
            // Linux leaves the sum out where its device promises to add it.
            (mirror.turn, mirror.offloads) = (Turn::UdpUnsummed, true);
        }
        match mirror::payload(setting.factors, mirror.ipv6) {
            Ok(size) => Form::Measure {
                group: LaunchGroup { subject: Subject::Mirror(mirror), placement, cpu: None },
                task: Task::Breakdown { size },
            },
            Err(exclusion) => Form::Excluded(exclusion),
        }
    },
};

const CHECKSUM: Factor = Factor {
    name: "checksum",
    meaning: "whether the stack computes and verifies UDP checksums",
    domain: Domain::Words(&["on", "off"]),
    levels: |_| words(&["on", "off"]),
    applies: always,
    fit: |first, levels| match first.text("stack") {
        Some("smoltcp") => words(&["on"]),
        _ => levels,
    },
};

/// A part of the round trip, in nanoseconds.
pub(crate) const fn part(name: &'static str, meaning: &'static str) -> Response {
    Response { name, unit: Unit::Nanoseconds, better: Better::Lower, meaning }
}
