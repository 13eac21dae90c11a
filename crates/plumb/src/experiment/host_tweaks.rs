//! `host.tweaks`: what a host gains when its processes are disturbed less.
//!
//! Each by itself and all together, against processes that the scheduler places. Left out: single-user mode,
//! which is the host's and not a process'.

use plumb_host::harness::spec::Tweaks;
use plumb_host::topology::Placement;

use super::bulk::{self, CONTROL, PLAIN_LINK, RECEIVER_CPU, SENDER_CPU, STREAMED};
use super::factor::{Domain, Factor, always, keep, words};
use super::{Exclusion, Experiment, path};
use crate::plan::Preset;

/// Throughput against what is asked of the kernel.
pub static HOST_TWEAKS: Experiment = Experiment {
    id: "host.tweaks",
    study: "gigabit",
    question: "How much more does TCP carry when its processes are disturbed less?",
    hypothesis: "On a machine that does nothing else a process' place matters, and little more: memory \
                 is not paged out, and nobody else wants the CPU.",
    factors: &[
        Factor {
            levels: |preset| match preset {
                Preset::Quick => words(&[path::LOOPBACK]),
                _ => words(&[path::LOOPBACK, path::VETH]),
            },
            ..PLAIN_LINK
        },
        TWEAK,
        CONTROL,
    ],
    responses: &[STREAMED, SENDER_CPU, RECEIVER_CPU],
    form: |setting| {
        let tweak = setting.factors.text(TWEAK.name).unwrap_or("none");
        let has = |name: &str| tweak == name || tweak == "all";
        let placement = if has("pinned") {
            let two = if path::is_host(setting.factors) {
                Placement::OwnHost
            } else {
                Placement::OtherCpu
            };
            let place = setting.topology.resolve(two);
            place.map_err(|lack| Exclusion::Lacking(lack.to_string()))
        } else {
            Ok(Placement::Scheduler)
        };
        let spec = path::of(setting.factors).map(|path| {
            let mut spec = bulk::spec(setting, path);
            spec.tweaks = Tweaks {
                locked: has("locked"),
                real_time: has("real-time"),
                huge_pages: has("huge-pages"),
            };
            spec
        });
        bulk::form(placement, spec)
    },
};

const TWEAK: Factor = Factor {
    name: "tweak",
    meaning: "nothing, each process bound to a CPU, its memory locked, real-time priority, its messages \
              in huge pages, or all of these",
    domain: Domain::Words(&LEVELS),
    levels: |_| words(&LEVELS),
    applies: always,
    fit: keep,
};

const LEVELS: [&str; 6] = ["none", "pinned", "locked", "real-time", "huge-pages", "all"];
