//! `scaling.smp`: what more CPUs and more streams carry.
//!
//! Both processes may use the first so many CPUs, and the scheduler divides those between their threads.
//! Left out: CPUs of different speeds.

use plumb_host::topology::Placement;

use super::bulk::{self, CONTROL, PLAIN_LINK, RECEIVER_CPU, SENDER_CPU, STREAMED, STREAMS};
use super::factor::{Domain, Factor, Reader, always, keep, numbers};
use super::{Exclusion, Experiment, path};
use crate::plan::Preset;

/// Streams against CPUs.
pub static SCALING_SMP: Experiment = Experiment {
    id: "scaling.smp",
    study: "scaling",
    question: "How much more do more CPUs carry, and in how many streams?",
    hypothesis: "One stream uses two CPUs at most, one at each end; further CPUs carry more only in \
                 further streams, and each byte then costs more CPU than on one.",
    factors: &[
        PLAIN_LINK,
        CPUS,
        Factor {
            levels: |preset| match preset {
                Preset::Quick => numbers(&[1, 4]),
                Preset::Default => numbers(&[1, 2, 4]),
                Preset::Paper => numbers(&[1, 2, 4, 8, 16]),
            },
            ..STREAMS
        },
        CONTROL,
    ],
    responses: &[STREAMED, SENDER_CPU, RECEIVER_CPU],
    form: |setting| {
        let cpus: u16 = bulk::number(setting.factors, CPUS.name);
        let allowed = setting.topology.allowed().len();
        let placement = if usize::from(cpus) <= allowed {
            Ok(Placement::Scheduler)
        } else {
            Err(Exclusion::Lacking(format!("plumb may use {allowed} CPUs here, not {cpus}")))
        };
        let spec = path::of(setting.factors).map(|path| {
            let mut spec = bulk::spec(setting, path);
            spec.cpus = Some(cpus);
            spec.streams = bulk::number(setting.factors, STREAMS.name);
            spec
        });
        bulk::form(placement, spec)
    },
};

/// CPUs of the largest machines that Linux runs on.
const CPUS_MAX: u64 = 1_024;

const CPUS: Factor = Factor {
    name: "cpus",
    meaning: "CPUs that both processes share, the first that plumb may use",
    domain: Domain::Read(&Reader {
        parse: |text| bulk::whole(text, 1, CPUS_MAX).map(Into::into),
        describe: || format!("a number from 1 to {CPUS_MAX}"),
    }),
    levels: |preset| match preset {
        Preset::Quick => numbers(&[1, 2]),
        Preset::Default => numbers(&[1, 2, 4]),
        Preset::Paper => numbers(&[1, 2, 4, 8, 16]),
    },
    applies: always,
    fit: keep,
};
