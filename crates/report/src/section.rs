//! Sections of a page: results that share experiment and response, and the sentences around them.
//!
//! What the terminal, Markdown and HTML say alike is written here once. Left out: any mark-up.

use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::document::{
    CellResult, OUTER_LINK, OUTER_LINK_AFTER, RunDocument, RunTrust, UnavailableCell, host_notes,
};
use plumb_base::time::Span;
use plumb_base::units::quantity::{parse_rate, parse_span};
use plumb_base::units::{Rate, Unit};
use serde_json::Value;

use crate::name;

/// The results of one experiment and response, nearest placement first.
#[derive(Clone, Debug)]
pub struct ResultSection<'a> {
    /// Experiment id.
    pub experiment: &'a str,
    /// What was measured.
    pub response: &'a str,
    /// One or more.
    pub cells: Vec<&'a CellResult>,
}

impl ResultSection<'_> {
    /// Experiment and response in words.
    pub fn title(&self) -> String {
        format!("{}: {}", name::experiment(self.experiment), self.response_label())
    }

    /// The response in words.
    pub fn response_label(&self) -> &str {
        name::response_of(self.experiment, self.response)
    }

    /// What a reader must know about percentiles of latencies; none where there are none.
    pub fn percentile_note(&self) -> Option<&'static str> {
        let has = |cell: &&CellResult| cell.summary.p90.or(cell.summary.p99).is_some();
        (self.response == "latency" && self.cells.iter().any(has)).then_some(HALF_ROUND_TRIPS)
    }

    /// Factors whose level differs between some cells.
    pub fn varying(&self) -> BTreeSet<String> {
        name::varying(self.cells.iter().copied())
    }

    /// `same CPU, blocking, 64 B`: the levels that do not vary; may be empty.
    pub fn shared_factors(&self) -> String {
        let varying = self.varying();
        let Some(first) = self.cells.first() else { return String::new() };
        let everywhere =
            |factor: &&String| self.cells.iter().all(|cell| cell.factors.contains_key(*factor));
        let shared: BTreeSet<String> = first
            .factors
            .keys()
            .filter(|factor| !varying.contains(*factor))
            .filter(everywhere)
            .cloned()
            .collect();
        if shared.is_empty() { String::new() } else { name::cell(&first.factors, &shared) }
    }
}

/// What percentiles of latencies are of.
pub const HALF_ROUND_TRIPS: &str = "p90 and above are those of round trips, divided by two: what delays one way only is seen at half its \
                                    length.";

/// The sections in the order in which they first occur.
pub fn sections(results: &[CellResult]) -> Vec<ResultSection<'_>> {
    let mut sections: Vec<ResultSection<'_>> = Vec::new();
    for cell in results {
        let (experiment, response) = (cell.experiment.as_str(), cell.response.as_str());
        let known = sections
            .iter_mut()
            .find(|section| section.experiment == experiment && section.response == response);
        match known {
            Some(section) => section.cells.push(cell),
            None => sections.push(ResultSection { experiment, response, cells: vec![cell] }),
        }
    }
    for section in &mut sections {
        section.cells.sort_by_cached_key(|cell| order(cell));
    }
    sections
}

/// Placement, then every factor that is a word, then those that are numbers, size last: neighbours
/// differ in one thing.
fn order(cell: &CellResult) -> (usize, Vec<(u64, String)>, Vec<u64>, u64) {
    let words = cell.factors.values().filter_map(|level| level.as_str());
    let numbers =
        cell.factors.iter().filter(|(name, _)| !matches!(name.as_str(), "size" | "frame"));
    (
        name::placement_order(cell),
        words.map(|word| (quantity_order(word), word.to_owned())).collect(),
        numbers.filter_map(|(_, level)| level.as_u64()).collect(),
        name::bytes(cell).unwrap_or(0),
    )
}

/// The rate or the time that a level is, so that 2 ms stands before 10 ms; 0 for what is neither.
fn quantity_order(word: &str) -> u64 {
    let rate = parse_rate(word).map(Rate::bits_per_second);
    rate.or_else(|_| parse_span(word).map(Span::as_ps)).unwrap_or(0)
}

/// What the whole run was measured behind or against, beside this machine; none where there was nothing.
pub fn network_conditions(document: &RunDocument) -> Option<String> {
    let all: Vec<String> = outer_link(document).into_iter().chain(other_host(document)).collect();
    (!all.is_empty()).then(|| all.join(" "))
}

/// Which other host the run was measured against, as that host has told it.
fn other_host(document: &RunDocument) -> Option<String> {
    let note = |name: &str| document.notes.get(name).map(String::as_str);
    let name = note(host_notes::NAME)?;
    let told = [
        note(host_notes::ADDRESS).map(|address| format!("at {address}")),
        note(host_notes::PROCESSOR).map(|model| format!("with {model}")),
        note(host_notes::KERNEL).map(|kernel| format!("kernel {kernel}")),
        note(host_notes::CONGESTION).map(|congestion| format!("{congestion} by default")),
        note(host_notes::VERSION).map(|version| format!("plumb {version}")),
    ];
    let told: Vec<String> = told.into_iter().flatten().collect();
    let connected = note(host_notes::ROUND_TRIP).and_then(|ns| ns.parse::<f64>().ok());
    let connected = connected.map_or_else(String::new, |ns| {
        format!(" A connection to it took {} when this began.", Unit::Nanoseconds.format(ns, 3))
    });
    let lost = note(host_notes::LOST).map_or_else(String::new, |why| {
        format!(" It was lost before the end: {why}. What was measured until then is here.")
    });
    Some(format!("Measured against host {name} {}.{connected}{lost}", told.join(", ")))
}

/// Which link the whole run was behind, and for which results that matters; none where there was none.
fn outer_link(document: &RunDocument) -> Option<String> {
    let link = name::link(document.notes.get(OUTER_LINK)?);
    let changed = document.notes.get(OUTER_LINK_AFTER).map(|after| {
        format!(
            " It changed while this was measured, and was in the end: {}. Blocks over it after that \
             are flagged 'link-changed'.",
            name::link(after)
        )
    });
    Some(format!(
        "Measured behind a link: {link}. What goes to its far side crosses it; what stays on this \
         host does not.{}",
        changed.unwrap_or_default()
    ))
}

/// One sentence on whether the run is to be trusted, with the disturbances that were counted.
pub fn trust(trust: &RunTrust) -> String {
    if trust.blocks == 0 {
        return "No block was measured in real time by this program, so there is nothing to say about its \
                conditions."
            .to_owned();
    }
    let share = trust.flagged as f64 / trust.blocks as f64 * 100.0;
    let flags: Vec<String> =
        trust.flags.iter().map(|(flag, blocks)| format!("{flag} {blocks}")).collect();
    // Not every flag is a disturbance: batching is one too, so all are listed apart.
    let flags =
        if flags.is_empty() { String::new() } else { format!(" Flags: {}.", flags.join(", ")) };
    let count =
        format!("{} of {} blocks ({share:.0}%) were disturbed", trust.flagged, trust.blocks);
    if trust.trusted {
        format!("{count}, fewer than the fifth at which a run says not to trust it.{flags}")
    } else {
        format!("{count}, a fifth or more: not to be trusted.{flags}")
    }
}

/// What to do about a run that is not to be trusted, as the first line of its answer.
pub fn distrust(trust: &RunTrust) -> String {
    let share = trust.flagged as f64 / trust.blocks.max(1) as f64 * 100.0;
    format!("! Not to be trusted: {share:.0}% of samples disturbed. See 'plumb doctor', repeat.")
}

/// `Example CPU, 4 CPUs, Linux 6.1`: the machine in a line; none where nothing was recorded.
pub fn machine(document: &RunDocument) -> Option<String> {
    let fact = |key: &str| {
        let fact = document.machine.get(key)?.trim();
        (!fact.is_empty() && !fact.starts_with("absent")).then(|| fact.to_owned())
    };
    let kernel = fact("kernel.release").map(|release| {
        format!("Linux {}", release.split('.').take(2).collect::<Vec<_>>().join("."))
    });
    let cpus = fact("cpu.count").map(|count| match count.as_str() {
        "1" => "1 CPU".to_owned(),
        count => format!("{count} CPUs"),
    });
    let cpus = match fact("cpu.hypervisor").filter(|name| name != "none") {
        Some(_) => cpus.map(|cpus| format!("VM, {cpus}")),
        None => cpus,
    };
    let words: Vec<String> = [fact("cpu.model"), cpus, kernel].into_iter().flatten().collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// Cells of one experiment without numbers, for one reason.
#[derive(Clone, Debug, PartialEq)]
pub struct MissingCells {
    /// Experiment id.
    pub experiment: String,
    /// Settings, whatever the response.
    pub cells: Vec<BTreeMap<String, Value>>,
}

/// Cells without numbers by reason, then by experiment.
pub fn missing_by_reason(cells: &[UnavailableCell]) -> BTreeMap<String, Vec<MissingCells>> {
    let mut reasons: BTreeMap<String, Vec<MissingCells>> = BTreeMap::new();
    for cell in cells {
        let reason = match cell.state.as_str() {
            "unavailable" => cell.reason.clone(),
            "open" => format!("not reached ({})", cell.reason),
            state => format!("{state}: {}", cell.reason),
        };
        let groups = reasons.entry(reason).or_default();
        let known = groups.iter_mut().find(|group| group.experiment == cell.experiment);
        let factors = cell.factors.clone();
        match known {
            Some(group) if group.cells.contains(&factors) => {}
            Some(group) => group.cells.push(factors),
            None => {
                let experiment = cell.experiment.clone();
                groups.push(MissingCells { experiment, cells: vec![factors] });
            }
        }
    }
    reasons
}

impl MissingCells {
    /// One cell in full; of several what they share, and the few levels in which they differ.
    pub fn label(&self) -> String {
        let [first, rest @ ..] = self.cells.as_slice() else { return self.experiment.clone() };
        let shared: BTreeSet<String> = first
            .iter()
            .filter(|(name, level)| rest.iter().all(|cell| cell.get(*name) == Some(*level)))
            .map(|(name, _)| name.clone())
            .collect();
        let mut words = vec![];
        if !shared.is_empty() {
            words.push(name::cell(first, &shared));
        }
        let others: BTreeSet<&String> =
            self.cells.iter().flat_map(BTreeMap::keys).filter(|n| !shared.contains(*n)).collect();
        for name in others {
            let mut levels: Vec<String> = Vec::new();
            for level in self.cells.iter().filter_map(|cell| cell.get(name)) {
                let level = name::level(name, level);
                if !levels.contains(&level) {
                    levels.push(level);
                }
            }
            if levels.len() <= LEVELS_SHOWN {
                words.push(levels.join(" or "));
            } else {
                words.push(format!("{} levels of {name}", levels.len()));
            }
        }
        let count = match self.cells.len() {
            1 => String::new(),
            count => format!(" ({count} cells)"),
        };
        format!("{} {}{count}", self.experiment, words.join(", "))
    }
}

/// Levels of a factor that are listed; of more their number is told.
const LEVELS_SHOWN: usize = 4;
