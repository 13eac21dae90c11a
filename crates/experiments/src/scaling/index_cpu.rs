//! `index.cpu`: how fast the processor is at six kernels that do not communicate.

use crate::prelude::*;

/// The kernels of `plumb-index/1`.
pub static EXPERIMENT: Experiment = Experiment {
    id: "index.cpu",
    study: "scaling",
    question: "How fast is the processor at what programs do besides communicating?",
    hypothesis: "A processor that is faster at one kernel is about as much faster at the others.",
    factors: &[Factor::of_words("kernel", "kernel of plumb-index/1", &KERNELS)],
    responses: &[ResponseVariable::time("time", "time of one pass, whose result is checked")],
    plan_cell: |point| {
        let kernel = point.text("kernel").unwrap_or_default().to_owned();
        Ok((LaunchGroup::alone(), BlockTask::IndexKernel { kernel }))
    },
    analysis: ExperimentAnalysis::PLAIN,
    page: ExperimentPage { title: "Processor index", ..ExperimentPage::PLAIN },
};

/// Their names in `plumb_index`.
const KERNELS: [&str; 6] = ["lz77", "records", "json", "digest", "interpreter", "paths"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_of_the_index_is_a_level() {
        assert_eq!(plumb_index::IndexKernel::ALL.map(plumb_index::IndexKernel::name), KERNELS);
    }
}
