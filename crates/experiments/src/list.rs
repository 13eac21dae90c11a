//! The experiments by id.

use plumb_analysis::document::explain::ExplainedExperiments;
use plumb_analysis::document::{RunDocument, build};
use plumb_analysis::registry::Registry;
use plumb_report::registry::{self, PageRegistry};
use plumb_store::record::RunData;

use crate::definition::Experiment;
use crate::error::ExperimentError;
use crate::studies::Study;
use crate::{gigabit, ipc, scaling, stack};

/// The experiments that an explanation of a run is made of.
pub const EXPLAINED: ExplainedExperiments<'static> = ExplainedExperiments {
    breakdown: stack::breakdown_local::EXPERIMENT.id,
    latency: ipc::latency_local::EXPERIMENT.id,
};

/// Every experiment, study by study.
pub fn all() -> impl Iterator<Item = &'static Experiment> + Clone {
    [ipc::EXPERIMENTS, stack::EXPERIMENTS, gigabit::EXPERIMENTS, scaling::EXPERIMENTS]
        .into_iter()
        .flatten()
        .copied()
}

/// What the analysis is to know of every experiment.
pub fn registry() -> Registry {
    Registry::new(all().map(|experiment| (experiment.id, &experiment.analysis)))
}

/// Makes the experiments known to the pages of this process.
pub fn install_pages() {
    registry::install(|| PageRegistry {
        pages: all().map(|experiment| (experiment.id, &experiment.page)).collect(),
        studies: Study::ALL.iter().map(|study| (study.id, study.title)).collect(),
        levels: all()
            .flat_map(|experiment| experiment.factors)
            .map(|factor| (factor.name, factor.labels))
            .filter(|(_, words)| !words.is_empty())
            .collect(),
    });
}

/// The document of a run.
pub fn run_document(data: &RunData) -> RunDocument {
    build(&registry(), data)
}

/// The experiment of an id.
pub fn from_id(id: &str) -> Option<&'static Experiment> {
    all().find(|experiment| experiment.id == id)
}

/// The experiment of an id.
///
/// # Errors
/// Names the nearest experiment.
pub fn find(id: &str) -> Result<&'static Experiment, ExperimentError> {
    from_id(id).ok_or_else(|| {
        ExperimentError::usage(format!("there is no experiment '{id}'"))
            .because("plumb list experiments shows them")
            .suggest(id, all().map(|experiment| experiment.id))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_is_found_by_its_id_and_is_complete() {
        for experiment in all() {
            assert!(std::ptr::eq(find(experiment.id).unwrap(), experiment));
            assert!(experiment.question.ends_with('?'), "{}", experiment.id);
            assert!(experiment.hypothesis.ends_with('.'), "{}", experiment.id);
            assert!(!experiment.responses.is_empty() && !experiment.factors.is_empty());
        }
    }

    #[test]
    fn a_misspelt_experiment_names_its_neighbor() {
        let problem = find("latency.locl").unwrap_err();
        assert_eq!(problem.fix.as_deref(), Some("did you mean 'latency.local'?"));
    }
}
