//! `mirror.rtt`: the round trip of a datagram that a stack returns, seen from a client of the kernel's.

use plumb_harness::spec::MirrorDevice;

use crate::claims::stack::{LINUX, PLUMB, SMOLTCP, stacks};
use crate::definition::{CellDecision, Experiment};
use crate::factor::{Factor, FactorDomain, always, keep_levels, words};
use crate::factors::channel::PLACEMENT;
use crate::factors::mirror::{DEVICE, FRAME, ROUND_TRIP, STACK, WAKE, round_trip, spec};
use crate::preset::RunPreset;
use plumb_analysis::registry::ExperimentAnalysis;

/// The round trip against stacks, devices and ways of waiting.
pub static EXPERIMENT: Experiment = Experiment {
    id: "mirror.rtt",
    study: "stack",
    question: "How long does a datagram take to a mirror and back, whose stack it crosses there?",
    hypothesis: "A stack in a user process needs no wake-up of a second layer and returns short and \
                 long frames sooner than the kernel's own mirror; in 1997 it needed 20 % longer for \
                 short frames and twice as long for long ones.",
    factors: &[STACK, DEVICE, CHECKSUM, PLACEMENT, WAKE, FRAME, FAMILY],
    responses: &[ROUND_TRIP],
    plan_cell: |setting| match spec(setting) {
        // Nothing finishes a checksum for AF_XDP, nor says that it is not finished.
        Ok((mirror, _)) if mirror.offloads && mirror.device == MirrorDevice::Xdp => {
            CellDecision::NotApplicable
        }
        Ok((mirror, placement)) => round_trip(setting, mirror, placement),
        Err(form) => *form,
    },
    analysis: ExperimentAnalysis {
        claims: claims::CLAIMS,
        ratios: &[
            stacks("rtt", PLUMB, LINUX),
            stacks("rtt", SMOLTCP, LINUX),
            stacks("rtt", PLUMB, SMOLTCP),
        ],
        ..ExperimentAnalysis::PLAIN
    },
    page: page::PAGE,
};

/// Who sums.
const CHECKSUM: Factor = Factor {
    name: "checksum",
    meaning: "whether checksums are computed and verified, or left open between devices of one host",
    domain: FactorDomain::Words(&["computed", "offloaded"]),
    levels: |_| words(&["computed", "offloaded"]),
    applies: always,
    fit: |first, levels| match first.text("stack") {
        Some("smoltcp") => words(&["computed"]),
        _ => levels,
    },
    labels: &[("computed", "checksums computed"), ("offloaded", "checksums left open")],
};

const FAMILY: Factor = Factor {
    name: "family",
    meaning: "which Internet protocol",
    domain: FactorDomain::Words(&["ipv4", "ipv6"]),
    levels: |context| match context.preset {
        RunPreset::Quick => words(&["ipv4"]),
        _ => words(&["ipv4", "ipv6"]),
    },
    applies: always,
    fit: keep_levels,
    labels: &[("ipv4", "IPv4"), ("ipv6", "IPv6")],
};

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::stack::*;
    use plumb_analysis::claim::{
        ClaimEvidence, ClaimJudgment, PublishedClaim, PublishedFigure, judge_all,
    };
    use plumb_base::units::Unit;

    use plumb_store::record::Factors;

    pub(super) const CLAIMS: &[PublishedClaim] = &[
        PublishedClaim {
            id: "stack.mirror.short-20-percent-longer",
            claim: "The round trip of a short frame takes about 20 % longer through a user-level stack \
                than through Linux's.",
            source: KJELLERSTEDT,
            historical: Some("+20 %, 60-byte frames, table 16"),
            figures: &[PublishedFigure::comparable(
                "user-level stack to Linux",
                1.2,
                Unit::Count,
                "Table 16",
            )],
            judge: |evidence| rtt_against_linux(evidence, 60, (1.1, 1.3)),
        },
        PublishedClaim {
            id: "stack.mirror.long-double",
            claim: "The round trip of a long frame takes almost twice as long through a user-level stack \
                as through Linux's.",
            source: KJELLERSTEDT,
            historical: Some("almost ×2, 1514-byte frames, table 16"),
            figures: &[PublishedFigure::comparable(
                "user-level stack to Linux",
                2.0,
                Unit::Count,
                "Table 16",
            )],
            judge: |evidence| rtt_against_linux(evidence, 1514, (1.7, 2.2)),
        },
    ];

    fn rtt_against_linux(
        evidence: &ClaimEvidence<'_>,
        bytes: i64,
        bounds: (f64, f64),
    ) -> ClaimJudgment {
        let cells = ResponseCells { experiment: "mirror.rtt", response: "rtt" };
        let linux = [("stack", "linux"), ("device", "veth")];
        let plumb = [("stack", "plumb"), ("device", "tap")];
        let at = |factors: &Factors| frame(factors) == Some(bytes);
        judge_all(cells.ratio(evidence, &linux, &plumb, bounds, at), "plumb run mirror.rtt")
    }
}

mod page {
    //! Figures and sentences.

    use crate::pages::stack::*;
    use plumb_analysis::document::CellResult;

    use plumb_report::figure::against_size;

    use plumb_report::registry::ExperimentPage;

    use serde_json::Value;
    use std::collections::BTreeMap;

    pub(super) const PAGE: ExperimentPage = ExperimentPage {
        title: "The mirror: a round trip through each stack",
        figures: Some(|data| {
            let mut figures = dots::figures(&data.cells);
            let plain: Vec<&CellResult> =
                data.cells.iter().copied().filter(|cell| is_plain(&cell.factors)).collect();
            if against_size::has_enough_sizes(&plain) {
                figures.extend(against_size::figures(&plain));
            }
            figures
        }),
        sentences: |data| against_linux(data.document, data.id, "the round trip"),
        tiles: |data| linux_tile(data, "round trip, plumb to Linux"),
        ..ExperimentPage::PLAIN
    };

    /// Neither offloads nor IPv6: one line a stack and device.
    fn is_plain(factors: &BTreeMap<String, Value>) -> bool {
        let at = |name: &str, level: &str| factors.get(name).is_none_or(|found| found == level);
        at("checksum", "computed") && at("family", "ipv4")
    }
}
