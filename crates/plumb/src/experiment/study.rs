//! Studies: sets of experiments run together under one name.
//!
//! Left out: what the results mean for the documents that the studies re-test.

use plumb_analysis::ladder::METROPOLITAN;
use plumb_base::time::Span;

use super::Experiment;
use super::resolve::Request;
use crate::plan::{Limits, Preset};

/// A set of experiments.
#[derive(Debug)]
pub struct Study {
    /// Its id on the command line.
    pub id: &'static str,
    /// What it is about, in one line.
    pub summary: &'static str,
    /// Its experiments, with the levels it proposes.
    pub requests: fn() -> Vec<Request>,
    /// Limits of its own, whatever the preset.
    pub limits: Option<Limits>,
}

impl Study {
    /// Every study.
    pub const ALL: [&'static Self; 6] = [&LADDER, &LADDER_REMOTE, &IPC, &GIGABIT, &SCALING, &STACK];

    /// The study of an id.
    pub fn from_id(id: &str) -> Option<&'static Self> {
        Self::ALL.into_iter().find(|study| study.id == id)
    }

    /// How often and how long it measures under a preset.
    ///
    /// The quick limits of a study that has its own are its own; the other presets win over them.
    pub fn limits(&self, preset: Option<Preset>) -> Limits {
        match (preset, &self.limits) {
            (None | Some(Preset::Quick), Some(own)) => own.clone(),
            (preset, _) => preset.unwrap_or_default().limits(),
        }
    }
}

/// One small message over every boundary.
pub static LADDER: Study = Study {
    id: "ladder",
    summary: "what it costs to cross each boundary of this machine, in under 20 seconds",
    requests: ladder,
    limits: Some(Limits {
        budget: Some(Span::from_secs(17)),
        launches_min: 3,
        launches_max: 8,
        passes: 1,
        block: Span::from_ms(30),
        samples_max: 20_000,
        precision: 0.02,
    }),
};

/// The ladder, and three networks above this machine.
pub static LADDER_REMOTE: Study = Study {
    id: "ladder.remote",
    summary: "the ladder, and the rungs above it: LAN, metropolitan and wide-area network, emulated",
    requests: || {
        let mut requests = ladder();
        requests.push(
            Request::bare(&super::remote::LATENCY_REMOTE)
                .propose("mechanism", &["udp4", "tcp4"])
                .propose("link", &["lan-1g", METROPOLITAN, "transatlantic"])
                .propose("placement", &["same-cpu"])
                .propose_sizes(&[64]),
        );
        requests
    },
    limits: Some(Limits {
        budget: Some(Span::from_secs(40)),
        launches_min: 3,
        launches_max: 8,
        passes: 1,
        block: Span::from_ms(30),
        samples_max: 20_000,
        precision: 0.02,
    }),
};

/// Why a host does not fill its link, after Weigle, Feng & Gardner (2001).
pub static GIGABIT: Study = Study {
    id: "gigabit",
    summary: "why a host does not fill its link (Weigle et al. 2001): CPU, buffers, batches, packets, windows",
    requests: || bare("gigabit"),
    limits: None,
};

/// Whether communication keeps up with processors, after Markatos (2001).
pub static SCALING: Study = Study {
    id: "scaling",
    summary: "does communication keep up with processors? (Markatos 2001): what a second of CPU carries",
    requests: || bare("scaling"),
    limits: None,
};

/// Interprocess communication, after Zhao (2014).
pub static IPC: Study = Study {
    id: "ipc",
    summary: "benchmarking interprocess communication (Zhao 2014): within one machine, between hosts, over routers",
    requests: || bare("ipc"),
    limits: None,
};

/// The user-level stack beside Linux's, after Kjellerstedt (1997).
pub static STACK: Study = Study {
    id: "stack",
    summary: "how long a packet is in the stack (Kjellerstedt 1997): plumb's, Linux's, smoltcp's",
    requests: || bare("stack"),
    limits: Some(Limits {
        budget: Some(Span::from_secs(150)),
        launches_min: 3,
        launches_max: 5,
        passes: 1,
        block: Span::from_ms(40),
        samples_max: 20_000,
        precision: 0.05,
    }),
};

/// Every experiment of a study, with everything left to the preset.
fn bare(study: &str) -> Vec<Request> {
    let all = Experiment::ALL.into_iter();
    all.filter(|experiment| experiment.study == study).map(Request::bare).collect()
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

fn ladder() -> Vec<Request> {
    vec![
        Request::bare(&super::clock::RESOLUTION)
            .propose("clock", &["tsc", "monotonic"])
            .propose("cpu", &["first"])
            .propose("response", &["read-cost"]),
        Request::bare(&super::call::KERNEL)
            .propose("call", &["getpid", "read-zero", "clock-gettime"])
            .propose("via", &["syscall", "vdso"]),
        Request::bare(&super::latency::LOCAL)
            .propose("mechanism", &RUNGS)
            .propose("placement", &["same-cpu", "other-cpu"])
            .propose("wake", &["block"])
            .propose_sizes(&[64]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::resolve::resolve;

    #[test]
    fn every_level_that_a_study_proposes_is_one_its_experiment_takes() {
        for study in Study::ALL {
            for request in (study.requests)() {
                for (name, levels) in &request.proposed {
                    let kind = crate::experiment::resolve::domain(request.experiment, name);
                    for level in levels {
                        kind.as_ref().unwrap().parse(name, &level.to_string()).unwrap();
                    }
                }
                assert!(!resolve(&request, Preset::Quick).unwrap().is_empty());
            }
        }
    }
}
