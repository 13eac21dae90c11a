//! `udp.large`: messages larger than one datagram, with and without loss.

use plumb_base::units::Unit;
use plumb_host::harness::spec::Task;
use plumb_host::local::mechanism::Mechanism;
use plumb_store::record::Better;

use super::factor::{Domain, Factor, always, keep, numbers, words};
use super::latency::LATENCY;
use super::local::{self, MECHANISM, PLACEMENT, SIZE, WAKE};
use super::{Experiment, Form, Response};
use crate::plan::Preset;

/// Fragmentation by the application or left to IP, against injected loss.
pub static UDP_LARGE: Experiment = Experiment {
    id: "udp.large",
    study: "ipc",
    question: "What becomes of a UDP message that does not fit into one datagram?",
    hypothesis: "A message survives only if every one of its parts does, so that the delivered \
                 share falls with size and loss, and faster with small parts than with large ones.",
    factors: &[
        Factor {
            domain: Domain::Mechanisms(Mechanism::is_lossy),
            levels: |preset| match preset {
                Preset::Paper => words(&["udp4", "udp6"]),
                _ => words(&["udp4"]),
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
                Preset::Quick => numbers(&[DATAGRAM_MAX, 128 << 10, 512 << 10]),
                _ => numbers(&[16 << 10, DATAGRAM_MAX, 128 << 10, 256 << 10, 512 << 10]),
            },
            ..SIZE
        },
        Factor {
            name: "fragmentation",
            meaning: "parts cut by the application for one Ethernet frame, or datagrams as large \
                      as IP takes",
            domain: Domain::Words(&["application", "ip"]),
            levels: |_| words(&["application", "ip"]),
            applies: always,
            fit: keep,
        },
        Factor {
            name: "loss",
            meaning: "share of datagrams dropped on purpose, in percent",
            domain: Domain::Percent,
            levels: |_| numbers(&[0, 1, 10]),
            applies: always,
            fit: keep,
        },
    ],
    responses: &[
        Response {
            name: "delivered",
            unit: Unit::Share,
            better: Better::Higher,
            meaning: "share of messages that arrived whole",
        },
        Response {
            name: "goodput",
            unit: Unit::BytesPerSecond,
            better: Better::Higher,
            meaning: "verified bytes of whole messages a second",
        },
        LATENCY,
    ],
    form: |setting| {
        let size = local::size_of(setting.factors);
        let is_lossy = setting.factors.int("loss").unwrap_or(0) > 0;
        let task = match setting.response {
            // A lost message has no latency without a rule to repeat it, which UDP does not have.
            "latency" if is_lossy => return Form::Meaningless,
            "latency" => Task::Latency { size },
            "goodput" => Task::Throughput { size },
            fault => Task::Reliability { size, receiver_pause_ns: 0, fault: fault.to_owned() },
        };
        Form::of(local::group(setting), task)
    },
};

/// Largest UDP payload over IPv4: 65,535 − 20 − 8 bytes (RFC 791, RFC 768).
const DATAGRAM_MAX: u64 = 65_507;
