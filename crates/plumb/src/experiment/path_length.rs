//! `path.length`: what each router on the way costs.
//!
//! Hops of one kind in a row, with a router between one and the next: plumb's, on links of a rate and a
//! delay, or Linux's, on virtual Ethernets that have neither. Left out: routers that are loaded by others.

use plumb_host::harness::spec::{DeviceOptions, PathSpec, Task, Wire};

use super::factor::{Domain, Factor, always, keep, numbers, words};
use super::latency::LATENCY;
use super::local::{self, CONGESTION, MECHANISM, SIZE};
use super::remote::{self, BLOCKING, NEAR_PLACEMENT};
use super::throughput::THROUGHPUT;
use super::window_bdp::{INTERVAL_MIN, MESSAGE};
use super::{Experiment, Form, path};
use crate::plan::Preset;

/// Latency and throughput against the number of routers.
pub static PATH_LENGTH: Experiment = Experiment {
    id: "path.length",
    study: "ipc",
    question: "What does each router between two hosts cost?",
    hypothesis: "Each router adds the time to receive and to send the message once more, so latency \
                 grows linearly with their number; a long transfer fills the same rate over any \
                 number.",
    factors: &[
        Factor {
            domain: Domain::Mechanisms(remote::is_remote),
            levels: |_| words(&["udp4", "tcp4"]),
            ..MECHANISM
        },
        FORWARDER,
        ROUTERS,
        Factor { levels: |_| words(&["same-cpu"]), ..NEAR_PLACEMENT },
        BLOCKING,
        Factor {
            levels: |preset| match preset {
                Preset::Quick => numbers(&[64]),
                _ => numbers(&[64, 1 << 10, 16 << 10]),
            },
            fit: keep,
            ..SIZE
        },
        CONGESTION,
    ],
    responses: &[LATENCY, THROUGHPUT],
    form: |setting| {
        let factors = setting.factors;
        let Some(mechanism) = local::mechanism_of(factors) else {
            return Form::impossible("no mechanism is given");
        };
        let size = local::size_of(factors);
        let task = match setting.response {
            "latency" => Task::Latency { size },
            // A stream has no messages; what a datagram socket sends unasked is a flood.
            _ if mechanism.is_lossy() || size > 64 => return Form::Meaningless,
            _ => Task::Steady { size: MESSAGE, interval_ns: INTERVAL_MIN.as_ns() },
        };
        let routers = factors.int(ROUTERS.name).and_then(|number| u8::try_from(number).ok());
        let routers = routers.unwrap_or(0);
        let path = if factors.text(FORWARDER.name) == Some(LINUX) {
            Ok(PathSpec {
                name: format!("{routers} of Linux's routers"),
                wire: Wire::Routers(routers),
                mtu: MTU,
                round_trip_ns: 0,
                rate: None,
                device: DeviceOptions::default(),
            })
        } else {
            let text = vec![HOP; usize::from(routers) + 1].join(";");
            path::link(&format!("{routers} routers"), &text, MTU)
        };
        match path {
            Ok(path) => Form::of(remote::over(setting, mechanism, path, |_| {}), task),
            Err(exclusion) => Form::Excluded(exclusion),
        }
    },
};

/// One hop: a switched network of today's desk, as the preset lan-1g.
const HOP: &str = "rate=1gbit,overhead=24,delay=20us,limit=256packets";

/// MTU of every hop: Ethernet's (RFC 894).
const MTU: u32 = 1500;

/// The level of Linux's own routers.
const LINUX: &str = "linux";

const FORWARDER: Factor = Factor {
    name: "forwarder",
    meaning: "whose routers: plumb's, with links of 1 Gb/s and 20 µs, or Linux's, a namespace each",
    domain: Domain::Words(&["plumb", LINUX]),
    levels: |_| words(&["plumb", LINUX]),
    applies: always,
    fit: keep,
};

/// Most routers on a path.
const ROUTERS_MAX: u64 = 8;

const ROUTERS: Factor = Factor {
    name: "routers",
    meaning: "routers between the two hosts",
    domain: Domain::UpTo(ROUTERS_MAX),
    levels: |preset| match preset {
        Preset::Quick => numbers(&[0, 2, 8]),
        Preset::Default => numbers(&[0, 1, 2, 4, 8]),
        Preset::Paper => numbers(&[0, 1, 2, 3, 4, 5, 6, 7, 8]),
    },
    applies: always,
    fit: keep,
};
