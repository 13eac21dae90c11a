//! The processor index of a run: how fast its kernels are against a reference.
//!
//! Every round of launches gives the geometric mean of its kernels' ratios; the index is the median of these, by
//! Wilcoxon's signed ranks on logarithms.

use std::collections::BTreeMap;

use plumb_base::stats::quantile;
use plumb_base::stats::shift::Shift;

use crate::document::scale::{IndexDocument, IndexedKernel, MemoryFigure};
use crate::summary::{CONFIDENCE, LAUNCHES_NEEDED, MeasuredCell, rounded};

/// A kernel and the time that it takes on the reference machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelReference {
    /// The kernel, as in results.
    pub name: &'static str,
    /// Nanoseconds.
    pub time_ns: f64,
}

/// An index without the names around it.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessorIndex {
    /// Geometric mean of the ratios of reference time to time.
    pub index: f64,
    /// Its 95 % interval over launches; none with fewer than six.
    pub ci95: Option<[f64; 2]>,
    /// Geometric standard deviation of the ratios over kernels: 1 where all agree.
    pub geometric_sd: f64,
    /// The ratio of each kernel.
    pub kernels: Vec<IndexedKernel>,
}

/// The index by the cells of an experiment that varies `kernel`; `None` unless every kernel was measured.
pub fn summarize(
    measured: &[MeasuredCell<'_>],
    experiment: &str,
    references: &[KernelReference],
) -> Option<ProcessorIndex> {
    let mut kernels = Vec::new();
    let mut rounds: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for reference in references {
        let cell = measured
            .iter()
            .find(|cell| cell.cell.experiment == experiment && cell.is("kernel", reference.name))?;
        for launch in &cell.launches {
            let samples = quantile::sorted(&launch.samples().concat());
            let ratio = reference.time_ns / quantile::of_sorted(&samples, 0.5);
            rounds.entry(launch.round).or_default().push(ratio.ln());
        }
        kernels.push(IndexedKernel {
            kernel: reference.name.to_owned(),
            time_ns: rounded(cell.median()),
            ci95: cell.ends().map(|ends| ends.map(rounded)),
            ratio: rounded(reference.time_ns / cell.median()),
        });
    }
    let whole = rounds.into_values().filter(|logs| logs.len() == references.len());
    let means: Vec<f64> = whole.map(|logs| logs.iter().sum::<f64>() / logs.len() as f64).collect();
    let shift = Shift::of_pairs(&means)?;
    let interval = shift.interval(CONFIDENCE).filter(|_| means.len() >= LAUNCHES_NEEDED);
    let logs: Vec<f64> = kernels.iter().map(|kernel| kernel.ratio.ln()).collect();
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
    Some(ProcessorIndex {
        index: rounded(shift.estimate().exp()),
        ci95: interval.map(|it| [rounded(it.lo.exp()), rounded(it.hi.exp())]),
        geometric_sd: rounded((squares / (logs.len() as f64 - 1.0).max(1.0)).sqrt().exp()),
        kernels,
    })
}

/// What was measured of memory, by the cells of an experiment that varies `size`.
pub fn memory(measured: &[MeasuredCell<'_>], experiment: &str) -> Vec<MemoryFigure> {
    let cells = measured.iter().filter(|cell| cell.cell.experiment == experiment);
    cells
        .map(|cell| MemoryFigure {
            response: cell.cell.response.clone(),
            size: cell.int("size").and_then(|size| u64::try_from(size).ok()).unwrap_or(0),
            unit: cell.cell.unit.clone(),
            value: rounded(cell.median()),
            ci95: cell.ends().map(|ends| ends.map(rounded)),
        })
        .collect()
}

/// The document of a run's index.
pub fn document(
    (version, reference): (&str, &str),
    run: &str,
    found: ProcessorIndex,
    memory: Vec<MemoryFigure>,
) -> IndexDocument {
    IndexDocument {
        schema: crate::document::scale::INDEX_SCHEMA.to_owned(),
        version: version.to_owned(),
        reference: reference.to_owned(),
        run: run.to_owned(),
        index: found.index,
        ci95: found.ci95,
        geometric_sd: found.geometric_sd,
        kernels: found.kernels,
        memory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::SyntheticRun;
    use crate::summary::measured_cells;
    use plumb_store::record::Factors;

    const REFERENCES: [KernelReference; 2] = [
        KernelReference { name: "lz77", time_ns: 8e6 },
        KernelReference { name: "json", time_ns: 4e6 },
    ];

    fn run(kernels: &[(&str, f64)]) -> SyntheticRun {
        let mut run = SyntheticRun::new(1);
        for (kernel, ns) in kernels {
            run.measure("index.cpu", "time", Factors::default().with("kernel", *kernel), *ns);
        }
        run
    }

    #[test]
    fn twice_and_eight_times_as_fast_is_an_index_of_four() {
        let run = run(&[("lz77", 4e6), ("json", 5e5)]);
        let found = summarize(&measured_cells(&run.data), "index.cpu", &REFERENCES).unwrap();
        assert!((found.index / 4.0 - 1.0).abs() < 0.02, "{found:?}");
        assert!((found.geometric_sd / (2_f64.ln() * 2_f64.sqrt()).exp() - 1.0).abs() < 0.05);
        let [lo, hi] = found.ci95.unwrap();
        assert!(lo <= found.index && found.index <= hi);
    }

    #[test]
    fn a_missing_kernel_gives_no_index() {
        let run = run(&[("lz77", 4e6)]);
        assert_eq!(summarize(&measured_cells(&run.data), "index.cpu", &REFERENCES), None);
    }
}
