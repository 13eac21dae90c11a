//! `stack.time`: how long a packet is inside each stack, as the oscilloscope of 1997 saw it.

use plumb_harness::spec::{MirrorDevice, MirrorTransport, TurnaroundPoint};

use crate::claims::{
    KJELLERSTEDT, LINUX, PLUMB, SMOLTCP, is_long, stack_order, stack_ratio, stacks,
};
use crate::factor::channel::PLACEMENT;
use crate::factor::mirror::{self, DEVICE, FRAME, STACK, TRANSPORT, WAKE, is_udp};
use crate::pages::{against_linux, bars, linux_tile};
use crate::prelude::*;

/// The time in the stack, both ways and together, context switches apart.
pub static EXPERIMENT: Experiment = Experiment {
    id: "stack.time",
    study: "stack",
    question: "How long is a packet inside the stack, on its way in and on its way out?",
    hypothesis: "The time in a user-level stack is half of Linux's or less at both frame sizes; \
                 leaving the UDP checksum out shortens it for long frames. In 1997 the two were \
                 equal but for long frames with a checksum.",
    factors: &[STACK, DEVICE, TRANSPORT, CHECKSUM, PLACEMENT, WAKE, FRAME],
    responses: &[
        ResponseVariable::time(
            "stack",
            "time in the stack, both ways, context switches apart; Linux's without the copy to the process where no \
             tracepoint shows it",
        ),
        ResponseVariable::time("receive", "from the frame's arrival at the device to its socket"),
        ResponseVariable::time(
            "receive-path",
            "of receiving: headers, checksum and lookup, from the device to the socket's queue",
        ),
        ResponseVariable::time(
            "copy",
            "of receiving: the copy to the process and its call's rest, where a tracepoint shows them",
        ),
        ResponseVariable::time("send", "from the socket to the device"),
        ResponseVariable::time(
            "switch",
            "waking and switching to the mirror's process, which is not part of the stack; with the copy where no \
             tracepoint shows that",
        ),
        ResponseVariable::time("unexplained", "what no probe accounts for of the whole round trip"),
        ResponseVariable::time("rtt", "round trip of the same datagrams, probes off"),
        ResponseVariable::time("rtt-probed", "round trip with the probes on"),
    ],
    plan_cell: |point| {
        let unsummed = point.text("checksum") == Some("off");
        // A user-level stack is timed by its own clock, from edge to edge: what it does between is in stack.replay.
        let is_kernels =
            matches!(point.response, "switch" | "receive-path" | "copy" | "unexplained");
        if is_kernels && point.text("stack") != Some("linux") {
            return Err(Exclusion::NotApplicable);
        }
        let (mut mirror, placement) = mirror::spec(point)?;
        // A process that spins never waits: its empty calls would be taken for its stack's time.
        let spins = mirror.wake == WakeMode::Spin;
        // TCP has no such choice.
        let is_datagram = mirror.transport == MirrorTransport::Udp;
        if spins || (unsummed && (mirror.device == MirrorDevice::Xdp || !is_datagram)) {
            return Err(Exclusion::NotApplicable);
        }
        if unsummed {
            // Linux leaves the sum out where its device promises to add it.
            (mirror.turnaround, mirror.offloads) = (TurnaroundPoint::UdpUnsummed, true);
        }
        let size = mirror::payload(point.factors, &mirror)?;
        let group = LaunchGroup::new(LaunchSubject::Mirror(mirror), placement);
        Ok((group, BlockTask::Breakdown { size }))
    },
    analysis: ExperimentAnalysis {
        claims: CLAIMS,
        ratios: &[
            stacks("stack", PLUMB, LINUX),
            stacks("stack", SMOLTCP, LINUX),
            stacks("stack", PLUMB, SMOLTCP),
        ],
        ..ExperimentAnalysis::PLAIN
    },
    page: ExperimentPage {
        title: "Time in the stack",
        figures: Some(|data| bars::in_the_stack(&data.cells)),
        sentences: |data| against_linux(data.document, data.id, "the time in the stack"),
        tiles: |data| linux_tile(data, "in the stack, plumb to Linux"),
        ..ExperimentPage::PLAIN
    },
};

const CHECKSUM: Factor = Factor {
    fit: |first, levels| match first.text("stack") {
        Some("smoltcp") => words(&["on"]),
        _ => levels,
    },
    ..Factor::of_words(
        "checksum",
        "whether the stack computes and verifies UDP checksums",
        &["on", "off"],
    )
    .labelled(&[("on", "with checksum"), ("off", "without checksum")])
};

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "stack.checksum.removing-it-shortens-long-frames",
        claim: "Leaving the UDP checksum out significantly cuts the time that a long frame is in the stack.",
        historical: Some("the time for long frames fell to Linux's, table 17"),
        judge: |evidence| {
            let off = [("checksum", "off"), ("stack", "plumb")];
            let on = [("checksum", "on"), ("stack", "plumb")];
            stack_order(evidence, (EXPERIMENT.id, "stack"), (&off, &on), is_long)
        },
        ..PublishedClaim::of(KJELLERSTEDT)
    },
    PublishedClaim {
        id: "stack.time.equal-without-checksum",
        claim: "But for long frames with the checksum, a packet is in a user-level stack as long as \
                in Linux's.",
        historical: Some("as well as Linux, within the reading of an oscilloscope, table 17"),
        judge: |evidence| {
            let plumb = [("stack", "plumb"), ("device", "tap")];
            let but_long_summed = |cell: &MeasuredCell<'_>| {
                is_udp(cell) && !(cell.is("frame", 1514_u64) && cell.is("checksum", "on"))
            };
            stack_ratio(
                evidence,
                (EXPERIMENT.id, "stack"),
                (&LINUX_VETH, &plumb),
                READING,
                but_long_summed,
            )
        },
        ..PublishedClaim::of(KJELLERSTEDT)
    },
    PublishedClaim {
        id: "stack.time.long-with-checksum-slower",
        claim: "With the checksum, a long frame is in a user-level stack longer than in Linux's, \
                which copies and sums in one step.",
        historical: Some("Linux 'performs so much better', table 17"),
        judge: |evidence| {
            let plumb = [("stack", "plumb"), ("device", "tap"), ("checksum", "on")];
            stack_order(evidence, (EXPERIMENT.id, "stack"), (&LINUX_VETH, &plumb), |cell| {
                is_long(cell) && is_udp(cell)
            })
        },
        ..PublishedClaim::of(KJELLERSTEDT)
    },
];

const LINUX_VETH: [(&str, &str); 2] = [("stack", "linux"), ("device", "veth")];

/// Equal as far as an oscilloscope's screen can be read: within a tenth.
const READING: (f64, f64) = (0.9, 1.1);
