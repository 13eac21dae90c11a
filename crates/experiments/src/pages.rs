//! What pages of experiments share: sentences, large figures and plots.

use std::collections::BTreeMap;

use plumb_analysis::document::{CellResult, MeasuredRatio, RunDocument};
use plumb_base::units::{format_size, significant};
use plumb_report::figure::against_factor::{FactorPlot, FactorScale};
use plumb_report::figure::by_level::{self, LevelPlot};
use plumb_report::registry::{HeadlineTile, PageData, cell_tile};
use plumb_report::{name, value};
use serde_json::Value;

pub(crate) mod bars;

/// Responses of both sides' CPU.
pub(crate) const SIDES: [&str; 2] = ["sender-cpu", "receiver-cpu"];

/// Streams are not acknowledged by those who receive them.
pub(crate) const RESPONSES: &[(&str, &str)] = &[("throughput", "throughput")];

/// Throughput and what each side's CPU carries, against the share of the CPU.
pub(crate) const SHARE: FactorPlot = FactorPlot {
    factor: "cpu-share",
    label: "share of CPU (%)",
    unit: "count",
    scale: FactorScale::Linear,
    panel_factors: &["placement"],
    pictures: &[("Throughput", &["throughput"]), ("Bytes for each second of CPU", &SIDES)],
    power_law_responses: &["throughput"],
};

/// What each level gives, beside the others.
pub(crate) const LEVEL_PICTURES: &[(&str, &[&str], bool)] = &[
    ("Throughput", &["throughput"], false),
    ("Bytes for each second of CPU", &SIDES, false),
    ("Latency of a small message", &["latency"], false),
];

/// What each link carries.
pub(crate) const LINKS: LevelPlot = LevelPlot {
    factor: "link",
    order: &["loopback", "veth", "lan-10g", "lan-1g", "lan-100m", "ethernet-10m"],
    panel_factors: &["placement"],
    pictures: &[
        ("Throughput", &["throughput"], true),
        ("Bytes for each second of CPU", &SIDES, false),
    ],
};

/// What a headline says about its circumstances.
pub(crate) const WHERE: [&str; 6] = ["stack", "device", "frame", "size", "placement", "wake"];

/// Cells of a response, with a median.
pub(crate) fn of<'a>(cells: &[&'a CellResult], response: &str) -> Vec<&'a CellResult> {
    let chosen = |cell: &&&CellResult| cell.response == response && cell.summary.median.is_some();
    cells.iter().filter(chosen).copied().collect()
}

/// The median of a cell, or zero, for ordering.
pub(crate) fn median(cell: &CellResult) -> f64 {
    cell.summary.median.unwrap_or(0.0)
}

/// A cell's levels of some factors.
pub(crate) fn levels(cell: &CellResult, wanted: &[&str]) -> String {
    name::levels(&cell.factors, wanted)
}

/// A sentence of these parts; none where there are none.
pub(crate) fn sentence(
    parts: &[String],
    separator: &str,
    tell: impl FnOnce(String) -> String,
) -> Vec<String> {
    if parts.is_empty() { Vec::new() } else { vec![tell(parts.join(separator))] }
}

/// One cell as a multiple of another.
pub(crate) fn multiple(of: &CellResult, to: &CellResult) -> Option<String> {
    let (of, to) = (of.summary.median?, to.summary.median?);
    (to > 0.0).then(|| value::times(of / to))
}

/// `97% to 101% (3 cells)`.
pub(crate) fn range(shares: &[f64]) -> Option<String> {
    let low = shares.iter().copied().reduce(f64::min)?;
    let high = shares.iter().copied().reduce(f64::max)?;
    let percent = |share: f64| format!("{}%", significant(share * 100.0, 3));
    Some(match (shares.len(), percent(low) == percent(high)) {
        (1, _) => percent(low),
        (cells, true) => format!("{} ({cells} cells)", percent(low)),
        (cells, false) => format!("{} to {} ({cells} cells)", percent(low), percent(high)),
    })
}

/// Factors that a sentence about a cell names though all cells have one level; others where they differ.
const ALWAYS_TOLD: [&str; 2] = ["link", "placement"];

/// Every level of a factor as a multiple of one of them.
pub(crate) fn against(
    cells: &[&CellResult],
    plot: &LevelPlot,
    base: &str,
    response: &str,
    what: &str,
) -> Vec<String> {
    let cells = of(cells, response);
    let factor = plot.factor;
    let rest = |cell: &CellResult| {
        let mut others = cell.factors.clone();
        others.remove(factor);
        others
    };
    let mut bases: Vec<&&CellResult> =
        cells.iter().filter(|cell| cell.level(factor) == base).collect();
    bases.sort_by_key(|cell| name::placement_order(cell));
    let mut sentences = Vec::new();
    for base in bases {
        let mut others: Vec<&&CellResult> = cells
            .iter()
            .filter(|cell| rest(cell) == rest(base) && cell.level(factor) != base.level(factor))
            .collect();
        others.sort_by_cached_key(|cell| by_level::order(cell, factor, plot.order));
        let times = |cell: &&&CellResult| {
            Some(format!("{} {}", levels(cell, &[factor]), multiple(cell, base)?))
        };
        let told: Vec<String> = others.iter().filter_map(times).collect();
        let is_told = |(name, level): &(&String, &Value)| {
            let differs = || cells.iter().any(|cell| cell.factors.get(*name) != Some(*level));
            name.as_str() != factor && (ALWAYS_TOLD.contains(&name.as_str()) || differs())
        };
        let place: Vec<&str> =
            base.factors.iter().filter(is_told).map(|(name, _)| name.as_str()).collect();
        let place =
            if place.is_empty() { String::new() } else { format!(" ({})", levels(base, &place)) };
        sentences.extend(sentence(&told, "; ", |told| {
            let of = levels(base, &[factor]);
            format!("{}{place}, as a multiple of {of}: {told}.", name::capitalize(what))
        }));
    }
    sentences
}

/// The best cell of a response as a large figure.
pub(crate) fn best_tile(
    data: &PageData<'_>,
    response: &str,
    what: &str,
    lower_is_better: bool,
) -> Vec<HeadlineTile> {
    let cells = of(&data.cells, response);
    let best = cells.iter().max_by(|a, b| {
        let order = median(a).total_cmp(&median(b));
        if lower_is_better { order.reverse() } else { order }
    });
    let mut tile: Vec<HeadlineTile> = best.map(|best| cell_tile(what, best)).into_iter().collect();
    if response == "sender-cpu" {
        // Bytes for a second of CPU are no rate.
        for tile in &mut tile {
            tile.value = tile.value.replace("B/s", "B");
        }
    }
    tile
}

/// What a second of CPU carries over each link, a sentence a side.
pub(crate) fn bytes_per_cpu_sentences(cells: &[&CellResult]) -> Vec<String> {
    let of_side = |response: &&str| {
        let mut cells = of(cells, response);
        let varies = name::varying(cells.iter().copied()).contains("placement");
        cells.sort_by_cached_key(|cell| {
            (name::placement_order(cell), by_level::order(cell, "link", LINKS.order))
        });
        let words = |cell: &&CellResult| {
            let wanted: &[&str] = if varies { &["link", "placement"] } else { &["link"] };
            // Bytes for a second of CPU are no rate.
            format!("{} {}", levels(cell, wanted), value::median(cell).replace("B/s", "B"))
        };
        let told: Vec<String> = cells.iter().map(words).collect();
        let side = name::side(response);
        sentence(&told, "; ", |told| format!("A second of the {side}'s CPU carries: {told}."))
    };
    SIDES.iter().flat_map(of_side).collect()
}

/// Over each link the better mechanism, at the least size for times and at the largest for rates; a
/// sentence a placement.
pub(crate) fn by_link(cells: &[&CellResult], response: &str, what: &str) -> Vec<String> {
    let cells = of(cells, response);
    let sizes = cells.iter().filter_map(|cell| cell.number("size"));
    let is_time = response == "latency";
    let Some(size) = (if is_time { sizes.min() } else { sizes.max() }) else { return Vec::new() };
    let better_first = |a: &CellResult, b: &CellResult| {
        let order = median(a).total_cmp(&median(b));
        if is_time { order } else { order.reverse() }
    };
    let mut places: BTreeMap<(usize, &str), BTreeMap<&str, &CellResult>> = BTreeMap::new();
    for cell in cells.into_iter().filter(|cell| cell.number("size") == Some(size)) {
        let place = (name::placement_order(cell), cell.level("placement"));
        let best = places.entry(place).or_default().entry(cell.level("link")).or_insert(cell);
        if better_first(cell, best).is_lt() {
            *best = cell;
        }
    }
    let sentence = |((_, place), links): ((usize, &str), BTreeMap<&str, &CellResult>)| {
        let mut links: Vec<(&str, &CellResult)> = links.into_iter().collect();
        links.sort_by(|(_, a), (_, b)| better_first(a, b));
        let told = |(link, cell): &(&str, &CellResult)| {
            format!("{} {} ({})", name::link(link), value::median(cell), cell.level("mechanism"))
        };
        let links: Vec<String> = links.iter().map(told).collect();
        let place = name::placement(place);
        format!("{what} of {} ({place}): {}.", format_size(size), links.join("; "))
    };
    places.into_iter().map(sentence).collect()
}

/// plumb over a TAP against Linux, a sentence a placement and wake mode.
pub(crate) fn against_linux(document: &RunDocument, experiment: &str, what: &str) -> Vec<String> {
    let mut places: BTreeMap<(usize, String), Vec<String>> = BTreeMap::new();
    let chosen = document.ratios.iter().filter(|ratio| {
        ratio.experiment == experiment
            && is_main(ratio)
            && matches!(bytes(&ratio.of), Some(60 | 1514))
    });
    for ratio in chosen {
        let near = ratio.of.get("placement").and_then(Value::as_str).unwrap_or("");
        let place = (name::placement_rank(near), name::levels(&ratio.of, &["placement", "wake"]));
        let frame = bytes(&ratio.of).unwrap_or(0);
        places.entry(place).or_default().push(format!("{} for {frame} B", value::ratio(ratio)));
    }
    let mut sentences: Vec<String> = places
        .into_iter()
        .map(|((_, place), parts)| {
            format!(
                "{}: through plumb over a TAP {what} is, as a multiple of Linux's over veth, {}.",
                name::capitalize(&place),
                parts.join(" and ")
            )
        })
        .collect();
    let claims = document.claims.iter().filter(|claim| claim.experiment == experiment);
    let published: Vec<&str> = claims.filter_map(|claim| claim.historical.as_deref()).collect();
    if !sentences.is_empty() && !published.is_empty() {
        sentences.push(format!("Then: {}.", published.join("; ")));
    }
    sentences
}

/// plumb over a TAP against Linux, with checksums, datagrams over IPv4.
fn is_main(ratio: &MeasuredRatio) -> bool {
    let sums = |level: &str| ratio.of.get("checksum").is_none_or(|found| found == level);
    is(&ratio.of, "stack", "plumb")
        && is(&ratio.of, "device", "tap")
        && is(&ratio.to, "stack", "linux")
        && (sums("computed") || sums("on"))
        && ratio.of.get("family").is_none_or(|family| family == "ipv4")
        && ratio.of.get("transport").is_none_or(|transport| transport == "udp")
}

pub(crate) fn is(factors: &BTreeMap<String, Value>, name: &str, level: &str) -> bool {
    factors.get(name).is_some_and(|found| found == level)
}

pub(crate) fn bytes(factors: &BTreeMap<String, Value>) -> Option<u64> {
    factors.get("frame").or_else(|| factors.get("size")).and_then(Value::as_u64)
}

/// The main ratio of a short frame, plumb to Linux, as a large figure.
pub(crate) fn linux_tile(data: &PageData<'_>, what: &str) -> Vec<HeadlineTile> {
    let found = data.document.ratios.iter().find(|ratio| {
        ratio.experiment == data.id && is_main(ratio) && bytes(&ratio.of) == Some(60)
    });
    let tile = |ratio: &MeasuredRatio| HeadlineTile {
        label: what.to_owned(),
        value: value::times(ratio.ratio),
        interval: value::ratio_interval(ratio),
        conditions: name::levels(&ratio.of, &WHERE),
    };
    found.map(tile).into_iter().collect()
}
