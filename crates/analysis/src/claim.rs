//! Published claims, judged again from stored results.
//!
//! One file an experiment. A claim holds only where it holds at every measured setting it speaks
//! of; where it does not is said. Verdicts and sentences are computed, never written by hand.
//! Left out: claims about several hosts.

use std::collections::BTreeMap;

use plumb_store::record::RunData;

use crate::document::ClaimVerdict;
use crate::summary::Measured;

mod call_kernel;
mod clock_resolution;
mod evidence;
mod finding;
mod latency_local;
pub mod published;
mod reliability;
mod tcp_options;
mod throughput_local;
mod udp_large;

use evidence::Evidence;
use finding::Finding;

/// One published claim and how it is judged.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// Stable id: `ipc.latency.pipe-slower-than-sockets`.
    pub id: &'static str,
    /// The experiment that re-tests it.
    pub experiment: &'static str,
    /// The claim, in one sentence.
    pub claim: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// The historical figure, where the document gives one.
    pub historical: Option<&'static str>,
    judge: fn(&Evidence<'_>) -> Finding,
}

/// Every claim, in the order of the experiments.
pub fn catalogue() -> impl Iterator<Item = &'static Claim> {
    [
        clock_resolution::CLAIMS,
        call_kernel::CLAIMS,
        latency_local::CLAIMS,
        throughput_local::CLAIMS,
        tcp_options::CLAIMS,
        udp_large::CLAIMS,
        reliability::CLAIMS,
    ]
    .into_iter()
    .flatten()
}

/// The claims of one experiment: id → sentence.
pub fn of_experiment(experiment: &str) -> BTreeMap<String, String> {
    catalogue()
        .filter(|claim| claim.experiment == experiment)
        .map(|claim| (claim.id.to_owned(), claim.claim.to_owned()))
        .collect()
}

/// Judges every claim whose experiment is part of the run.
///
/// A claim whose cells are missing is not decided, and says what would measure them.
pub fn verdicts(data: &RunData, measured: &[Measured<'_>]) -> Vec<ClaimVerdict> {
    let evidence = Evidence::new(data, measured);
    let in_run = |claim: &&Claim| data.cells.iter().any(|cell| cell.experiment == claim.experiment);
    catalogue()
        .filter(in_run)
        .map(|claim| {
            let finding = (claim.judge)(&evidence);
            ClaimVerdict {
                id: claim.id.to_owned(),
                experiment: claim.experiment.to_owned(),
                claim: claim.claim.to_owned(),
                source: claim.source.to_owned(),
                historical: claim.historical.map(str::to_owned),
                verdict: finding.verdict.name().to_owned(),
                effect: finding.effect,
                estimate: finding.estimate,
                ci95: finding.ci95,
                needs: finding.needs,
            }
        })
        .collect()
}
