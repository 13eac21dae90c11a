//! The processor and its memory: kernels of the processor index, loads that depend on one another, reading and copying.

use std::hint::black_box;

use plumb_base::seed::Seed;
use plumb_clock::Stopwatch;
use plumb_index::IndexKernel;
use rand::seq::SliceRandom;

use super::{time, time_as};
use crate::report::{BlockError, BlockReport};
use crate::spec::{BlockSpec, BlockTask};

/// Loads that are one operation, so that the loop around them does not count.
const LOADS: u32 = 512;
/// Bytes between two places that are loaded from: a line, and the one that is fetched with it.
const LINE: usize = 128;
/// The largest memory that is walked over.
const SIZE_MAX: u64 = 1 << 30;

/// Measures a block if its task is one of these.
pub(super) fn measure(
    spec: &BlockSpec,
    watch: Stopwatch,
    cpus: &[u32],
) -> Result<Option<BlockReport>, BlockError> {
    match &spec.task {
        BlockTask::IndexKernel { kernel } => measure_kernel(spec, watch, cpus, kernel).map(Some),
        BlockTask::Memory { operation, size } if *size <= SIZE_MAX => {
            measure_memory(spec, watch, cpus, operation, usize::try_from(*size)?).map(Some)
        }
        BlockTask::Memory { .. } => {
            Err(BlockError::Unavailable(format!("at most {SIZE_MAX} bytes are walked over")))
        }
        _ => Ok(None),
    }
}

fn measure_kernel(
    spec: &BlockSpec,
    watch: Stopwatch,
    cpus: &[u32],
    name: &str,
) -> Result<BlockReport, BlockError> {
    let Some(kernel) = IndexKernel::from_name(name) else {
        return Err(BlockError::Unavailable(format!("the processor index has no kernel '{name}'")));
    };
    let mut prepared = kernel.prepare();
    let mut checked = prepared.run_checked();
    let report = time(spec, watch, cpus, || {
        if let Err(error) = prepared.run_checked() {
            checked = Err(error);
        }
    });
    checked.map_err(|error| BlockError::Failed(error.to_string()))?;
    Ok(report)
}

fn measure_memory(
    spec: &BlockSpec,
    watch: Stopwatch,
    cpus: &[u32],
    operation: &str,
    size: usize,
) -> Result<BlockReport, BlockError> {
    let rate = |ns: f64| size as f64 / ns.max(1e-3) * 1e9;
    // Different bytes everywhere, so that no page stands for another.
    let bytes = || -> Vec<u8> { (0..size).map(|i| (i ^ (i >> 8)).to_le_bytes()[0]).collect() };
    Ok(match operation {
        "load" => {
            let chain = ring(size);
            let mut at = 0;
            let walk = || {
                for _ in 0..LOADS {
                    at = chain[at as usize];
                }
                at
            };
            time_as(spec, watch, cpus, walk, |ns| ns / f64::from(LOADS))
        }
        "read" => {
            let source = bytes();
            time_as(spec, watch, cpus, || plumb_copy::sum(black_box(&source)).finish(), rate)
        }
        "copy" => {
            let (source, mut target) = (bytes(), vec![1; size]);
            let copy = || {
                target.copy_from_slice(black_box(&source));
                black_box(&mut target);
            };
            time_as(spec, watch, cpus, copy, rate)
        }
        other => return Err(BlockError::Unavailable(format!("there is no operation '{other}'"))),
    })
}

/// Memory of about this size in which every place names the next one, all in one ring in random order.
fn ring(size: usize) -> Vec<u32> {
    const STEP: usize = LINE / size_of::<u32>();
    let places = (size / LINE).max(2);
    let mut order: Vec<u32> =
        (0..places).filter_map(|place| u32::try_from(place * STEP).ok()).collect();
    order.shuffle(&mut Seed(1).stream("ring"));
    let mut ring = vec![0; places * STEP];
    for (place, next) in order.iter().zip(order.iter().cycle().skip(1)) {
        ring[*place as usize] = *next;
    }
    // The walk begins at 0, which is on the ring like every other place.
    ring
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_visits_every_place_before_it_returns() {
        for size in [256, 16 << 10, 1 << 20] {
            let ring = ring(size);
            let (mut at, mut steps) = (0, 0);
            loop {
                at = ring[at as usize];
                steps += 1;
                if at == 0 {
                    break;
                }
            }
            assert_eq!(steps, (size / LINE).max(2));
        }
    }
}
