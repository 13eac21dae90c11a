//! `host.peak`: the most that TCP carries, against how much CPU both hosts have.
//!
//! A faster or slower processor is imitated by taking a part of every two milliseconds away. Left out: memory
//! and caches, which stay as fast as they are, and so what a real slower machine would lose besides.

use plumb_base::units::Unit;
use plumb_store::record::Better;

use super::bulk::{self, CONTROL, PLAIN_LINK, RECEIVER_CPU, SENDER_CPU, STREAMED};
use super::factor::{Domain, Factor, Reader, always, keep, numbers, words};
use super::local::PLACEMENT;
use super::{Experiment, Form, Response};
use crate::plan::Preset;

/// Throughput against CPU.
pub static HOST_PEAK: Experiment = Experiment {
    id: "host.peak",
    study: "gigabit",
    question: "How much more does TCP carry on a faster processor?",
    hypothesis: "Where nothing but the processor bounds it, TCP carries as much more as the processor \
                 is faster; over loopback somewhat more than between hosts, and almost all of the CPU \
                 time is the kernel's.",
    factors: &[
        PLAIN_LINK,
        CPU_SHARE,
        Factor {
            levels: |preset| match preset {
                Preset::Quick => words(&["other-cpu"]),
                _ => words(&["same-cpu", "other-cpu"]),
            },
            ..PLACEMENT
        },
        CONTROL,
    ],
    responses: &[
        STREAMED,
        SENDER_CPU,
        RECEIVER_CPU,
        Response {
            name: "kernel",
            unit: Unit::Share,
            better: Better::Lower,
            meaning: "the kernel's share of the CPU time of both processes",
        },
    ],
    form: |setting| {
        let percent = bulk::number(setting.factors, CPU_SHARE.name);
        // The kernel divides a process' time by what its ticks see, and who takes CPU time away does so in step
        // with them.
        if setting.response == "kernel" && percent < 100 {
            return Form::Meaningless;
        }
        bulk::over_link(setting, |spec| spec.cpu_percent = percent)
    },
};

/// Less would leave a process less than one interrupt takes.
const SHARE_MIN: u64 = 10;

const CPU_SHARE: Factor = Factor {
    name: "cpu-share",
    meaning: "percent of their CPUs that both processes have",
    domain: Domain::Read(&Reader {
        parse: |text| bulk::whole(text, SHARE_MIN, 100).map(Into::into),
        describe: || format!("a whole percentage from {SHARE_MIN} to 100"),
    }),
    levels: |preset| match preset {
        Preset::Quick => numbers(&[25, 50, 75, 100]),
        Preset::Default => numbers(&[25, 40, 55, 75, 100]),
        Preset::Paper => numbers(&[25, 30, 40, 50, 55, 60, 75, 85, 100]),
    },
    applies: always,
    fit: keep,
};
