//! Straight lines below and above clouds of points: the hulls of both directions, and what lies between.
//!
//! Coordinates are nanoseconds since the segment's first exchange, and offsets less its first one: small enough
//! that doubles are exact to a thousandth of a nanosecond over days.

use super::DRIFT_PPM_MAX;

/// A time and a bound on the offset at it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct OffsetPoint {
    pub x: f64,
    pub y: f64,
}

/// The lower hull of points in ascending `x`.
pub(super) fn lower(points: impl Iterator<Item = OffsetPoint>) -> Vec<OffsetPoint> {
    let mut hull: Vec<OffsetPoint> = Vec::new();
    for point in points {
        while let [.., a, b] = hull[..] {
            // The turn at b: not to the left means that b lies on or above the line from a to the new one.
            let turn = (b.x - a.x) * (point.y - a.y) - (b.y - a.y) * (point.x - a.x);
            if turn > 0.0 {
                break;
            }
            hull.pop();
        }
        match hull.last_mut() {
            Some(last) if last.x >= point.x => last.y = last.y.min(point.y),
            _ => hull.push(point),
        }
    }
    hull
}

/// What the offset can have been: at most the upper points, at least the lower ones.
#[derive(Debug)]
pub(super) struct Corridor {
    /// The lower hull of the upper bounds.
    above: Vec<OffsetPoint>,
    /// The lower hull of the negated lower bounds.
    below: Vec<OffsetPoint>,
    /// Mean time of the lower bounds less that of the upper ones.
    apart: f64,
}

/// A slope and the lines of it that just touch both clouds, by their values at zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct CorridorFit {
    /// Change of the offset per nanosecond.
    pub slope: f64,
    pub highest: f64,
    pub lowest: f64,
}

impl CorridorFit {
    /// How far apart the two lines are; negative where they do not separate the clouds.
    pub fn gap(self) -> f64 {
        self.highest - self.lowest
    }
}

impl Corridor {
    /// Of bounds in ascending `x` each.
    pub fn new(
        upper: impl Iterator<Item = OffsetPoint>,
        lower_bounds: impl Iterator<Item = OffsetPoint>,
    ) -> Self {
        let (mut above, mut below) = (RunningMean::default(), RunningMean::default());
        let upper = upper.inspect(|point| above.add(point.x));
        let negated = lower_bounds.map(|point| OffsetPoint { y: -point.y, ..point });
        let negated = negated.inspect(|point| below.add(point.x));
        let (above_hull, below_hull) = (lower(upper), lower(negated));
        let apart = below.value() - above.value();
        Self { above: above_hull, below: below_hull, apart }
    }

    /// The lines of one slope that touch.
    pub fn at(&self, slope: f64) -> CorridorFit {
        let touch = |hull: &[OffsetPoint], slope: f64| {
            hull.iter().map(|point| point.y - slope * point.x).fold(f64::INFINITY, f64::min)
        };
        let (highest, lowest) = (touch(&self.above, slope), -touch(&self.below, -slope));
        CorridorFit { slope, highest, lowest }
    }

    /// The slope at which the touching lines are furthest apart: where even these cross, none separates the clouds.
    pub fn widest(&self) -> CorridorFit {
        self.best(CorridorFit::gap)
    }

    /// The slope at which the distances of all points from the lines add up to the least; the widest where lines of
    /// that one cross.
    pub fn closest(&self) -> CorridorFit {
        let closest = self.best(|fit| fit.gap() - fit.slope * self.apart);
        if closest.gap() >= 0.0 { closest } else { self.widest() }
    }

    /// The best of all slopes. What is asked for is concave in the slope, and bends only at the slopes of the hulls'
    /// edges, so the best is one of these.
    fn best(&self, merit: impl Fn(CorridorFit) -> f64) -> CorridorFit {
        let merit = |slope: f64| merit(self.at(slope));
        let mut slopes: Vec<f64> = edges(&self.above).collect();
        slopes.extend(edges(&self.below).map(|slope| -slope));
        let most = DRIFT_PPM_MAX / 1e6;
        slopes.retain(|slope| slope.abs() < most);
        slopes.extend([-most, 0.0, most]);
        slopes.sort_unstable_by(f64::total_cmp);
        // Of two that are the same neither leads on.
        slopes.dedup();
        // A concave function on an ascending list: halve towards its top.
        let (mut lo, mut hi) = (0, slopes.len() - 1);
        while lo < hi {
            let middle = usize::midpoint(lo, hi);
            if merit(slopes[middle]) < merit(slopes[middle + 1]) {
                lo = middle + 1;
            } else {
                hi = middle;
            }
        }
        // Of a level top, which a few exchanges leave, the end nearest to no drift at all.
        let top = merit(slopes[lo]) - 1e-6;
        let level = slopes.iter().copied().filter(|&slope| merit(slope) >= top);
        let nearest = level.min_by(|a, b| a.abs().total_cmp(&b.abs()));
        self.at(nearest.unwrap_or(slopes[lo]))
    }

    /// The slopes that separate the clouds at all, given one that does.
    pub fn slopes(&self, fit: CorridorFit) -> (f64, f64) {
        let most = DRIFT_PPM_MAX / 1e6;
        let edge = |outside: f64| {
            let (mut inside, mut outside) = (fit.slope, outside);
            if self.at(outside).gap() >= 0.0 {
                return outside;
            }
            for _ in 0..60 {
                let middle = f64::midpoint(inside, outside);
                if self.at(middle).gap() >= 0.0 { inside = middle } else { outside = middle }
            }
            inside
        };
        (edge(-most), edge(most))
    }

    /// The least and the greatest value at `x` of all lines that separate the clouds: what the offset can have been
    /// there, whatever the drift was.
    pub fn range_at(&self, x: f64, (from, to): (f64, f64)) -> (f64, f64) {
        // The highest line of each slope is concave in the slope, the lowest convex: thirds close in on the top.
        let extreme = |value: &dyn Fn(f64) -> f64| {
            let (mut lo, mut hi) = (from, to);
            for _ in 0..100 {
                let (a, b) = (lo + (hi - lo) / 3.0, hi - (hi - lo) / 3.0);
                if value(a) < value(b) { lo = a } else { hi = b }
            }
            value(f64::midpoint(lo, hi))
        };
        let greatest = extreme(&|slope| self.at(slope).highest + slope * x);
        let least = -extreme(&|slope| -(self.at(slope).lowest + slope * x));
        (least, greatest)
    }
}

#[derive(Debug, Default)]
struct RunningMean {
    sum: f64,
    count: f64,
}

impl RunningMean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1.0;
    }

    fn value(&self) -> f64 {
        self.sum / self.count.max(1.0)
    }
}

fn edges(hull: &[OffsetPoint]) -> impl Iterator<Item = f64> + '_ {
    hull.windows(2).map(|edge| (edge[1].y - edge[0].y) / (edge[1].x - edge[0].x))
}
