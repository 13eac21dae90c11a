//! What experiments over streams found, in pictures and in sentences: what a second of CPU carries, and what
//! bounds a host.
//!
//! Left out: whether a published claim holds, which the claims say for themselves.

use std::collections::BTreeMap;

use plumb_analysis::document::{CellResult, RunDocument};
use plumb_base::units::{Unit, significant};
use serde_json::Value;

use crate::figure::against_factor::{self, Spacing, runs};
use crate::figure::{Figure, by_level, quantiles};
use crate::headline::Tile;
use crate::{name, value};

/// Whether an experiment has its figures here.
pub(super) fn has(experiment: &str) -> bool {
    experiment.starts_with("host.")
        || (experiment.starts_with("scaling.")
            && matches!(&experiment[8..], "loopback" | "lan" | "wan" | "http" | "smp"))
}

const SIDES: [&str; 2] = ["sender-cpu", "receiver-cpu"];

const LINKS: by_level::Layout = by_level::Layout {
    factor: "link",
    order: &["loopback", "veth", "lan-10g", "lan-1g", "lan-100m", "ethernet-10m"],
    apart: &["placement"],
    pictures: &[
        ("Throughput", &["throughput"], true),
        ("Bytes for each second of CPU", &SIDES, false),
    ],
};

const RECEIVE: by_level::Layout = by_level::Layout {
    factor: "receive",
    order: &["each", "joined", "busy-poll", "low-water"],
    apart: &["placement"],
    pictures: &[
        ("Throughput", &["throughput"], false),
        ("Bytes for each second of CPU", &SIDES, false),
        ("Latency of a small message", &["latency"], false),
    ],
};

const TWEAK: by_level::Layout = by_level::Layout {
    factor: "tweak",
    order: &["none", "pinned", "locked", "real-time", "huge-pages", "all"],
    apart: &["link"],
    pictures: RECEIVE.pictures,
};

const WAY: by_level::Layout = by_level::Layout {
    factor: "way",
    order: &["one-each", "keep-alive", "pipelined", "http2", "http3"],
    apart: &["link", "placement"],
    pictures: &[("Time for the whole page", &["page"], false)],
};

const SHARE: against_factor::Layout = against_factor::Layout {
    factor: "cpu-share",
    label: "share of CPU (%)",
    unit: "count",
    scale: Spacing::Even,
    apart: &["placement"],
    pictures: &[("Throughput", &["throughput"]), ("Bytes for each second of CPU", &SIDES)],
    power: &["throughput"],
};

const BUFFER: against_factor::Layout = against_factor::Layout {
    factor: "buffer",
    label: "socket buffers (B)",
    unit: "B",
    scale: Spacing::Octaves,
    pictures: &[("Throughput", &["throughput"]), ("Bytes for each second of CPU", &SIDES)],
    power: &[],
    ..SHARE
};

const MTU: against_factor::Layout = against_factor::Layout {
    factor: "mtu",
    label: "longest packet (B)",
    unit: "B",
    scale: Spacing::Octaves,
    pictures: &[
        ("Throughput", &["throughput"]),
        ("Packets a second", &["packets"]),
        ("CPU time a packet, both hosts", &["packet-cpu"]),
        ("Bytes for each second of CPU", &SIDES),
    ],
    power: &[],
    ..SHARE
};

const SMP: against_factor::Layout = against_factor::Layout {
    factor: "streams",
    label: "streams",
    apart: &["link"],
    pictures: &[
        ("Throughput", &["throughput"]),
        ("Bytes for each second of the sender's CPU", &["sender-cpu"]),
        ("Bytes for each second of the receiver's CPU", &["receiver-cpu"]),
    ],
    power: &[],
    ..SHARE
};

/// The figures of an experiment; `cells` are all of it.
pub(super) fn figures(cells: &[&CellResult], experiment: &str) -> Vec<Figure> {
    match experiment {
        "scaling.loopback" | "scaling.lan" | "scaling.wan" => by_level::figures(cells, &LINKS),
        "scaling.http" => by_level::figures(cells, &WAY),
        "scaling.smp" => against_factor::figures(cells, &SMP),
        "host.peak" => against_factor::figures(cells, &SHARE),
        "host.buffers" => against_factor::figures(cells, &BUFFER),
        "host.mtu" => against_factor::figures(cells, &MTU),
        "host.tweaks" => by_level::figures(cells, &TWEAK),
        "host.coalescing" => {
            let mut figures = by_level::figures(cells, &RECEIVE);
            let mut places: BTreeMap<usize, Vec<&CellResult>> = BTreeMap::new();
            for cell in cells.iter().filter(|cell| cell.response == "latency") {
                places.entry(name::placement_order(cell)).or_default().push(cell);
            }
            figures.extend(places.values().filter_map(|cells| {
                let title = format!("Latency of a small message: distribution, {}", place(cells));
                quantiles::figure(&title, cells)
            }));
            figures
        }
        _ => Vec::new(),
    }
}

fn place(cells: &[&CellResult]) -> String {
    let place = cells.first().map_or("", |cell| text(cell, "placement"));
    name::placement(place).to_owned()
}

fn text<'a>(cell: &'a CellResult, factor: &str) -> &'a str {
    cell.factors.get(factor).and_then(Value::as_str).unwrap_or("")
}

fn number(cell: &CellResult, factor: &str) -> Option<u64> {
    cell.factors.get(factor).and_then(Value::as_u64)
}

/// Cells of a response, with a median.
fn of<'a>(cells: &[&'a CellResult], response: &str) -> Vec<&'a CellResult> {
    let chosen = |cell: &&&CellResult| cell.response == response && cell.summary.median.is_some();
    cells.iter().filter(chosen).copied().collect()
}

/// A median with its interval.
fn told(cell: &CellResult) -> String {
    let median = cell.summary.median.unwrap_or(0.0);
    value::with_interval(value::unit(&cell.unit), median, cell.summary.ci95)
}

/// Levels of a cell in words: those that vary, and some in any case.
fn levels(cell: &CellResult, wanted: &[&str]) -> String {
    name::cell(&cell.factors, &wanted.iter().map(|name| (*name).to_owned()).collect())
}

/// The sentences of an experiment; none for any other.
pub(super) fn sentences(document: &RunDocument, experiment: &str) -> Vec<String> {
    let cells: Vec<&CellResult> =
        document.results.iter().filter(|cell| cell.experiment == experiment).collect();
    match experiment {
        "scaling.entry" => {
            let told = of(&cells, "call").into_iter().map(|cell| {
                format!("An empty kernel call ({}) takes {}.", text(cell, "call"), told(cell))
            });
            told.collect()
        }
        "scaling.loopback" | "scaling.lan" | "scaling.wan" => carried(&cells),
        "scaling.http" => against(&cells, "way", "keep-alive", "page", "time for the whole page"),
        "scaling.smp" => processors(&cells),
        "host.peak" => peak(&cells),
        "host.buffers" => buffers(&cells),
        "host.coalescing" => {
            let mut found = against(&cells, "receive", "each", "throughput", "throughput");
            found.extend(against(
                &cells,
                "receive",
                "each",
                "latency",
                "latency of a small message",
            ));
            found
        }
        "host.tweaks" => against(&cells, "tweak", "none", "throughput", "throughput"),
        "host.mtu" => packets(document, &cells),
        _ => Vec::new(),
    }
}

/// What a second of CPU carries over each link, a sentence a side.
fn carried(cells: &[&CellResult]) -> Vec<String> {
    let sentence = |response: &str| {
        let mut cells = of(cells, response);
        let varies = name::varying(cells.iter().copied()).contains("placement");
        cells.sort_by_cached_key(|cell| {
            (name::placement_order(cell), by_level::order(cell, "link", LINKS.order))
        });
        let words = |cell: &&CellResult| {
            let wanted: &[&str] = if varies { &["link", "placement"] } else { &["link"] };
            // Bytes for a second of CPU are no rate.
            format!("{} {}", levels(cell, wanted), told(cell).replace("B/s", "B"))
        };
        let told: Vec<String> = cells.iter().map(words).collect();
        (!told.is_empty()).then(|| {
            format!("A second of the {}'s CPU carries: {}.", name::side(response), told.join("; "))
        })
    };
    SIDES.iter().filter_map(|response| sentence(response)).collect()
}

/// What the most CPUs carry beside one.
fn processors(cells: &[&CellResult]) -> Vec<String> {
    let cells = of(cells, "throughput");
    let most = cells.iter().filter_map(|cell| number(cell, "cpus")).max().unwrap_or(1);
    let mut told = Vec::new();
    for all in cells.iter().filter(|cell| most > 1 && number(cell, "cpus") == Some(most)) {
        let streams = number(all, "streams");
        let one = cells.iter().find(|cell| {
            number(cell, "cpus") == Some(1)
                && number(cell, "streams") == streams
                && text(cell, "link") == text(all, "link")
        });
        let Some(ratio) = one.and_then(|one| ratio(all, one)) else { continue };
        told.push(format!("{ratio} ({})", levels(all, &["link", "streams"])));
    }
    if told.is_empty() {
        return Vec::new();
    }
    vec![format!("{most} CPUs carry, as a multiple of one: {}.", told.join("; "))]
}

fn ratio(of: &CellResult, to: &CellResult) -> Option<String> {
    let (of, to) = (of.summary.median?, to.summary.median?);
    (to > 0.0).then(|| value::times(of / to))
}

/// The peak at all of the CPU, what a byte costs there, and the elasticity.
fn peak(cells: &[&CellResult]) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut whole: Vec<&CellResult> = of(cells, "throughput");
    whole.retain(|cell| number(cell, "cpu-share") == Some(100));
    for cell in whole {
        let side = |response: &str| -> Option<String> {
            let twin = of(cells, response).into_iter().find(|twin| twin.factors == cell.factors)?;
            let each = 1e9 / twin.summary.median?;
            Some(format!("{} ns of the {}'s", significant(each, 3), name::side(response)))
        };
        let sides: Vec<String> = SIDES.iter().filter_map(|response| side(response)).collect();
        let mut sentence =
            format!("Peak over {}: {}", levels(cell, &["link", "placement"]), told(cell));
        if !sides.is_empty() {
            sentence += &format!("; a byte costs {} CPU", sides.join(" and "));
        }
        let kernel = of(cells, "kernel").into_iter().find(|twin| twin.factors == cell.factors);
        if let Some(share) = kernel.and_then(|kernel| kernel.summary.median) {
            let share = value::estimate(Unit::Share, share, None);
            sentence += &format!("; {share} of the CPU time is the kernel's");
        }
        sentences.push(sentence + ".");
    }
    let mut slopes = Vec::new();
    for run in runs(&of(cells, "throughput"), "cpu-share", &["link", "placement"]) {
        let Some(line) = run.power() else { continue };
        let [slope, low, high] = [line.slope, line.slope_interval.lo, line.slope_interval.hi]
            .map(|number| significant(number, 2));
        slopes.push(format!("{slope} [{low}, {high}] ({})", run.label));
    }
    if !slopes.is_empty() {
        let text = format!("Elasticity of throughput to CPU: {}.", slopes.join("; "));
        sentences.insert(0, text);
    }
    sentences
}

/// What the kernel's own choice gives, and the best of the buffers that were set.
fn buffers(cells: &[&CellResult]) -> Vec<String> {
    let mut sentences = Vec::new();
    for run in runs(&of(cells, "throughput"), "buffer", &["link", "placement"]) {
        let Some((_, least)) = run.cells.first() else { continue };
        let best = run.cells.iter().max_by(|(_, a), (_, b)| {
            let median = |cell: &CellResult| cell.summary.median.unwrap_or(0.0);
            median(a).total_cmp(&median(b))
        });
        let Some((_, best)) = best else { continue };
        let buffer = |cell: &CellResult| levels(cell, &["buffer"]);
        let mut sentence = format!(
            "Over {}: {} with {}, {} with {}",
            run.label,
            told(least),
            buffer(least),
            told(best),
            buffer(best)
        );
        if let Some(own) = run.words.first() {
            sentence += &format!(", {} with the kernel's own choice", told(own));
        }
        sentences.push(sentence + ".");
    }
    sentences
}

/// Every level of a factor as a multiple of one of them.
fn against(
    cells: &[&CellResult],
    factor: &str,
    base: &str,
    response: &str,
    what: &str,
) -> Vec<String> {
    let cells = of(cells, response);
    let order: &[&str] = match factor {
        "tweak" => TWEAK.order,
        "way" => WAY.order,
        _ => RECEIVE.order,
    };
    let rest = |cell: &CellResult| -> BTreeMap<String, Value> {
        let others = cell.factors.iter().filter(|(name, _)| *name != factor);
        others.map(|(name, level)| (name.clone(), level.clone())).collect()
    };
    let mut bases: Vec<&&CellResult> =
        cells.iter().filter(|cell| text(cell, factor) == base).collect();
    bases.sort_by_key(|cell| name::placement_order(cell));
    let mut sentences = Vec::new();
    for base in bases {
        let mut others: Vec<&&CellResult> = cells
            .iter()
            .filter(|cell| rest(cell) == rest(base) && text(cell, factor) != text(base, factor))
            .collect();
        others.sort_by_cached_key(|cell| by_level::order(cell, factor, order));
        let told: Vec<String> = others
            .iter()
            .filter_map(|cell| Some(format!("{} {}", levels(cell, &[factor]), ratio(cell, base)?)))
            .collect();
        if told.is_empty() {
            continue;
        }
        let known = |name: &&str| base.factors.contains_key(*name);
        let place: Vec<&str> = ["link", "placement"].into_iter().filter(known).collect();
        let place =
            if place.is_empty() { String::new() } else { format!(" ({})", levels(base, &place)) };
        sentences.push(format!(
            "{}{place}, as a multiple of {}: {}.",
            name::capital(what),
            levels(base, &[factor]),
            told.join("; ")
        ));
    }
    sentences
}

/// Cycles of a packet of Ethernet's size, and the processor that a full 10 Gb/s of them would need.
fn packets(document: &RunDocument, cells: &[&CellResult]) -> Vec<String> {
    let ticks = document.notes.get("clock.ticks_per_ns").and_then(|note| note.parse::<f64>().ok());
    let mut costs = of(cells, "packet-cpu");
    costs.retain(|cell| text(cell, "segmentation") == "off");
    costs.sort_by_key(|cell| (name::placement_order(cell), number(cell, "mtu")));
    let mut sentences = Vec::new();
    let words = |cell: &&CellResult| {
        let bytes = number(cell, "mtu")? as f64;
        let median = cell.summary.median?;
        let cost = format!("{} in packets of {bytes:.0} B", told(cell));
        Some(match ticks {
            Some(ticks) => {
                let cycles = median * ticks;
                let need = cycles * TEN_GIGABIT / bytes / 1e9;
                let cycles = Unit::Count.format(cycles, 3);
                format!("{cost} ({cycles} cycles; {} GHz at 10 Gb/s)", significant(need, 3))
            }
            None => cost,
        })
    };
    let told: Vec<String> = costs.iter().filter_map(words).collect();
    if !told.is_empty() {
        sentences.push(format!(
            "CPU time of both hosts for each packet that the device does not cut itself: {}.",
            told.join("; ")
        ));
    }
    let rates = of(cells, "throughput");
    let mut told = Vec::new();
    for run in runs(&rates, "mtu", &["segmentation"]) {
        let (Some((_, first)), Some((_, last))) = (run.cells.first(), run.cells.last()) else {
            continue;
        };
        let Some(ratio) = ratio(last, first) else { continue };
        told.push(format!(
            "{ratio} in packets of {} as of {} ({})",
            levels(last, &["mtu"]),
            levels(first, &["mtu"]),
            run.label
        ));
    }
    if !told.is_empty() {
        sentences.push(format!("A stream carries {}.", told.join("; ")));
    }
    sentences
}

/// Bytes a second of 10 Gb/s.
const TEN_GIGABIT: f64 = 1.25e9;

/// The numbers that are asked for first.
pub(super) fn tiles(document: &RunDocument) -> Vec<Tile> {
    let mut tiles = Vec::new();
    for (experiment, response, what) in [
        ("host.peak", "throughput", "TCP's peak"),
        ("host.mtu", "packet-cpu", "CPU time a packet"),
        ("host.buffers", "throughput", "highest throughput"),
        ("host.coalescing", "throughput", "highest throughput"),
        ("host.tweaks", "throughput", "highest throughput"),
        ("scaling.smp", "throughput", "highest throughput"),
        ("scaling.http", "page", "the whole page at the fastest"),
        ("scaling.loopback", "throughput", "TCP over loopback"),
        ("scaling.lan", "sender-cpu", "carried by a second of the sender's CPU"),
        ("scaling.wan", "sender-cpu", "carried by a second of the sender's CPU"),
    ] {
        let cells: Vec<&CellResult> =
            document.results.iter().filter(|cell| cell.experiment == experiment).collect();
        let cells = of(&cells, response);
        let median = |cell: &CellResult| cell.summary.median.unwrap_or(0.0);
        let best = cells.iter().max_by(|a, b| {
            let order = median(a).total_cmp(&median(b));
            if matches!(response, "packet-cpu" | "page") { order.reverse() } else { order }
        });
        let Some(best) = best else { continue };
        let unit = value::unit(&best.unit);
        let text = value::estimate(unit, median(best), best.summary.ci95);
        let all = best.factors.keys().filter(|name| *name != "congestion").cloned().collect();
        tiles.push(Tile {
            what: what.to_owned(),
            value: if response == "sender-cpu" { text.replace("B/s", "B") } else { text },
            interval: best
                .summary
                .ci95
                .map_or_else(String::new, |ci| value::interval(unit, median(best), ci)),
            circumstances: name::cell(&best.factors, &all),
        });
    }
    tiles.truncate(4);
    tiles
}
