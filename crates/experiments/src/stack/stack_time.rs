//! `stack.time`: how long a packet is inside each stack, as the oscilloscope of 1997 saw it.

use plumb_base::units::Unit;
use plumb_harness::spec::WakeMode;
use plumb_harness::spec::{BlockTask, LaunchSubject, MirrorDevice, TurnaroundPoint};
use plumb_store::record::Better;

use crate::claims::stack::{LINUX, PLUMB, SMOLTCP, stacks};
use crate::definition::{CellDecision, Experiment, LaunchGroup, ResponseVariable};
use crate::factor::{Factor, FactorDomain, always, words};
use crate::factors::channel::PLACEMENT;
use crate::factors::mirror::{self, DEVICE, FRAME, STACK, WAKE};
use plumb_analysis::registry::ExperimentAnalysis;

/// The time in the stack, both ways and together, context switches apart.
pub static EXPERIMENT: Experiment = Experiment {
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
    plan_cell: |setting| {
        let unsummed = setting.factors.text("checksum") == Some("off");
        if setting.response == "switch" && setting.factors.text("stack") != Some("linux") {
            return CellDecision::NotApplicable;
        }
        let (mut mirror, placement) = match mirror::spec(setting) {
            Ok(found) => found,
            Err(form) => return *form,
        };
        // A process that spins never waits: its empty calls would be taken for its stack's time.
        let spins = mirror.wake == WakeMode::Spin;
        if spins || (unsummed && mirror.device == MirrorDevice::Xdp) {
            return CellDecision::NotApplicable;
        }
        if unsummed {
            // Linux leaves the sum out where its device promises to add it.
            (mirror.turnaround, mirror.offloads) = (TurnaroundPoint::UdpUnsummed, true);
        }
        match mirror::payload(setting.factors, mirror.ipv6) {
            Ok(size) => CellDecision::Measure {
                group: LaunchGroup { subject: LaunchSubject::Mirror(mirror), placement, cpu: None },
                task: BlockTask::Breakdown { size },
            },
            Err(exclusion) => CellDecision::Excluded(exclusion),
        }
    },
    analysis: ExperimentAnalysis {
        claims: claims::CLAIMS,
        ratios: &[
            stacks("stack", PLUMB, LINUX),
            stacks("stack", SMOLTCP, LINUX),
            stacks("stack", PLUMB, SMOLTCP),
        ],
        ..ExperimentAnalysis::PLAIN
    },
    page: page::PAGE,
};

const CHECKSUM: Factor = Factor {
    name: "checksum",
    meaning: "whether the stack computes and verifies UDP checksums",
    domain: FactorDomain::Words(&["on", "off"]),
    levels: |_| words(&["on", "off"]),
    applies: always,
    fit: |first, levels| match first.text("stack") {
        Some("smoltcp") => words(&["on"]),
        _ => levels,
    },
    labels: &[("on", "with checksum"), ("off", "without checksum")],
};

/// A part of the round trip, in nanoseconds.
pub(crate) const fn part(name: &'static str, meaning: &'static str) -> ResponseVariable {
    ResponseVariable { name, unit: Unit::Nanoseconds, better: Better::Lower, meaning }
}

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::stack::*;
    use plumb_analysis::claim::{ClaimEvidence, ClaimJudgment, PublishedClaim, judge_all};

    use plumb_store::record::{FactorLevel, Factors};

    pub(super) const CLAIMS: &[PublishedClaim] = &[
        PublishedClaim {
            id: "stack.time.equal-without-checksum",
            claim: "But for long frames with the checksum, a packet is in a user-level stack as long as \
                in Linux's.",
            source: KJELLERSTEDT,
            historical: Some("as well as Linux, within the reading of an oscilloscope, table 17"),
            figures: &[],
            judge: time_is_equal,
        },
        PublishedClaim {
            id: "stack.time.long-with-checksum-slower",
            claim: "With the checksum, a long frame is in a user-level stack longer than in Linux's, \
                which copies and sums in one step.",
            source: KJELLERSTEDT,
            historical: Some("Linux 'performs so much better', table 17"),
            figures: &[],
            judge: time_is_longer,
        },
    ];

    /// Equal as far as an oscilloscope's screen can be read: within a tenth.
    const READING: (f64, f64) = (0.9, 1.1);

    fn time_is_equal(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let cells = ResponseCells { experiment: "stack.time", response: "stack" };
        let linux = [("stack", "linux"), ("device", "veth")];
        let plumb = [("stack", "plumb"), ("device", "tap")];
        let but_long_summed = |f: &Factors| {
            !(frame(f) == Some(1514) && f.level("checksum") == Some(&FactorLevel::from("on")))
        };
        judge_all(
            cells.ratio(evidence, &linux, &plumb, READING, but_long_summed),
            "plumb run stack.time",
        )
    }

    fn time_is_longer(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let cells = ResponseCells { experiment: "stack.time", response: "stack" };
        let linux = [("stack", "linux"), ("device", "veth")];
        let plumb = [("stack", "plumb"), ("device", "tap"), ("checksum", "on")];
        judge_all(cells.order(evidence, &linux, &plumb, is_long), "plumb run stack.time")
    }
}

mod page {
    //! Figures and sentences.

    use crate::pages::stack::*;

    use plumb_report::registry::ExperimentPage;

    pub(super) const PAGE: ExperimentPage = ExperimentPage {
        title: "Time in the stack",
        figures: Some(|data| bars::in_the_stack(&data.cells)),
        sentences: |data| against_linux(data.document, data.id, "the time in the stack"),
        tiles: |data| linux_tile(data, "in the stack, plumb to Linux"),
        ..ExperimentPage::PLAIN
    };
}
