//! The answer first: title, a few large figures and a few sentences, all computed from results.
//!
//! Left out: anything that needs more than one look at the summaries; claims and ranks decide for
//! themselves elsewhere.

use plumb_analysis::document::{CellResult, RunDocument};
use plumb_analysis::ladder::Rung;
use plumb_base::units::{Unit, format_bytes};
use serde_json::Value;

use crate::figure::ladder::{Kind, kind};
use crate::{name, study, value, verdict};

/// One large figure: what, how much, under which circumstances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// What was measured.
    pub what: String,
    /// The median.
    pub value: String,
    /// Its interval.
    pub interval: String,
    /// Placement, size.
    pub circumstances: String,
}

/// What the page is about.
pub fn title(document: &RunDocument) -> String {
    if !document.ladder.is_empty() {
        return "What it costs one program to talk to another".to_owned();
    }
    let mut experiments: Vec<&str> =
        document.results.iter().map(|result| result.experiment.as_str()).collect();
    experiments.dedup();
    match experiments.as_slice() {
        [one] => name::experiment(one).to_owned(),
        _ => name::experiment(&document.run.title).to_owned(),
    }
}

/// Up to four large figures.
pub fn tiles(document: &RunDocument) -> Vec<Tile> {
    if !document.ladder.is_empty() {
        return ladder_tiles(&document.ladder);
    }
    // What is nearest comes first, in figures as in sentences.
    let mut tiles = Vec::new();
    for placement in placements(&document.results) {
        let cells = latencies(&document.results, &placement);
        tiles.extend(cells.first().map(|cell| cell_tile("lowest latency", cell)));
    }
    tiles.extend(fastest(&document.results).map(|cell| cell_tile("highest throughput", cell)));
    tiles.extend(study::tiles(document));
    if tiles.is_empty() {
        tiles.extend(
            document
                .results
                .iter()
                .filter(|cell| cell.summary.median.is_some())
                .map(|cell| cell_tile(name::response(&cell.response), cell)),
        );
    }
    tiles.truncate(4);
    tiles
}

/// Up to half a dozen sentences.
pub fn sentences(document: &RunDocument) -> Vec<String> {
    let mut sentences = Vec::new();
    if document.ladder.is_empty() {
        for placement in placements(&document.results) {
            sentences.extend(latency_sentence(&latencies(&document.results, &placement)));
        }
        sentences.extend(throughput_sentence(&document.results));
        sentences.extend(study::answers(document));
    } else {
        sentences.extend(ladder_sentences(&document.ladder));
    }
    // A ladder has too few cells for claims; the page still lists them.
    if !document.claims.is_empty() && document.ladder.is_empty() {
        sentences.push(verdict::tally(&document.claims));
    }
    sentences.extend(rank_sentence(document));
    if sentences.is_empty() {
        let (done, missing) = (document.results.len(), document.unavailable.len());
        sentences.push(format!("{done} results, {missing} cells without one."));
    }
    sentences
}

fn ladder_tiles(rungs: &[Rung]) -> Vec<Tile> {
    let call = rungs.iter().find(|rung| rung.calls == Some(1.0));
    let cheapest = |wanted: Kind| {
        rungs.iter().filter(|rung| kind(rung) == wanted).min_by(|a, b| by_median(a, b))
    };
    let dearest = |wanted: Kind| {
        rungs.iter().filter(|rung| kind(rung) == wanted).max_by(|a, b| by_median(a, b))
    };
    let mut picked: Vec<&Rung> =
        [call, cheapest(Kind::Spinning), cheapest(Kind::SameCpu), cheapest(Kind::OtherCpu)]
            .into_iter()
            .flatten()
            .collect();
    if picked.len() < 4 {
        picked.extend([dearest(Kind::SameCpu), dearest(Kind::OtherCpu)].into_iter().flatten());
    }
    let mut tiles: Vec<Tile> = picked.into_iter().map(rung_tile).collect();
    tiles.dedup();
    tiles.truncate(4);
    tiles
}

fn rung_tile(rung: &Rung) -> Tile {
    let ns = Unit::Nanoseconds;
    let size = rung.size.and_then(|size| u64::try_from(size).ok());
    let size = size.map(|size| format!("{} B", format_bytes(size)));
    let circumstances: Vec<String> =
        [Some(kind(rung).words()), size].into_iter().flatten().collect();
    Tile {
        what: rung.label.clone(),
        value: value::estimate(ns, rung.median, rung.ci95),
        interval: rung.ci95.map_or_else(String::new, |ci| value::interval(ns, rung.median, ci)),
        circumstances: circumstances.join(", "),
    }
}

fn cell_tile(what: &str, cell: &CellResult) -> Tile {
    let unit = value::unit(&cell.unit);
    let median = cell.summary.median.unwrap_or(0.0);
    let all = cell.factors.keys().filter(|name| *name != "congestion").cloned().collect();
    Tile {
        what: what.to_owned(),
        value: value::estimate(unit, median, cell.summary.ci95),
        interval: cell
            .summary
            .ci95
            .map_or_else(String::new, |ci| value::interval(unit, median, ci)),
        circumstances: name::cell(&cell.factors, &all),
    }
}

fn ladder_sentences(rungs: &[Rung]) -> Vec<String> {
    let ns = Unit::Nanoseconds;
    let mut sentences = Vec::new();
    if let Some(call) = rungs.iter().find(|rung| rung.calls == Some(1.0)) {
        let cost = value::with_interval(ns, call.median, call.ci95);
        sentences.push(format!("Entering and leaving the kernel costs {cost} ({}).", call.label));
    }
    for (wanted, place) in [
        (Kind::SameCpu, "on one CPU, each side woken in turn,"),
        (Kind::OtherCpu, "between two CPUs, each side asleep until woken,"),
        (Kind::Spinning, "between two CPUs, both spinning,"),
    ] {
        let mut group: Vec<&Rung> = rungs.iter().filter(|rung| kind(rung) == wanted).collect();
        group.sort_by(|a, b| by_median(a, b));
        match group.as_slice() {
            [] => {}
            [one] => sentences.push(format!(
                "A message {place} takes {} through {}.",
                value::with_interval(ns, one.median, one.ci95),
                one.label
            )),
            [first, .., last] => sentences.push(format!(
                "A message {place} takes from {} through {} to {} through {}, {} as long.",
                value::with_interval(ns, first.median, first.ci95),
                first.label,
                value::with_interval(ns, last.median, last.ci95),
                last.label,
                value::times(last.median / first.median),
            )),
        }
    }
    sentences
}

fn latency_sentence(cells: &[&CellResult]) -> Option<String> {
    let (first, last) = (cells.first()?, cells.last()?);
    let told = |cell: &CellResult| {
        let median = cell.summary.median.unwrap_or(0.0);
        let unit = value::unit(&cell.unit);
        let cost = value::with_interval(unit, median, cell.summary.ci95);
        format!("{cost} through {}", word(cell, "mechanism"))
    };
    let size = size(first).map_or_else(String::new, |size| format!(" of {} B", format_bytes(size)));
    let place = word(first, "placement");
    let place = name::placement(&place);
    let ratio = last.summary.median? / first.summary.median?;
    let mut text = format!("A message{size} ({place}) takes {}", told(first));
    if cells.len() > 1 {
        text = format!("{text} at best, {} at worst, {} as long", told(last), value::times(ratio));
    }
    Some(format!("{text}."))
}

fn throughput_sentence(results: &[CellResult]) -> Option<String> {
    let cell = fastest(results)?;
    let median = cell.summary.median?;
    Some(format!(
        "Highest throughput: {} through {} in messages of {} B ({}).",
        value::with_interval(value::unit(&cell.unit), median, cell.summary.ci95),
        word(cell, "mechanism"),
        size(cell).map_or_else(|| "unknown size".to_owned(), format_bytes),
        name::placement(&word(cell, "placement")),
    ))
}

/// How many of the published relations hold, over every rank table that has any.
fn rank_sentence(document: &RunDocument) -> Option<String> {
    let verdicts: Vec<&str> = document
        .ranks
        .iter()
        .flat_map(|ranks| ranks.published.iter().flat_map(|published| &published.relations))
        .map(|relation| relation.verdict.as_str())
        .collect();
    let count = |wanted: &str| verdicts.iter().filter(|verdict| **verdict == wanted).count();
    (!verdicts.is_empty()).then(|| {
        format!(
            "Of {} published rank relations, re-tested at each placement, {} hold, {} do not, {} \
             are not decided.",
            verdicts.len(),
            count("holds"),
            count("does not hold"),
            count("not decided"),
        )
    })
}

/// The latencies at one placement and at the size nearest to 64 bytes, lowest first.
fn latencies<'a>(results: &'a [CellResult], placement: &str) -> Vec<&'a CellResult> {
    let candidates = || {
        results.iter().filter(|cell| {
            cell.response == "latency"
                && cell.experiment == "latency.local"
                && cell.summary.median.is_some()
                && word(cell, "placement") == placement
        })
    };
    let reference = candidates().filter_map(size).min_by_key(|size| size.abs_diff(REFERENCE_SIZE));
    let mut cells: Vec<&CellResult> = candidates().filter(|cell| size(cell) == reference).collect();
    cells.sort_by(|a, b| {
        let median = |cell: &CellResult| cell.summary.median.unwrap_or(f64::INFINITY);
        median(a).total_cmp(&median(b))
    });
    cells
}

fn fastest(results: &[CellResult]) -> Option<&CellResult> {
    results
        .iter()
        .filter(|cell| cell.experiment == "throughput.local" && cell.response == "throughput")
        .filter(|cell| cell.summary.median.is_some())
        .max_by(|a, b| {
            let median = |cell: &CellResult| cell.summary.median.unwrap_or(0.0);
            median(a).total_cmp(&median(b))
        })
}

fn placements(results: &[CellResult]) -> Vec<String> {
    let mut placements: Vec<(usize, String)> = results
        .iter()
        .filter(|cell| cell.experiment == "latency.local")
        .map(|cell| (name::placement_order(cell), word(cell, "placement")))
        .collect();
    placements.sort();
    placements.dedup();
    placements.into_iter().map(|(_, placement)| placement).collect()
}

fn by_median(a: &Rung, b: &Rung) -> std::cmp::Ordering {
    a.median.total_cmp(&b.median)
}

fn size(cell: &CellResult) -> Option<u64> {
    cell.factors.get("size").and_then(Value::as_u64)
}

fn word(cell: &CellResult, factor: &str) -> String {
    cell.factors.get(factor).and_then(Value::as_str).unwrap_or("").to_owned()
}

/// The message size, in bytes, at which mechanisms are compared in one sentence.
const REFERENCE_SIZE: u64 = 64;
