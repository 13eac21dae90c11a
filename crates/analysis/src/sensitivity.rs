//! The sensitivity of a response to a factor: its relative change over that of the factor, everything else being the same (as Lantz,
//! Nowicki and Theimer 1985 §9 rank processors, protocols and bandwidth).
//!
//! The levels farthest apart are compared, round by round, in every setting of the other factors.
//! Slopes over a factor are over launches, which are what is replicated.

use std::collections::{BTreeMap, BTreeSet};

use plumb_base::stats::quantile;
use plumb_base::stats::regression::theil_sen;
use plumb_base::stats::shift::Shift;
use plumb_base::units::Rate;
use plumb_base::units::quantity::{parse_probability, parse_rate, parse_span};
use plumb_store::record::{Better, FactorLevel};

use crate::cost_ratio::{CostRatio, within_run};
use crate::document::model::FactorSensitivity;
use crate::summary::{CONFIDENCE, LAUNCHES_NEEDED, MeasuredCell};

/// Every factor of every response, ranked, and how many settings had too few launches to be compared.
pub fn sensitivities(cells: &[MeasuredCell<'_>]) -> (Vec<FactorSensitivity>, u64) {
    let mut found = Vec::new();
    let mut undecided = 0;
    for ((experiment, response), cells) in by_response(cells) {
        let mut names: Vec<&String> =
            cells.iter().flat_map(|cell| cell.cell.factors.0.keys()).collect();
        names.sort_unstable();
        names.dedup();
        // A factor with one level, or bound to a mechanism, distinguishes no two settings.
        names.retain(|name| {
            let levels = cells.iter().filter_map(|cell| cell.cell.factors.level(name));
            levels.collect::<BTreeSet<_>>().len() > 1
        });
        let mut ranked = Vec::new();
        for name in &names {
            let others: Vec<&str> =
                names.iter().filter(|it| *it != name).map(|it| it.as_str()).collect();
            let (effects, open) = effects_of(name, &others, &cells);
            undecided += open;
            if let Some(((levels, change, ratio), range)) = median_effect(&effects) {
                let by_change = |ratio: f64| change.map(|change| ratio.ln() / change.ln());
                let ends = ratio.ends();
                ranked.push(FactorSensitivity {
                    experiment: experiment.to_owned(),
                    response: response.to_owned(),
                    factor: (*name).clone(),
                    levels: levels.clone(),
                    change: *change,
                    ratio: ratio.ratio,
                    ratio_ci95: ends,
                    sensitivity: by_change(ratio.ratio),
                    sensitivity_ci95: by_change(ends[0]).zip(by_change(ends[1])).map(Into::into),
                    range,
                    settings: effects.len() as u64,
                });
            }
        }
        let strength =
            |it: &FactorSensitivity| (it.sensitivity.map_or(-1.0, f64::abs), it.ratio.ln().abs());
        ranked.sort_by(|a, b| {
            let (a, b) = (strength(a), strength(b));
            b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
        });
        found.extend(ranked);
    }
    (found, undecided)
}

fn by_response<'a, 'b>(
    cells: &'b [MeasuredCell<'a>],
) -> BTreeMap<(&'a str, &'a str), Vec<&'b MeasuredCell<'a>>> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for cell in cells {
        let key = (cell.cell.experiment.as_str(), cell.cell.response.as_str());
        groups.entry(key).or_default().push(cell);
    }
    groups
}

/// The two levels of a factor that are compared in one setting, how far apart they are, and what that does.
type FactorEffect = ([String; 2], Option<f64>, CostRatio);

/// The effects of a factor in every setting of the others, and how many settings have too few launches.
fn effects_of(
    name: &str,
    others: &[&str],
    cells: &[&MeasuredCell<'_>],
) -> (Vec<FactorEffect>, u64) {
    let mut settings: BTreeMap<Vec<Option<&FactorLevel>>, Vec<&MeasuredCell<'_>>> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| cell.cell.factors.level(name).is_some()) {
        let setting = others.iter().map(|other| cell.cell.factors.level(other)).collect();
        settings.entry(setting).or_default().push(cell);
    }
    let level = |cell: &MeasuredCell<'_>| cell.cell.factors.0[name].clone();
    let mut undecided = 0;
    let mut effects = Vec::new();
    for cells in settings.values().filter(|cells| cells.len() > 1) {
        let numbers: Option<Vec<f64>> = cells.iter().map(|cell| magnitude(&level(cell))).collect();
        let place = |cell: &MeasuredCell<'_>| match numbers {
            Some(_) => magnitude(&level(cell)).unwrap_or(0.0),
            // Words have no order of their own: cheapest and dearest.
            None => cost(cell),
        };
        let ends = || cells.iter().copied();
        let by_place = |a: &&MeasuredCell<'_>, b: &&MeasuredCell<'_>| place(a).total_cmp(&place(b));
        let (Some(first), Some(second)) = (ends().min_by(by_place), ends().max_by(by_place)) else {
            continue;
        };
        let change = numbers.is_some().then(|| place(second) / place(first));
        match within_run(first, second) {
            Some(ratio) if change.is_none_or(|change| change > 1.0) => {
                effects.push(([first, second].map(|cell| level(cell).to_string()), change, ratio));
            }
            Some(_) => {}
            None => undecided += 1,
        }
    }
    (effects, undecided)
}

/// The effect in the middle, and the range of all.
fn median_effect(effects: &[FactorEffect]) -> Option<(&FactorEffect, [f64; 2])> {
    let mut sorted: Vec<&FactorEffect> = effects.iter().collect();
    sorted.sort_by(|a, b| a.2.ratio.total_cmp(&b.2.ratio));
    let range = [sorted.first()?.2.ratio, sorted.last()?.2.ratio];
    Some((sorted[(sorted.len() - 1) / 2], range))
}

/// The median as a cost: less is better.
fn cost(cell: &MeasuredCell<'_>) -> f64 {
    match cell.cell.better {
        Better::Lower => cell.median(),
        Better::Higher => 1.0 / cell.median(),
    }
}

/// A level as a positive number, whatever its unit: `64`, `10mbit`, `25ms`, `50%`, `2x`.
fn magnitude(level: &FactorLevel) -> Option<f64> {
    let number = match level {
        FactorLevel::Int(number) => *number as f64,
        FactorLevel::Text(text) => {
            let times = text.strip_suffix('x').and_then(|text| text.parse().ok());
            let rate = || parse_rate(text).ok().map(Rate::bytes_per_second);
            let span = || parse_span(text).ok().map(|span| span.as_ns() as f64);
            times.or_else(rate).or_else(span).or_else(|| parse_probability(text).ok())?
        }
    };
    (number > 0.0 && number.is_finite()).then_some(number)
}

/// The slope of the medians of cells over their `x`, each through `scale`.
///
/// Each round gives the Theil-Sen slope through the launches that it made of every cell; estimate, interval and
/// probability are over rounds, however few levels the factor has. `None` for too few rounds, or fewer than three levels.
pub fn slope(line: &[(f64, &MeasuredCell<'_>)], scale: impl Fn(f64) -> f64) -> Option<Shift> {
    let mut rounds: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
    for (x, cell) in line {
        for launch in &cell.launches {
            let samples = quantile::sorted(&launch.samples().concat());
            let median = scale(quantile::of_sorted(&samples, 0.5));
            rounds.entry(launch.round).or_default().push((scale(*x), median));
        }
    }
    let whole = rounds.into_values().filter(|points| points.len() == line.len());
    let slopes: Vec<f64> = whole
        .filter_map(|points| {
            let (x, y): (Vec<f64>, Vec<f64>) = points.into_iter().unzip();
            Some(theil_sen(&x, &y, CONFIDENCE)?.slope)
        })
        .collect();
    if slopes.len() < LAUNCHES_NEEDED {
        return None;
    }
    Shift::of_pairs(&slopes)
}

#[cfg(test)]
mod tests {
    use plumb_store::record::Factors;

    use super::*;
    use crate::fixture::{SyntheticRun, local};
    use crate::summary::measured_cells;

    #[test]
    fn what_costs_in_proportion_has_a_sensitivity_of_one_and_leads() {
        let mut run = SyntheticRun::new(9);
        for (mechanism, base) in [("pipe", 1e3), ("tcp4", 2e3)] {
            for (rate, size, ns) in [
                ("1mbit", 64, 1.0),
                ("1mbit", 6_400, 2.0),
                ("100mbit", 64, 0.01),
                ("100mbit", 6_400, 0.02),
            ] {
                let factors = Factors::default()
                    .with("mechanism", mechanism)
                    .with("rate", rate)
                    .with("size", u64::try_from(size).unwrap());
                // A factor that only one mechanism has does not keep the two from being compared.
                let factors = match mechanism {
                    "tcp4" => factors.with("congestion", "cubic"),
                    _ => factors,
                };
                run.measure("display.batch", "time", factors, base * ns);
            }
        }
        let (found, undecided) = sensitivities(&measured_cells(&run.data));
        let names: Vec<&str> = found.iter().map(|it| it.factor.as_str()).collect();
        assert_eq!((names.as_slice(), undecided), (&["rate", "size", "mechanism"][..], 0));
        for (it, truth) in found.iter().zip([-1.0, 0.1505]) {
            let [low, high] = it.sensitivity_ci95.unwrap();
            assert!(low <= truth && truth <= high && high - low < 0.05, "{it:?}");
        }
        assert_eq!((found[2].sensitivity, found[2].settings), (None, 4));
        assert!((found[2].ratio / 2.0 - 1.0).abs() < 0.02, "{:?}", found[2]);
    }

    #[test]
    fn levels_of_every_unit_are_numbers_and_words_are_none() {
        let text = |text: &str| magnitude(&FactorLevel::from(text));
        assert_eq!(magnitude(&FactorLevel::Int(64)), Some(64.0));
        assert_eq!(text("8kbit"), Some(1_000.0));
        assert_eq!(text("25ms"), Some(25e6));
        assert_eq!(text("50%"), Some(0.5));
        assert_eq!(text("2x"), Some(2.0));
        assert_eq!((text("pipe"), magnitude(&FactorLevel::Int(0))), (None, None));
    }

    #[test]
    fn three_levels_give_a_slope_whose_interval_is_over_launches() {
        let mut synthetic = SyntheticRun::new(1);
        for size in [1_u64, 2, 4] {
            let factors = local("pipe", "same-cpu", size);
            let median = 1_000.0 + 50.0 * size as f64;
            synthetic.measure("latency.local", "latency", factors, median);
        }
        let cells = measured_cells(&synthetic.data);
        let line: Vec<(f64, &MeasuredCell<'_>)> = [1.0, 2.0, 4.0].into_iter().zip(&cells).collect();
        let found = slope(&line, |value| value).unwrap();
        let interval = found.interval(CONFIDENCE).unwrap();
        assert!(interval.contains(50.0) && interval.half_width() < 5.0, "{interval:?}");
        assert!(slope(&line[..2], |value| value).is_none());
    }
}
