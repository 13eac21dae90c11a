//! The cost of copying and of summing a buffer, apart and in one pass, warm and cold.
//!
//! Cold means that the bytes were last touched so long ago that no cache still has them: each
//! operation takes the next of many buffers, which together are larger than any cache.

use std::hint::black_box;

use plumb_copy::Kernel;

use super::bench::Trouble;
use super::calls;
use super::spec::{BlockReport, BlockSpec, Task};
use crate::clock::Stopwatch;

/// Bytes of each of the two arenas: three times the largest last-level cache slice that one core
/// of a common server sees.
const ARENA: usize = 96 << 20;

/// Buffers lie this far apart at least: two lines, so that the neighbour's prefetch does not warm one.
const APART: usize = 256;

/// Whether this processor has a kernel of this name.
pub fn has_kernel(name: &str) -> bool {
    kernel(name).is_some_and(Kernel::available)
}

fn kernel(name: &str) -> Option<Kernel> {
    Kernel::ALL.iter().copied().find(|kernel| kernel.name() == name)
}

/// Two arenas, made when they are first needed.
#[derive(Debug, Default)]
pub(crate) struct Checksums {
    source: Vec<u8>,
    target: Vec<u8>,
}

impl Checksums {
    /// Measures a block if its task is one of copying or summing.
    pub(crate) fn measure(
        &mut self,
        spec: &BlockSpec,
        watch: Stopwatch,
        cpus: &[u32],
    ) -> Result<Option<BlockReport>, Trouble> {
        let Task::Checksum { operation, kernel: name, size, cold } = &spec.task else {
            return Ok(None);
        };
        let size = usize::try_from(*size).map_err(|e| Trouble::Impossible(e.to_string()))?;
        if size > ARENA / 2 {
            return Err(Trouble::Impossible(format!("at most {} bytes are summed", ARENA / 2)));
        }
        let kernel = match kernel(name) {
            None if operation == "copy" => Kernel::best().ready(),
            kernel => kernel.and_then(Kernel::ready),
        };
        let Some(kernel) = kernel else {
            return Err(Trouble::Impossible(format!("there is no kernel '{name}' here")));
        };
        if self.source.is_empty() {
            // Different bytes everywhere, so that no page stands for another.
            self.source = (0..ARENA).map(|i| (i ^ (i >> 8)).to_le_bytes()[0]).collect();
            self.target = vec![1; ARENA];
        }
        let mut slots = Slots::new(size, *cold);
        let (source, target) = (&self.source, &mut self.target);
        let report = match operation.as_str() {
            "copy" => calls::time(spec, watch, cpus, || {
                let at = slots.next();
                target[at..at + size].copy_from_slice(black_box(&source[at..at + size]));
                black_box(&mut target[at..at + size]);
            }),
            "sum" => calls::time(spec, watch, cpus, || {
                let at = slots.next();
                kernel.sum(black_box(&source[at..at + size])).finish()
            }),
            "separate" => calls::time(spec, watch, cpus, || {
                let at = slots.next();
                target[at..at + size].copy_from_slice(black_box(&source[at..at + size]));
                kernel.sum(black_box(&target[at..at + size])).finish()
            }),
            "fused" => calls::time(spec, watch, cpus, || {
                let at = slots.next();
                let source = black_box(&source[at..at + size]);
                kernel.copy_and_sum(source, black_box(&mut target[at..at + size])).finish()
            }),
            "bare" => calls::time(spec, watch, cpus, || {
                let at = slots.next();
                kernel.copy(black_box(&source[at..at + size]), &mut target[at..at + size]);
                black_box(&mut target[at..at + size]);
            }),
            other => return Err(Trouble::Impossible(format!("there is no operation '{other}'"))),
        };
        Ok(Some(report))
    }
}

/// The places of buffers in the arena, one after the other but never beside the last.
struct Slots {
    apart: usize,
    count: usize,
    stride: usize,
    at: usize,
}

impl Slots {
    fn new(size: usize, cold: bool) -> Self {
        let apart = size.next_multiple_of(64) + APART;
        let count = if cold { (ARENA - size) / apart } else { 1 };
        // Coprime with the count, so that every slot comes once before any comes again; and large,
        // so that no prefetcher follows.
        let mut stride = (count * 5 / 8).max(1);
        while gcd(stride, count) != 1 {
            stride += 1;
        }
        Self { apart, count, stride, at: 0 }
    }

    #[inline]
    fn next(&mut self) -> usize {
        self.at += self.stride;
        // A stride is at most the count; a division here would be timed with every operation.
        if self.at >= self.count {
            self.at -= self.count;
        }
        self.at * self.apart
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn cold_buffers_are_all_visited_before_any_comes_again() {
        for size in [60, 1514, 65_536, 1 << 20] {
            let mut slots = Slots::new(size, true);
            let seen: BTreeSet<usize> = (0..slots.count).map(|_| slots.next()).collect();
            assert_eq!(seen.len(), slots.count);
            assert!(seen.iter().all(|at| at + size <= ARENA));
            assert!(slots.count * size > ARENA / 6);
        }
    }

    #[test]
    fn a_warm_buffer_is_always_the_same() {
        let mut slots = Slots::new(1514, false);
        assert_eq!((slots.next(), slots.next()), (0, 0));
    }
}
