//! Coverage: how often the interval of the median holds the true median of simulated cells.

use plumb_analysis::document::selftest::SelftestCheck;
use plumb_base::seed::Seed;
use plumb_base::stats::simulate::{Design, Shape};

use super::{Progress, go_on, rate};
use crate::problem::Problem;

/// Simulated cells of each distribution.
const TRIALS: u64 = 2_000;

/// A default run's cell: its fewest launches, two blocks, samples enough to matter.
const DESIGN: Design = Design { launches: 10, blocks: 2, samples: 200, launch_sd: 0.01 };

/// What a 95 % interval may do.
const BOUNDS: [f64; 2] = [0.93, 0.97];

/// One check for each distribution.
pub(super) fn check(
    seed: Seed,
    progress: &mut Progress<'_>,
) -> Result<Vec<SelftestCheck>, Problem> {
    let mut checks = Vec::new();
    for (index, shape) in Shape::ALL.into_iter().enumerate() {
        progress(&format!("coverage on {} samples", shape.name()), 0.02 * index as f64);
        go_on()?;
        let seed = seed.derive("selftest coverage").derive(shape.name());
        let covers = |trial: &u64| {
            let seed = seed.derive(&trial.to_string());
            let cell = DESIGN.cell(shape, 1.0, seed, None);
            let interval = cell.median_interval(0.95, seed);
            interval.is_some_and(|i| (i.lo..=i.hi).contains(&shape.median()))
        };
        let hits = (0..TRIALS).filter(covers).count() as u64;
        checks.push(rate(
            &format!("coverage.{}", shape.name()),
            format!("95 % intervals hold the true median of {} samples", shape.name()),
            (hits, TRIALS),
            BOUNDS,
            format!(
                "simulated: {} launches × {} blocks × {} samples, launch effect {} %",
                DESIGN.launches,
                DESIGN.blocks,
                DESIGN.samples,
                DESIGN.launch_sd * 100.0
            ),
        ));
    }
    Ok(checks)
}
