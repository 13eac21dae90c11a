//! `clock.resolution`: how finely each clock steps, what it costs to read, and how far the CPUs
//! disagree about it.

use plumb_base::units::Unit;
use plumb_host::harness::spec::{Subject, Task};
use plumb_host::topology::{Placement, Topology};
use plumb_store::record::{Better, Level};

use super::factor::{Domain, Factor, always, keep, words};
use super::{Exclusion, Experiment, Form, LaunchGroup, Response, Setting};

/// Every clock of the system on every CPU.
pub static RESOLUTION: Experiment = Experiment {
    id: "clock.resolution",
    study: "ipc",
    question: "How short a time can this machine's clocks tell apart, and what does asking cost?",
    hypothesis: "The time-stamp counter steps by about a nanosecond or less and costs tens of \
                 nanoseconds to read; clocks that enter the kernel cost as much as a kernel call.",
    factors: &[
        Factor {
            name: "clock",
            meaning: "which clock",
            domain: Domain::Words(&CLOCKS),
            levels: |_| words(&CLOCKS),
            applies: always,
            fit: keep,
        },
        Factor {
            name: "cpu",
            meaning: "on which CPU",
            domain: Domain::Cpus,
            levels: |_| words(&["each"]),
            applies: always,
            fit: keep,
        },
    ],
    responses: &[
        Response {
            name: "resolution",
            unit: Unit::Nanoseconds,
            better: Better::Lower,
            meaning: "smallest positive step between two readings",
        },
        Response {
            name: "read-cost",
            unit: Unit::Nanoseconds,
            better: Better::Lower,
            meaning: "time of one reading",
        },
        Response {
            name: "offset",
            unit: Unit::Nanoseconds,
            better: Better::Lower,
            meaning: "how far this CPU's clock is from the first CPU's",
        },
    ],
    form,
};

/// The clocks by name.
const CLOCKS: [&str; 8] = [
    "tsc",
    "monotonic",
    "monotonic-raw",
    "monotonic-coarse",
    "realtime",
    "gettimeofday",
    "process-cpu",
    "thread-cpu",
];

/// The clocks that two CPUs may see differently: the others are one per process or thread, or are
/// made from these.
const COMPARED: [&str; 2] = ["tsc", "monotonic"];

/// Most CPUs that the level `each` stands for.
const CPUS_MAX: usize = 8;

fn form(setting: &Setting<'_>) -> Form {
    let clock = setting.factors.text("clock").unwrap_or_default().to_owned();
    let Some(cpu) = setting.factors.int("cpu").and_then(|cpu| u32::try_from(cpu).ok()) else {
        return Form::impossible("no CPU is given");
    };
    if !setting.topology.allowed().contains(&cpu) {
        let why = format!("CPU {cpu} does not exist here or is not allowed");
        return Form::Excluded(Exclusion::Lacking(why));
    }
    let on = |cpu| LaunchGroup { subject: Subject::Alone, placement: Placement::SameCpu, cpu };
    match setting.response {
        "resolution" => {
            Form::Measure { group: on(Some(cpu)), task: Task::ClockResolution { clock } }
        }
        "read-cost" => Form::Measure { group: on(Some(cpu)), task: Task::ClockReadCost { clock } },
        _ if !COMPARED.contains(&clock.as_str()) || Some(cpu) == first_cpu(setting.topology) => {
            Form::Meaningless
        }
        _ => Form::Measure { group: on(None), task: Task::ClockOffset { clock, cpu } },
    }
}

/// The CPU on which single processes are measured.
pub(crate) fn first_cpu(topology: &Topology) -> Option<u32> {
    topology.pair(Placement::SameCpu).ok().and_then(|pair| pair.local)
}

/// The CPUs that a level stands for.
pub(crate) fn cpus_of(level: &Level, topology: &Topology) -> Vec<Level> {
    let cpus = topology.allowed();
    let chosen: Vec<u32> = match level {
        Level::Text(word) if word == "first" => first_cpu(topology).into_iter().collect(),
        Level::Text(_) => {
            let shown = cpus.len().min(CPUS_MAX);
            (0..shown).map(|nth| cpus[nth * cpus.len() / shown]).collect()
        }
        Level::Int(_) => return vec![level.clone()],
    };
    chosen.into_iter().map(|cpu| u64::from(cpu).into()).collect()
}
