//! The canary: a fixed computation before and after every block; when it slows down, so did the
//! machine (rule 10).
//!
//! Independent chains keep every execution port busy, so that it notices a lower frequency and
//! also a neighbour on the same core: a single chain waits for its own latencies most of the time,
//! and such a neighbour, who may be another virtual machine, costs it nothing, while a system call
//! takes half as long again. Left out: what is made of it.

use std::hint::black_box;

use crate::clock::Stopwatch;

/// Which computation it is: canaries of different ones cannot be compared.
pub const KIND: &str = "wide";

/// Turns of the computation: about a third of a millisecond.
const TURNS: u64 = 200_000;

/// A canary that was heard before a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Canary {
    watch: Stopwatch,
    before_ns: f64,
}

impl Canary {
    /// Hears it before a block.
    pub(crate) fn before(watch: Stopwatch) -> Self {
        Self { watch, before_ns: sing(watch) }
    }

    /// Hears it again after the block: nanoseconds, the mean of both.
    pub(crate) fn after(self) -> f64 {
        f64::midpoint(self.before_ns, sing(self.watch))
    }
}

/// How long the computation took, in nanoseconds. Its own speed does not matter; that it takes the
/// same time around every block does.
fn sing(watch: Stopwatch) -> f64 {
    let start = watch.begin();
    let mut chains = black_box([1_u64, 2, 3, 4, 5, 6, 7, 8]);
    for turn in 0..TURNS {
        for (places, chain) in (1_u32..).zip(&mut chains) {
            *chain = (*chain ^ turn).rotate_left(places);
        }
    }
    black_box(chains);
    watch.ns(watch.end().wrapping_sub(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::effort::CpuReading;

    #[test]
    fn the_canary_works_while_it_is_heard() {
        let before = CpuReading::now();
        let canary = Canary::before(Stopwatch::new(None));
        let spent = 2.0 * canary.after();
        let used = CpuReading::now().since(before);
        assert!(used.process_ns > 0 && used.thread_ns > 0);
        assert!(used.thread_ns as f64 <= spent * 3.0 + 1e6);
    }
}
