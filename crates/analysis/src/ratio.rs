//! Ratios that experiments declare: one stack over another, one way of summing over another.

use plumb_store::record::Factors;

use crate::cost_ratio::within_run;
use crate::document::MeasuredRatio;
use crate::registry::{RatioLevels, RatioPair, Registry};
use crate::summary::{MeasuredCell, factors, rounded};

/// Every ratio that an experiment declares, at every setting at which both were measured often enough.
pub fn ratios(registry: &Registry, measured: &[MeasuredCell<'_>]) -> Vec<MeasuredRatio> {
    let mut ratios = Vec::new();
    let pairs =
        registry.iter().flat_map(|(id, known)| known.ratios.iter().map(move |pair| (id, pair)));
    for (experiment, pair) in pairs {
        let all = || {
            measured.iter().filter(|cell| {
                cell.cell.experiment == experiment && cell.cell.response == pair.response
            })
        };
        for below in all().filter(|cell| matches_levels(pair.to, &cell.cell.factors)) {
            for above in all().filter(|cell| matches_levels(pair.of, &cell.cell.factors)) {
                if agree(pair, &above.cell.factors, &below.cell.factors) {
                    ratios.extend(ratio(above, below));
                }
            }
        }
    }
    ratios
}

fn ratio(above: &MeasuredCell<'_>, below: &MeasuredCell<'_>) -> Option<MeasuredRatio> {
    let found = within_run(below, above)?;
    Some(MeasuredRatio {
        experiment: above.cell.experiment.clone(),
        response: above.cell.response.clone(),
        of: factors(above.cell),
        to: factors(below.cell),
        ratio: rounded(found.ratio),
        ci95: [rounded(found.interval.lo), rounded(found.interval.hi)],
    })
}

fn matches_levels(levels: RatioLevels, factors: &Factors) -> bool {
    levels.iter().all(|(name, level)| factors.text(name) == Some(*level))
}

/// Whether two cells differ in nothing but what picks them, what is free, and what only one has.
fn agree(pair: &RatioPair, above: &Factors, below: &Factors) -> bool {
    let named = |name: &str| {
        let mut names = pair.of.iter().chain(pair.to).map(|(name, _)| name);
        names.any(|known| *known == name) || pair.free.contains(&name)
    };
    above
        .0
        .iter()
        .all(|(name, level)| named(name) || below.level(name).is_none_or(|other| other == level))
}
