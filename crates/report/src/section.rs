//! Sections of a page: results that share experiment and response, and the sentences around them.
//!
//! What the terminal, Markdown and HTML say alike is written here once. Left out: any mark-up.

use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::document::{CellResult, Trust, Unavailable};

use crate::name;

/// The results of one experiment and response, nearest placement first.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    /// Experiment id.
    pub experiment: &'a str,
    /// What was measured.
    pub response: &'a str,
    /// One or more.
    pub cells: Vec<&'a CellResult>,
}

impl Section<'_> {
    /// Experiment and response in words.
    pub fn title(&self) -> String {
        format!("{}: {}", name::experiment(self.experiment), name::response(self.response))
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

/// The sections in the order in which they first occur.
pub fn sections(results: &[CellResult]) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for cell in results {
        let (experiment, response) = (cell.experiment.as_str(), cell.response.as_str());
        let known = sections
            .iter_mut()
            .find(|section| section.experiment == experiment && section.response == response);
        match known {
            Some(section) => section.cells.push(cell),
            None => sections.push(Section { experiment, response, cells: vec![cell] }),
        }
    }
    for section in &mut sections {
        section.cells.sort_by_cached_key(|cell| order(cell));
    }
    sections
}

/// Placement, then every factor that is a word, then size: neighbours differ in one thing.
fn order(cell: &CellResult) -> (usize, Vec<String>, u64) {
    let words = cell.factors.values().filter_map(|level| level.as_str().map(str::to_owned));
    let size = cell.factors.get("size").and_then(serde_json::Value::as_u64).unwrap_or(0);
    (name::placement_order(cell), words.collect(), size)
}

/// One sentence on whether the run is to be trusted, with the disturbances that were counted.
pub fn trust(trust: &Trust) -> String {
    if trust.blocks == 0 {
        return "No block was measured by this program, so there is nothing to say about its \
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
        format!("Not to be trusted: {count}. Quieten the machine and run it again.{flags}")
    }
}

/// Cells without numbers grouped by reason, each with its cells' labels.
pub fn by_reason(cells: &[Unavailable]) -> BTreeMap<String, Vec<String>> {
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for cell in cells {
        let all = cell.factors.keys().cloned().collect();
        let label = format!("{} {}", cell.experiment, name::cell(&cell.factors, &all));
        let reason = match cell.state.as_str() {
            "unavailable" => cell.reason.clone(),
            "open" => format!("not reached ({})", cell.reason),
            state => format!("{state}: {}", cell.reason),
        };
        let labels = reasons.entry(reason).or_default();
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    reasons
}

/// The first few labels, and how many more there are.
pub fn shortlist(labels: &[String]) -> String {
    const SHOWN: usize = 3;
    let mut text = labels.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("; ");
    if labels.len() > SHOWN {
        text = format!("{text}; and {} more", labels.len() - SHOWN);
    }
    text
}
