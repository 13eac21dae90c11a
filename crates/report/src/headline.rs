//! The answer first: title, a few large figures and a few sentences, all computed from results.

use plumb_analysis::document::{LadderRung, RunDocument};
use plumb_base::units::{Unit, format_size, significant};

use crate::figure::ladder::{RungKind, kind};
use crate::registry::{self, HeadlineTile, cell_tile};
use crate::{name, value, verdict};

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
pub fn tiles(document: &RunDocument) -> Vec<HeadlineTile> {
    if !document.ladder.is_empty() {
        return ladder_tiles(&document.ladder);
    }
    let mut tiles = registry::tiles(document);
    if tiles.is_empty() {
        tiles.extend(
            document
                .results
                .iter()
                .filter(|cell| cell.summary.median.is_some())
                .map(|cell| cell_tile(name::response_of(&cell.experiment, &cell.response), cell)),
        );
    }
    tiles.truncate(4);
    tiles
}

/// Up to half a dozen sentences.
pub fn sentences(document: &RunDocument) -> Vec<String> {
    let mut sentences = Vec::new();
    if document.ladder.is_empty() {
        for (page, data) in registry::pages(document) {
            sentences.extend((page.headline)(&data));
        }
        sentences.extend(registry::headline_sentences(document));
    } else {
        sentences.extend(ladder_sentences(&document.ladder));
    }
    // A ladder has too few cells for claims; the page still lists them.
    if !document.claims.is_empty() && document.ladder.is_empty() {
        sentences.push(verdict::tally(document));
    }
    sentences.extend(rank_sentence(document));
    if sentences.is_empty() {
        let (done, missing) = (document.results.len(), document.unavailable.len());
        sentences.push(format!("{done} results, {missing} cells without one."));
    }
    sentences
}

fn ladder_tiles(rungs: &[LadderRung]) -> Vec<HeadlineTile> {
    let call = rungs.iter().find(|rung| rung.calls == Some(1.0));
    let cheapest = |wanted: RungKind| {
        rungs.iter().filter(|rung| kind(rung) == wanted).min_by(|a, b| by_median(a, b))
    };
    let dearest = |wanted: RungKind| {
        rungs.iter().filter(|rung| kind(rung) == wanted).max_by(|a, b| by_median(a, b))
    };
    let mut picked: Vec<&LadderRung> = [
        call,
        cheapest(RungKind::Spinning),
        cheapest(RungKind::SameCpu),
        cheapest(RungKind::OtherCpu),
    ]
    .into_iter()
    .flatten()
    .collect();
    if picked.len() < 4 {
        picked.extend(
            [dearest(RungKind::SameCpu), dearest(RungKind::OtherCpu)].into_iter().flatten(),
        );
    }
    let mut tiles: Vec<HeadlineTile> = picked.into_iter().map(rung_tile).collect();
    tiles.dedup();
    tiles.truncate(4);
    tiles
}

fn rung_tile(rung: &LadderRung) -> HeadlineTile {
    let ns = Unit::Nanoseconds;
    let size = rung.size.and_then(|size| u64::try_from(size).ok());
    let size = size.map(format_size);
    let circumstances: Vec<String> =
        [Some(kind(rung).legend()), size].into_iter().flatten().collect();
    HeadlineTile {
        label: rung.label.clone(),
        value: value::estimate(ns, rung.median, rung.ci95),
        interval: rung.ci95.map_or_else(String::new, |ci| value::interval(ns, rung.median, ci)),
        conditions: circumstances.join(", "),
    }
}

fn ladder_sentences(rungs: &[LadderRung]) -> Vec<String> {
    let ns = Unit::Nanoseconds;
    let mut sentences = Vec::new();
    if let Some(call) = rungs.iter().find(|rung| rung.calls == Some(1.0)) {
        let cost = value::with_interval(ns, call.median, call.ci95);
        sentences.push(format!("Entering and leaving the kernel costs {cost} ({}).", call.label));
    }
    for (wanted, place) in [
        (RungKind::SameCpu, "on one CPU, each side woken in turn,"),
        (RungKind::OtherCpu, "between two CPUs, each side asleep until woken,"),
        (RungKind::Spinning, "between two CPUs, both spinning,"),
    ] {
        let mut group: Vec<&LadderRung> =
            rungs.iter().filter(|rung| kind(rung) == wanted).collect();
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

/// The ladder in one sentence: what a message on one CPU costs, what another CPU changes, what spinning saves.
pub fn ladder_in_short(rungs: &[LadderRung]) -> Option<String> {
    let ns = Unit::Nanoseconds;
    let is_local =
        |rung: &LadderRung| registry::page(&rung.experiment).is_none_or(|page| page.is_ladder_rung);
    let of = |wanted: RungKind| {
        let is_wanted = |rung: &&LadderRung| {
            kind(rung) == wanted
                && is_local(rung)
                && !value::is_too_noisy(ns, rung.median, rung.ci95)
        };
        let mut found: Vec<&LadderRung> = rungs.iter().filter(is_wanted).collect();
        found.sort_by(|a, b| by_median(a, b));
        found
    };
    let cost = |rung: &LadderRung| match rung.calls {
        Some(calls) => significant(calls, 2),
        None => value::plain(ns, rung.median),
    };
    let (same, other) = (of(RungKind::SameCpu), of(RungKind::OtherCpu));
    let mut parts = Vec::new();
    if let (Some(first), Some(last)) = (same.first(), same.last()) {
        let unit = if first.calls.is_some() { " system calls" } else { "" };
        let to = match same.len() {
            1 => String::new(),
            _ => format!(" to {} ({})", cost(last), last.label),
        };
        parts.push(format!(
            "on one CPU a message costs {}{unit} ({}){to}",
            cost(first),
            first.label
        ));
    }
    let pairs = other.iter().filter_map(|rung| {
        let is_pair = |one: &&&LadderRung| one.label == rung.label && one.size == rung.size;
        Some(rung.median / same.iter().find(is_pair)?.median)
    });
    let mut ratios: Vec<f64> = pairs.collect();
    ratios.sort_by(f64::total_cmp);
    if let Some(ratio) = ratios.get(ratios.len() / 2) {
        let (factor, word) =
            if *ratio >= 1.0 { (*ratio, "slower") } else { (1.0 / ratio, "faster") };
        parts.push(format!("another CPU makes it {}× {word}", significant(factor, 2)));
    }
    if let Some(spinning) = of(RungKind::Spinning).first() {
        parts.push(format!(
            "spinning there takes {}",
            value::estimate(ns, spinning.median, spinning.ci95)
        ));
    }
    (!parts.is_empty()).then(|| format!("In short: {}.", parts.join("; ")))
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

fn by_median(a: &LadderRung, b: &LadderRung) -> std::cmp::Ordering {
    a.median.total_cmp(&b.median)
}
