//! Claims about a user-level stack beside Linux's (Kjellerstedt 1997, §3.6 and §4).
//!
//! Left out: what the devices of 1997 cost; today's frames cross a TAP or a veth, not a wire.

use plumb_store::record::{Factors, Level};

use super::Claim;
use super::evidence::{Evidence, Pairs};
use super::finding::{Case, Finding, every};
use super::published::KJELLERSTEDT;
use crate::contrast;
use crate::summary::Measured;

/// The claims of study `stack`.
pub const CLAIMS: &[Claim] = &[
    Claim {
        id: "stack.mirror.short-20-percent-longer",
        experiment: "mirror.rtt",
        claim: "The round trip of a short frame takes about 20 % longer through a user-level stack \
                than through Linux's.",
        source: KJELLERSTEDT,
        historical: Some("+20 %, 60-byte frames, table 16"),
        judge: |evidence| rtt_against_linux(evidence, 60, (1.1, 1.3)),
    },
    Claim {
        id: "stack.mirror.long-double",
        experiment: "mirror.rtt",
        claim: "The round trip of a long frame takes almost twice as long through a user-level stack \
                as through Linux's.",
        source: KJELLERSTEDT,
        historical: Some("almost ×2, 1514-byte frames, table 16"),
        judge: |evidence| rtt_against_linux(evidence, 1514, (1.7, 2.2)),
    },
    Claim {
        id: "stack.time.equal-without-checksum",
        experiment: "stack.time",
        claim: "But for long frames with the checksum, a packet is in a user-level stack as long as \
                in Linux's.",
        source: KJELLERSTEDT,
        historical: Some("as well as Linux, within the reading of an oscilloscope, table 17"),
        judge: time_is_equal,
    },
    Claim {
        id: "stack.time.long-with-checksum-slower",
        experiment: "stack.time",
        claim: "With the checksum, a long frame is in a user-level stack longer than in Linux's, \
                which copies and sums in one step.",
        source: KJELLERSTEDT,
        historical: Some("Linux 'performs so much better', table 17"),
        judge: time_is_longer,
    },
    Claim {
        id: "stack.checksum.one-pass-beats-two",
        experiment: "stack.checksum",
        claim: "Copying and summing in one pass takes less time than in two.",
        source: KJELLERSTEDT,
        historical: Some("the reason given for Linux's lead on long frames, §4.1.2"),
        judge: |evidence| {
            let cells = Cells { experiment: "stack.checksum", response: "time" };
            let (fused, separate) = ([("operation", "fused")], [("operation", "separate")]);
            every(cells.order(evidence, &fused, &separate, |_| true), "plumb run stack.checksum")
        },
    },
    Claim {
        id: "stack.checksum.removing-it-shortens-long-frames",
        experiment: "stack.replay",
        claim: "Leaving the UDP checksum out significantly cuts the time that a packet takes.",
        source: KJELLERSTEDT,
        historical: Some("the time for long frames fell to Linux's, table 17"),
        judge: |evidence| {
            let cells = Cells { experiment: "stack.replay", response: "packet" };
            let (without, with) = ([("turn", "udp-unsummed")], [("turn", "udp")]);
            every(cells.order(evidence, &without, &with, is_long), "plumb run stack.replay")
        },
    },
    Claim {
        id: "stack.replay.one-pass-beats-two",
        experiment: "stack.replay",
        claim: "A stack that copies and sums in one pass takes less time for a long frame than one \
                that does so in two.",
        source: KJELLERSTEDT,
        historical: Some("the reason given for Linux's lead on long frames, §4.1.2"),
        judge: |evidence| {
            let cells = Cells { experiment: "stack.replay", response: "packet" };
            let (fused, separate) = ([("turn", "fused")], [("turn", "separate")]);
            every(cells.order(evidence, &fused, &separate, is_long), "plumb run stack.replay")
        },
    },
    Claim {
        id: "stack.contention.two-stacks-fight",
        experiment: "stack.contention",
        claim: "A user-level stack is slower while the kernel's stack decodes the same packets.",
        source: KJELLERSTEDT,
        historical: Some("'fighting for the time to process the packets', §4.2; no figure"),
        judge: |evidence| {
            let cells = Cells { experiment: "stack.contention", response: "rtt" };
            let (drops, decodes) = ([("kernel", "drops")], [("kernel", "decodes")]);
            every(cells.order(evidence, &drops, &decodes, |_| true), "plumb run stack.contention")
        },
    },
];

/// The cells of one response.
struct Cells {
    experiment: &'static str,
    response: &'static str,
}

/// Levels that pick a cell.
type Levels<'a> = [(&'a str, &'a str)];

impl Cells {
    /// "The first costs less than the second", at every setting that both were measured at.
    fn order(
        &self,
        evidence: &Evidence<'_>,
        first: &Levels<'_>,
        second: &Levels<'_>,
        chosen: fn(&Factors) -> bool,
    ) -> Pairs {
        let mut pairs = Pairs::default();
        for (a, b) in self.partners(evidence, first, second) {
            if chosen(&a.cell.factors) {
                let (place, label) = told(&a.cell.factors, first, second);
                pairs.cases.push(Case::order(&place, label, contrast::within_run(a, b)));
            }
        }
        pairs
    }

    /// The ratio of the second to the first within bounds, at every such setting.
    fn ratio(
        &self,
        evidence: &Evidence<'_>,
        first: &Levels<'_>,
        second: &Levels<'_>,
        bounds: (f64, f64),
        chosen: impl Fn(&Factors) -> bool,
    ) -> Pairs {
        let mut pairs = Pairs::default();
        for (a, b) in self.partners(evidence, first, second) {
            if chosen(&b.cell.factors) {
                let (place, label) = told(&a.cell.factors, first, second);
                let contrast = contrast::within_run(a, b);
                pairs.cases.push(Case::ratio_within(&place, label, contrast, bounds));
            }
        }
        pairs
    }

    /// Pairs of cells that differ in nothing but the levels that pick them, and in factors that
    /// only one of them has.
    fn partners<'a>(
        &self,
        evidence: &Evidence<'a>,
        first: &Levels<'_>,
        second: &Levels<'_>,
    ) -> Vec<(&'a Measured<'a>, &'a Measured<'a>)> {
        let all = || evidence.cells(self.experiment, self.response);
        let picked = |levels: &Levels<'_>, factors: &Factors| {
            levels.iter().all(|(name, level)| factors.text(name) == Some(*level))
        };
        let named = |name: &str| first.iter().chain(second).any(|(known, _)| *known == name);
        let mut found = Vec::new();
        for a in all().filter(|a| picked(first, &a.cell.factors)) {
            for b in all().filter(|b| picked(second, &b.cell.factors)) {
                let agrees = a.cell.factors.0.iter().all(|(name, level)| {
                    named(name) || b.cell.factors.level(name).is_none_or(|other| other == level)
                });
                if agrees {
                    found.push((a, b));
                }
            }
        }
        found
    }
}

/// Where a pair stands, and what it is: the placement, then every other level they share.
fn told(factors: &Factors, first: &Levels<'_>, second: &Levels<'_>) -> (String, String) {
    let word = |levels: &Levels<'_>| levels.first().map_or("", |(_, level)| level).to_owned();
    let named = |name: &str| first.iter().chain(second).any(|(known, _)| *known == name);
    let shared: Vec<String> = factors
        .0
        .iter()
        .filter(|(name, _)| name.as_str() != "placement" && !named(name))
        .map(|(_, level)| level.to_string())
        .collect();
    let place = factors.text("placement").unwrap_or_default().to_owned();
    (place, format!("{}/{} {}", word(second), word(first), shared.join(" ")))
}

fn frame(factors: &Factors) -> Option<i64> {
    factors.int("frame")
}

fn is_long(factors: &Factors) -> bool {
    frame(factors).is_some_and(|bytes| bytes >= 1514)
}

fn rtt_against_linux(evidence: &Evidence<'_>, bytes: i64, bounds: (f64, f64)) -> Finding {
    let cells = Cells { experiment: "mirror.rtt", response: "rtt" };
    let linux = [("stack", "linux"), ("device", "veth")];
    let plumb = [("stack", "plumb"), ("device", "tap")];
    let at = |factors: &Factors| frame(factors) == Some(bytes);
    every(cells.ratio(evidence, &linux, &plumb, bounds, at), "plumb run mirror.rtt")
}

/// Equal as far as an oscilloscope's screen can be read: within a tenth.
const READING: (f64, f64) = (0.9, 1.1);

fn time_is_equal(evidence: &Evidence<'_>) -> Finding {
    let cells = Cells { experiment: "stack.time", response: "stack" };
    let linux = [("stack", "linux"), ("device", "veth")];
    let plumb = [("stack", "plumb"), ("device", "tap")];
    let but_long_summed =
        |f: &Factors| !(frame(f) == Some(1514) && f.level("checksum") == Some(&Level::from("on")));
    every(cells.ratio(evidence, &linux, &plumb, READING, but_long_summed), "plumb run stack.time")
}

fn time_is_longer(evidence: &Evidence<'_>) -> Finding {
    let cells = Cells { experiment: "stack.time", response: "stack" };
    let linux = [("stack", "linux"), ("device", "veth")];
    let plumb = [("stack", "plumb"), ("device", "tap"), ("checksum", "on")];
    every(cells.order(evidence, &linux, &plumb, is_long), "plumb run stack.time")
}
