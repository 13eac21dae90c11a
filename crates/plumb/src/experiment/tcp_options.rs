//! `tcp.options`: what the options of a TCP socket do to latency and throughput over loopback.

use plumb_host::harness::spec::Task;
use plumb_store::record::Level;

use super::factor::{Domain, Factor, always, keep, numbers, words};
use super::latency::LATENCY;
use super::local::{self, CONGESTION, MECHANISM, PLACEMENT, SIZE, WAKE};
use super::throughput::THROUGHPUT;
use super::{Experiment, Form};
use crate::plan::Preset;

/// TCP_NODELAY, quick acknowledgements, buffers and congestion control against each other.
pub static TCP_OPTIONS: Experiment = Experiment {
    id: "tcp.options",
    study: "ipc",
    question: "Which TCP socket option changes latency or throughput, and by how much?",
    hypothesis: "Nagle's rule delays only a request written in two parts, until the delayed \
                 acknowledgement; a strict request and reply is the same with and without \
                 TCP_NODELAY at every size; buffers smaller than a message cost throughput.",
    factors: &[
        Factor {
            domain: Domain::Mechanisms(local::is_tcp),
            levels: |_| words(&["tcp4"]),
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
        Factor { levels: |_| numbers(&[64, 16 << 10]), ..SIZE },
        switch("nodelay", "TCP_NODELAY: small segments are sent at once"),
        switch("quickack", "TCP_QUICKACK: acknowledgements are not delayed"),
        Factor {
            name: "buffer",
            meaning: "SO_SNDBUF and SO_RCVBUF",
            domain: Domain::Buffers,
            levels: |preset| match preset {
                Preset::Quick => words(&["default"]),
                _ => {
                    vec!["default".into(), Level::from(16u64 << 10), Level::from(256u64 << 10)]
                }
            },
            applies: always,
            fit: keep,
        },
        Factor {
            levels: |preset| match preset {
                Preset::Paper => words(&["cubic", "reno", "bbr"]),
                _ => words(&["cubic"]),
            },
            ..CONGESTION
        },
        Factor {
            name: "pattern",
            meaning: "one write a request, or two before the reply is read",
            domain: Domain::Words(&["request", "write-write-read"]),
            levels: |_| words(&["request", "write-write-read"]),
            applies: always,
            fit: keep,
        },
    ],
    responses: &[LATENCY, THROUGHPUT],
    form: |setting| {
        let size = local::size_of(setting.factors);
        let in_two = setting.factors.text("pattern") == Some("write-write-read");
        let task = match (setting.response, in_two) {
            ("latency", false) => Task::Latency { size },
            ("latency", true) if size < 2 => {
                return Form::impossible("1 byte cannot be written in two parts");
            }
            ("latency", true) => Task::WriteWriteRead { size },
            (_, false) => Task::Throughput { size },
            // A transfer in one direction has no reply to wait for.
            (_, true) => return Form::Meaningless,
        };
        Form::of(local::group(setting), task)
    },
};

/// A factor that is on or off.
const fn switch(name: &'static str, meaning: &'static str) -> Factor {
    Factor {
        name,
        meaning,
        domain: Domain::Words(&["on", "off"]),
        levels: |_| words(&["on", "off"]),
        applies: always,
        fit: keep,
    }
}
