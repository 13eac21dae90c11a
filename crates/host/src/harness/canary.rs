//! The canary: a fixed computation before and after every block; when it slows down, so did the
//! machine (rule 10).
//!
//! Independent chains keep every execution port busy, so that it notices a lower frequency and
//! also a neighbour on the same core: a single chain waits for its own latencies most of the time,
//! and such a neighbour, who may be another virtual machine, costs it nothing, while a system call
//! takes half as long again. Left out: what is made of it.

use std::hint::black_box;

use super::spec::BlockSpec;
use crate::clock::Stopwatch;

/// Which computation it is: canaries of different ones cannot be compared.
pub const KIND: &str = "wide";

/// Turns of the computation around a block of [`WHOLE_FROM_NS`] or more: about a third of a millisecond.
const TURNS: u64 = 200_000;

/// A shorter block has a shorter canary, as it would otherwise be further from its neighbours in time
/// than it is long. What it took is given for [`TURNS`] all the same.
const WHOLE_FROM_NS: u64 = 3_000_000;

/// Fewer turns than this would be mostly the two reads of the clock and the first misses.
const TURNS_MIN: u64 = TURNS / 8;

/// A canary that was heard before a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Canary {
    watch: Stopwatch,
    turns: u64,
    before_ns: f64,
}

impl Canary {
    /// Hears it before a block.
    pub(crate) fn before(watch: Stopwatch, spec: &BlockSpec) -> Self {
        let turns = turns(spec.duration_ns);
        Self { watch, turns, before_ns: sing(watch, turns) }
    }

    /// Hears it again after the block: nanoseconds of [`TURNS`] turns, the mean of both.
    pub(crate) fn after(self) -> f64 {
        f64::midpoint(self.before_ns, sing(self.watch, self.turns))
    }
}

/// The turns around a block of so many nanoseconds.
fn turns(duration_ns: u64) -> u64 {
    (TURNS * duration_ns.min(WHOLE_FROM_NS) / WHOLE_FROM_NS).max(TURNS_MIN)
}

/// How long [`TURNS`] turns of the computation take, in nanoseconds, by so many of them. Its own speed
/// does not matter; that it takes the same time around every block does.
fn sing(watch: Stopwatch, turns: u64) -> f64 {
    let start = watch.begin();
    let mut chains = black_box([1_u64, 2, 3, 4, 5, 6, 7, 8]);
    for turn in 0..turns {
        for (places, chain) in (1_u32..).zip(&mut chains) {
            *chain = (*chain ^ turn).rotate_left(places);
        }
    }
    black_box(chains);
    watch.ns(watch.end().wrapping_sub(start)) * TURNS as f64 / turns as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::effort::CpuReading;

    #[test]
    fn the_canary_works_while_it_is_heard() {
        let before = CpuReading::now();
        let spent = 2.0 * sing(Stopwatch::new(None), TURNS);
        let used = CpuReading::now().since(before);
        assert!(used.process_ns > 0 && used.thread_ns > 0);
        assert!(used.thread_ns as f64 <= spent * 3.0 + 1e6);
    }

    #[test]
    fn a_short_block_has_a_short_canary_and_a_long_one_no_longer_than_the_whole() {
        assert_eq!(turns(u64::MAX), TURNS);
        assert_eq!(turns(WHOLE_FROM_NS), TURNS);
        assert_eq!(turns(WHOLE_FROM_NS / 4), TURNS / 4);
        assert_eq!(turns(0), TURNS_MIN);
    }

    #[test]
    fn short_and_whole_canaries_say_the_same_of_one_machine() {
        let watch = Stopwatch::new(None);
        // The quickest of many: whatever disturbs one of them disturbs it upwards.
        let quickest = |turns| (0..200).map(|_| sing(watch, turns)).fold(f64::INFINITY, f64::min);
        let (short, whole) = (quickest(TURNS_MIN), quickest(TURNS));
        println!("short {short} ns, whole {whole} ns");
        assert!((short / whole - 1.0).abs() < 0.5, "{short} {whole}");
    }
}
