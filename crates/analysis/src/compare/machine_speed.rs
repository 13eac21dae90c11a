//! Whether the machine itself was faster or slower while one side was measured, as its canary says.
//!
//! Two runs that were measured apart differ by whatever happened to the machine in between: its
//! frequency, and neighbours on the same core. The canary (rule 10) sees both, and a difference of
//! cost that the canary shares is not the subject's. Left out: correcting for it, as nobody knows
//! how much of it a subject feels.

use plumb_base::stats::quantile;

use crate::summary::{MeasuredCell, MeasuredLaunch};

/// A canary that took longer than so many times the shortest one was interrupted, and says nothing
/// of the machine's speed: a neighbour on the same core takes at most half of it.
const INTERRUPTED: f64 = 2.0;

/// The share of a difference of cost that the canary must show as well to be its explanation.
const SHARED: f64 = 0.5;

/// How much slower the machine was for B than for A: the ratio of their canaries, each launch with
/// equal weight. `None` where one side has none.
pub fn slowdown(a: &MeasuredCell<'_>, b: &MeasuredCell<'_>) -> Option<f64> {
    let canaries = |side: &MeasuredCell<'_>| -> Vec<f64> {
        let each = |launch: &MeasuredLaunch<'_>| {
            let heard: Vec<f64> =
                launch.blocks.iter().map(|block| block.effort.canary_ns).collect();
            quantile::of_sorted(&quantile::sorted(&heard), 0.5)
        };
        side.launches.iter().map(each).filter(|canary| *canary > 0.0).collect()
    };
    let (left, right) = (canaries(a), canaries(b));
    let least = left.iter().chain(&right).copied().fold(f64::INFINITY, f64::min);
    let mean = |side: &[f64]| {
        let logs: Vec<f64> =
            side.iter().filter(|canary| **canary <= INTERRUPTED * least).map(|c| c.ln()).collect();
        (!logs.is_empty()).then(|| logs.iter().sum::<f64>() / logs.len() as f64)
    };
    Some((mean(&right)? - mean(&left)?).exp())
}

/// Whether a ratio of costs may be no more than the machine's own.
pub fn explains(slowdown: f64, ratio: f64) -> bool {
    let (machine, cost) = (slowdown.ln(), ratio.ln());
    machine * cost > 0.0 && machine.abs() >= SHARED * cost.abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_canary_explains_a_difference_that_it_shares_by_half() {
        assert!(explains(1.75, 1.4));
        assert!(explains(1.1, 1.2) && explains(0.85, 0.8));
        assert!(!explains(1.01, 1.2), "the machine was as fast");
        assert!(!explains(0.8, 1.2), "the machine was faster, and the subject still slower");
    }
}
