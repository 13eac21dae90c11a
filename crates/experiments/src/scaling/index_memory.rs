//! `index.memory`: how long memory takes to answer, and how much it carries.

use crate::factor::channel;
use crate::prelude::*;

/// Loads that depend on one another, reading and copying, in the caches and beyond them.
pub static EXPERIMENT: Experiment = Experiment {
    id: "index.memory",
    study: "scaling",
    question: "How long does memory take to answer, and how much does it carry?",
    hypothesis: "Beyond the caches a load takes many times as long as within them, and reading and copying are slower.",
    factors: &[Factor::new(
        "size",
        "bytes that are walked over",
        FactorDomain::Sizes,
        Numbers(&[16 << 10, 256 << 10, 4 << 20, BEYOND_CACHES]),
    )
    .at_quick(Numbers(&[16 << 10, BEYOND_CACHES]))],
    responses: &[
        ResponseVariable::time("load", "time of a load whose address is the last one's result"),
        ResponseVariable::rate("read", "bytes read a second, by the fastest sum of plumb"),
        ResponseVariable::rate("copy", "bytes copied a second, by the library"),
    ],
    plan_cell: |point| {
        let size = channel::size_of(point.factors);
        let operation = point.response.to_owned();
        Ok((LaunchGroup::alone(), BlockTask::Memory { operation, size }))
    },
    analysis: ExperimentAnalysis::PLAIN,
    page: ExperimentPage { title: "Memory", ..ExperimentPage::PLAIN },
};

/// Larger than the cache that one core of a common server sees.
pub(crate) const BEYOND_CACHES: u64 = 64 << 20;
