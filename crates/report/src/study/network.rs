//! What experiments over networks found, in sentences: latency and throughput by link, routers, windows,
//! long packets.
//!
//! Left out: whether a published claim holds, which the claims say for themselves.

use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::document::{CellResult, RunDocument};
use plumb_base::units::{Unit, format_bytes, significant};
use serde_json::Value;

use crate::figure::against_routers::{self, Path};
use crate::figure::against_window::Filled;
use crate::figure::mtu;
use crate::headline::Tile;
use crate::{name, value};

/// The sentences of an experiment over a network; none for any other.
pub(super) fn sentences(document: &RunDocument, experiment: &str) -> Vec<String> {
    let cells: Vec<&CellResult> =
        document.results.iter().filter(|cell| cell.experiment == experiment).collect();
    match experiment {
        "latency.remote" => by_link(&cells, "latency", "A message"),
        "throughput.remote" => {
            let mut found = by_link(&cells, "throughput", "A long transfer");
            found.extend(by_link(&cells, "throughput.acked", "Acknowledged one by one, a message"));
            found
        }
        "path.length" => routers(&cells),
        "window.bdp" => windows(&cells),
        "mtu.path" => [
            delivered(&cells, "delivered", "Packets of"),
            pieces(&cells),
            delivered(&cells, mtu::CONNECTED, "TCP connections that carry as much as a packet of"),
            urgent(&cells),
        ]
        .concat(),
        _ => Vec::new(),
    }
}

/// The numbers of an experiment over a network that are asked for first.
pub(super) fn tiles(document: &RunDocument) -> Vec<Tile> {
    let of = |experiment: &str, response: &str| -> Vec<&CellResult> {
        let chosen =
            |cell: &&CellResult| cell.experiment == experiment && cell.response == response;
        document.results.iter().filter(chosen).collect()
    };
    let mut tiles = Vec::new();
    for path in against_routers::paths(&of("path.length", "latency"), &["mechanism", "size"]) {
        let Some(line) = path.line else { continue };
        let interval = [line.slope_interval.lo, line.slope_interval.hi];
        tiles.push(Tile {
            what: "each router adds".to_owned(),
            value: value::estimate(Unit::Nanoseconds, line.slope, Some(interval)),
            interval: value::interval(Unit::Nanoseconds, line.slope, interval),
            circumstances: path.label,
        });
    }
    let mut filled: Vec<Filled<'_>> =
        of("window.bdp", "throughput").into_iter().filter_map(Filled::of).collect();
    filled.sort_by(|a, b| a.of_link().total_cmp(&b.of_link()));
    let ends = [("emptiest link", filled.first()), ("fullest link", filled.last())];
    tiles.extend(ends.into_iter().filter_map(|(what, filled)| {
        let filled = filled?;
        let ends = filled.cell.summary.ci95?.map(|end| end / filled.pipe.capacity);
        Some(Tile {
            what: what.to_owned(),
            value: value::estimate(Unit::Share, filled.of_link(), Some(ends)),
            interval: value::interval(Unit::Share, filled.of_link(), ends),
            circumstances: pipe_words(filled.cell),
        })
    }));
    let mut urgent = of("mtu.path", "urgent");
    urgent.sort_by_key(|cell| (number(cell, "ahead"), number(cell, "packet")));
    tiles.extend(urgent.iter().rev().take(2).filter_map(|cell| {
        let median = cell.summary.median?;
        let interval = cell.summary.ci95?;
        let wanted = ["packet", "ahead", "rate", "placement"].map(str::to_owned).into();
        Some(Tile {
            what: "urgent packet, there and back".to_owned(),
            value: value::estimate(Unit::Nanoseconds, median, Some(interval)),
            interval: value::interval(Unit::Nanoseconds, median, interval),
            circumstances: name::cell(&cell.factors, &wanted),
        })
    }));
    tiles.truncate(4);
    tiles
}

/// A link and a window in words.
fn pipe_words(cell: &CellResult) -> String {
    let factors = BTreeSet::from(["window", "rtt", "rate", "congestion"].map(str::to_owned));
    name::cell(&cell.factors, &factors)
}

fn text<'a>(cell: &'a CellResult, factor: &str) -> &'a str {
    cell.factors.get(factor).and_then(Value::as_str).unwrap_or("")
}

fn number(cell: &CellResult, factor: &str) -> Option<u64> {
    cell.factors.get(factor).and_then(Value::as_u64)
}

fn told(cell: &CellResult) -> String {
    let median = cell.summary.median.unwrap_or(0.0);
    value::with_interval(value::unit(&cell.unit), median, cell.summary.ci95)
}

/// Over each link the better mechanism, at the least size for times and at the largest for rates; a
/// sentence a placement.
fn by_link(cells: &[&CellResult], response: &str, what: &str) -> Vec<String> {
    let cells =
        || cells.iter().filter(|cell| cell.response == response && cell.summary.median.is_some());
    let sizes = cells().filter_map(|cell| number(cell, "size"));
    let is_time = response == "latency";
    let Some(size) = (if is_time { sizes.min() } else { sizes.max() }) else { return Vec::new() };
    let mut places: BTreeMap<(usize, &str), BTreeMap<&str, &CellResult>> = BTreeMap::new();
    for cell in cells().filter(|cell| number(cell, "size") == Some(size)) {
        let place = (name::placement_order(cell), text(cell, "placement"));
        let best = places.entry(place).or_default().entry(text(cell, "link")).or_insert(cell);
        let better = if is_time {
            cell.summary.median < best.summary.median
        } else {
            cell.summary.median > best.summary.median
        };
        if better {
            *best = cell;
        }
    }
    let sentence = |((_, place), links): ((usize, &str), BTreeMap<&str, &CellResult>)| {
        let mut links: Vec<(&str, &CellResult)> = links.into_iter().collect();
        let median = |cell: &CellResult| cell.summary.median.unwrap_or(0.0);
        links.sort_by(|(_, a), (_, b)| {
            let order = median(a).total_cmp(&median(b));
            if is_time { order } else { order.reverse() }
        });
        let links: Vec<String> = links
            .iter()
            .map(|(link, cell)| {
                format!("{} {} ({})", name::link(link), told(cell), text(cell, "mechanism"))
            })
            .collect();
        format!(
            "{what} of {} B ({}): {}.",
            format_bytes(size),
            name::placement(place),
            links.join("; ")
        )
    };
    places.into_iter().map(sentence).collect()
}

/// What each router adds, and what a long transfer keeps.
fn routers(cells: &[&CellResult]) -> Vec<String> {
    let of = |response: &str| -> Vec<&CellResult> {
        cells.iter().filter(|cell| cell.response == response).copied().collect()
    };
    let mut slopes = Vec::new();
    for path in against_routers::paths(&of("latency"), &["mechanism", "size"]) {
        let Some(line) = path.line else { continue };
        let interval = [line.slope_interval.lo, line.slope_interval.hi];
        let slope = value::with_interval(Unit::Nanoseconds, line.slope, Some(interval));
        slopes.push(format!("{slope} ({})", path.label));
    }
    let mut sentences = Vec::new();
    if !slopes.is_empty() {
        sentences.push(format!("Each router adds to half a round trip: {}.", slopes.join("; ")));
    }
    let kept = |path: &Path<'_>| {
        let ((least, first), (most, last)) = (path.cells.first()?, path.cells.last()?);
        let ratio = last.summary.median? / first.summary.median?;
        (most > least).then(|| {
            let times = value::times(ratio);
            format!("{times} over {most:.0} routers as over {least:.0} ({})", path.label)
        })
    };
    let kept: Vec<String> =
        against_routers::paths(&of("throughput"), &["mechanism"]).iter().filter_map(kept).collect();
    if !kept.is_empty() {
        sentences.push(format!("A long transfer carries {}.", kept.join("; ")));
    }
    sentences
}

/// How near throughput comes to one window a round trip, and to the link, by congestion control.
fn windows(cells: &[&CellResult]) -> Vec<String> {
    let mut controls: BTreeMap<&str, Vec<Filled<'_>>> = BTreeMap::new();
    for filled in cells.iter().filter_map(|cell| Filled::of(cell)) {
        controls.entry(text(filled.cell, "congestion")).or_default().push(filled);
    }
    let mut sentences = Vec::new();
    for (control, filled) in controls {
        let bounded = filled.iter().filter(|cell| cell.is_bounded());
        let bounded: Vec<f64> = bounded.filter_map(Filled::of_window).collect();
        let free = filled.iter().filter(|cell| !cell.is_bounded());
        let free: Vec<f64> = free.map(Filled::of_link).collect();
        let mut parts = Vec::new();
        if let Some(range) = range(&bounded) {
            parts.push(format!(
                "where the window is smaller than the product of rate and round trip, throughput is \
                 {range} of one window a round trip"
            ));
        }
        if let Some(range) = range(&free) {
            parts.push(format!("where it is not, {range} of what the link can carry"));
        }
        if !parts.is_empty() {
            sentences.push(format!("{}: {}.", name::capital(control), parts.join("; ")));
        }
    }
    let emptiest = cells
        .iter()
        .filter_map(|cell| Filled::of(cell))
        .min_by(|a, b| a.of_link().total_cmp(&b.of_link()));
    sentences.extend(emptiest.map(|filled| {
        format!(
            "Emptiest: {} of the link, at {}.",
            value::estimate(Unit::Share, filled.of_link(), None),
            pipe_words(filled.cell)
        )
    }));
    sentences
}

/// `97% to 101% (3 cells)`.
fn range(shares: &[f64]) -> Option<String> {
    let low = shares.iter().copied().reduce(f64::min)?;
    let high = shares.iter().copied().reduce(f64::max)?;
    let percent = |share: f64| format!("{}%", significant(share * 100.0, 3));
    Some(match (shares.len(), percent(low) == percent(high)) {
        (1, _) => percent(low),
        (cells, true) => format!("{} ({cells} cells)", percent(low)),
        (cells, false) => format!("{} to {} ({cells} cells)", percent(low), percent(high)),
    })
}

/// Shares that arrived, each with its cell.
type Shares<'a> = Vec<(f64, &'a CellResult)>;

/// In how many packets the longest datagrams arrive, a path each.
fn pieces(cells: &[&CellResult]) -> Vec<String> {
    let cells =
        || cells.iter().filter(|cell| cell.response == "pieces" && cell.summary.median.is_some());
    let longest = cells().filter_map(|cell| number(cell, "packet")).max();
    let mut paths: BTreeMap<Option<usize>, Vec<&CellResult>> = BTreeMap::new();
    for cell in cells().filter(|cell| number(cell, "packet") == longest) {
        let place = mtu::PATHS.iter().position(|path| *path == text(cell, "path"));
        paths.entry(place).or_default().push(cell);
    }
    let told: Vec<String> = paths
        .into_values()
        .map(|found| {
            let path = name::cell(&found[0].factors, &["path"].map(str::to_owned).into());
            let counts = found.iter().filter_map(|cell| cell.summary.median);
            let words: BTreeSet<String> = counts.map(mtu::whole).collect();
            format!("{} over {path}", words.into_iter().collect::<Vec<_>>().join(" or "))
        })
        .collect();
    match (longest, told.is_empty()) {
        (Some(longest), false) => {
            vec![format!("Packets in which one of {longest} B arrives: {}.", told.join("; "))]
        }
        _ => Vec::new(),
    }
}

/// What becomes of the longest packets on each kind of path.
fn delivered(cells: &[&CellResult], response: &str, what: &str) -> Vec<String> {
    let cells = || cells.iter().filter(|cell| cell.response == response);
    let Some(longest) = cells().filter_map(|cell| number(cell, "packet")).max() else {
        return Vec::new();
    };
    let mut paths: BTreeMap<(Option<usize>, String), Shares<'_>> = BTreeMap::new();
    for cell in cells().filter(|cell| number(cell, "packet") == Some(longest)) {
        let Some(share) = cell.summary.median else { continue };
        let place = mtu::PATHS.iter().position(|path| *path == text(cell, "path"));
        let path = name::cell(&cell.factors, &["path", "fragments"].map(str::to_owned).into());
        paths.entry((place, path)).or_default().push((share, cell));
    }
    let told: Vec<String> = paths
        .into_iter()
        .map(|((_, path), found)| {
            let shares: Vec<f64> = found.iter().map(|(share, _)| *share).collect();
            let same = shares.iter().all(|share| share.total_cmp(&shares[0]).is_eq());
            let share = range(if same { &shares[..1] } else { &shares }).unwrap_or_default();
            let fate =
                found.iter().find(|(share, _)| *share < 1.0).map(|(_, cell)| mtu::fate(cell));
            let fate = fate.filter(|fate| !fate.is_empty());
            format!("{path}: {share}{}", fate.map_or_else(String::new, |fate| format!(", {fate}")))
        })
        .collect();
    let arrive = if response == mtu::CONNECTED { "" } else { " that arrive" };
    vec![format!("{what} {longest} B{arrive}: {}.", told.join("; "))]
}

/// How much longer the small packet takes behind the most of the longest than behind as many of the
/// shortest.
fn urgent(cells: &[&CellResult]) -> Vec<String> {
    let cells =
        || cells.iter().filter(|cell| cell.response == "urgent" && cell.summary.median.is_some());
    let most = cells().filter_map(|cell| number(cell, "ahead")).max().unwrap_or(0);
    let mut rates: BTreeMap<(usize, &str), BTreeMap<u64, &CellResult>> = BTreeMap::new();
    for cell in cells().filter(|cell| most > 0 && number(cell, "ahead") == Some(most)) {
        let Some(packet) = number(cell, "packet") else { continue };
        let rate = (name::placement_order(cell), text(cell, "rate"));
        rates.entry(rate).or_default().insert(packet, cell);
    }
    let told: Vec<String> = rates
        .into_iter()
        .map(|((_, rate), packets)| {
            let packets: Vec<String> = packets
                .into_iter()
                .map(|(packet, cell)| format!("{} behind {packet} B each", told(cell)))
                .collect();
            format!("at {rate} {}", packets.join(", "))
        })
        .collect();
    if told.is_empty() {
        return Vec::new();
    }
    vec![format!("A small packet's round trip behind {most} others: {}.", told.join("; "))]
}
