//! The experiments by id: what each asks, varies and measures, and the cells it makes.
//!
//! One experiment a file beside this one. Left out: carrying cells out (`crate::run`) and judging
//! the claims they re-test (`plumb-analysis`).

use plumb_base::time::Span;
use plumb_base::units::Unit;
use plumb_host::harness::spec::{Subject, Task};
use plumb_host::topology::{Placement, Topology};
use plumb_store::record::{Better, Factors};

use crate::plan::Limits;
use crate::problem::Problem;

pub mod breakdown;
pub(crate) mod bulk;
pub mod call;
pub mod checksum;
pub mod clock;
pub mod expand;
pub mod factor;
pub mod host_buffers;
pub mod host_coalescing;
pub mod host_mtu;
pub mod host_peak;
pub mod host_tweaks;
pub mod latency;
pub mod local;
pub mod mirror;
pub mod mtu_path;
pub(crate) mod path;
pub mod path_length;
pub mod reliability;
pub mod remote;
pub mod replay;
pub mod resolve;
pub mod scaling_entry;
pub mod scaling_http;
pub mod scaling_lan;
pub mod scaling_smp;
pub mod stack_time;
pub mod study;
pub mod tcp_options;
pub mod throughput;
pub mod udp_large;
pub mod window_bdp;

pub use expand::expand;
pub use factor::{Domain, Factor};
pub use study::Study;

/// What an experiment asks, varies and measures.
#[derive(Debug)]
pub struct Experiment {
    /// Stable id: `latency.local`.
    pub id: &'static str,
    /// The study it belongs to.
    pub study: &'static str,
    /// What it asks, in one sentence.
    pub question: &'static str,
    /// What is expected, in terms of its factors and responses, stated before measuring.
    pub hypothesis: &'static str,
    /// What is varied; the first one decides which levels suit the others.
    pub factors: &'static [Factor],
    /// What is measured.
    pub responses: &'static [Response],
    /// The form of one cell.
    pub(crate) form: fn(&Setting<'_>) -> Form,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Its name in results: `latency`.
    pub name: &'static str,
    /// The unit of its values.
    pub unit: Unit,
    /// Which direction is good.
    pub better: Better,
    /// What it is, in a few words.
    pub meaning: &'static str,
}

/// One combination of levels, about to become a cell.
#[derive(Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) factors: &'a Factors,
    pub(crate) response: &'a str,
    pub(crate) topology: &'a Topology,
}

/// What becomes of a combination of levels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Form {
    /// It can be tried.
    Measure { group: LaunchGroup, task: Task },
    /// It cannot, and why.
    Excluded(Exclusion),
    /// The response says nothing at these levels; there is no such cell.
    Meaningless,
}

/// Why a combination of levels cannot be measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Exclusion {
    /// It cannot be done anywhere: the levels exclude each other.
    Impossible(String),
    /// It cannot be done on this host.
    Lacking(String),
}

impl Form {
    /// A task in a launch of its group, unless the group is excluded.
    pub(crate) fn of(group: Result<LaunchGroup, Exclusion>, task: Task) -> Self {
        match group {
            Ok(group) => Self::Measure { group, task },
            Err(exclusion) => Self::Excluded(exclusion),
        }
    }

    /// What cannot be done anywhere.
    pub(crate) fn impossible(why: impl Into<String>) -> Self {
        Self::Excluded(Exclusion::Impossible(why.into()))
    }
}

/// One experiment at one setting of its factors with one response, and what to do about it.
#[derive(Clone, Debug, PartialEq)]
pub struct CellPlan {
    /// Id of the experiment.
    pub experiment: String,
    /// Every factor and its level.
    pub factors: Factors,
    /// What is measured.
    pub response: String,
    /// The unit of its values.
    pub unit: Unit,
    /// Which direction is good.
    pub better: Better,
    /// How.
    pub action: Action,
}

/// What to do about a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Measure it in a launch of its group.
    Measure {
        /// What the launch holds constant.
        group: LaunchGroup,
        /// What a block measures.
        task: Task,
        /// A spin added to each operation, to prove that a known delay is found.
        injected: Span,
    },
    /// Do not: it cannot be done here, and why.
    Unavailable(String),
}

/// What a launch holds constant; cells with equal groups share launches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaunchGroup {
    /// What stands between worker and peer.
    pub subject: Subject,
    /// Where worker and peer run.
    pub placement: Placement,
    /// The CPU of the worker where the cell names one, instead of the placement's.
    pub cpu: Option<u32>,
}

impl CellPlan {
    /// Wall time of one block: the plan's, but long enough for a few dozen operations where a
    /// single one is known to wait for a kernel timer or to cross a slow network.
    pub fn block_time(&self, limits: &Limits) -> Span {
        // Nagle's rule against a delayed acknowledgement costs 40 ms an operation on Linux.
        let waits = matches!(
            &self.action,
            Action::Measure { group, task: Task::WriteWriteRead { .. }, .. }
                if group.subject.channel().is_some_and(|channel| !channel.options.nodelay)
        );
        if waits {
            return limits.block.max(Span::from_ms(500));
        }
        let Action::Measure { group, task, .. } = &self.action else { return limits.block };
        match &group.subject {
            Subject::Remote(remote) => limits.block.max(remote::block_time(remote, task)),
            Subject::Streams(streams) => bulk::block_time(streams, limits.block),
            Subject::Visits(visits) => scaling_http::block_time(visits, limits.block),
            _ => limits.block,
        }
    }

    /// One line for people: `latency.local mechanism=pipe size=64 … [latency]`.
    pub fn label(&self) -> String {
        format!("{} {} [{}]", self.experiment, self.factors, self.response)
    }
}

impl Experiment {
    /// Every experiment, in the order of the studies.
    pub const ALL: [&'static Self; 29] = [
        &clock::RESOLUTION,
        &call::KERNEL,
        &latency::LOCAL,
        &throughput::LOCAL,
        &remote::LATENCY_REMOTE,
        &remote::THROUGHPUT_REMOTE,
        &path_length::PATH_LENGTH,
        &tcp_options::TCP_OPTIONS,
        &udp_large::UDP_LARGE,
        &reliability::RELIABILITY,
        &mirror::RTT,
        &stack_time::TIME,
        &checksum::CHECKSUM,
        &replay::REPLAY,
        &mirror::CONTENTION,
        &breakdown::LOCAL,
        &window_bdp::WINDOW_BDP,
        &mtu_path::MTU_PATH,
        &host_peak::HOST_PEAK,
        &host_buffers::HOST_BUFFERS,
        &host_coalescing::HOST_COALESCING,
        &host_tweaks::HOST_TWEAKS,
        &host_mtu::HOST_MTU,
        &scaling_entry::SCALING_ENTRY,
        &scaling_lan::SCALING_LOOPBACK,
        &scaling_lan::SCALING_LAN,
        &scaling_lan::SCALING_WAN,
        &scaling_http::SCALING_HTTP,
        &scaling_smp::SCALING_SMP,
    ];

    /// The experiment of an id.
    pub fn from_id(id: &str) -> Option<&'static Self> {
        Self::ALL.into_iter().find(|experiment| experiment.id == id)
    }

    /// The factor of a name.
    pub fn factor(&self, name: &str) -> Option<&'static Factor> {
        self.factors.iter().find(|factor| factor.name == name)
    }

    /// The experiment of an id.
    ///
    /// # Errors
    /// Names the nearest experiment or study.
    pub fn find(id: &str) -> Result<&'static Self, Problem> {
        Self::from_id(id).ok_or_else(|| {
            Problem::usage(format!("there is no experiment '{id}'"))
                .because("an experiment's id is quantity.place, such as latency.local")
                .suggest(id, Self::ALL.iter().map(|experiment| experiment.id))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_is_found_by_its_id_and_says_what_it_asks() {
        for experiment in Experiment::ALL {
            assert!(std::ptr::eq(Experiment::find(experiment.id).unwrap(), experiment));
            assert!(experiment.question.ends_with('?'), "{}", experiment.id);
            assert!(experiment.hypothesis.ends_with('.'), "{}", experiment.id);
            assert!(!experiment.responses.is_empty() && !experiment.factors.is_empty());
        }
    }

    #[test]
    fn a_misspelt_experiment_names_its_neighbour() {
        let problem = Experiment::find("latency.locl").unwrap_err();
        assert_eq!(problem.fix.as_deref(), Some("did you mean 'latency.local'?"));
    }
}
