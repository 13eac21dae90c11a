//! `mirror.rtt`: the round trip of a message that a stack returns, seen from a client of the kernel's.

use plumb_harness::spec::MirrorDevice;
use plumb_report::figure::against_size;

use crate::claims::{KJELLERSTEDT, LINUX, PLUMB, SMOLTCP, stack_ratio, stacks};
use crate::factor::channel::PLACEMENT;
use crate::factor::mirror::{self, DEVICE, FRAME, ROUND_TRIP, STACK, TRANSPORT, WAKE, is_udp};
use crate::pages::{against_linux, bars, linux_tile};
use crate::prelude::*;

/// The round trip against stacks, devices and ways of waiting.
pub static EXPERIMENT: Experiment = Experiment {
    id: "mirror.rtt",
    study: "stack",
    question: "How long does a message take to a mirror and back, whose stack it crosses there?",
    hypothesis: "A stack in a user process needs no wake-up of a second layer and returns short and \
                 long frames sooner than the kernel's own mirror; in 1997 it needed 20 % longer for \
                 short frames and twice as long for long ones.",
    factors: &[STACK, DEVICE, TRANSPORT, CHECKSUM, PLACEMENT, WAKE, FRAME, FAMILY],
    responses: &[ROUND_TRIP],
    plan_cell: |point| {
        let (mirror, placement) = mirror::spec(point)?;
        // Nothing finishes a checksum for AF_XDP, nor says that it is not finished.
        if mirror.offloads && mirror.device == MirrorDevice::Xdp {
            return Err(Exclusion::NotApplicable);
        }
        mirror::round_trip(point, mirror, placement)
    },
    analysis: ExperimentAnalysis {
        claims: CLAIMS,
        ratios: &[
            stacks("rtt", PLUMB, LINUX),
            stacks("rtt", SMOLTCP, LINUX),
            stacks("rtt", PLUMB, SMOLTCP),
        ],
        ..ExperimentAnalysis::PLAIN
    },
    page: ExperimentPage {
        title: "The mirror: a round trip through each stack",
        figures: Some(|data| {
            let mut figures = bars::round_trips(&data.cells);
            let mut plain = data.cells.clone();
            plain.retain(|cell| is_plain(cell));
            if against_size::has_enough_sizes(&plain) {
                figures.extend(against_size::figures(&plain));
            }
            figures
        }),
        sentences: |data| against_linux(data.document, data.id, "the round trip"),
        tiles: |data| linux_tile(data, "round trip, plumb to Linux"),
        ..ExperimentPage::PLAIN
    },
};

/// Who sums.
const CHECKSUM: Factor = Factor {
    fit: |first, levels| match first.text("stack") {
        Some("smoltcp") => words(&["computed"]),
        _ => levels,
    },
    ..Factor::of_words(
        "checksum",
        "whether checksums are computed and verified, or left open between devices of one host",
        &["computed", "offloaded"],
    )
    .labelled(&[("computed", "checksums computed"), ("offloaded", "checksums left open")])
};

const FAMILY: Factor = Factor::of_words("family", "which Internet protocol", &["ipv4", "ipv6"])
    .at_quick(Words(&["ipv4"]))
    .labelled(&[("ipv4", "IPv4"), ("ipv6", "IPv6")]);

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "stack.mirror.short-20-percent-longer",
        claim: "The round trip of a short frame takes about 20 % longer through a user-level stack \
                than through Linux's.",
        historical: Some("+20 %, 60-byte frames, table 16"),
        figures: &[PublishedFigure::ratio("user-level stack to Linux", 1.2, "Table 16")],
        judge: |evidence| rtt_against_linux(evidence, 60, (1.1, 1.3)),
        ..PublishedClaim::of(KJELLERSTEDT)
    },
    PublishedClaim {
        id: "stack.mirror.long-double",
        claim: "The round trip of a long frame takes almost twice as long through a user-level stack \
                as through Linux's.",
        historical: Some("almost ×2, 1514-byte frames, table 16"),
        figures: &[PublishedFigure::ratio("user-level stack to Linux", 2.0, "Table 16")],
        judge: |evidence| rtt_against_linux(evidence, 1514, (1.7, 2.2)),
        ..PublishedClaim::of(KJELLERSTEDT)
    },
];

fn rtt_against_linux(
    evidence: &ClaimEvidence<'_>,
    bytes: u64,
    bounds: (f64, f64),
) -> ClaimJudgment {
    let linux = [("stack", "linux"), ("device", "veth")];
    let plumb = [("stack", "plumb"), ("device", "tap")];
    let response = (EXPERIMENT.id, ROUND_TRIP.name);
    stack_ratio(evidence, response, (&linux, &plumb), bounds, |cell| {
        cell.is("frame", bytes) && is_udp(cell)
    })
}

/// Neither offloads nor IPv6 nor TCP: one line a stack and device.
fn is_plain(cell: &CellResult) -> bool {
    let at = |name: &str, level: &str| cell.factors.get(name).is_none_or(|found| found == level);
    at("checksum", "computed") && at("family", "ipv4") && at("transport", "udp")
}
