//! The experiments by id, and studies: sets of them run together under one name.

use std::collections::BTreeMap;

use plumb_analysis::build::build;
use plumb_analysis::document::RunDocument;
use plumb_analysis::document::explain::ExplainedExperiments;
use plumb_analysis::ladder::METROPOLITAN;
use plumb_analysis::registry::Registry;
use plumb_base::time::Span;
use plumb_report::registry::{self, PageRegistry};
use plumb_store::record::{FactorLevel, RunData};

use crate::claims::STATEMENTS;
use crate::definition::Experiment;
use crate::error::ExperimentError;
use crate::preset::{RunLimits, RunPreset};
use crate::{distributed, gigabit, ipc, scaling, stack};

/// The experiments that an explanation of a run is made of.
pub const EXPLAINED: ExplainedExperiments<'static> = ExplainedExperiments {
    breakdown: stack::breakdown_local::EXPERIMENT.id,
    latency: ipc::latency_local::EXPERIMENT.id,
};

/// Every experiment, study by study.
pub fn all() -> impl Iterator<Item = &'static Experiment> + Clone {
    let studies = [
        ipc::EXPERIMENTS,
        stack::EXPERIMENTS,
        gigabit::EXPERIMENTS,
        scaling::EXPERIMENTS,
        distributed::EXPERIMENTS,
    ];
    studies.into_iter().flatten().copied()
}

/// What the analysis is to know about every experiment.
pub fn registry() -> Registry {
    Registry::new(all().map(|experiment| (experiment.id, &experiment.analysis)))
        .with_statements(&STATEMENTS)
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

/// One experiment as asked for, before the preset fills the gaps.
#[derive(Clone, Debug)]
pub struct ExperimentRequest {
    /// The experiment.
    pub experiment: &'static Experiment,
    /// Levels that a study proposes instead of the preset's.
    pub proposed: BTreeMap<String, Vec<FactorLevel>>,
    /// Levels that the user chose.
    pub chosen: BTreeMap<String, Vec<FactorLevel>>,
}

impl ExperimentRequest {
    /// An experiment with everything left to the preset.
    pub fn bare(experiment: &'static Experiment) -> Self {
        Self { experiment, proposed: BTreeMap::new(), chosen: BTreeMap::new() }
    }

    /// The same with levels that a study proposes for one factor.
    #[must_use]
    pub fn propose(mut self, factor: &str, levels: &[&str]) -> Self {
        self.proposed.insert(factor.to_owned(), crate::factor::words(levels));
        self
    }

    /// The same with sizes that a study proposes.
    #[must_use]
    pub fn propose_sizes(mut self, sizes: &[u64]) -> Self {
        self.proposed.insert("size".to_owned(), crate::factor::numbers(sizes));
        self
    }
}

/// A set of experiments.
#[derive(Debug)]
pub struct Study {
    /// Its id on the command line.
    pub id: &'static str,
    /// Heading of its page.
    pub title: &'static str,
    /// What it is about, in one line.
    pub summary: &'static str,
    /// Its experiments, with the levels it proposes.
    pub requests: fn() -> Vec<ExperimentRequest>,
    /// Limits of its own, whatever the preset.
    pub limits: Option<RunLimits>,
}

impl Study {
    /// Every study.
    pub const ALL: [&'static Self; 8] =
        [&LADDER, &LADDER_REMOTE, &INDEX, &IPC, &GIGABIT, &SCALING, &STACK, &DISTRIBUTED];

    /// The study of an id.
    pub fn from_id(id: &str) -> Option<&'static Self> {
        Self::ALL.into_iter().find(|study| study.id == id)
    }

    /// How often and how long it measures under a preset.
    ///
    /// The quick limits of a study that has its own are its own; the other presets win over them.
    pub fn limits(&self, preset: Option<RunPreset>) -> RunLimits {
        match (preset, &self.limits) {
            (None | Some(RunPreset::Quick), Some(own)) => own.clone(),
            (preset, _) => preset.unwrap_or_default().limits(),
        }
    }
}

/// One small message over every boundary.
pub static LADDER: Study = Study {
    id: "ladder",
    title: "The ladder",
    summary: "what it costs to cross each boundary of this machine, in under 20 seconds",
    requests: ladder,
    limits: Some(LADDER_LIMITS),
};

/// Enough for a ranking within the time that a user waits.
const LADDER_LIMITS: RunLimits = RunLimits {
    budget: Some(Span::from_secs(17)),
    launches_max: 8,
    block: Span::from_ms(30),
    precision: 0.02,
    ..RunPreset::Quick.limits()
};

/// The ladder, and three networks above this machine.
pub static LADDER_REMOTE: Study = Study {
    id: "ladder.remote",
    title: "ladder.remote",
    summary: "the ladder, and the rungs above it: LAN, metropolitan and wide-area network, emulated",
    requests: || {
        let mut requests = ladder();
        requests.push(
            ExperimentRequest::bare(&ipc::latency_remote::EXPERIMENT)
                .propose("mechanism", &["udp4", "tcp4"])
                .propose("link", &["lan-1g", METROPOLITAN, "transatlantic"])
                .propose("placement", &["same-cpu"])
                .propose_sizes(&[64]),
        );
        requests
    },
    limits: Some(RunLimits { budget: Some(Span::from_secs(40)), ..LADDER_LIMITS }),
};

/// The processor index, and memory beside it.
pub static INDEX: Study = Study {
    id: "index",
    title: "The processor index",
    summary: "how fast this processor and its memory are, in under 5 seconds",
    requests: || {
        vec![
            ExperimentRequest::bare(&scaling::index_cpu::EXPERIMENT),
            ExperimentRequest::bare(&scaling::index_memory::EXPERIMENT)
                .propose_sizes(&[scaling::index_memory::BEYOND_CACHES]),
        ]
    },
    limits: Some(RunLimits {
        budget: Some(Span::from_secs(5)),
        launches_min: 6,
        launches_max: 10,
        block: Span::from_ms(30),
        ..RunPreset::Quick.limits()
    }),
};

/// Why a host does not fill its link, after Weigle, Feng & Gardner (2001).
pub static GIGABIT: Study = Study {
    id: "gigabit",
    title: "Why does a host not fill its link?",
    summary: "why a host does not fill its link (Weigle et al. 2001): CPU, buffers, batches, packets, windows",
    requests: || bare("gigabit"),
    limits: None,
};

/// Whether communication keeps up with processors, after Markatos (2001).
pub static SCALING: Study = Study {
    id: "scaling",
    title: "Does communication keep up with processors?",
    summary: "does communication keep up with processors? (Markatos 2001): what a second of CPU carries",
    requests: || bare("scaling"),
    limits: None,
};

/// Interprocess communication, after Zhao (2014).
pub static IPC: Study = Study {
    id: "ipc",
    title: "Interprocess communication on one machine",
    summary: "benchmarking interprocess communication (Zhao 2014): within one machine, between hosts, over routers",
    requests: || bare("ipc"),
    limits: None,
};

/// The user-level stack beside Linux's, after Kjellerstedt (1997).
pub static STACK: Study = Study {
    id: "stack",
    title: "How long is a packet in the stack?",
    summary: "how long a packet is in the stack (Kjellerstedt 1997): plumb's, Linux's, smoltcp's",
    requests: || bare("stack"),
    limits: Some(RunLimits { budget: Some(Span::from_secs(150)), ..RunPreset::Quick.limits() }),
};

/// What makes a distributed application slow, after Lantz, Nowicki & Theimer (1985).
pub static DISTRIBUTED: Study = Study {
    id: "distributed",
    title: "What makes a distributed application slow?",
    summary: "what makes a distributed application slow (Lantz et al. 1985): a remote display, and TCP",
    requests: || bare("distributed"),
    // Most of its cells are in virtual time: nine launches decide what six leave to chance.
    limits: Some(RunLimits { launches_min: 9, launches_max: 9, ..RunPreset::Quick.limits() }),
};

/// Every experiment of a study, with everything left to the preset.
fn bare(study: &str) -> Vec<ExperimentRequest> {
    all().filter(|experiment| experiment.study == study).map(ExperimentRequest::bare).collect()
}

/// Mechanisms on the ladder: one of each kind of boundary.
const RUNGS: [&str; 15] = [
    "shm-spin",
    "futex",
    "eventfd",
    "signal",
    "shm-futex",
    "vm-writev",
    "pipe",
    "socketpair-stream",
    "unix-stream",
    "unix-dgram",
    "mq-posix",
    "mq-sysv",
    "udp4",
    "tcp4",
    "uring",
];

fn ladder() -> Vec<ExperimentRequest> {
    vec![
        ExperimentRequest::bare(&ipc::clock_resolution::EXPERIMENT)
            .propose("clock", &["tsc", "monotonic"])
            .propose("cpu", &["first"])
            .propose("response", &["read-cost"]),
        ExperimentRequest::bare(&ipc::call_kernel::EXPERIMENT)
            .propose("call", &["getpid", "read-zero", "clock-gettime"])
            .propose("via", &["syscall", "vdso"]),
        ExperimentRequest::bare(&ipc::latency_local::EXPERIMENT)
            .propose("mechanism", &RUNGS)
            .propose("placement", &["same-cpu", "other-cpu"])
            .propose("wake", &["block"])
            .propose_sizes(&[64]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::factor::LevelContext;
    use crate::plan::resolve::resolve;
    use crate::surroundings::Surroundings;

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
    fn every_level_that_a_study_proposes_is_one_its_experiment_takes() {
        let context = LevelContext { preset: RunPreset::Quick, surroundings: &Surroundings::NONE };
        for study in Study::ALL {
            for request in (study.requests)() {
                for (name, levels) in &request.proposed {
                    let kind = crate::plan::resolve::domain(request.experiment, name);
                    for level in levels {
                        kind.as_ref().unwrap().parse(name, &level.to_string()).unwrap();
                    }
                }
                assert!(!resolve(&request, &context).unwrap().is_empty());
            }
        }
    }
}
