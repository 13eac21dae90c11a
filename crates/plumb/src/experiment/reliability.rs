//! `reliability`: what is lost, doubled, disordered or damaged between two local processes.

use plumb_base::units::Unit;
use plumb_host::harness::spec::Task;
use plumb_host::local::mechanism::{Carries, Mechanism};
use plumb_store::record::{Better, Level};

use super::factor::{Domain, Factor, always, keep, numbers, words};
use super::local::{self, CONGESTION, MECHANISM, PLACEMENT, SIZE, WAKE};
use super::{Experiment, Form, Response};
use crate::plan::Preset;

/// Every message checked, with a prompt receiver and with a slow one.
pub static RELIABILITY: Experiment = Experiment {
    id: "reliability",
    study: "ipc",
    question: "Which local mechanisms lose, double, disorder or damage messages under load?",
    hypothesis: "Only UDP loses messages, and only when its receiver is slower than its sender; \
                 nothing is ever doubled, disordered or damaged on one machine.",
    factors: &[
        Factor {
            domain: Domain::Mechanisms(carries_data),
            levels: |_| {
                Mechanism::ALL
                    .into_iter()
                    .filter(|m| carries_data(*m))
                    .map(|m| Level::from(m.name()))
                    .collect()
            },
            ..MECHANISM
        },
        Factor {
            levels: |preset| match preset {
                Preset::Quick => words(&["other-cpu"]),
                _ => words(&["same-cpu", "other-cpu"]),
            },
            ..PLACEMENT
        },
        Factor { levels: |_| words(&["block"]), ..WAKE },
        Factor {
            levels: |preset| match preset {
                Preset::Paper => numbers(&[64, 1 << 10, 16 << 10]),
                _ => numbers(&[1 << 10]),
            },
            ..SIZE
        },
        CONGESTION,
        Factor {
            name: "receiver",
            meaning: "prompt, or pausing 20 µs after each message",
            domain: Domain::Words(&["prompt", "slowed"]),
            levels: |_| words(&["prompt", "slowed"]),
            applies: always,
            fit: keep,
        },
    ],
    responses: &[
        share("lost", "share of messages that never arrived"),
        share("duplicated", "share of messages that arrived more than once"),
        share("reordered", "share of messages that arrived after a later one"),
        share("corrupted", "share of messages whose bytes had changed"),
    ],
    form: |setting| {
        let is_slowed = setting.factors.text("receiver") == Some("slowed");
        let task = Task::Reliability {
            size: local::size_of(setting.factors),
            receiver_pause_ns: if is_slowed { PAUSE_NS } else { 0 },
            fault: setting.response.to_owned(),
        };
        Form::of(local::group(setting), task)
    },
};

/// Pause of a slowed receiver: longer than any local mechanism needs for a small message.
const PAUSE_NS: u64 = 20_000;

/// Whether there is data to check.
fn carries_data(mechanism: Mechanism) -> bool {
    !matches!(mechanism.carries(), Carries::Fixed(_))
}

const fn share(name: &'static str, meaning: &'static str) -> Response {
    Response { name, unit: Unit::Share, better: Better::Lower, meaning }
}
