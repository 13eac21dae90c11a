//! A run in a terminal: its results as tables, what was not measured, whether to trust it, verdicts on published claims, and
//! rank tables beside the published order.
//!
//! Left out: the ladder (`super::ladder`).

use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::document::{
    CellResult, ExpectationVerdict, RankTable, RunDocument, RunTrust, UnavailableCell,
};
use plumb_base::units::Unit;

use super::{TerminalPage, TerminalStyle, TextRole};
use crate::figure::{against_size, spread, text};
use crate::section::{self, ResultSection};
use crate::table::TextTable;
use crate::{name, registry, value, verdict};

/// Results by experiment and response, then what was not measured, then the trust statement.
pub fn render(document: &RunDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage { out: preface(document, style), style };
    let mut told: BTreeSet<&str> = BTreeSet::new();
    for section in section::sections(&document.results) {
        if told.insert(section.experiment) {
            put_experiment(&mut page, document, section.experiment);
        }
        if is_breakdown(section.experiment) && !document.breakdowns.is_empty() {
            continue;
        }
        page.put(0, TextRole::Bold, &section.title());
        let shared = section.shared_factors();
        if !shared.is_empty() {
            page.put(0, TextRole::Dim, &format!("Common to all: {shared}."));
        }
        let frames = section.cells.iter().any(|cell| cell.factors.contains_key("frame"));
        if section.cells.len() > ROWS_MAX && frames {
            put_by_place(&mut page, &section);
        } else if section.cells.len() > ROWS_MAX && against_size::has_enough_sizes(&section.cells) {
            page.out += &against_size::overview(&section.cells).render_folded(style);
            page.put(0, TextRole::Dim, DETAILS_ELSEWHERE);
        } else {
            page.out += &results(&section).render(style);
            if let Some(note) = section.percentile_note() {
                page.put(0, TextRole::Dim, note);
            }
        }
        page.out.push('\n');
    }
    page.out += &unavailable(&document.unavailable, style);
    page.out += &trust(&document.trust, style);
    page.out
}

/// What changes how the rest is read, before anything else: that the run is not to be trusted, and the link that it was behind;
/// empty where there is neither.
pub fn preface(document: &RunDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    if !document.trust.trusted && document.trust.blocks > 0 {
        page.put(0, TextRole::Bad, &section::distrust(&document.trust));
    }
    if let Some(sentence) = section::network_conditions(document) {
        page.put(0, TextRole::Warn, &sentence);
        page.out.push('\n');
    }
    page.out
}

fn is_breakdown(experiment: &str) -> bool {
    registry::page(experiment).is_some_and(|page| page.is_breakdown)
}

/// Medians only, frame sizes across, a table a placement and wake mode.
fn put_by_place(page: &mut TerminalPage, section: &ResultSection<'_>) {
    let mut places: BTreeMap<(usize, String), Vec<&CellResult>> = BTreeMap::new();
    for cell in &section.cells {
        let key =
            (name::placement_order(cell), name::levels(&cell.factors, &["placement", "wake"]));
        places.entry(key).or_default().push(cell);
    }
    for ((_, place), cells) in &places {
        page.put(0, TextRole::Bold, &name::capitalize(place));
        page.out += &against_size::overview(cells).render_folded(page.style);
    }
    page.put(0, TextRole::Dim, DETAILS_ELSEWHERE);
}

/// What was found by all responses of an experiment together; breakdowns drawn, with their tables.
fn put_experiment(page: &mut TerminalPage, document: &RunDocument, experiment: &str) {
    let sentences = registry::sentences(document, experiment);
    if sentences.is_empty() && !registry::has_figures(experiment) {
        return;
    }
    page.put(0, TextRole::Bold, name::experiment(experiment));
    for sentence in sentences {
        page.put(2, TextRole::Plain, &sentence);
    }
    page.out.push('\n');
    if is_breakdown(experiment) {
        for figure in registry::figures(document, experiment) {
            page.out += &text::render(&figure, page.style);
            page.out.push('\n');
            page.out += &figure.table.render_folded(page.style);
            page.out.push('\n');
        }
    }
}

/// The distribution of one cell, drawn; empty when its quantiles were refused.
pub fn distribution(cell: &CellResult, style: TerminalStyle) -> String {
    let all = cell.factors.keys().cloned().collect();
    let title = format!("{}: {}", cell.experiment, name::cell(&cell.factors, &all));
    spread::quantiles(&title, &[cell])
        .map_or_else(String::new, |figure| text::render(&figure, style))
}

/// One sentence on rule 10, with the disturbances that were counted.
pub fn trust(trust: &RunTrust, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    let ink = if trust.trusted { TextRole::Good } else { TextRole::Bad };
    page.put(0, ink, &section::trust(trust));
    page.out
}

/// What was not measured, by reason.
pub fn unavailable(cells: &[UnavailableCell], style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    if cells.is_empty() {
        return page.out;
    }
    page.put(0, TextRole::Bold, "Not measured");
    for (reason, groups) in section::missing_by_reason(cells) {
        let groups: Vec<String> = groups.iter().map(section::MissingCells::label).collect();
        page.put(2, TextRole::Plain, &format!("{}: {reason}", groups.join("; ")));
    }
    page.out.push('\n');
    page.out
}

/// One row a cell; what a narrow terminal can do without is optional.
pub fn results(section: &ResultSection<'_>) -> TextTable {
    let varying = section.varying();
    let number =
        |cell: &CellResult, number: Option<f64>| value::optional(value::unit_of(cell), number);
    let ns = |cost| value::optional(Unit::Nanoseconds, cost);
    let mut table = TextTable::of_rows(
        section.cells.iter().copied(),
        &[
            ("cell", &|cell| name::cell(&cell.factors, &varying)),
            ("#median", &|cell| value::central(cell)),
            ("#±", &value::cell_precision),
            ("#q1?", &|cell| number(cell, cell.summary.q1)),
            ("#q3?", &|cell| number(cell, cell.summary.q3)),
            ("#p99??", &|cell| value::percentile(cell, cell.summary.p99, cell.summary.p99_ci95)),
            ("#CPU here??", &|cell| ns(cell.cpu.local)),
            ("#CPU peer??", &|cell| ns(cell.cpu.peer)),
            ("#launches???", &|cell| cell.summary.launches.to_string()),
            ("#n????", &|cell| cell.summary.n.to_string()),
            ("notes?????", &|cell| cell.flags.join("; ")),
        ],
    );
    table.drop_empty_columns();
    table
}

/// Rows beyond which sizes go across and only medians are shown.
const ROWS_MAX: usize = 24;

const DETAILS_ELSEWHERE: &str =
    "Intervals, quartiles and CPU time of each cell: plumb report, or --json.";

/// Claims, expectations and ranks in one line, with the command that tells them; empty without any.
pub fn claims_in_short(document: &RunDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    let mut parts = Vec::new();
    if !document.claims.is_empty() {
        parts.push(verdict::claims_in_short(&document.claims));
    }
    match document.expectations.len() {
        0 => {}
        1 => parts.push("1 expectation".to_owned()),
        count => parts.push(format!("{count} expectations")),
    }
    if !document.ranks.is_empty() {
        parts.push("ranks".to_owned());
    }
    if !parts.is_empty() {
        let id = &document.run.id;
        let text = format!("{}: plumb show {id} --claims", name::capitalize(&parts.join(", ")));
        page.put(0, TextRole::Dim, &text);
    }
    page.out
}

/// One paragraph a claim: verdict, claim, effect, historical figure; then all of them counted.
pub fn claims(document: &RunDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    for claim in &document.claims {
        let verdict = style.paint(verdict_role(&claim.verdict), &claim.verdict.to_uppercase());
        page.out += &format!("{verdict}\n");
        let published = format!("Published: {}", verdict::published(claim));
        for text in [&claim.claim, &claim.effect, &published, &verdict::needs(claim)] {
            page.put(2, TextRole::Plain, text);
        }
    }
    if !document.claims.is_empty() {
        page.put(0, TextRole::Bold, &verdict::tally(document));
    }
    for open in verdict::undecided_statements(document) {
        page.put(0, TextRole::Plain, &open);
    }
    page.out
}

/// One paragraph an expectation: verdict, statement, effect, and what it rests on.
pub fn expectations(expectations: &[ExpectationVerdict], style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    if !expectations.is_empty() {
        page.put(0, TextRole::Bold, "Our expectations");
    }
    for expectation in expectations {
        let verdict =
            style.paint(verdict_role(&expectation.verdict), &expectation.verdict.to_uppercase());
        page.out += &format!("{verdict}\n");
        let basis = format!("Basis: {}", expectation.basis);
        for text in [&expectation.statement, &expectation.effect, &basis] {
            page.put(2, TextRole::Plain, text);
        }
    }
    page.out
}

/// Every rank table of a run: the published relations, then ranks at every size together.
pub fn rank_tables(tables: &[RankTable], style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    for ranks in tables.iter().filter(|ranks| ranks.published.is_some()) {
        page.put(0, TextRole::Bold, &name::capitalize(&verdict::rank_title(ranks)));
        put_relations(&mut page, ranks);
    }
    for group in tables.chunk_by(|a, b| verdict::matrix_title(a) == verdict::matrix_title(b)) {
        let title = format!("Ranks: {}", verdict::matrix_title(&group[0]));
        page.put(0, TextRole::Bold, &title);
        let matrix = verdict::rank_matrix(&group.iter().collect::<Vec<_>>());
        page.out += &matrix.render_folded(style);
    }
    page.out
}

/// One table: mechanisms by rank, and whether each published relation holds.
pub fn ranks(ranks: &RankTable, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    page.put(0, TextRole::Bold, &verdict::rank_title(ranks));
    page.out += &verdict::ranks(ranks).render(style);
    put_relations(&mut page, ranks);
    page.out
}

fn put_relations(page: &mut TerminalPage, ranks: &RankTable) {
    for (verdict, relation) in verdict::relations(ranks) {
        page.put(2, verdict_role(&verdict), &format!("{verdict}: {relation}"));
    }
}

pub(crate) fn verdict_role(verdict: &str) -> TextRole {
    match verdict {
        "holds" => TextRole::Good,
        "does not hold" => TextRole::Bad,
        _ => TextRole::Warn,
    }
}
