//! `stack.checksum`: what the Internet checksum costs, alone, beside a copy, and fused with it.

use plumb_base::units::Unit;
use plumb_host::harness::checksums;
use plumb_host::harness::spec::{Subject, Task};
use plumb_host::topology::Placement;
use plumb_store::record::Better;

use super::factor::{Domain, Factor, always, numbers, words};
use super::{Exclusion, Experiment, Form, LaunchGroup, Response};
use crate::plan::Preset;

/// Copy, sum, one after the other and both at once, by instruction set, size and cache.
pub static CHECKSUM: Experiment = Experiment {
    id: "stack.checksum",
    study: "stack",
    question: "What does the Internet checksum cost beside the copy that is made anyway?",
    hypothesis: "Copying and summing in one pass costs what the copy alone costs, and much less than \
                 two passes once the data does not fit the caches.",
    factors: &[
        Factor {
            name: "operation",
            meaning: "what is done with the bytes; 'bare' is the fused pass without its sum",
            domain: Domain::Words(&OPERATIONS),
            levels: |_| words(&OPERATIONS),
            applies: always,
            fit: |_, levels| levels,
        },
        Factor {
            name: "kernel",
            meaning: "instruction set of the sum",
            domain: Domain::Words(&KERNELS),
            levels: |_| words(&KERNELS),
            applies: |first| first.text("operation") != Some("copy"),
            fit: |_, levels| levels,
        },
        Factor {
            name: "cache",
            meaning: "whether the bytes are in the caches",
            domain: Domain::Words(&["warm", "cold"]),
            levels: |_| words(&["warm", "cold"]),
            applies: always,
            fit: |_, levels| levels,
        },
        Factor {
            name: "size",
            meaning: "bytes",
            domain: Domain::Sizes,
            levels: |preset| match preset {
                Preset::Quick => numbers(&[60, 1514, 64 << 10]),
                _ => numbers(&[20, 60, 256, 1514, 4 << 10, 16 << 10, 64 << 10, 1 << 20]),
            },
            applies: always,
            fit: |_, levels| levels,
        },
    ],
    responses: &[Response {
        name: "time",
        unit: Unit::Nanoseconds,
        better: Better::Lower,
        meaning: "time for one buffer",
    }],
    form: |setting| {
        let text = |name| setting.factors.text(name).unwrap_or_default().to_owned();
        let kernel = text("kernel");
        if !kernel.is_empty() && !checksums::has_kernel(&kernel) {
            return Form::Excluded(Exclusion::Lacking(format!(
                "this processor has no {kernel} instructions"
            )));
        }
        let size = super::local::size_of(setting.factors);
        let task = Task::Checksum {
            operation: text("operation"),
            kernel,
            size,
            cold: setting.factors.text("cache") == Some("cold"),
        };
        let group =
            LaunchGroup { subject: Subject::Alone, placement: Placement::SameCpu, cpu: None };
        Form::Measure { group, task }
    },
};

/// What is done: `copy` is the library's, `bare` the loads and stores of the fused pass without its sum.
const OPERATIONS: [&str; 5] = ["copy", "bare", "sum", "separate", "fused"];

/// Instruction sets, by their names in `plumb_copy`.
const KERNELS: [&str; 6] = ["portable", "neon", "avx2", "avx-vnni", "avx512bw", "avx512-vnni"];
