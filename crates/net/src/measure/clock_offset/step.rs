//! Where a clock was set: between which exchanges no one line explains the offsets.
//!
//! Two ways to know. Proof: no slope separates the bounds before and after. Recognition, for steps that hide
//! within the round trip: over blocks of exchanges, the least forward and the least backward differences move by
//! the same amount in opposite directions, against all that came before as well, while the least round trip
//! stays. A path that changes moves one of them, or both the same way; a queue that empties as another fills does not
//! go below what was seen before. A step in the first or the last two blocks is not recognised. Left out: how large a
//! step is ([`super::estimate`]).

use plumb_base::stats::quantile;

use super::estimate::corridor;
use super::{DRIFT_PPM_MAX, TimestampExchange};

/// Readings are whole nanoseconds, or 2⁻³² s: two of them differ by this without a cause.
const ROUNDING_NS: f64 = 2.0;
/// Fewer blocks tell nothing about how their edges usually move.
const BLOCKS_MIN: usize = 8;
const BLOCK_MAX: usize = 32;
const BLOCK_MIN: usize = 4;
/// A recognised step is this many times as large as blocks usually differ by …
const STANDING_OUT: f64 = 10.0;
/// … and at least as large as the clocks' own noise.
const SMALLEST_NS: f64 = 2_000.0;

/// The first exchange after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentBreak {
    pub index: usize,
    pub proved: bool,
}

/// Every step, in order.
pub(super) fn breaks(exchanges: &[TimestampExchange]) -> Vec<SegmentBreak> {
    let mut breaks = Vec::new();
    let mut start = 0;
    while start < exchanges.len() {
        let end = start + longest_explained(&exchanges[start..]);
        recognize(exchanges, start, end, &mut breaks);
        if end < exchanges.len() {
            breaks.push(SegmentBreak { index: end, proved: true });
        }
        start = end;
    }
    breaks
}

/// How many of the exchanges, from the first on, one line explains. More of them only narrow what does.
fn longest_explained(exchanges: &[TimestampExchange]) -> usize {
    let explained = |count: usize| corridor(&exchanges[..count]).0.widest().gap() >= -ROUNDING_NS;
    let (mut good, mut bad) = (1, exchanges.len() + 1);
    if explained(exchanges.len()) {
        return exchanges.len();
    }
    while bad - good > 1 {
        let middle = usize::midpoint(good, bad);
        if explained(middle.min(exchanges.len())) { good = middle } else { bad = middle }
    }
    good
}

/// The edges of one block of exchanges.
#[derive(Clone, Copy, Debug)]
struct ExchangeBlock {
    at_ns: f64,
    forward_ns: f64,
    backward_ns: f64,
}

impl ExchangeBlock {
    fn new(exchanges: &[TimestampExchange], origin: &TimestampExchange) -> Self {
        let least = |of: fn(&TimestampExchange) -> i64| {
            let first = of(origin);
            let values = exchanges.iter().map(|e| of(e).wrapping_sub(first) as f64);
            values.fold(f64::INFINITY, f64::min)
        };
        let at = exchanges.get(exchanges.len() / 2).map_or(0, |e| e.sent_ns);
        Self {
            at_ns: super::difference(at, origin.sent_ns) as f64,
            forward_ns: least(TimestampExchange::forward_ns),
            backward_ns: least(TimestampExchange::backward_ns),
        }
    }

    fn middle(self) -> f64 {
        (self.forward_ns - self.backward_ns) / 2.0
    }

    fn round_trip(self) -> f64 {
        self.forward_ns + self.backward_ns
    }

    /// With a drift taken out.
    fn level(self, slope: f64) -> Self {
        let drift = slope * self.at_ns;
        Self { forward_ns: self.forward_ns - drift, backward_ns: self.backward_ns + drift, ..self }
    }
}

fn recognize(
    exchanges: &[TimestampExchange],
    start: usize,
    end: usize,
    breaks: &mut Vec<SegmentBreak>,
) {
    let part = &exchanges[start..end];
    let size = (part.len() / (2 * BLOCKS_MIN)).clamp(BLOCK_MIN, BLOCK_MAX);
    let blocks: Vec<ExchangeBlock> =
        part.chunks_exact(size).map(|chunk| ExchangeBlock::new(chunk, &part[0])).collect();
    if blocks.len() < BLOCKS_MIN {
        return;
    }
    let slope = median_slope(&blocks);
    let blocks: Vec<ExchangeBlock> = blocks.into_iter().map(|block| block.level(slope)).collect();
    // Over one block between them, in the middle of which the step may lie.
    let moves: Vec<f64> =
        blocks.windows(3).map(|three| three[2].middle() - three[0].middle()).collect();
    let usual = 1.4826 * median(&moves.iter().map(|moved| moved.abs()).collect::<Vec<_>>());
    let threshold = (STANDING_OUT * usual).max(SMALLEST_NS);
    let mut middle = 1;
    while middle + 1 < blocks.len() {
        let strongest = (middle..(middle + 3).min(blocks.len() - 1))
            .max_by(|&a, &b| moves[a - 1].abs().total_cmp(&moves[b - 1].abs()))
            .unwrap_or(middle);
        if moves[middle - 1].abs() > threshold && is_step(&blocks, strongest, moves[strongest - 1])
        {
            let around = (strongest - 1) * size..((strongest + 2) * size).min(part.len());
            let index = start + around.start + division(&part[around]);
            breaks.push(SegmentBreak { index, proved: false });
            middle = strongest + 2;
        }
        middle += 1;
    }
}

/// The median slope, weighted by time: exchanges that waited for a CPU follow each other within microseconds, and slopes
/// between them say nothing about the clocks.
fn median_slope(blocks: &[ExchangeBlock]) -> f64 {
    let mut slopes: Vec<(f64, f64)> = blocks
        .windows(2)
        .map(|pair| (pair[1].middle() - pair[0].middle(), pair[1].at_ns - pair[0].at_ns))
        .filter(|&(_, elapsed)| elapsed > 0.0)
        .map(|(moved, elapsed)| (moved / elapsed, elapsed))
        .collect();
    slopes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = slopes.iter().map(|slope| slope.1).sum::<f64>() / 2.0;
    let mut passed = 0.0;
    let median = slopes.iter().find(|slope| {
        passed += slope.1;
        passed >= half
    });
    let limit = DRIFT_PPM_MAX * 1e-6;
    median.map_or(0.0, |slope| slope.0.clamp(-limit, limit))
}

/// Whether both edges moved oppositely by `moved`, against the neighbours and against all before and after.
fn is_step(blocks: &[ExchangeBlock], middle: usize, moved: f64) -> bool {
    let (before, after) = (blocks[middle - 1], blocks[middle + 1]);
    if (after.round_trip() - before.round_trip()).abs() > moved.abs() / 2.0 {
        return false;
    }
    let (left, right) = (&blocks[..middle], &blocks[middle + 1..]);
    // An edge needs two blocks: a single one may show how long its exchanges waited.
    let edge = |part: &[ExchangeBlock], of: fn(&ExchangeBlock) -> f64| {
        let sorted = quantile::sorted(&part.iter().map(of).collect::<Vec<_>>());
        let [least, next, ..] = sorted[..] else { return None };
        (next - least <= moved.abs() / 8.0).then_some(least)
    };
    let grew = |of: fn(&ExchangeBlock) -> f64| Some(edge(right, of)? - edge(left, of)?);
    let (Some(forward), Some(backward), Some(round_trip)) =
        (grew(|b| b.forward_ns), grew(|b| b.backward_ns), grew(|b| b.round_trip()))
    else {
        return false;
    };
    let enough = moved.abs() / 2.0;
    // A clock that is set leaves the least round trip as it was.
    forward * moved.signum() > enough
        && -backward * moved.signum() > enough
        && round_trip.abs() <= moved.abs() / 8.0
}

/// Where a short row of exchanges divides best into two levels of the offset.
fn division(exchanges: &[TimestampExchange]) -> usize {
    let base = exchanges.first().map_or(0, |e| e.forward_ns() - e.backward_ns());
    let middles: Vec<f64> = exchanges
        .iter()
        .map(|e| (e.forward_ns() - e.backward_ns()).wrapping_sub(base) as f64 / 2.0)
        .collect();
    let spread = |values: &[f64]| {
        let level = median(values);
        values.iter().map(|value| (value - level).abs()).sum::<f64>()
    };
    let cost = |at: usize| spread(&middles[..at]) + spread(&middles[at..]);
    let places = 1..middles.len();
    places.min_by(|&a, &b| cost(a).total_cmp(&cost(b))).unwrap_or(0)
}

fn median(values: &[f64]) -> f64 {
    let sorted = quantile::sorted(values);
    if sorted.is_empty() { 0.0 } else { quantile::of_sorted(&sorted, 0.5) }
}
