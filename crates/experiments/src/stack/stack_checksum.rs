//! `stack.checksum`: what the Internet checksum costs, alone, beside a copy, and fused with it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::document::MeasuredRatio;
use plumb_harness::host_costs;

use crate::claims::{KJELLERSTEDT, levels, stack_order};
use crate::factor::channel;
use crate::pages::{bytes, is, sentence};
use crate::prelude::*;
use crate::stack::stack_replay;

/// Copy, sum, one after the other and both at once, by instruction set, size and cache.
pub static EXPERIMENT: Experiment = Experiment {
    id: "stack.checksum",
    study: "stack",
    question: "What does the Internet checksum cost beside the copy that is made anyway?",
    hypothesis: "Copying and summing in one pass costs what the copy alone costs, and much less than \
                 two passes once the data does not fit the caches.",
    factors: &[
        Factor::of_words(
            "operation",
            "what is done with the bytes; 'bare' is the fused pass without its sum",
            &OPERATIONS,
        )
        .labelled(&[
            ("bare", "vector copy without sum"),
            ("separate", "copy, then sum"),
            ("fused", "copy and sum in one pass"),
        ]),
        Factor {
            applies: |first| first.text("operation") != Some("copy"),
            ..Factor::of_words("kernel", "instruction set of the sum", &KERNELS)
        }
        .labelled(&[
            ("avx2", "AVX2"),
            ("neon", "NEON"),
            ("avx512bw", "AVX-512"),
            ("avx-vnni", "AVX-VNNI"),
            ("avx512-vnni", "AVX-512 VNNI"),
        ]),
        Factor::of_words("cache", "whether the bytes are in the caches", &["warm", "cold"])
            .labelled(&[("warm", "warm cache"), ("cold", "cold cache")]),
        Factor::new(
            "size",
            "bytes",
            FactorDomain::Sizes,
            Numbers(&[20, 60, 256, 1514, 4 << 10, 16 << 10, 64 << 10, 1 << 20]),
        )
        .at_quick(Numbers(&[60, 1514, 64 << 10])),
    ],
    responses: &[ResponseVariable::time("time", "time for one buffer")],
    plan_cell: |point| {
        let text = |name| point.text(name).unwrap_or_default().to_owned();
        let kernel = text("kernel");
        if !kernel.is_empty() && !host_costs::has_kernel(&kernel) {
            let why = format!("this processor has no {kernel} instructions");
            return Err(Exclusion::unavailable(why));
        }
        let size = channel::size_of(point.factors);
        let cold = point.text("cache") == Some("cold");
        let task = BlockTask::Checksum { operation: text("operation"), kernel, size, cold };
        Ok((LaunchGroup::alone(), task))
    },
    analysis: ExperimentAnalysis {
        claims: CLAIMS,
        ratios: &[
            levels("time", &[("operation", "fused")], &[("operation", "copy")]),
            levels("time", &[("operation", "separate")], &[("operation", "fused")]),
        ],
        ..ExperimentAnalysis::PLAIN
    },
    page: ExperimentPage {
        title: "The Internet checksum",
        figures: Some(figures),
        sentences,
        ..ExperimentPage::PLAIN
    },
};

/// What is done: `copy` is the library's, `bare` the loads and stores of the fused pass without its sum.
const OPERATIONS: [&str; 5] = ["copy", "bare", "sum", "separate", "fused"];

/// Instruction sets, by their names in `plumb_copy`.
const KERNELS: [&str; 6] = ["portable", "neon", "avx2", "avx-vnni", "avx512bw", "avx512-vnni"];

const CLAIMS: &[PublishedClaim] = &[PublishedClaim {
    id: "stack.checksum.one-pass-beats-two",
    claim: "Copying and summing the bytes of a long packet takes less time in one pass than in two.",
    historical: Some("the reason given for Linux's lead on long frames, §4.1.2"),
    judge: |evidence| {
        let (fused, separate) = ([("operation", "fused")], [("operation", "separate")]);
        stack_order(evidence, (EXPERIMENT.id, "time"), (&fused, &separate), |cell| {
            cell.is("size", 1514_u64)
        })
    },
    ..PublishedClaim::of(KJELLERSTEDT)
}];

/// One pass against the copy alone and against two, at each size, by the best instruction set.
fn sentences(data: &PageData<'_>) -> Vec<String> {
    let ratios = || data.document.ratios.iter().filter(|ratio| ratio.experiment == data.id);
    let of_cache = |cache: &str| {
        let mut best: BTreeMap<u64, &MeasuredRatio> = BTreeMap::new();
        let fused = ratios()
            .filter(|ratio| is(&ratio.of, "cache", cache) && is(&ratio.of, "operation", "fused"));
        for ratio in fused {
            let Some(size @ (60 | 1514 | 65_536)) = bytes(&ratio.of) else { continue };
            let place = best.entry(size).or_insert(ratio);
            if ratio.ratio < place.ratio {
                *place = ratio;
            }
        }
        let told = |(size, ratio): (u64, &MeasuredRatio)| {
            let kernel = ratio.of.get("kernel").map(|kernel| name::level("kernel", kernel));
            // Of the same instruction set.
            let separate = ratios()
                .find(|other| is(&other.of, "operation", "separate") && other.to == ratio.of);
            let two = separate.map_or_else(String::new, |two| {
                format!(", two passes {} of that", value::ratio(two))
            });
            let (size, kernel) = (format_size(size), kernel.unwrap_or_default());
            format!("{} at {size} ({kernel}){two}", value::ratio(ratio))
        };
        let told: Vec<String> = best.into_iter().map(told).collect();
        sentence(&told, "; ", |told| {
            let cache = name::capitalize(cache);
            format!(
                "{cache} cache: copying and summing in one pass takes, as a multiple of the copy alone, \
                 {told}."
            )
        })
    };
    let sums = ["warm", "cold"].into_iter().flat_map(|cache| sum_sentences(data, cache));
    ["warm", "cold"].into_iter().flat_map(of_cache).chain(sums).collect()
}

/// How many bytes the fastest sum takes a cycle, and how much of the time that a packet of that size is in plumb's
/// stack, where that was measured too.
fn sum_sentences(data: &PageData<'_>, cache: &str) -> Vec<String> {
    let ticks = data.document.notes.get("clock.ticks_per_ns");
    let Some(ticks) = ticks.and_then(|note| note.parse::<f64>().ok()) else { return Vec::new() };
    let fastest = |size: u64| {
        let is_sum = |cell: &&&CellResult| {
            is(&cell.factors, "operation", "sum")
                && is(&cell.factors, "cache", cache)
                && bytes(&cell.factors) == Some(size)
        };
        let times = data.cells.iter().filter(is_sum).filter_map(|cell| cell.summary.median);
        times.reduce(f64::min).filter(|ns| *ns > 0.0)
    };
    let in_stack = |size: u64| {
        let packet = data.document.results.iter().find(|cell| {
            (cell.experiment.as_str(), cell.response.as_str())
                == (stack_replay::EXPERIMENT.id, "packet")
                && is(&cell.factors, "turn", "udp")
                && is(&cell.factors, "cache", cache)
                && bytes(&cell.factors) == Some(size)
        });
        packet?.summary.median
    };
    let tell = |size: u64| {
        let ns = fastest(size)?;
        let rate = significant(size as f64 / (ns * ticks), 3);
        let share = in_stack(size).map_or_else(String::new, |packet| {
            let share = value::estimate(Unit::Share, ns / packet, None);
            format!(", {share} of such a packet's time in plumb's stack")
        });
        Some(format!("{rate} B a cycle at {}{share}", format_size(size)))
    };
    let told: Vec<String> = [60, 1_514, 65_536].into_iter().filter_map(tell).collect();
    sentence(&told, "; ", |told| {
        format!("{} cache: the fastest sum takes {told}.", name::capitalize(cache))
    })
}

fn figures(data: &PageData<'_>) -> Vec<Figure> {
    let mut panels: BTreeMap<Reverse<&str>, Vec<&CellResult>> = BTreeMap::new();
    for cell in data.cells.iter().filter(|cell| rate(cell).is_some()) {
        panels.entry(Reverse(cell.level("cache"))).or_default().push(cell);
    }
    let rates = || data.cells.iter().filter_map(|cell| rate(cell)).map(|rate| rate.0);
    let range = rates().reduce(f64::min).zip(rates().reduce(f64::max));
    let mut figures: Vec<Figure> = panels.values().filter_map(|cells| figure(cells)).collect();
    for figure in &mut figures {
        figure.y.include = range.map(|(low, high)| [low, high]);
    }
    figures
}

/// Bytes a second and their interval.
fn rate(cell: &CellResult) -> Option<(f64, Option<[f64; 2]>)> {
    let bytes = name::bytes(cell)? as f64 * 1e9;
    let median = cell.summary.median.filter(|median| *median > 0.0)?;
    let interval = cell.summary.ci95.filter(|ci| ci[0] > 0.0);
    Some((bytes / median, interval.map(|[low, high]| [bytes / high, bytes / low])))
}

fn figure(cells: &[&CellResult]) -> Option<Figure> {
    let lines = lines(cells);
    let title = name::capitalize(&name::level("cache", cells.first()?.factors.get("cache")?));
    let sizes: BTreeSet<u64> = cells.iter().filter_map(|cell| name::bytes(cell)).collect();
    let mut table = TextTable::across("size (B)", lines.iter().map(|line| line.name.clone()));
    for size in sizes {
        let at = |line: &ChecksumSeries<'_>| {
            let cell = line.cells.iter().find(|cell| name::bytes(cell) == Some(size));
            cell.and_then(|cell| rate(cell)).map_or_else(String::new, |(rate, interval)| {
                value::with_interval(RATE, rate, interval)
            })
        };
        table.push([format_bytes(size)].into_iter().chain(lines.iter().map(at)));
    }
    let series = lines.iter().map(|line| {
        let at = line.cells.iter().filter_map(|cell| {
            let (y, y_interval) = rate(cell)?;
            Some(FigurePoint { x: name::bytes(cell)? as f64, y, x_interval: None, y_interval })
        });
        Series::points(line.name.clone(), line.slot, true, at)
    });
    let end = |line: &ChecksumSeries<'_>| {
        let last = line.cells.last()?;
        let rate = value::plain(RATE, rate(last)?.0);
        Some(format!("{} {rate} at {}", line.name, format_size(name::bytes(last)?)))
    };
    let told: Vec<String> = lines.iter().filter_map(end).collect();
    Some(Figure {
        id: slug(&[EXPERIMENT.id, &title]),
        alt: format!("Bytes a second against size, {title}: {}.", told.join("; ")),
        title,
        note: "Bytes a second from median times, with 95 % intervals over launches (1 GB/s is one \
               byte a nanosecond); both axes are logarithmic. Of each operation the fastest \
               instruction set is drawn."
            .to_owned(),
        x: Axis::with_scale("size (B)", "B", AxisScale::Log2),
        y: Axis::measured("bytes a second", RATE.name()),
        series: series.collect(),
        table,
    })
}

const RATE: Unit = Unit::BytesPerSecond;

/// One operation with one instruction set, its cells by size.
struct ChecksumSeries<'a> {
    name: String,
    slot: u8,
    cells: Vec<&'a CellResult>,
}

/// Every operation with its fastest instruction set; and the portable fused one where it is not it.
fn lines<'a>(cells: &[&'a CellResult]) -> Vec<ChecksumSeries<'a>> {
    let mut lines = Vec::new();
    for (operation, slot) in [("copy", 0), ("fused", 1), ("separate", 2), ("sum", 3)] {
        let mut kernels: BTreeMap<&str, Vec<&CellResult>> = BTreeMap::new();
        for cell in cells.iter().filter(|cell| cell.level("operation") == operation) {
            kernels.entry(cell.level("kernel")).or_default().push(cell);
        }
        for cells in kernels.values_mut() {
            cells.sort_by_key(|cell| name::bytes(cell));
        }
        let speed = |cells: &[&CellResult]| {
            cells.last().and_then(|cell| rate(cell)).map_or(0.0, |rate| rate.0)
        };
        let best = kernels
            .iter()
            .max_by(|a, b| speed(a.1).total_cmp(&speed(b.1)))
            .map(|(kernel, _)| *kernel);
        for (kernel, cells) in kernels {
            let is_best = Some(kernel) == best;
            let is_portable = operation == "fused" && kernel == "portable";
            if is_best || is_portable {
                let name = name::levels(&cells[0].factors, &["operation", "kernel"]);
                let slot = if is_best { slot } else { 4 };
                lines.push(ChecksumSeries { name, slot, cells });
            }
        }
    }
    lines
}
