//! Ratios that study `stack` is about: one stack over another, one way of summing over another.
//!
//! Left out: what was published about them (`crate::claim`), and ratios of other studies.

use std::collections::BTreeMap;

use plumb_store::record::Factors;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::contrast;
use crate::summary::{Measured, factors, rounded};

/// What one thing costs as a multiple of what another costs at the same setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ratio {
    /// Experiment id.
    pub experiment: String,
    /// What was measured.
    pub response: String,
    /// The factors of the cost on top.
    pub of: BTreeMap<String, serde_json::Value>,
    /// The factors of the cost below.
    pub to: BTreeMap<String, serde_json::Value>,
    /// The ratio of their medians: below 1, the first costs less.
    pub ratio: f64,
    /// Its 95 % interval over launches.
    pub ci95: [f64; 2],
}

/// Two groups of cells that are set against each other.
struct Pair {
    experiment: &'static str,
    response: &'static str,
    of: &'static [(&'static str, &'static str)],
    to: &'static [(&'static str, &'static str)],
    /// Factors in which partners may differ besides those that pick them.
    free: &'static [&'static str],
}

const LINUX: &[(&str, &str)] = &[("stack", "linux")];
const PLUMB: &[(&str, &str)] = &[("stack", "plumb")];
const SMOLTCP: &[(&str, &str)] = &[("stack", "smoltcp")];
const UDP: &[(&str, &str)] = &[("stack", "plumb"), ("turn", "udp"), ("cache", "warm")];

const PAIRS: [Pair; 12] = [
    stacks("mirror.rtt", "rtt", PLUMB, LINUX),
    stacks("mirror.rtt", "rtt", SMOLTCP, LINUX),
    stacks("mirror.rtt", "rtt", PLUMB, SMOLTCP),
    stacks("stack.time", "stack", PLUMB, LINUX),
    stacks("stack.time", "stack", SMOLTCP, LINUX),
    stacks("stack.time", "stack", PLUMB, SMOLTCP),
    stacks("stack.replay", "packet", SMOLTCP, UDP),
    levels("stack.replay", "packet", &[("turn", "udp-unsummed")], &[("turn", "udp")]),
    levels("stack.replay", "packet", &[("turn", "separate")], &[("turn", "fused")]),
    levels("stack.checksum", "time", &[("operation", "fused")], &[("operation", "copy")]),
    levels("stack.checksum", "time", &[("operation", "separate")], &[("operation", "fused")]),
    levels("stack.contention", "rtt", &[("kernel", "decodes")], &[("kernel", "drops")]),
];

type Levels = &'static [(&'static str, &'static str)];

const fn stacks(experiment: &'static str, response: &'static str, of: Levels, to: Levels) -> Pair {
    Pair { experiment, response, of, to, free: &["device"] }
}

const fn levels(experiment: &'static str, response: &'static str, of: Levels, to: Levels) -> Pair {
    Pair { experiment, response, of, to, free: &[] }
}

/// Every such ratio, at every setting at which both were measured often enough.
pub fn ratios(measured: &[Measured<'_>]) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for pair in &PAIRS {
        let all = || {
            measured.iter().filter(|cell| {
                cell.cell.experiment == pair.experiment && cell.cell.response == pair.response
            })
        };
        for below in all().filter(|cell| picked(pair.to, &cell.cell.factors)) {
            for above in all().filter(|cell| picked(pair.of, &cell.cell.factors)) {
                if pair.agree(&above.cell.factors, &below.cell.factors) {
                    ratios.extend(ratio(above, below));
                }
            }
        }
    }
    ratios
}

fn ratio(above: &Measured<'_>, below: &Measured<'_>) -> Option<Ratio> {
    let found = contrast::within_run(below, above)?;
    Some(Ratio {
        experiment: above.cell.experiment.clone(),
        response: above.cell.response.clone(),
        of: factors(above.cell),
        to: factors(below.cell),
        ratio: rounded(found.ratio),
        ci95: [rounded(found.interval.lo), rounded(found.interval.hi)],
    })
}

fn picked(levels: Levels, factors: &Factors) -> bool {
    levels.iter().all(|(name, level)| factors.text(name) == Some(*level))
}

impl Pair {
    /// Whether two cells differ in nothing but what picks them, what is free, and what only one has.
    fn agree(&self, above: &Factors, below: &Factors) -> bool {
        let named = |name: &str| {
            let mut names = self.of.iter().chain(self.to).map(|(name, _)| name);
            names.any(|known| *known == name) || self.free.contains(&name)
        };
        above.0.iter().all(|(name, level)| {
            named(name) || below.level(name).is_none_or(|other| other == level)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Synthetic;
    use crate::summary::measured;

    fn mirror(stack: &str, device: &str, frame: u64) -> Factors {
        let factors = Factors::default().with("stack", stack).with("device", device);
        factors.with("placement", "same-cpu").with("wake", "block").with("frame", frame)
    }

    #[test]
    fn stacks_are_set_against_each_other_at_equal_settings_only() {
        let mut synthetic = Synthetic::new(3);
        for frame in [60, 1514] {
            let ns = frame as f64 + 4_000.0;
            synthetic.measure("mirror.rtt", "rtt", mirror("linux", "veth", frame), ns);
            synthetic.measure("mirror.rtt", "rtt", mirror("plumb", "tap", frame), ns * 0.8);
        }
        let found = ratios(&measured(&synthetic.data));
        assert_eq!(found.len(), 2, "{found:?}");
        for ratio in &found {
            assert_eq!(ratio.of["frame"], ratio.to["frame"]);
            assert!(ratio.ci95[0] < 0.8 && 0.8 < ratio.ci95[1], "{ratio:?}");
        }
    }

    #[test]
    fn nothing_is_set_against_what_was_not_measured() {
        let mut synthetic = Synthetic::new(4);
        synthetic.measure("mirror.rtt", "rtt", mirror("plumb", "tap", 60), 3_000.0);
        assert!(ratios(&measured(&synthetic.data)).is_empty());
    }
}
