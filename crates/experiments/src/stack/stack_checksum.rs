//! `stack.checksum`: what the Internet checksum costs, alone, beside a copy, and fused with it.

use plumb_base::units::Unit;
use plumb_harness::host_costs;
use plumb_harness::spec::{BlockTask, LaunchSubject};
use plumb_harness::topology::CpuPlacement;
use plumb_store::record::Better;

use crate::claims::stack::levels;
use crate::definition::{CellDecision, Exclusion, Experiment, LaunchGroup, ResponseVariable};
use crate::factor::{Factor, FactorDomain, always, numbers, words};
use crate::preset::RunPreset;
use plumb_analysis::registry::ExperimentAnalysis;

/// Copy, sum, one after the other and both at once, by instruction set, size and cache.
pub static EXPERIMENT: Experiment = Experiment {
    id: "stack.checksum",
    study: "stack",
    question: "What does the Internet checksum cost beside the copy that is made anyway?",
    hypothesis: "Copying and summing in one pass costs what the copy alone costs, and much less than \
                 two passes once the data does not fit the caches.",
    factors: &[
        Factor {
            name: "operation",
            meaning: "what is done with the bytes; 'bare' is the fused pass without its sum",
            domain: FactorDomain::Words(&OPERATIONS),
            levels: |_| words(&OPERATIONS),
            applies: always,
            fit: |_, levels| levels,
            labels: &[
                ("bare", "vector copy without sum"),
                ("separate", "copy, then sum"),
                ("fused", "copy and sum in one pass"),
            ],
        },
        Factor {
            name: "kernel",
            meaning: "instruction set of the sum",
            domain: FactorDomain::Words(&KERNELS),
            levels: |_| words(&KERNELS),
            applies: |first| first.text("operation") != Some("copy"),
            fit: |_, levels| levels,
            labels: &[
                ("avx2", "AVX2"),
                ("neon", "NEON"),
                ("avx512bw", "AVX-512"),
                ("avx-vnni", "AVX-VNNI"),
                ("avx512-vnni", "AVX-512 VNNI"),
            ],
        },
        Factor {
            name: "cache",
            meaning: "whether the bytes are in the caches",
            domain: FactorDomain::Words(&["warm", "cold"]),
            levels: |_| words(&["warm", "cold"]),
            applies: always,
            fit: |_, levels| levels,
            labels: &[("warm", "warm cache"), ("cold", "cold cache")],
        },
        Factor {
            name: "size",
            meaning: "bytes",
            domain: FactorDomain::Sizes,
            levels: |context| match context.preset {
                RunPreset::Quick => numbers(&[60, 1514, 64 << 10]),
                _ => numbers(&[20, 60, 256, 1514, 4 << 10, 16 << 10, 64 << 10, 1 << 20]),
            },
            applies: always,
            fit: |_, levels| levels,
            labels: &[],
        },
    ],
    responses: &[ResponseVariable {
        name: "time",
        unit: Unit::Nanoseconds,
        better: Better::Lower,
        meaning: "time for one buffer",
    }],
    plan_cell: |setting| {
        let text = |name| setting.factors.text(name).unwrap_or_default().to_owned();
        let kernel = text("kernel");
        if !kernel.is_empty() && !host_costs::has_kernel(&kernel) {
            return CellDecision::Excluded(Exclusion::Unavailable(format!(
                "this processor has no {kernel} instructions"
            )));
        }
        let size = crate::factors::channel::size_of(setting.factors);
        let task = BlockTask::Checksum {
            operation: text("operation"),
            kernel,
            size,
            cold: setting.factors.text("cache") == Some("cold"),
        };
        let group = LaunchGroup {
            subject: LaunchSubject::Alone,
            placement: CpuPlacement::SameCpu,
            cpu: None,
        };
        CellDecision::Measure { group, task }
    },
    analysis: ExperimentAnalysis {
        claims: claims::CLAIMS,
        ratios: &[
            levels("time", &[("operation", "fused")], &[("operation", "copy")]),
            levels("time", &[("operation", "separate")], &[("operation", "fused")]),
        ],
        ..ExperimentAnalysis::PLAIN
    },
    page: page::PAGE,
};

/// What is done: `copy` is the library's, `bare` the loads and stores of the fused pass without its sum.
const OPERATIONS: [&str; 5] = ["copy", "bare", "sum", "separate", "fused"];

/// Instruction sets, by their names in `plumb_copy`.
const KERNELS: [&str; 6] = ["portable", "neon", "avx2", "avx-vnni", "avx512bw", "avx512-vnni"];

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::stack::*;
    use plumb_analysis::claim::{PublishedClaim, judge_all};

    pub(super) const CLAIMS: &[PublishedClaim] = &[PublishedClaim {
        id: "stack.checksum.one-pass-beats-two",
        claim: "Copying and summing in one pass takes less time than in two.",
        source: KJELLERSTEDT,
        historical: Some("the reason given for Linux's lead on long frames, §4.1.2"),
        figures: &[],
        judge: |evidence| {
            let cells = ResponseCells { experiment: "stack.checksum", response: "time" };
            let (fused, separate) = ([("operation", "fused")], [("operation", "separate")]);
            judge_all(
                cells.order(evidence, &fused, &separate, |_| true),
                "plumb run stack.checksum",
            )
        },
    }];
}

mod page {
    //! Figures and sentences.

    use crate::pages::stack::*;
    use plumb_analysis::document::CellResult;
    use plumb_analysis::ratio::MeasuredRatio;
    use plumb_base::units::format_bytes;

    use plumb_report::figure::{Axis, AxisScale, Figure, FigurePoint, Series, SeriesMarks, slug};

    use plumb_report::registry::{ExperimentPage, PageData};
    use plumb_report::table::TextTable;
    use plumb_report::{name, value};

    use std::collections::{BTreeMap, BTreeSet};

    pub(super) const PAGE: ExperimentPage = ExperimentPage {
        title: "The Internet checksum",
        figures: Some(|data| figures(&data.cells)),
        sentences: checksum_sentences,
        ..ExperimentPage::PLAIN
    };

    /// One pass against the copy alone and against two, at each size, by the best instruction set.
    fn checksum_sentences(data: &PageData<'_>) -> Vec<String> {
        let mut sentences = Vec::new();
        for cache in ["warm", "cold"] {
            let best = |operation: &str| {
                let mut best: BTreeMap<u64, &MeasuredRatio> = BTreeMap::new();
                let found = data.document.ratios.iter().filter(|ratio| {
                    ratio.experiment == data.id
                        && is(&ratio.of, "cache", cache)
                        && is(&ratio.of, "operation", operation)
                });
                for ratio in found {
                    let Some(size) = bytes(&ratio.of) else { continue };
                    let place = best.entry(size).or_insert(ratio);
                    // Fused over copy: the lowest; separate over fused: of the same instruction set.
                    if operation == "fused" && ratio.ratio < place.ratio {
                        *place = ratio;
                    }
                }
                best
            };
            let fused = best("fused");
            let told: Vec<String> = fused
                .iter()
                .filter(|(size, _)| matches!(**size, 60 | 1514 | 65_536))
                .map(|(size, ratio)| {
                    let kernel = ratio.of.get("kernel").map(|kernel| name::level("kernel", kernel));
                    let separate = data.document.ratios.iter().find(|other| {
                        is(&other.of, "operation", "separate") && other.to == ratio.of
                    });
                    let two = separate.map_or_else(String::new, |two| {
                        format!(", two passes {} of that", times(two))
                    });
                    let kernel = kernel.unwrap_or_default();
                    format!("{} at {} B ({kernel}){two}", times(ratio), format_bytes(*size))
                })
                .collect();
            if !told.is_empty() {
                sentences.push(format!(
                "{} cache: copying and summing in one pass takes, as a multiple of the copy alone, \
                 {}.",
                name::capitalize(cache),
                told.join("; ")
            ));
            }
        }
        sentences
    }

    /// The figures of `stack.checksum`.
    fn figures(cells: &[&CellResult]) -> Vec<Figure> {
        let mut panels: BTreeMap<std::cmp::Reverse<String>, Vec<&CellResult>> = BTreeMap::new();
        for cell in cells.iter().filter(|cell| rate(cell).is_some()) {
            panels.entry(std::cmp::Reverse(word(cell, "cache"))).or_default().push(cell);
        }
        let rates: Vec<f64> =
            cells.iter().filter_map(|cell| rate(cell)).map(|rate| rate.0).collect();
        let range =
            rates.iter().copied().reduce(f64::min).zip(rates.iter().copied().reduce(f64::max));
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

    fn word(cell: &CellResult, factor: &str) -> String {
        cell.factors.get(factor).and_then(serde_json::Value::as_str).unwrap_or("").to_owned()
    }

    fn figure(cells: &[&CellResult]) -> Option<Figure> {
        let lines = lines(cells);
        let first = cells.first()?;
        let title = name::capitalize(&name::level("cache", first.factors.get("cache")?));
        let sizes: BTreeSet<u64> = cells.iter().filter_map(|cell| name::bytes(cell)).collect();
        let heads: Vec<String> = ["size (B)".to_owned()]
            .into_iter()
            .chain(lines.iter().map(|line| format!("#{}", line.name)))
            .collect();
        let mut table =
            TextTable::with_heads(&heads.iter().map(String::as_str).collect::<Vec<_>>());
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
            let marks = SeriesMarks::Points { at: at.collect(), joined: true };
            Series { name: line.name.clone(), slot: line.slot, marks }
        });
        let ends = |line: &ChecksumSeries<'_>| {
            let last = line.cells.last()?;
            let rate = value::plain(RATE, rate(last)?.0);
            Some(format!("{} {rate} at {} B", line.name, name::bytes(last)?))
        };
        let told: Vec<String> = lines.iter().filter_map(ends).collect();
        Some(Figure {
        id: slug(&[&first.experiment, &title]),
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

    const RATE: plumb_base::units::Unit = plumb_base::units::Unit::BytesPerSecond;

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
            let mut kernels: BTreeMap<String, Vec<&CellResult>> = BTreeMap::new();
            for cell in cells.iter().filter(|cell| word(cell, "operation") == operation) {
                kernels.entry(word(cell, "kernel")).or_default().push(cell);
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
                .map(|(kernel, _)| kernel.clone());
            for (kernel, cells) in kernels {
                let is_best = Some(&kernel) == best.as_ref();
                let is_portable = operation == "fused" && kernel == "portable";
                if is_best || is_portable {
                    let words = name::cell(&cells[0].factors, &label_factors());
                    let slot = if is_best { slot } else { 4 };
                    lines.push(ChecksumSeries { name: words, slot, cells });
                }
            }
        }
        lines
    }

    fn label_factors() -> BTreeSet<String> {
        BTreeSet::from(["operation".to_owned(), "kernel".to_owned()])
    }
}
