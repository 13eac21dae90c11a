//! Ratios that experiments declare: one stack over another, one way of summing over another.

use crate::cost_ratio::within_run;
use crate::document::MeasuredRatio;
use crate::registry::Registry;
use crate::summary::{MeasuredCell, factors, rounded};

/// Every ratio that an experiment declares, at every setting at which both were measured often enough.
pub fn ratios(registry: &Registry, measured: &[MeasuredCell<'_>]) -> Vec<MeasuredRatio> {
    let mut ratios = Vec::new();
    let pairs =
        registry.iter().flat_map(|(id, known)| known.ratios.iter().map(move |pair| (id, pair)));
    for (experiment, pair) in pairs {
        let cells = measured.iter().filter(|cell| {
            cell.cell.experiment == experiment && cell.cell.response == pair.response
        });
        let cells: Vec<&MeasuredCell<'_>> = cells.collect();
        let pairs = matched_pairs(&cells, pair.to, pair.of, pair.free);
        ratios.extend(pairs.into_iter().filter_map(|(below, above)| ratio(above, below)));
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

/// Pairs of cells, one at the first levels and one at the second, that differ in nothing but what picks them, what is free,
/// and what only one of them has.
pub fn matched_pairs<'a>(
    cells: &[&'a MeasuredCell<'a>],
    first: &[(&str, &str)],
    second: &[(&str, &str)],
    free: &[&str],
) -> Vec<(&'a MeasuredCell<'a>, &'a MeasuredCell<'a>)> {
    let picked = |levels: &[(&str, &str)]| -> Vec<&'a MeasuredCell<'a>> {
        let is_picked = |cell: &&&MeasuredCell<'_>| {
            levels.iter().all(|(name, level)| cell.text(name) == Some(*level))
        };
        cells.iter().filter(is_picked).copied().collect()
    };
    let may_differ = |name: &str| {
        first.iter().chain(second).any(|(known, _)| *known == name) || free.contains(&name)
    };
    let agree = |a: &MeasuredCell<'_>, b: &MeasuredCell<'_>| {
        a.cell.factors.0.iter().all(|(name, level)| {
            may_differ(name) || b.cell.factors.level(name).is_none_or(|other| other == level)
        })
    };
    let mut found = Vec::new();
    for a in picked(first) {
        found.extend(picked(second).into_iter().filter(|b| agree(a, b)).map(|b| (a, b)));
    }
    found
}
