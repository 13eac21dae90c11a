//! What the experiments tell the pages: titles, words for levels, figures and sentences.
//!
//! Installed once by the program. Without it ids and levels are printed as they are stored, and results
//! have the figures of their response.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use plumb_analysis::document::{CellResult, RunDocument};
use serde_json::Value;

use crate::figure::{Figure, breakdown};
pub use crate::name::LevelWords;
use crate::name::{self, Words};
use crate::table::TextTable;
use crate::value;

/// The results of one experiment.
#[derive(Clone, Debug)]
pub struct PageData<'a> {
    /// The whole document.
    pub document: &'a RunDocument,
    /// Id of the experiment.
    pub id: &'a str,
    /// Its cells.
    pub cells: Vec<&'a CellResult>,
}

/// One large figure: what, how much, under which circumstances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadlineTile {
    /// What was measured.
    pub label: String,
    /// The median.
    pub value: String,
    /// Its interval.
    pub interval: String,
    /// Placement, size.
    pub conditions: String,
}

/// How the results of an experiment are shown.
#[derive(Clone, Copy, Debug)]
pub struct ExperimentPage {
    /// Heading.
    pub title: &'static str,
    /// Its figures over all responses; none where each response has figures of its own.
    pub figures: Option<fn(&PageData<'_>) -> Vec<Figure>>,
    /// What was found, in a few sentences.
    pub sentences: fn(&PageData<'_>) -> Vec<String>,
    /// Sentences that only a whole page begins with.
    pub headline: fn(&PageData<'_>) -> Vec<String>,
    /// The numbers that are asked for first.
    pub tiles: fn(&PageData<'_>) -> Vec<HeadlineTile>,
    /// Where its tiles stand among those of other experiments.
    pub tile_rank: u8,
    /// Words for its responses that differ from the usual ones.
    pub responses: &'static [(&'static str, &'static str)],
    /// Whether its cells are round trips in parts.
    pub is_breakdown: bool,
    /// Whether its cells are drawn by the ladder.
    pub is_ladder_rung: bool,
}

impl ExperimentPage {
    /// Figures by response, and no sentence.
    pub const PLAIN: Self = Self {
        title: "",
        figures: None,
        sentences: |_| Vec::new(),
        headline: |_| Vec::new(),
        tiles: |_| Vec::new(),
        tile_rank: 0,
        responses: &[],
        is_breakdown: false,
        is_ladder_rung: false,
    };
}

/// Everything that the pages are to know about experiments.
#[derive(Clone, Debug, Default)]
pub struct PageRegistry {
    /// Pages by experiment, in order.
    pub pages: Vec<(&'static str, &'static ExperimentPage)>,
    /// Headings of studies.
    pub studies: Vec<(&'static str, &'static str)>,
    /// Words for levels, by factor.
    pub levels: Vec<(&'static str, LevelWords)>,
}

static REGISTRY: OnceLock<PageRegistry> = OnceLock::new();

/// Makes the experiments known; only the first call has an effect.
pub fn install(registry: impl FnOnce() -> PageRegistry) {
    let registry = REGISTRY.get_or_init(registry);
    name::install(|| {
        let titles = registry.pages.iter().map(|(id, page)| (*id, page.title));
        Words {
            titles: titles.chain(registry.studies.iter().copied()).collect(),
            responses: registry.pages.iter().map(|(id, page)| (*id, page.responses)).collect(),
            levels: registry.levels.clone(),
        }
    });
}

fn installed() -> &'static PageRegistry {
    static NONE: PageRegistry =
        PageRegistry { pages: Vec::new(), studies: Vec::new(), levels: Vec::new() };
    REGISTRY.get().unwrap_or(&NONE)
}

/// The page of an experiment.
pub fn page(id: &str) -> Option<&'static ExperimentPage> {
    installed().pages.iter().find(|(known, _)| *known == id).map(|(_, page)| *page)
}

/// The experiments of a document that have pages, with their cells.
pub(crate) fn pages(document: &RunDocument) -> Vec<(&'static ExperimentPage, PageData<'_>)> {
    let pages = installed().pages.iter();
    let data = pages.map(|(id, page)| (*page, data(document, id)));
    data.filter(|(_, data)| {
        !data.cells.is_empty()
            || data.document.ratios.iter().any(|ratio| ratio.experiment == data.id)
            || data.document.breakdowns.iter().any(|entry| entry.experiment == data.id)
    })
    .collect()
}

/// The results of an experiment.
pub(crate) fn data<'a>(document: &'a RunDocument, id: &'a str) -> PageData<'a> {
    let cells = document.results.iter().filter(|cell| cell.experiment == id).collect();
    PageData { document, id, cells }
}

/// The median of a cell as a large figure.
pub fn cell_tile(what: &str, cell: &CellResult) -> HeadlineTile {
    let unit = value::unit_of(cell);
    let median = cell.summary.median.unwrap_or(0.0);
    let all = cell.factors.keys().filter(|name| *name != "congestion").cloned().collect();
    HeadlineTile {
        label: what.to_owned(),
        value: value::estimate(unit, median, cell.summary.ci95),
        interval: cell
            .summary
            .ci95
            .map_or_else(String::new, |ci| value::interval(unit, median, ci)),
        conditions: name::cell(&cell.factors, &all),
    }
}

/// Whether an experiment has figures for all its responses together.
pub fn has_figures(experiment: &str) -> bool {
    page(experiment).is_some_and(|page| page.figures.is_some())
}

/// The figures of an experiment, over all its responses.
pub fn figures(document: &RunDocument, experiment: &str) -> Vec<Figure> {
    let own = page(experiment).and_then(|page| page.figures);
    let mut figures = own.map_or_else(Vec::new, |own| own(&data(document, experiment)));
    let parts: Vec<_> =
        document.breakdowns.iter().filter(|entry| entry.experiment == experiment).collect();
    figures.extend(breakdown::figures(&parts));
    figures.retain(|figure| !figure.is_empty());
    figures
}

/// What was found, in a few sentences computed from the results.
pub fn sentences(document: &RunDocument, experiment: &str) -> Vec<String> {
    let data = data(document, experiment);
    page(experiment).map_or_else(Vec::new, |page| (page.sentences)(&data))
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
    let mut pages = pages(document);
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
            value::ratio(ratio),
            if shared.is_empty() { String::new() } else { name::cell(&ratio.of, &shared) },
        ]);
    }
    table
}
