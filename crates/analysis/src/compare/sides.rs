//! The two sides of a comparison: the runs of each, the cells that they planned and measured, and the settings by
//! which they differ.

use std::collections::{BTreeMap, BTreeSet};

use plumb_base::stats::quantile;
use plumb_store::record::{Cell, CellStatus, RunData, RunRecord, RunStatus};

use crate::build::{instant, trust};
use crate::document::compare::{CellName, ComparedSide, SettingDifference};
use crate::document::{OUTER_LINK, host_notes};
use crate::summary::{self, MeasuredCell};

/// One side's cells, by the key to match: all that were planned, and those that have numbers, in each run that has.
pub struct SideCells<'a> {
    /// In the order of the plan.
    pub cells: Vec<(String, Cell)>,
    /// At least one measured cell under each key.
    pub measured: BTreeMap<String, Vec<&'a MeasuredCell<'a>>>,
}

impl<'a> SideCells<'a> {
    /// The cells of one side's runs.
    pub fn of_runs(runs: &[&RunData], measured: &'a [Vec<MeasuredCell<'a>>]) -> Self {
        let mut side = Self { cells: planned(runs), measured: BTreeMap::new() };
        for cell in measured.iter().flatten() {
            side.measured.entry(match_key(cell.cell)).or_default().push(cell);
        }
        side
    }

    /// The planned cell under a key.
    pub fn planned(&self, key: &str) -> Option<&Cell> {
        self.cells.iter().find(|(candidate, _)| candidate == key).map(|(_, cell)| cell)
    }

    /// A cell that only the other side measured, with the reason that this one has.
    pub fn missing(&self, cell: &Cell, key: &str) -> CellName {
        let reason = self.planned(key).map_or_else(
            || "not in its plan".to_owned(),
            |planned| summary::missing_reason(&planned.status).1,
        );
        CellName {
            experiment: cell.experiment.clone(),
            factors: summary::factors(cell),
            response: cell.response.clone(),
            reason,
        }
    }
}

/// Every cell that one of the runs planned, once. It is done where it is in all of them; an imported value is the
/// median of theirs.
fn planned(runs: &[&RunData]) -> Vec<(String, Cell)> {
    let mut cells: Vec<(String, Cell)> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut imported: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for cell in runs.iter().flat_map(|run| &run.cells) {
        let key = match_key(cell);
        if let Some(figure) = &cell.imported {
            imported.entry(key.clone()).or_default().push(figure.value);
        }
        let place = *places.entry(key.clone()).or_insert(cells.len());
        match cells.get_mut(place) {
            None => cells.push((key, cell.clone())),
            Some((_, first)) if matches!(first.status, CellStatus::Done(_)) => {
                first.status = cell.status.clone();
            }
            Some(_) => {}
        }
    }
    for (key, cell) in &mut cells {
        if let Some((figure, values)) = cell.imported.as_mut().zip(imported.get(key)) {
            figure.value = quantile::of_sorted(&quantile::sorted(values), 0.5);
        }
    }
    cells
}

/// What the cells of two runs are matched by. The link that a run was behind, or the host that it went to, is no
/// reason for two cells not to be compared, only to say so.
fn match_key(cell: &Cell) -> String {
    let link = cell.factors.text("link").unwrap_or_default();
    let Some(which) = ["outer", "host"].into_iter().find(|which| link.starts_with(which)) else {
        return cell.key();
    };
    Cell { factors: cell.factors.clone().with("link", which), ..cell.clone() }.key()
}

/// The head of one side.
pub fn head(runs: &[&RunRecord], label: String) -> ComparedSide {
    let created = runs.iter().map(|run| run.created_unix_ms).min().unwrap_or_default();
    ComparedSide {
        run: runs.first().map(|run| run.id.clone()).unwrap_or_default(),
        runs: runs.iter().map(|run| run.id.clone()).collect(),
        label,
        created: instant(created),
        code: distinct(runs.iter().map(|run| Some(&run.code_version))).unwrap_or_default(),
    }
}

/// The label of a side of these runs.
pub fn label(runs: &[&RunRecord]) -> String {
    match runs {
        [] => "no run".to_owned(),
        [run] => run.id.clone(),
        [first, .., last] => format!("{} runs, {} to {}", runs.len(), first.id, last.id),
    }
}

/// What a reader must know about the runs before trusting their comparison.
pub fn warnings(a: &[&RunData], b: &[&RunData]) -> Vec<String> {
    let all = || a.iter().chain(b);
    let mut warnings: Vec<String> = all().filter_map(|run| trust_warning(run)).collect();
    warnings.extend(all().filter_map(|run| imported_warning(run)));
    warnings.extend(link_warning(a, b));
    warnings
}

/// That many of a run's blocks were disturbed.
pub fn trust_warning(data: &RunData) -> Option<String> {
    let trust = trust(data);
    (!trust.trusted).then(|| {
        format!(
            "not to be trusted: {} of {} blocks of {} were disturbed",
            trust.flagged, trust.blocks, data.run.id
        )
    })
}

fn imported_warning(data: &RunData) -> Option<String> {
    (data.run.status == RunStatus::Imported).then(|| {
        format!("{} was measured by another tool: its cells carry no verdict", data.run.id)
    })
}

/// The largest difference between two runs, if any.
fn link_warning(a: &[&RunData], b: &[&RunData]) -> Option<String> {
    let links = |runs: &[&RunData]| -> BTreeSet<String> {
        let link = |run: &&RunData| match run.run.notes.get(OUTER_LINK) {
            Some(link) => format!("the link {link}"),
            None => "no link".to_owned(),
        };
        runs.iter().map(link).collect()
    };
    let told = |runs: &[&RunData]| {
        let runs: Vec<&RunRecord> = runs.iter().map(|data| &data.run).collect();
        label(&runs)
    };
    let (of_a, of_b) = (links(a), links(b));
    let joined = |links: BTreeSet<String>| links.into_iter().collect::<Vec<_>>().join(" and ");
    (of_a != of_b).then(|| {
        format!(
            "measured behind different links: {} behind {}, {} behind {}; a difference may be the \
             network's",
            told(a),
            joined(of_a),
            told(b),
            joined(of_b)
        )
    })
}

/// Facts that vary from run to run without anybody setting them.
const TRANSIENT_KEYS: [&str; 6] = [
    "cgroup.cpu.throttled",
    "cpu.mhz",
    "kernel.clock.correction_ppm",
    "kernel.uptime_s",
    "memory.available",
    "memory.swap.free",
];

/// Facts below this are conditions of the moment as well.
const TRANSIENT_PREFIX: &str = "load.";

fn is_setting(key: &str) -> bool {
    !TRANSIENT_KEYS.contains(&key) && !key.starts_with(TRANSIENT_PREFIX)
}

/// Settings that differ between the sides, the outer link, the other host and the program's version among them, by
/// their names. Of several runs a side every value is given.
pub fn setting_differences(a: &[&RunRecord], b: &[&RunRecord]) -> Vec<SettingDifference> {
    type Facts = fn(&RunRecord) -> &BTreeMap<String, String>;
    let keys = |of: Facts| -> BTreeSet<&String> {
        a.iter().chain(b).flat_map(|run| of(run).keys()).collect()
    };
    let difference = |key: &str, of: &dyn Fn(&RunRecord) -> Option<String>| {
        let values = |runs: &[&RunRecord]| {
            let values: Vec<Option<String>> = runs.iter().map(|run| of(run)).collect();
            distinct(values.iter().map(Option::as_ref))
        };
        let (a, b) = (values(a), values(b));
        (a != b).then(|| SettingDifference { key: key.to_owned(), a, b })
    };
    let mut found: Vec<SettingDifference> = keys(|run| &run.provenance)
        .into_iter()
        .filter(|key| is_setting(key))
        .filter_map(|key| difference(key, &|run| run.provenance.get(key).cloned()))
        .collect();
    found.extend(difference(OUTER_LINK, &|run| run.notes.get(OUTER_LINK).cloned()));
    let of_host = keys(|run| &run.notes).into_iter().filter(|name| host_notes::is_setting(name));
    found.extend(of_host.filter_map(|key| difference(key, &|run| run.notes.get(key).cloned())));
    found.extend(difference("code", &|run| Some(run.code_version.clone())));
    found
}

/// The different values, in order, joined; where some runs have none that is said, and `None` is for no value at all.
fn distinct<'a>(values: impl Iterator<Item = Option<&'a String>>) -> Option<String> {
    let found: BTreeSet<Option<&String>> = values.collect();
    let words: Vec<&str> =
        found.iter().map(|value| value.map_or("not recorded", String::as_str)).collect();
    found.iter().any(Option::is_some).then(|| words.join(", "))
}
