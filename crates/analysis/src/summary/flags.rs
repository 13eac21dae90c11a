//! What a reader must know about a result: the floor, disturbances, why it stopped.
//!
//! Left out: refused percentiles, batching and modes, which the summary flags as it fills itself.

use std::collections::BTreeMap;

use plumb_base::stats::groups::LaunchGroups;
use plumb_base::units::significant;
use plumb_store::record::{Cell, CellStatus, SampleBlock};

use crate::document::SampleSummary;

/// Flags of blocks that were disturbed from outside (rule 10).
pub const DISTURBANCES: [&str; 4] = ["steal", "migration", "canary", "page-faults"];

/// Flag of a block in virtual time.
const SIMULATED: &str = "simulated";

/// Flags that the summary states in its own words.
const SUMMARISED: [&str; 4] = ["batched", "below-floor", WARM_UP_ABOVE, WARM_UP_BELOW];

/// Flag of a block whose discarded start lay above what followed.
const WARM_UP_ABOVE: &str = "warm-up-above";

/// The same, below.
const WARM_UP_BELOW: &str = "warm-up-below";

/// Shares of discarded samples from this on are told.
const WARM_UP_TOLD: f64 = 0.01;

/// A corrected result is a number only above this multiple of its own uncertainty (rule 3).
const FLOOR_MULTIPLE: f64 = 3.0;

/// Flag of a cell whose launches are not independent.
pub const DRIFT: &str =
    "drift: launches resemble the ones before them, so the interval is too short";

/// `launch modes: 2 of 10 launches lie 20% above the others`
pub fn launch_groups(found: LaunchGroups) -> String {
    format!("launch modes: {}", groups_in_words(found))
}

/// `2 of 10 launches lie 20% above the others`: the smaller group against the larger one.
pub fn groups_in_words(LaunchGroups { low, high, ratio, .. }: LaunchGroups) -> String {
    let all = low + high;
    let (few, share, side) =
        if high <= low { (high, ratio - 1.0, "above") } else { (low, 1.0 - 1.0 / ratio, "below") };
    format!("{few} of {all} launches lie {}% {side} the others", significant(share * 100.0, 2))
}

/// Whether something outside the measurement disturbed the block.
pub fn is_disturbed(block: &SampleBlock) -> bool {
    block.flags.iter().any(|flag| DISTURBANCES.contains(&name(flag)))
}

/// Whether the block passed in virtual time.
pub fn is_simulated(block: &SampleBlock) -> bool {
    block.flags.iter().any(|flag| flag == SIMULATED)
}

/// The name of a flag without its detail: `steal` of `steal: 10 ms`.
pub fn name(flag: &str) -> &str {
    flag.split([':', ' ']).next().unwrap_or(flag)
}

/// How many blocks carry each flag.
pub fn counts<'a>(blocks: impl IntoIterator<Item = &'a SampleBlock>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for block in blocks {
        for flag in &block.flags {
            *counts.entry(name(flag).to_owned()).or_insert(0) += 1;
        }
    }
    counts
}

/// Adds `steal: 2 of 10 blocks` for each flag of the blocks.
pub fn disturbances(blocks: &[&SampleBlock], flags: &mut Vec<String>) {
    for (flag, count) in counts(blocks.iter().copied()) {
        if !SUMMARISED.contains(&flag.as_str()) {
            flags.push(format!("{flag}: {count} of {} blocks", blocks.len()));
        }
    }
}

/// Adds how many samples were discarded as warm-up, and whether they lay above or below the rest: a
/// start that is faster than what follows it is seldom a warm-up.
pub fn warm_up(blocks: &[&SampleBlock], flags: &mut Vec<String>) {
    let sum = |of: fn(&SampleBlock) -> u64| {
        blocks.iter().map(|block| of(block)).fold(0, u64::saturating_add) as f64
    };
    let (discarded, kept) = (sum(|block| block.warmup), sum(|block| block.n));
    let share = discarded / (discarded + kept).max(1.0);
    if share < WARM_UP_TOLD {
        return;
    }
    let counts = counts(blocks.iter().copied());
    let count = |flag| counts.get(flag).copied().unwrap_or(0);
    let sides = match (count(WARM_UP_ABOVE), count(WARM_UP_BELOW)) {
        (0, 0) => String::new(),
        (above, below) => {
            format!(", above what followed in {above} blocks and below it in {below}")
        }
    };
    flags.push(format!(
        "warm-up: {}% of the samples left out{sides}",
        significant(share * 100.0, 2)
    ));
}

/// Withholds numbers that are not above the floor of the measurement (rule 3).
///
/// The harness flags a block whose corrected result is under three times its uncertainty. The
/// cell's numbers are withheld when most blocks are flagged, or when some are and the interval
/// over launches is no better.
pub fn below_floor(blocks: &[&SampleBlock], summary: &mut SampleSummary, flags: &mut Vec<String>) {
    let low = counts(blocks.iter().copied()).get("below-floor").copied().unwrap_or(0);
    if low == 0 {
        return;
    }
    let wide = summary
        .median
        .zip(summary.ci95)
        .is_none_or(|(median, [lo, hi])| median < FLOOR_MULTIPLE * (hi - lo) / 2.0);
    if low * 2 <= blocks.len() as u64 && !wide {
        flags.push(format!("below-floor: {low} of {} blocks", blocks.len()));
        return;
    }
    flags.clear();
    flags.push(format!(
        "below the floor: in {low} of {} blocks the corrected result is under three times its \
         own uncertainty, so it is not a number",
        blocks.len()
    ));
    let (launches, n, n_eff) = (summary.launches, summary.n, summary.n_eff);
    *summary = SampleSummary { launches, n, n_eff, ..SampleSummary::default() };
}

/// Adds why sampling of the cell stopped, with the precision reached (rule 9).
pub fn stopped(cell: &Cell, summary: &SampleSummary, flags: &mut Vec<String>) {
    let why = match &cell.status {
        CellStatus::Done(why) => why.clone(),
        CellStatus::Open => "unfinished".to_owned(),
        CellStatus::Unavailable(why) | CellStatus::Failed(why) => format!("failed, {why}"),
    };
    let reached = match (summary.median, summary.ci95) {
        (Some(median), Some([lo, hi])) if median > 0.0 => {
            format!(", interval ±{}%", significant((hi - lo) / 2.0 / median * 100.0, 2))
        }
        _ => String::new(),
    };
    flags.push(format!("stopped: {why}{reached}"));
}
