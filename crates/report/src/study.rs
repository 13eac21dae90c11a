//! What an experiment found, over all its responses: its figures and sentences.

use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::document::RunDocument;
use plumb_analysis::ratio::MeasuredRatio;
use plumb_base::units::significant;
use serde_json::Value;

use crate::figure::{Figure, breakdown};
use crate::headline::HeadlineTile;
use crate::table::TextTable;
use crate::{name, registry, value};

/// Whether an experiment has figures for all its responses together.
pub fn has_figures(experiment: &str) -> bool {
    registry::page(experiment).is_some_and(|page| page.figures.is_some())
}

/// The figures of an experiment, over all its responses.
pub fn figures(document: &RunDocument, experiment: &str) -> Vec<Figure> {
    let own = registry::page(experiment).and_then(|page| page.figures);
    let mut figures = own.map_or_else(Vec::new, |own| own(&registry::data(document, experiment)));
    let parts: Vec<_> =
        document.breakdowns.iter().filter(|entry| entry.experiment == experiment).collect();
    figures.extend(breakdown::figures(&parts));
    figures.retain(|figure| !figure.is_empty());
    figures
}

/// What was found, in a few sentences computed from the results.
pub fn sentences(document: &RunDocument, experiment: &str) -> Vec<String> {
    let data = registry::data(document, experiment);
    registry::page(experiment).map_or_else(Vec::new, |page| (page.sentences)(&data))
}

/// The answers of a whole study: the first sentence of each experiment, the first two of a single one.
pub fn headline_sentences(document: &RunDocument) -> Vec<String> {
    let mut experiments: Vec<&str> =
        document.results.iter().map(|cell| cell.experiment.as_str()).collect();
    experiments.dedup();
    experiments.retain(|experiment| !sentences(document, experiment).is_empty());
    if let [one] = experiments.as_slice() {
        return sentences(document, one).into_iter().take(2).collect();
    }
    let answer = |experiment: &&str| sentences(document, experiment).into_iter().next();
    experiments.iter().filter_map(answer).take(ANSWERS_MAX).collect()
}

/// The numbers that are asked for first, at most four; empty where none of them was measured.
pub fn tiles(document: &RunDocument) -> Vec<HeadlineTile> {
    let mut pages = registry::pages(document);
    pages.sort_by_key(|(page, _)| page.tile_rank);
    let mut tiles: Vec<HeadlineTile> =
        pages.iter().flat_map(|(page, data)| (page.tiles)(data)).collect();
    tiles.truncate(4);
    tiles
}

/// Sentences of a whole study that its page begins with.
const ANSWERS_MAX: usize = 5;

/// Every ratio of an experiment, with what both sides have in common; empty where there is none.
pub fn ratios(document: &RunDocument, experiment: &str) -> TextTable {
    let mut table = TextTable::with_heads(&["cost of", "as a multiple of", "#ratio [95 %]", "at"]);
    for ratio in document.ratios.iter().filter(|ratio| ratio.experiment == experiment) {
        let differs = |factors: &BTreeMap<String, Value>, other: &BTreeMap<String, Value>| {
            let names = factors.iter().filter(|(name, level)| other.get(*name) != Some(*level));
            let mut names: BTreeSet<String> = names.map(|(name, _)| name.clone()).collect();
            if factors.contains_key("device") && names.contains("stack") {
                names.insert("device".to_owned());
            }
            names
        };
        let (above, below) = (differs(&ratio.of, &ratio.to), differs(&ratio.to, &ratio.of));
        let shared: BTreeSet<String> =
            ratio.of.keys().filter(|name| !above.contains(*name)).cloned().collect();
        table.push([
            name::cell(&ratio.of, &above),
            name::cell(&ratio.to, &below),
            times(ratio),
            if shared.is_empty() { String::new() } else { name::cell(&ratio.of, &shared) },
        ]);
    }
    table
}

/// `0.72× [0.70, 0.74]`.
fn times(ratio: &MeasuredRatio) -> String {
    format!("{} {}", value::times(ratio.ratio), bounds(ratio))
}

fn bounds(ratio: &MeasuredRatio) -> String {
    let [low, high] = ratio.ci95.map(|bound| significant(bound, 3));
    format!("[{low}, {high}]")
}
