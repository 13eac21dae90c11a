//! What the experiments tell the pages: titles, words for levels, figures and sentences.
//!
//! Installed once by the program. Without it ids and levels are printed as they are stored, and results
//! have the figures of their response.

use std::sync::OnceLock;

use plumb_analysis::document::{CellResult, RunDocument};

use crate::figure::Figure;
use crate::headline::HeadlineTile;
pub use crate::words::LevelWords;
use crate::words::{self, Words};

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

/// Everything that the pages are to know of experiments.
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
    words::install(|| {
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
